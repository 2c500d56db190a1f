//! Random operations beside a model that is right by construction: a map, and a copy of it for each savepoint.
//!
//! Run one transaction at a time, every answer must be the model's. Run interleaved, the answers of those that committed
//! must be the model's in one of the serial orders. The model of a snapshot is any state between two commits.

use std::ops::ControlFlow;

use polychron_base::IndexId;
use polychron_base::random::Random;
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Aggregate, ColumnBatch, Direction, Error, Futures, Insertion, Interactive, Isolation, Mode, Operations, Protocol,
    Restriction, Scan, Table, Together, Transaction, Worker,
};
use polychron_schema::{Row, Value};

use crate::Setup;
use crate::client::Client;
use crate::model::{Answer, Model, Numbers, Operation, Trace, explained, story};
use crate::rows::{Person, person};
use crate::savepoints::Savepoints;
use crate::setup::{Tx, all, begin, persons, snapshot};

/// Does what `operation` says; violations of unique indexes are answers.
pub(crate) fn apply<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    operation: &Operation,
    savepoints: &mut Savepoints,
) -> Result<Answer, Error> {
    let flag = |outcome: Result<bool, Error>| match outcome {
        Ok(found) => Ok(Answer::Flag(found)),
        Err(Error::Duplicate(of)) => Ok(Answer::Duplicate(of.index)),
        Err(error) => Err(error),
    };
    Ok(match operation {
        Operation::Get(id) => Answer::Row(t.get(table, *id)?.map(crate::rows::own)),
        Operation::Insert(row) => match t.try_insert(table, row)? {
            Insertion::Inserted => Answer::Flag(true),
            Insertion::Duplicate(index) => Answer::Duplicate(index),
        },
        Operation::Upsert(row) => flag(t.upsert(table, row).map(|()| true))?,
        Operation::SetNumber(id, number) => flag(t.update(table, *id, |row| row.set_number(*number)))?,
        Operation::SetText(id, text) => flag(t.update(table, *id, |row| row.set_text(text).unwrap_or_default()))?,
        Operation::SetTeam(id, team) => flag(t.update(table, *id, |row| row.set_team(*team)))?,
        Operation::SetCode(id, code) => flag(t.update(table, *id, |row| row.set_code(*code)))?,
        Operation::Delete(id) => flag(t.delete(table, *id))?,
        Operation::Scan { from, to, backward, limit } => {
            let range = t.scan(table, *from..*to).limit(*limit);
            Answer::Rows(if *backward { range.rev().rows()? } else { range.rows()? })
        }
        Operation::ByTeam { team, backward, limit } => {
            let range = t.scan_by(table, Person::BY_TEAM, *team).limit(*limit);
            Answer::Rows(if *backward { range.rev().rows()? } else { range.rows()? })
        }
        Operation::ByCode(code) => Answer::Rows(t.scan_by(table, Person::BY_CODE, *code).rows()?),
        Operation::Columns { team } => Answer::Columns(columns(t, table, *team)?),
        question @ (Operation::Total { .. }
        | Operation::Find { .. }
        | Operation::Gather { .. }
        | Operation::Measure { .. }
        | Operation::Look(_)
        | Operation::TooLong(_)
        | Operation::Tried(_)) => return apply_question(t, table, question),
        Operation::Prefetch(from, count) => {
            (*from..from + count).for_each(|id| t.prefetch(table, id));
            Answer::Flag(true)
        }
        Operation::Savepoint => {
            savepoints.push(t.savepoint());
            Answer::Flag(true)
        }
        Operation::RollBackTo(position) => {
            match savepoints.get(*position) {
                Some(savepoint) => {
                    t.roll_back_to(savepoint)?;
                    savepoints.undone_to(*position);
                }
                None => savepoints.try_void(t, *position)?,
            }
            Answer::Flag(true)
        }
        futures => return apply_later(t, table, futures),
    })
}

