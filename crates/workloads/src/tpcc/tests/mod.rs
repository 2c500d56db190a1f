//! Tests at tiny scale on the serial protocol, which is right by construction: what fails here is the workload.

mod conditions;
mod deliveries;
mod effects;
mod inputs;

use std::sync::Arc;

use polychron_engine::{Common, Error, Interactive, Mode, Procedure, Protocol, Worker, drive};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::locking::Locking;
use polychron_protocols::serial::{Options, Serial, SerialWorker};
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::check::Checker;
use super::{Indexes, Scale, Tpcc, TpccOptions, Transactions};
use crate::round_trip::Talk;
use crate::run::Share;
use crate::{Client, Transact, Workload};

type Transaction<'w> = <SerialWorker as Interactive>::Transaction<'w>;

/// A loaded database.
struct Loaded {
    database: Arc<Serial>,
    workload: Tpcc,
    worker: SerialWorker,
}

fn talk(futures: bool) -> Talk {
    Talk { futures, round_trip_us: 0 }
}

fn tiny() -> TpccOptions {
    TpccOptions { warehouses: 2, scale: Scale::tiny(), ..TpccOptions::default() }
}

fn load(options: &TpccOptions, parts: usize) -> Loaded {
    Tpcc::validate(options, 2).expect("good options");
    let database = Serial::open(Options::default(), Common::default()).expect("a database");
    let workload = Tpcc::create(options, &database).expect("tables");
    let mut worker = database.worker().expect("a worker");
    for part in 0..parts {
        workload.load_part(&mut worker, &Share { part, parts, seed: 7, progress: &|_| () }).expect("rows");
    }
    Loaded { database, workload, worker }
}

impl Loaded {
    fn execute<P: Procedure<Error = Error>>(&mut self, procedure: &mut P) -> P::Output {
        self.worker.execute(procedure).expect("a commit")
    }

