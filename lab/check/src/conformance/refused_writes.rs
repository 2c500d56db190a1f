//! Writes that are refused, and whose error the client catches to go on: the error has told it something of the row that was to be
//! written, of the one in the way, and of those that foreign keys lead to. Another transaction changes one of them, and read before what the
//! first one then writes. If both commit, some serial order explains all that they were answered.
//!
//! Every refusal meets every change in every order of their steps. What a serial order answers is asked of the same database.

// Two `#[index]`es of one table may well say the same of their kind.
#![allow(clippy::duplicated_attributes)]

use polychron_base::Error;
use polychron_base::key::Key8;
use polychron_engine::{
    Becomes, Commit, Future, Futures, Interactive, Isolation, Mode, Operations, Projection, Protocol, Row, Table,
    TableDefinition, Transaction,
};
use polychron_schema::IndexKind;
use std::sync::Arc;

use crate::Setup;
use crate::rows::Image;
use crate::setup::{begin, create, done, run};
use crate::watch::watched;

/// A row that others may refer to.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
struct House {
    #[key]
    id: u64,
}

/// A row that can be refused for the sake of each of its indexes, and of its foreign key.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_bed", columns(floor, bed), unique)]
#[index(name = "by_badge", columns(badge), unique)]
#[index(name = "by_name", columns(name))]
#[index(name = "by_house", columns(house))]
#[references(row = House, columns(house))]
struct Lodger {
    #[key]
    id: u64,
    floor: u32,
    bed: u32,
    badge: u64,
    #[column(max = 4000)]
    name: String,
    house: Option<u64>,
    value: i64,
}

/// The row that the first transaction wants to write, the one in its way, the one that the second transaction reads and the first one writes
/// then, and one that is absent.
const WANTED: u64 = 0;
const OWNER: u64 = 1;
const OTHER: u64 = 2;
const ABSENT: u64 = 7;

/// The house of the wanted row, one without lodgers, and one that is absent.
const FULL: u64 = 1;
const EMPTY: u64 = 2;
const NO_HOUSE: u64 = 9;

fn lodger(id: u64, floor: u32, bed: u32) -> Lodger {
    let house = (id == WANTED).then_some(FULL);
    Lodger { id, floor, bed, badge: id, name: format!("lodger {id}"), house, value: 0 }
}

/// A name that is too long for the key of an index.
fn too_long() -> String {
    "n".repeat(2000)
}

#[derive(Clone, Copy)]
struct Tables {
    houses: Table<House>,
    lodgers: Table<Lodger>,
}

/// What the first transaction tries.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    Update,
    /// The client keeps what it was shown.
    LookAndUpdate,
    UpdateOneColumn,
    Upsert,
    /// The key of the first index stays, and that of the second one is taken.
    UpsertSecond,
    Insert,
    InsertSecond,
    InsertPresent,
    UpdateTooLong,
    UpsertTooLong,
    InsertTooLong,
    UpdateOrphan,
    UpsertOrphan,
    InsertOrphan,
    UpdateKey,
    /// The client's own code looks at the row, changes it and fails.
    UpdateFails,
    /// The same of one column.
    UpdateOneColumnFails,
    DeleteParent,
    /// No error, but taken back all the same.
    UpdateAndRollBack,
    DeleteAndRollBack,
    OfFutures(Open),
}

/// What it tries with futures, behind a savepoint to which it returns: that tells what has failed, where nothing has told it before.
#[derive(Clone, Copy, Debug)]
enum Open {
    /// The key of an index is taken.
    Duplicate,
    InsertDuplicate,
    InsertPresent,
    /// The row is absent.
    ReadAbsent,
    ResolveAbsent,
    SetAbsent,
    /// What is written has no value, for the row has a zero.
    Divide,
    /// The same, and nothing is written.
    ResolveQuotient,
    AskQuotient,
    /// What is written has no value, for there is no such row.
    SetBehindAbsent,
    /// No error, but a condition that is not met.
    Ask,
    AskBoth,
}

const OPEN: [Open; 12] = [
    Open::Duplicate,
    Open::InsertDuplicate,
    Open::InsertPresent,
    Open::ReadAbsent,
    Open::ResolveAbsent,
    Open::SetAbsent,
    Open::Divide,
    Open::ResolveQuotient,
    Open::AskQuotient,
    Open::SetBehindAbsent,
    Open::Ask,
    Open::AskBoth,
];