/// As [`apply`], for questions of all kinds, and what is refused or undone.
fn apply_question<T: Transaction>(t: &mut T, table: &Table<Person>, operation: &Operation) -> Result<Answer, Error> {
    Ok(match operation {
        Operation::Total { team, wanted } => measure(t, table, &of_team(*team), *wanted)?,
        Operation::Find { restrictions, backward, limit } => {
            Answer::Ids(find(t, table, restrictions, *backward, *limit)?)
        }
        Operation::Gather { restrictions } => Answer::Ids(gather(t, table, restrictions)?),
        Operation::Measure { restrictions, wanted } => measure(t, table, restrictions, *wanted)?,
        Operation::Look(id) => {
            let mut seen = Answer::Flag(false);
            t.update_columns(table, *id, (Person::NUMBER,), |row| seen = Answer::Number(row.number()))?;
            seen
        }
        Operation::TooLong(id) => {
            let row = Person { text: "l".repeat(5000), ..person(*id, 1, *id as u32) };
            match t.upsert(table, &row) {
                Err(Error::TooLong(_)) => Answer::Refused,
                Err(error) => return Err(error),
                Ok(()) => Answer::Flag(true),
            }
        }
        Operation::Tried(operation) => {
            let savepoint = t.savepoint();
            let answer = apply(t, table, operation, &mut Savepoints::default())?;
            t.roll_back_to(savepoint)?;
            answer
        }
        other => unreachable!("{other:?} is no question"),
    })
}

fn of_team(team: Option<u16>) -> Vec<Restriction> {
    let value = |team: u16| Value::Unsigned(team.into());
    let column = Person::TEAM.index.into();
    let restriction = |team| Restriction { column, comparison: Comparison::Equal, value: value(team) };
    team.map(restriction).into_iter().collect()
}

/// The ids of the rows that satisfy restrictions.
fn find<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    restrictions: &[Restriction],
    backward: bool,
    limit: usize,
) -> Result<Vec<u64>, Error> {
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let projection = Person::ID.projection();
    let mut ids = Vec::new();
    t.scan_rows(&Scan { direction, limit, projection, restrictions, ..Scan::all(table.id()) }, &mut |row| {
        ids.push(Person::view(row).id());
        if ids.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(ids)
}

/// The same from batches, in order.
fn gather<T: Transaction>(t: &mut T, table: &Table<Person>, restrictions: &[Restriction]) -> Result<Vec<u64>, Error> {
    let scan = Scan { restrictions, ..Scan::all(table.id()) };
    let id = [usize::from(Person::ID.index)];
    let mut look =
        |batch: &ColumnBatch<'_>| batch.positions().map(|row| batch.columns[0].bits(row)).collect::<Vec<_>>();
    let mut ids = Vec::new();
    t.scan_columns(&scan, &id, &mut look, &mut |more: Vec<_>| {
        ids.extend(more);
        ControlFlow::Continue(())
    })?;
    ids.sort_unstable();
    Ok(ids)
}

/// An aggregate; that there is none is an answer.
fn measure<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    restrictions: &[Restriction],
    wanted: Aggregate,
) -> Result<Answer, Error> {
    let scan = Scan { restrictions, ..Scan::all(table.id()) };
    match t.aggregate(&scan, wanted) {
        Ok(value) => Ok(Answer::Value(value)),
        Err(Error::Conflict) => Err(Error::Conflict),
        Err(Error::NoAnswer(_)) => Ok(Answer::Refused),
        Err(error) => Err(error),
    }
}

/// The numbers of the rows, in the order of their ids.
fn columns<T: Transaction>(t: &mut T, table: &Table<Person>, team: Option<u16>) -> Result<Vec<Numbers>, Error> {
    let restrictions = of_team(team);
    let scan = Scan { restrictions: &restrictions, ..Scan::all(table.id()) };
    let wanted = [Person::ID.index, Person::TEAM.index, Person::CODE.index, Person::NUMBER.index].map(usize::from);
    let mut look = |batch: &ColumnBatch<'_>| {
        let [id, team, code, number] = batch.columns else { unreachable!("four columns were wanted") };
        let row = |row: usize| {
            let code_of_row = (!code.is_null(row)).then(|| code.bits(row) as u32);
            (id.bits(row), team.bits(row) as u16, code_of_row, number.bits(row) as i64)
        };
        batch.positions().map(row).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    t.scan_columns(&scan, &wanted, &mut look, &mut |more: Vec<_>| {
        rows.extend(more);
        std::ops::ControlFlow::Continue(())
    })?;
    rows.sort_unstable_by_key(|row| row.0);
    Ok(rows)
}

/// As [`apply`], for operations on futures.
fn apply_later<T: Transaction>(t: &mut T, table: &Table<Person>, operation: &Operation) -> Result<Answer, Error> {
    Ok(match operation {
        Operation::Ask { id, at_least, assumed } => {
            let number = t.future(table, *id, Person::NUMBER)?;
            let condition = number.at_least(*at_least);
            Answer::Flag(match assumed {
                Some(assumed) => t.is_true_assuming(condition, *assumed)?,
                None => t.is_true(condition)?,
            })
        }
        Operation::AskOrder(left, right) => {
            let left = t.future(table, *left, Person::NUMBER)?;
            let right = t.future(table, *right, Person::NUMBER)?;
            Answer::Flag(t.is_true(left.greater_than(right))?)
        }
        Operation::AddLater(id, more) => {
            let number = t.future(table, *id, Person::NUMBER)?;
            t.set_future(table, *id, Person::NUMBER, number + *more)?;
            Answer::Flag(true)
        }
        Operation::NumberLater(from, to) => {
            let number = t.future(table, *from, Person::NUMBER)?;
            t.set_future(table, *to, Person::NUMBER, number + 1)?;
            Answer::Flag(true)
        }
        Operation::TeamLater(from, to) => {
            let team = t.future(table, *from, Person::TEAM)?;
            t.set_future(table, *to, Person::TEAM, team)?;
            Answer::Flag(true)
        }
        Operation::TextLater(from, to) => {
            let number = t.future(table, *from, Person::NUMBER)?;
            let length = t.future(table, *to, Person::TEXT)?.length();
            t.set_future(table, *to, Person::TEXT, number.convert::<String>() + "/" + length.convert::<String>())?;
            Answer::Flag(true)
        }
        Operation::AskText(left, right) => {
            let left = t.future(table, *left, (Person::TEXT, Person::CODE))?;
            let right = t.future(table, *right, (Person::TEXT, Person::CODE))?;
            Answer::Flag(t.is_true(left.comes_before(right))?)
        }
        Operation::Resolve(id) => {
            let number = t.future(table, *id, Person::NUMBER)?;
            Answer::Number(t.resolve(number)?)
        }
        ordinary => unreachable!("{ordinary:?} has no futures"),
    })
}

/// Transactions one after the other, some rolled back: every answer and every end state is the model's.
pub fn one_by_one<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for seed in 0..12 {
        let mut random = Random::stream(11, seed);
        let (database, table) = persons(setup, &[]);
        let mut worker = database.worker().unwrap();
        let (mut model, mut savepoints) = (Model::default(), Savepoints::default());
        for round in 0..120 {
            let mut client = begin(&mut worker);
            let mut trial = model.clone();
            savepoints.ended();
            for _ in 0..random.range_inclusive(1, 14) {
                let operation = Operation::draw_of_questions(&mut random, 12);
                let expected = trial.apply(&operation);
                let answer = client.step(|t| apply(t, &table, &operation, &mut savepoints));
                assert_eq!(answer, Some(expected), "seed {seed}, round {round}: {operation:?}");
            }
            if random.below(4) == 0 {
                client.roll_back();
            } else {
                assert!(client.commit(), "nobody was there to conflict with");
                model = trial.committed();
            }
            if random.below(3) == 0 {
                (setup.tick)(&database);
                worker.maintain();
            }
            if round % 10 == 0 {
                assert_eq!(all(&mut worker, &table), model.rows());
            }
        }
        assert_eq!(all(&mut worker, &table), model.rows());
    }
}

