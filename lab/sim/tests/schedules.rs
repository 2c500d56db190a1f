//! Two clients, a reader and a power failure under schedules: whatever was answered, a serial order explains it that ends with what is found behind the
//! failure, and has all that was acknowledged.
//!
//! A seed says what the threads do, how many operations of the disk there are until the power fails, and what survives. Some clients wait for nothing; what
//! they have written may be lost, unless the reader has seen it. Under `--cfg shuttle` the schedules are drawn, random and prioritized ones; otherwise the
//! machine makes them.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --features polychron-sync/shuttle -p polychron-sim --test schedules`; `POLYCHRON_EXPLORE_FIRST`,
//! `POLYCHRON_EXPLORE_SEEDS` and `POLYCHRON_EXPLORE_SCHEDULES` say from which seed, how many, and how often each.

use std::collections::BTreeMap;

use polychron::{
    Access, AnyProtocol, Database, Declare, Durability, Error, Operations, Procedure, Protocol, ProtocolList,
    Protocols, Row, Table, Transaction,
};
use polychron_base::random::Random;
use polychron_engine::mutations::{Named, leave_out};
use polychron_engine::redo::{self, Answers};
use polychron_engine::{Isolation, Worker};
use polychron_log::Options;
use polychron_log::disk::Files;
use polychron_log::steps::Step;
use polychron_sim::{Fault, SimulatedDisk, Survival};
use polychron_sync::thread::{self, JoinHandle};

#[derive(Row, Clone, Debug)]
struct Cell {
    #[key]
    id: u64,
    value: u64,
}

/// How many rows there may be; few, so that everything meets.
const KEYS: u64 = 3;
/// More operations of the disk than the flushes of a plan's transactions take.
const OPERATIONS: u64 = 14;

/// The values of rows by their keys.
type Rows = BTreeMap<u64, u64>;

/// What is done with a row.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// It is read.
    Get,
    /// It is read, and then written.
    Set,
    /// It is written without a look.
    Put,
    /// It is read, and then deleted.
    Delete,
}

/// What one transaction does with rows, one after the other. All that it writes has its own value.
#[derive(Clone, Debug)]
struct Planned {
    acts: Vec<(u64, Act)>,
    value: u64,
    on_snapshot: bool,
}

impl Planned {
    fn draw(random: &mut Random, value: u64) -> Self {
        let act = |random: &mut Random| match random.below(8) {
            0..=1 => Act::Get,
            2..=4 => Act::Set,
            5..=6 => Act::Put,
            _ => Act::Delete,
        };
        let acts = (0..random.range_inclusive(1, 3)).map(|_| (random.below(KEYS), act(random))).collect();
        Self { acts, value, on_snapshot: false }
    }

    /// It looks at all rows.
    fn look(on_snapshot: bool) -> Self {
        Self { acts: (0..KEYS).map(|id| (id, Act::Get)).collect(), value: 0, on_snapshot }
    }

    /// Does it with a map, if the map explains what was seen.
    fn explains(&self, seen: &[Option<u64>], rows: &mut Rows) -> bool {
        seen.len() == self.acts.len()
            && self.acts.iter().zip(seen).all(|(&(id, act), seen)| {
                let before = rows.get(&id).copied();
                match act {
                    Act::Get => {}
                    Act::Set | Act::Put => _ = rows.insert(id, self.value),
                    Act::Delete => _ = rows.remove(&id),
                }
                matches!(act, Act::Put) || *seen == before
            })
    }
}

/// A transaction, and what it has seen when it ran last.
struct Script {
    table: Table<Cell>,
    planned: Planned,
    seen: Vec<Option<u64>>,
}

impl Procedure for Script {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        let Self { table, planned, seen } = self;
        seen.clear();
        for &(id, act) in &planned.acts {
            let before = if matches!(act, Act::Put) { None } else { t.get(table, id)?.map(|row| row.value()) };
            match act {
                Act::Get => {}
                Act::Set | Act::Put => t.upsert(table, &Cell { id, value: planned.value })?,
                Act::Delete => _ = t.delete(table, id)?,
            }
            seen.push(before);
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let is_reader = self.planned.acts.iter().all(|(_, act)| matches!(act, Act::Get));
        let all: &[u8] = &[];
        declaration.prefix(self.table.id(), all, if is_reader { Access::Read } else { Access::Write });
    }
}

/// A transaction that has ended.
#[derive(Clone, Debug)]
struct Attempt {
    planned: Planned,
    seen: Vec<Option<u64>>,
    /// It was answered, and the answer has waited for the log.
    is_certain: bool,
}

/// Who has transactions executed.
#[derive(Clone, Debug)]
struct Client {
    transactions: Vec<Planned>,
    /// Whether answers wait until they are durable.
    waits: bool,
}

