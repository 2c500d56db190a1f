//! Transactions inside of transactions, on one thread: the inner one commits what dooms the outer one, at each attempt.
//!
//! An outer transaction that is run until it commits would be run without end; it is told [`Error::WaitsForItself`]. Where a protocol knows
//! at which timestamp the other side of a conflict committed, that tells whether this very thread committed it ([`Nested::is_behind`]), and the
//! second time in a row is enough: at the first attempt alone it may be chance that there was an inner transaction. Conflicts that come from
//! other threads count for nothing. Where nothing tells whose commit it was, as of an insertion that broke a range, only many in a row
//! count, during each of which the thread has committed something.
//!
//! An inner transaction may also wait for another thread, which waits for the outer one: a cycle over threads that no protocol sees in its
//! transactions. So a transaction whose thread has another one open never waits, nor conflicts with what others have open, without end
//! ([`Endurance`]).
//!
//! The newest change that a thread has committed or seen is known here, too ([`last_seen`]): a snapshot that the thread begins contains it,
//! whichever workers the thread uses.

use std::cell::Cell;
use std::time::Duration;

use polychron_base::clock::{Clock, SystemClock};
use polychron_base::error::{KeyPreview, Opponent};
use polychron_base::{Abort, Error, IndexId, Reason, TableId};
use polychron_sync::{MODELLED, thread};

/// Conflicts of unknown origin in a row, with commits of the thread inside each, that may come from others.
const SPIN_BUDGET: u32 = 64;
/// Attempts in a row that conflicted with what the thread itself committed.
const OWN: u32 = 2;
/// The commits of a thread that are remembered.
const KEPT: usize = 4;

/// The commits of a thread.
struct Commits {
    count: Cell<u64>,
    /// The latest ones: the database and the timestamp.
    latest: [Cell<(u32, u64)>; KEPT],
    /// The newest one that wrote, or whose writes were read, where the protocol tells: the database, the timestamp and the worker's slot.
    saw: Cell<(u32, u64, usize)>,
}

polychron_sync::thread_local! {
    static COMMITS: Commits = const {
        Commits { count: Cell::new(0), latest: [const { Cell::new((0, 0)) }; KEPT], saw: Cell::new((0, 0, 0)) }
    };
}

/// The calling thread has committed a change in a database, known by its number ([`Catalog::number`](crate::catalog::Catalog::number)), or
/// has committed a transaction that read one, at a timestamp, as its protocol counts them, through the worker of a slot.
#[inline]
pub fn note_seen(database: u32, timestamp: u64, slot: usize) {
    COMMITS.with(|commits| {
        let (last, newest, _) = commits.saw.get();
        if last != database || newest < timestamp {
            commits.saw.set((database, timestamp, slot));
        }
    });
}

/// The newest change that a thread has committed or seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen((u32, u64, usize));

impl Seen {
    /// The newest change that the calling thread has seen.
    pub fn here() -> Self {
        Self(COMMITS.with(|commits| commits.saw.get()))
    }

    /// The calling thread has learnt of it: its snapshots contain it from now on.
    pub fn note(self) {
        let Self((database, timestamp, slot)) = self;
        note_seen(database, timestamp, slot);
    }
}

/// The timestamp and the slot of the newest change that the calling thread has committed or seen, if its last one was in this database.
#[inline]
pub fn last_seen(database: u32) -> Option<(u64, usize)> {
    let (last, timestamp, slot) = COMMITS.with(|commits| commits.saw.get());
    (last == database).then_some((timestamp, slot))
}

/// Whether this holds of the timestamp of any of the latest commits of the calling thread in a database, those that only read among them.
#[inline]
pub fn any_commit(database: u32, holds: impl Fn(u64) -> bool) -> bool {
    COMMITS.with(|commits| {
        commits.latest.iter().map(Cell::get).any(|(other, timestamp)| other == database && holds(timestamp))
    })
}

