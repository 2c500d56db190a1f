//! What only this protocol promises: which conflicts predicates distinguish, and how much undo memory is kept.

mod behind;
mod contested;
mod displaced;
mod leaks;
mod nesting;
mod oracle;
mod pages;
mod scans;
mod steps;
mod totals;
mod unseen;

use std::sync::Arc;

use polychron_base::sizes::scaled;
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Aggregate, Commit, Common, Error, Insertion, Interactive, MetricValue, Mode, Operations, Protocol, Restriction,
    Scan, Table, Worker,
};
use polychron_schema::{ColumnSet, Row, Value};

use super::predicates::PredicateLog;
use super::{Backend, Hyper, HyperTransaction, HyperWorker, Level, Options};

/// A row whose other number is unique, and refers to an account.
#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_account", columns(account), unique)]
#[references(row = Account, columns(account))]
struct Card {
    #[key]
    id: u64,
    account: u64,
}

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_owner", columns(owner))]
struct Account {
    #[key]
    id: u64,
    owner: u32,
    balance: i64,
    credit: Option<i64>,
}

type Tx<'w> = HyperTransaction<'w>;

struct Bank {
    database: Arc<Hyper>,
    accounts: Table<Account>,
}

fn account(id: u64) -> Account {
    Account { id, owner: id as u32 % 4, balance: 100 + id as i64, credit: None }
}

impl Bank {
    /// Accounts 0 to 9.
    fn new(backend: Backend) -> Self {
        Self::at(Level::default(), backend)
    }

    fn at(level: Level, backend: Backend) -> Self {
        let memory = polychron_memory::Options { epoch_interval: None, ..polychron_memory::Options::tiny() };
        let database =
            Hyper::open(Options { level, backend, ..Options::default() }, Common { memory, ..Common::default() })
                .unwrap();
        let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
        let bank = Self { database, accounts };
        assert!(bank.once(|t| (0..10).try_for_each(|id| t.insert(&accounts, &account(id)))));
        bank
    }

    fn worker(&self) -> HyperWorker {
        self.database.worker().unwrap()
    }

    fn once(&self, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) -> bool {
        let mut worker = self.worker();
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        body(&mut transaction).is_ok() && transaction.commit().is_ok()
    }

    /// Whether a transaction commits that asks something, when another one does something before it writes elsewhere.
    fn stands(
        &self,
        ask: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
        other: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>,
    ) -> bool {
        self.once(|t| {
            ask(t)?;
            assert!(self.once(other), "nothing blocks the other one");
            t.insert(&self.accounts, &Account { owner: 99, balance: 50, ..account(1000) })
        })
    }

    fn ask(&self, wanted: Aggregate) -> impl FnOnce(&mut Tx<'_>) -> Result<(), Error> {
        let table = self.accounts.id();
        move |t| t.aggregate(&Scan::all(table), wanted).map(drop)
    }

    fn insert(&self, id: u64, balance: i64) -> impl FnOnce(&mut Tx<'_>) -> Result<(), Error> {
        let accounts = self.accounts;
        move |t| t.insert(&accounts, &Account { balance, ..account(id) })
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = self.database.statistics().metrics;
        match metrics.iter().find(|metric| metric.name == name).expect("it is counted").value {
            MetricValue::Count(count) => count as f64,
            MetricValue::Mean(sum, of) => sum as f64 / of.max(1) as f64,
            MetricValue::Level(level) => level,
            MetricValue::Course(_) => unreachable!("there is none"),
        }
    }
}

