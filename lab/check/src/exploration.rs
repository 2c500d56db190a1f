//! Whole transactions of two and three threads, compared with every serial order.
//!
//! From a seed come a few rows, and for each thread a few small transactions (reads, updates, insertions, deletions, scans, secondary
//! indexes, savepoints) that collide, one after the other, handed over as a batch, or step by step; some are rolled back at their end. They
//! say beforehand what they will write: all of it, nothing, or a part. Beside them snapshots are taken and time passes. Whatever the
//! schedule did, some serial order must give every answer, every snapshot and the end, on a model that is right by construction: an order of
//! what committed, and of what was undone because a future's row was not there.
//!
//! Under `--cfg shuttle` the schedules are drawn, random and prioritized ones (`explore`); otherwise the machine makes
//! them ([`run_freely`]).

use std::sync::{Arc, Mutex, PoisonError};

use polychron_base::clock::ManualClock;
use polychron_base::key::EncodedKey;
use polychron_base::random::Random;
use polychron_engine::futures::FutureError;
use polychron_engine::options::Submissions;
use polychron_engine::submission::{Service, Submission};
use polychron_engine::{Access, Declare, Error, Interactive, Procedure, Protocol, Row, Table, Transaction, Worker};
use polychron_schema::{Key, KeyScratch};
use polychron_sync::thread;

use crate::Setup;
use crate::conformance::differential::apply;
use crate::model::{Answer, Model, Operation, Trace, explained, story};
use crate::rows::{Person, person};
use crate::savepoints::Savepoints;
use crate::setup;

/// How many keys there are; few, so that everything meets.
const KEYS: u64 = 4;

/// What the threads of one history do.
#[derive(Clone, Debug)]
struct Plan {
    rows: Vec<Person>,
    /// Rows that are deleted just before the threads begin.
    deleted: Vec<u64>,
    threads: Vec<Client>,
    snapshots: usize,
    ticks: usize,
    /// Whether the threads submit their transactions, all of them at once.
    submits: bool,
    /// Whether snapshots ask for the columns, too.
    by_columns: bool,
    /// Whether sessions begin and end while the others run, each in its own thread; one that only reads a snapshot among them.
    join: bool,
}

/// What one thread does.
#[derive(Clone, Debug)]
struct Client {
    transactions: Vec<Planned>,
    way: Way,
}

/// How a client has its transactions executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One after the other, as procedures.
    OneByOne,
    /// They are handed over together, and may be executed in any order.
    Together,
    /// One after the other; the client begins and commits them, and time passes in between.
    StepByStep,
}

/// A transaction of a plan.
#[derive(Clone, Debug, Default)]
struct Planned {
    operations: Vec<Operation>,
    declares: Declares,
    rolls_back: bool,
    /// It reads a snapshot, which must have what its client has committed before.
    on_snapshot: bool,
}

/// What a transaction says beforehand of the rows that it writes.
#[derive(Clone, Copy, Debug, Default)]
enum Declares {
    /// Their keys.
    Keys,
    /// That there are some.
    #[default]
    Nothing,
    /// Every other key, and that there are more.
    Some,
    /// So many first bytes of each key.
    Prefixes(usize),
}

impl Plan {
    /// Every eighth plan asks in all ways, by two sessions of each client, who look at a snapshot in the end; every fourth one has futures,
    /// of which every other one has rows that come and go, and every fourth one asks about columns. In every eighth one clients go step by
    /// step, and in every third one sessions come and go.
    fn draw(seed: u64) -> Self {
        let mut random = Random::stream(21, seed);
        let (futures, come_and_go) = (seed % 4 == 3, seed % 8 == 7);
        let draw = match seed % 4 {
            1 if seed % 8 == 5 => Operation::draw_of_questions,
            2 => Operation::draw_of_columns,
            3 if come_and_go => Operation::draw_of_futures_beside_deletions,
            3 => Operation::draw_of_futures,
            _ => Operation::draw,
        };
        let rows = (0..KEYS).filter(|_| futures || random.below(2) == 0).map(|id| person(id, 1, id as u32)).collect();
        let deleted = (0..KEYS).filter(|_| come_and_go && random.below(4) == 0).collect();
        let one_by_one = if seed % 8 == 4 { Way::StepByStep } else { Way::OneByOne };
        let mut threads: Vec<Client> =
            (0..random.range_inclusive(2, 3)).map(|_| Client::draw(&mut random, draw, one_by_one)).collect();
        if seed % 8 == 5 {
            threads.iter_mut().for_each(Client::look_in_the_end);
        }
        let (snapshots, ticks) = (random.below(3) as usize, random.below(3) as usize);
        // Epochs go on several times between the steps.
        let ticks = ticks + if one_by_one == Way::StepByStep { 4 } else { 0 };
        let submits = random.below(4) == 0;
        Self {
            rows,
            deleted,
            threads,
            snapshots,
            ticks,
            submits,
            by_columns: seed % 4 == 2,
            join: seed.is_multiple_of(3),
        }
    }

