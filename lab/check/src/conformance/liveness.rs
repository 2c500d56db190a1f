//! Work goes on, and memory is used again, beside clients that do nothing and beside many that want the same row.
//!
//! What is measured does not depend on speed: commits, attempts, bytes, and what snapshots see. Each measure is taken before an
//! idle client comes, while it is there, and when it has gone.

use std::sync::Arc;

use polychron_base::sizes::scaled;
use polychron_engine::{Error, Interactive, Mode, Operations, Protocol, Table, Transaction, Worker};
use polychron_schema::Row;
use polychron_sync::atomic::{AtomicU64, Ordering};

pub use super::insertions::{insertions_beside_an_insertion, reads_beside_an_insertion, wanted_beside_an_insertion};
use crate::Setup;
use crate::client::Client;
use crate::rows::{Image, Item, value};
use crate::setup::{Tx, create, done, items, run, snapshot};
use crate::watch::watched;

/// A row of the idle client alone.
#[derive(Row, Clone, Copy, Debug)]
#[row(name = "idle")]
struct Mark {
    #[key]
    id: u64,
    value: i64,
}

/// What a client leaves open while it does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    Snapshot,
    /// A transaction that has written a row which no other client wants.
    Writer,
    /// Nothing: it has written, and keeps its worker.
    Session,
}

/// What the others do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Each transaction updates every row.
    Updates,
    /// Each deletes the first row and inserts one behind the last.
    Queue,
    /// Each reads and updates the same row.
    HotRow,
}

const ROWS: u64 = 32;

impl Work {
    /// Transactions of a phase, less under slow tools: what they would leave behind, were it kept, is several times [`SLACK`].
    const fn count(self) -> u64 {
        match self {
            Self::Updates => scaled(160, 64) as u64,
            Self::Queue | Self::HotRow => scaled(1280, 640) as u64,
        }
    }

    /// One transaction; `number` counts them.
    fn act<T: Transaction>(self, t: &mut T, table: &Table<Item>, number: u64) -> Result<(), Error> {
        match self {
            Self::Updates => {
                (0..ROWS).try_for_each(|id| t.update(table, id, |row| row.set_value(row.value() + 1)).map(drop))
            }
            Self::Queue => {
                let first = t.scan(table, ..).limit(1).first(|row| row.id())?;
                assert!(t.delete(table, first.expect("the queue has rows"))?);
                t.insert(table, &Item { id: number, value: 0 })
            }
            Self::HotRow => {
                let old = value(t, table, 0)?.expect("the row is there");
                t.update(table, 0, |row| row.set_value(old + 1)).map(drop)
            }
        }
    }

    /// What a snapshot must see after `number` transactions: it tells each state from the one before.
    fn state(self, number: u64) -> i64 {
        match self {
            Self::Updates | Self::HotRow => number as i64,
            // The id of the last row.
            Self::Queue => (ROWS + number - 1) as i64,
        }
    }

    fn look<T: Transaction>(self, t: &mut T, table: &Table<Item>) -> Result<i64, Error> {
        match self {
            Self::Updates | Self::HotRow => Ok(value(t, table, 0)?.expect("the row is there")),
            Self::Queue => Ok(t.scan(table, ..).rev().first(|row| row.id())?.expect("the queue has rows") as i64),
        }
    }
}

/// Others that work, one transaction after the other.
struct Others<'s, P: Protocol<Worker: Interactive>> {
    setup: &'s Setup<P>,
    database: Arc<P>,
    table: Table<Item>,
    work: Work,
    writer: P::Worker,
    reader: P::Worker,
    /// Transactions so far.
    done: u64,
}

/// Whose snapshots are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sessions {
    Own,
    Another,
}

/// After how many units of time a snapshot sees what was committed before them.
const FRESH: usize = 4;

