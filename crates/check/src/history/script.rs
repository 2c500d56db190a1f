//! Random transactions that are made to collide: few keys, and everything that can be done with them.

use std::sync::{Arc, PoisonError};

use polychron_base::random::Random;
use polychron_engine::{Declare, Mode, Procedure, Savepoint, Stop, Table, Transaction};
use polychron_sync::Mutex;

use super::recorded::{Change, Columns, Extent};
use super::{Log, Outcome, Recorded, Tracked};

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
    /// Roll-backs and panics in a hundred transactions, as many each.
    pub failures: u64,
    /// Conditions over futures, and writes of them, in a hundred operations; one in eight is of a row that may be absent. With any, nothing is written blindly, so that it is known what was there
    /// when.
    pub conditions: u64,
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
        Self { keys: 8, steady: 2, steps: 8, tables: Tables::Both, snapshots: 10, failures: 4, conditions: 0 }
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
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Returns to one that was set, if it was.
    RollBackTo(usize),
}

/// How a transaction wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By its commit.
    Commit,
    /// By its own roll-back.
    RollBack,
    /// By a panic.
    Panic,
}

/// One transaction, drawn before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Read-write or snapshot.
    pub mode: Mode,
    /// What it does.
    pub steps: Vec<Step>,
    /// How it ends.
    pub ending: Ending,
}

/// Keys of a range at most.
const WIDEST: u64 = 20;

impl Script {
    /// Inserts the rows that are always there.
    pub fn load(mix: &Mix) -> Self {
        let columns = Columns { team: 0, code: None, length: 8 };
        let rows = (mix.keys..mix.keys + mix.steady).flat_map(|id| [false, true].map(|hash| (hash, id)));
        let steps = rows.map(|(hash, id)| Step::Insert { hash, id, columns }).collect();
        Self { mode: Mode::ReadWrite, steps, ending: Ending::Commit }
    }

    /// Draws a transaction.
    pub fn draw(random: &mut Random, mix: &Mix) -> Self {
        let count = random.range_inclusive(1, mix.steps);
        if random.below(100) < mix.snapshots {
            // A snapshot reads more, and takes longer.
            let steps = (0..count * 2).map(|_| draw_read(random, mix)).collect();
            return Self { mode: Mode::Snapshot, steps, ending: Ending::Commit };
        }
        let ending = match random.below(100) {
            draw if draw < mix.failures => Ending::RollBack,
            draw if draw < 2 * mix.failures => Ending::Panic,
            _ => Ending::Commit,
        };
        let steps = (0..count).map(|_| draw_step(random, mix)).collect();
        Self { mode: Mode::ReadWrite, steps, ending }
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
        savepoints: &mut Vec<Savepoint>,
    ) -> Result<(), Stop> {
        let table = |hash: &bool| if *hash { &tables.hash } else { &tables.ordered };
        match &self.steps[number] {
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
            Step::Insert { hash, id, columns } => recorded.insert(table(hash), *id, *columns).map(drop),
            Step::Upsert { hash, id, columns, blind } => recorded.upsert(table(hash), *id, *columns, *blind).map(drop),
            Step::Update { hash, id, change } => recorded.update(table(hash), *id, *change).map(drop),
            Step::Delete { hash, id } => recorded.delete(table(hash), *id).map(drop),
            Step::Savepoint => {
                savepoints.push(recorded.savepoint());
                Ok(())
            }
            Step::RollBackTo(number) => match savepoints.get(*number) {
                Some(&savepoint) => {
                    recorded.roll_back_to(savepoint, *number)?;
                    savepoints.truncate(number + 1);
                    Ok(())
                }
                None => Ok(()),
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

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self.partitions() {
            Some(keys) => keys.into_iter().for_each(|key| declaration.partition(key)),
            None => declaration.unknown(),
        }
    }
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
    match random.below(8) {
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
    let columns = Columns { team, code, length };
    if mix.conditions > 0 && random.below(100) < mix.conditions {
        let (steady, team) = (mix.keys + random.below(mix.steady), random.range_inclusive(1, mix.teams()) as u16);
        return match random.below(16) {
            0..=2 => Step::Update { hash, id: steady, change: Change::Team(team - 1) },
            3..=5 => Step::Later { hash, id: steady, team: team - 1 },
            6 => Step::Later { hash, id, team: team - 1 },
            7 => Step::Ask { hash, id, team },
            _ => Step::Ask { hash, id: steady, team },
        };
    }
    match random.below(22) {
        0..=7 => draw_read(random, mix),
        8 | 9 => Step::Insert { hash, id, columns },
        10 => Step::Upsert { hash, id, columns, blind: false },
        11 => {
            let id = mix.keys + random.below(mix.steady);
            let blind = mix.conditions == 0;
            Step::Upsert { hash, id, columns: Columns { code: None, ..columns }, blind }
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

/// A script as a procedure that records itself.
pub(super) struct Scripted<'r> {
    pub(super) script: &'r Script,
    pub(super) tables: &'r Pair,
    pub(super) log: &'r mut Log,
}

impl Procedure for Scripted<'_> {
    type Output = ();

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Stop> {
        self.log.begin();
        let mut savepoints = Vec::new();
        for number in 0..self.script.steps.len() {
            let mut recorded = Recorded::new(transaction, self.log);
            let answer = self.script.step(number, &mut recorded, self.tables, &mut savepoints);
            if answer.as_ref().is_err_and(Stop::is_conflict) {
                self.log.close(Outcome::Aborted);
            }
            answer?;
        }
        match self.script.ending {
            Ending::Commit => {
                self.log.finish();
                Ok(())
            }
            Ending::RollBack => Err(Stop::roll_back()),
            // As a panic, without the hook that would print it.
            Ending::Panic => std::panic::resume_unwind(Box::new("the script panics here")),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.script.declare(declaration);
    }
}

/// The same with all that it needs, for whoever executes it. The type has a number, so that there are several types.
pub(super) struct Submitted<const TYPE: usize> {
    pub(super) script: Script,
    pub(super) tables: Pair,
    pub(super) log: Arc<Mutex<Log>>,
}

impl<const TYPE: usize> Procedure for Submitted<TYPE> {
    type Output = ();

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Stop> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        Scripted { script: &self.script, tables: &self.tables, log: &mut log }.run(transaction)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.script.declare(declaration);
    }
}