    /// The rows that are there when the threads begin.
    fn start(&self) -> Vec<Person> {
        self.rows.iter().filter(|row| !self.deleted.contains(&row.id)).cloned().collect()
    }
}

/// Draws an operation over so many keys.
type Draw = fn(&mut Random, u64) -> Operation;

impl Client {
    fn draw(random: &mut Random, draw: Draw, one_by_one: Way) -> Self {
        let transactions = (0..random.range_inclusive(1, 2)).map(|_| Planned::draw(random, draw)).collect();
        Self { transactions, way: if random.below(2) == 0 { Way::Together } else { one_by_one } }
    }
}

impl Client {
    /// Reads a snapshot behind the other transactions, where one follows the other.
    fn look_in_the_end(&mut self) {
        if self.way == Way::OneByOne {
            self.transactions.push(Planned { operations: vec![EVERYTHING], on_snapshot: true, ..Planned::default() });
        }
    }
}

impl Planned {
    fn draw(random: &mut Random, draw: Draw) -> Self {
        let operations = (0..random.range_inclusive(1, 4)).map(|_| draw(random, KEYS)).collect();
        let declares = match random.below(6) {
            0 | 1 => Declares::Keys,
            2 => Declares::Nothing,
            3 => Declares::Some,
            // All rows have these seven in common, and no two of them all eight.
            way => Declares::Prefixes(3 + way as usize),
        };
        Self { operations, declares, rolls_back: random.below(8) == 0, on_snapshot: false }
    }
}

/// One transaction of a plan, which notes what it is answered.
struct Script {
    table: Table<Person>,
    plan: Planned,
    /// Shared with who waits for the end; no thread waits for another one's here.
    trace: Arc<Mutex<Trace>>,
}

impl Script {
    fn new(table: Table<Person>, plan: &Planned) -> Self {
        Self { table, plan: plan.clone(), trace: Arc::default() }
    }

    /// What it was answered so far.
    fn taken(trace: &Mutex<Trace>) -> Trace {
        std::mem::take(&mut trace.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, operation: &Operation, answer: Answer) {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).push((operation.clone(), answer));
    }
}

/// Whether a transaction was undone because a future's row is not there.
fn lacks_row(error: &Error) -> bool {
    matches!(error, Error::NoValue(failed) if matches!(failed.why, FutureError::NoRow(_)))
}

/// What a transaction was answered whose end is to be explained. `None`: it was rolled back, or conflicted too often, and had no effect.
fn ended(plan: &Planned, outcome: Result<(), Error>, trace: &Mutex<Trace>) -> Option<Trace> {
    let mut trace = Script::taken(trace);
    match outcome {
        Ok(()) => Some(trace),
        Err(Error::Conflicts { .. }) => None,
        Err(Error::RolledBack) if plan.rolls_back => None,
        Err(error) if lacks_row(&error) => {
            // The operation that failed, or the commit.
            let failed = plan.operations.get(trace.len()).unwrap_or(&Operation::Commit);
            trace.push((failed.clone(), Answer::NoRow));
            Some(trace)
        }
        Err(error) => panic!("a transaction failed: {error}"),
    }
}

