//! What HyPer's paper says of its workloads, on HyPer's MVCC.

use std::sync::Arc;

use polychron_engine::{Commit, Common, Interactive, Metric, MetricValue, Mode, Procedure, Protocol, Worker};
use polychron_protocols::hyper::Hyper;
use polychron_sync::atomic::AtomicBool;
use polychron_workloads::modify::{Modify, ModifyOptions, Operation};
use polychron_workloads::run::{self, Settings, Share, Unobserved};
use polychron_workloads::tpcc::procedures::TopCustomer;
use polychron_workloads::tpcc::{Scale, Tpcc, TpccOptions, Transactions};
use polychron_workloads::{Client, Workload};

fn options() -> TpccOptions {
    TpccOptions { scale: Scale::tiny(), top_customer_percent: 20, ..TpccOptions::default() }
}

/// Whoever updates rows goes on beside a snapshot that stays open, which shows the same at its end; what it costs is counted.
#[test]
fn updates_go_on_beside_an_open_snapshot() {
    for operation in [Operation::Update, Operation::Mixed] {
        let database = Hyper::open(Default::default(), Common::default()).unwrap();
        let options = ModifyOptions { records: 50, operation, readers: 1, read_seconds: 0.1, ..Default::default() };
        let settings = Settings { threads: 2, warmup_seconds: 0.02, seconds: 0.4, ..Settings::default() };
        let stop = AtomicBool::new(false);
        let report = run::run::<_, Modify>(&database, &options, &settings, &stop, &Unobserved).unwrap();
        assert!(report.completed > 0 && report.passed(), "{report:?}");
        let metric = |name: &str| match database.statistics().metrics.iter().find(|metric| metric.name == name) {
            Some(Metric { value: MetricValue::Level(level), .. }) => *level,
            _ => panic!("{name} is a level"),
        };
        assert!(metric("undo_bytes_at_most") > 0.0 && metric("undo_bytes") <= metric("undo_bytes_at_most"));
        assert_eq!(metric("commits_since_oldest_read"), 0.0, "nobody reads");
    }
}

/// §4.4: who asks a district's three thousand customers for the highest balance leaves less than 100 bytes.
#[test]
fn the_predicate_log_of_top_customer_is_small() {
    let database = Hyper::open(Default::default(), Common::default()).unwrap();
    // One district of the size that the specification gives it.
    let scale = Scale { districts: 1, customers: 3000, orders: 3000, ..Scale::tiny() };
    let options = TpccOptions { scale, transactions: Transactions::Np, top_customer_percent: 0, ..options() };
    let workload = Tpcc::create(&options, &database).unwrap();
    let (mut asking, mut writing) = (database.worker().unwrap(), database.worker().unwrap());
    workload.load_part(&mut asking, &Share { part: 0, parts: 1, seed: 1, progress: &|_| () }).unwrap();
    let before = predicate_logs(&database);
    let mut transaction = asking.begin(Mode::ReadWrite).unwrap();
    let mut top = TopCustomer { tables: *workload.tables(), warehouse: 1, district: 1, top: None };
    top.run(&mut transaction).unwrap();
    assert!(top.top.is_some());
    // Somebody commits meanwhile, so that there is something to validate.
    writing.execute(&mut workload.client(1, 0, 1).next()).unwrap();
    let _ = transaction.commit();
    let after = predicate_logs(&database);
    let (bytes, logs) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(logs, 1);
    assert!((1..100).contains(&bytes), "{bytes} bytes");
}

/// Bytes of all predicate logs that were validated, and how many there were.
fn predicate_logs(database: &Arc<Hyper>) -> (u64, u64) {
    let metrics = database.statistics().metrics;
    match metrics.iter().find(|metric| metric.name == "predicate_log_bytes").expect("it is counted").value {
        MetricValue::Mean(bytes, logs) => (bytes, logs),
        _ => unreachable!("it is a mean"),
    }
}
