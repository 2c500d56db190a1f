//! Operations on futures that fail: a transaction commits where all its operations succeed one after the other, each computed at once, and
//! nowhere else, also if the protocol leaves them open and what fails is overwritten or undone before it is computed.

use std::collections::BTreeMap;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::{
    Becomes, Future, Futures, Insertion, Interactive, Isolation, Mode, Operations, Protocol, Savepoint, Table,
    Transaction,
};
use polychron_schema::Row;

use crate::Setup;
use crate::client::Client;
use crate::rows::{Item, value};
use crate::setup::{Tx, all, create, done, items, run};

/// Row 1 of value 4 and row 2 of value 5 are there.
fn fails<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    mut body: impl FnMut(&mut Tx<'_, P>, &Table<Item>) -> Result<(), Error>,
) -> bool {
    let (database, table) = items(setup, &[(1, 4), (2, 5)]);
    let mut worker = database.worker().unwrap();
    let failed = run(&mut worker, |t| body(t, &table)).is_err();
    if failed {
        assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 4 }, Item { id: 2, value: 5 }]);
    }
    failed
}

/// Row 1 becomes something that has no value.
fn set_failing<T: Transaction>(t: &mut T, table: &Table<Item>) -> Result<(), Error> {
    let value = t.future(table, 1, Item::VALUE)?;
    t.set_future(table, 1, Item::VALUE, value / 0)
}

/// What has no value is a failure where it is written, whatever is written there afterwards.
pub fn overwritten<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    assert!(fails(setup, |t, table| {
        set_failing(t, table)?;
        t.set_future(table, 1, Item::VALUE, 7)
    }));
    assert!(fails(setup, |t, table| {
        set_failing(t, table)?;
        let failed = t.future(table, 1, Item::VALUE)?;
        t.set_future(table, 1, Item::VALUE, failed + 1)?;
        t.set_future(table, 1, Item::VALUE, 7)
    }));
    assert!(fails(setup, |t, table| {
        set_failing(t, table)?;
        t.delete(table, 1).map(drop)
    }));
    assert!(fails(setup, |t, table| {
        set_failing(t, table)?;
        t.upsert(table, &Item { id: 1, value: 3 })
    }));
    // What is never written need not have a value.
    assert!(!fails(setup, |t, table| {
        let value = t.future(table, 1, Item::VALUE)?;
        let _ = value / 0;
        t.set_future(table, 1, Item::VALUE, value + 1)?;
        t.set_future(table, 1, Item::VALUE, 7)
    }));
}

/// The same of what is undone: a return to a savepoint tells what has failed since, unless that was told before.
pub fn undone<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    assert!(fails(setup, |t, table| {
        let savepoint = t.savepoint();
        set_failing(t, table)?;
        t.roll_back_to(savepoint)
    }));
    assert!(fails(setup, |t, table| {
        let savepoint = t.savepoint();
        let value = t.future(table, 1, Item::VALUE)?;
        t.set_future(table, 9, Item::VALUE, value)?;
        t.roll_back_to(savepoint)
    }));
    assert!(fails(setup, |t, table| {
        let savepoint = t.savepoint();
        t.future(table, 9, Item::VALUE)?;
        t.roll_back_to(savepoint)
    }));
    assert!(fails(setup, |t, table| {
        let first = t.savepoint();
        set_failing(t, table)?;
        let _ = t.savepoint();
        t.roll_back_to(first)
    }));
    assert!(!fails(setup, |t, table| {
        let savepoint = t.savepoint();
        let value = t.future(table, 1, Item::VALUE)?;
        t.set_future(table, 1, Item::VALUE, value + 1)?;
        t.roll_back_to(savepoint)
    }));
}

/// A transaction has answers about two rows when another one deletes the first and changes the second. If it sees what that has done, the
/// answers do not stand: that the first no longer has a value says nothing of the second.
pub fn answers_behind_a_row_that_went<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.isolation == Isolation::Snapshot {
        return;
    }
    let (database, table) = items(setup, &[(1, 4), (2, 5), (3, 0)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let mut requester = Client::begin(&mut left, Mode::ReadWrite);
    for id in [1, 2] {
        let is_enough = requester.step(|t| {
            let value = t.future(&table, id, Item::VALUE)?;
            t.is_true(value.at_least(10))
        });
        assert_ne!(is_enough, Some(true));
    }
    let changed = run(&mut right, |t| {
        t.delete(&table, 1)?;
        t.update(&table, 2, |row| row.set_value(50))?;
        t.update(&table, 3, |row| row.set_value(1)).map(drop)
    });
    let sees_it = requester.step(|t| value(t, &table, 3)) == Some(Some(1));
    assert!(!sees_it || changed.is_ok());
    assert!(!requester.roll_back() || !sees_it, "row 2 had 5, and row 3 has 1");
}

/// A client that is told of a failure by a return to a savepoint is there, and may go on.
pub fn undone_and_caught<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 4), (2, 5)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        t.set_future(&table, 2, Item::VALUE, 6)?;
        let savepoint = t.savepoint();
        let later = t.savepoint();
        t.update(&table, 1, |row| row.set_value(50))?;
        let (one, absent) = (t.future(&table, 1, Item::VALUE)?, t.future(&table, 9, Item::VALUE));
        let set = set_failing(t, &table);
        let observed = t.roll_back_to(savepoint);
        let failures = [absent.is_err(), set.is_err(), observed.is_err()];
        assert!(failures == [true, true, false] || failures == [false, false, true], "{failures:?}");
        assert_eq!(value(t, &table, 1)?, Some(4));
        // It has taken place.
        assert!(t.roll_back_to(later).is_err());
        t.roll_back_to(savepoint)?;
        // A future keeps the value that it had when it was read.
        t.set_future(&table, 2, Item::VALUE, one)
    });
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 4 }, Item { id: 2, value: 50 }]);
}