impl Open {
    fn act<T: Transaction>(self, t: &mut T, lodgers: &Table<Lodger>) -> Result<bool, Error> {
        let value = Lodger::VALUE;
        match self {
            Self::Duplicate => {
                let taken = t.future(lodgers, OWNER, Lodger::BADGE)?;
                t.set_future(lodgers, WANTED, Lodger::BADGE, taken)
            }
            Self::InsertDuplicate => {
                let taken = t.future(lodgers, OWNER, Lodger::BADGE)?;
                t.insert_future(lodgers, &lodger(ABSENT, 4, 4), [Lodger::BADGE.becomes(taken)])
            }
            Self::InsertPresent => {
                let badge = t.future(lodgers, OTHER, Lodger::BADGE)?;
                t.insert_future(lodgers, &lodger(WANTED, 4, 4), [Lodger::BADGE.becomes(badge + 100)])
            }
            Self::ReadAbsent => t.future(lodgers, ABSENT, value).map(drop),
            Self::ResolveAbsent => {
                let absent = t.future(lodgers, ABSENT, value)?;
                t.resolve(absent).map(drop)
            }
            Self::SetAbsent => t.set_future(lodgers, ABSENT, value, 7),
            Self::Divide => {
                let zero = t.future(lodgers, WANTED, value)?;
                t.set_future(lodgers, OWNER, value, Future::from(10) / zero)
            }
            Self::ResolveQuotient => {
                let zero = t.future(lodgers, WANTED, value)?;
                t.resolve(Future::from(10) / zero).map(drop)
            }
            Self::AskQuotient => {
                let zero = t.future(lodgers, WANTED, value)?;
                return t.is_true((Future::from(10) / zero).at_least(1));
            }
            Self::SetBehindAbsent => {
                let absent = t.future(lodgers, ABSENT, value)?;
                t.set_future(lodgers, WANTED, value, absent + 1)
            }
            Self::Ask => {
                let zero = t.future(lodgers, WANTED, value)?;
                return t.is_true(zero.at_least(1));
            }
            Self::AskBoth => {
                let (one, other) = (t.future(lodgers, WANTED, value)?, t.future(lodgers, OWNER, Lodger::BADGE)?);
                return t.is_true(one.at_least(1) | other.at_least(3));
            }
        }?;
        Ok(true)
    }

    /// The same behind a savepoint. The return has taken place also where it tells of a failure.
    fn undone<T: Transaction>(self, t: &mut T, lodgers: &Table<Lodger>) -> Result<bool, Error> {
        let savepoint = t.savepoint();
        let outcome = caught(self.act(t, lodgers))?;
        let observed = caught(t.roll_back_to(savepoint))?;
        if observed.is_err() {
            t.roll_back_to(savepoint)?;
        }
        outcome.and_then(|answer| observed.map(|()| answer))
    }
}

const ATTEMPTS: [Attempt; 20] = [
    Attempt::Update,
    Attempt::LookAndUpdate,
    Attempt::UpdateOneColumn,
    Attempt::Upsert,
    Attempt::UpsertSecond,
    Attempt::Insert,
    Attempt::InsertSecond,
    Attempt::InsertPresent,
    Attempt::UpdateTooLong,
    Attempt::UpsertTooLong,
    Attempt::InsertTooLong,
    Attempt::UpdateOrphan,
    Attempt::UpsertOrphan,
    Attempt::InsertOrphan,
    Attempt::UpdateKey,
    Attempt::UpdateFails,
    Attempt::UpdateOneColumnFails,
    Attempt::DeleteParent,
    Attempt::UpdateAndRollBack,
    Attempt::DeleteAndRollBack,
];

impl Attempt {
    /// Whether the client takes it back although nothing is refused.
    fn rolls_back(self) -> bool {
        let is_answered = matches!(self, Self::OfFutures(Open::Ask | Open::AskBoth));
        is_answered || matches!(self, Self::UpdateAndRollBack | Self::DeleteAndRollBack)
    }

