//! White-box tests: locks, undoing, partitions of keys and ranges, and memory.

use std::ops::Bound;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use polychron_base::sizes::scaled;
use polychron_base::{Error, IndexId};
use polychron_engine::{
    Commit, Common, Declare, Insertion, Interactive, Mode, Operations, Procedure, Protocol, Table, Transaction, Worker,
    drive,
};
use polychron_schema::{ColumnType, IndexDefinition, Row, TableDefinition};

use super::table::KeyColumn;
use super::{Options, PartitionedStore, PartitionedTransaction, PartitionedWorker};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "account", partition = branch)]
#[index(name = "by_owner", columns(owner))]
#[index(name = "by_card", columns(branch, card), unique)]
#[index(name = "by_number", columns(number), unique)]
#[allow(clippy::duplicated_attributes, reason = "each index has its own")]
struct Account {
    #[key]
    branch: u16,
    #[key]
    id: u32,
    owner: u32,
    card: u32,
    number: u64,
    balance: i64,
    note: String,
}

/// Read by all, and not divided.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "fee")]
struct Fee {
    #[key]
    kind: u8,
    amount: i64,
}

fn account(branch: u16, id: u32) -> Account {
    let number = u64::from(branch) * 1000 + u64::from(id);
    Account { branch, id, owner: id % 3, card: id, number, balance: 100, note: String::new() }
}

#[derive(Clone, Copy)]
struct Tables {
    accounts: Table<Account>,
    fees: Table<Fee>,
}

struct Bank {
    tables: Tables,
    database: Arc<PartitionedStore>,
    worker: PartitionedWorker,
}

fn open(partitions: usize) -> Bank {
    let limit_bytes = Some(64 << 20);
    let memory = polychron_memory::Options { limit_bytes, ..polychron_memory::Options::tiny() };
    let database = PartitionedStore::open(Options { partitions }, Common { memory, ..Common::default() }).unwrap();
    let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
    let fees = Table::from_id(database.create_table(Fee::definition()).unwrap());
    let worker = database.worker().unwrap();
    Bank { tables: Tables { accounts, fees }, database, worker }
}

fn run<O>(
    worker: &mut PartitionedWorker,
    mut body: impl FnMut(&mut PartitionedTransaction<'_>) -> Result<O, Error>,
) -> Result<O, Error> {
    drive::transact(worker, Mode::ReadWrite, &mut body)
}

fn fill(bank: &mut Bank, branches: u16, ids: u32) {
    let (accounts, fees) = (bank.tables.accounts, bank.tables.fees);
    run(&mut bank.worker, |transaction| {
        transaction.insert(&fees, &Fee { kind: 1, amount: 1 })?;
        for branch in 0..branches {
            (0..ids).try_for_each(|id| transaction.insert(&accounts, &account(branch, id)))?;
        }
        Ok(())
    })
    .unwrap();
}

fn all(bank: &mut Bank) -> Vec<Account> {
    let accounts = bank.tables.accounts;
    run(&mut bank.worker, |transaction| transaction.scan(&accounts, ..).rows()).unwrap()
}

/// Moves money, and pays the fee, within the partitions that it names.
struct Transfer {
    tables: Tables,
    from: (u16, u32),
    to: (u16, u32),
    named: Vec<u64>,
    fail: bool,
}

impl Procedure for Transfer {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let fee = transaction.get(&self.tables.fees, 1)?.map_or(0, |fee| fee.amount());
        transaction.update(&self.tables.accounts, self.from, |row| row.set_balance(row.balance() - fee))?;
        assert!(!self.fail, "halfway");
        transaction.update(&self.tables.accounts, self.to, |row| row.set_balance(row.balance() + fee))?;
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.named.iter().for_each(|&partition| declaration.partition(partition));
    }
}

fn transfer(tables: Tables, from: (u16, u32), to: (u16, u32)) -> Transfer {
    let named = vec![u64::from(from.0), u64::from(to.0)];
    Transfer { tables, from, to, named, fail: false }
}

