//! The inputs have the distributions of the specification.

use polychron_base::key::EncodedKey;
use polychron_engine::{Access, Declare, Procedure, TableId};

use super::*;
use crate::tpcc::procedures::{CustomerChoice, TpccProcedure};
use crate::tpcc::random::last_name;

fn client(options: &TpccOptions) -> crate::tpcc::TpccClient {
    let database = Serial::open(Options::default(), Common::default()).expect("a database");
    Tpcc::create(options, &database).expect("tables").client(11, 0, 1)
}

#[test]
fn the_mix_has_its_shares() {
    let mut client = client(&tiny());
    let mut counts = [0; 6];
    for _ in 0..100_000 {
        counts[client.next().kind()] += 1;
    }
    for (count, percent) in counts.into_iter().zip([45, 43, 4, 4, 4, 0]) {
        assert!((percent * 1000 - 500..=percent * 1000 + 500).contains(&count), "{counts:?}");
    }
}

#[test]
fn new_orders_have_their_shares() {
    let options = TpccOptions { warehouses: 5, scale: Scale::standard(), ..TpccOptions::default() };
    let mut client = client(&options);
    let (mut lines, mut remote, mut unused, mut orders_remote) = (0, 0, 0, 0);
    for _ in 0..20_000 {
        let order = client.new_order();
        assert!((1..=5).contains(&order.warehouse) && (1..=10).contains(&order.district));
        assert!((1..=3000).contains(&order.customer) && (5..=15).contains(&order.line_count));
        let filled = &order.lines[..usize::from(order.line_count)];
        let away = filled.iter().filter(|line| line.supplier != order.warehouse).count();
        assert_eq!(order.all_local, away == 0);
        assert!(filled.iter().all(|line| (1..=5).contains(&line.supplier) && (1..=10).contains(&line.quantity)));
        assert!(filled[..filled.len() - 1].iter().all(|line| (1..=100_000).contains(&line.item)));
        lines += filled.len();
        remote += away;
        unused += u32::from(filled[filled.len() - 1].item > 100_000);
        orders_remote += u32::from(!order.all_local);
    }
    assert!((190_000..210_000).contains(&lines), "{lines}");
    assert!((1_700..2_300).contains(&remote), "1 % of {lines}: {remote}");
    assert!((140..270).contains(&unused), "1 % of 20,000: {unused}");
    assert!(orders_remote > 1_500, "{orders_remote}");
}

#[test]
fn payments_have_their_shares() {
    let options = TpccOptions { warehouses: 5, scale: Scale::standard(), ..TpccOptions::default() };
    let mut client = client(&options);
    let (mut remote, mut by_name) = (0, 0);
    let mut keys = std::collections::HashSet::new();
    for _ in 0..20_000 {
        let payment = client.payment();
        assert!((100..=500_000).contains(&payment.amount.units()));
        let away = payment.customer_warehouse != payment.warehouse;
        assert!(away || payment.customer_district == payment.district);
        remote += u32::from(away);
        by_name += u32::from(matches!(payment.customer, CustomerChoice::Last(_)));
        assert!(keys.insert((payment.warehouse, payment.history)), "a history key came twice");
    }
    assert!((2_700..3_300).contains(&remote), "15 % of 20,000: {remote}");
    assert!((11_600..12_400).contains(&by_name), "60 % of 20,000: {by_name}");
}

#[test]
fn one_warehouse_has_no_remote_ones() {
    let mut client =
        client(&TpccOptions { warehouses: 1, remote_item_percent: 100, remote_payment_percent: 100, ..tiny() });
    for _ in 0..500 {
        assert!(client.new_order().all_local);
        assert_eq!(client.payment().customer_warehouse, 1);
    }
}

#[test]
fn everything_can_be_remote() {
    let mut client = client(&TpccOptions { remote_item_percent: 100, remote_payment_percent: 100, ..tiny() });
    for _ in 0..500 {
        let order = client.new_order();
        assert!(order.lines[..usize::from(order.line_count)].iter().all(|line| line.supplier != order.warehouse));
        let payment = client.payment();
        assert_ne!(payment.customer_warehouse, payment.warehouse);
    }
}

#[test]
fn last_names_asked_for_are_loaded() {
    let mut client = client(&tiny());
    let loaded: Vec<_> = (0..30).map(last_name).collect();
    for _ in 0..1000 {
        if let CustomerChoice::Last(last) = client.payment().customer {
            assert!(loaded.contains(&last), "{last}");
        }
    }
}

#[test]
fn threads_share_the_warehouses() {
    let database = Serial::open(Options::default(), Common::default()).expect("a database");
    let homes = |warehouses, threads| -> Vec<Vec<u16>> {
        (0..threads)
            .map(|thread| {
                let home = crate::tpcc::client::Home::new(0, warehouses, thread, threads);
                home.warehouses().map(|(warehouse, _)| warehouse).collect()
            })
            .collect()
    };
    drop(database);
    assert_eq!(homes(1, 2), [[1], [1]]);
    assert_eq!(homes(2, 3), [[1], [2], [1]]);
    assert_eq!(homes(5, 2), [vec![1, 3, 5], vec![2, 4]]);
}

#[derive(Default)]
struct Declared {
    keys: Vec<(TableId, u64, Access)>,
    /// By table and length.
    prefixes: Vec<(TableId, usize, Access)>,
    partitions: Vec<u64>,
}

impl Declare for Declared {
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access) {
        assert!(key.len() <= 8);
        self.keys.push((table, key.slice(0), access));
    }

    fn partition(&mut self, partition: u64) {
        self.partitions.push(partition);
    }

    fn prefix<K: EncodedKey>(&mut self, table: TableId, prefix: K, access: Access) {
        self.prefixes.push((table, prefix.len(), access));
    }

    fn unknown(&mut self) {
        panic!("all that may be written is named");
    }
}

#[test]
fn known_keys_and_prefixes_are_declared() {
    let mut client = client(&TpccOptions { remote_item_percent: 100, ..tiny() });
    let order = client.new_order();
    let mut declared = Declared::default();
    order.declare(&mut declared);
    let lines = usize::from(order.line_count);
    assert_eq!(declared.keys.len(), 3 + 2 * lines);
    assert_eq!(declared.partitions.len(), 1 + lines);
    let tables = order.tables;
    assert_eq!((declared.keys[1].0, declared.keys[1].2), (tables.district.id(), Access::Update));
    let of_district =
        [tables.order.id(), tables.undelivered.id(), tables.order_line.id()].map(|table| (table, 3, Access::Insert));
    assert_eq!(declared.prefixes, of_district);

    loop {
        let payment = client.payment();
        let mut declared = Declared::default();
        payment.declare(&mut declared);
        let by_name = matches!(payment.customer, CustomerChoice::Last(_));
        assert_eq!((declared.keys.len(), declared.prefixes.len()), if by_name { (3, 1) } else { (4, 0) });
        if !by_name {
            break;
        }
    }
    for _ in 0..100 {
        let mut declared = Declared::default();
        let procedure = client.next();
        procedure.declare(&mut declared);
        assert!(!declared.partitions.is_empty());
        let reads_only = matches!(procedure, TpccProcedure::OrderStatus(_) | TpccProcedure::StockLevel(_));
        let writes = declared.keys.iter().filter(|(.., access)| *access != Access::Read).count();
        assert_eq!(reads_only, writes + declared.prefixes.len() == 0);
        assert!(
            !matches!(procedure, TpccProcedure::Delivery(_)) || declared.prefixes.iter().all(|prefix| prefix.1 == 2)
        );
    }
}
