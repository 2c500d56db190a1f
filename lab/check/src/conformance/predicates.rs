//! A predicate oracle: does a write change what another transaction was told?
//!
//! Two transactions run beside each other on rows with a column of every kind. One asks: by keys and ranges, with restrictions of every
//! comparison of every pair of types, for rows, columns, and answers over them, by updates that only look, and by writes that are refused
//! or undone. The other one writes. By all serial orders of them on a model that knows the values alone it is clear whether both may
//! commit. Where they may not, a protocol that commits both has gone wrong; where they may, and one of them is aborted, that is a needless
//! no, which is counted. Refused and undone operations stand between others, so what they leave half done shows as well.

use std::sync::Arc;

use polychron_base::random::Random;
use polychron_engine::{
    Access, Declare, Error, Interactive, Isolation, Mode, Operations, Procedure, Protocol, Transaction, Worker,
};
use polychron_schema::{Key, KeyScratch, Value};

use super::verdict::orders;
use crate::Setup;
use crate::client::Client;
use crate::rows::Item;
use crate::samples::model::{Answer, Model};
use crate::samples::{KEYS, OWNERS, Operation, Owner, Sample, Tables, Values, apply, column, draw_row};
use crate::setup::{Tx, begin, create, done};

/// What a transaction did and was told.
type Told = Vec<(Operation, Answer)>;

/// How often the oracle was asked, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Pairs of which both may commit, in some order.
    pub harmless: u64,
    /// Such pairs of which one was aborted.
    pub needless: u64,
    /// Pairs of which both may not commit.
    pub harmful: u64,
}

/// A number that an environment variable sets.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// How many seeds are tried: `POLYCHRON_PREDICATE_SEEDS`, or so many.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let first = number("POLYCHRON_PREDICATE_FIRST", 0);
    first..first + number("POLYCHRON_PREDICATE_SEEDS", default)
}

/// A database with the tables, and what is in them.
struct Stage<P: Protocol> {
    database: Arc<P>,
    tables: Tables,
    model: Model,
}

impl<P: Protocol<Worker: Interactive>> Stage<P> {
    fn open(setup: &Setup<P>, random: &mut Random) -> Self {
        let database = setup.open();
        let owners = create::<P, Owner>(&database);
        let tables = Tables { owners, samples: create::<P, Sample>(&database), flags: create::<P, Item>(&database) };
        let mut worker = database.worker().expect("a slot is free");
        let mut model = Model::default();
        let operations: Vec<Operation> = (0..OWNERS - 1)
            .map(Operation::InsertOwner)
            .chain((0..KEYS).map(|id| Operation::Insert(draw_row(random, id))))
            .collect();
        done(&mut worker, |t| {
            t.insert(&tables.flags, &Item { id: 0, value: 0 })?;
            model = Model::default();
            for operation in &operations {
                let (expected, answer) = (model.apply(operation), apply(t, &tables, operation)?);
                assert!(expected.allows(&answer), "{operation:?} answers {answer:?} in place of {expected:?}");
            }
            Ok(())
        });
        Self { database, tables, model }
    }

    /// What is in the tables now.
    fn look(&self, worker: &mut P::Worker) -> Model {
        done(worker, |t| {
            let samples = t.scan(&self.tables.samples, ..).map(|row| row.id()).collect::<Vec<u64>>()?;
            let columns: Vec<usize> = (0..column::COUNT).collect();
            let mut model = Model::default();
            for id in samples {
                let get = Operation::Get { id, columns: columns.clone() };
                let Answer::Row(Some(row)) = apply(t, &self.tables, &get)? else { unreachable!("a scan has shown it") };
                model.samples.insert(id, row);
            }
            model.owners =
                t.scan(&self.tables.owners, ..).map(|row| row.id()).collect::<Vec<u64>>()?.into_iter().collect();
            model.flag = t.get(&self.tables.flags, 0)?.map_or(0, |row| row.value());
            Ok(model)
        })
    }
}

/// The state that these transactions leave, one after the other, if they are told what they were told.
fn replay(start: &Model, transactions: &[&Told]) -> Option<Model> {
    let mut model = start.clone();
    let fits = transactions
        .iter()
        .all(|observed| observed.iter().all(|(operation, answer)| model.apply(operation).allows(answer)));
    fits.then_some(model)
}

/// Whether some order of the transactions explains what they were told, and the end, where that is known.
fn explained(start: &Model, transactions: &[Told], end: Option<&Model>) -> bool {
    let numbers: Vec<usize> = (0..transactions.len()).collect();
    orders(&numbers).iter().any(|order| {
        let ordered: Vec<&Told> = order.iter().map(|&number| &transactions[number]).collect();
        replay(start, &ordered).is_some_and(|model| end.is_none_or(|end| model == *end))
    })
}