impl Client {
    fn execute(self, database: &Database<AnyProtocol>, table: Table<Cell>) -> Vec<Attempt> {
        let Self { transactions, waits } = self;
        let durability = if waits { Durability::Immediate } else { Durability::OnCheckpoint };
        let answers = Answers::new(database.protocol().storage().journal().clone()).with(durability);
        let mut session = database.with(durability).session().unwrap();
        let mut execute = |planned: Planned| {
            let on_snapshot = planned.on_snapshot;
            let mut script = Script { table, planned, seen: Vec::new() };
            let outcome = if on_snapshot {
                let outcome = session.worker().snapshot(&mut script);
                answers.give(session.worker().take_ticket(), outcome)
            } else {
                session.execute(&mut script)
            };
            let is_certain = waits && outcome.is_ok();
            if let Err(error) = outcome {
                assert!(matches!(error, Error::LogStopped(_) | Error::Conflicts { .. }), "{error:?}");
            }
            let Script { planned, seen, .. } = script;
            Attempt { planned, seen, is_certain }
        };
        transactions.into_iter().map(&mut execute).collect()
    }
}

/// What the threads of a run do, when the power fails, and what that leaves.
#[derive(Clone, Debug)]
struct Plan {
    rows: Rows,
    clients: [Client; 2],
    reader: Client,
    /// After so many operations of the disk.
    operation: usize,
    survival: Survival,
    survivor: u64,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut random = Random::stream(52, seed);
        let rows = (0..KEYS).filter(|_| random.below(2) == 0).map(|id| (id, 1 + id)).collect();
        let mut value = 10;
        let clients = [(); 2].map(|()| {
            let transactions = (0..random.range_inclusive(1, 2)).map(|_| {
                value += 1;
                Planned::draw(&mut random, value)
            });
            let transactions = transactions.collect();
            Client { transactions, waits: random.below(4) > 0 }
        });
        let looks = (0..random.range_inclusive(1, 2)).map(|_| Planned::look(random.below(3) == 0)).collect();
        let reader = Client { transactions: looks, waits: true };
        let (operation, survivor) = (random.below(OPERATIONS) as usize, random.next_u64());
        let survival = Survival::ALL[random.below(6) as usize];
        Self { rows, clients, reader, operation, survival, survivor }
    }
}

fn open(disk: &SimulatedDisk, protocol: &str) -> Database<AnyProtocol> {
    let builder = Database::builder().small().memory_limit(24 << 20).workers(6).protocol(protocol);
    let opened = builder.open_on(&Files::new(disk.clone()), |settings| {
        let workers = settings.log.workers;
        settings.log = Options { durability: Durability::Immediate, workers, ..Options::tiny() };
        (settings.threads, settings.has_threads) = (0, false);
    });
    opened.unwrap_or_else(|error| panic!("{protocol} does not open: {error}"))
}

/// Starts a thread that leaves out what this one does. Under drawn schedules it is this one.
fn spawn<O: Send + 'static>(act: impl FnOnce() -> O + Send + 'static) -> JoinHandle<O> {
    if polychron_sync::MODELLED {
        thread::spawn(act)
    } else {
        thread::spawn(polychron_engine::mutations::inheriting(act))
    }
}

/// Whether a serial order of lists of transactions explains all that they have seen and ends with these rows. It has each list's order, and all but perhaps
/// those that are uncertain. The first list came before the others, of which snapshots alone may be of an earlier time.
fn explained(lists: &[&[Attempt]], rows: &Rows, end: &Rows) -> bool {
    if lists.iter().all(|list| list.is_empty()) {
        return rows == end;
    }
    (0..lists.len()).any(|number| {
        let Some((first, rest)) = lists[number].split_first() else { return false };
        if number > 0 && !lists[0].is_empty() && !first.planned.on_snapshot {
            return false;
        }
        let mut left = lists.to_vec();
        left[number] = rest;
        let mut changed = rows.clone();
        (first.planned.explains(&first.seen, &mut changed) && explained(&left, &changed, end))
            || (!first.is_certain && explained(&left, rows, end))
    })
}

