//! Changes of tables and indexes beside a transaction of another thread that stays open, or was forgotten: they are made, or end when the time is
//! over that their caller or the options give them, and leave nothing behind.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use polychron_base::IndexId;
use polychron_base::sizes::slowed;
use polychron_engine::any::AnyProtocol;
use polychron_engine::limits::{Cancellation, Limits};
use polychron_engine::{
    Error, Futures, IndexDefinition, Operations, Protocol, Row, Table, Transaction, Worker, evolve,
};

use crate::Setup;
use crate::client::Client;
use crate::setup::{all, begin, create, done, run};
use crate::watch::watched;

/// The rows before.
mod before {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "cell")]
    pub(super) struct Cell {
        #[key]
        pub(super) id: u64,
        pub(super) value: i64,
    }
}

/// The rows afterwards.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[row(name = "cell")]
struct Cell {
    #[key]
    id: u64,
    #[column(was = "value")]
    amount: i64,
}

/// What the transaction has done that stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    Read,
    Scan,
    Update,
    Assign,
    Insert,
    Delete,
}

impl Deed {
    const ALL: [Self; 7] =
        [Self::Nothing, Self::Read, Self::Scan, Self::Update, Self::Assign, Self::Insert, Self::Delete];

    fn run<T: Transaction>(self, t: &mut T, table: &Table<before::Cell>) -> Result<(), Error> {
        match self {
            Self::Nothing => Ok(()),
            Self::Read => t.get_owned(table, 1).map(drop),
            Self::Scan => t.scan(table, ..).count().map(drop),
            Self::Update => t.update(table, 1, |row| row.set_value(-1)).map(drop),
            Self::Assign => t.set_future(table, 1, before::Cell::VALUE, -1),
            Self::Insert => t.insert(table, &before::Cell { id: 3, value: -1 }),
            Self::Delete => t.delete(table, 1).map(drop),
        }
    }

    /// The rows when it has committed.
    fn rows(self) -> Vec<(u64, i64)> {
        match self {
            Self::Nothing | Self::Read | Self::Scan => vec![(1, 10), (2, 20)],
            Self::Update | Self::Assign => vec![(1, -1), (2, 20)],
            Self::Insert => vec![(1, 10), (2, 20), (3, -1)],
            Self::Delete => vec![(2, 20)],
        }
    }
}

/// What bounds a change.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Time,
    /// Another thread cancels it.
    Token,
    /// The options of the database.
    Default,
}

impl Bound {
    const ALL: [Self; 3] = [Self::Time, Self::Token, Self::Default];
    const WAIT: Duration = Duration::from_millis(20);

    fn hold<O>(self, work: impl FnOnce() -> O) -> O {
        let wait = slowed(Self::WAIT);
        match self {
            Self::Time => Limits::timeout(wait).hold(work),
            Self::Default => work(),
            Self::Token => {
                let token = Cancellation::default();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        thread::sleep(wait);
                        token.cancel();
                    });
                    Limits::token(&token).hold(work)
                })
            }
        }
    }

    /// Whether it may end a change with this.
    fn ends_with(self, error: &Error) -> bool {
        match (self, error) {
            (Self::Time | Self::Default, Error::TimedOut(of)) => {
                of.change.as_deref().is_some_and(|change| change.contains("cell"))
            }
            (Self::Token, Error::Cancelled) => true,
            // Where a writer is no wait but a conflict.
            (Self::Default, Error::Conflicts(_)) => true,
            _ => false,
        }
    }
}

/// A transaction of another thread, open until it is told to end.
struct Other {
    ends: Sender<()>,
    thread: JoinHandle<bool>,
}

impl Other {
    /// One that is forgotten is never committed, and undone when its worker goes.
    fn open(database: &Arc<AnyProtocol>, table: Table<before::Cell>, deed: Deed, is_forgotten: bool) -> Self {
        let (opened, is_open) = channel();
        let (ends, is_to_end) = channel();
        let database = Arc::clone(database);
        let stay = move |is_to_end: Receiver<()>| {
            let mut worker = database.worker().expect("a slot is free");
            let mut client = begin(&mut worker);
            client.step(|t| deed.run(t, &table)).expect("nobody is in its way");
            let client = if is_forgotten {
                client.leak();
                None
            } else {
                Some(client)
            };
            opened.send(()).expect("somebody waits for it");
            is_to_end.recv().expect("it is told to end");
            client.is_some_and(Client::commit)
        };
        let thread = thread::spawn(move || stay(is_to_end));
        is_open.recv().expect("the transaction is open");
        Self { ends, thread }
    }

    /// Whether it has committed.
    fn end(self) -> bool {
        self.ends.send(()).expect("it waits");
        self.thread.join().expect("it does not panic")
    }
}