/// What operations are told where no client is beside them.
fn alone(start: &Model, operations: &[Operation]) -> Told {
    let mut model = start.clone();
    operations.iter().map(|operation| (operation.clone(), model.apply(operation))).collect()
}

fn story(start: &Model, transactions: &[Told], end: &Model) -> String {
    let mut story = format!("no serial order explains this.\nstart: {start:?}\n");
    for observed in transactions {
        story += "committed:\n";
        observed.iter().for_each(|step| story += &format!("  {step:?}\n"));
    }
    story + &format!("end: {end:?}")
}

/// Two transactions, and how they meet.
#[derive(Clone, Debug)]
struct Pair {
    asks: Vec<Operation>,
    writes: Vec<Operation>,
    /// Before which operation of the one that asks the other one runs.
    at: usize,
    /// Whether the one that writes begins first.
    writer_first: bool,
}

impl Pair {
    /// In three of four pairs the one that writes reads a flag that the other one sets in the end, and so comes before it.
    fn draw(random: &mut Random) -> Self {
        let mut asks: Vec<Operation> =
            (0..random.range_inclusive(1, 3)).map(|_| Operation::draw_question(random)).collect();
        if random.below(4) == 0 {
            asks.insert(random.below(asks.len() as u64 + 1) as usize, Operation::draw_write(random));
        }
        let mut writes: Vec<Operation> =
            (0..random.range_inclusive(1, 2)).map(|_| Operation::draw_write(random)).collect();
        if random.below(4) > 0 {
            writes.insert(0, Operation::ReadFlag);
        }
        let last = asks.len();
        let at = if random.below(3) > 0 { last } else { random.below(last as u64 + 1) as usize };
        asks.push(Operation::SetFlag(random.below(1000) as i64));
        Self { asks, writes, at, writer_first: random.below(4) == 0 }
    }

    /// Whether both may commit when neither sees what the other one does.
    fn is_harmless(&self, start: &Model) -> bool {
        explained(start, &[alone(start, &self.asks), alone(start, &self.writes)], None)
    }
}

/// Takes these steps, and notes what they are told.
fn steps<T: polychron_engine::Commit>(
    client: &mut Client<T>,
    tables: &Tables,
    operations: &[Operation],
    observed: &mut Told,
) {
    for operation in operations {
        if let Some(answer) = client.step(|t| apply(t, tables, operation)) {
            observed.push((operation.clone(), answer));
        }
    }
}

impl<P: Protocol<Worker: Interactive>> Stage<P> {
    /// Plays a pair, and answers whether both committed.
    fn play(&mut self, workers: &mut [P::Worker], pair: &Pair, rate: &mut Rate) -> Result<(), String> {
        let [asking, writing, watching] = workers else { unreachable!("three workers") };
        let (mut asked, mut wrote) = (Told::new(), Told::new());
        let mut early: Option<Client<Tx<'_, P>>> = None;
        let mut late = Some(writing);
        if pair.writer_first {
            early = late.take().map(begin);
        }
        let mut requester = begin(asking);
        steps(&mut requester, &self.tables, &pair.asks[..pair.at], &mut asked);
        let mut writer = early.or_else(|| late.take().map(begin)).expect("it begins once");
        steps(&mut writer, &self.tables, &pair.writes, &mut wrote);
        let written = writer.commit();
        steps(&mut requester, &self.tables, &pair.asks[pair.at..], &mut asked);
        let asked_well = requester.commit();
        let committed: Vec<Told> =
            [(asked_well, asked), (written, wrote)].into_iter().filter(|it| it.0).map(|it| it.1).collect();
        let end = self.look(watching);
        if !explained(&self.model, &committed, Some(&end)) {
            return Err(format!("{pair:?}\n{}", story(&self.model, &committed, &end)));
        }
        let is_harmless = pair.is_harmless(&self.model);
        rate.harmless += u64::from(is_harmless);
        rate.harmful += u64::from(!is_harmless);
        rate.needless += u64::from(is_harmless && committed.len() < 2);
        self.model = end;
        Ok(())
    }
}

/// Plays pairs from a seed, until one has gone wrong. Answers that, and the rate of needless noes.
pub fn find_stale_answer<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    seed: u64,
    pairs: usize,
) -> (Option<String>, Rate) {
    let mut random = Random::stream(41, seed);
    let mut stage = Stage::open(setup, &mut random);
    let mut workers: Vec<_> = (0..3).map(|_| stage.database.worker().expect("a slot is free")).collect();
    let mut rate = Rate::default();
    for number in 0..pairs {
        let pair = Pair::draw(&mut random);
        if let Err(story) = stage.play(&mut workers, &pair, &mut rate) {
            return (Some(format!("seed {seed}, pair {number}: {story}")), rate);
        }
        if random.below(8) == 0 {
            (setup.tick)(&stage.database);
            workers[2].maintain();
        }
    }
    (None, rate)
}

