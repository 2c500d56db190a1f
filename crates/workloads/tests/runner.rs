//! The runner and the checks, on the serial protocol: that checks see what is broken, and runs end as they should.

use std::sync::Arc;

use polychron_base::key::Key8;
use polychron_engine::{Common, Error, Mode, Operations, Procedure, Protocol, Transaction, Worker, drive};
use polychron_protocols::serial::{Options, Serial};
use polychron_schema::{Projection, RowBuffer};
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_workloads::churn::{Churn, ChurnOptions, Pattern};
use polychron_workloads::increment::{Increment, IncrementOptions, Integer};
use polychron_workloads::modify::{Modify, ModifyOptions};
use polychron_workloads::run::{self, Live, Observer, Report, RunError, Settings, Share, Unobserved};
use polychron_workloads::smallbank::{SmallBank, SmallBankOptions};
use polychron_workloads::tatp::{Tatp, TatpOptions};
use polychron_workloads::tpcc::{Scale, Tpcc, TpccOptions};
use polychron_workloads::ycsb::{Preset, Ycsb, YcsbArguments, YcsbOptions};
use polychron_workloads::{CheckError, Checked, Client, Transact, Workload};

fn open() -> Arc<Serial> {
    Serial::open(Options::default(), Common::default()).unwrap()
}

fn settings() -> Settings {
    Settings { threads: 2, warmup_seconds: 0.02, seconds: 0.1, ..Settings::default() }
}

fn run<W: Workload>(options: &W::Options, settings: &Settings) -> Report {
    run::run::<Serial, W>(&open(), options, settings, &AtomicBool::new(false), &Unobserved).unwrap()
}

/// Loads a workload and executes some of its transactions.
fn prepared<W: Workload>(options: &W::Options, transactions: usize) -> (Arc<Serial>, W) {
    let database = open();
    let workload = W::create(options, &database).unwrap();
    let mut worker = database.worker().unwrap();
    for part in 0..3 {
        workload.load_part(&mut worker, &Share { part, parts: 3, seed: 1, progress: &|_| () }).unwrap();
    }
    let mut client = workload.client(1, 0, 1);
    for _ in 0..transactions {
        let mut procedure = client.next();
        match procedure.mode() {
            Mode::ReadWrite => drop(worker.execute(&mut procedure)),
            Mode::Snapshot => drop(worker.snapshot(&mut procedure)),
        }
        client.finished(&procedure);
    }
    (database, workload)
}

/// Deletes the row of a key in the table of this name, or writes nonsense over its last word.
fn tamper(database: &Arc<Serial>, table: &str, key: &[u8], delete: bool) {
    let table = database.find_table(table).unwrap();
    drive::transact(&mut database.worker().unwrap(), Mode::ReadWrite, &mut |transaction| {
        if delete {
            assert!(transaction.delete_row(table, key)?);
            return Ok(());
        }
        let mut row = RowBuffer::new();
        row.copy_from(transaction.read_row(table, key, &Projection::ALL)?.unwrap().as_bytes());
        let words = row.as_words().len();
        row.overwrite_words(words)[words - 1] ^= 0x55;
        transaction.put_unchecked(table, key, row.as_row()).map(drop)
    })
    .unwrap();
}