impl Procedure for Script {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        Self::taken(&self.trace);
        let mut savepoints = Savepoints::default();
        for operation in &self.plan.operations {
            let answer = apply(transaction, &self.table, operation, &mut savepoints)?;
            self.note(operation, answer);
        }
        if self.plan.rolls_back { Err(Error::RolledBack) } else { Ok(()) }
    }

    /// The rows are divided by their ids; what touches no index and no range names its partitions.
    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Planned { operations, declares, .. } = &self.plan;
        let own = |operation: &Operation| match operation {
            Operation::Get(id) | Operation::SetNumber(id, _) | Operation::SetText(id, _) => Some(*id),
            Operation::Ask { id, .. } | Operation::AddLater(id, _) | Operation::Resolve(id) => Some(*id),
            _ => None,
        };
        if let Some(ids) = operations.iter().map(own).collect::<Option<Vec<u64>>>() {
            ids.into_iter().for_each(|id| declaration.partition(id));
        }
        for (number, operation) in operations.iter().enumerate() {
            let Some((id, access)) = touched(operation) else { continue };
            let mut scratch = KeyScratch::new();
            let key = id.encode(&mut scratch);
            match declares {
                Declares::Keys => declaration.key(self.table.id(), key, access),
                Declares::Some if number % 2 == 0 => declaration.key(self.table.id(), key, access),
                Declares::Prefixes(len) => {
                    let mut bytes = vec![0; key.len()];
                    key.write_to(&mut bytes);
                    declaration.prefix(self.table.id(), &bytes[..*len], access);
                }
                Declares::Some | Declares::Nothing => {}
            }
        }
        if matches!(declares, Declares::Nothing | Declares::Some) {
            declaration.unknown();
        }
    }
}

/// The row that an operation touches by its key, and how.
fn touched(operation: &Operation) -> Option<(u64, Access)> {
    match operation {
        Operation::Get(id) => Some((*id, Access::Read)),
        Operation::Insert(row) => Some((row.id, Access::Insert)),
        Operation::SetNumber(id, _) | Operation::SetText(id, _) => Some((*id, Access::Update)),
        Operation::Look(id) => Some((*id, Access::Update)),
        Operation::TooLong(id) => Some((*id, Access::Write)),
        Operation::Tried(operation) => touched(operation),
        Operation::Upsert(row) => Some((row.id, Access::Write)),
        Operation::SetTeam(id, _) | Operation::SetCode(id, _) | Operation::Delete(id) => Some((*id, Access::Write)),
        Operation::NumberLater(_, id)
        | Operation::TeamLater(_, id)
        | Operation::TextLater(_, id)
        | Operation::AddLater(id, _) => Some((*id, Access::Write)),
        _ => None,
    }
}

/// Executes a transaction.
fn execute<W: Worker>(worker: &mut W, table: Table<Person>, plan: &Planned) -> Option<Trace> {
    let mut script = Script::new(table, plan);
    let outcome = if plan.on_snapshot { worker.snapshot(&mut script) } else { worker.execute(&mut script) };
    ended(plan, outcome, &script.trace)
}

/// The same step by step.
fn execute_by_steps<W: Interactive + 'static>(worker: &mut W, table: Table<Person>, plan: &Planned) -> Option<Trace> {
    let mut script = Script::new(table, plan);
    let outcome = setup::run(worker, |transaction| script.run(transaction));
    ended(plan, outcome, &script.trace)
}

/// Executes transactions as a batch.
fn execute_together<W: Worker>(worker: &mut W, table: Table<Person>, plans: &[Planned]) -> Vec<Vec<Trace>> {
    let mut scripts: Vec<_> = plans.iter().map(|plan| Script::new(table, plan)).collect();
    let mut outcomes: Vec<_> = plans.iter().map(|_| None).collect();
    worker.execute_batch(&mut scripts, &mut |position, outcome| {
        assert!(outcomes[position].replace(outcome).is_none(), "a procedure is answered once");
    });
    let answered = scripts.iter().zip(outcomes);
    let outcome = |(script, outcome): (&Script, Option<_>)| {
        ended(&script.plan, outcome.expect("each is answered"), &script.trace).into_iter().collect()
    };
    answered.map(outcome).collect()
}