#[test]
fn partitions_are_read_out_of_keys() {
    let definition = TableDefinition::new("odd")
        .with_column("a", ColumnType::U8)
        .with_column("b", ColumnType::I32)
        .with_column("c", ColumnType::U64)
        .with_column("d", ColumnType::String { max: 9 });
    let find = |column, key: &[usize]| {
        let definition = definition.clone().with_key(key).with_partition_column(column);
        KeyColumn::find(&definition, &definition.layout().unwrap(), key)
    };
    let signed = find(1, &[0, 1]).unwrap();
    assert_eq!(signed.value(&[7, 0x80, 0, 0, 5][..]), 5);
    assert_eq!(signed.value(&[7, 0x7F, 255, 255, 255][..]), u64::MAX, "minus one");
    let long = find(2, &[1, 2]).unwrap();
    assert_eq!(long.value(&[0x80, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..]), 0x0102_0304_0506_0708);
    assert_eq!(find(1, &[3, 1]), None, "behind a column of variable width");
    assert_eq!(find(3, &[3]), None, "not a number");
    assert_eq!(find(0, &[1]), None, "not in the key");
    let first = find(0, &[0, 1]).unwrap();
    let range = |low: Bound<&[u8]>, high: Bound<&[u8]>| first.value_of_range(low, high);
    assert_eq!(range(Bound::Included(&[4]), Bound::Excluded(&[5])), Some(4));
    assert_eq!(range(Bound::Included(&[4, 1]), Bound::Included(&[4, 9])), Some(4));
    assert_eq!(range(Bound::Included(&[4, 255]), Bound::Excluded(&[5])), Some(4));
    assert_eq!(range(Bound::Included(&[4]), Bound::Included(&[5])), None);
    assert_eq!(range(Bound::Included(&[4]), Bound::Excluded(&[5, 0])), None);
    assert_eq!(range(Bound::Unbounded, Bound::Excluded(&[1])), None);
}

#[test]
fn scans_merge_the_partitions() {
    // As many of each of the three owners.
    let ids = scaled(90, 21);
    let mut bank = open(4);
    fill(&mut bank, 10, ids as u32);
    let accounts = bank.tables.accounts;
    let expected: Vec<_> = (0..10).flat_map(|branch| (0..ids as u32).map(move |id| account(branch, id))).collect();
    assert_eq!(all(&mut bank), expected);
    run(&mut bank.worker, |transaction| {
        let mut backward = transaction.scan(&accounts, ..).rev().rows()?;
        backward.reverse();
        assert_eq!(backward, expected);
        assert_eq!(transaction.scan(&accounts, (3, 10)..(3, 20)).count()?, 10);
        assert_eq!(transaction.scan_prefix(&accounts, (7,)).limit(ids - 10).rows()?, expected[7 * ids..8 * ids - 10]);
        let owners: Vec<u32> = transaction.scan_by(&accounts, Account::BY_OWNER, 2).map(|row| row.owner()).collect()?;
        assert_eq!(owners, vec![2; 10 * ids / 3]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn everything_is_undone() {
    let mut bank = open(4);
    fill(&mut bank, 4, 5);
    let before = all(&mut bank);
    let (accounts, database) = (bank.tables.accounts, Arc::clone(&bank.database));
    let changes = |transaction: &mut PartitionedTransaction<'_>| -> Result<(), Error> {
        transaction.update(&accounts, (1, 1), |row| row.set_balance(7))?;
        transaction.update(&accounts, (1, 1), |row| row.set_note(&"long ".repeat(20)).unwrap())?;
        transaction.update(&accounts, (1, 2), |row| row.set_owner(9))?;
        transaction.delete(&accounts, (2, 2))?;
        transaction.insert(&accounts, &Account { balance: 1, ..account(2, 2) })?;
        transaction.delete(&accounts, (2, 2))?;
        transaction.upsert(&accounts, &Account { number: 77_777, ..account(2, 3) })?;
        transaction.upsert(&accounts, &account(3, 99))?;
        transaction.delete(&accounts, (3, 99))?;
        let twice = transaction.try_insert(&accounts, &Account { number: 77_777, ..account(0, 50) })?;
        assert_eq!(twice, Insertion::Duplicate(IndexId(3)), "unique over all partitions");
        let savepoint = transaction.savepoint();
        transaction.delete(&accounts, (0, 0))?;
        transaction.roll_back_to(savepoint)?;
        assert!(transaction.get(&accounts, (0, 0))?.is_some());
        assert!(transaction.get(&accounts, (2, 2))?.is_none());
        assert_eq!(transaction.scan_by(&accounts, Account::BY_OWNER, 9).count()?, 1);
        Ok(())
    };
    let used = |bank: &mut Bank| {
        for _ in 0..4 {
            database.memory().epochs().advance();
            bank.worker.maintain();
        }
        database.memory().statistics().used_bytes
    };
    let rolled_back = run(&mut bank.worker, |transaction| {
        changes(transaction)?;
        Err::<(), _>(Error::RolledBack)
    });
    assert!(matches!(rolled_back, Err(Error::RolledBack)));
    // The index keeps the nodes into which the first insertions split it; records and entries are freed.
    let used_before = used(&mut bank);
    let panicked = run(&mut bank.worker, |transaction| -> Result<(), Error> {
        changes(transaction)?;
        panic!("late")
    });
    assert!(matches!(panicked, Err(Error::Panicked(text)) if text == "late"));
    assert_eq!(all(&mut bank), before);
    assert_eq!(used(&mut bank), used_before);
    run(&mut bank.worker, changes).unwrap();
    assert_eq!(all(&mut bank).len(), before.len() - 1);
    assert!(!all(&mut bank).contains(&account(2, 2)));
}

#[test]
fn what_was_not_declared_is_refused() {
    let mut bank = open(8);
    fill(&mut bank, 8, 2);
    let before = all(&mut bank);
    let mut stray = Transfer { named: vec![1], ..transfer(bank.tables, (1, 0), (2, 0)) };
    assert!(matches!(bank.worker.execute(&mut stray), Err(Error::Undeclared { .. })));
    assert_eq!(all(&mut bank), before, "the first update is undone");
    let mut unknown = Transfer { named: vec![], ..transfer(bank.tables, (1, 0), (2, 0)) };
    bank.worker.execute(&mut unknown).unwrap();
    let mut crossing = transfer(bank.tables, (2, 0), (1, 0));
    bank.worker.execute(&mut crossing).unwrap();
    assert_eq!(all(&mut bank), before);
    let mut failing = Transfer { fail: true, ..transfer(bank.tables, (1, 0), (2, 0)) };
    assert!(matches!(bank.worker.execute(&mut failing), Err(Error::Panicked(_))));
    assert_eq!(all(&mut bank), before);
    assert!(matches!(bank.worker.snapshot(&mut transfer(bank.tables, (1, 0), (2, 0))), Err(Error::ReadOnly)));
}

#[test]
fn threads_keep_the_sum() {
    const BRANCHES: u16 = 3;
    let mut bank = open(4);
    fill(&mut bank, BRANCHES, 4);
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let mut worker = bank.database.worker().unwrap();
            let tables = bank.tables;
            scope.spawn(move || {
                for round in 0..scaled(2000, 30) as u32 {
                    let branch = ((round + thread) % u32::from(BRANCHES)) as u16;
                    let other = if round % 8 == 0 { (branch + 1) % BRANCHES } else { branch };
                    let mut transfer = transfer(tables, (branch, round % 4), (other, (round + 1) % 4));
                    transfer.fail = round % 97 == 0;
                    assert_eq!(worker.execute(&mut transfer).is_ok(), !transfer.fail);
                    if round % 100 == 0 {
                        let sum: i64 = run(&mut worker, |transaction| {
                            transaction.scan(&tables.accounts, ..).map(|row| row.balance()).sum()
                        })
                        .unwrap();
                        assert_eq!(sum, i64::from(BRANCHES) * 400);
                    }
                }
            });
        }
    });
    assert_eq!(all(&mut bank).iter().map(|account| account.balance).sum::<i64>(), i64::from(BRANCHES) * 400);
}

