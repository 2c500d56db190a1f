//! Partitioned-Store. One thread runs a procedure inside another one, which only partitions keep apart.

use std::sync::Arc;

use polychron_compared::partitioned_store::{Options, PartitionedStore, Step};
use polychron_engine::{
    Common, Declare, Error, Insertion, Operations, Procedure, Protocol, Table, Transaction, Worker,
};
use polychron_schema::Row;

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[row(partition = branch)]
#[index(name = "by_card", columns(branch, card), unique)]
#[index(name = "by_number", columns(number), unique)]
#[allow(clippy::duplicated_attributes, reason = "each index has its own")]
struct Account {
    #[key]
    branch: u16,
    #[key]
    id: u32,
    /// Unique in its branch.
    card: u32,
    /// Unique everywhere.
    number: u64,
    balance: i64,
}

/// Read by all, and not divided.
#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Fee {
    #[key]
    kind: u8,
    amount: i64,
}

/// What a procedure does, one after the other.
enum Do<'d> {
    Read(u16),
    Write(u16, i64),
    Sum,
    ReadFee,
    WriteFee(i64),
    Insert(Account),
    /// Something outside of the transaction.
    Meanwhile(&'d mut (dyn FnMut() + Send)),
    Fail,
}

/// A procedure that names its partitions and answers what it read: `None` for a refused insertion.
struct Script<'d> {
    stage: Stage,
    partitions: Vec<u64>,
    steps: Vec<Do<'d>>,
}

impl Procedure for Script<'_> {
    type Output = Vec<Option<i64>>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Self::Output, Error> {
        let Stage { accounts, fees, .. } = &self.stage;
        let mut answers = Vec::new();
        for step in &mut self.steps {
            match step {
                Do::Read(branch) => answers.push(t.get(accounts, (*branch, 1))?.map(|row| row.balance())),
                Do::Write(branch, balance) => {
                    t.update(accounts, (*branch, 1), |row| row.set_balance(*balance))?;
                }
                Do::Sum => answers.push(Some(t.scan(accounts, ..).map(|row| row.balance()).sum()?)),
                Do::ReadFee => answers.push(t.get(fees, 1)?.map(|row| row.amount())),
                Do::WriteFee(amount) => t.upsert(fees, &Fee { kind: 1, amount: *amount })?,
                Do::Insert(account) => {
                    let inserted = t.try_insert(accounts, account)? == Insertion::Inserted;
                    answers.push(inserted.then_some(1));
                }
                Do::Meanwhile(work) => work(),
                Do::Fail => return Err(Error::definition("on purpose")),
            }
        }
        Ok(answers)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.partitions.iter().for_each(|&partition| declaration.partition(partition));
    }
}

#[derive(Clone)]
struct Stage {
    database: Arc<PartitionedStore>,
    accounts: Table<Account>,
    fees: Table<Fee>,
}

fn account(branch: u16, id: u32) -> Account {
    Account { branch, id, card: id, number: u64::from(branch) * 1000 + u64::from(id), balance: 100 }
}

impl Stage {
    fn new() -> Self {
        let memory = polychron_memory::Options { limit_bytes: Some(64 << 20), ..polychron_memory::Options::tiny() };
        let common = Common { memory, ..Common::default() };
        let database = PartitionedStore::open(Options { partitions: 4 }, common).unwrap();
        let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
        let fees = Table::from_id(database.create_table(Fee::definition()).unwrap());
        let stage = Self { database, accounts, fees };
        let rows = (0..4).map(|branch| Do::Insert(account(branch, 1)));
        stage.run(&[], rows.chain([Do::WriteFee(1)]).collect()).unwrap();
        stage
    }

    /// Runs a procedure that names `partitions`, or all when there are none.
    fn run(&self, partitions: &[u64], steps: Vec<Do<'_>>) -> Result<Vec<Option<i64>>, Error> {
        let mut script = Script { stage: self.clone(), partitions: partitions.to_vec(), steps };
        self.database.worker().unwrap().execute(&mut script)
    }

