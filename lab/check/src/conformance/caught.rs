//! Panics of code that the engine calls in the middle of an operation, which the procedure catches to go on: nothing half done commits, and
//! no client hangs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use polychron_base::key::Key8;
use polychron_engine::{
    Access, Declare, Error, Interactive, Operations, Procedure, Protocol, Row, Table, Transaction, Worker,
};

use crate::Setup;
use crate::rows::{Cell, Item, Person, person};
use crate::setup::{all, create, done, run};
use crate::watch::watched;

/// What the transaction has done with its row when code panics that changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Update,
    Insertion,
}

/// What it does when it has caught the panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    GoesOn,
    /// It goes back to where it was before the panic, and then goes on.
    RollsBack,
    /// It changes the row that it could not change before.
    TriesAgain,
}

/// The rows that are there, the one that is inserted, and those that others use.
const ROW: u64 = 1;
const OTHER: u64 = 2;
const NEW: u64 = 9;

#[derive(Clone, Copy)]
struct Tables {
    items: Table<Item>,
    cells: Table<Cell>,
    persons: Table<Person>,
}

/// The rows of one id.
type Rows = (Option<Item>, Option<Cell>, Option<Person>);

impl Tables {
    fn insert<T: Transaction>(&self, t: &mut T, id: u64, value: i64) -> Result<(), Error> {
        t.insert(&self.items, &Item { id, value })?;
        t.insert(&self.cells, &Cell { id, value })?;
        t.insert(&self.persons, &Person { number: value, ..person(id, id as u16, id as u32) })
    }

    fn add<T: Transaction>(&self, t: &mut T, id: u64) -> Result<(), Error> {
        t.update(&self.items, id, |row| row.set_value(row.value() + 1))?;
        t.update(&self.cells, id, |row| row.set_value(row.value() + 1))?;
        t.update(&self.persons, id, |row| row.set_number(row.number() + 1)).map(drop)
    }

    fn look<T: Transaction>(&self, t: &mut T, id: u64) -> Result<Rows, Error> {
        let item = t.get(&self.items, id)?.map(Item::from_ref);
        let cell = t.get(&self.cells, id)?.map(Cell::from_ref);
        Ok((item, cell, t.get(&self.persons, id)?.map(Person::from_ref)))
    }
}

/// Ends code that the engine calls, without the hook that writes about it.
fn panics() {
    resume_unwind(Box::new("on purpose"));
}

/// Catches the panic of an operation.
fn catch<O>(work: impl FnOnce() -> Result<O, Error>) -> Result<(), Error> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Err(_) => Ok(()),
        Ok(ended) => ended.map(|_| panic!("the panic is passed on")),
    }
}

/// A transaction that catches panics. Answers what it saw of its row before them and behind.
#[derive(Clone, Copy)]
struct Catches {
    tables: Tables,
    before: Before,
    after: After,
}

impl Catches {
    fn id(&self) -> u64 {
        if self.before == Before::Insertion { NEW } else { ROW }
    }

    fn act<T: Transaction>(&self, t: &mut T) -> Result<[Rows; 2], Error> {
        let (tables, id) = (&self.tables, self.id());
        match self.before {
            Before::Nothing => {}
            Before::Update => tables.add(t, id)?,
            Before::Insertion => tables.insert(t, id, 30)?,
        }
        let seen = tables.look(t, id)?;
        let savepoint = (self.after == After::RollsBack).then(|| t.savepoint());
        catch(|| {
            t.update(&tables.items, id, |row| {
                row.set_value(-1);
                panics();
            })
        })?;
        catch(|| {
            t.update(&tables.cells, id, |row| {
                row.set_value(-1);
                panics();
            })
        })?;
        catch(|| {
            t.update(&tables.persons, id, |row| {
                row.set_number(-1);
                row.set_team(77);
                row.set_code(Some(77));
                row.set_text(&"x".repeat(500)).unwrap();
                panics();
            })
        })?;
        catch(|| t.scan(&tables.items, ..).for_each(|_| panics()))?;
        catch(|| t.scan_range_by(&tables.persons, Person::BY_TEAM, 0_u16..).for_each(|_| panics()))?;
        if let Some(savepoint) = savepoint {
            t.roll_back_to(savepoint)?;
        }
        let behind = tables.look(t, id)?;
        if self.after == After::TriesAgain {
            tables.add(t, id)?;
        }
        tables.add(t, OTHER)?;
        Ok([seen, behind])
    }

    /// What it leaves of the row when it commits.
    fn value(&self) -> i64 {
        let before = match self.before {
            Before::Nothing => 10,
            Before::Update => 11,
            Before::Insertion => 30,
        };
        before + i64::from(self.after == After::TriesAgain)
    }
}

impl Procedure for Catches {
    type Output = [Rows; 2];
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<[Rows; 2], Error> {
        self.act(t)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Tables { items, cells, persons } = self.tables;
        for table in [items.id(), cells.id(), persons.id()] {
            for id in [self.id(), OTHER] {
                declaration.key(table, Key8::new(id, 8), Access::Write);
            }
        }
    }
}

/// Code panics in the middle of updates and scans, of whole procedures and of transactions that are driven step by step.
pub fn panics_in_operations<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        for before in [Before::Nothing, Before::Update, Before::Insertion] {
            for after in [After::GoesOn, After::RollsBack, After::TriesAgain] {
                for interactive in [false, true] {
                    let case = format!("{before:?}, {after:?}, interactive: {interactive}");
                    progress.at(case.clone());
                    let database = setup.open();
                    let tables =
                        Tables { items: create(&database), cells: create(&database), persons: create(&database) };
                    let [mut worker, mut other] = [(); 2].map(|()| database.worker().unwrap());
                    done(&mut worker, |t| {
                        tables.insert(t, ROW, 10)?;
                        tables.insert(t, OTHER, 20)
                    });
                    // Rows of an epoch that has ended are updated in another way than new ones.
                    setup.pass(&database, 3);
                    let mut catches = Catches { tables, before, after };
                    let outcome = match interactive {
                        true => run(&mut worker, |t| catches.act(t)),
                        false => worker.execute(&mut catches),
                    };
                    let [seen, behind] = outcome.unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert_eq!(seen, behind, "{case}: what it sees itself");
                    // Nothing is locked or pending for others.
                    for id in [ROW, OTHER] {
                        done(&mut other, |t| tables.add(t, id));
                    }
                    let mut expected = vec![(ROW, 11), (OTHER, 22)];
                    match before {
                        Before::Insertion => expected.push((NEW, catches.value())),
                        _ => expected[0].1 = catches.value() + 1,
                    }
                    let items: Vec<_> = all(&mut other, &tables.items).iter().map(|row| (row.id, row.value)).collect();
                    assert_eq!(items, expected, "{case}");
                    for &(id, value) in &expected {
                        let (_, cell, row) = done(&mut other, |t| tables.look(t, id));
                        assert_eq!(cell.map(|cell| cell.value), Some(value), "{case}: {id}");
                        let whole = Person { number: value, ..person(id, id as u16, id as u32) };
                        assert_eq!(row, Some(whole), "{case}: {id}");
                        let found = |team: u16| {
                            move |t: &mut crate::setup::Tx<'_, P>| {
                                t.scan_by(&tables.persons, Person::BY_TEAM, team).count()
                            }
                        };
                        assert_eq!(
                            (done(&mut other, found(id as u16)), done(&mut other, found(77))),
                            (1, 0),
                            "{case}: {id}"
                        );
                    }
                }
            }
        }
    });
}