#[test]
fn a_thread_does_not_wait_for_itself() {
    let mut bank = open(4);
    let mut other = bank.database.worker().unwrap();
    let transaction = bank.worker.begin(Mode::ReadWrite).unwrap();
    assert!(matches!(other.begin(Mode::ReadWrite), Err(Error::Unsupported { .. })));
    assert!(matches!(bank.database.drop_table(bank.tables.accounts.id()), Err(Error::Unsupported { .. })));
    drop(transaction);
    drop(other.begin(Mode::ReadWrite).unwrap());
    bank.database.drop_table(bank.tables.accounts.id()).unwrap();
}

/// A procedure inside of which another worker executes a transfer, in a partition that it does not have.
struct Nesting {
    outer: Transfer,
    inner: Transfer,
    worker: PartitionedWorker,
    met: Arc<Barrier>,
    outcome: Option<Result<(), Error>>,
}

impl Procedure for Nesting {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        self.outer.run(transaction)?;
        self.met.wait();
        self.outcome = Some(self.worker.execute(&mut self.inner));
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.outer.declare(declaration);
    }
}

#[test]
fn threads_do_not_wait_for_each_other_inside_of_transactions() {
    let mut bank = open(2);
    fill(&mut bank, 2, 4);
    let (ended, all_ended) = channel();
    let met = Arc::new(Barrier::new(2));
    for branch in [0, 1] {
        let (database, tables, met, ended) = (Arc::clone(&bank.database), bank.tables, Arc::clone(&met), ended.clone());
        std::thread::spawn(move || {
            let others = 1 - branch;
            let mut nesting = Nesting {
                outer: transfer(tables, (branch, 0), (branch, 1)),
                inner: transfer(tables, (others, 2), (others, 3)),
                worker: database.worker().unwrap(),
                met,
                outcome: None,
            };
            let outcome = database.worker().unwrap().execute(&mut nesting);
            drop(ended.send((nesting.outcome.take().unwrap(), outcome)));
        });
    }
    for _ in 0..2 {
        // Longer than any machine takes.
        let (inner, outer) = all_ended.recv_timeout(Duration::from_secs(60)).expect("there is an end");
        assert!(outer.is_ok(), "{outer:?}");
        assert!(matches!(inner, Ok(()) | Err(Error::Unsupported { .. })), "{inner:?}");
    }
    assert_eq!(all(&mut bank).iter().map(|account| account.balance).sum::<i64>(), 800);
}