fn broken(check: Result<Checked, CheckError>) -> String {
    match check {
        Err(broken @ CheckError::Broken { .. }) => broken.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn increments_that_are_lost_are_noticed() {
    let options = IncrementOptions { records: 100, ..IncrementOptions::default() };
    let (database, workload) = prepared::<Increment>(&options, 50);
    assert_eq!(workload.check(&database).unwrap().conditions.len(), 1);
    tamper(&database, "integer", &7_u64.to_be_bytes(), false);
    assert!(broken(workload.check(&database)).contains("500"));
}

#[test]
fn money_that_is_lost_is_noticed() {
    let options = SmallBankOptions { customers: 50, ..SmallBankOptions::default() };
    let (database, workload) = prepared::<SmallBank>(&options, 500);
    workload.check(&database).unwrap();
    tamper(&database, "checking", &7_u64.to_be_bytes(), false);
    assert!(broken(workload.check(&database)).contains("cents"));
    tamper(&database, "savings", &7_u64.to_be_bytes(), true);
    assert!(broken(workload.check(&database)).contains("99 balances of 50 customers"));
}

#[test]
fn torn_and_lost_payloads_are_noticed() {
    for record_size in [8, 9, 16, 100, 70_000] {
        let options = YcsbOptions { records: 40, record_size, requests: 4, ..YcsbOptions::default() };
        let (database, workload) = prepared::<Ycsb>(&options, 100);
        assert_eq!(workload.check(&database).unwrap().conditions.len(), 3);
        if record_size == 16 {
            tamper(&database, "ycsb", &7_u64.to_be_bytes(), false);
            assert!(broken(workload.check(&database)).contains("key 7"));
        }
        tamper(&database, "ycsb", &7_u64.to_be_bytes(), true);
        assert!(workload.check(&database).is_err());
    }
}

#[test]
fn rows_that_come_and_go_are_counted() {
    let options = YcsbOptions { records: 40, insert_delete_share: 0.7, requests: 4, ..YcsbOptions::default() };
    let (database, workload) = prepared::<Ycsb>(&options, 501);
    assert_eq!(workload.check(&database).unwrap().conditions.len(), 2);
}

#[test]
fn subscribers_that_are_lost_are_noticed() {
    let options = TatpOptions { subscribers: 130, ..TatpOptions::default() };
    let (database, workload) = prepared::<Tatp>(&options, 2000);
    assert_eq!(workload.check(&database).unwrap().conditions.len(), 3);
    tamper(&database, "subscriber", &7_u32.to_be_bytes(), true);
    assert!(broken(workload.check(&database)).contains("subscriber 7"));
}

#[test]
fn keys_within_a_transaction_are_distinct() {
    for requests in [1, 16, 17, 100] {
        let options = YcsbOptions { records: 100, requests, theta: 1.1, read_share: 0.0, ..YcsbOptions::default() };
        let (database, workload) = prepared::<Ycsb>(&options, 20);
        // Each transaction adds one to as many rows as it has requests; the same row twice would be two writes all the
        // same, so the keys themselves are looked at.
        workload.check(&database).unwrap();
        let mut client = workload.client(3, 0, 1);
        for _ in 0..20 {
            let mut keys = Keys::default();
            client.next().declare(&mut keys);
            keys.0.sort_unstable();
            keys.0.dedup();
            assert_eq!(keys.0.len(), requests);
        }
    }
}

#[test]
fn long_readers_are_serializable_and_declare_no_write() {
    let preset = YcsbArguments { preset: Some(Preset::TenRmw), records: Some(500), ..YcsbArguments::default() };
    let given = YcsbArguments { record_size: Some(16), long_readers: Some(30.0), long_reads: Some(200), ..preset };
    let (database, workload) = prepared::<Ycsb>(&given.into(), 300);
    assert_eq!(workload.check(&database).unwrap().conditions.len(), 3);
    let mut client = workload.client(3, 0, 1);
    let mut readers = 0;
    for _ in 0..1000 {
        let procedure = client.next();
        let mut keys = Keys::default();
        procedure.declare(&mut keys);
        let reads = match Ycsb::KINDS[procedure.kind()] {
            "write" => 0,
            "long-read" => 200,
            other => panic!("{other}"),
        };
        readers += usize::from(reads > 0);
        assert_eq!((keys.0.len() - keys.1, keys.1), (reads, if reads > 0 { 0 } else { 10 }));
        assert_eq!(procedure.mode(), Mode::ReadWrite);
    }
    assert!((200..400).contains(&readers), "{readers} of 1000");
}

#[test]
fn latencies_are_those_of_single_transactions_from_when_their_batch_is_handed_over() {
    let options = SmallBankOptions { customers: 10, spin_us: 200, ..SmallBankOptions::default() };
    let report = run::<SmallBank>(&options, &Settings { threads: 1, batch: 20, ..settings() });
    // One after the other, so that the median waits for many of the batch before it.
    assert!(report.latency_us.p50 > 600.0, "{report:?}");
    assert!(report.latency_us_by_kind.values().all(|latency| latency.p50 > 200.0), "{report:?}");
    assert!((report.tps_by_kind.values().sum::<f64>() / report.committed_tps - 1.0).abs() < 1e-6, "{report:?}");
}

#[test]
fn latencies_are_reported_for_batches_of_all_sizes() {
    let options = IncrementOptions { records: 500, requests: 1, ..IncrementOptions::default() };
    for batch in [1, 10, 1000, 10_000] {
        let report = run::<Increment>(&options, &Settings { batch, seconds: 0.3, ..settings() });
        let run::Latencies { p50, p99, p999, max, samples } = report.latency_us;
        assert!(samples > 0 && 0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max * 1.01, "{report:?}");
        assert_eq!((report.batch, &report.latency_us), (batch, &report.latency_us_by_kind["increment"]));
        // Each batch is in the samples with an eighth of its transactions, so that they are not of whole batches.
        assert!(batch == 1 || samples as usize >= batch / 8, "{report:?}");
    }
}

/// Transactions that are submitted are counted, timed and checked like others, and none is under way at the end.
#[test]
fn transactions_are_submitted() {
    let options = IncrementOptions { records: 500, requests: 3, ..IncrementOptions::default() };
    for (submit, batch, batch_time_us) in [(1, 1, 0), (30, 8, 0), (30, 100, 20)] {
        let report = run::<Increment>(&options, &Settings { submit, batch, batch_time_us, ..settings() });
        let run::Latencies { p50, p999, max, samples, .. } = report.latency_us;
        assert!(samples > 0 && 0.0 < p50 && p50 <= p999 && p999 <= max * 1.01, "{report:?}");
        assert_eq!((report.submitted, report.batch), (submit, batch));
        assert!(report.completed > 0 && report.passed(), "{report:?}");
        // One in eight is timed, besides the first of each thread.
        assert!(samples <= report.completed.div_ceil(8) + 2 * submit as u64 + 2, "{report:?}");
    }
}

/// Collects declared keys, and counts those that are to be written.
#[derive(Default)]
struct Keys(Vec<u64>, usize);

impl polychron_engine::Declare for Keys {
    fn key<K: polychron_base::key::EncodedKey>(
        &mut self,
        _table: polychron_engine::TableId,
        key: K,
        access: polychron_engine::Access,
    ) {
        self.0.push(key.slice(0));
        self.1 += usize::from(access != polychron_engine::Access::Read);
    }

    fn unknown(&mut self) {
        panic!("every write is known");
    }
}

#[test]
fn presets_are_starting_points() {
    let given = YcsbArguments { preset: Some(Preset::TwoRmwEightReads), records: Some(10), ..YcsbArguments::default() };
    let options = YcsbOptions::from(given.clone());
    assert_eq!((options.records, options.record_size, options.writes), (10, 1000, Some(2)));
    let options = YcsbOptions::from(YcsbArguments { read_share: Some(0.9), ..given });
    assert_eq!((options.read_share, options.writes), (0.9, None));
}

#[test]
fn a_seed_fixes_the_inputs() {
    let options = YcsbOptions { records: 100, ..YcsbOptions::default() };
    let (_database, workload) = prepared::<Ycsb>(&options, 0);
    let draw = |seed, thread| {
        let mut client = workload.client(seed, thread, 2);
        (0..10).map(|_| format!("{:?}", client.next())).collect::<Vec<_>>()
    };
    assert_eq!(draw(1, 0), draw(1, 0));
    assert_ne!(draw(1, 0), draw(1, 1));
    assert_ne!(draw(1, 0), draw(2, 0));
}

#[test]
fn batches_and_drawn_inputs_are_counted_alike() {
    let options = YcsbOptions { records: 200, read_only_share: 0.3, read_only_length: 5, ..YcsbOptions::default() };
    for (batch, pregenerate) in [(1, 0), (1, 7), (16, 0), (16, 100)] {
        let report = run::<Ycsb>(&options, &Settings { batch, pregenerate, ..settings() });
        assert!(report.passed() && report.completed > 0 && !report.interrupted, "{report:?}");
        assert_eq!(report.completed_by_kind.values().sum::<u64>(), report.completed);
        let samples: u64 = report.latency_us_by_kind.values().map(|latency| latency.samples).sum();
        assert!(samples > 0 && samples == report.latency_us.samples, "{report:?}");
        let staleness = report.staleness_us.expect("there were snapshots");
        assert_eq!(staleness.max, 0, "the serial protocol shows the present");
    }
}

/// Drawing takes longer here than the run.
#[test]
fn what_is_drawn_beforehand_is_not_measured() {
    let options = YcsbOptions { records: 200, ..YcsbOptions::default() };
    let report =
        run::<Ycsb>(&options, &Settings { pregenerate: 200_000, warmup_seconds: 0.0, seconds: 0.02, ..settings() });
    assert!(report.completed > 0 && !report.interrupted, "{report:?}");
}

/// Executes the same transactions three times over, and checks what they left.
fn executed_again<W: Workload>(options: &W::Options) {
    let (database, workload) = prepared::<W>(options, 0);
    let mut worker = database.worker().unwrap();
    let mut client = workload.client(1, 0, 1);
    let mut drawn: Vec<_> = (0..100).map(|_| client.next()).collect();
    for round in 0..3 {
        for procedure in &mut drawn {
            if round > 0 {
                client.again(procedure);
            }
            let executed = match procedure.mode() {
                Mode::ReadWrite => worker.execute(procedure).map(drop),
                Mode::Snapshot => worker.snapshot(procedure).map(drop),
            };
            assert!(!matches!(executed, Err(Error::Duplicate(_))), "round {round}: {executed:?}");
            client.finished(procedure);
        }
    }
    drop(client);
    workload.check(&database).unwrap();
}

#[test]
fn drawn_transactions_can_be_executed_again() {
    executed_again::<Tpcc>(&TpccOptions { warehouses: 1, scale: Scale::tiny(), ..TpccOptions::default() });
    executed_again::<Churn>(&ChurnOptions { records: 50, ..ChurnOptions::default() });
    executed_again::<Churn>(&ChurnOptions { records: 50, pattern: Pattern::Queue, ..ChurnOptions::default() });
    executed_again::<Modify>(&ModifyOptions { records: 50, ..ModifyOptions::default() });
    executed_again::<SmallBank>(&SmallBankOptions::default());
    executed_again::<Tatp>(&TatpOptions { subscribers: 100, ..TatpOptions::default() });
    executed_again::<Ycsb>(&YcsbOptions { records: 200, ..YcsbOptions::default() });
}

/// Stops the run as soon as it has begun, and remembers how the load went.
struct StopAtOnce<'s>(&'s AtomicBool);

impl Observer for StopAtOnce<'_> {
    fn loaded(&self, load: run::Load) {
        assert_eq!(load.rows, 100);
        self.0.store(true, Ordering::Relaxed);
    }

    fn live(&self, _live: &Live) {
        panic!("the run is over before its first second");
    }
}

