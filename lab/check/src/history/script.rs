//! Random transactions that are made to collide: few keys, and everything that can be done with them.

use polychron_base::random::Random;
use polychron_engine::futures::FutureError;
use polychron_engine::{
    Access, Aggregate, Declare, Error, Insertion, Mode, Operations, Procedure, Restriction, Table, Transaction,
};
use polychron_schema::{Key, KeyScratch};
use polychron_sync::Mutex;
use std::sync::{Arc, PoisonError};

use super::questions::{FIRST_MARKED, Question, Shape};
use super::recorded::{Change, Columns, Extent, Flaw, OWNER};
use super::rows::{MARKS, Owner, values_of};
use super::{Leeway, Log, Recorded, Tracked};
use crate::Savepoints;
use crate::samples::{disguised, draw_comparison};

/// What scripts are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Keys that are inserted and deleted.
    pub keys: u64,
    /// Keys behind those, always there, that are written blindly.
    pub steady: u64,
    /// Operations of a transaction at most.
    pub steps: u64,
    /// Whether only the tables of hash indexes, only those of ordered ones, or both are used.
    pub tables: Tables,
    /// Snapshots in a hundred transactions.
    pub snapshots: u64,
    /// Rollbacks and panics in a hundred transactions, as many each.
    pub failures: u64,
    /// Conditions over futures, and writes of them, in a hundred operations; one in eight is of a row that may be absent. With any, nothing
    /// is written blindly, so that it is known what was there when.
    pub conditions: u64,
    /// Writes in a hundred operations, beside the others, that are refused more often than not. With any, clients do not always look for
    /// what stood in the way, and catch that the row of a future is absent.
    pub refusals: u64,
}

/// Which tables a mix uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// All indexes ordered.
    Ordered,
    /// All indexes hashed.
    Hash,
    /// One table of each kind.
    Both,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            keys: 8,
            steady: 2,
            steps: 8,
            tables: Tables::Both,
            snapshots: 10,
            failures: 4,
            conditions: 0,
            refusals: 0,
        }
    }
}

impl Mix {
    /// Values that some rows share.
    fn teams(&self) -> u64 {
        (self.keys / 4).max(3)
    }

    /// A mix of a random kind: from very few keys and short transactions to more of both.
    pub fn draw(random: &mut Random) -> Self {
        let choose = |random: &mut Random, choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
        Self {
            keys: choose(random, &[2, 4, 8, 16, 40]),
            steady: choose(random, &[1, 2, 3]),
            steps: choose(random, &[2, 4, 8, 16]),
            tables: [Tables::Ordered, Tables::Hash, Tables::Both][random.below(3) as usize],
            snapshots: choose(random, &[0, 10, 30]),
            failures: choose(random, &[0, 2, 10]),
            conditions: choose(random, &[0, 0, 30]),
            refusals: choose(random, &[0, 0, 0, 40]),
        }
    }
}

/// The two tables of a history.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// All indexes ordered.
    pub ordered: Table<Tracked>,
    /// All indexes hashed.
    pub hash: Table<Tracked>,
    /// What rows of both refer to.
    pub owners: Table<Owner>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Reads a row, all columns or only one.
    Read { hash: bool, id: u64, whole: bool },
    /// Asks whether the team of a row is at least so much.
    Ask { hash: bool, id: u64, team: u16 },
    /// Writes the team as a value that may be left open.
    Later { hash: bool, id: u64, team: u16 },
    /// Reads a range of keys; of a hash table, the keys one by one.
    Scan { hash: bool, from: u64, to: u64, extent: Extent },
    /// Reads by the shared index.
    Teams { hash: bool, from: u16, to: u16, extent: Extent },
    /// Reads by the unique index.
    Codes { hash: bool, from: Option<u32>, to: Option<u32>, extent: Extent },
    /// Asks for rows of the ordered table, or for an answer over them, with restrictions.
    Question(Question),
    /// Updates a row so that it stays as it is.
    Look { hash: bool, id: u64, whole: bool },
    /// Asks for what has no answer.
    InVain(u8),
    /// Does this behind a savepoint, and undoes it.
    Tried(Box<Step>),
    /// The same; where it fails because the row of a future is absent, it goes on.
    Caught(Box<Step>),
    /// Inserts what others refer to.
    InsertOwner,
    /// Inserts.
    Insert { hash: bool, id: u64, columns: Columns },
    /// Writes whether or not there is a row.
    Upsert { hash: bool, id: u64, columns: Columns, blind: bool },
    /// Updates.
    Update { hash: bool, id: u64, change: Change },
    /// Deletes.
    Delete { hash: bool, id: u64 },
    /// Sets a savepoint.
    Savepoint,
    /// Returns to the one of this number; where there is none, to one that is void, in vain.
    RollBackTo(usize),
}

