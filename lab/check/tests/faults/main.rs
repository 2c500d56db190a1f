//! Faults inside of a process, for every protocol and both kinds of index: a procedure that panics, or fails, at each of its
//! operations, and an allocation that is refused, at each of them. What follows is a typed error; nothing has changed, by
//! any index; nothing is leaked; and the next transaction runs.

mod script;
#[path = "../setups/mod.rs"]
mod setups;

use std::sync::Arc;

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::Setup;
use polychron_compared::hekaton::Hekaton;
use polychron_compared::key_value::KeyValue;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_engine::{Error, IndexDefinition, Interactive, Protocol, Row, Worker};
use polychron_memory::faults::{Refusal, refuse};
use polychron_protocols::cicada::Cicada;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::locking::Locking;
use polychron_protocols::serial::Serial;

use setups::{bohm, by_epochs, cicada, lazy_2pl, lazy_occ, maflingo};

use script::{Fault, ON_PURPOSE, Script, State, Tables};

/// What came of a script with a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Survived {
    Failed,
    /// It did without what was refused, and ran to its end.
    FoundAnotherWay,
    /// It ran to its end before the fault came.
    MetNothing,
}

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
    /// Bytes of index nodes that may still be added by refused commits.
    divisions: usize,
}

impl<P: Protocol<Worker: Interactive>> Stage<P> {
    fn new(setup: &Setup<P>, promise: Promise) -> Self {
        let database = P::open(setup.options.clone(), setup.common.clone()).unwrap();
        let tables = Tables::create(&*database);
        let mut worker = database.worker().unwrap();
        tables.fill(&mut worker);
        let state = tables.state(&mut worker);
        let mut stage = Self { setup: setup.clone(), database, tables, worker, promise, state, divisions: 8 * 384 };
        stage.quiesce();
        if promise == Promise::AllOrNothing {
            // What the script divides in the indexes stays so.
            for _ in 0..2 {
                stage.run(Fault::FailAtEnd).unwrap_err();
            }
        }
        stage
    }

    /// Gives everything back that can be, and tells how much is in use.
    fn quiesce(&mut self) -> usize {
        for _ in 0..8 {
            (self.setup.tick)(&self.database);
            self.worker.maintain();
        }
        let memory = self.database.memory().statistics();
        assert_eq!(memory.retired_bytes, 0, "something waits for nobody");
        memory.used_bytes
    }

    fn run(&mut self, fault: Fault) -> Result<(), Error> {
        self.worker.execute(&mut Script::new(self.tables, fault, self.promise == Promise::AllOrNothing))
    }

    /// Runs the script with a fault, and asserts that it left nothing.
    fn survive(&mut self, fault: Fault, wanted: impl Fn(&Error) -> bool) -> Survived {
        let used = self.quiesce();
        let outcome = self.run(fault);
        let allocations = refuse(Refusal::Nothing);
        if let Err(error) = &outcome {
            assert!(wanted(error), "{fault:?}: {error}");
        }
        let state = self.tables.state(&mut self.worker);
        state.assert_whole();
        if outcome.is_err() && self.promise == Promise::AllOrNothing {
            assert_eq!(state, self.state, "{fault:?} left something behind");
            let now = self.quiesce();
            // Where keys come into the indexes at commit, a refusal there leaves leaves divided: a few bytes, and once.
            let divided = if self.setup.name == "cicada" { now.saturating_sub(used).min(self.divisions) } else { 0 };
            self.divisions -= divided;
            assert!(
                now - divided <= used && (divided > 0 || now == used || self.setup.name == "cicada"),
                "{fault:?} leaked: {used} bytes were in use, and now {now}"
            );
        }
        self.state = state;
        self.tables.touch(&mut self.worker);
        let was_refused =
            matches!(fault, Fault::Refuse(Refusal::Only(number) | Refusal::From(number)) if number <= allocations);
        match outcome {
            Err(_) => Survived::Failed,
            Ok(()) if was_refused => Survived::FoundAnotherWay,
            Ok(()) => Survived::MetNothing,
        }
    }
}

