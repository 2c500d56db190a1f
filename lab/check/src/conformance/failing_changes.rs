//! Changes of rows whose code fails on its way, and whose error the client catches to go on: nothing of them is left, in the row, its
//! entries and its columns that are open, beside a model that skips them.

use std::collections::BTreeMap;

use polychron_base::Error;
use polychron_base::key::Key8;
use polychron_base::random::Random;
use polychron_engine::{Futures, Interactive, Mode, Operations, Projection, Protocol, Table, Transaction, drive};

use crate::Setup;
use crate::rows::{Item, Person, person};
use crate::setup::{all, done, items, persons};

/// What the client's code fails with.
#[derive(Debug)]
enum Failure {
    OnPurpose(u64),
    Database(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// What an update came to whose own failure the client catches.
fn caught(outcome: Result<bool, Failure>) -> Result<Result<bool, u64>, Error> {
    match outcome {
        Ok(found) => Ok(Ok(found)),
        Err(Failure::OnPurpose(number)) => Ok(Err(number)),
        Err(Failure::Database(error)) => Err(error),
    }
}

/// Rows that are there, or not; the model has them in the order of their keys.
const IDS: u64 = 5;

type Model = BTreeMap<u64, Person>;

#[derive(Clone, Debug)]
enum Step {
    /// Sets columns one after the other, and fails before this one, if there are as many.
    Update {
        id: u64,
        fails_before: usize,
    },
    /// The same where only the number is brought.
    UpdateColumn {
        id: u64,
        fails: bool,
    },
    /// The same with bytes.
    UpdateBytes {
        id: u64,
        fails: bool,
    },
    /// Leaves the number open.
    Add {
        id: u64,
    },
    Insert {
        id: u64,
    },
    Delete {
        id: u64,
    },
}

/// How many columns [`change`] sets.
const COLUMNS: usize = 5;

/// A row of which all columns are new; `number` is of no other one.
fn changed(id: u64, number: u64) -> Person {
    let text = "x".repeat((number % 7 * 90) as usize);
    Person { id, team: (number % 3) as u16, code: Some(number as u32 + 1000), number: number as i64, text }
}

impl Step {
    fn draw(random: &mut Random) -> Self {
        let (id, fails) = (random.below(IDS), random.below(2) == 0);
        match random.below(10) {
            0..=3 => Self::Update { id, fails_before: random.below(COLUMNS as u64 + 3) as usize },
            4 => Self::UpdateColumn { id, fails },
            5 => Self::UpdateBytes { id, fails },
            6 | 7 => Self::Add { id },
            8 => Self::Insert { id },
            _ => Self::Delete { id },
        }
    }

    fn act<T: Transaction>(
        &self,
        t: &mut T,
        table: &Table<Person>,
        (model, number): (&mut Model, u64),
    ) -> Result<(), Error> {
        let expected = |id: &u64, fails: bool| match (model.contains_key(id), fails) {
            (true, true) => Err(number),
            (is_there, _) => Ok(is_there),
        };
        match self {
            Self::Update { id, fails_before } => {
                let fails = *fails_before < COLUMNS;
                let new = changed(*id, number);
                let outcome = caught(update(t, table, &new, *fails_before))?;
                self.assert_reported(t, outcome, expected(id, fails));
                model.entry(*id).and_modify(|row| {
                    if !fails {
                        *row = new
                    }
                });
            }
            Self::UpdateColumn { id, fails } => {
                let outcome = t.update_columns(table, *id, Person::NUMBER, |row| {
                    row.set_number(number as i64);
                    if *fails { Err(Failure::OnPurpose(number)) } else { Ok(()) }
                });
                self.assert_reported(t, caught(outcome)?, expected(id, *fails));
                model.entry(*id).and_modify(|row| {
                    if !fails {
                        row.number = number as i64
                    }
                });
            }
            Self::UpdateBytes { id, fails } => {
                let outcome = t.update_row(table.id(), Key8::new(*id, 8), &Projection::ALL, |row| {
                    Person::TEAM.set(row, 9);
                    Person::TEXT.set(row, "bytes")?;
                    if *fails { Err(Failure::OnPurpose(number)) } else { Ok(()) }
                });
                self.assert_reported(t, caught(outcome)?, expected(id, *fails));
                model.entry(*id).and_modify(|row| {
                    if !fails {
                        (row.team, row.text) = (9, "bytes".into())
                    }
                });
            }
            Self::Add { id } => {
                if let Some(row) = model.get_mut(id) {
                    let old = t.future(table, *id, Person::NUMBER)?;
                    t.set_future(table, *id, Person::NUMBER, old + 1)?;
                    row.number += 1;
                }
            }
            Self::Insert { id } => {
                let new = changed(*id, number);
                t.upsert(table, &new)?;
                model.insert(*id, new);
            }
            Self::Delete { id } => {
                let found = t.delete(table, *id)?;
                self.assert_reported(t, Ok(found), Ok(model.remove(id).is_some()));
            }
        }
        Ok(())
    }
}

impl Step {
    /// What a run was told that finds out what is written, is discarded.
    fn assert_reported<T: Transaction>(&self, t: &T, observed: Result<bool, u64>, expected: Result<bool, u64>) {
        assert!(t.is_reconnaissance() || observed == expected, "{self:?}: {observed:?} instead of {expected:?}");
    }
}

/// Sets columns to those of `new`, and fails before one of them.
fn update<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    new: &Person,
    fails_before: usize,
) -> Result<bool, Failure> {
    t.update(table, new.id, |row| {
        let step = |column| if column == fails_before { Err(Failure::OnPurpose(new.number as u64)) } else { Ok(()) };
        step(0)?;
        row.set_number(new.number);
        step(1)?;
        row.set_text(&new.text)?;
        step(2)?;
        row.set_team(new.team);
        step(3)?;
        row.set_code(new.code);
        step(4)
    })
}

/// All rows, by each of the indexes.
fn views<T: Transaction>(t: &mut T, table: &Table<Person>) -> Result<[Vec<Person>; 3], Error> {
    let by_key: Vec<Person> = t.scan(table, ..).rows()?;
    let mut by_team: Vec<Person> = t.scan_range_by(table, Person::BY_TEAM, 0_u16..).rows()?;
    let mut by_code: Vec<Person> = t.scan_range_by(table, Person::BY_CODE, Some(0_u32)..).rows()?;
    by_team.sort_by_key(|row| row.id);
    by_code.sort_by_key(|row| row.id);
    Ok([by_key, by_team, by_code])
}

fn assert_same(views: [Vec<Person>; 3], model: &Model, of: &str) {
    let expected: Vec<Person> = model.values().cloned().collect();
    for (view, name) in views.into_iter().zip(["key", "team", "code"]) {
        assert_eq!(view, expected, "by {name} {of}");
    }
}

/// What fails leaves nothing, and what comes before and behind is done, in the transaction and when it has committed.
pub fn are_skipped<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<Person> = (0..3).map(|id| person(id, 1, id as u32)).collect();
    let (database, table) = persons(setup, &rows);
    let mut worker = database.worker().unwrap();
    let mut model: Model = rows.into_iter().map(|row| (row.id, row)).collect();
    let mut random = Random::stream(7, 1);
    for number in 0..150 {
        let steps: Vec<Step> = (0..random.range_inclusive(1, 8)).map(|_| Step::draw(&mut random)).collect();
        // Half of them show in the end alone what became of the rows, so that columns stay open.
        let looks = random.below(2) == 0;
        let after = done(&mut worker, |t| {
            let mut model = model.clone();
            for (at, step) in steps.iter().enumerate() {
                step.act(t, &table, (&mut model, 10 * number + at as u64))?;
                if looks {
                    let seen = views(t, &table)?;
                    if !t.is_reconnaissance() {
                        assert_same(seen, &model, &format!("behind step {at} of {steps:?}"));
                    }
                }
            }
            Ok(model)
        });
        let seen = done(&mut worker, |t| views(t, &table));
        assert_same(seen, &after, &format!("behind {steps:?}"));
        model = after;
        setup.pass(&database, 1);
    }
}

/// Where no client catches it, the transaction ends with the very error, and is undone whole.
pub fn end_the_transaction<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    let outcome: Result<(), Failure> = drive::transact(&mut worker, Mode::ReadWrite, &mut |t| {
        t.update(&table, 1, |row| row.set_value(11))?;
        t.update(&table, 2, |row| {
            row.set_value(row.value() - 100);
            if row.value() < 0 { Err(Failure::OnPurpose(20)) } else { Ok(()) }
        })?;
        Ok(())
    });
    assert!(matches!(outcome, Err(Failure::OnPurpose(20))), "{outcome:?}");
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }, Item { id: 2, value: 20 }]);
}