    fn transact<O>(&mut self, mut body: impl FnMut(&mut Transaction<'_>) -> Result<O, Error>) -> O {
        drive::transact(&mut self.worker, Mode::ReadWrite, &mut body).expect("a commit")
    }

    /// Numbers of the conditions that fail.
    fn failing(&self) -> Vec<usize> {
        let homes = self.workload.homes.lock().expect("no panic").clone();
        let checker = Checker::new(&self.workload.options, &self.workload.tables, &homes);
        checker.findings(&self.database).expect("a check").failing()
    }

    fn check(&self) {
        let checked = self.workload.check(&self.database).expect("all conditions hold");
        assert_eq!(checked.conditions.len(), 12);
    }

    /// Runs transactions of a client; counts those committed and those rolled back, by kind.
    fn run(&mut self, client: &mut impl Client<Procedure: Transact>, count: u32) -> ([u32; 6], [u32; 6]) {
        let (mut committed, mut rolled_back) = ([0; 6], [0; 6]);
        for _ in 0..count {
            let mut procedure = client.next();
            let outcome = match procedure.mode() {
                Mode::ReadWrite => self.worker.execute(&mut procedure).map(|_| ()),
                Mode::Snapshot => self.worker.snapshot(&mut procedure).map(|_| ()),
            };
            match outcome {
                Ok(()) => committed[procedure.kind()] += 1,
                Err(Error::RolledBack) => rolled_back[procedure.kind()] += 1,
                Err(error) => panic!("kind {}: {error}", procedure.kind()),
            }
            client.finished(&procedure);
        }
        (committed, rolled_back)
    }
}

#[test]
fn what_is_loaded_passes_every_check() {
    for index in [Indexes::Hash, Indexes::Ordered] {
        for parts in [1, 3, 50] {
            load(&TpccOptions { index, ..tiny() }, parts).check();
        }
    }
}

#[test]
fn progress_counts_the_rows() {
    let options = tiny();
    let database = Serial::open(Options::default(), Common::default()).expect("a database");
    let workload = Tpcc::create(&options, &database).expect("tables");
    let mut worker = database.worker().expect("a worker");
    let rows = AtomicU64::new(0);
    let progress = |count| {
        rows.fetch_add(count, Ordering::Relaxed);
    };
    workload.load_part(&mut worker, &Share { part: 0, parts: 1, seed: 7, progress: &progress }).expect("rows");
    let (rows, expected) = (rows.into_inner() as f64, workload.rows_to_load() as f64);
    // Lines are counted at their mean.
    assert!((rows / expected - 1.0).abs() < 0.1, "{rows} rows, {expected} announced");
}

#[test]
fn the_standard_mix_keeps_every_condition() {
    for index in [Indexes::Hash, Indexes::Ordered] {
        let options = TpccOptions { index, remote_item_percent: 20, top_customer_percent: 5, ..tiny() };
        let mut loaded = load(&options, 2);
        let mut clients: Vec<_> = (0..3).map(|thread| loaded.workload.client(1, thread, 3)).collect();
        let (mut committed, mut rolled_back) = ([0; 6], [0; 6]);
        for client in &mut clients {
            let (now, back) = loaded.run(client, 1000);
            (0..6).for_each(|kind| committed[kind] += now[kind]);
            (0..6).for_each(|kind| rolled_back[kind] += back[kind]);
        }
        assert!(committed.iter().all(|&count| count > 50), "{committed:?}");
        assert!((1..40).contains(&rolled_back[0]) && rolled_back[1..] == [0; 5], "{rolled_back:?}");
        loaded.check();
    }
}

#[test]
fn every_preset_runs() {
    let presets = [Transactions::Np, Transactions::NewOrder, Transactions::NewOrderStockLevel, Transactions::Full];
    for transactions in presets {
        let options = TpccOptions { transactions, snapshots: true, read_only_percent: 10, ..tiny() };
        let mut loaded = load(&options, 1);
        let mut client = loaded.workload.client(2, 0, 1);
        let (committed, _) = loaded.run(&mut client, 500);
        assert!(committed[0] > 100 && committed[2] > 10 && committed[4] > 10, "{committed:?}");
        loaded.check();
    }
}

#[test]
fn clients_that_come_later_do_not_collide_with_earlier_ones() {
    let mut loaded = load(&tiny(), 1);
    for _ in 0..3 {
        let mut client = loaded.workload.client(3, 0, 1);
        loaded.run(&mut client, 200);
    }
    loaded.check();
}

/// Threads that share warehouses, at a scale at which they meet all the time.
fn concurrent_clients_keep_every_condition<P: Protocol>(database: &Arc<P>, futures: bool) {
    let talk = talk(futures);
    let options = TpccOptions { snapshots: true, remote_item_percent: 30, top_customer_percent: 5, talk, ..tiny() };
    let workload = Tpcc::create(&options, database).expect("tables");
    let in_threads = |body: &(dyn Fn(usize, &mut P::Worker) + Sync)| {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || body(thread, &mut database.worker().expect("a worker")));
            }
        });
    };
    in_threads(&|part, worker| {
        workload.load_part(worker, &Share { part, parts: 3, seed: 7, progress: &|_| () }).expect("rows")
    });
    in_threads(&|thread, worker| {
        let mut client = workload.client(5, thread, 3);
        for _ in 0..400 {
            let mut procedure = client.next();
            let outcome = match procedure.mode() {
                Mode::ReadWrite => worker.execute(&mut procedure),
                Mode::Snapshot => worker.snapshot(&mut procedure),
            };
            assert!(matches!(outcome, Ok(()) | Err(Error::RolledBack)), "{outcome:?}");
            client.finished(&procedure);
        }
    });
    workload.check(database).expect("all conditions hold");
}

#[test]
fn concurrent_clients_on_the_oracle() {
    let database = Serial::open(Options::default(), Common::default()).expect("a database");
    concurrent_clients_keep_every_condition(&database, false);
}

#[test]
fn concurrent_clients_with_futures() {
    let database = Lazy::<Locking>::open(Default::default(), Common::default()).expect("a database");
    concurrent_clients_keep_every_condition(&database, true);
}

#[test]
fn wrong_options_are_refused() {
    let wrong = |change: fn(&mut TpccOptions)| {
        let mut options = tiny();
        change(&mut options);
        Tpcc::validate(&options, 1).expect_err("wrong options")
    };
    assert!(wrong(|options| options.warehouses = 0).contains("warehouse"));
    assert!(wrong(|options| options.remote_item_percent = 101).contains("--remote-item-percent"));
    assert!(wrong(|options| (options.read_only_percent, options.top_customer_percent) = (60, 50)).contains("110"));
    assert!(wrong(|options| options.scale.districts = 11).contains("ten"));
    assert!(wrong(|options| options.talk.round_trip_us = 5).contains("--transactions np"));
}
