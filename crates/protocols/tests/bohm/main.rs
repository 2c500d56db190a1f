//! BOHM's promises: the same order gives the same database; what fails leaves nothing; memory comes back. Behaviour that all protocols share is
//! tested in the crate `check`.

mod determinism;
mod failures;
mod fronts;
mod liveness;
mod memory;
mod sets;
mod snapshots;
mod ways;

use std::sync::Arc;

use polychron_base::IndexId;
use polychron_base::error::Error;
use polychron_base::random::Random;
use polychron_engine::{
    Access, Common, Declare, Insertion, Operations, Procedure, Protocol, Scan, Table, Transaction, Worker,
};
use polychron_schema::{Key, KeyScratch, Row};

use polychron_protocols::bohm::{Bohm, BohmWorker, Options};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "account")]
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

/// Its keys are longer than what is carried in registers, and its rows grow.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "line")]
struct Line {
    #[key]
    branch: u32,
    #[key]
    name: String,
    text: String,
}

fn account(id: u64) -> Account {
    Account { id, owner: id as u32 % 3, card: id, balance: 0 }
}

fn line(branch: u32, number: u64) -> Line {
    Line { branch, name: format!("the line with the number {number:06}"), text: String::new() }
}

#[derive(Clone, Copy, Debug)]
struct Tables {
    accounts: Table<Account>,
    lines: Table<Line>,
}

impl Tables {
    fn create(database: &impl Protocol) -> Self {
        let accounts = Table::from_id(database.create_table(Account::definition()).unwrap());
        let lines = Table::from_id(database.create_table(Line::definition()).unwrap());
        Self { accounts, lines }
    }
}

/// What a procedure does.
#[derive(Clone, Debug)]
enum Do {
    Read(u64),
    Add(u64, i64),
    SetOwner(u64, u32),
    Insert(Account),
    Put(Account),
    Delete(u64),
    Sum,
    SumOfOwner(u32),
    /// Inserts the next line of a branch, whose number only the run knows.
    Append(u32),
    /// Deletes the first line of a branch.
    Cut(u32),
    /// Gives the last line of a branch a text of this length.
    Text(u32, usize),
    /// Adds one to the account whose number is the balance of this one.
    Follow(u64),
    /// Does it and undoes it.
    Undone(Box<Do>),
    Fail,
    Panic,
}

/// What a script says beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declares {
    /// Whatever it writes.
    All,
    /// What its first step writes, and that there is more.
    Some,
    /// What its first step writes.
    TooLittle,
}

/// A procedure that does one thing after the other, and answers with what it saw.
#[derive(Clone, Debug)]
struct Script {
    tables: Tables,
    declares: Declares,
    steps: Vec<Do>,
}

impl Do {
    fn name<D: Declare>(&self, tables: Tables, declaration: &mut D) {
        let Tables { accounts, lines } = tables;
        let mut scratch = KeyScratch::new();
        let mut key = |id: &u64, access| declaration.key(accounts.id(), id.encode(&mut scratch), access);
        match self {
            Self::Read(id) => key(id, Access::Read),
            Self::Add(id, _) => key(id, Access::Update),
            Self::Insert(account) => key(&account.id, Access::Insert),
            Self::Put(account) => key(&account.id, Access::Write),
            Self::SetOwner(id, _) | Self::Delete(id) => key(id, Access::Write),
            Self::Append(branch) | Self::Cut(branch) => {
                declaration.prefix(lines.id(), branch.encode_prefix(&mut scratch), Access::Write);
            }
            Self::Text(branch, _) => {
                declaration.prefix(lines.id(), branch.encode_prefix(&mut scratch), Access::Update);
            }
            Self::Follow(id) => {
                key(id, Access::Read);
                declaration.unknown();
            }
            Self::Undone(step) => step.name(tables, declaration),
            Self::Sum | Self::SumOfOwner(_) | Self::Fail | Self::Panic => {}
        }
    }