/// Calls `change` beside a transaction of each kind, and `check` when that has ended, with the rows that there are then.
fn beside_each(
    setup: &Setup<AnyProtocol>,
    change: impl Fn(&Arc<AnyProtocol>, Table<before::Cell>) -> Result<(), Error> + Send + 'static,
    check: impl Fn(&Arc<AnyProtocol>, Table<before::Cell>, &[(u64, i64)], bool) + Send + 'static,
) {
    let setup = setup.clone();
    if setup.name == "bohm" {
        // A plan waits for those before it, and its clients keep none open.
        return;
    }
    watched(move |progress| {
        let cases = Deed::ALL.into_iter().flat_map(|deed| [false, true].map(|is_forgotten| (deed, is_forgotten)));
        for ((deed, is_forgotten), bound) in cases.zip(Bound::ALL.into_iter().cycle()) {
            let what = format!("{deed:?}, forgotten: {is_forgotten}, {bound:?}");
            progress.at(&*what);
            let mut setup = setup.clone();
            if matches!(bound, Bound::Default) {
                setup.common.retry.time = Some(slowed(Bound::WAIT));
            }
            let database = setup.open();
            let table = create::<_, before::Cell>(&database);
            let mut worker = database.worker().unwrap();
            done(&mut worker, |t| {
                [(1, 10), (2, 20)].into_iter().try_for_each(|(id, value)| t.insert(&table, &before::Cell { id, value }))
            });
            let other = Other::open(&database, table, deed, is_forgotten);
            let changed = loop {
                let changed = bound.hold(|| change(&database, table));
                let Err(error) = &changed else { break changed };
                assert!(bound.ends_with(error), "{what}: {error:?}");
                // It says who was in the way, if there is somebody: on a busy machine the time may be over before it comes to that.
                match error {
                    Error::TimedOut(of) if setup.interleaves && of.opponent.is_none() => {}
                    _ => break changed,
                }
            };
            if changed.is_err() && setup.interleaves {
                progress.at(format!("{what}: what comes behind it"));
                // Nothing of it is left, and the table can be written, but for what the other transaction has locked.
                assert!(database.definition(table.id()).unwrap().indexes.is_empty(), "{what}");
                let written = Limits::timeout(slowed(Bound::WAIT)).hold(|| {
                    run(&mut worker, |t| {
                        t.upsert(&table, &before::Cell { id: 100, value: 1 })?;
                        t.delete(&table, 100).map(drop)
                    })
                });
                assert!(
                    matches!(written, Ok(()) | Err(Error::TimedOut(_) | Error::Conflicts(_))),
                    "{what}: {written:?}"
                );
            }
            let rows = if other.end() { deed.rows() } else { Deed::Nothing.rows() };
            progress.at(format!("{what}: afterwards"));
            check(&database, table, &rows, changed.is_ok());
        }
    });
}

/// An index that is made beside it is whole, or not there; when the transaction has ended, it can be made.
pub fn new_indexes(setup: &Setup<AnyProtocol>) {
    let index = || IndexDefinition::new("by_value", [1]);
    let change = move |database: &Arc<AnyProtocol>, table: Table<before::Cell>| {
        database.create_index(table.id(), index()).map(drop)
    };
    beside_each(setup, change, move |database, table, rows, is_made| {
        let indexes = database.definition(table.id()).unwrap().indexes.clone();
        assert_eq!(indexes, if is_made { vec![index()] } else { Vec::new() });
        let index = if is_made { IndexId(1) } else { database.create_index(table.id(), index()).unwrap() };
        let by_value =
            polychron_schema::Index::<before::Cell, i64>::new("by_value", index.position() - 1, false, false);
        let mut worker = database.worker().unwrap();
        let mut rows: Vec<_> = rows.iter().map(|&(id, value)| before::Cell { id, value }).collect();
        assert_eq!(all(&mut worker, &table), rows);
        rows.sort_by_key(|row| row.value);
        assert_eq!(done(&mut worker, |t| t.scan_range_by::<_, _, i64>(&table, by_value, ..).rows()), rows);
    });
}

/// A table that changes beside it has become one of the new rows, or is as it was; when the transaction has ended, it can change.
pub fn evolutions(setup: &Setup<AnyProtocol>) {
    let evolve = |database: &Arc<AnyProtocol>| {
        let mut worker = database.worker()?;
        evolve::open::<_, Cell>(&**database, &mut |copy| worker.execute(copy)).map(|table| table.expect("it is there"))
    };
    beside_each(
        setup,
        move |database, _| evolve(database).map(drop),
        move |database, table, rows, has_changed| {
            assert_eq!(database.definition(table.id()).is_err(), has_changed);
            if !has_changed {
                let mut worker = database.worker().unwrap();
                done(&mut worker, |t| t.insert(&table, &before::Cell { id: 100, value: 1 }));
                done(&mut worker, |t| t.delete(&table, 100));
            }
            let cells = evolve(database).unwrap();
            let rows: Vec<_> = rows.iter().map(|&(id, amount)| Cell { id, amount }).collect();
            assert_eq!(all(&mut database.worker().unwrap(), &cells), rows);
            assert_eq!(database.find_table("cell"), Some(cells.id()));
        },
    );
}