#[test]
fn columns_are_distinguished_or_not() {
    fn stands(level: Level, change: impl FnOnce(&mut Tx<'_>, Table<Account>) -> Result<bool, Error>) -> bool {
        let bank = Bank::at(level, Backend::Columns);
        let accounts = bank.accounts;
        let balance = |t: &mut Tx<'_>| t.get_columns(&accounts, 1, Account::BALANCE).map(drop);
        bank.stands(balance, |t| change(t, accounts).map(drop))
    }
    assert!(stands(Level::Columns, |t, accounts| t.update(&accounts, 1, |row| row.set_credit(Some(5)))));
    assert!(!stands(Level::Rows, |t, accounts| t.update(&accounts, 1, |row| row.set_credit(Some(5)))));
    assert!(!stands(Level::Columns, |t, accounts| t.update(&accounts, 1, |row| row.set_balance(5))));
    assert!(stands(Level::Rows, |t, accounts| t.update(&accounts, 2, |row| row.set_balance(5))));
}

#[test]
fn extremes_are_protected_and_no_more() {
    let least = Aggregate::Min(2);
    let open = || Bank::new(Backend::Rows);
    let bank = open();
    assert!(bank.stands(bank.ask(least), bank.insert(20, 100)), "an equal one changes nothing");
    let bank = open();
    assert!(!bank.stands(bank.ask(least), bank.insert(20, 99)));
    let bank = open();
    let accounts = bank.accounts;
    assert!(bank.stands(bank.ask(least), |t| t.delete(&accounts, 5).map(drop)));
    let bank = open();
    let accounts = bank.accounts;
    assert!(!bank.stands(bank.ask(least), |t| t.delete(&accounts, 0).map(drop)));
    let bank = open();
    assert!(!bank.stands(bank.ask(Aggregate::Max(2)), bank.insert(20, 500)));
    let bank = open();
    assert!(bank.stands(bank.ask(Aggregate::Max(2)), bank.insert(20, 5)));
    // There is no greatest credit: any thread that comes with one changes the answer.
    let bank = open();
    assert!(bank.stands(bank.ask(Aggregate::Max(3)), bank.insert(20, 5)));
    let bank = open();
    let accounts = bank.accounts;
    let credit = |t: &mut Tx<'_>| t.update(&accounts, 5, |row| row.set_credit(Some(1))).map(drop);
    assert!(!bank.stands(bank.ask(Aggregate::Max(3)), credit));
}

#[test]
fn restrictions_narrow_what_is_protected() {
    let open = || Bank::new(Backend::Columns);
    let rich = [Restriction { column: 2, comparison: Comparison::AtLeast, value: Value::Integer(1000) }];
    let look = |bank: &Bank, t: &mut Tx<'_>| {
        let scan = Scan { restrictions: &rich, ..Scan::all(bank.accounts.id()) };
        t.scan_rows(&scan, &mut |_| unreachable!("no row is rich"))
    };
    let bank = open();
    assert!(bank.stands(|t| look(&bank, t), bank.insert(20, 999)));
    let bank = open();
    assert!(!bank.stands(|t| look(&bank, t), bank.insert(20, 1000)));
    let bank = open();
    let accounts = bank.accounts;
    let update = |to: i64| move |t: &mut Tx<'_>| t.update(&accounts, 3, |row| row.set_balance(to)).map(drop);
    assert!(bank.stands(|t| look(&bank, t), update(7)));
    let bank = open();
    let accounts = bank.accounts;
    let update = |to: i64| move |t: &mut Tx<'_>| t.update(&accounts, 3, |row| row.set_balance(to)).map(drop);
    assert!(!bank.stands(|t| look(&bank, t), update(1007)));
}

#[test]
fn a_range_is_protected_as_far_as_it_was_visited() {
    let open = || Bank::new(Backend::Rows);
    let two = |bank: &Bank, t: &mut Tx<'_>| {
        let scan = Scan { limit: 2, ..Scan::all(bank.accounts.id()) };
        t.scan_rows(&scan, &mut |_| std::ops::ControlFlow::Continue(()))
    };
    let bank = open();
    let accounts = bank.accounts;
    assert!(bank.stands(|t| two(&bank, t), |t| t.delete(&accounts, 5).map(drop)));
    let bank = open();
    let accounts = bank.accounts;
    assert!(!bank.stands(|t| two(&bank, t), |t| t.delete(&accounts, 1).map(drop)));
}

#[test]
fn secondary_ranges_are_protected_by_what_rows_were_and_are() {
    let open = || Bank::new(Backend::Rows);
    let move_to = |accounts: Table<Account>, id, owner| {
        move |t: &mut Tx<'_>| t.update(&accounts, id, |row| row.set_owner(owner)).map(drop)
    };
    for (id, owner, stands) in [(3, 2, false), (2, 3, false), (3, 1, true)] {
        let bank = open();
        let count = |t: &mut Tx<'_>| t.scan_by(&bank.accounts, Account::BY_OWNER, 2).count().map(drop);
        assert_eq!(bank.stands(count, move_to(bank.accounts, id, owner)), stands, "{id} goes to {owner}");
    }
}

#[test]
fn the_three_cases_of_a_primary_key() {
    let bank = Bank::new(Backend::Rows);
    let accounts = bank.accounts;
    let (mut left, mut right) = (bank.worker(), bank.worker());
    let mut older = left.begin(Mode::ReadWrite).unwrap();
    // In the snapshot.
    assert_ne!(older.try_insert(&accounts, &account(1)).unwrap(), Insertion::Inserted);
    // Uncommitted by another.
    let mut other = right.begin(Mode::ReadWrite).unwrap();
    other.insert(&accounts, &account(50)).unwrap();
    let mut third = bank.worker();
    let mut late = third.begin(Mode::ReadWrite).unwrap();
    assert!(late.try_insert(&accounts, &account(50)).is_err_and(|error| error.is_conflict()));
    drop(late);
    other.commit().unwrap();
    // Committed since the start.
    assert!(older.try_insert(&accounts, &account(50)).is_err_and(|error| error.is_conflict()));
}