    /// Whether a procedure of these partitions sees a balance that another one is about to take back.
    fn uncommitted_balance_seen(&self, partitions: &[u64], look: fn() -> Do<'static>, dirty: i64) -> bool {
        let mut seen = false;
        let mut look = || seen = self.run(partitions, vec![look()]).is_ok_and(|answers| answers == [Some(dirty)]);
        let failed = self.run(&[0], vec![Do::Write(0, 50), Do::Meanwhile(&mut look), Do::Fail]);
        assert!(failed.is_err());
        seen
    }
}

fn aborted_read_in_one_partition() -> bool {
    Stage::new().uncommitted_balance_seen(&[0], || Do::Read(0), 50)
}

fn aborted_read_of_an_undeclared_key() -> bool {
    Stage::new().uncommitted_balance_seen(&[1], || Do::Read(0), 50)
}

fn aborted_read_of_an_undeclared_range() -> bool {
    Stage::new().uncommitted_balance_seen(&[1], || Do::Sum, 350)
}

fn shared_row_that_changes() -> bool {
    let stage = Stage::new();
    let mut write = || drop(stage.run(&[1], vec![Do::WriteFee(2)]));
    let fees = stage.run(&[0], vec![Do::ReadFee, Do::Meanwhile(&mut write), Do::ReadFee]).unwrap();
    fees[0] != fees[1]
}

/// A number is refused for the sake of one that is taken back.
fn duplicate_of_an_uncommitted_number() -> bool {
    let stage = Stage::new();
    let mut refused = false;
    let twin = Account { number: 7, ..account(1, 2) };
    let mut insert = || refused = stage.run(&[1], vec![Do::Insert(twin)]).is_ok_and(|answers| answers == [None]);
    let first = Account { number: 7, ..account(0, 2) };
    let failed = stage.run(&[0], vec![Do::Insert(first), Do::Meanwhile(&mut insert), Do::Fail]);
    assert!(failed.is_err());
    refused
}

fn number_in_two_partitions() -> bool {
    let stage = Stage::new();
    let twin = Account { number: 1, ..account(1, 2) };
    stage.run(&[], vec![Do::Insert(twin)]).unwrap() == [Some(1)]
}

fn card_of_two_accounts() -> bool {
    let stage = Stage::new();
    let twin = Account { card: 1, ..account(0, 2) };
    stage.run(&[], vec![Do::Insert(twin)]).unwrap() == [Some(1)]
}

fn write_that_was_rolled_back() -> bool {
    let stage = Stage::new();
    assert!(stage.run(&[0], vec![Do::Write(0, 50), Do::Fail]).is_err());
    stage.run(&[0], vec![Do::Read(0)]).unwrap() == [Some(50)]
}

fn row_whose_entry_was_refused() -> bool {
    let stage = Stage::new();
    let twin = Account { number: 1, ..account(1, 2) };
    let answers = stage.run(&[], vec![Do::Insert(twin), Do::Sum]).unwrap();
    assert_eq!(answers[0], None);
    answers[1] != Some(400)
}

crate::killers! { Step:
    TakeLocks: aborted_read_in_one_partition, "dirty read in one partition";
    RefuseUndeclared: aborted_read_of_an_undeclared_key, "dirty read of an undeclared key";
    RefuseUndeclaredRanges: aborted_read_of_an_undeclared_range, "dirty read of an undeclared range";
    RefuseSharedWrites: shared_row_that_changes, "a row of an unpartitioned table changes while it is read";
    RefuseSharedEntries: duplicate_of_an_uncommitted_number, "a value is refused because of one that is rolled back";
    SearchAllPartitions: number_in_two_partitions, "a unique value occurs in two partitions";
    RefuseDuplicates: card_of_two_accounts, "a unique value occurs twice in one partition";
    UndoTransactions: write_that_was_rolled_back, "a rollback undoes nothing";
    UndoOperations: row_whose_entry_was_refused, "a refused row remains";
}