impl<P: Protocol<Worker: Interactive>> Others<'_, P> {
    /// Runs transactions, and asserts that each commits at once, or nearly so: they are alone but for the idle client, which wants
    /// nothing of theirs.
    fn go_on(&mut self, count: u64) {
        let before = self.database.statistics();
        for _ in 0..count {
            let number = ROWS + self.done;
            done(&mut self.writer, |t| self.work.act(t, &self.table, number));
            self.done += 1;
            if self.done.is_multiple_of(8) {
                (self.setup.tick)(&self.database);
            }
            if self.done.is_multiple_of(16) && self.setup.maintains_by_clock {
                self.writer.maintain();
            }
        }
        let after = self.database.statistics();
        assert_eq!(after.commits - before.commits, count);
        let conflicts = after.conflicts() - before.conflicts();
        assert!(conflicts <= count / 4, "{conflicts} conflicts of {count} transactions that nobody disturbs");
    }

    /// Asserts that snapshots see the last of the transactions: those of the session that ran it at once, those of another one after
    /// some units of time.
    fn look(&mut self, sessions: Sessions) {
        let worker = match sessions {
            Sessions::Own => &mut self.writer,
            Sessions::Another => {
                self.setup.pass(&self.database, FRESH);
                &mut self.reader
            }
        };
        let seen = snapshot(worker, |t| self.work.look(t, &self.table));
        assert_eq!(seen, self.work.state(self.done), "a snapshot is behind after {} transactions", self.done);
    }

    /// Bytes in use when everything that can be freed has been, by those who work.
    fn used(&mut self) -> usize {
        for _ in 0..6 {
            self.setup.pass(&self.database, 2);
            self.writer.maintain();
            self.reader.maintain();
        }
        self.database.statistics().memory.map_or(0, |memory| memory.used_bytes)
    }
}

/// Bytes by which what is in use may differ from one measurement to the next.
const SLACK: usize = 16 << 10;

/// Others that work, with what an idle client has open, at each of three stages: before it has, while it has, and afterwards.
fn beside<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    idle: Idle,
    work: Work,
    mut at: impl FnMut(&mut Others<'_, P>, Stage) + Send + 'static,
) {
    let setup = setup.clone();
    watched(move |progress| {
        let rows: Vec<_> = (0..ROWS).map(|id| (id, 0)).collect();
        let (database, table) = items(&setup, &rows);
        let marks = create::<P, Mark>(&database);
        let (writer, reader) = (database.worker().unwrap(), database.worker().unwrap());
        let mut idler = database.worker().unwrap();
        done(&mut idler, |t| t.insert(&marks, &Mark { id: 0, value: 0 }));
        let mut others = Others { setup: &setup, database, table, work, writer, reader, done: 0 };
        progress.at("before");
        at(&mut others, Stage::Before);
        let mut client = match idle {
            Idle::Snapshot => Some(Client::begin(&mut idler, Mode::Snapshot)),
            Idle::Writer => Some(Client::begin(&mut idler, Mode::ReadWrite)),
            Idle::Session => None,
        };
        match (&mut client, idle) {
            (Some(client), Idle::Snapshot) => {
                client.step(|t: &mut Tx<'_, P>| value(t, &table, 0));
            }
            (Some(client), _) => {
                client.step(|t| t.update(&marks, 0, |row| row.set_value(1)));
            }
            (None, _) => {}
        }
        progress.at("beside");
        at(&mut others, Stage::Beside);
        progress.at("after");
        let commits = client.map(Client::commit);
        assert_ne!(commits, Some(false), "nobody wanted its row");
        at(&mut others, Stage::After);
        idler.maintain();
        at(&mut others, Stage::End);
    });
}

/// When others are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Beside,
    After,
    /// When the idle client has done its own background work, too.
    End,
}

