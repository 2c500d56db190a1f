//! A log that has stopped: what was durable is answered, and what was lost is not, under every protocol and whatever is asked.
//!
//! Some transactions are acknowledged, others commit and are not made durable; then the disk fails. The keys of the latter are lost. A question that
//! meets none of them has the answer that all acknowledged transactions give; every other one is answered [`Error::LogStopped`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use polychron::{
    Access, AnyProtocol, Database, Declare, Durability, Error, Operations, Procedure, Row, Table, Transaction,
};
use polychron_base::random::Random;
use polychron_crash::Item;
use polychron_engine::mutations::leave_out;
use polychron_engine::redo;
use polychron_log::Options;
use polychron_log::steps::Step;
use polychron_sim::{Fault, SimulatedDisk};

use crate::client::{names, open_with};
use crate::runs;

/// Rows have keys below; questions go beyond.
const KEYS: u64 = 40;

/// Rows with a secondary index.
#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_owner", columns(owner))]
struct Owned {
    #[key]
    id: u64,
    owner: u64,
}

/// What is there of a row that was asked for: its key and its number.
type Answer = Vec<(u64, u64)>;

/// What is asked of the items.
#[derive(Clone, Debug)]
enum Question {
    Get(u64),
    GetUnvalidated(u64),
    Contains(u64),
    Rows(Range<u64>),
    Some(Range<u64>, usize),
    First(Range<u64>),
    Last(Range<u64>),
    Until(Range<u64>, u64),
    Count(Range<u64>),
    Sum(Range<u64>),
    Len,
    All,
}

impl Question {
    fn draw(random: &mut Random) -> Self {
        let key = random.below(KEYS + 5);
        let range = key..key + 1 + random.below(KEYS / 3);
        match random.below(12) {
            0 | 1 => Self::Get(key),
            2 => Self::GetUnvalidated(key),
            3 => Self::Contains(key),
            4 => Self::Rows(range),
            5 => Self::Some(range, 1 + random.below(4) as usize),
            6 => Self::First(key..u64::MAX),
            7 => Self::Last(0..key),
            8 => Self::Until(key..u64::MAX, key + random.below(8)),
            9 => Self::Count(range),
            10 => Self::Sum(range),
            _ if random.below(3) > 0 => Self::Len,
            _ => Self::All,
        }
    }

    /// What the items answer, and the keys on which that depends.
    fn expected(&self, items: &BTreeMap<u64, Item>) -> (Answer, Range<u64>) {
        let rows = |range: &Range<u64>| -> Answer {
            items.range(range.clone()).map(|(id, item)| (*id, item.number)).collect()
        };
        let up_to = |answer: &Answer, range: &Range<u64>, count: usize| {
            let stops = answer.len() >= count;
            range.start..if stops { answer[count - 1].0 + 1 } else { range.end }
        };
        match self {
            Self::Get(key) | Self::GetUnvalidated(key) => (rows(&(*key..key + 1)), *key..key + 1),
            Self::Contains(key) => (vec![(*key, items.contains_key(key).into())], *key..key + 1),
            Self::Rows(range) => (rows(range), range.clone()),
            Self::Some(range, count) => {
                let all = rows(range);
                (all[..all.len().min(*count)].to_vec(), up_to(&all, range, *count))
            }
            Self::First(range) => {
                let all = rows(range);
                (all[..all.len().min(1)].to_vec(), up_to(&all, range, 1))
            }
            Self::Last(range) => {
                let last: Answer = rows(range).last().copied().into_iter().collect();
                let start = last.first().map_or(range.start, |last| last.0);
                (last, start..range.end)
            }
            Self::Until(range, end) => {
                let all = rows(range);
                let count = all.iter().take_while(|(id, _)| id < end).count() + 1;
                (all[..all.len().min(count)].to_vec(), up_to(&all, range, count))
            }
            Self::Count(range) => (vec![(0, rows(range).len() as u64)], range.clone()),
            Self::Sum(range) => (vec![(0, rows(range).iter().map(|row| row.1).sum())], range.clone()),
            Self::Len => (vec![(0, items.len() as u64)], 0..u64::MAX),
            Self::All => (rows(&(0..u64::MAX)), 0..u64::MAX),
        }
    }
}