/// A row of which another one may have the badge.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[index(name = "by_badge", columns(badge), unique)]
struct Guest {
    #[key]
    id: u32,
    badge: u32,
    room: u32,
}

/// A badge and a room.
type Location = (u32, u32);

/// Keys of a unique index are taken and given up in the order of the writes.
pub fn unique_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let guests = create::<P, Guest>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| (1..=2).try_for_each(|id| t.insert(&guests, &Guest { id, badge: id, room: 7 })));
    let badges = |worker: &mut P::Worker| all(worker, &guests).iter().map(|guest| guest.badge).collect::<Vec<_>>();
    // Row 2 is known first, and gets the key that row 1 gives up.
    done(&mut worker, |t| {
        let (two, one) = (t.future(&guests, 2, Guest::BADGE)?, t.future(&guests, 1, Guest::BADGE)?);
        t.set_future(&guests, 1, Guest::BADGE, two + 1)?;
        t.set_future(&guests, 2, Guest::BADGE, one)
    });
    assert_eq!(badges(&mut worker), [3, 1]);
    let taken = run(&mut worker, |t| {
        let two = t.future(&guests, 2, Guest::BADGE)?;
        t.set_future(&guests, 1, Guest::BADGE, two)?;
        t.set_future(&guests, 1, Guest::BADGE, two + 8)
    });
    assert!(matches!(taken, Err(Error::Duplicate(ref of)) if of.table == guests.id()), "{taken:?}");
    // The insertion comes before the key is given up.
    let taken = run(&mut worker, |t| {
        let two = t.future(&guests, 2, Guest::BADGE)?;
        t.insert_future(&guests, &Guest { id: 3, badge: 0, room: 7 }, [Guest::BADGE.becomes(two)])?;
        t.set_future(&guests, 2, Guest::BADGE, two + 8)
    });
    assert!(matches!(taken, Err(Error::Duplicate(ref of)) if of.table == guests.id()), "{taken:?}");
    assert_eq!(badges(&mut worker), [3, 1]);
}

/// A future in a program: its number among those that were made before.
type Number = usize;

#[derive(Clone, Copy, Debug)]
enum Operation {
    ReadBadge(u32),
    ReadRoom(u32),
    Add(Number, u32),
    Subtract(Number, u32),
    Divide(Number, Number),
    /// The first where it is at least 5, else the second.
    Choose(Number, Number),
    Ask(Number),
    SetBadge(u32, Number),
    SetRoom(u32, Number),
    SetRoomAt(Number, Number),
    Insert {
        id: Number,
        badge: Number,
        room: Number,
    },
    InsertNow(u32, Location),
    Upsert(u32, Location),
    Delete(u32),
    Get(u32),
    Count,
    Savepoint,
    RollBack(usize),
}

impl Operation {
    /// Of futures that have been made, `futures` of them. Most of what is drawn succeeds.
    fn draw(random: &mut Random, futures: usize) -> Self {
        let ids = if random.below(8) == 0 { 6 } else { 3 };
        let id = random.below(ids) as u32;
        let location = (random.below(6) as u32, random.below(9) as u32);
        if futures == 0 {
            return Self::ReadRoom(id);
        }
        let mut future = || random.below(futures as u64) as Number;
        let (one, two, three) = (future(), future(), future());
        let number = random.range_inclusive(0, 3) as u32;
        match random.below(24) {
            0 => Self::ReadBadge(id),
            1..=3 => Self::ReadRoom(id),
            4 | 5 => Self::Add(one, number),
            6 => Self::Subtract(one, number),
            7 => Self::Divide(one, two),
            8 => Self::Choose(one, two),
            9 => Self::Ask(one),
            10..=12 => Self::SetBadge(id, one),
            13 | 14 => Self::SetRoom(id, one),
            15 => Self::SetRoomAt(one, two),
            16 => Self::Insert { id: one, badge: two, room: three },
            17 => Self::InsertNow(id, location),
            18 => Self::Upsert(id, location),
            19 => Self::Delete(id),
            20 => Self::Get(id),
            21 => Self::Count,
            22 => Self::Savepoint,
            _ => Self::RollBack(one),
        }
    }
}

