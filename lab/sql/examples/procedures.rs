//! Measures TPC-C's five procedures in SQL, each a prepared CALL, beside the native ones of `polychron_workloads`: transactions a second on each protocol.
//!
//! `cargo run --release -p polychron-lab-sql --example procedures -- 20000 2`: how many transactions each client runs, and how many clients there are. A third argument,
//! a protocol, runs that alone, and `orders` behind it nothing but orders. The tables of the SQL procedures have the columns that the procedures use; those of the native
//! ones have all. The conditions are checked behind each run.

use std::process::ExitCode;
use std::sync::Arc;

use polychron_base::clock::{Clock as _, SystemClock};
use polychron_base::random::Random;
use polychron_engine::{Common, Protocol};
use polychron_protocols::{bohm::Bohm, cicada::Cicada, hyper::Hyper, maflingo::Maflingo};
use polychron_sql::{Connection, Datum, Prepared, SqlDatabase};
use polychron_sync::atomic::AtomicBool;
use polychron_workloads::run::{Settings, Unobserved, run};
use polychron_workloads::tpcc::{Tpcc, TpccOptions};

const SCHEMA: &str = include_str!("../../../crates/sql/tests/tpcc/schema.sql");
const CONDITIONS: &str = include_str!("../../../crates/sql/tests/tpcc/consistency.sql");

const DISTRICTS: u64 = 10;
/// Of a district: a tenth of what the benchmark wants, because a condition looks through all payments for each of them.
const CUSTOMERS: u64 = 300;
const ITEMS: u64 = 100_000;

/// What is run.
#[derive(Clone, Copy)]
struct Wanted {
    count: u64,
    clients: usize,
    only_orders: bool,
}

/// A client, and the calls that it has prepared.
struct Client<P: Protocol> {
    connection: Connection<P>,
    calls: [Prepared; 5],
    random: Random,
    warehouses: u64,
}

impl<P: Protocol> Client<P> {
    fn new(database: &Arc<SqlDatabase<P>>, seed: u64, warehouses: u64) -> Self {
        let mut connection = Connection::open(database).expect("a worker is free");
        let calls = [
            "CALL enter_order($1, $2, $3, $4, $5, $6, 0)",
            "CALL pay($1, $2, $3, $4, $5, $6, $7)",
            "CALL order_status($1, $2, $3, $4, NULL, NULL)",
            "CALL deliver($1, $2, NULL)",
            "CALL stock_level($1, $2, $3, NULL)",
        ];
        let calls = calls.map(|text| connection.prepare(text).expect("the procedures are there"));
        Self { connection, calls, random: Random::from_seed(seed), warehouses }
    }

    fn number(&mut self, most: u64) -> Datum<'static> {
        Datum::Int(1 + self.random.below(most) as i64)
    }

    /// A transaction of the mix, and whether it has committed: one of a hundred orders is rolled back.
    fn transact(&mut self, only_orders: bool) -> bool {
        let (w, d) = (self.number(self.warehouses), self.number(DISTRICTS));
        let kind = if only_orders { 0 } else { self.random.below(100) };
        let name = format!("last {}", self.random.below(3));
        let customer = |own: &mut Self| {
            let by_name = own.random.below(100) < 60;
            if by_name { [Datum::Null, Datum::Text(&name)] } else { [own.number(CUSTOMERS), Datum::Null] }
        };
        let (call, values) = match kind {
            0..=44 => return self.order(w, d),
            45..=87 => {
                let [c, last] = customer(self);
                let amount = self.number(5_000);
                (1, vec![w, d, w, d, c, last, amount])
            }
            88..=91 => {
                let [c, last] = customer(self);
                (2, vec![w, d, c, last])
            }
            92..=95 => (3, vec![w, self.number(10)]),
            _ => (4, vec![w, d, Datum::Int(9 + self.random.below(11) as i64)]),
        };
        let answered = self.connection.answer_prepared(&mut self.calls[call], &values);
        answered.unwrap_or_else(|error| panic!("{}: {error}", P::NAME));
        true
    }

    fn order(&mut self, w: Datum<'_>, d: Datum<'_>) -> bool {
        let (c, lines) = (self.number(CUSTOMERS), 5 + self.random.below(11));
        let is_wrong = self.random.below(100) == 0;
        let mut lists = [(); 3].map(|()| Vec::new());
        for line in 1..=lines {
            lists[0].push(if is_wrong && line == lines { ITEMS + 1 } else { 1 + self.random.below(ITEMS) });
            lists[1].push(if let Datum::Int(w) = w { w as u64 } else { 1 });
            lists[2].push(1 + self.random.below(10));
        }
        let texts = lists.map(|list| format!("{{{}}}", list.iter().map(u64::to_string).collect::<Vec<_>>().join(",")));
        let [items, suppliers, quantities] = [0, 1, 2].map(|at| Datum::Text(&texts[at]));
        let values = [w, d, c, items, suppliers, quantities];
        match self.connection.answer_prepared(&mut self.calls[0], &values) {
            Ok(_) => true,
            Err(error) if error.state().code() == "P0002" => false,
            Err(error) => panic!("{}: {error}", P::NAME),
        }
    }
}