/// How a transaction wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By its commit.
    Commit,
    /// By its own rollback.
    RollBack,
    /// By a panic.
    Panic,
}

/// One transaction, drawn before it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Read-write or snapshot.
    pub mode: Mode,
    /// What it does.
    pub steps: Vec<Step>,
    /// How it ends.
    pub ending: Ending,
    /// What it says beforehand of the rows that it writes.
    pub declares: Declares,
    /// Whether its one read is executed as such, outside of any transaction.
    pub reads_one: bool,
    /// Whether it looks for the row that stood in the way of a refused write.
    pub looks_again: bool,
}

/// What a transaction declares of the rows that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declares {
    /// That there are some.
    Nothing,
    /// Their keys.
    Keys,
    /// So many first bytes of each key.
    Prefixes(usize),
    /// Every other key, and that there are more.
    Some,
}

/// Keys of a range at most.
const WIDEST: u64 = 20;

impl Script {
    /// Inserts the rows that are always there.
    pub fn load(mix: &Mix) -> Self {
        let columns = Columns { team: 0, code: None, length: 8, mark: 0, flaw: Flaw::None };
        let rows = (mix.keys..mix.keys + mix.steady).flat_map(|id| [false, true].map(|hash| (hash, id)));
        let rows = rows.map(|(hash, id)| Step::Insert { hash, id, columns });
        Self::of(Mode::ReadWrite, std::iter::once(Step::InsertOwner).chain(rows).collect())
    }

    fn of(mode: Mode, steps: Vec<Step>) -> Self {
        Self { mode, steps, ending: Ending::Commit, declares: Declares::Nothing, reads_one: false, looks_again: true }
    }

    /// Draws a transaction.
    pub fn draw(random: &mut Random, mix: &Mix) -> Self {
        let count = random.range_inclusive(1, mix.steps);
        if random.below(100) < mix.snapshots {
            // A snapshot reads more, and takes longer.
            let steps = (0..count * 2).map(|_| draw_read(random, mix)).collect();
            return Self::of(Mode::Snapshot, steps);
        }
        if random.below(12) == 0 {
            let id = random.below(mix.keys + mix.steady);
            let steps = vec![Step::Read { hash: draw_hash(random, mix), id, whole: random.below(2) == 0 }];
            return Self { reads_one: true, ..Self::of(Mode::ReadWrite, steps) };
        }
        let ending = match random.below(100) {
            draw if draw < mix.failures => Ending::RollBack,
            draw if draw < 2 * mix.failures => Ending::Panic,
            _ => Ending::Commit,
        };
        let steps = (0..count).map(|_| draw_step(random, mix)).collect();
        let declares = match random.below(6) {
            0 | 1 => Declares::Keys,
            2 => Declares::Prefixes(7 + random.below(2) as usize),
            3 => Declares::Some,
            _ => Declares::Nothing,
        };
        // Drawn apart, so that a seed stands for the same transactions either way.
        let looks_again = mix.refusals == 0 || random.clone().below(2) == 0;
        Self { ending, declares, looks_again, ..Self::of(Mode::ReadWrite, steps) }
    }

