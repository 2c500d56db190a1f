//! Faults inside of a process, for every protocol and both kinds of index: a procedure that panics, or fails, at each of its
//! operations, and an allocation that is refused, at each of them. What follows is a typed error; nothing has changed, by
//! any index; nothing is leaked; and the next transaction runs.

mod script;

use std::sync::Arc;
use std::time::Duration;

use polychron_check::Setup;
use polychron_engine::{Error, Interactive, Protocol, Worker};
use polychron_memory::faults::{Refusal, refuse};
use polychron_protocols::key_value::KeyValue;
use polychron_protocols::maflingo::{GlobalTid, LocalTid, Maflingo, TidSource};
use polychron_protocols::partitioned_store::PartitionedStore;
use polychron_protocols::serial::Serial;

use script::{Fault, ON_PURPOSE, Script, State, Tables};

/// What a protocol promises of a transaction that fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// Nothing of it remains.
    AllOrNothing,
    /// Its operations are done or not, each of them whole.
    WholeOperations,
}

struct Stage<P: Protocol> {
    setup: Setup<P>,
    database: Arc<P>,
    tables: Tables,
    worker: P::Worker,
    promise: Promise,
    /// What the tables hold.
    state: State,
}

impl<P: Protocol<Worker: Interactive>> Stage<P> {
    fn new(setup: &Setup<P>, promise: Promise) -> Self {
        let database = P::open(setup.options.clone(), setup.common.clone()).unwrap();
        let tables = Tables::create(&*database);
        let mut worker = database.worker().unwrap();
        tables.fill(&mut worker);
        let state = tables.state(&mut worker);
        let mut stage = Self { setup: setup.clone(), database, tables, worker, promise, state };
        stage.settle();
        if promise == Promise::AllOrNothing {
            // What the script divides in the indexes stays so.
            for _ in 0..2 {
                stage.run(Fault::FailAtEnd).unwrap_err();
            }
        }
        stage
    }

    /// Gives everything back that can be, and tells how much is in use.
    fn settle(&mut self) -> usize {
        for _ in 0..8 {
            (self.setup.tick)(&self.database);
            self.worker.tidy_up();
        }
        let memory = self.database.memory().statistics();
        assert_eq!(memory.retired_bytes, 0, "something waits for nobody");
        memory.used_bytes
    }

    fn run(&mut self, fault: Fault) -> Result<(), Error> {
        self.worker.execute(&mut Script::new(self.tables, fault, self.promise == Promise::AllOrNothing))
    }

    /// Runs the script with a fault, and asserts that it left nothing. Whether it ran to its end all the same.
    fn survive(&mut self, fault: Fault, wanted: impl Fn(&Error) -> bool) -> bool {
        let used = self.settle();
        let outcome = self.run(fault);
        refuse(Refusal::Nothing);
        if let Err(error) = &outcome {
            assert!(wanted(error), "{fault:?}: {error}");
        }
        let state = self.tables.state(&mut self.worker);
        state.assert_whole();
        if outcome.is_err() && self.promise == Promise::AllOrNothing {
            assert_eq!(state, self.state, "{fault:?} left something behind");
            let now = self.settle();
            assert!(now == used, "{fault:?} leaked: {used} bytes were in use, and now {now}");
        }
        self.state = state;
        self.tables.touch(&mut self.worker);
        outcome.is_ok()
    }
}

/// Tries faults until the script runs to its end, on one database where nothing remains of a fault, and else on new ones.
fn sweep<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    promise: Promise,
    fault: impl Fn(u64) -> Fault,
    wanted: impl Fn(&Error) -> bool,
) -> u64 {
    let mut stage = Stage::new(setup, promise);
    for number in 1..10_000 {
        if stage.survive(fault(number), &wanted) {
            return number;
        }
        if promise == Promise::WholeOperations {
            stage = Stage::new(setup, promise);
        }
    }
    panic!("the script does not come to its end");
}

/// A procedure that panics at each point, and one that fails at each.
fn panics_and_errors<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, promise: Promise) {
    let panicked = |error: &Error| matches!(error, Error::Panicked(text) if text == ON_PURPOSE);
    let points = sweep(setup, promise, Fault::Panic, panicked);
    assert!(points > 60, "{points} points");
    let operations = sweep(setup, promise, Fault::Fail, |error| matches!(error, Error::RolledBack));
    assert!(operations > 50, "{operations} operations");
}

/// Each allocation is refused alone, and each with all that follow it.
fn refused_allocations<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, promise: Promise, measured: bool) {
    for refusal in [Refusal::Only, Refusal::From] {
        let refused = |error: &Error| matches!(error, Error::OutOfMemory { .. });
        let allocations = sweep(setup, promise, |number| Fault::Refuse(refusal(number)), refused);
        assert_eq!(allocations > 60, measured, "{allocations} allocations");
    }
}

macro_rules! faults {
    ($($name:ident: $setup:expr, $promise:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn panics_and_errors() {
                super::panics_and_errors(&$setup, Promise::$promise);
            }

            #[test]
            fn refused_allocations() {
                super::refused_allocations(&$setup, Promise::$promise, stringify!($name) != "serial");
            }
        }
    )*};
}

faults! {
    maflingo: maflingo::<LocalTid>(), AllOrNothing;
    global_tid: maflingo::<GlobalTid>(), AllOrNothing;
    serial: by_epochs::<Serial>(), AllOrNothing;
    partitioned_store: by_epochs::<PartitionedStore>(), AllOrNothing;
    key_value: by_epochs::<KeyValue>(), WholeOperations;
}

fn maflingo<T: TidSource>() -> Setup<Maflingo<T>> {
    let options =
        polychron_protocols::maflingo::Options { epoch_interval: Duration::from_secs(3600), ..Default::default() };
    Setup::new(options, |database| database.tick())
}

/// A protocol that has no clock but the memory's.
fn by_epochs<P: Protocol>() -> Setup<P> {
    let mut setup = Setup::new(P::Options::default(), |database: &Arc<P>| {
        database.memory().epochs().advance();
    });
    setup.common.memory.epoch_interval = None;
    setup
}
