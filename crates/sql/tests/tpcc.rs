//! TPC-C's transactions as procedures: what several threads leave satisfies the benchmark's consistency conditions (clause 3.3.2).

use std::sync::Arc;

use polychron_engine::{Common, Protocol};
use polychron_protocols::{bohm::Bohm, cicada::Cicada, hyper::Hyper, maflingo::Maflingo, serial::Serial};
use polychron_sql::{Connection, SqlDatabase};

const WAREHOUSES: u64 = 2;
const DISTRICTS: u64 = 3;
const CUSTOMERS: u64 = 12;
const ITEMS: u64 = 40;

/// Numbers that look drawn, and are the same each time.
struct Numbers(u64);

impl Numbers {
    /// From 1 to `most`.
    fn next(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.0 >> 33) % most
    }

    /// A customer: by its number, or by its last name.
    fn customer(&mut self) -> String {
        if self.next(10) > 6 {
            format!("{}, NULL", self.next(CUSTOMERS))
        } else {
            format!("NULL, 'last {}'", self.next(3) - 1)
        }
    }

    /// An order; one of a hundred names an item that is not there.
    fn order(&mut self) -> String {
        let (w, d, c) = (self.next(WAREHOUSES), self.next(DISTRICTS), self.next(CUSTOMERS));
        let count = 4 + self.next(6);
        let mut lists = [(); 3].map(|()| Vec::new());
        for line in 1..=count {
            let is_wrong = line == count && self.next(20) == 1;
            lists[0].push(if is_wrong { ITEMS + 1 } else { self.next(ITEMS) }.to_string());
            lists[1].push(if self.next(20) == 1 { self.next(WAREHOUSES) } else { w }.to_string());
            lists[2].push(self.next(10).to_string());
        }
        let [items, suppliers, quantities] = lists.map(|list| format!("ARRAY[{}]", list.join(", ")));
        format!("CALL enter_order({w}, {d}, {c}, {items}, {suppliers}, {quantities}, 0)")
    }

    fn transaction(&mut self) -> String {
        let (w, d) = (self.next(WAREHOUSES), self.next(DISTRICTS));
        match self.next(100) {
            1..=45 => self.order(),
            46..=88 => {
                let (cw, cd) = if self.next(100) > 15 { (w, d) } else { (self.next(WAREHOUSES), self.next(DISTRICTS)) };
                let (customer, amount) = (self.customer(), self.next(5000));
                format!("CALL pay({w}, {d}, {cw}, {cd}, {customer}, {amount}.25)")
            }
            89..=92 => format!("CALL order_status({w}, {d}, {}, NULL, NULL)", self.customer()),
            93..=96 => format!("CALL deliver({w}, {}, NULL)", self.next(10)),
            _ => format!("CALL stock_level({w}, {d}, {}, NULL)", 9 + self.next(11)),
        }
    }
}

/// `holds`: some transactions are held by the client.
fn run_client<P: Protocol>(database: &Arc<SqlDatabase<P>>, seed: u64, holds: bool) -> u64 {
    let (mut connection, mut numbers, mut refused) = (Connection::open(database).unwrap(), Numbers(seed), 0);
    for at in 0..150 {
        let text = numbers.transaction();
        // Some transactions are held by the client, and run again by it where a conflict shows.
        let held = holds && at % 5 == 0;
        loop {
            let texts = if held { vec!["BEGIN", &text, "COMMIT"] } else { vec![text.as_str()] };
            let ended = texts.iter().try_for_each(|text| connection.execute(text, &[]).map(drop));
            let Err(error) = ended else { break };
            if held {
                connection.execute("ROLLBACK", &[]).unwrap();
            }
            match error.state().code() {
                "40001" | "40P01" if held => {}
                "P0002" => {
                    assert_eq!(error.message(), "Item number is not valid");
                    refused += 1;
                    break;
                }
                _ => panic!("{}: {text}: {error} {:?}", P::NAME, error.context()),
            }
        }
    }
    refused
}

fn stays_consistent<P: Protocol>(holds: bool) {
    let database = SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap());
    let mut connection = Connection::open(&database).unwrap();
    connection.execute(include_str!("tpcc/schema.sql"), &[]).unwrap();
    connection.execute(&format!("CALL load({WAREHOUSES}, {DISTRICTS}, {CUSTOMERS}, {ITEMS})"), &[]).unwrap();
    let refused: u64 = std::thread::scope(|scope| {
        let clients = [1, 2].map(|seed| {
            let database = &database;
            scope.spawn(move || run_client(database, seed, holds))
        });
        clients.map(|client| client.join().unwrap()).into_iter().sum()
    });
    assert!(refused > 0, "{}: no order is rolled back", P::NAME);
    for query in include_str!("tpcc/consistency.sql").split("\n\n") {
        let outcome = connection.execute(query, &[]).unwrap();
        assert_eq!(outcome.texts().next(), None, "{}: {query}", P::NAME);
    }
    for table in
        ["history", "orders", "order_line", "orders WHERE o_carrier_id IS NOT NULL", "stock WHERE s_remote_cnt > 0"]
    {
        let outcome = connection.execute(&format!("SELECT count(*) > 3 FROM {table}"), &[]).unwrap();
        assert_eq!(outcome.texts().next().unwrap(), [Some("t".to_owned())], "{}: {table}", P::NAME);
    }
    // A condition that cannot fail shows nothing.
    connection.execute("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1", &[]).unwrap();
    let first = include_str!("tpcc/consistency.sql").split("\n\n").next().unwrap();
    assert_eq!(connection.execute(first, &[]).unwrap().count, 1, "{}", P::NAME);
}

#[test]
fn procedures_of_tpcc_keep_its_conditions() {
    stays_consistent::<Cicada>(true);
    stays_consistent::<Maflingo>(true);
    stays_consistent::<Hyper>(true);
    stays_consistent::<Serial>(true);
    stays_consistent::<Bohm>(false);
}