/// An index and, if it is known, a key in it.
type At = (TableId, IndexId, Option<KeyPreview>);

/// The state by which a worker distinguishes conflicts with its own thread's commits from conflicts with other threads.
#[derive(Debug, Default)]
pub struct Nested {
    /// The number of commits of the thread when the transaction began.
    commits: u64,
    /// The commit timestamp of the opponent of the conflict that is reported next.
    timestamp: Option<u64>,
    /// The id of that opponent, if it is still open.
    open: Option<u64>,
    own: u32,
    unknown: u32,
    /// The index and key of the conflict, if another attempt would conflict likewise.
    waits: Option<At>,
}

impl Nested {
    /// A transaction begins.
    #[inline]
    pub fn begin(&mut self) {
        self.commits = COMMITS.with(|commits| commits.count.get());
    }

    /// A transaction of a database, known by a number, has committed at a timestamp that no other one of the database has.
    #[inline]
    pub fn committed(&mut self, database: u32, timestamp: u64) {
        COMMITS.with(|commits| {
            let count = commits.count.get();
            commits.latest[count as usize % KEPT].set((database, timestamp));
            commits.count.set(count + 1);
        });
        self.forget_conflicts();
    }

    /// The transaction has committed, and is not counted where it wrote nothing: its conflicts before count no more.
    #[inline]
    pub fn forget_conflicts(&mut self) {
        (self.own, self.unknown) = (0, 0);
    }

    /// The other side of the conflict that comes next has committed at this timestamp.
    #[cold]
    pub fn is_behind(&mut self, timestamp: u64) {
        self.timestamp = Some(timestamp);
    }

    /// The other side of the conflict that comes next is open, and has this id.
    #[cold]
    pub fn is_beside(&mut self, id: u64) {
        self.open = Some(id);
    }

    /// The transaction conflicts. The other side, if it is known, goes into the abort.
    #[cold]
    pub fn conflicts(&mut self, database: u32, abort: &mut Abort) {
        let timestamp = self.timestamp.take();
        abort.opponent = self.open.take().or(timestamp).map(Opponent::numbered);
        let is_own = timestamp.and_then(|timestamp| {
            let is_kept = COMMITS.with(|commits| commits.latest.iter().any(|at| at.get() == (database, timestamp)));
            // Of many commits some are forgotten.
            (is_kept || self.inside() <= KEPT as u64).then_some(is_kept)
        });
        self.conflicts_at(is_own, (abort.table, abort.index, abort.key));
    }

    /// The transaction conflicts, with a commit of this very thread or not, where the protocol can tell.
    #[cold]
    pub fn conflicts_at(&mut self, is_own: Option<bool>, at: At) {
        match is_own {
            _ if self.inside() == 0 => self.forget_conflicts(),
            Some(true) => self.own += 1,
            Some(false) => self.forget_conflicts(),
            None => (self.own, self.unknown) = (0, self.unknown + 1),
        }
        let is_useless = self.own >= OWN || self.unknown >= SPIN_BUDGET;
        self.waits = is_useless.then_some(at);
    }

    /// The transaction conflicts with what another one of this very thread holds: another attempt would as well.
    #[cold]
    pub fn conflicts_inside(&mut self, at: At) {
        self.waits = Some(at);
    }

    /// The commits of the thread since the transaction began.
    fn inside(&self) -> u64 {
        COMMITS.with(|commits| commits.count.get()) - self.commits
    }

    /// The error that ends a transaction whose attempts would conflict without end.
    pub fn error(&self) -> Option<Error> {
        self.waits.map(|(table, index, key)| Error::waits_in_index(table, index, key))
    }
}

/// How long a transaction whose thread has another one open waits for what transactions of other threads have: so many steps, and so long
/// that on a busy machine those that can go on have gone on. It is for waits that have been long already.
#[derive(Debug)]
pub struct Endurance {
    clock: SystemClock,
    steps: u32,
}