    /// Whether the script wants this end: then it is no refusal.
    pub(super) fn wants(&self, error: &Error, leeway: Leeway) -> bool {
        match error {
            Error::Unsupported { .. } => leeway.undoes_nothing,
            Error::Cancelled => leeway.refusing_log,
            Error::RolledBack => self.ending == Ending::RollBack,
            Error::Panicked(_) => self.ending == Ending::Panic,
            // The row of a future is not there.
            error => is_absence(error),
        }
    }

    /// Runs one step.
    ///
    /// # Errors
    /// As the operation.
    pub fn step<T: Transaction>(
        &self,
        number: usize,
        recorded: &mut Recorded<'_, T>,
        tables: &Pair,
        savepoints: &mut Savepoints,
    ) -> Result<(), Error> {
        recorded.looks_again = self.looks_again;
        Self::take(&self.steps[number], recorded, tables, savepoints)
    }

    fn take<T: Transaction>(
        this: &Step,
        recorded: &mut Recorded<'_, T>,
        tables: &Pair,
        savepoints: &mut Savepoints,
    ) -> Result<(), Error> {
        let table = |hash: &bool| if *hash { &tables.hash } else { &tables.ordered };
        match this {
            Step::Read { hash, id, whole: true } => recorded.read(table(hash), *id).map(drop),
            Step::Read { hash, id, whole: false } => recorded.read_version(table(hash), *id).map(drop),
            Step::Ask { hash, id, team } => recorded.ask(table(hash), *id, *team).map(drop),
            Step::Later { hash, id, team } => recorded.write_later(table(hash), *id, *team),
            Step::Scan { hash: true, from, to, .. } => {
                (*from..=*to).try_for_each(|id| recorded.read(&tables.hash, id).map(drop))
            }
            Step::Scan { hash: false, from, to, extent } => recorded.scan(&tables.ordered, *from..=*to, *extent),
            Step::Teams { hash, from, to, extent } => recorded.scan_teams(table(hash), *from..=*to, *extent),
            Step::Codes { hash, from, to, extent } => recorded.scan_codes(table(hash), *from..=*to, *extent),
            Step::Question(question) => recorded.ask_rows(&tables.ordered, question),
            Step::Look { hash, id, whole } => recorded.look(table(hash), *id, *whole),
            Step::InVain(way) => recorded.ask_in_vain(&tables.ordered, &tables.hash, *way),
            Step::Tried(step) | Step::Caught(step) => {
                let number = savepoints.len();
                savepoints.push(recorded.savepoint());
                let is_caught = matches!(this, Step::Caught(_));
                let outcome = Self::take(step, recorded, tables, savepoints);
                if is_caught { without_absence(outcome) } else { outcome }?;
                // It may have been a return to an earlier one, which ended this one.
                let Some(savepoint) = savepoints.get(number) else { return Ok(()) };
                savepoints.undone_to(number);
                let undone = recorded.roll_back_to(savepoint, number);
                // The return has taken place where it tells of a failure; another one has nothing to tell.
                match undone {
                    Err(error) if is_caught => {
                        without_absence(Err(error))?;
                        recorded.roll_back_to(savepoint, number)
                    }
                    undone => undone,
                }
            }
            Step::InsertOwner => match recorded.transaction.try_insert(&tables.owners, &Owner { id: OWNER })? {
                Insertion::Inserted | Insertion::Duplicate(_) => Ok(()),
            },
            Step::Insert { hash, id, columns } => recorded.insert(table(hash), *id, *columns).map(drop),
            Step::Upsert { hash, id, columns, blind } => recorded.upsert(table(hash), *id, *columns, *blind).map(drop),
            Step::Update { hash, id, change } => recorded.update(table(hash), *id, *change).map(drop),
            Step::Delete { hash, id } => recorded.delete(table(hash), *id).map(drop),
            Step::Savepoint => {
                savepoints.push(recorded.savepoint());
                Ok(())
            }
            Step::RollBackTo(number) => match savepoints.get(*number) {
                Some(savepoint) => {
                    recorded.roll_back_to(savepoint, *number)?;
                    savepoints.undone_to(*number);
                    Ok(())
                }
                None => savepoints.try_void(recorded.transaction, *number),
            },
        }
    }