#[test]
fn a_run_can_be_ended_early() {
    let stop = AtomicBool::new(false);
    let options = IncrementOptions { records: 100, ..IncrementOptions::default() };
    let settings = Settings { seconds: 1e6, warmup_seconds: 1e6, ..settings() };
    let report = run::run::<Serial, Increment>(&open(), &options, &settings, &stop, &StopAtOnce(&stop)).unwrap();
    assert!(report.interrupted && report.passed());
}

/// Takes a row away when the load is done.
struct Sabotage<'d>(&'d Arc<Serial>);

impl Observer for Sabotage<'_> {
    fn loaded(&self, _load: run::Load) {
        tamper(self.0, "integer", &7_u64.to_be_bytes(), true);
    }
}

#[test]
fn a_failing_transaction_ends_the_run() {
    let database = open();
    let options = IncrementOptions { records: 10, requests: 5, ..IncrementOptions::default() };
    let (settings, stop) = (Settings { seconds: 1e6, ..settings() }, AtomicBool::new(false));
    let ended = run::run::<Serial, Increment>(&database, &options, &settings, &stop, &Sabotage(&database));
    let Err(RunError::Transaction { kind: "increment", error: Error::Other(reason) }) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(reason.to_string(), "the integer of key 7 is missing");
}

#[test]
fn a_broken_check_is_in_the_report() {
    /// Adds one to a row that no increment counts.
    struct Cheat<'d>(&'d Arc<Serial>);
    impl Observer for Cheat<'_> {
        fn checking(&self) {
            struct AddOne(polychron_engine::TableId);
            impl Procedure for AddOne {
                type Output = bool;
                type Error = Error;
                fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
                    transaction.update_row(self.0, Key8::new(3, 8), &Projection::ALL, |row| {
                        Integer::VALUE.set(row, Integer::VALUE.get(row.as_row()) + 1);
                    })
                }
            }
            let table = self.0.find_table("integer").unwrap();
            assert!(self.0.worker().unwrap().execute(&mut AddOne(table)).unwrap());
        }
    }
    let database = open();
    let options = IncrementOptions { records: 100, ..IncrementOptions::default() };
    let stop = AtomicBool::new(false);
    let report = run::run::<Serial, Increment>(&database, &options, &settings(), &stop, &Cheat(&database)).unwrap();
    assert!(!report.passed());
    assert!(report.checks.contains("the integers add up"), "{}", report.checks);
}

#[test]
fn a_load_can_be_ended() {
    let options = IncrementOptions { records: 100_000, ..IncrementOptions::default() };
    let stop = AtomicBool::new(true);
    let report = run::run::<Serial, Increment>(&open(), &options, &settings(), &stop, &Unobserved).unwrap();
    assert_eq!((report.checks.as_str(), report.completed, report.load.rows), (Report::NOT_LOADED, 0, 0));
    assert!(report.interrupted && report.passed() && report.conditions.is_empty(), "{report:?}");
}
