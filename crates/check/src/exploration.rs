//! Whole transactions of two and three threads, compared with every serial order.
//!
//! From a seed come a few rows, and for each thread a few small transactions (reads, updates, insertions, deletions, scans,
//! secondary indexes, savepoints) that collide; beside them snapshots are taken and time passes. Whatever the schedule
//! did, some serial order of what committed must give every answer, every snapshot and the end, on a model that is right
//! by construction.
//!
//! Under `--cfg shuttle` the schedules are drawn, random and prioritized ones ([`explore`]); otherwise the machine makes
//! them ([`run_freely`]).

use std::sync::Arc;

use polychron_base::random::Random;
use polychron_engine::{Access, Declare, Error, Procedure, Protocol, Row, Stop, Table, Transaction, Worker};
use polychron_schema::{Key, KeyScratch};
use polychron_sync::thread;

use crate::Setup;
use crate::conformance::differential::apply;
use crate::model::{Answer, Model, Operation, Trace, explained, story};
use crate::rows::{Person, person};

/// How many keys there are; few, so that everything meets.
const KEYS: u64 = 4;

/// What the threads of one history do.
#[derive(Clone, Debug)]
struct Plan {
    rows: Vec<Person>,
    /// For each thread its transactions.
    threads: Vec<Vec<Vec<Operation>>>,
    snapshots: usize,
    ticks: usize,
}

impl Plan {
    /// Every fourth plan has futures.
    fn draw(seed: u64) -> Self {
        let mut random = Random::stream(21, seed);
        let futures = seed % 4 == 3;
        let rows = (0..KEYS).filter(|_| futures || random.below(2) == 0).map(|id| person(id, 1, id as u32)).collect();
        let threads = (0..random.range_inclusive(2, 3))
            .map(|_| (0..random.range_inclusive(1, 2)).map(|_| Self::transaction(&mut random, futures)).collect())
            .collect();
        Self { rows, threads, snapshots: random.below(3) as usize, ticks: random.below(3) as usize }
    }

    fn transaction(random: &mut Random, futures: bool) -> Vec<Operation> {
        let draw = if futures { Operation::draw_of_futures } else { Operation::draw };
        (0..random.range_inclusive(1, 4)).map(|_| draw(random, KEYS)).collect()
    }
}

/// One transaction of a plan, with what it was answered in the attempt that committed.
struct Script<'p> {
    table: Table<Person>,
    operations: &'p [Operation],
    trace: Trace,
}

impl Procedure for Script<'_> {
    type Output = ();

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Stop> {
        self.trace.clear();
        let mut savepoints = Vec::new();
        for operation in self.operations {
            let answer = apply(transaction, &self.table, operation, &mut savepoints)?;
            self.trace.push((operation.clone(), answer));
        }
        Ok(())
    }

    /// The rows are divided by their ids; what touches no index and no range names its partitions. Of all that write, some name their
    /// keys and some do not.
    fn declare<D: Declare>(&self, declaration: &mut D) {
        let own = |operation: &Operation| match operation {
            Operation::Get(id) | Operation::SetNumber(id, _) | Operation::SetText(id, _) => Some(*id),
            Operation::Ask { id, .. } | Operation::AddLater(id, _) | Operation::Resolve(id) => Some(*id),
            _ => None,
        };
        if let Some(ids) = self.operations.iter().map(own).collect::<Option<Vec<u64>>>() {
            ids.into_iter().for_each(|id| declaration.partition(id));
        }
        if self.operations.len() % 2 == 1 {
            return declaration.unknown();
        }
        for operation in self.operations {
            let (id, access) = match operation {
                Operation::Get(id) => (*id, Access::Read),
                Operation::Insert(row) => (row.id, Access::Insert),
                Operation::Upsert(row) => (row.id, Access::Write),
                Operation::SetNumber(id, _)
                | Operation::SetText(id, _)
                | Operation::SetTeam(id, _)
                | Operation::SetCode(id, _)
                | Operation::NumberLater(_, id)
                | Operation::TeamLater(_, id)
                | Operation::AddLater(id, _)
                | Operation::Delete(id) => (*id, Access::Write),
                _ => continue,
            };
            let mut scratch = KeyScratch::new();
            declaration.key(self.table.id(), id.encode(&mut scratch), access);
        }
    }
}

/// Executes a transaction. `None`: it conflicted too often, and had no effect.
fn execute<W: Worker>(worker: &mut W, table: Table<Person>, operations: &[Operation]) -> Option<Trace> {
    let mut script = Script { table, operations, trace: Vec::new() };
    match worker.execute(&mut script) {
        Ok(()) => Some(script.trace),
        Err(Error::Conflicts { .. }) => None,
        Err(error) => panic!("a transaction failed: {error}"),
    }
}

