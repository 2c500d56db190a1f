//! In steady state transactions take nothing from the general heap: their sets, rows and versions come out of memory that is used again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use polychron_base::sizes::scaled;
use polychron_engine::{
    Access, Common, Declare, Error, Operations, Procedure, Protocol, Table, TableDefinition, Transaction, Worker,
};
use polychron_protocols::bohm::Bohm;
use polychron_protocols::cicada::Cicada;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::lazy::Lazy;
use polychron_protocols::locking::Locking;
use polychron_protocols::maflingo::Maflingo;
use polychron_schema::Row;
use polychron_workloads::run::Share;
use polychron_workloads::tpcc::{Indexes, Scale, Tpcc, TpccOptions};
use polychron_workloads::{Client, Transact, Workload};

/// The system's allocator, which counts what each thread requests.
struct Counting;

thread_local! {
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system's, and counting allocates nothing: the cell needs neither initialisation nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: the caller promises what the system's allocator asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above, and it came from there.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Row, Clone, Copy, Debug)]
#[index(name = "by_group", columns(group))]
struct Account {
    #[key]
    id: u64,
    group: u32,
    balance: i64,
}

const ROWS: u64 = 64;

/// Reads, changes, moves between groups, deletes, inserts and scans.
struct Mixed {
    accounts: Table<Account>,
    number: u64,
}

impl Mixed {
    /// Three keys that differ.
    fn ids(&self) -> [u64; 3] {
        [0, 1, 2].map(|add| (self.number * 7 + add) % ROWS)
    }
}

impl Procedure for Mixed {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Error> {
        let (accounts, [one, two, three]) = (&self.accounts, self.ids());
        let before = t.get(accounts, one)?.map_or(0, |row| row.balance());
        t.update(accounts, one, |row| row.set_balance(before + 1))?;
        t.update(accounts, two, |row| row.set_group(row.group() ^ 1))?;
        t.delete(accounts, three)?;
        t.insert(accounts, &Account { id: three, group: 2, balance: 0 })?;
        let mut sum = before;
        t.scan(accounts, one..one + 8).for_each(|row| sum += row.balance())?;
        Ok(sum)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.ids().iter().for_each(|id| declaration.row(&self.accounts, *id, Access::Write));
    }
}

/// Requests that are no transaction's: indexes and lists grow now and then.
const GROWTH: u64 = 10;

/// Asserts that transactions request nothing of the heap, once many have gone before.
fn assert_no_requests<P: Protocol>() {
    let transactions = scaled(5_000, 50) as u64;
    let database = P::open(P::Options::default(), Common::default()).unwrap();
    let create = |definition: TableDefinition| database.create_table(definition).unwrap();
    let accounts = Table::<Account>::from_id(create(Account::definition()));
    let mut worker = database.worker().unwrap();
    let mut run = |number| worker.execute(&mut Mixed { accounts, number }).map(drop);
    (0..4 * transactions).try_for_each(&mut run).unwrap();
    let before = REQUESTS.get();
    (0..transactions).try_for_each(&mut run).unwrap();
    let requests = REQUESTS.get() - before;
    assert!(requests <= GROWTH, "{}: {requests} in {transactions} transactions", P::NAME);
}

/// The same of TPC-C's five transactions, which insert all the time: what grows with the rows takes something now and then.
fn assert_no_requests_by_tpcc<P: Protocol>() {
    let transactions = scaled(4_000, 100) as u64;
    for index in [Indexes::Hash, Indexes::Ordered] {
        let database = P::open(P::Options::default(), Common::default()).unwrap();
        let options = TpccOptions { scale: Scale::tiny(), index, ..TpccOptions::default() };
        let workload = Tpcc::create(&options, &database).unwrap();
        let mut worker = database.worker().unwrap();
        workload.load_part(&mut worker, &Share { part: 0, parts: 1, seed: 1, progress: &|_| () }).unwrap();
        let mut client = workload.client(1, 0, 1);
        let mut by_kind = [0; 6];
        for number in 0..2 * transactions {
            let mut procedure = client.next();
            let before = REQUESTS.get();
            let outcome = worker.execute(&mut procedure).map(drop);
            if number >= transactions {
                by_kind[procedure.kind()] += REQUESTS.get() - before;
            }
            assert!(matches!(outcome, Ok(()) | Err(Error::RolledBack)), "{outcome:?}");
            client.finished(&procedure);
        }
        let requests: u64 = by_kind.iter().sum();
        assert!(requests <= transactions / 100, "{}: {by_kind:?} in {transactions} transactions", P::NAME);
    }
}

#[test]
fn transactions_allocate_nothing() {
    assert_no_requests::<Cicada>();
    assert_no_requests::<Maflingo>();
    assert_no_requests::<Hyper>();
    assert_no_requests::<Bohm>();
    assert_no_requests::<Locking>();
    assert_no_requests::<Lazy<Maflingo>>();
}

#[test]
fn transactions_of_tpcc_allocate_nothing() {
    assert_no_requests_by_tpcc::<Cicada>();
    assert_no_requests_by_tpcc::<Maflingo>();
    assert_no_requests_by_tpcc::<Hyper>();
    assert_no_requests_by_tpcc::<Bohm>();
    assert_no_requests_by_tpcc::<Locking>();
    assert_no_requests_by_tpcc::<Lazy<Maflingo>>();
}