/// Runs one round of interleaved transactions. `None`: some serial order explains it. Otherwise what happened.
fn interleave<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    random: &mut Random,
    database: &std::sync::Arc<P>,
    table: &Table<Person>,
    workers: &mut [P::Worker],
    draw: fn(&mut Random) -> Operation,
) -> Result<usize, String> {
    let (watcher, workers) = workers.split_first_mut().expect("there is a worker that watches");
    let start = Model::of(all(watcher, table));
    let count = workers.len();
    let mut traces: Vec<Trace> = vec![Vec::new(); count];
    let mut committed = vec![false; count];
    let mut clients: Vec<Option<Client<Tx<'_, P>>>> = workers.iter_mut().map(|worker| Some(begin(worker))).collect();
    let mut savepoints = vec![Savepoints::default(); count];
    let mut left: Vec<u64> = (0..count).map(|_| random.range_inclusive(1, 6)).collect();
    while clients.iter().any(Option::is_some) {
        let turn = random.below(count as u64) as usize;
        if random.below(6) == 0 {
            (setup.tick)(database);
            watcher.maintain();
        }
        let Some(client) = &mut clients[turn] else { continue };
        if left[turn] > 0 {
            left[turn] -= 1;
            let operation = draw(random);
            if let Some(answer) = client.step(|t| apply(t, table, &operation, &mut savepoints[turn])) {
                traces[turn].push((operation, answer));
            }
        } else if let Some(client) = clients[turn].take() {
            committed[turn] = client.commit();
        }
    }
    let end = all(watcher, table);
    let commits: Vec<Vec<Trace>> = (0..count).filter(|&at| committed[at]).map(|at| vec![traces[at].clone()]).collect();
    if explained(&start, &commits, &[], &end) { Ok(commits.len()) } else { Err(story(&start, &commits, &[], &end)) }
}