const EVERYTHING: Operation = Operation::Scan { from: 0, to: u64::MAX, backward: false, limit: usize::MAX };

/// All rows as a snapshot sees them, by the primary key and by team.
fn snapshot<W: Worker>(worker: &mut W, table: Table<Person>) -> Vec<Person> {
    let mut operations = vec![EVERYTHING];
    operations.extend((0..3).map(|team| Operation::ByTeam { team, backward: false, limit: usize::MAX }));
    let mut script = Script { table, operations: &operations, trace: Vec::new() };
    worker.snapshot(&mut script).expect("a snapshot neither conflicts nor fails");
    let mut answers = script.trace.into_iter().map(|(_, answer)| rows_of(answer));
    let rows = answers.next().expect("the scan was answered");
    let mut by_team: Vec<Person> = answers.flatten().collect();
    by_team.sort_by_key(|row| row.id);
    assert_eq!(rows, by_team, "one snapshot, two states");
    rows
}

fn rows_of(answer: Answer) -> Vec<Person> {
    let Answer::Rows(rows) = answer else { panic!("a scan answers rows") };
    rows
}

/// Opens a small database with the plan's rows.
fn open<P: Protocol>(setup: &Setup<P>, plan: &Plan) -> (Arc<P>, P::Worker, Table<Person>) {
    let mut setup = setup.clone();
    setup.common.memory = polychron_memory::Options { max_workers: 8, ..polychron_memory::Options::tiny() };
    let database = setup.open();
    let definition = Person::definition().with_partition_column(0);
    let table = Table::from_id(database.create_table(definition).expect("the definition is sound"));
    let mut worker = database.worker().expect("a slot is free");
    let rows: Vec<_> = plan.rows.iter().cloned().map(Operation::Insert).collect();
    execute(&mut worker, table, &rows).expect("nobody is there to conflict with");
    setup.pass(&database, 2);
    (database, worker, table)
}

/// Runs a plan's threads, and answers the story if no serial order explains what they saw.
fn run<P: Protocol>(setup: &Setup<P>, plan: &Arc<Plan>) -> Result<(), String> {
    let (database, mut worker, table) = open(setup, plan);
    let mut running = Vec::new();
    for number in 0..plan.threads.len() {
        let (plan, mut worker) = (Arc::clone(plan), database.worker().expect("a slot is free"));
        running.push(thread::spawn(move || {
            let transactions = plan.threads[number].iter();
            transactions.filter_map(|operations| execute(&mut worker, table, operations)).collect::<Vec<Trace>>()
        }));
    }
    let clock = {
        let (database, setup, ticks) = (Arc::clone(&database), setup.clone(), plan.ticks);
        thread::spawn(move || setup.pass(&database, ticks))
    };
    let snapshots: Vec<_> = (0..plan.snapshots).map(|_| snapshot(&mut worker, table)).collect();
    let threads: Vec<Vec<Trace>> =
        running.into_iter().map(|thread| thread.join().expect("a thread ends well")).collect();
    clock.join().expect("time passes");
    let end = execute(&mut worker, table, &[EVERYTHING]).expect("nobody is there to conflict with");
    let end = rows_of(end.into_iter().next().expect("the scan was answered").1);
    let start = Model::of(plan.rows.clone());
    if explained(&start, &threads, &snapshots, &end) { Ok(()) } else { Err(story(&start, &threads, &snapshots, &end)) }
}

/// Runs the plans of these seeds as the machine schedules them.
///
/// # Errors
/// The story of the first history that no serial order explains.
pub fn run_freely<P: Protocol>(setup: &Setup<P>, seeds: std::ops::Range<u64>) -> Result<(), String> {
    for seed in seeds {
        run(setup, &Arc::new(Plan::draw(seed))).map_err(|story| format!("seed {seed}: {story}"))?;
    }
    Ok(())
}

/// Runs the plans of these seeds under so many schedules each, of which every other is random and every other prioritized.
/// Answers how many were run.
///
/// # Panics
/// When no serial order explains a history, with the plan's seed and the schedule that repeats it.
#[cfg(shuttle)]
pub fn explore<P: Protocol>(setup: &Setup<P>, seeds: std::ops::Range<u64>, schedules: usize) -> usize {
    use polychron_sync::model::{explore_prioritized, explore_random};
    let mut explored = 0;
    for seed in seeds {
        let plan = Arc::new(Plan::draw(seed));
        let model = |setup: Setup<P>| {
            let plan = Arc::clone(&plan);
            move || run(&setup, &plan).unwrap_or_else(|story| panic!("plan {seed}: {story}"))
        };
        explored += explore_random(seed, schedules.div_ceil(2), model(setup.clone()));
        // Few changes of priority: most mistakes need two or three.
        explored += explore_prioritized(seed, 3, schedules / 2, model(setup.clone()));
    }
    explored
}
