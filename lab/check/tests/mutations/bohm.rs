//! BOHM. One thread does all: it hands batches in, plans them and executes them. Where a transaction is to come to a row before the one
//! that writes it was executed, another thread hands it in while the first one is in the middle of a procedure that stands earlier in the
//! log.

use std::sync::{Arc, mpsc};
use std::thread;

use polychron_check::journal::Recorder;
use polychron_engine::redo::Journal;
use polychron_engine::{
    Access, Commit, Common, Declare, Error, IndexDefinition, Insertion, Interactive, Mode, Operations, Procedure,
    Protocol, Table, Transaction, Worker, mutations,
};
use polychron_protocols::bohm::{Bohm, Options, Point, Step, Unknown};
use polychron_schema::{Index, Key, KeyScratch, Row, RowRef};

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_owner", columns(owner))]
#[index(name = "by_card", columns(card), unique)]
#[allow(clippy::duplicated_attributes, reason = "each index has its own")]
struct Account {
    #[key]
    id: u64,
    owner: u32,
    card: u64,
    balance: i64,
}

#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Line {
    #[key]
    branch: u32,
    #[key]
    number: u32,
    amount: i64,
}

fn account(id: u64) -> Account {
    Account { id, owner: 1, card: id, balance: 0 }
}

/// What a procedure does, one after the other.
#[derive(Clone, Copy)]
enum Do {
    Read(u64),
    Add(u64, i64),
    SetOwner(u64, u32),
    Insert(Account),
    CountOfOwner(u32),
    Append(Line),
    Amount(u32, u32),
    SetAmount(u32, u32, i64),
    Put(Line),
    Remove(u32, u32),
    Lines(u32),
    /// Something outside of the transaction.
    Meanwhile,
    /// Adds, and undoes it.
    Undone(u64, i64),
    Fail,
}

/// What a procedure says beforehand.
#[derive(Clone, Copy)]
enum Says {
    Reads(u64),
    Writes(u64),
    /// Some lines of the branch.
    Lines(u32),
    Anything,
}

/// A procedure that answers what it read.
struct Script<'d> {
    stage: Stage,
    says: Vec<Says>,
    steps: Vec<Do>,
    meanwhile: Option<&'d mut (dyn FnMut() + Send)>,
}

impl Procedure for Script<'_> {
    type Output = Vec<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<i64>, Error> {
        let Stage { accounts, lines, .. } = &self.stage;
        let mut answers = Vec::new();
        let add = |t: &mut T, id, by| t.update(accounts, id, |row| row.set_balance(row.balance() + by));
        for step in &mut self.steps {
            match step {
                Do::Read(id) => answers.push(t.get(accounts, *id)?.map_or(-1, |row| row.balance())),
                Do::Add(id, by) => drop(add(t, *id, *by)?),
                Do::SetOwner(id, owner) => drop(t.update(accounts, *id, |row| row.set_owner(*owner))?),
                Do::Insert(account) => {
                    answers.push((t.try_insert(accounts, account)? == Insertion::Inserted).into());
                }
                Do::CountOfOwner(owner) => {
                    answers.push(t.scan_by(accounts, Account::BY_OWNER, *owner).count()? as i64);
                }
                Do::Append(line) => t.insert(lines, line)?,
                Do::Amount(branch, number) => {
                    answers.push(t.get(lines, (*branch, *number))?.map_or(-1, |row| row.amount()));
                }
                Do::SetAmount(branch, number, amount) => {
                    t.update(lines, (*branch, *number), |row| row.set_amount(*amount))?;
                }
                Do::Put(line) => t.upsert(lines, line)?,
                Do::Remove(branch, number) => drop(t.delete(lines, (*branch, *number))?),
                Do::Lines(branch) => answers.push(t.scan_prefix(lines, *branch).count()? as i64),
                Do::Meanwhile => {
                    if let Some(meanwhile) = &mut self.meanwhile {
                        meanwhile();
                    }
                }
                Do::Undone(id, by) => {
                    let savepoint = t.savepoint();
                    add(t, *id, *by)?;
                    t.roll_back_to(savepoint)?;
                }
                Do::Fail => return Err(Error::definition("on purpose")),
            }
        }
        Ok(answers)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Stage { accounts, lines, .. } = &self.stage;
        let mut scratch = KeyScratch::new();
        for says in &self.says {
            match says {
                Says::Reads(id) => declaration.key(accounts.id(), id.encode(&mut scratch), Access::Read),
                Says::Writes(id) => declaration.key(accounts.id(), id.encode(&mut scratch), Access::Write),
                Says::Lines(branch) => {
                    declaration.prefix(lines.id(), branch.encode_prefix(&mut scratch), Access::Write);
                }
                Says::Anything => declaration.unknown(),
            }
        }
    }
}