    fn act<T: Transaction>(self, t: &mut T, Tables { houses, lodgers }: &Tables) -> Result<String, Error> {
        let mut seen = None;
        let (long, orphan) = (too_long(), Some(NO_HOUSE));
        let outcome = match self {
            Self::Update => t.update(lodgers, WANTED, |row| row.set_bed(2)),
            Self::LookAndUpdate => t.update(lodgers, WANTED, |row| {
                seen = Some((row.floor(), row.bed(), row.value()));
                row.set_bed(2);
            }),
            Self::UpdateOneColumn => t.update_columns(lodgers, WANTED, Lodger::BED, |row| row.set_bed(2)),
            Self::Upsert => t.upsert(lodgers, &lodger(WANTED, 1, 2)).map(|()| true),
            Self::UpsertSecond => t.upsert(lodgers, &Lodger { badge: OWNER, ..lodger(WANTED, 1, 1) }).map(|()| true),
            Self::InsertSecond => t.insert(lodgers, &Lodger { badge: OWNER, ..lodger(ABSENT, 4, 4) }).map(|()| true),
            Self::Insert => t.insert(lodgers, &lodger(ABSENT, 1, 2)).map(|()| true),
            Self::InsertPresent => t.insert(lodgers, &lodger(WANTED, 5, 5)).map(|()| true),
            Self::UpdateTooLong => t.update(lodgers, WANTED, |row| row.set_name(&long).unwrap()),
            Self::UpsertTooLong => t.upsert(lodgers, &Lodger { name: long, ..lodger(WANTED, 5, 5) }).map(|()| true),
            Self::InsertTooLong => t.insert(lodgers, &Lodger { name: long, ..lodger(ABSENT, 5, 5) }).map(|()| true),
            Self::UpdateOrphan => t.update(lodgers, WANTED, |row| row.set_house(orphan)),
            Self::UpsertOrphan => t.upsert(lodgers, &Lodger { house: orphan, ..lodger(WANTED, 5, 5) }).map(|()| true),
            Self::InsertOrphan => t.insert(lodgers, &Lodger { house: orphan, ..lodger(ABSENT, 5, 5) }).map(|()| true),
            Self::UpdateKey => {
                t.update_row(lodgers.id(), Key8::new(WANTED, 8), &Projection::ALL, |row| Lodger::ID.set(row, ABSENT))
            }
            Self::UpdateFails => t.update(lodgers, WANTED, |row| {
                seen = Some((row.floor(), row.bed(), row.value()));
                row.set_bed(4);
                Err(Error::RolledBack)
            }),
            Self::UpdateOneColumnFails => t.update_columns(lodgers, WANTED, Lodger::BED, |row| {
                row.set_bed(row.bed() + 3);
                Err(Error::RolledBack)
            }),
            Self::DeleteParent => t.delete(houses, FULL),
            Self::UpdateAndRollBack => behind_a_savepoint(t, |t| t.update(lodgers, WANTED, |row| row.set_bed(4))),
            Self::DeleteAndRollBack => behind_a_savepoint(t, |t| t.delete(lodgers, WANTED)),
            Self::OfFutures(open) => open.undone(t, lodgers),
        };
        caught(outcome).map(|outcome| format!("{outcome:?}, {seen:?}"))
    }
}

/// What the second transaction does.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Deletes the row.
    Delete(u64),
    /// Moves it to another floor.
    Floor(u64),
    /// Moves it to another bed of the floor.
    Bed(u64),
    Value,
    Badge(u64),
    Name,
    House(Option<u64>),
    /// Inserts the row that was absent.
    Insert,
    /// Gives the key of a row to the one that was absent.
    Replace(u64),
    InsertHouse,
    DeleteHouse,
}

const CHANGES: [Change; 17] = [
    Change::Delete(WANTED),
    Change::Delete(OWNER),
    Change::Floor(WANTED),
    Change::Floor(OWNER),
    Change::Bed(WANTED),
    Change::Bed(OWNER),
    Change::Value,
    Change::Badge(WANTED),
    Change::Badge(OWNER),
    Change::Name,
    Change::House(None),
    Change::House(Some(EMPTY)),
    Change::Insert,
    Change::Replace(WANTED),
    Change::Replace(OWNER),
    Change::InsertHouse,
    Change::DeleteHouse,
];

impl Change {
    fn act<T: Transaction>(self, t: &mut T, Tables { houses, lodgers }: &Tables) -> Result<String, Error> {
        let outcome = match self {
            Self::Delete(id) => t.delete(lodgers, id),
            Self::Floor(id) => t.update(lodgers, id, |row| row.set_floor(8)),
            Self::Bed(id) => t.update(lodgers, id, |row| row.set_bed(8)),
            Self::Value => t.update(lodgers, WANTED, |row| row.set_value(5)),
            Self::Badge(id) => t.update(lodgers, id, |row| row.set_badge(20 + id)),
            Self::Name => t.update(lodgers, WANTED, |row| row.set_name("another").unwrap()),
            Self::House(house) => t.update(lodgers, WANTED, |row| row.set_house(house)),
            Self::Insert => t.insert(lodgers, &lodger(ABSENT, 4, 4)).map(|()| true),
            Self::Replace(id) => {
                let is_gone = t.delete(lodgers, id)?;
                t.insert(lodgers, &lodger(ABSENT, 1, id as u32 + 1)).map(|()| is_gone)
            }
            Self::InsertHouse => t.insert(houses, &House { id: NO_HOUSE }).map(|()| true),
            Self::DeleteHouse => {
                t.update(lodgers, WANTED, |row| row.set_house(None))?;
                t.delete(houses, FULL)
            }
        };
        caught(outcome).map(|outcome| format!("{outcome:?}"))
    }
}