/// Interleaved rounds from a seed, until one is found that no serial order explains.
pub fn find_anomaly<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, seed: u64, rounds: usize) -> Option<String> {
    find_anomaly_among(setup, seed, rounds, &[], |random| Operation::draw_of_questions(random, 6))
}

/// The same with futures.
pub(crate) fn find_anomaly_of_futures<P>(setup: &Setup<P>, seed: u64, rounds: usize) -> Option<String>
where
    P: Protocol<Worker: Interactive>,
{
    let rows: Vec<_> = (0..3).map(|id| person(id, id as u16, id as u32)).collect();
    find_anomaly_among(setup, seed, rounds, &rows, |random| Operation::draw_of_futures(random, 3))
}

fn find_anomaly_among<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    seed: u64,
    rounds: usize,
    rows: &[Person],
    draw: fn(&mut Random) -> Operation,
) -> Option<String> {
    let mut random = Random::stream(12, seed);
    let (database, table) = persons(setup, rows);
    let mut workers: Vec<_> = (0..4).map(|_| database.worker().expect("a slot is free")).collect();
    let mut commits = 0;
    for round in 0..rounds {
        match interleave(setup, &mut random, &database, &table, &mut workers, draw) {
            Ok(committed) => commits += committed,
            Err(story) => return Some(format!("seed {seed}, round {round}: {story}")),
        }
    }
    assert!(commits >= rounds, "hardly anything commits: {commits} in {rounds} rounds");
    None
}

/// Three transactions at a time, step by step in random turns: those that commit have a serial order, where that is promised.
///
/// `POLYCHRON_CHECK_SEEDS` sets how many seeds are tried.
pub fn interleaved<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.isolation != Isolation::Serializable {
        return;
    }
    let seeds = std::env::var("POLYCHRON_CHECK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(6);
    for seed in 0..seeds {
        if let Some(story) = find_anomaly(setup, seed, 400) {
            panic!("{story}");
        }
    }
}

/// Snapshots of all ages show the state after some commit, by every index, and go on showing it.
pub fn snapshots_are_past_states<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.snapshots_lock {
        return;
    }
    for seed in 0..4 {
        let mut random = Random::stream(13, seed);
        let (database, table) = persons(setup, &[]);
        let mut writer = database.worker().unwrap();
        let mut readers: Vec<_> = (0..6).map(|_| database.worker().unwrap()).collect();
        let mut open: Vec<(Client<Tx<'_, P>>, Vec<Person>)> = Vec::new();
        let mut idle: Vec<_> = readers.iter_mut().collect();
        let (mut model, mut history) = (Model::default(), vec![Vec::new()]);
        for _ in 0..250 {
            let operations: Vec<_> = (0..4).map(|_| Operation::draw_of_columns(&mut random, 10)).collect();
            let mut client = begin(&mut writer);
            let mut savepoints = Savepoints::default();
            for operation in &operations {
                client.step(|t| apply(t, &table, operation, &mut savepoints));
                model.apply(operation);
            }
            assert!(client.commit());
            model = model.committed();
            history.push(model.rows());
            if random.below(2) == 0 {
                (setup.tick)(&database);
                writer.maintain();
            }
            if random.below(3) == 0
                && let Some(reader) = idle.pop()
            {
                let mut client = Client::begin(reader, Mode::Snapshot);
                let seen = client.step(|t| t.scan(&table, ..).rows()).expect("a snapshot does not conflict");
                assert!(history.contains(&seen), "seed {seed}: this never was: {seen:?}");
                open.push((client, seen));
            }
            for (client, first) in &mut open {
                let now = client.step(|t| {
                    let mut by_team = t.scan_range_by::<_, _, u16>(&table, Person::BY_TEAM, ..).rows()?;
                    by_team.sort_by_key(|row| row.id);
                    Ok((t.scan(&table, ..).rows()?, by_team, t.get(&table, 3)?.map(crate::rows::own)))
                });
                let third = first.iter().find(|row| row.id == 3).cloned();
                assert_eq!(now, Some((first.clone(), first.clone(), third)), "seed {seed}: a snapshot changed");
            }
        }
        drop(open);
        setup.pass(&database, 3);
        assert_eq!(snapshot(&mut writer, |t| t.scan(&table, ..).rows()), model.rows());
    }
}

/// The id of the unique index of persons, as the model answers it.
pub(crate) const BY_CODE: IndexId = IndexId(2);
