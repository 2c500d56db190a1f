//! Error types of the caller's own: the transaction decides whether it is run again, and nothing that its procedure returns.

use std::sync::Arc;

use polychron_base::clock::SystemClock;
use polychron_base::sizes::scaled;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{
    Access, Declare, Error, Interactive, Mode, Operations, Procedure, Protocol, Table, Transaction, Worker, drive,
};
use polychron_schema::{Key, KeyScratch};

use crate::Setup;
use crate::rows::Item;
use crate::setup::{all, items};
use crate::watch::watched;

/// An error type that tells nothing of what it was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Made of an error of the engine.
    Engine,
    /// Made up by the procedure.
    Mine(u64),
}

impl From<Error> for Own {
    fn from(_: Error) -> Self {
        Self::Engine
    }
}

/// What a procedure makes of the errors of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makes {
    /// Errors of its own.
    Own,
    /// Nothing: it goes on, and says that all is well.
    Nothing,
    /// Nothing, and fails in the end for a reason of its own.
    NothingThenFails,
}

/// Adds one to each of two rows.
struct Add {
    table: Table<Item>,
    keys: [u64; 2],
    makes: Makes,
    /// Operations that have failed in the last run.
    failed: u64,
}

const MINE: u64 = 7;

impl Add {
    fn act<T: Transaction>(&mut self, t: &mut T) -> Result<(), Own> {
        self.failed = 0;
        for key in self.keys {
            let added = t.get(&self.table, key).map(|row| row.map(|row| row.value())).and_then(|value| {
                std::thread::yield_now();
                t.update(&self.table, key, |row| row.set_value(value.expect("it is there") + 1))
            });
            match (added, self.makes) {
                (Ok(_), _) => {}
                (Err(_), Makes::Own) => return Err(Own::Mine(0)),
                (Err(_), _) => self.failed += 1,
            }
        }
        if self.makes == Makes::NothingThenFails { Err(Own::Mine(MINE)) } else { Ok(()) }
    }
}

impl Procedure for Add {
    type Output = ();
    type Error = Own;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Own> {
        self.act(t)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        for key in self.keys {
            declaration.key(self.table.id(), key.encode(&mut KeyScratch::new()), Access::Update);
        }
    }
}

/// How a procedure is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Driven,
    Whole,
    Submitted,
}

impl Way {
    const ALL: [Self; 3] = [Self::Driven, Self::Whole, Self::Submitted];

    /// Executes it, and answers how many operations failed in its last run, as far as that is known.
    fn execute<P: Protocol<Worker: Interactive>>(
        self,
        (worker, service): (&mut P::Worker, &Service<P>),
        mut add: Add,
    ) -> (Result<(), Own>, u64) {
        let outcome = match self {
            Self::Driven => drive::transact(worker, Mode::ReadWrite, &mut |t| add.act(t)),
            Self::Whole => worker.execute(&mut add),
            Self::Submitted => return (service.submit(add).wait(), 0),
        };
        (outcome, add.failed)
    }
}

/// Transactions that conflict while others run are run again, whatever their procedures make of it, and their callers see nothing of it. Those that do
/// not conflict come to what their procedures say.
pub fn conflicts_stay_inside<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const THREADS: u64 = 3;
    let setup = setup.clone();
    watched(move |progress| {
        for (makes, way) in [Makes::Own, Makes::Nothing, Makes::NothingThenFails]
            .into_iter()
            .flat_map(|makes| Way::ALL.map(|way| (makes, way)))
        {
            progress.at(format!("{makes:?}, {way:?}"));
            let (database, table) = items(&setup, &[(0, 0), (1, 0)]);
            let clock = Arc::new(SystemClock::new());
            let options = Submissions { threads: 2, ..Submissions::default() };
            let service = Service::start(&database, &options, clock, || database.worker()).unwrap();
            let rounds = scaled(200, 20) as i64;
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (database, service) = (&database, &service);
                    scope.spawn(move || {
                        let mut worker = database.worker().unwrap();
                        for _ in 0..rounds {
                            let keys = [thread % 2, 1 - thread % 2];
                            let (outcome, failed) =
                                way.execute::<P>((&mut worker, service), Add { table, keys, makes, failed: 0 });
                            let expected = if makes == Makes::NothingThenFails { Err(Own::Mine(MINE)) } else { Ok(()) };
                            assert_eq!((outcome, failed), (expected, 0), "{makes:?}, {way:?}");
                        }
                    });
                }
            });
            let sum = if makes == Makes::NothingThenFails { 0 } else { THREADS as i64 * rounds };
            let rows = all(&mut database.worker().unwrap(), &table);
            assert_eq!(rows, [0, 1].map(|id| Item { id, value: sum }), "{makes:?}, {way:?}");
        }
    });
}

/// What a procedure returns without a conflict comes back as it was, and nothing of its transaction stays. Errors of the engine come in its type.
pub fn come_back_as_they_were<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(0, 0), (1, 0)]);
    let clock = Arc::new(SystemClock::new());
    let options = Submissions { threads: 1, ..Submissions::default() };
    let service = Service::start(&database, &options, clock, || database.worker()).unwrap();
    let mut worker = database.worker().unwrap();
    for way in Way::ALL {
        let add = Add { table, keys: [0, 1], makes: Makes::NothingThenFails, failed: 0 };
        assert_eq!(way.execute((&mut worker, &service), add), (Err(Own::Mine(MINE)), 0), "{way:?}");
    }
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        let mut runs = 0;
        let outcome = drive::transact(&mut worker, mode, &mut |t| {
            runs += 1;
            t.get(&table, 0)?;
            Err::<(), _>(Own::Mine(runs))
        });
        assert_eq!((outcome, runs), (Err(Own::Mine(1)), 1), "{mode:?}");
    }
    let refused = drive::transact(&mut worker, Mode::ReadWrite, &mut |t| -> Result<(), Own> {
        Ok(t.insert(&table, &Item { id: 0, value: 3 })?)
    });
    assert_eq!(refused, Err(Own::Engine));
    assert_eq!(all(&mut worker, &table), [0, 1].map(|id| Item { id, value: 0 }));
}