    /// The keys whose partitions are all that the transaction needs: it reads rows and changes unindexed columns.
    fn partitions(&self) -> Option<Vec<u64>> {
        let key = |step: &Step| match step {
            Step::Read { id, .. } | Step::Update { id, change: Change::Text(_), .. } => Some(*id),
            _ => None,
        };
        self.steps.iter().map(key).collect()
    }

    /// Partitions, where they are all that the transaction needs, and the rows that it writes, in one way or another.
    fn declare<D: Declare>(&self, tables: &Pair, declaration: &mut D) {
        if let Some(keys) = self.partitions() {
            keys.into_iter().for_each(|key| declaration.partition(key));
        }
        for (number, (hash, id, access)) in self.steps.iter().filter_map(touched).enumerate() {
            let table = if hash { tables.hash.id() } else { tables.ordered.id() };
            let mut scratch = KeyScratch::new();
            let key = id.encode_bytes(&mut scratch);
            match self.declares {
                Declares::Keys => declaration.key(table, key, access),
                Declares::Some if number % 2 == 0 => declaration.key(table, key, access),
                Declares::Prefixes(length) => declaration.prefix(table, &key[..length], access),
                Declares::Some | Declares::Nothing => {}
            }
        }
        let writes_owner = self.steps.contains(&Step::InsertOwner);
        if writes_owner || matches!(self.declares, Declares::Nothing | Declares::Some) {
            declaration.unknown();
        }
    }
}

/// The row that a step touches by its key, and how.
fn touched(step: &Step) -> Option<(bool, u64, Access)> {
    Some(match step {
        Step::Read { hash, id, .. } | Step::Ask { hash, id, .. } => (*hash, *id, Access::Read),
        // What keeps to columns without an index, or changes nothing.
        Step::Update { hash, id, change: Change::Text(_) } => (*hash, *id, Access::Update),
        Step::Look { hash, id, .. } => (*hash, *id, Access::Update),
        Step::Update { hash, id, .. } | Step::Later { hash, id, .. } => (*hash, *id, Access::Write),
        Step::Upsert { hash, id, .. } | Step::Delete { hash, id } => (*hash, *id, Access::Write),
        Step::Insert { hash, id, .. } => (*hash, *id, Access::Insert),
        Step::Tried(step) | Step::Caught(step) => return touched(step),
        _ => return None,
    })
}

/// That the row of a future is not there is an answer.
fn without_absence(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if is_absence(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Ok(()),
    }
}

fn is_absence(error: &Error) -> bool {
    matches!(error, Error::NoValue(failed) if matches!(failed.why, FutureError::NoRow(_)))
}

fn draw_hash(random: &mut Random, mix: &Mix) -> bool {
    match mix.tables {
        Tables::Ordered => false,
        Tables::Hash => true,
        Tables::Both => random.below(2) == 0,
    }
}

fn draw_code(random: &mut Random, mix: &Mix) -> Option<u32> {
    (random.below(3) > 0).then(|| random.below(mix.keys + 2) as u32)
}