/// No write changes what a transaction was told that commits in spite of it. `POLYCHRON_PREDICATE_SEEDS` says how many seeds are tried,
/// `POLYCHRON_PREDICATE_PAIRS` how many pairs of each.
pub fn stale_answers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.isolation != Isolation::Serializable {
        return;
    }
    let mut all = Rate::default();
    for seed in seeds(3) {
        let (found, rate) = find_stale_answer(setup, seed, number("POLYCHRON_PREDICATE_PAIRS", 400) as usize);
        if let Some(story) = found {
            panic!("{story}");
        }
        all.harmless += rate.harmless;
        all.needless += rate.needless;
        all.harmful += rate.harmful;
    }
    let Rate { harmless, needless, harmful } = all;
    println!(
        "{}: of {harmless} pairs that may both commit {needless} had a needless no ({:.1} %); {harmful} may not",
        setup.name,
        100.0 * needless as f64 / harmless.max(1) as f64
    );
    assert!(harmless > 0 && harmful > 0, "the pairs show nothing");
}

/// One transaction at a time: every answer is the model's, and what was refused or undone leaves nothing behind.
pub fn one_by_one<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for seed in seeds(3) {
        let mut random = Random::stream(42, seed);
        let mut stage = Stage::open(setup, &mut random);
        let mut worker = stage.database.worker().expect("a slot is free");
        for round in 0..80 {
            let mut client = Client::begin(&mut worker, Mode::ReadWrite);
            let mut trial = stage.model.clone();
            for _ in 0..random.range_inclusive(1, 8) {
                let operation = Operation::draw(&mut random);
                let expected = trial.apply(&operation);
                let answer = client.step(|t| apply(t, &stage.tables, &operation)).expect("nobody is beside it");
                let fits = expected.allows(&answer);
                assert!(fits, "seed {seed}, round {round}: {operation:?} answers {answer:?}, and not {expected:?}");
            }
            if random.below(4) == 0 {
                client.roll_back();
            } else {
                assert!(client.commit(), "nobody is beside it");
                stage.model = trial;
            }
            if random.below(4) == 0 {
                (setup.tick)(&stage.database);
                worker.maintain();
            }
            if round % 5 == 0 {
                assert_eq!(stage.look(&mut worker), stage.model, "seed {seed}, round {round}");
            }
        }
        assert_eq!(stage.look(&mut worker), stage.model, "seed {seed}");
    }
}

/// Operations as a procedure, which declares them in one way or another.
struct Script {
    tables: Tables,
    operations: Vec<Operation>,
    declares: Declares,
}

/// What is declared of the rows that are written.
#[derive(Clone, Copy, Debug)]
enum Declares {
    Keys,
    Prefixes,
    /// Every other key, and that there may be more.
    Some,
    Nothing,
}

impl Script {
    fn draw(random: &mut Random, tables: &Tables) -> Self {
        let operations = (0..random.range_inclusive(1, 5)).map(|_| Operation::draw(random)).collect();
        let declares = match random.below(4) {
            0 => Declares::Keys,
            1 => Declares::Prefixes,
            2 => Declares::Some,
            _ => Declares::Nothing,
        };
        Self { tables: *tables, operations, declares }
    }
}

/// The row that an operation writes, and how.
fn written(tables: &Tables, operation: &Operation) -> Option<(polychron_base::TableId, u64, Access)> {
    let id = |row: &Values| if let Value::Unsigned(id) = row[column::ID] { id } else { 0 };
    let (samples, owners) = (tables.samples.id(), tables.owners.id());
    Some(match operation {
        Operation::Look { id, .. } | Operation::Set { id, .. } => (samples, *id, Access::Write),
        Operation::Insert(row) => (samples, id(row), Access::Insert),
        Operation::Upsert(row) => (samples, id(row), Access::Write),
        Operation::Delete(id) => (samples, *id, Access::Write),
        Operation::InsertOwner(id) => (owners, *id, Access::Insert),
        Operation::DeleteOwner(id) => (owners, *id, Access::Write),
        Operation::SetFlag(_) => (tables.flags.id(), 0, Access::Update),
        Operation::Tried(operation) => return written(tables, operation),
        Operation::Get { id, .. } => (samples, *id, Access::Read),
        Operation::Ask(_) | Operation::ReadFlag => return None,
    })
}

