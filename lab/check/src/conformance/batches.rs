//! Procedures that are handed over at once, and declare keys: what they declare, in which order and how much of it, changes no
//! answer.

use std::panic::resume_unwind;
use std::sync::Arc;

use polychron_base::clock::SystemClock;
use polychron_base::key::{Key8, MAX_KEY_BYTES};
use polychron_base::random::Random;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{
    Access, Declare, Error, Interactive, Operations, Procedure, Protocol, Table, TableId, Transaction, Worker,
};

use super::differential::apply;
use crate::Setup;
use crate::model::{Answer, Model, Operation};
use crate::rows::{Cell, Item, Person};
use crate::savepoints::Savepoints;
use crate::setup::{all, create, done, persons};

const KEYS: u64 = 10;

/// Random operations, and declarations that need not have anything to do with them.
struct Scripted {
    table: Table<Person>,
    operations: Vec<Operation>,
    declared: Vec<u64>,
}

impl Scripted {
    fn draw(random: &mut Random, table: &Table<Person>) -> Self {
        let operations = (0..random.range_inclusive(1, 10)).map(|_| Operation::draw(random, KEYS)).collect();
        let declared = (0..random.below(12)).map(|_| random.below(KEYS + 3)).collect();
        Self { table: *table, operations, declared }
    }
}

impl Procedure for Scripted {
    type Output = Vec<Answer>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<Answer>, Error> {
        let mut savepoints = Savepoints::default();
        self.operations.iter().map(|operation| apply(transaction, &self.table, operation, &mut savepoints)).collect()
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        for &id in &self.declared {
            let access = [Access::Read, Access::Write, Access::Insert][id as usize % 3];
            declaration.key(self.table.id(), Key8::new(id, 8), access);
        }
        declaration.unknown();
    }
}

/// Batches of procedures answer as they would one after the other, whatever they declare.
pub fn declared_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for seed in 0..10 {
        let mut random = Random::stream(14, seed);
        let (database, table) = persons(setup, &[]);
        let mut worker = database.worker().unwrap();
        let mut model = Model::default();
        for round in 0..20 {
            let mut batch: Vec<_> =
                (0..random.range_inclusive(1, 20)).map(|_| Scripted::draw(&mut random, &table)).collect();
            let mut answers = Vec::new();
            worker.execute_batch(&mut batch, &mut |position, outcome| {
                answers.push((position, outcome.expect("nobody is there to conflict with")));
            });
            // A protocol may choose the order, and answers in it.
            for (position, answers) in answers {
                let operations = &batch[position].operations;
                let expected: Vec<_> = operations.iter().map(|operation| model.apply(operation)).collect();
                assert_eq!(answers, expected, "seed {seed}, round {round}: {operations:?}");
                model = model.committed();
            }
            if random.below(3) == 0 {
                (setup.tick)(&database);
                worker.maintain();
            }
        }
        assert_eq!(all(&mut worker, &table), model.rows());
    }
}

/// Moves a value from one key to another, through their absence.
struct Move {
    table: Table<Cell>,
    from: u64,
    to: u64,
}

impl Procedure for Move {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Error> {
        if !transaction.has_prefetched() {
            transaction.prefetch(&self.table, self.from);
            transaction.prefetch(&self.table, self.to);
        }
        let (Some(source), None) =
            (transaction.get(&self.table, self.from)?.map(|row| row.value()), transaction.get(&self.table, self.to)?)
        else {
            return Ok(None);
        };
        transaction.delete(&self.table, self.from)?;
        transaction.insert(&self.table, &Cell { id: self.to, value: source + 1 })?;
        let moved = transaction.get(&self.table, self.to)?.map(|row| row.value());
        Ok(if transaction.get(&self.table, self.from)?.is_none() { moved } else { None })
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        for id in [self.from, self.to] {
            declaration.key(self.table.id(), Key8::new(id, 8), Access::Write);
        }
    }
}

/// A value that wanders from key to key: each procedure of a batch finds what the one before it left, not what was there when its
/// keys were looked up.
pub fn hashed_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Cell>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.insert(&table, &Cell { id: 0, value: 0 }));
    let (mut at, mut steps) = (0, 0);
    for length in [1, 2, 7, 8, 9, 40] {
        let places: Vec<u64> = (0..=length).map(|step| (at + step * 3) % 11).collect();
        let mut batch: Vec<_> = places.windows(2).map(|pair| Move { table, from: pair[0], to: pair[1] }).collect();
        let mut seen = vec![None; batch.len()];
        worker.execute_batch(&mut batch, &mut |position, outcome| {
            seen[position] = outcome.expect("nobody else is there");
        });
        let expected: Vec<_> = (steps + 1..=steps + length as i64).map(Some).collect();
        assert_eq!(seen, expected);
        (at, steps) = (places[length as usize], steps + length as i64);
        (setup.tick)(&database);
        worker.maintain();
    }
    let rows = done(&mut worker, |t| {
        (0..11).map(|id| Ok(t.get(&table, id)?.map(|row| row.value()))).collect::<Result<Vec<_>, Error>>()
    });
    assert_eq!(rows.iter().flatten().collect::<Vec<_>>(), [&steps]);
    assert_eq!(rows[at as usize], Some(steps));
}

/// What a procedure names that is of no use to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Nothing,
    TableOfAnother,
    DroppedTable,
    TableThatNeverWas,
    EmptyKey,
    ShortKey,
    WideKey,
    LongestKey,
    LongKey,
    VeryLongKey,
    EmptyPrefix,
    HighestPrefix,
    LongPrefix,
    ManyKeys,
    TheSameInEachWay,
    Panics,
}