fn draw_read(random: &mut Random, mix: &Mix) -> Step {
    let hash = draw_hash(random, mix);
    let all = mix.keys + mix.steady;
    let id = random.below(all);
    let backward = random.below(2) == 0;
    let limit = if random.below(2) == 0 { usize::MAX } else { random.range_inclusive(1, 3) as usize };
    let extent = if hash { Extent::ALL } else { Extent { backward, limit } };
    let (team, code) = (random.below(mix.teams()) as u16, draw_code(random, mix));
    match random.below(12) {
        8.. if mix.tables != Tables::Hash => draw_question(random, mix, Extent { backward, limit }),
        0..=2 => Step::Read { hash, id, whole: random.below(2) == 0 },
        3 | 4 => Step::Scan { hash, from: id, to: id + random.below(all.min(WIDEST)), extent },
        5 => Step::Teams { hash, from: team, to: team, extent },
        6 if !hash => Step::Teams { hash, from: team, to: team + 1, extent },
        7 if !hash => {
            let to = code.unwrap_or(0) + random.below(mix.keys.min(WIDEST)) as u32;
            Step::Codes { hash, from: code, to: Some(to), extent }
        }
        // NULL equals nothing, so a unique hash index is not asked for it.
        _ => Step::Codes { hash, from: code.or(Some(0)), to: code.or(Some(0)), extent },
    }
}

fn draw_step(random: &mut Random, mix: &Mix) -> Step {
    let hash = draw_hash(random, mix);
    let id = random.below(mix.keys);
    // Lengths that fit, that just do not fit, and that make every record move.
    let length = [0, 8, 9, 40, 300][random.below(5) as usize];
    let (team, code) = (random.below(mix.teams()) as u16, draw_code(random, mix));
    let mark = random.below(MARKS.len() as u64) as u8;
    let columns = Columns { team, code, length, mark, flaw: draw_flaw(random) };
    if mix.conditions > 0 && random.below(100) < mix.conditions {
        let (steady, team) = (mix.keys + random.below(mix.steady), random.range_inclusive(1, mix.teams()) as u16);
        return match random.below(16) {
            0..=2 => Step::Update { hash, id: steady, change: Change::Team(team - 1) },
            3..=5 => Step::Later { hash, id: steady, team: team - 1 },
            way @ (6 | 7) => {
                let step =
                    if way == 6 { Step::Later { hash, id, team: team - 1 } } else { Step::Ask { hash, id, team } };
                if mix.refusals > 0 { Step::Caught(Box::new(step)) } else { step }
            }
            _ => Step::Ask { hash, id: steady, team },
        };
    }
    if mix.refusals > 0 && random.below(100) < mix.refusals {
        return draw_refusal(random, mix, (hash, id), columns);
    }
    match random.below(28) {
        22 | 23 => Step::Look { hash, id: random.below(mix.keys + mix.steady), whole: random.below(2) == 0 },
        24 | 25 => Step::Update { hash, id: random.below(mix.keys + mix.steady), change: Change::Mark(mark) },
        26 => match (columns.flaw, random.below(8)) {
            (Flaw::None, way @ 0..3) if mix.tables == Tables::Both => Step::InVain(way as u8),
            (Flaw::None, _) => Step::Tried(Box::new(draw_step(random, mix))),
            (flaw, _) => Step::Update { hash, id, change: Change::Flawed(flaw) },
        },
        27 => Step::Tried(Box::new(draw_step(random, mix))),
        0..=7 => draw_read(random, mix),
        8 | 9 => Step::Insert { hash, id, columns },
        10 => Step::Upsert { hash, id, columns, blind: false },
        11 => {
            let id = mix.keys + random.below(mix.steady);
            let blind = mix.conditions == 0;
            Step::Upsert { hash, id, columns: Columns { code: None, flaw: Flaw::None, ..columns }, blind }
        }
        12 | 13 => {
            let id = random.below(mix.keys + mix.steady);
            Step::Update { hash, id, change: Change::Text(length) }
        }
        14 | 15 => Step::Update { hash, id, change: Change::Team(team) },
        16 => Step::Update { hash, id, change: Change::Code(code) },
        17..=19 => Step::Delete { hash, id },
        20 => Step::Savepoint,
        _ => Step::RollBackTo(random.below(2) as usize),
    }
}