/// Tries faults until the script runs to its end without one, on one database where nothing remains of a fault, and else on new ones.
fn sweep<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    promise: Promise,
    fault: impl Fn(u64) -> Fault,
    wanted: impl Fn(&Error) -> bool,
) -> u64 {
    let mut stage = Stage::new(setup, promise);
    for number in 1..10_000 {
        match stage.survive(fault(number), &wanted) {
            Survived::MetNothing => return number,
            Survived::Failed if promise == Promise::AllOrNothing => {}
            Survived::Failed | Survived::FoundAnotherWay => stage = Stage::new(setup, promise),
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
        let refused = |error: &Error| matches!(error, Error::OutOfMemory(_));
        let allocations = sweep(setup, promise, |number| Fault::Refuse(refusal(number)), refused);
        // Cicada puts small rows into its records' heads.
        let least = if setup.name == "cicada" { 30 } else { 60 };
        assert_eq!(allocations > least, measured, "{allocations} allocations");
    }
}

/// Each allocation of `define` is refused; then nothing is defined, and nothing leaked.
fn refused_definition<P: Protocol<Worker: Interactive>, O>(
    stage: &mut Stage<P>,
    define: impl Fn(&Arc<P>) -> Result<O, Error>,
    undefined: impl Fn(&P) -> bool,
) -> O {
    // The latest version of a node lies in its head or, every other time that it is touched, outside.
    let used = stage.quiesce();
    let moves = stage.setup.kept_slots_bytes;
    for number in 1..1000 {
        for refusal in [Refusal::Only(number), Refusal::From(number)] {
            refuse(refusal);
            let defined = define(&stage.database);
            refuse(Refusal::Nothing);
            match defined {
                Ok(defined) => return defined,
                Err(error) => assert!(matches!(error, Error::OutOfMemory(_)), "{refusal:?}: {error}"),
            }
            assert!(undefined(&stage.database), "{refusal:?}");
            stage.tables.touch(&mut stage.worker);
            let now = stage.quiesce();
            assert!(now.abs_diff(used) <= moves, "{refusal:?} leaked: {used} bytes were in use, and now {now}");
        }
    }
    panic!("a definition asks for memory without end");
}

fn refused_definitions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, promise: Promise) {
    let mut stage = Stage::new(setup, promise);
    let more = script::Hashed::definition().with_name("more");
    let create = |database: &Arc<P>| database.create_table(more.clone());
    let table = refused_definition(&mut stage, create, |database| database.find_table("more").is_none());
    stage.database.drop_table(table).unwrap();
    let table = stage.tables.sorted();
    let before = stage.database.definition(table).unwrap();
    let create = |database: &Arc<P>| database.create_index(table, IndexDefinition::new("by_number", [3]));
    let unchanged = |database: &P| *database.definition(table).unwrap() == *before;
    let index = refused_definition(&mut stage, create, unchanged);
    stage.database.drop_index(table, index).unwrap();
    assert_eq!(stage.tables.state(&mut stage.worker), stage.state);
}

macro_rules! faults {
    ($($name:ident: $setup:expr, $promise:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn panics_and_errors() {
                super::panics_and_errors(&$setup.erased(), Promise::$promise);
            }

            #[test]
            fn refused_definitions() {
                super::refused_definitions(&$setup.erased(), Promise::$promise);
            }

            #[test]
            fn refused_allocations() {
                super::refused_allocations(&$setup.erased(), Promise::$promise, stringify!($name) != "serial");
            }
        }
    )*};
}

faults! {
    cicada: cicada(), AllOrNothing;
    multi_version: multi_version(), AllOrNothing;
    maflingo: maflingo(), AllOrNothing;
    global_tid: maflingo().named("global-tid"), AllOrNothing;
    bohm: bohm(), AllOrNothing;
    hekaton_mvo: by_epochs::<Hekaton>(), AllOrNothing;
    snapshot_isolation: by_epochs::<Hekaton>().named("snapshot-isolation"), AllOrNothing;
    hyper_by_column: by_epochs::<Hyper>(), AllOrNothing;
    hyper_snapshot: by_epochs::<Hyper>().named("hyper-snapshot"), AllOrNothing;
    serial: by_epochs::<Serial>(), AllOrNothing;
    locking: by_epochs::<Locking>(), AllOrNothing;
    locking_wound_wait: by_epochs::<Locking>().named("locking-wound-wait"), AllOrNothing;
    lazy_occ: lazy_occ(), AllOrNothing;
    lazy_2pl: lazy_2pl(), AllOrNothing;
    partitioned_store: by_epochs::<PartitionedStore>(), AllOrNothing;
    key_value: by_epochs::<KeyValue>(), WholeOperations;
}

// What it promises besides: limits, and memory that comes back.
polychron_check::conformance!(@group by_epochs::<KeyValue>(), limits: keys, raw_keys, hash_keys, rows, columns, values,
    workers, memory);
polychron_check::conformance!(@group by_epochs::<KeyValue>(), reclamation: updates, growing_updates,
    deletions_and_insertions, secondary_entries, dropped_tables, workers_that_leave);

/// Multi-version indexes keep the places of records.
fn multi_version() -> Setup<Cicada> {
    Setup { kept_slots_bytes: 8 * 384, ..setups::multi_version() }
}