impl Procedure for Script {
    type Output = Told;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Told, Error> {
        let observed = |operation: &Operation| Ok((operation.clone(), apply(transaction, &self.tables, operation)?));
        self.operations.iter().map(observed).collect()
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        for (number, operation) in self.operations.iter().enumerate() {
            let Some((table, id, access)) = written(&self.tables, operation) else { continue };
            let mut scratch = KeyScratch::new();
            let key = id.encode(&mut scratch);
            match self.declares {
                Declares::Keys => declaration.key(table, key, access),
                Declares::Some if number % 2 == 0 => declaration.key(table, key, access),
                Declares::Prefixes => declaration.prefix(table, &id.to_be_bytes()[..7 + number % 2], access),
                Declares::Some | Declares::Nothing => {}
            }
        }
        if matches!(self.declares, Declares::Some | Declares::Nothing) {
            declaration.unknown();
        }
    }
}

/// Transactions that are handed over together, declared in one way or another: some order explains what they are told and leave behind. By
/// two threads at once, so that what a batch plans meets what another one does.
pub fn batches<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if setup.isolation != Isolation::Serializable {
        return;
    }
    for seed in seeds(2) {
        let mut random = Random::stream(43, seed);
        let mut stage = Stage::open(setup, &mut random);
        let mut workers: Vec<_> = (0..3).map(|_| stage.database.worker().expect("a slot is free")).collect();
        for round in 0..80 {
            let tables = stage.tables;
            let mut scripts: Vec<Vec<Script>> =
                (0..2).map(|_| (0..2).map(|_| Script::draw(&mut random, &tables)).collect()).collect();
            let committed: Vec<Told> = std::thread::scope(|scope| {
                let run = |(worker, scripts): (&mut P::Worker, &mut Vec<Script>)| {
                    let mut observed = Vec::new();
                    worker.execute_batch(scripts, &mut |_, outcome| {
                        observed.push(outcome.expect("a script is neither refused nor does it give up"));
                    });
                    observed
                };
                let pairs: Vec<_> = workers.iter_mut().zip(&mut scripts).collect();
                let threads: Vec<_> = pairs.into_iter().map(|pair| scope.spawn(move || run(pair))).collect();
                threads.into_iter().flat_map(|thread| thread.join().expect("a batch ends well")).collect()
            });
            let end = stage.look(&mut workers[2]);
            let fits = explained(&stage.model, &committed, Some(&end));
            assert!(fits, "seed {seed}, round {round}: {}", story(&stage.model, &committed, &end));
            stage.model = end;
            (setup.tick)(&stage.database);
        }
    }
}

/// Three transactions at a time, step by step in random turns, which ask and write: those that commit have a serial order.
pub fn interleaved<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.isolation != Isolation::Serializable {
        return;
    }
    for seed in seeds(3) {
        let mut random = Random::stream(44, seed);
        let mut stage = Stage::open(setup, &mut random);
        let mut workers: Vec<_> = (0..4).map(|_| stage.database.worker().expect("a slot is free")).collect();
        for round in 0..150 {
            if let Err(story) = interleave(setup, &mut stage, &mut random, &mut workers) {
                panic!("seed {seed}, round {round}: {story}");
            }
        }
    }
}

fn interleave<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    stage: &mut Stage<P>,
    random: &mut Random,
    workers: &mut [P::Worker],
) -> Result<(), String> {
    let (watcher, workers) = workers.split_first_mut().expect("there is a worker that watches");
    let mut clients: Vec<Option<Client<Tx<'_, P>>>> = workers.iter_mut().map(|worker| Some(begin(worker))).collect();
    let count = clients.len();
    let mut observed: Vec<Told> = vec![Told::new(); count];
    let mut committed = Vec::new();
    let mut left: Vec<u64> = (0..count).map(|_| random.range_inclusive(1, 5)).collect();
    while clients.iter().any(Option::is_some) {
        let turn = random.below(count as u64) as usize;
        if random.below(12) == 0 {
            (setup.tick)(&stage.database);
        }
        let Some(client) = &mut clients[turn] else { continue };
        if left[turn] > 0 {
            left[turn] -= 1;
            steps(client, &stage.tables, &[Operation::draw(random)], &mut observed[turn]);
        } else if clients[turn].take().is_some_and(Client::commit) {
            committed.push(std::mem::take(&mut observed[turn]));
        }
    }
    let end = stage.look(watcher);
    if !explained(&stage.model, &committed, Some(&end)) {
        return Err(story(&stage.model, &committed, &end));
    }
    stage.model = end;
    Ok(())
}