/// What procedures of one batch answered.
type Answers = Vec<Result<Vec<i64>, Error>>;

#[derive(Clone)]
struct Stage {
    database: Arc<Bohm>,
    accounts: Table<Account>,
    lines: Table<Line>,
}

impl Stage {
    /// With the accounts 1 and 2, which belong to 1, and a line of branch 1.
    fn new() -> Self {
        Self::logged(Journal::default())
    }

    fn logged(journal: Journal) -> Self {
        let memory = polychron_memory::Options { limit_bytes: Some(64 << 20), ..polychron_memory::Options::tiny() };
        let options = Options { unknown: Unknown::InPlace, ..Options::default() };
        let database = Bohm::open(options, Common { memory, journal, ..Common::default() }).unwrap();
        let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
        let lines = Table::from_id(database.create_table(Line::definition()).unwrap());
        let stage = Self { database, accounts, lines };
        let line = Line { branch: 1, number: 1, amount: 0 };
        stage.run(
            &[Says::Writes(1), Says::Writes(2), Says::Lines(1)],
            vec![Do::Insert(account(1)), Do::Insert(account(2)), Do::Append(line)],
        );
        stage
    }

    fn script<'d>(&self, says: &[Says], steps: Vec<Do>) -> Script<'d> {
        Script { stage: self.clone(), says: says.to_vec(), steps, meanwhile: None }
    }

    fn run(&self, says: &[Says], steps: Vec<Do>) -> Vec<i64> {
        self.database.worker().unwrap().execute(&mut self.script(says, steps)).unwrap()
    }

    fn read(&self, id: u64) -> i64 {
        self.run(&[], vec![Do::Read(id)])[0]
    }

