//! Benchmarks as they are written for PostgreSQL. One client's statements are answered as PostgreSQL answers them, where there is one; several clients beside each
//! other leave what the benchmark's conditions want.
//! `POLYCHRON_SQL_TRANSACTIONS` says how many transactions a client runs.

use polychron_engine::{Interactive, Protocol};
use polychron_lab_sql::suites::{self, SmallBank, Suite, Tatp, Tpcc, Ycsb};
use polychron_lab_sql::{Answer, Ours, Postgres, wanted};
use polychron_protocols::cicada::Cicada;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::locking::Locking;
use polychron_protocols::maflingo::Maflingo;

const SEED: u64 = 7;
const TPCC: Tpcc = Tpcc { warehouses: 2, customers: 30, items: 100 };
const SMALL_BANK: SmallBank = SmallBank { customers: 50 };
const TATP: Tatp = Tatp { subscribers: 100 };
const YCSB: Ycsb = Ycsb { rows: 200 };

fn count() -> u64 {
    wanted("POLYCHRON_SQL_TRANSACTIONS", 150)
}

fn clients_leave_what_is_right<P: Protocol<Worker: Interactive>>(suite: &dyn Suite) {
    let mut connections = Ours::<P>::several(4);
    suites::load(suite, SEED, &mut connections[0]);
    std::thread::scope(|scope| {
        for (connection, seed) in connections.iter_mut().zip(1..) {
            scope.spawn(move || {
                let outcomes = suites::run(suite, (seed, count()), connection, None);
                assert_eq!(outcomes.committed + outcomes.rolled_back, count());
                assert!(outcomes.committed * 4 > count(), "{} {outcomes:?}", P::NAME);
            });
        }
    });
    assert_eq!(suites::broken(suite, &mut connections[0]), [""; 0], "{}, {}", suite.name(), P::NAME);
}

fn all_protocols_leave_what_is_right(suite: &dyn Suite) {
    clients_leave_what_is_right::<Cicada>(suite);
    clients_leave_what_is_right::<Maflingo>(suite);
    clients_leave_what_is_right::<Hyper>(suite);
    clients_leave_what_is_right::<Locking>(suite);
}

/// The answers of each transaction. An order that a statement does not ask for says nothing.
fn answers(suite: &dyn Suite, system: &mut dyn polychron_lab_sql::System) -> Vec<String> {
    suites::load(suite, SEED, system);
    let mut all = Vec::new();
    let outcomes = suites::run(
        suite,
        (1, count()),
        system,
        Some(&mut |answers: Vec<Answer>| {
            all.push(answers.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }),
    );
    assert_eq!(outcomes.conflicts, 0);
    assert_eq!(suites::broken(suite, system), [""; 0], "{}", suite.name());
    all
}

fn postgresql_answers_alike(suite: &dyn Suite) {
    let Some(mut postgres) = Postgres::connect(&format!("polychron_{}", suite.name())) else {
        println!("skipped: POLYCHRON_POSTGRES names no server");
        return;
    };
    let theirs = answers(suite, &mut postgres);
    let ours = answers(suite, &mut Ours::<Cicada>::new());
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "{}, transaction {number}", suite.name());
    }
}

macro_rules! suites {
    ($($name:ident: $suite:expr;)*) => {$(
        mod $name {
            #[test]
            fn clients_leave_what_is_right() {
                super::all_protocols_leave_what_is_right(&$suite);
            }

            #[test]
            fn postgresql_answers_alike() {
                super::postgresql_answers_alike(&$suite);
            }
        }
    )*};
}

suites! {
    tpcc: super::TPCC;
    smallbank: super::SMALL_BANK;
    tatp: super::TATP;
    ycsb: super::YCSB;
}