/// What is true when operations are computed one after the other.
#[derive(Clone, Debug, Default)]
struct InOrder {
    rows: BTreeMap<u32, Location>,
    /// `None`: a computation that has no value.
    futures: Vec<Option<u32>>,
    savepoints: Vec<BTreeMap<u32, Location>>,
}

impl InOrder {
    fn put(&mut self, id: u32, location: Location) -> bool {
        let is_taken = self.rows.iter().any(|(&other, &(badge, _))| other != id && badge == location.0);
        if !is_taken {
            self.rows.insert(id, location);
        }
        !is_taken
    }

    fn insert(&mut self, id: u32, location: Location) -> bool {
        !self.rows.contains_key(&id) && self.put(id, location)
    }

    fn compute(&mut self, value: Option<u32>) -> Option<i64> {
        self.futures.push(value);
        Some(0)
    }

    /// The answer; `None` where it fails.
    fn apply(&mut self, operation: Operation) -> Option<i64> {
        let future = |number: Number| self.futures[number];
        match operation {
            Operation::ReadBadge(id) => self.rows.get(&id).copied().and_then(|(badge, _)| self.compute(Some(badge))),
            Operation::ReadRoom(id) => self.rows.get(&id).copied().and_then(|(_, room)| self.compute(Some(room))),
            Operation::Add(left, right) => self.compute(future(left).and_then(|left| left.checked_add(right))),
            Operation::Subtract(left, right) => self.compute(future(left).and_then(|left| left.checked_sub(right))),
            Operation::Divide(left, right) => {
                self.compute(future(left).zip(future(right)).and_then(|(left, right)| left.checked_div(right)))
            }
            Operation::Choose(one, two) => {
                self.compute(future(one).and_then(|value| if value >= 5 { Some(value) } else { future(two) }))
            }
            Operation::Ask(number) => future(number).map(|value| i64::from(value >= 5)),
            Operation::SetBadge(id, number) => {
                let (badge, room) = (future(number)?, self.rows.get(&id)?.1);
                self.put(id, (badge, room)).then_some(0)
            }
            Operation::SetRoom(id, number) => {
                let room = future(number)?;
                self.rows.get_mut(&id).map(|location| location.1 = room).map(|()| 0)
            }
            Operation::SetRoomAt(id, number) => {
                let (id, room) = (future(id)?, future(number)?);
                self.rows.get_mut(&id).map(|location| location.1 = room).map(|()| 0)
            }
            Operation::Insert { id, badge, room } => {
                let (id, location) = (future(id)?, (future(badge)?, future(room)?));
                self.insert(id, location).then_some(0)
            }
            Operation::InsertNow(id, location) => Some(self.insert(id, location).into()),
            Operation::Upsert(id, location) => self.put(id, location).then_some(0),
            Operation::Delete(id) => Some(self.rows.remove(&id).is_some().into()),
            Operation::Get(id) => Some(self.rows.get(&id).map_or(-1, |&(badge, room)| (badge * 1000 + room).into())),
            Operation::Count => Some(self.rows.values().map(|&(badge, room)| i64::from(badge * 1000 + room)).sum()),
            Operation::Savepoint => {
                self.savepoints.push(self.rows.clone());
                Some(0)
            }
            Operation::RollBack(number) => {
                if let Some(number) = number.checked_rem(self.savepoints.len()) {
                    self.savepoints.truncate(number + 1);
                    self.rows.clone_from(&self.savepoints[number]);
                }
                Some(0)
            }
        }
    }
}

/// A transaction in the middle of a program.
struct Running<'t, T> {
    transaction: &'t mut T,
    guests: Table<Guest>,
    futures: Vec<Future<u32>>,
    savepoints: Vec<Savepoint>,
}