    /// Hands procedures in together.
    fn batch(&self, scripts: &mut [Script<'_>]) -> Answers {
        let mut answers: Vec<_> = scripts.iter().map(|_| Ok(Vec::new())).collect();
        self.database.worker().unwrap().execute_batch(scripts, &mut |position, answer| answers[position] = answer);
        answers
    }

    /// Has an earlier and a later transaction executed, the later one first; answers what both do.
    fn later_first(&self, earlier: (&[Says], Do), later: (&[Says], Do)) -> Answers {
        let mut answer = Ok(Vec::new());
        let mut meanwhile = || {
            answer = beside(|| self.database.worker().unwrap().execute(&mut self.script(later.0, vec![later.1])));
        };
        let first = Script { meanwhile: Some(&mut meanwhile), ..self.script(&[], vec![Do::Meanwhile]) };
        let mut answers = self.batch(&mut [first, self.script(earlier.0, vec![earlier.1])]);
        answers.push(answer);
        answers.remove(0).unwrap();
        answers
    }
}

/// Does something on a thread of its own, which leaves out what this one does.
fn beside<O: Send>(work: impl FnOnce() -> O + Send) -> O {
    let left_out = mutations::inherited();
    let there = || {
        let _careless = left_out.leave_out();
        work()
    };
    thread::scope(|scope| scope.spawn(there).join().unwrap())
}

fn shows(answer: &Result<Vec<i64>, Error>, wanted: i64) -> bool {
    answer.as_ref().unwrap() == &[wanted]
}

fn read_of_a_placeholder() -> bool {
    let answers = Stage::new().later_first((&[Says::Writes(1)], Do::Add(1, 7)), (&[Says::Reads(1)], Do::Read(1)));
    !shows(&answers[1], 7)
}

fn read_of_a_later_write() -> bool {
    let stage = Stage::new();
    let (read, write) = (stage.script(&[], vec![Do::Read(1)]), stage.script(&[Says::Writes(1)], vec![Do::Add(1, 7)]));
    !shows(&stage.batch(&mut [read, write])[0], 0)
}

/// A row moves to the owner whose rows are counted.
fn index_under_an_earlier_write() -> bool {
    let answers = Stage::new().later_first((&[Says::Writes(2)], Do::SetOwner(2, 5)), (&[], Do::CountOfOwner(5)));
    !shows(&answers[1], 1)
}

fn range_under_an_earlier_insertion() -> bool {
    let line = Line { branch: 1, number: 2, amount: 0 };
    let answers = Stage::new().later_first((&[Says::Lines(1)], Do::Append(line)), (&[], Do::Lines(1)));
    !shows(&answers[1], 2)
}

fn row_under_an_earlier_write_of_anything() -> bool {
    let answers = Stage::new().later_first((&[Says::Anything], Do::Add(1, 7)), (&[], Do::Read(1)));
    !shows(&answers[1], 7)
}

/// The version was found before the write was known that came in between.
fn declared_read_behind_a_write_of_anything() -> bool {
    let stage = Stage::new();
    let write = stage.script(&[Says::Anything], vec![Do::Add(1, 7)]);
    let read = stage.script(&[Says::Reads(1)], vec![Do::Read(1)]);
    !shows(&stage.batch(&mut [write, read])[1], 7)
}

/// It names the row, fails before it writes it, and the row is gone.
fn row_that_a_failure_named() -> bool {
    let stage = Stage::new();
    assert!(stage.batch(&mut [stage.script(&[Says::Writes(1)], vec![Do::Fail])])[0].is_err());
    stage.read(1) != 0
}

fn write_of_a_failure() -> bool {
    let stage = Stage::new();
    assert!(stage.batch(&mut [stage.script(&[Says::Writes(1)], vec![Do::Add(1, 7), Do::Fail])])[0].is_err());
    stage.read(1) != 0
}

/// A later transaction, which names the row, adds to it before the earlier one does, which does not.
fn lost_update_of_an_undeclared_row() -> bool {
    let stage = Stage::new();
    let answers = stage.later_first((&[Says::Writes(2)], Do::Add(1, 7)), (&[Says::Writes(1)], Do::Add(1, 1)));
    stage.read(1) != if answers[0].is_ok() { 8 } else { 1 }
}

fn snapshot_of_a_row_that_is_overwritten() -> bool {
    let stage = Stage::new();
    // Other rows take the memory that comes free.
    let mut overwrite = || {
        stage.run(&[Says::Lines(1)], vec![Do::SetAmount(1, 1, 7)]);
        for number in 1..50 {
            stage.run(&[Says::Lines(2)], vec![Do::Append(Line { branch: 2, number, amount: 9 })]);
        }
    };
    let steps = vec![Do::Amount(1, 1), Do::Meanwhile, Do::Amount(1, 1)];
    let mut script = Script { meanwhile: Some(&mut overwrite), ..stage.script(&[], steps) };
    stage.database.worker().unwrap().snapshot(&mut script).unwrap() != [0, 0]
}

fn snapshot_of_a_row_that_is_deleted() -> bool {
    let stage = Stage::new();
    // Later batches collect what the first of them leaves.
    let mut delete = || {
        stage.run(&[Says::Lines(1)], vec![Do::Remove(1, 1)]);
        (0..4).for_each(|_| _ = stage.run(&[Says::Writes(1)], vec![Do::Add(1, 1)]));
    };
    let steps = vec![Do::Meanwhile, Do::Amount(1, 1), Do::Lines(1)];
    let mut script = Script { meanwhile: Some(&mut delete), ..stage.script(&[], steps) };
    stage.database.worker().unwrap().snapshot(&mut script).unwrap() != [0, 1]
}

/// A transaction makes an entry of an index that has just come, and the next one, which has begun before that, moves the row.
fn entry_of_an_index_that_comes() -> bool {
    let stage = Stage::new();
    let (database, accounts, left_out) = (&stage.database, stage.accounts, mutations::inherited());
    let ((planned, is_planned), (begun, has_begun)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        // The one that is careful knows the index.
        let present = Arc::clone(database);
        scope.spawn(move || {
            let mut worker = present.worker().unwrap();
            let knows = Arc::clone(&present);
            mutations::interrupt(Point::Begins, move || {
                planned.send(()).unwrap();
                while knows.definition(accounts.id()).unwrap().indexes.len() == 2 {
                    thread::yield_now();
                }
            });
            let mut earlier = worker.begin(Mode::ReadWrite).unwrap();
            earlier.insert(&accounts, &Account { balance: 7, ..account(3) }).unwrap();
            earlier.commit().unwrap();
        });
        is_planned.recv().unwrap();
        scope.spawn(move || {
            let _careless = left_out.leave_out();
            let mut worker = database.worker().unwrap();
            mutations::interrupt(Point::Begins, move || begun.send(()).unwrap());
            let mut later = worker.begin(Mode::ReadWrite).unwrap();
            later.update(&accounts, 3, |row| row.set_balance(8)).unwrap();
            later.commit().unwrap();
        });
        has_begun.recv().unwrap();
        database.create_index(accounts.id(), IndexDefinition::new("by_balance", [3])).unwrap();
    });
    let by_balance: Index<Account, i64> = Index::new("by_balance", 2, false, false);
    let mut worker = database.worker().unwrap();
    let mut present = worker.begin(Mode::Snapshot).unwrap();
    let count = present.scan_by(&accounts, by_balance, 7_i64).count();
    count.unwrap() != 0
}