fn behind_a_savepoint<T: Transaction>(
    t: &mut T,
    operation: impl FnOnce(&mut T) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let savepoint = t.savepoint();
    let outcome = operation(t)?;
    t.roll_back_to(savepoint).map(|()| outcome)
}

/// What an operation came to that may be refused: conflicts are passed on, and waits that are one.
fn caught<O>(outcome: Result<O, Error>) -> Result<Result<O, Error>, Error> {
    match outcome {
        Ok(output) => Ok(Ok(output)),
        Err(Error::Conflict) => Err(Error::Conflict),
        Err(error @ Error::WaitsForItself { .. }) => Err(error),
        Err(error) => Ok(Err(error)),
    }
}

/// The transactions, each of a step behind the other.
#[derive(Clone, Copy, Debug)]
struct Case {
    attempt: Attempt,
    change: Change,
}

/// What both transactions were answered, and what there is behind them.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    answers: [[String; 2]; 2],
    lodgers: Vec<Lodger>,
    houses: Vec<House>,
}

impl Case {
    fn step<T: Transaction>(
        self,
        t: &mut T,
        tables: &Tables,
        (transaction, step): (usize, usize),
    ) -> Result<String, Error> {
        match (transaction, step) {
            (0, 0) => self.attempt.act(t, tables),
            (0, _) => t.update(&tables.lodgers, OTHER, |row| row.set_value(1)).map(|found| found.to_string()),
            (_, 0) => Ok(format!("{:?}", t.get(&tables.lodgers, OTHER)?.map(|row| row.value()))),
            (_, _) => self.change.act(t, tables),
        }
    }
}

/// A database and its tables.
struct Stage<P: Protocol<Worker: Interactive>> {
    tables: Tables,
    workers: [P::Worker; 3],
}

impl<P: Protocol<Worker: Interactive>> Stage<P> {
    fn open(database: &Arc<P>, kind: IndexKind) -> Self {
        let created = |definition: TableDefinition| {
            let mut definition = definition.with_primary_kind(kind);
            definition.indexes.iter_mut().for_each(|index| index.kind = kind);
            database.create_table(definition).unwrap()
        };
        let (houses, lodgers) = (created(House::definition()), created(Lodger::definition()));
        Self {
            tables: Tables { houses: Table::from_id(houses), lodgers: Table::from_id(lodgers) },
            workers: [(); 3].map(|()| database.worker().unwrap()),
        }
    }

    /// Puts all rows back.
    fn reset(&mut self) {
        let Tables { houses, lodgers } = self.tables;
        done(&mut self.workers[2], |t| {
            for id in [WANTED, OWNER, OTHER, ABSENT] {
                t.delete(&lodgers, id)?;
            }
            t.delete(&houses, NO_HOUSE)?;
            [FULL, EMPTY].into_iter().try_for_each(|id| t.upsert(&houses, &House { id }))?;
            [lodger(WANTED, 1, 1), lodger(OWNER, 1, 2), lodger(OTHER, 9, 9)]
                .iter()
                .try_for_each(|row| t.insert(&lodgers, row))
        });
    }

    fn seen(&mut self, answers: [[String; 2]; 2]) -> Seen {
        let Tables { houses, lodgers } = self.tables;
        done(&mut self.workers[2], |t| {
            let mut seen = Seen { answers: answers.clone(), lodgers: Vec::new(), houses: Vec::new() };
            for id in 0..=NO_HOUSE.max(ABSENT) {
                seen.lodgers.extend(t.get(&lodgers, id)?.map(Lodger::from_ref));
                seen.houses.extend(t.get(&houses, id)?.map(House::from_ref));
            }
            Ok(seen)
        })
    }

    /// Runs one transaction behind the other.
    fn in_order(&mut self, case: Case, first: usize) -> Seen {
        self.reset();
        let mut answers = [const { [const { String::new() }; 2] }; 2];
        for transaction in [first, 1 - first] {
            let tables = self.tables;
            answers[transaction] = done(&mut self.workers[transaction], |t| {
                Ok([case.step(t, &tables, (transaction, 0))?, case.step(t, &tables, (transaction, 1))?])
            });
        }
        self.seen(answers)
    }