#[test]
fn the_three_cases_of_a_unique_key() {
    let bank = Bank::new(Backend::Rows);
    let cards: Table<Card> = Table::from_id(bank.database.create_table(Card::definition()).unwrap());
    assert!(bank.once(|t| t.insert(&cards, &Card { id: 1, account: 1 })));
    let (mut left, mut right) = (bank.worker(), bank.worker());
    let mut older = left.begin(Mode::ReadWrite).unwrap();
    assert_ne!(older.try_insert(&cards, &Card { id: 2, account: 1 }).unwrap(), Insertion::Inserted);
    let mut other = right.begin(Mode::ReadWrite).unwrap();
    other.insert(&cards, &Card { id: 3, account: 3 }).unwrap();
    let mut third = bank.worker();
    let mut late = third.begin(Mode::ReadWrite).unwrap();
    assert!(late.try_insert(&cards, &Card { id: 4, account: 3 }).is_err_and(|error| error.is_conflict()));
    drop(late);
    // What is undone was never there.
    other.roll_back();
    let mut late = third.begin(Mode::ReadWrite).unwrap();
    assert_eq!(late.try_insert(&cards, &Card { id: 4, account: 3 }).unwrap(), Insertion::Inserted);
    late.commit().unwrap();
    assert!(older.try_insert(&cards, &Card { id: 5, account: 3 }).is_err_and(|error| error.is_conflict()));
}

#[test]
fn a_child_conflicts_at_once_when_its_parent_is_being_deleted() {
    fn conflicts(level: Level, commits: bool) {
        let bank = Bank::at(level, Backend::Rows);
        let (accounts, cards) = (bank.accounts, bank.database.create_table(Card::definition()).unwrap());
        let cards: Table<Card> = Table::from_id(cards);
        let (mut left, mut right) = (bank.worker(), bank.worker());
        let (mut deleting, mut inserting) =
            (left.begin(Mode::ReadWrite).unwrap(), right.begin(Mode::ReadWrite).unwrap());
        assert!(deleting.delete(&accounts, 1).unwrap());
        if commits {
            deleting.commit().unwrap();
        }
        assert!(inserting.insert(&cards, &Card { id: 1, account: 1 }).is_err_and(|error| error.is_conflict()));
    }
    for commits in [false, true] {
        conflicts(Level::Columns, commits);
        conflicts(Level::Snapshot, commits);
    }
}