/// Submits transactions and waits for all of them. They are under way at the same time, as if each had a thread of its own.
fn submit_all<P: Protocol>(service: &Service<P>, table: Table<Person>, plans: &[Planned]) -> Vec<Vec<Trace>> {
    let submit = |plan| {
        let script = Script::new(table, plan);
        let trace = Arc::clone(&script.trace);
        (plan, trace, service.submit(script))
    };
    let submissions: Vec<_> = plans.iter().map(submit).collect();
    let wait = |(plan, trace, submission): (&Planned, Arc<Mutex<Trace>>, Submission<()>)| {
        ended(plan, submission.wait(), &trace).into_iter().collect()
    };
    submissions.into_iter().map(wait).collect()
}

/// Whether a transaction has left something for certain: it wrote, and took nothing back.
fn has_written(trace: &Trace) -> bool {
    let takes_back = |operation: &Operation| matches!(operation, Operation::Delete(_) | Operation::RollBackTo(_));
    let is_write = |operation: &Operation| {
        matches!(operation, Operation::Insert(_) | Operation::Upsert(_) | Operation::SetNumber(..))
            || matches!(operation, Operation::SetText(..) | Operation::SetTeam(..) | Operation::SetCode(..))
    };
    let writes = |(operation, answer): &(Operation, Answer)| is_write(operation) && *answer == Answer::Flag(true);
    !trace.iter().any(|(operation, _)| takes_back(operation)) && trace.iter().any(writes)
}

impl Client {
    /// Executes the transactions, one by one by the two sessions in turn, and a snapshot by the one that came before; answers lists of those
    /// whose end is to be explained, each list in an order that is theirs.
    fn run<P: Protocol<Worker: Interactive + 'static>>(
        &self,
        sessions: &mut [P::Worker; 2],
        service: Option<&Service<P>>,
        table: Table<Person>,
    ) -> Vec<Vec<Trace>> {
        let mut one_by_one = |execute: fn(&mut P::Worker, _, &_) -> Option<Trace>| {
            let (mut lists, mut last) = (vec![Vec::new()], None);
            for (number, plan) in self.transactions.iter().enumerate() {
                let session = (number - usize::from(plan.on_snapshot)) % 2;
                let Some(trace) = execute(&mut sessions[session], table, plan) else { continue };
                if plan.on_snapshot && last != Some((session, true)) {
                    // Its session has written nothing just before, so it may be of any time.
                    lists.push(vec![trace]);
                    continue;
                }
                last = Some((session, has_written(&trace)));
                lists[0].push(trace);
            }
            lists
        };
        match (service, self.way) {
            (Some(service), _) => submit_all(service, table, &self.transactions),
            (None, Way::OneByOne) => one_by_one(execute),
            (None, Way::StepByStep) => one_by_one(execute_by_steps),
            (None, Way::Together) => execute_together(&mut sessions[0], table, &self.transactions),
        }
    }
}

const EVERYTHING: Operation = Operation::Scan { from: 0, to: u64::MAX, backward: false, limit: usize::MAX };

/// All rows as a snapshot sees them, by the primary key and by team, and as columns.
fn snapshot<W: Worker>(worker: &mut W, table: Table<Person>, by_columns: bool) -> Vec<Person> {
    let mut operations = vec![EVERYTHING];
    operations.extend(by_columns.then_some(Operation::Columns { team: None }));
    operations.extend((0..3).map(|team| Operation::ByTeam { team, backward: false, limit: usize::MAX }));
    let plan = Planned { operations, ..Planned::default() };
    let mut script = Script::new(table, &plan);
    worker.snapshot(&mut script).expect("a snapshot neither conflicts nor fails");
    let mut answers = Script::taken(&script.trace).into_iter().map(|(_, answer)| answer);
    let rows = rows_of(answers.next().expect("the scan was answered"));
    if by_columns {
        let numbers = rows.iter().map(|row| (row.id, row.team, row.code, row.number)).collect();
        assert_eq!(answers.next(), Some(Answer::Columns(numbers)), "one snapshot, two states");
    }
    let mut by_team: Vec<Person> = answers.flat_map(rows_of).collect();
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
    setup.common.memory = polychron_memory::Options { max_workers: 12, ..polychron_memory::Options::tiny() };
    let database = setup.open();
    let definition = Person::definition().with_partition_column(0);
    let table = Table::from_id(database.create_table(definition).expect("the definition is sound"));
    let mut worker = database.worker().expect("a slot is free");
    let operations = plan.rows.iter().cloned().map(Operation::Insert).collect();
    let rows = Planned { operations, ..Planned::default() };
    execute(&mut worker, table, &rows).expect("nobody is there to conflict with");
    setup.pass(&database, 2);
    if !plan.deleted.is_empty() {
        let operations = plan.deleted.iter().copied().map(Operation::Delete).collect();
        let deletions = Planned { operations, ..Planned::default() };
        execute(&mut worker, table, &deletions).expect("nobody is there to conflict with");
    }
    // A snapshot has what its session has committed.
    assert_eq!(snapshot(&mut worker, table, plan.by_columns), plan.start(), "the start is not what was written");
    (database, worker, table)
}