/// Runs a plan. Answers whether the power failed before all was answered.
///
/// # Errors
/// The story, if no serial order explains it.
fn run(writer: &str, reader: &str, plan: Plan) -> Result<bool, String> {
    let disk = SimulatedDisk::new(7);
    let database = open(&disk, writer);
    let table = database.create_table::<Cell>().unwrap();
    let put = |(&id, &value): (&u64, &u64)| Planned { acts: vec![(id, Act::Put)], value, on_snapshot: false };
    let rows = Client { transactions: plan.rows.iter().map(put).collect(), waits: true };
    let begun = rows.execute(&database, table);
    assert!(begun.iter().all(|attempt| attempt.is_certain), "nothing has failed yet");

    disk.plan(disk.steps().len() + plan.operation, Fault::PowerFailure);
    let Plan { clients: [one, other], reader: looking, survival, survivor, .. } = plan;
    let threads = [one, other, looking].map(|client| {
        let database = database.clone();
        spawn(move || client.execute(&database, table))
    });
    database.protocol().memory().epochs().advance();
    let lists = threads.map(|thread| thread.join().expect("a thread ends well"));
    let is_off = disk.is_off();
    let left = disk.after_power_failure(survival, survivor);
    drop(database);

    let found = open(&left, reader);
    let table = found.table::<Cell>().unwrap().expect("it was acknowledged");
    let mut script = Script { table, planned: Planned::look(false), seen: Vec::new() };
    found.execute(&mut script).unwrap();
    let end = (0..KEYS).zip(&script.seen).filter_map(|(id, value)| value.map(|value| (id, value))).collect();
    // Each look is a list of its own: snapshots may be of any time.
    let [one, other, looks] = &lists;
    let mut all: Vec<&[Attempt]> = vec![&begun, one, other];
    all.extend(looks.chunks(1));
    if explained(&all, &Rows::new(), &end) {
        Ok(is_off)
    } else {
        Err(format!("{writer}, {reader}: no serial order explains {lists:?} behind {begun:?} that ends with {end:?}"))
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Which protocol reads what the one of this name has written.
fn reader_of(writer: &str, seed: u64) -> &'static str {
    let all = Protocols::all();
    let own = all.iter().position(|protocol| protocol.name == writer).expect("it is in the list");
    all[(own + seed as usize) % all.len()].name
}

/// Runs the plans of these seeds, each under so many schedules.
#[cfg(shuttle)]
fn explore(writer: &'static str, seeds: std::ops::Range<u64>, schedules: usize) {
    use polychron_sync::model::{explore_prioritized, explore_random};
    let (mut explored, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let plan = Plan::draw(seed);
        let model = move || {
            let outcome = run(writer, reader_of(writer, seed), plan.clone());
            outcome.map(drop).unwrap_or_else(|story| panic!("plan {seed}: {story}"));
        };
        explored += explore_random(seed, schedules.div_ceil(2), model.clone());
        explored += explore_prioritized(seed, 3, schedules / 2, model);
    }
    eprintln!("{writer}: {explored} schedules of {count} plans");
}

/// The names of all protocols that have a serial order.
fn names() -> impl Iterator<Item = &'static str> {
    let all = Protocols::all().into_iter().filter(|protocol| protocol.isolation == Isolation::Serializable);
    all.map(|protocol| protocol.name)
}

/// How often the power failed before all was answered, of the plans of these seeds.
#[cfg(not(shuttle))]
fn failures(writer: &str, seeds: std::ops::Range<u64>) -> usize {
    let run = |seed| match run(writer, reader_of(writer, seed), Plan::draw(seed)) {
        Ok(is_off) => usize::from(is_off),
        Err(story) => panic!("plan {seed}: {story}"),
    };
    seeds.map(run).sum()
}

#[test]
fn every_protocol_recovers() {
    let (first, seeds) = (number("POLYCHRON_EXPLORE_FIRST", 0), number("POLYCHRON_EXPLORE_SEEDS", 12));
    assert!(names().count() > 8);
    #[cfg(shuttle)]
    names().for_each(|writer| {
        explore(writer, first..first + seeds, number("POLYCHRON_EXPLORE_SCHEDULES", 40) as usize);
    });
    #[cfg(not(shuttle))]
    {
        let failed: usize = names().map(|writer| failures(writer, first..first + seeds)).sum();
        assert!(seeds < 12 || failed > 0, "the power never fails before the end");
    }
}

/// Whether plans show that a step is left out.
fn finds(writer: &'static str, step: impl Named) -> bool {
    let _careless = leave_out(step);
    #[cfg(shuttle)]
    {
        let search = std::panic::AssertUnwindSafe(|| explore(writer, 0..100, 40));
        let Err(story) = std::panic::catch_unwind(search) else { return false };
        let story = story.downcast_ref::<String>().expect("a text");
        assert!(story.contains("no serial order explains"), "{story}");
        true
    }
    #[cfg(not(shuttle))]
    (0..100).any(|seed| run(writer, reader_of(writer, seed), Plan::draw(seed)).is_err())
}

/// Who is answered before it is durable loses it.
#[test]
fn answers_that_do_not_wait_are_found() {
    for writer in names() {
        assert!(finds(writer, redo::Step::HoldAnswers), "{writer}");
    }
}

/// So does who has read it and has nothing of its own to wait for.
#[test]
fn reads_that_do_not_wait_are_found() {
    for writer in names() {
        assert!(finds(writer, Step::AwaitSealed), "{writer}");
    }
}
