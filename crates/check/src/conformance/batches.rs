//! Procedures that are handed over at once, and declare keys: what they declare, in which order and how much of it, changes no
//! answer.

use polychron_base::key::Key8;
use polychron_base::random::Random;
use polychron_engine::{
    Access, Declare, Interactive, Operations, Procedure, Protocol, Stop, Table, Transaction, Worker,
};

use super::differential::apply;
use crate::Setup;
use crate::model::{Answer, Model, Operation};
use crate::rows::{Cell, Person};
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

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<Answer>, Stop> {
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
                worker.tidy_up();
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

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Stop> {
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
        worker.tidy_up();
    }
    let rows = done(&mut worker, |t| {
        (0..11).map(|id| Ok(t.get(&table, id)?.map(|row| row.value()))).collect::<Result<Vec<_>, Stop>>()
    });
    assert_eq!(rows.iter().flatten().collect::<Vec<_>>(), [&steps]);
    assert_eq!(rows[at as usize], Some(steps));
}