impl Endurance {
    /// Steps at least, most of which sleep.
    pub const STEPS: u32 = if MODELLED { 3 } else { 64 };
    /// Nanoseconds at least.
    const LEAST_NS: u64 = 500_000_000;
    /// The first steps only yield.
    const YIELDS: u32 = 16;
    const NAP: Duration = Duration::from_millis(1);

    /// The wait begins.
    #[cold]
    pub fn begin() -> Self {
        Self { clock: SystemClock::new(), steps: 0 }
    }

    /// Waits a step. `false`: it has waited as long as it makes sense.
    pub fn wait(&mut self) -> bool {
        self.steps += 1;
        // Time does not pass in models, nor as an interpreter sees it.
        if self.steps > Self::STEPS && (MODELLED || cfg!(miri) || self.clock.now_ns() >= Self::LEAST_NS) {
            return false;
        }
        if MODELLED || self.steps <= Self::YIELDS {
            thread::yield_now();
        } else {
            std::thread::sleep(Self::NAP);
        }
        true
    }
}

/// Whether a transaction that conflicts for this reason may have met one that is still open. All other reasons tell that some thread has
/// committed.
pub(crate) fn is_in_the_way(reason: Reason) -> bool {
    matches!(reason, Reason::Latched | Reason::BeingWritten | Reason::InsertedFirst | Reason::Locked | Reason::Wounded)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const ABORT: Abort = Abort {
        reason: Reason::StaleRead,
        table: TableId::new(1, 1),
        index: IndexId::PRIMARY,
        key: None,
        opponent: None,
    };

    /// The number of attempts until it gives up, at most 1000.
    fn attempts(database: u32, mut attempt: impl FnMut(&mut Nested, &mut Nested, u64)) -> Option<u64> {
        let (mut outer, mut inner) = (Nested::default(), Nested::default());
        (1..=1000).find(|&at| {
            outer.begin();
            attempt(&mut outer, &mut inner, at);
            outer.conflicts(database, &mut ABORT.clone());
            outer.error().is_some()
        })
    }

    #[test]
    fn a_conflict_with_the_same_thread_is_reported_at_once() {
        let reported = attempts(1, |outer, inner, at| {
            inner.committed(1, at);
            inner.committed(1, at + 5000);
            outer.is_behind(at);
        });
        assert_eq!(reported, Some(u64::from(OWN)));
    }

    #[test]
    fn a_conflict_with_others_is_never_reported() {
        assert_eq!(attempts(1, |outer, _, at| outer.is_behind(at)), None, "nothing was committed inside");
        let elsewhere = attempts(1, |outer, inner, at| {
            inner.committed(1, at);
            outer.is_behind(at + 5000);
        });
        assert_eq!(elsewhere, None);
        let of_another_database = attempts(1, |outer, inner, at| {
            inner.committed(2, at);
            outer.is_behind(at);
        });
        assert_eq!(of_another_database, None);
        let now_and_then = attempts(1, |outer, inner, at| {
            inner.committed(1, at);
            outer.is_behind(if at % 2 == 0 { at } else { at + 5000 });
        });
        assert_eq!(now_and_then, None);
    }

    #[test]
    fn conflicts_of_unknown_origin_take_long() {
        assert_eq!(attempts(1, |_, inner, at| inner.committed(1, at)), Some(u64::from(SPIN_BUDGET)));
        assert_eq!(attempts(1, |_, _, _| {}), None);
    }

    #[test]
    fn endurance_ends_after_its_steps_and_its_time() {
        let mut endurance = Endurance::begin();
        let clock = SystemClock::new();
        let mut steps = 0;
        while endurance.wait() {
            steps += 1;
        }
        assert!(steps >= Endurance::STEPS);
        assert!(cfg!(miri) || clock.now_ns() > Endurance::LEAST_NS / 2);
        assert!(!endurance.wait());
    }
}
