//! Backups under TPC-C's load satisfy its consistency conditions.

use polychron::{Database, Error};
use polychron_engine::Protocol as _;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polychron_workloads::run::Share;
use polychron_workloads::tpcc::{Scale, Tpcc, TpccOptions};
use polychron_workloads::{Client as _, Workload as _};

fn options() -> TpccOptions {
    TpccOptions { scale: Scale::tiny(), ..TpccOptions::default() }
}

#[test]
fn backups_under_load_are_consistent() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let database = Database::builder().small().open(at("tpcc")).unwrap();
    let tpcc = Tpcc::create(&options(), database.protocol()).unwrap();
    let share = Share { part: 0, parts: 1, seed: 1, progress: &|_| () };
    tpcc.load_part(&mut database.protocol().worker().unwrap(), &share).unwrap();
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (database, tpcc, is_over, done) = (&database, &tpcc, &is_over, &done);
            scope.spawn(move || {
                let mut client = tpcc.client(1, thread, 2);
                while !is_over.load(Ordering::Relaxed) {
                    let mut procedure = client.next();
                    match database.execute(&mut procedure) {
                        Ok(_) | Err(Error::RolledBack) => {}
                        Err(error) => panic!("{error}"),
                    }
                    client.finished(&procedure);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 0..3 {
            let enough = 200 * (number + 1);
            while done.load(Ordering::Relaxed) < enough {
                std::thread::yield_now();
            }
            database.backup(at(&format!("backup {number}"))).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for number in 0..3 {
        let backup = Database::builder().small().open_existing(at(&format!("backup {number}"))).unwrap();
        let copy = tpcc.in_copy(backup.protocol()).unwrap();
        let checked = copy.check(backup.protocol()).unwrap();
        assert!(checked.conditions.len() >= 12, "{:?}", checked.conditions);
    }
}