/// Progress and memory before, beside and after an idle client.
fn progress<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, idle: Idle, work: Work) {
    // Where no key comes or goes, no place of a record is left behind.
    let kept = if work == Work::Queue { setup.kept_slots_bytes } else { 0 };
    let counted = setup.measures_memory;
    let mut before = 0;
    beside(setup, idle, work, move |others, stage| {
        match stage {
            Stage::Before | Stage::After => others.go_on(work.count()),
            Stage::Beside => {
                others.go_on(work.count());
                let first = others.used();
                others.go_on(2 * work.count());
                let later = others.used();
                // What can still be seen are the rows as they were; what came after that and went again no client can see.
                let most = first + first.saturating_sub(before) + SLACK + kept;
                let retired = others.database.statistics().memory.map_or(0, |memory| memory.retired_bytes);
                assert!(
                    !counted || later <= most,
                    "{before} bytes before, {first} beside {idle:?}, and later {later}, of which {retired} are retired"
                );
            }
            Stage::End => {
                let after = others.used();
                let most = before + SLACK + kept;
                assert!(!counted || after <= most, "{before} bytes before {idle:?}, and {after} after it");
            }
        }
        if stage == Stage::Before {
            before = others.used();
        }
    });
}

/// What snapshots see before, beside and after an idle client.
fn freshness<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, idle: Idle, sessions: Sessions) {
    beside(setup, idle, Work::HotRow, move |others, _| {
        others.go_on(20);
        others.look(sessions);
    });
}

/// A session's snapshots see its last commit beside a snapshot that does nothing.
pub fn own_commits_beside_a_snapshot<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    freshness(setup, Idle::Snapshot, Sessions::Own);
}

/// A session's snapshots see its last commit beside a transaction that has written and does nothing.
pub fn own_commits_beside_a_writer<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    freshness(setup, Idle::Writer, Sessions::Own);
}

/// Snapshots see what others committed some time ago, beside a snapshot that does nothing.
pub fn fresh_beside_a_snapshot<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    freshness(setup, Idle::Snapshot, Sessions::Another);
}

/// Snapshots see what others committed some time ago, beside a transaction that has written and does nothing.
pub fn fresh_beside_a_writer<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    freshness(setup, Idle::Writer, Sessions::Another);
}

macro_rules! beside {
    ($($(#[$doc:meta])* $name:ident: $idle:ident, $work:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
            progress(setup, Idle::$idle, Work::$work);
        }
    )*};
}

beside! {
    /// Updates beside a snapshot that does nothing.
    updates_beside_a_snapshot: Snapshot, Updates;
    /// A queue beside a snapshot that does nothing.
    queue_beside_a_snapshot: Snapshot, Queue;
    /// One row that is updated again and again beside a snapshot that does nothing.
    hot_row_beside_a_snapshot: Snapshot, HotRow;
    /// Updates beside a transaction that has written and does nothing.
    updates_beside_a_writer: Writer, Updates;
    /// A queue beside a transaction that has written and does nothing.
    queue_beside_a_writer: Writer, Queue;
    /// One row that is updated again and again beside a transaction that has written and does nothing.
    hot_row_beside_a_writer: Writer, HotRow;
    /// Updates beside a worker that does nothing.
    updates_beside_a_session: Session, Updates;
    /// A queue beside a worker that does nothing.
    queue_beside_a_session: Session, Queue;
    /// One row that is updated again and again beside a worker that does nothing.
    hot_row_beside_a_session: Session, HotRow;
}

/// Threads that want the same row.
const THREADS: u64 = scaled(64, 8) as u64;

/// Transactions of each.
const SHARE: u64 = 4;