#[test]
fn indexes_come_and_go() {
    let mut bank = open(4);
    fill(&mut bank, 4, 6);
    let (database, id) = (Arc::clone(&bank.database), bank.tables.accounts.id());
    let refused = database.create_index(id, IndexDefinition::new("one_owner", [2]).with_unique(true));
    assert!(matches!(refused, Err(Error::Duplicate { .. })));
    let index = database.create_index(id, IndexDefinition::new("by_balance", [5])).unwrap();
    let accounts = bank.tables.accounts;
    run(&mut bank.worker, |transaction| transaction.update(&accounts, (1, 1), |row| row.set_balance(3))).unwrap();
    let scan = polychron_engine::Scan {
        table: id,
        index,
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
        direction: polychron_engine::Direction::Forward,
        limit: 1,
        projection: polychron_engine::Projection::ALL,
        restrictions: &[],
    };
    let mut least = None;
    run(&mut bank.worker, |transaction| {
        transaction.scan_rows(&scan, &mut |row| {
            least = Some(Account::view(row).balance());
            std::ops::ControlFlow::Continue(())
        })
    })
    .unwrap();
    assert_eq!(least, Some(3));
    database.drop_index(id, index).unwrap();
    assert!(run(&mut bank.worker, |transaction| transaction.scan_rows(&scan, &mut |_| unreachable!())).is_err());
}

#[test]
fn memory_comes_back() {
    let mut bank = open(4);
    let (accounts, database) = (bank.tables.accounts, Arc::clone(&bank.database));
    let used = |bank: &mut Bank| {
        for _ in 0..6 {
            run(&mut bank.worker, |_| Ok(())).unwrap();
            database.memory().epochs().advance();
            bank.worker.maintain();
            database.shared.base.deferred_drops.collect();
        }
        database.memory().statistics().used_bytes
    };
    let empty = used(&mut bank);
    let rows = scaled(200, 20) as u32;
    for _ in 0..scaled(10, 2) {
        run(&mut bank.worker, |transaction| {
            (0..rows).try_for_each(|id| transaction.insert(&accounts, &account((id % 5) as u16, id)))
        })
        .unwrap();
        run(&mut bank.worker, |transaction| {
            (0..rows).try_for_each(|id| {
                let note = "x".repeat(id as usize);
                transaction.update(&accounts, ((id % 5) as u16, id), |row| row.set_note(&note).unwrap())?;
                transaction.delete(&accounts, ((id % 5) as u16, id)).map(drop)
            })
        })
        .unwrap();
    }
    let after = used(&mut bank);
    assert!(after <= empty + (64 << 10), "{empty} before, {after} after");
    database.drop_table(accounts.id()).unwrap();
    assert!(used(&mut bank) < empty);
}

/// Nothing of a leaked transaction is committed, and its locks come free when its worker begins another one, or goes.
#[test]
fn leaked_transactions_are_rolled_back() {
    let mut bank = open(4);
    fill(&mut bank, 2, 3);
    let before = all(&mut bank);
    let accounts = bank.tables.accounts;
    for drops in [false, true] {
        let mut worker = bank.database.worker().unwrap();
        let mut leaked = worker.begin(Mode::ReadWrite).unwrap();
        assert!(leaked.delete(&accounts, (1, 1)).unwrap());
        leaked.insert(&accounts, &account(1, 7)).unwrap();
        std::mem::forget(leaked);
        if !drops {
            worker.begin(Mode::ReadWrite).unwrap().commit().unwrap();
        }
        drop(worker);
        assert_eq!(all(&mut bank), before);
    }
    let epochs = bank.database.memory().epochs();
    let readonly = epochs.readonly();
    (0..4).for_each(|_| _ = epochs.advance());
    assert!(epochs.readonly() > readonly, "a leaked guard holds up the epochs");
}