#[test]
fn who_writes_a_parent_and_who_inserts_a_child_do_not_meet() {
    fn meet_not(level: Level) {
        let bank = Bank::at(level, Backend::Rows);
        let (accounts, cards) = (bank.accounts, bank.database.create_table(Card::definition()).unwrap());
        let cards: Table<Card> = Table::from_id(cards);
        let mut worker = bank.worker();
        let mut inserting = worker.begin(Mode::ReadWrite).unwrap();
        inserting.insert(&cards, &Card { id: 1, account: 1 }).unwrap();
        assert!(bank.once(|t| t.update(&accounts, 1, |row| row.set_balance(0)).map(drop)));
        inserting.commit().unwrap();
    }
    meet_not(Level::Columns);
    meet_not(Level::Snapshot);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of points take an interpreter too long, and no unsafe code handles them")]
fn many_points_become_few_ranges() {
    let mut log = PredicateLog::default();
    let table = polychron_base::TableId::new(1, 0);
    for id in 0..5000 {
        log.point_of(table, if id % 2 == 0 { id } else { 1 << 40 | id }, false, ColumnSet::EMPTY);
    }
    let relation = log.relation_at(log.position(table).unwrap());
    assert!(relation.points.len() + relation.coarse.len() < 1200, "{} ranges", relation.coarse.len());
    let covered = |id: u64| {
        relation.points.iter().any(|point| point.summary == id)
            || relation.coarse.iter().any(|range| range.first <= id && id <= range.last)
    };
    assert!((0..5000).all(|id| covered(if id % 2 == 0 { id } else { 1 << 40 | id })), "every key is covered");
    assert!(!covered(1 << 30) && !covered(1 << 50), "what lies between the two heaps is not");
}

#[test]
fn undo_buffers_are_freed_once_unneeded() {
    const UPDATES: i64 = scaled(1000, 50) as i64;
    for backend in [Backend::Rows, Backend::Columns] {
        let bank = Bank::new(backend);
        let (accounts, mut writer, mut reader) = (bank.accounts, bank.worker(), bank.worker());
        let mut update = |round: i64| {
            let mut t = writer.begin(Mode::ReadWrite).unwrap();
            t.update(&accounts, 1, |row| if round % 2 == 0 { row.set_balance(round) } else { row.set_credit(None) })
                .unwrap();
            t.commit().unwrap();
        };
        (0..100).for_each(&mut update);
        assert!(bank.metric("undo_buffers_kept") <= 2.0);
        let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
        let seen = snapshot.get(&accounts, 1).unwrap().map(|row| row.balance());
        (100..100 + UPDATES).for_each(&mut update);
        let kept = bank.database.versions().unwrap().records;
        assert!(kept[4..].iter().all(|records| *records == 0), "{kept:?}");
        assert_eq!(snapshot.get(&accounts, 1).unwrap().map(|row| row.balance()), seen);
        drop(snapshot);
        update(100 + UPDATES);
        reader.maintain();
        assert!(bank.metric("undo_buffers_kept") <= 2.0);
    }
}

/// The balance of an account, one transaction to a change.
fn set_balance(writer: &mut HyperWorker, accounts: &Table<Account>, id: u64, balance: i64) {
    let mut t = writer.begin(Mode::ReadWrite).unwrap();
    t.update(accounts, id, |row| row.set_balance(balance)).unwrap();
    t.commit().unwrap();
}

#[test]
fn an_old_snapshot_keeps_one_small_image_of_each_row() {
    const ROWS: u64 = scaled(300, 60) as u64;
    let bank = Bank::new(Backend::Rows);
    let (accounts, mut writer, mut reader, mut later) = (bank.accounts, bank.worker(), bank.worker(), bank.worker());
    assert!(bank.once(|t| (10..ROWS).try_for_each(|id| t.insert(&accounts, &account(id)))));
    let balances =
        |t: &mut Tx<'_>| -> Vec<i64> { (0..ROWS).map(|id| t.get(&accounts, id).unwrap().unwrap().balance()).collect() };
    let mut update = |balance: i64| (0..ROWS).for_each(|id| set_balance(&mut writer, &accounts, id, balance));
    // Two cache lines each, and a little for what has not been pruned yet.
    let most = |before_images: u64| (before_images * 128 + 4096) as f64;
    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
    let first = balances(&mut snapshot);
    (0..5).for_each(&mut update);
    assert!(bank.metric("undo_bytes") <= most(ROWS), "{}", bank.metric("undo_bytes"));
    assert!(bank.metric("undo_buffers_kept") <= (ROWS + 2) as f64);
    // Another one has them kept twice, and when it is gone the next change of each row takes them out.
    let mut other = later.begin(Mode::Snapshot).unwrap();
    (5..8).for_each(&mut update);
    assert!(bank.metric("undo_bytes") <= most(2 * ROWS), "{}", bank.metric("undo_bytes"));
    assert_eq!(balances(&mut other), vec![4; ROWS as usize]);
    drop(other);
    (8..10).for_each(&mut update);
    assert!(bank.metric("undo_bytes") <= most(ROWS + ROWS / 2), "{}", bank.metric("undo_bytes"));
    assert_eq!(balances(&mut snapshot), first);
    drop(snapshot);
    later.maintain();
    assert!(bank.metric("undo_buffers_kept") <= 2.0);
    assert!(bank.metric("undo_bytes_at_most") <= most(2 * ROWS) + 65536.0, "{}", bank.metric("undo_bytes_at_most"));
}

#[test]
fn a_large_buffer_stays_while_most_of_it_is_needed() {
    const ROWS: u64 = scaled(300, 150) as u64;
    let bank = Bank::new(Backend::Columns);
    let (accounts, mut writer, mut reader, mut later) = (bank.accounts, bank.worker(), bank.worker(), bank.worker());
    assert!(bank.once(|t| (10..ROWS).try_for_each(|id| t.insert(&accounts, &account(id)))));
    let all = |balance: i64| {
        bank.once(|t| (0..ROWS).try_for_each(|id| t.update(&accounts, id, |row| row.set_balance(balance)).map(drop)))
    };
    writer.maintain();
    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
    assert!(all(1));
    let other = later.begin(Mode::Snapshot).unwrap();
    assert!(all(2));
    set_balance(&mut writer, &accounts, 0, 3);
    set_balance(&mut writer, &accounts, 0, 4);
    assert!(bank.metric("undo_buffers_kept") <= 4.0, "both are kept as they are");
    let both = bank.metric("undo_bytes");
    drop(other);
    // Of the second one nothing is needed; when half of it has gone the rest is found.
    (0..ROWS * 2 / 3).for_each(|id| set_balance(&mut writer, &accounts, id, 5));
    assert!(bank.metric("undo_bytes") <= both * 0.6, "{} of {both}", bank.metric("undo_bytes"));
    let balances =
        |t: &mut Tx<'_>| -> Vec<i64> { (0..ROWS).map(|id| t.get(&accounts, id).unwrap().unwrap().balance()).collect() };
    assert_eq!(balances(&mut snapshot), (0..ROWS as i64).map(|id| 100 + id).collect::<Vec<_>>());
}