/// A service whose clients have to wait for room.
fn start<P: Protocol>(database: &Arc<P>) -> Service<P> {
    let options = Submissions { threads: 2, batch_size: 2, most_waiting: 2, ..Submissions::default() };
    Service::start(database, &options, Arc::new(ManualClock::new()), || database.worker()).expect("slots are free")
}

/// Runs a plan's threads, and answers the story if no serial order explains what they saw.
fn run<P: Protocol<Worker: Interactive + 'static>>(setup: &Setup<P>, plan: &Arc<Plan>) -> Result<(), String> {
    let (database, mut worker, table) = open(setup, plan);
    let service = plan.submits.then(|| Arc::new(start(&database)));
    let mut running = Vec::new();
    for number in 0..plan.threads.len() {
        let (plan, service) = (Arc::clone(plan), service.clone());
        let join = {
            let database = Arc::clone(&database);
            move || [(); 2].map(|()| database.worker().expect("a slot is free"))
        };
        let early = (!plan.join).then(&join);
        running.push(thread::spawn(move || {
            let mut sessions = early.unwrap_or_else(join);
            plan.threads[number].run::<P>(&mut sessions, service.as_deref(), table)
        }));
    }
    let joining: Vec<_> = (0..if plan.join { 2 } else { 0 })
        .map(|_| {
            let (database, by_columns) = (Arc::clone(&database), plan.by_columns);
            thread::spawn(move || snapshot(&mut database.worker().expect("a slot is free"), table, by_columns))
        })
        .collect();
    drop(service);
    let clock = {
        let (database, setup, ticks) = (Arc::clone(&database), setup.clone(), plan.ticks);
        thread::spawn(move || setup.pass(&database, ticks))
    };
    let mut snapshots: Vec<_> = (0..plan.snapshots).map(|_| snapshot(&mut worker, table, plan.by_columns)).collect();
    let threads: Vec<Vec<Trace>> =
        running.into_iter().flat_map(|thread| thread.join().expect("a thread ends well")).collect();
    snapshots.extend(joining.into_iter().map(|thread| thread.join().expect("a thread ends well")));
    clock.join().expect("time passes");
    let everything = Planned { operations: vec![EVERYTHING], ..Planned::default() };
    let end = execute(&mut worker, table, &everything).expect("nobody is there to conflict with");
    let end = rows_of(end.into_iter().next().expect("the scan was answered").1);
    let start = Model::of(plan.start());
    if explained(&start, &threads, &snapshots, &end) { Ok(()) } else { Err(story(&start, &threads, &snapshots, &end)) }
}

/// Runs the plans of these seeds as the machine schedules them.
///
/// # Errors
/// The story of the first history that no serial order explains.
pub fn run_freely<P: Protocol<Worker: Interactive + 'static>>(
    setup: &Setup<P>,
    seeds: std::ops::Range<u64>,
) -> Result<(), String> {
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
pub fn explore<P: Protocol<Worker: Interactive + 'static>>(
    setup: &Setup<P>,
    seeds: std::ops::Range<u64>,
    schedules: usize,
) -> usize {
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