struct Ask(Table<Item>, Question);

impl Procedure for Ask {
    type Output = Answer;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Answer, Error> {
        let Self(items, question) = self;
        let pair = |row: Item| (row.id, row.number);
        match question {
            Question::Get(key) => Ok(t.get_owned(items, *key)?.map(pair).into_iter().collect()),
            Question::GetUnvalidated(key) => {
                let row = t.get_unvalidated(items, *key)?;
                Ok(row.map(|row| (row.id(), row.number())).into_iter().collect())
            }
            Question::Contains(key) => Ok(vec![(*key, t.contains(items, *key)?.into())]),
            Question::Rows(range) => Ok(t.scan(items, range.clone()).rows()?.into_iter().map(pair).collect()),
            Question::Some(range, count) => {
                let some = t.scan(items, range.clone()).limit(*count).map(|row| (row.id(), row.number()));
                some.collect::<Vec<_>>()
            }
            Question::First(range) => {
                let first = t.scan(items, range.clone()).first(|row| (row.id(), row.number()))?;
                Ok(first.into_iter().collect())
            }
            Question::Last(range) => {
                let last = t.scan(items, range.clone()).last(|row| (row.id(), row.number()))?;
                Ok(last.into_iter().collect())
            }
            Question::Until(range, end) => {
                let mut answer = Answer::new();
                t.scan(items, range.clone()).visit(|row| {
                    answer.push((row.id(), row.number()));
                    if row.id() < *end { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
                })?;
                Ok(answer)
            }
            Question::Count(range) => Ok(vec![(0, t.scan(items, range.clone()).count()?)]),
            Question::Sum(range) => {
                let sum = t.scan(items, range.clone()).sum_of(Item::NUMBER)?;
                Ok(vec![(0, sum.unwrap_or_default())])
            }
            Question::Len => Ok(vec![(0, t.len(items)?)]),
            Question::All => {
                let mut answer = Answer::new();
                t.visit_all(items, |row| answer.push((row.id(), row.number())))?;
                answer.sort_unstable();
                Ok(answer)
            }
        }
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// Who owns how many rows, found by the index.
struct CountOwned(Table<Owned>, u64);

impl Procedure for CountOwned {
    type Output = u64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<u64, Error> {
        t.scan_by(&self.0, Owned::BY_OWNER, self.1).count()
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// A transaction that writes some rows, of which none: it is deleted.
struct Write(Table<Item>, Vec<(u64, Option<Item>)>);

impl Procedure for Write {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        for (key, row) in &self.1 {
            match row {
                // Where there is a row with such a text, its number alone changes.
                Some(row) if row.text.len() % 2 == 0 => {
                    let number = row.number;
                    if !t.update(&self.0, *key, |old| old.set_number(number))? {
                        t.insert(&self.0, row)?;
                    }
                }
                Some(row) => t.upsert(&self.0, row)?,
                None => _ = t.delete(&self.0, *key)?,
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.0.id(), all, Access::Write);
    }
}

struct Own(Table<Owned>, Vec<Owned>);

impl Procedure for Own {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.1.iter().try_for_each(|row| t.upsert(&self.0, row))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.0.id(), all, Access::Write);
    }
}

/// A database whose log has stopped.
struct Stopped {
    database: Database<AnyProtocol>,
    items: Table<Item>,
    owned: Table<Owned>,
    /// What all transactions have left that have committed, and what those that are durable have left.
    present: BTreeMap<u64, Item>,
    durable: BTreeMap<u64, Item>,
    /// The keys that others have written. Those of which the row is as it was before may count as lost, or not.
    lost: BTreeSet<u64>,
    /// A row was written of the table with an index that is not durable.
    has_lost_owned: bool,
}

fn drawn_write(random: &mut Random, items: &mut BTreeMap<u64, Item>, number: u64) -> Vec<(u64, Option<Item>)> {
    let mut changes = Vec::new();
    for _ in 0..1 + random.below(3) {
        let id = random.below(KEYS);
        let text = "text".repeat(random.below(4) as usize) + if random.below(2) == 0 { "" } else { "." };
        let row = (random.below(4) > 0).then_some(Item { id, number, text });
        match &row {
            None => _ = items.remove(&id),
            Some(row) => {
                let updated = items.get_mut(&id).filter(|_| row.text.len().is_multiple_of(2));
                match updated {
                    Some(old) => old.number = number,
                    None => _ = items.insert(id, row.clone()),
                }
            }
        }
        changes.push((id, row));
    }
    changes
}

/// A database that has stopped; `None` where the log has not waited for that until all was committed.
fn stop(protocol: &str, seed: u64) -> Option<Stopped> {
    let mut random = Random::from_seed(seed);
    let disk = SimulatedDisk::new(seed);
    let database = open_with(&disk, protocol, |settings| {
        // Some epochs take several frames.
        let (workers, frame_bytes) = (settings.log.workers, if seed.is_multiple_of(3) { 512 } else { 8 << 10 });
        settings.log =
            Options { workers, unflushed_bytes: 256 << 10, transaction_bytes: 64 << 10, frame_bytes, ..settings.log };
    })
    .unwrap();
    let (items, owned) = (database.create_table::<Item>().unwrap(), database.create_table::<Owned>().unwrap());
    let (mut durable, mut lost) = (BTreeMap::new(), BTreeSet::new());
    for number in 0..20 + random.below(20) {
        let changes = drawn_write(&mut random, &mut durable, number);
        database.execute(&mut Write(items, changes)).unwrap();
    }
    let rows = (0..9).map(|id| Owned { id, owner: id % 3 }).collect();
    database.execute(&mut Own(owned, rows)).unwrap();
    let (lazily, before) = (database.with(Durability::OnCheckpoint), disk.steps().len());
    let mut present = durable.clone();
    for number in 0..random.below(4) {
        let changes = drawn_write(&mut random, &mut present, 1000 + number);
        lost.extend(changes.iter().map(|(key, _)| *key));
        lazily.execute(&mut Write(items, changes)).unwrap();
    }
    let has_lost_owned = random.below(2) == 0;
    if has_lost_owned {
        lazily.execute(&mut Own(owned, vec![Owned { id: random.below(12), owner: 3 }])).unwrap();
    }
    if disk.steps().len() > before {
        return None;
    }
    // Not always the first operation of the flush: a frame may be written, and not synced.
    disk.plan(before + random.below(3) as usize, Fault::FailForEver);
    let changes = drawn_write(&mut random, &mut present, 2000);
    lost.extend(changes.iter().map(|(key, _)| *key));
    let failed = database.execute(&mut Write(items, changes));
    match failed {
        Ok(()) => return None,
        Err(error) => assert!(matches!(error, Error::LogStopped(_)), "{protocol}, seed {seed}: {error:?}"),
    }
    Some(Stopped { database, items, owned, present, durable, lost, has_lost_owned })
}

impl Stopped {
    /// The answers that a procedure gets in every way to execute it, and whether the answer may be an earlier one.
    fn asked(&self, question: &Question) -> Vec<(&'static str, bool, Result<Answer, Error>)> {
        let ask = || Ask(self.items, question.clone());
        let mut session = self.database.session().unwrap();
        let mut answers = vec![
            ("executed", false, self.database.execute(&mut ask())),
            ("in a session", false, session.execute(&mut ask())),
        ];
        session.execute_batch(&mut [ask()], |_, outcome| answers.push(("in a batch", false, outcome)));
        drop(session);
        answers.push(("a snapshot", true, self.database.snapshot(|t| ask().run(t))));
        answers.push(("a closure", false, self.database.transact(|t| ask().run(t))));
        // Not where procedures are planned.
        if let Ok(mut open) = self.database.begin() {
            let answer = ask().run(&mut open);
            answers.push(("committed", false, open.commit().and(answer)));
            let mut open = self.database.begin().unwrap();
            let answer = ask().run(&mut open);
            let is_certain = open.rollback();
            let refused = || Error::log_stopped("rolled back".to_owned());
            answers.push(("rolled back", false, if is_certain { answer } else { Err(refused()) }));
        }
        answers
    }

    /// What is wrong with the answers to a question.
    fn complaint(&self, question: &Question) -> Option<String> {
        let (answer, keys) = question.expected(&self.present);
        let meets = self.lost.range(keys.clone()).any(|key| self.present.get(key) != self.durable.get(key));
        let may_meet = self.lost.range(keys.clone()).next().is_some();
        for (how, is_past, answered) in self.asked(question) {
            let is_right = match &answered {
                Ok(answered) if meets => is_past && *answered == question.expected(&self.durable).0,
                Ok(answered) => *answered == answer,
                Err(Error::LogStopped(_)) => may_meet,
                Err(_) => false,
            };
            if !is_right {
                return Some(format!(
                    "{how}, {question:?} is answered {answered:?}, not {answer:?}; lost: {:?}",
                    self.lost
                ));
            }
        }
        None
    }

    /// What is wrong with the answers to what is submitted: they wait for all that was sealed before, whatever they depend on, and some of that is lost.
    fn complaint_of_submissions(&self) -> Option<String> {
        let submitted = [Question::Get(KEYS + 3), Question::Len].map(|question| {
            let ask = Ask(self.items, question.clone());
            (question, self.database.submit(ask))
        });
        submitted.into_iter().find_map(|(question, submission)| {
            let answered = submission.wait();
            let is_right = matches!(answered, Err(Error::LogStopped(_)));
            (!is_right).then(|| format!("submitted, {question:?} is answered {answered:?}"))
        })
    }

    /// What is wrong with what an index leads to.
    fn complaint_of_index(&self) -> Option<String> {
        let answered = self.database.execute(&mut CountOwned(self.owned, 1));
        let is_right = match &answered {
            Ok(count) => !self.has_lost_owned && *count == 3,
            Err(Error::LogStopped(_)) => self.has_lost_owned,
            Err(_) => false,
        };
        (!is_right).then(|| format!("an index is answered {answered:?}"))
    }
}

/// What is wrong in one run, if anything. `None`, too, where nothing could be asked.
fn complaint(protocol: &str, seed: u64, asked: &mut usize) -> Option<String> {
    let stopped = stop(protocol, seed)?;
    let mut random = Random::stream(seed, 1);
    let keys = (0..KEYS + 3).map(Question::Get);
    let questions: Vec<_> = keys.chain((0..40).map(|_| Question::draw(&mut random))).collect();
    *asked += questions.len();
    let wrong = questions.iter().find_map(|question| stopped.complaint(question));
    // Nothing that writes is answered otherwise.
    let write = stopped.database.execute(&mut Write(
        stopped.items,
        vec![(KEYS + 2, None), (KEYS + 9, Some(Item { id: KEYS + 9, number: 0, text: String::new() }))],
    ));
    let written = (!matches!(write, Err(Error::LogStopped(_)))).then(|| format!("a write is answered {write:?}"));
    wrong.or_else(|| stopped.complaint_of_index()).or(written).or_else(|| stopped.complaint_of_submissions())
}

#[test]
fn durable_data_is_read_and_lost_data_is_not() {
    for protocol in names() {
        let mut asked = 0;
        for seed in runs(6) {
            if let Some(wrong) = complaint(protocol, seed, &mut asked) {
                panic!("{protocol}, seed {seed}: {wrong}");
            }
        }
        assert!(asked > 0, "{protocol}: no log has stopped");
    }
}

/// Whether each protocol says something wrong without a step.
fn each_needs(leave: impl Fn() -> polychron_engine::mutations::LeftOut) {
    for protocol in names() {
        let _careless = leave();
        let wrong = (0..24).find_map(|seed| complaint(protocol, seed, &mut 0));
        assert!(wrong.is_some(), "{protocol} answers all the same");
    }
}

#[test]
fn keys_are_watched() {
    each_needs(|| leave_out(redo::Step::WatchKeys));
}

#[test]
fn ranges_are_watched() {
    each_needs(|| leave_out(redo::Step::WatchRanges));
}

#[test]
fn what_the_flush_had_taken_is_lost() {
    each_needs(|| leave_out(Step::LoseTaken));
}