/// Transactions a second of the SQL procedures, and whether the conditions hold.
fn in_sql<P: Protocol>(wanted: Wanted) -> (f64, bool) {
    let database = SqlDatabase::open(P::open(P::Options::default(), Common::default()).expect("there is memory"));
    let mut connection = Connection::open(&database).expect("a worker is free");
    connection.execute(SCHEMA, &[]).expect("the schema is right");
    let warehouses = wanted.clients as u64;
    let load = format!("CALL load({warehouses}, {DISTRICTS}, {CUSTOMERS}, {ITEMS})");
    connection.execute(&load, &[]).expect("there is memory");
    let mut clients: Vec<_> = (1..=warehouses).map(|seed| Client::new(&database, seed, warehouses)).collect();
    let clock = SystemClock::new();
    let begun_ns = clock.now_ns();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || {
                for _ in 0..wanted.count {
                    client.transact(wanted.only_orders);
                }
            });
        }
    });
    let seconds = (clock.now_ns() - begun_ns) as f64 / 1e9;
    let mut is_right = true;
    for condition in CONDITIONS.split("\n\n") {
        let broken = connection.execute(condition, &[]).expect("a condition is a query").count;
        if broken > 0 {
            println!("broken: {condition}");
            is_right = false;
        }
    }
    ((wanted.count * warehouses) as f64 / seconds, is_right)
}

fn native<P: Protocol>(wanted: Wanted) -> f64 {
    let database = P::open(P::Options::default(), Common::default()).expect("there is memory");
    let options = TpccOptions { warehouses: wanted.clients as u16, ..TpccOptions::default() };
    let settings = Settings { threads: wanted.clients, warmup_seconds: 1.0, seconds: 4.0, ..Settings::default() };
    let report = run::<P, Tpcc>(&database, &options, &settings, &AtomicBool::new(false), &Unobserved);
    report.expect("the workload runs").committed_tps
}

fn measure<P: Protocol>(wanted: Wanted) -> bool {
    let (sql, is_right) = in_sql::<P>(wanted);
    if wanted.only_orders {
        println!("{}, {} clients: {sql:.0} orders a second in SQL", P::NAME, wanted.clients);
        return is_right;
    }
    let native = native::<P>(wanted);
    let share = 100.0 * sql / native;
    println!("{}, {} clients: {sql:.0} a second in SQL, {native:.0} native: {share:.0} %", P::NAME, wanted.clients);
    is_right
}

/// Measures a protocol.
type Measure = fn(Wanted) -> bool;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok()).filter(|number| *number > 0);
    let (Some(count), Some(clients @ 1..=64)) = (number(0), number(1)) else {
        eprintln!("error: the arguments are how many transactions each client runs, and how many clients there are");
        return ExitCode::from(2);
    };
    let only_orders = arguments.get(3).is_some_and(|word| word == "orders");
    let wanted = Wanted { count, clients: clients as usize, only_orders };
    let is_chosen = |name: &str| arguments.get(2).is_none_or(|chosen| chosen == name);
    let protocols: [(&str, Measure); 4] = [
        (<Cicada as Protocol>::NAME, measure::<Cicada>),
        (<Maflingo as Protocol>::NAME, measure::<Maflingo>),
        (<Hyper as Protocol>::NAME, measure::<Hyper>),
        (<Bohm as Protocol>::NAME, measure::<Bohm>),
    ];
    let mut is_right = true;
    for (_, measure) in protocols.into_iter().filter(|(name, _)| is_chosen(name)) {
        is_right &= measure(wanted);
    }
    ExitCode::from(u8::from(!is_right))
}