/// Every thread completes its share, and each commit costs the others one attempt each at most, with as many again to spare.
fn crowd<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    act: impl Fn(&mut Tx<'_, P>, &Table<Item>, u64) -> Result<(), Error> + Send + Sync + 'static,
) -> i64 {
    let mut setup = setup.clone();
    setup.common.memory.max_workers = THREADS as usize + 2;
    watched(move |progress| {
        let (database, table) = items(&setup, &[(0, 0)]);
        setup.pass(&database, 3);
        let before = database.statistics();
        let (committed, completed) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (database, act, committed, completed, progress) =
                    (&database, &act, &committed, &completed, &progress);
                scope.spawn(move || {
                    let mut worker = database.worker().unwrap();
                    for _ in 0..SHARE {
                        done(&mut worker, |t| act(t, &table, thread));
                        committed.fetch_add(1, Ordering::Relaxed);
                    }
                    let completed = completed.fetch_add(1, Ordering::Relaxed) + 1;
                    progress.at(format!("{completed} of {THREADS} threads have completed their share"));
                });
            }
        });
        assert_eq!(committed.into_inner(), THREADS * SHARE);
        let after = database.statistics();
        assert_eq!(after.commits - before.commits, THREADS * SHARE);
        let (conflicts, most) = (after.conflicts() - before.conflicts(), 2 * THREADS * THREADS * SHARE);
        assert!(conflicts <= most, "{conflicts} conflicts of {} transactions", THREADS * SHARE);
        done(&mut database.worker().unwrap(), |t| value(t, &table, 0)).expect("the row is there")
    })
}

/// Many threads read and then write one row; each gives way in between.
pub fn crowd_that_reads_and_writes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let end = crowd(setup, |t, table, _| {
        let old = value(t, table, 0)?.expect("the row is there");
        std::thread::yield_now();
        t.update(table, 0, |row| row.set_value(old + 1)).map(drop)
    });
    assert_eq!(end, (THREADS * SHARE) as i64);
}

/// Many threads write one row that they have not read.
pub fn crowd_that_writes_blindly<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let end = crowd(setup, |t, table, thread| {
        std::thread::yield_now();
        t.upsert(table, &Item { id: 0, value: thread as i64 + 1 })
    });
    assert!((1..=THREADS as i64).contains(&end), "{end}");
}

/// The bytes of a long row, and how many of them fill most of a small memory.
const LONG: usize = 2000;

/// At the memory limit others can use what an idle session has deleted: they find room for nearly as many rows as beside a session
/// that has never done anything.
pub fn garbage_of_an_idle_session<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let mut setup = setup.clone();
    setup.common.memory.limit_bytes = Some(8 << 20);
    setup.common.memory.region_bytes = 1 << 20;
    setup.common.memory.chunk_bytes = 64 << 10;
    watched(move |progress| {
        progress.at("beside a session that has done nothing");
        let alone = fill_beside(&setup, 0);
        progress.at("beside a session with garbage");
        let beside = fill_beside(&setup, alone / 2);
        assert!(beside >= alone * 3 / 4, "{alone} rows fit, and only {beside} beside the garbage of an idle session");
    });
}

/// How many rows fit into the memory beside a session that has inserted and deleted `garbage` rows and does nothing since.
fn fill_beside<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, garbage: u64) -> u64 {
    let database = setup.open();
    let table = create::<P, Image>(&database);
    let image = |id| Image { id, bytes: vec![id as u8; LONG] };
    let (mut idle, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
    for id in 0..garbage {
        done(&mut idle, |t| t.insert(&table, &image(id)));
    }
    for id in 0..garbage {
        assert!(done(&mut idle, |t| t.delete(&table, id)));
    }
    let mut inserted = 0;
    let mut refusals = 0;
    // What was refused is tried again: background work may make room.
    while refusals < 8 {
        match run(&mut worker, |t| t.insert(&table, &image(1_000_000 + inserted))) {
            Ok(()) => (inserted, refusals) = (inserted + 1, 0),
            Err(Error::OutOfMemory(_)) => {
                refusals += 1;
                setup.pass(&database, 2);
                worker.maintain();
            }
            Err(error) => panic!("{error}"),
        }
        if inserted.is_multiple_of(64) {
            (setup.tick)(&database);
        }
    }
    inserted
}