/// A write in whose way another row is most often, for all want one of two codes, or which is wrong.
fn draw_refusal(random: &mut Random, mix: &Mix, (hash, id): (bool, u64), columns: Columns) -> Step {
    let code = Some(random.below(2) as u32);
    match random.below(8) {
        0..=3 => Step::Update { hash, id, change: Change::Code(code) },
        4 => Step::Update { hash, id, change: Change::Flawed(Flaw::KeyTooLong) },
        5 => Step::Update { hash, id, change: Change::Flawed(Flaw::NoParent) },
        6 => Step::Upsert { hash, id, columns: Columns { code, ..columns }, blind: false },
        _ => Step::Insert { hash, id: random.below(mix.keys + mix.steady), columns: Columns { code, ..columns } },
    }
}

/// Now and then something that must be refused.
fn draw_flaw(random: &mut Random) -> Flaw {
    match random.below(16) {
        0 => Flaw::KeyTooLong,
        1 => Flaw::NoParent,
        _ => Flaw::None,
    }
}

/// A question of few keys or many, with restrictions of every comparison, whose constants are those of the rows or look like them.
fn draw_question(random: &mut Random, mix: &Mix, extent: Extent) -> Step {
    let from = random.below(mix.keys + mix.steady);
    let to = if random.below(2) == 0 { from } else { from + random.below(WIDEST) };
    let restriction = |random: &mut Random| {
        let position = random.below(6) as usize;
        let value = values_of(random.below(MARKS.len() as u64) as usize)[position].clone();
        let value = if random.below(2) == 0 { value } else { disguised(random, value) };
        Restriction { column: FIRST_MARKED + position, comparison: draw_comparison(random), value }
    };
    let restrictions = (0..random.below(3)).map(|_| restriction(random)).collect();
    let column = FIRST_MARKED + random.below(6) as usize;
    let versions = random.below(2) == 0;
    let shape = match random.below(8) {
        0 | 1 => Shape::Rows { versions, extent },
        2 | 3 => Shape::Batches { versions },
        4 => Shape::Total(Aggregate::Rows),
        5 => Shape::Total(Aggregate::Count(column)),
        6 => Shape::Total(Aggregate::Sum(FIRST_MARKED + random.below(4) as usize)),
        _ if versions => Shape::Total(Aggregate::Min(column)),
        _ => Shape::Total(Aggregate::Max(column)),
    };
    Step::Question(Question { from, to, restrictions, shape })
}

/// A script as a procedure that records itself.
pub(super) struct Scripted<'r> {
    pub(super) script: &'r Script,
    pub(super) tables: &'r Pair,
    pub(super) log: &'r mut Log,
}

impl Procedure for Scripted<'_> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        self.log.begin();
        let mut savepoints = Savepoints::default();
        for number in 0..self.script.steps.len() {
            let mut recorded = Recorded::new(transaction, self.log);
            let answer = self.script.step(number, &mut recorded, self.tables, &mut savepoints);
            self.log.reconnoitres(transaction.is_reconnaissance());
            if answer.as_ref().is_err_and(Error::is_conflict) {
                self.log.discarded();
            }
            answer?;
        }
        match self.script.ending {
            Ending::Commit => {
                self.log.finish();
                Ok(())
            }
            Ending::RollBack => Err(Error::RolledBack),
            // As a panic, without the hook that would print it.
            Ending::Panic => std::panic::resume_unwind(Box::new("the script panics here")),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.script.declare(self.tables, declaration);
    }
}

/// The same with all that it needs, for any client that executes it. The type has a number, so that there are several types.
pub(super) struct Submitted<const TYPE: usize> {
    pub(super) script: Script,
    pub(super) tables: Pair,
    pub(super) log: Arc<Mutex<Log>>,
}

impl<const TYPE: usize> Procedure for Submitted<TYPE> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        Scripted { script: &self.script, tables: &self.tables, log: &mut log }.run(transaction)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.script.declare(&self.tables, declaration);
    }
}