impl<T: Transaction> Running<'_, T> {
    fn compute(&mut self, future: Future<u32>) -> i64 {
        self.futures.push(future);
        0
    }

    fn apply(&mut self, operation: Operation) -> Result<i64, Error> {
        let future = |number: Number| self.futures[number];
        let (t, guests) = (&mut *self.transaction, &self.guests);
        let guest = |id, (badge, room)| Guest { id, badge, room };
        let summary = |badge: u32, room: u32| i64::from(badge * 1000 + room);
        Ok(match operation {
            Operation::ReadBadge(id) => {
                let badge = t.future(guests, id, Guest::BADGE)?;
                self.compute(badge)
            }
            Operation::ReadRoom(id) => {
                let room = t.future(guests, id, Guest::ROOM)?;
                self.compute(room)
            }
            Operation::Add(left, right) => self.compute(future(left) + right),
            Operation::Subtract(left, right) => self.compute(future(left) - right),
            Operation::Divide(left, right) => self.compute(future(left) / future(right)),
            Operation::Choose(one, two) => {
                self.compute(future(one).at_least(5).then(future(one)).otherwise(future(two)))
            }
            Operation::Ask(number) => t.is_true(future(number).at_least(5))?.into(),
            Operation::SetBadge(id, number) => t.set_future(guests, id, Guest::BADGE, future(number)).map(|()| 0)?,
            Operation::SetRoom(id, number) => t.set_future(guests, id, Guest::ROOM, future(number)).map(|()| 0)?,
            Operation::SetRoomAt(id, number) => {
                t.set_futures_at(guests, future(id), [Guest::ROOM.becomes(future(number))]).map(|()| 0)?
            }
            Operation::Insert { id, badge, room } => {
                let (badge, room) = (Guest::BADGE.becomes(future(badge)), Guest::ROOM.becomes(future(room)));
                let columns = [Guest::ID.becomes(future(id)), badge, room];
                t.insert_future(guests, &guest(0, (0, 0)), columns).map(|()| 0)?
            }
            Operation::InsertNow(id, location) => {
                (t.try_insert(guests, &guest(id, location))? == Insertion::Inserted).into()
            }
            Operation::Upsert(id, location) => t.upsert(guests, &guest(id, location)).map(|()| 0)?,
            Operation::Delete(id) => t.delete(guests, id)?.into(),
            Operation::Get(id) => t.get(guests, id)?.map_or(-1, |row| summary(row.badge(), row.room())),
            Operation::Count => t.scan(guests, ..).map(|row| summary(row.badge(), row.room())).sum()?,
            Operation::Savepoint => {
                self.savepoints.push(t.savepoint());
                0
            }
            Operation::RollBack(number) => {
                if let Some(number) = number.checked_rem(self.savepoints.len()) {
                    self.savepoints.truncate(number + 1);
                    t.roll_back_to(self.savepoints[number])?;
                }
                0
            }
        })
    }
}

/// Random programs, which end with their first failure: what they are answered, whether they commit, and what is there afterwards is
/// as if each operation had been computed at once.
pub fn in_order<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let guests = create::<P, Guest>(&database);
    let mut worker = database.worker().unwrap();
    let mut random = Random::stream(44, 0);
    let mut committed = 0;
    let rounds = scaled(800, 50);
    for round in 0..rounds {
        let mut expected = InOrder::default();
        (0..3).for_each(|id| assert!(expected.insert(id, (id, 2 * id + 1))));
        let before = expected.rows.clone();
        let left: Vec<_> = all(&mut worker, &guests);
        done(&mut worker, |t| {
            left.iter().try_for_each(|guest| t.delete(&guests, guest.id).map(drop))?;
            (0..3).try_for_each(|id| t.insert(&guests, &Guest { id, badge: id, room: 2 * id + 1 }))
        });
        let (mut program, mut answers) = (Vec::new(), Some(Vec::new()));
        for _ in 0..random.range_inclusive(2, 10) {
            let operation = Operation::draw(&mut random, expected.futures.len());
            program.push(operation);
            let answer = expected.apply(operation);
            answers = answers.zip(answer).map(|(mut answers, answer)| {
                answers.push(answer);
                answers
            });
            if answers.is_none() {
                break;
            }
        }
        // What follows a failure is not run where it is found at once, and may make up for it where it is not.
        if answers.is_none() {
            program.extend((0..random.below(4)).map(|_| match random.below(3) {
                0 => Operation::RollBack(random.below(3) as usize),
                1 => Operation::Upsert(random.below(6) as u32, (random.below(6) as u32, 1)),
                _ => Operation::SetRoom(random.below(3) as u32, 0),
            }));
        }
        let outcome = run(&mut worker, |t| {
            let mut running = Running { transaction: t, guests, futures: Vec::new(), savepoints: Vec::new() };
            program.iter().map(|&operation| running.apply(operation)).collect::<Result<Vec<_>, _>>()
        });
        assert_eq!(outcome.as_ref().ok(), answers.as_ref(), "round {round}, {program:?}: {outcome:?}");
        let rows = if answers.is_some() { expected.rows } else { before };
        let there = all(&mut worker, &guests).into_iter().map(|guest| (guest.id, (guest.badge, guest.room)));
        assert_eq!(there.collect::<BTreeMap<_, _>>(), rows, "round {round}, {program:?}");
        committed += usize::from(answers.is_some());
    }
    assert!(committed > rounds / 4 && committed < rounds * 3 / 4, "{committed} of {rounds} committed");
}