fn write_that_was_undone() -> bool {
    let stage = Stage::new();
    stage.run(&[Says::Writes(1)], vec![Do::Add(1, 1), Do::Undone(1, 7)]);
    stage.read(1) != 1
}

/// A transaction passes on a row that an earlier one writes, which it executes for that.
fn changes_that_another_transaction_seals() -> bool {
    let recorder = Arc::new(Recorder::patient());
    let stage = Stage::logged(Journal::new(Arc::clone(&recorder) as _));
    let later: &[Says] = &[Says::Writes(1), Says::Writes(2)];
    let answers = stage.later_first((&[Says::Writes(1)], Do::Add(1, 7)), (later, Do::Add(2, 5)));
    assert!(answers.iter().all(Result::is_ok));
    recorder.changes_sealed() != [3, 1, 1] || row_put_over_one_that_is_not_there_yet()
}

/// It is put without a look at the row below, as that was before an earlier transaction, which has not named it, changes it.
fn row_put_over_one_that_is_not_there_yet() -> bool {
    let recorder = Arc::new(Recorder::patient());
    let stage = Stage::logged(Journal::new(Arc::clone(&recorder) as _));
    let says: &[Says] = &[Says::Lines(1)];
    let put = Do::Put(Line { branch: 1, number: 1, amount: 0 });
    let answers = stage.later_first((says, Do::SetAmount(1, 1, 7)), (says, put));
    assert!(answers.iter().all(Result::is_ok));
    let there = stage.run(&[], vec![Do::Amount(1, 1)])[0];
    let row =
        recorder.row(stage.lines.id(), (1_u32, 1_u32).encode_bytes(&mut KeyScratch::new())).expect("it is logged");
    there != 0 || Line::view(RowRef::from_words(&row)).amount() != 0
}

fn card_of_two_accounts() -> bool {
    let stage = Stage::new();
    let twin = Account { card: 1, ..account(3) };
    stage.run(&[Says::Writes(3)], vec![Do::Insert(twin)]) == [1]
}

crate::killers! { Step:
    AwaitPlaceholder: read_of_a_placeholder, "an earlier write, not executed yet, is missed";
    ReadBefore: read_of_a_later_write, "a later write is seen";
    AwaitIntents: index_under_an_earlier_write, "phantom in a secondary index";
    AwaitPrefixes: range_under_an_earlier_insertion, "phantom in a range with unnamed keys";
    AwaitEverything: row_under_an_earlier_write_of_anything, "an earlier unnamed write is missed";
    ListBehindWaits: entry_of_an_index_that_comes, "a new index keeps the entry of a row that has moved";
    DistrustAnnotations: declared_read_behind_a_write_of_anything, "the same, where the version was found at planning";
    PassOn: row_that_a_failure_named, "a row that was named and not written disappears";
    DiscardFailed: write_of_a_failure, "a rollback undoes nothing";
    RefuseUnplanned: lost_update_of_an_undeclared_row, "lost update of an undeclared row";
    AwaitReaders: snapshot_of_a_row_that_is_overwritten, "a snapshot loses a row that is overwritten";
    LookBeside: snapshot_of_a_row_that_is_deleted, "a snapshot loses a displaced row";
    UndoWrites: write_that_was_undone, "a rollback to a savepoint undoes nothing";
    RefuseDuplicates: card_of_two_accounts, "a unique value occurs twice";
    ResolveBeforeStaging: changes_that_another_transaction_seals, "another transaction seals what this one has staged";
}