    fn run<T: Transaction>(&self, tables: Tables, t: &mut T) -> Result<i64, Error> {
        let Tables { accounts, lines } = tables;
        let add = |t: &mut T, id: u64, by: i64| {
            let mut balance = -1;
            t.update(&accounts, id, |row| {
                balance = row.balance() + by;
                row.set_balance(balance);
            })?;
            Ok::<i64, Error>(balance)
        };
        let number = |name: &str| name[name.len() - 6..].parse::<u64>().unwrap();
        Ok(match self {
            Self::Read(id) => t.get(&accounts, *id)?.map_or(-1, |row| row.balance()),
            Self::Add(id, by) => add(t, *id, *by)?,
            Self::SetOwner(id, owner) => t.update(&accounts, *id, |row| row.set_owner(*owner))?.into(),
            Self::Insert(account) => (t.try_insert(&accounts, account)? == Insertion::Inserted).into(),
            Self::Put(account) => t.upsert(&accounts, account).map(|()| 1)?,
            Self::Delete(id) => t.delete(&accounts, *id)?.into(),
            Self::Sum => t.scan(&accounts, ..).fold(0, |sum, row| sum * 3 + row.balance() % 100)? % 1_000_000,
            Self::SumOfOwner(owner) => {
                t.scan_by(&accounts, Account::BY_OWNER, *owner).fold(0, |sum, row| sum + row.balance())?
            }
            Self::Append(branch) => {
                let last = t.scan_prefix(&lines, *branch).rev().first(|row| number(row.name()))?;
                let next = last.map_or(1, |last| last + 1);
                t.insert(&lines, &line(*branch, next))?;
                next as i64
            }
            Self::Cut(branch) => match t.scan_prefix(&lines, *branch).first(|row| row.name().to_owned())? {
                Some(name) => t.delete(&lines, (*branch, &*name))?.into(),
                None => -1,
            },
            Self::Text(branch, len) => {
                match t.scan_prefix(&lines, *branch).rev().first(|row| row.name().to_owned())? {
                    Some(name) => {
                        t.update(&lines, (*branch, &*name), |row| row.set_text(&"x".repeat(*len)).unwrap())?.into()
                    }
                    None => -1,
                }
            }
            Self::Follow(id) => match t.get(&accounts, *id)?.map(|row| row.balance()) {
                Some(other) => add(t, other as u64, 1)?,
                None => -1,
            },
            Self::Undone(step) => {
                let savepoint = t.savepoint();
                let answer = step.run(tables, t)?;
                t.roll_back_to(savepoint)?;
                answer
            }
            Self::Fail => return Err(Error::definition("on purpose")),
            Self::Panic => panic!("on purpose"),
        })
    }
}

impl Procedure for Script {
    type Output = Vec<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<i64>, Error> {
        self.steps.iter().map(|step| step.run(self.tables, t)).collect()
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let named = if self.declares == Declares::All { self.steps.len() } else { 1 };
        self.steps.iter().take(named).for_each(|step| step.name(self.tables, declaration));
        if self.declares == Declares::Some {
            declaration.unknown();
        }
    }
}

/// Answers with the bytes of all rows, by each index.
struct Contents(Tables);

impl Procedure for Contents {
    type Output = Vec<Vec<u8>>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<Vec<u8>>, Error> {
        let (accounts, lines) = (self.0.accounts.id(), self.0.lines.id());
        let mut rows = Vec::new();
        for (table, index) in [(accounts, 0), (accounts, 1), (accounts, 2), (lines, 0)] {
            let scan = Scan { index: IndexId(index), ..Scan::all(table) };
            t.scan_rows(&scan, &mut |row| {
                rows.push(row.as_bytes().to_vec());
                std::ops::ControlFlow::Continue(())
            })?;
        }
        Ok(rows)
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

fn common() -> Common {
    let memory = polychron_memory::Options { limit_bytes: Some(64 << 20), ..polychron_memory::Options::tiny() };
    Common { memory, ..Common::default() }
}

/// What procedures answered, in their order.
type Answers = Vec<Result<Vec<i64>, String>>;

fn execute<W: Worker>(worker: &mut W, scripts: &[Script]) -> Answers {
    let mut answers: Vec<_> = scripts.iter().map(|_| None).collect();
    worker.execute_batch(&mut scripts.to_vec(), &mut |position, answer| {
        let answer = answer.map_err(|error| error.to_string());
        assert!(answers[position].replace(answer).is_none(), "a procedure is answered twice");
    });
    answers.into_iter().map(|answer| answer.expect("each procedure is answered")).collect()
}

/// A database with both tables, and a worker.
struct Stage {
    database: Arc<Bohm>,
    tables: Tables,
    worker: BohmWorker,
}

impl Stage {
    fn new(options: Options) -> Self {
        Self::over(options, common())
    }

    fn over(options: Options, common: Common) -> Self {
        let database = Bohm::open(options, common).unwrap();
        let tables = Tables::create(&*database);
        let worker = database.worker().unwrap();
        Self { database, tables, worker }
    }

    /// With accounts 0, 1, 2, ….
    fn with_accounts(options: Options, count: u64) -> Self {
        let mut stage = Self::new(options);
        let steps = (0..count).map(|id| Do::Insert(account(id))).collect();
        stage.run(steps).unwrap();
        stage
    }

    fn script(&self, steps: Vec<Do>) -> Script {
        Script { tables: self.tables, declares: Declares::All, steps }
    }

    fn run(&mut self, steps: Vec<Do>) -> Result<Vec<i64>, Error> {
        let mut script = self.script(steps);
        self.worker.execute(&mut script)
    }

    fn run_batch(&mut self, scripts: &[Script]) -> Answers {
        execute(&mut self.worker, scripts)
    }

    fn contents(&mut self) -> Vec<Vec<u8>> {
        self.worker.execute(&mut Contents(self.tables)).unwrap()
    }

    /// Gives everything back that can be, and tells how much is in use.
    fn quiesce(&mut self) -> usize {
        for _ in 0..8 {
            self.database.tick();
            self.worker.maintain();
        }
        self.database.memory().statistics().used_bytes
    }
}