    /// Runs them in turns; each commits at its last one. `None`: not both commit.
    fn in_turns(&mut self, case: Case, turns: [usize; 6]) -> Option<Seen> {
        self.reset();
        let tables = self.tables;
        let mut answers = [const { [const { String::new() }; 2] }; 2];
        let [one, two, _] = &mut self.workers;
        let mut clients = [Some(begin(one)), Some(begin(two))];
        let (mut taken, mut commits) = ([0; 2], 0);
        for turn in turns {
            let step = taken[turn];
            taken[turn] += 1;
            if step == 2 {
                commits += usize::from(clients[turn].take().is_some_and(|client| client.commit()));
            } else if let Some(client) = &mut clients[turn] {
                answers[turn][step] = client.step(|t| case.step(t, &tables, (turn, step))).unwrap_or_default();
            }
        }
        drop(clients);
        (commits == 2).then(|| self.seen(answers))
    }
}

/// All orders of three turns of each of two transactions.
fn all_turns() -> impl Iterator<Item = [usize; 6]> {
    (0..1 << 6_u32)
        .filter(|turns: &usize| turns.count_ones() == 3)
        .map(|turns| std::array::from_fn(|at| turns >> at & 1))
}

/// What a caught refusal has told stays so until the commit, or the transaction conflicts.
pub fn told_by_errors<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    each_meets_each(setup, ATTEMPTS.to_vec());
}

/// The same of refused operations on futures, and of conditions over them that are not met.
pub fn told_by_futures<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    each_meets_each(setup, OPEN.map(Attempt::OfFutures).to_vec());
}

fn each_meets_each<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, attempts: Vec<Attempt>) {
    if setup.isolation != Isolation::Serializable {
        return;
    }
    let setup = setup.clone();
    watched(move |progress| {
        let mut wrong = Vec::new();
        for kind in [IndexKind::Ordered, IndexKind::Hash] {
            let database = setup.open();
            let mut stage = Stage::open(&database, kind);
            for (attempt, change) in attempts.iter().copied().flat_map(|one| CHANGES.map(|other| (one, other))) {
                let case = Case { attempt, change };
                progress.at(format!("{case:?}, {kind:?}"));
                let allowed = [0, 1].map(|first| stage.in_order(case, first));
                let is_refused = allowed[0].answers[0][0].starts_with("Err");
                assert!(is_refused || attempt.rolls_back(), "{case:?} is not refused");
                for turns in all_turns() {
                    let seen = stage.in_turns(case, turns);
                    if seen.is_some_and(|seen| !allowed.contains(&seen)) {
                        wrong.push(format!("{case:?}, {kind:?}, turns {turns:?}"));
                    }
                }
                setup.pass(&database, 1);
            }
        }
        assert!(wrong.is_empty(), "no serial order explains {} cases:\n{}", wrong.len(), wrong.join("\n"));
    });
}

/// The same of a row that cannot grow because memory is short: that it was there has been told, for otherwise nothing would have been asked for.
pub fn told_by_lack_of_memory<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if setup.isolation != Isolation::Serializable || !setup.interleaves {
        return;
    }
    let mut setup = setup.clone();
    setup.common.memory.limit_bytes = Some(8 << 20);
    setup.common.memory.region_bytes = 1 << 20;
    setup.common.memory.chunk_bytes = 64 << 10;
    let database = setup.open();
    let table = create::<P, Image>(&database);
    let [mut one, mut two] = [(); 2].map(|()| database.worker().unwrap());
    let image = |id| Image { id, bytes: vec![7; 10_000] };
    let full = (0..10_000).find(|&id| run(&mut one, |t| t.insert(&table, &image(id))).is_err());
    assert!(full.is_some_and(|rows| rows > OTHER), "the limit binds, and not at once");
    let large = vec![8; 900_000];
    let (mut is_refused, mut second) = (false, Ok(()));
    let mut transaction = one.begin(Mode::ReadWrite).unwrap();
    let mut first = caught(transaction.update(&table, WANTED, |row| row.set_bytes(&large).unwrap())).map(|outcome| {
        is_refused = matches!(outcome, Err(Error::OutOfMemory(_)));
    });
    if first.is_ok() {
        let mut other = two.begin(Mode::ReadWrite).unwrap();
        second = other.get(&table, OTHER).map(drop).and_then(|()| other.delete(&table, WANTED).map(drop));
        second = second.and_then(|()| other.commit());
        first = transaction.delete(&table, OTHER).map(drop);
    }
    let both = second.is_ok() && first.is_ok() && transaction.commit().is_ok();
    assert!(!(both && is_refused), "the row went before, and was refused room");
}