impl Odd {
    const ALL: [Self; 16] = [
        Self::Nothing,
        Self::TableOfAnother,
        Self::DroppedTable,
        Self::TableThatNeverWas,
        Self::EmptyKey,
        Self::ShortKey,
        Self::WideKey,
        Self::LongestKey,
        Self::LongKey,
        Self::VeryLongKey,
        Self::EmptyPrefix,
        Self::HighestPrefix,
        Self::LongPrefix,
        Self::ManyKeys,
        Self::TheSameInEachWay,
        Self::Panics,
    ];

    /// What the procedure may be answered besides its own answer.
    fn may_answer(self, error: &Error) -> bool {
        match self {
            Self::LongKey | Self::VeryLongKey | Self::LongPrefix => matches!(error, Error::KeyTooLong(_)),
            Self::Panics => matches!(error, Error::Panicked(_)),
            _ => false,
        }
    }
}

/// Adds to a row, and counts all rows.
struct Oddly {
    table: Table<Item>,
    hashed: TableId,
    dropped: TableId,
    elsewhere: TableId,
    id: u64,
    odd: Odd,
}

impl Procedure for Oddly {
    type Output = u64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<u64, Error> {
        assert!(t.update(&self.table, self.id, |row| row.set_value(row.value() + 1))?);
        t.scan(&self.table, ..).count()
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let (table, own) = (self.table.id(), Key8::new(self.id, 8));
        declaration.key(table, own, Access::Update);
        let mut name = |table, key: &[u8]| {
            for access in [Access::Read, Access::Write, Access::Insert] {
                declaration.key(table, key, access);
            }
        };
        let both = |name: &mut dyn FnMut(TableId, &[u8]), key: &[u8]| {
            name(table, key);
            name(self.hashed, key);
        };
        match self.odd {
            Odd::Nothing => {}
            Odd::TableOfAnother => name(self.elsewhere, &[0; 8]),
            Odd::DroppedTable => name(self.dropped, &[0; 8]),
            Odd::TableThatNeverWas => name(TableId::new(table.database(), 4000), &[0; 8]),
            Odd::EmptyKey => both(&mut name, &[]),
            Odd::ShortKey => both(&mut name, &[0; 3]),
            Odd::WideKey => both(&mut name, &[0; 40]),
            Odd::LongestKey => both(&mut name, &[7; MAX_KEY_BYTES]),
            Odd::LongKey => both(&mut name, &[7; MAX_KEY_BYTES + 1]),
            Odd::VeryLongKey => both(&mut name, &[7; 70_000]),
            Odd::EmptyPrefix => declaration.prefix(table, &[][..], Access::Write),
            Odd::HighestPrefix => declaration.prefix(table, &[255; 8][..], Access::Write),
            Odd::LongPrefix => declaration.prefix(table, &[1; MAX_KEY_BYTES + 1][..], Access::Write),
            Odd::ManyKeys => {
                (0..3000).for_each(|id| declaration.key(table, Key8::new(id, 8), Access::Read));
            }
            Odd::TheSameInEachWay => {
                let ways = [Access::Insert, Access::Read, Access::Update, Access::Write];
                ways.into_iter().for_each(|access| declaration.key(table, own, access));
            }
            Odd::Panics => resume_unwind(Box::new("on purpose")),
        }
    }
}

/// Procedures that name tables and keys that are not there, or cannot be, are executed or refused for themselves alone: those beside them know
/// nothing of it.
pub fn odd_declarations<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const ROWS: u64 = 10;
    let (database, other) = (setup.open(), setup.open());
    let (table, hashed) = (create::<P, Item>(&database), create::<P, Cell>(&database).id());
    let elsewhere = create::<P, Cell>(&other).id();
    let dropped = create::<P, Person>(&database).id();
    database.drop_table(dropped).unwrap();
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| (0..ROWS).try_for_each(|id| t.insert(&table, &Item { id, value: 0 })));
    let options = Submissions { threads: 1, ..Submissions::default() };
    let service = Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker()).unwrap();
    let mut expected = 0;
    for odd in Odd::ALL {
        let procedure = |number: u64, odd| Oddly { table, hashed, dropped, elsewhere, id: number % ROWS, odd };
        let mut check = |odd: Odd, outcome: Result<u64, Error>| match outcome {
            Ok(rows) => {
                assert_eq!(rows, ROWS, "{odd:?}");
                expected += 1;
            }
            Err(error) => assert!(odd.may_answer(&error), "{odd:?}: {error:?}"),
        };
        let of = |number: u64| if number % 4 == 1 { odd } else { Odd::Nothing };
        check(odd, worker.execute(&mut procedure(0, odd)));
        let mut batch: Vec<_> = (0..20).map(|number| procedure(number, of(number))).collect();
        worker.execute_batch(&mut batch, &mut |position, outcome| check(of(position as u64), outcome));
        let submitted: Vec<_> =
            (0..8).map(|number| (of(number), service.submit(procedure(number, of(number))))).collect();
        submitted.into_iter().for_each(|(odd, submission)| check(odd, submission.wait()));
        (setup.tick)(&database);
        let rows = all(&mut worker, &table);
        assert_eq!(rows.len() as u64, ROWS, "{odd:?}");
        assert_eq!(rows.iter().map(|row| row.value).sum::<i64>(), expected, "{odd:?}");
    }
}
