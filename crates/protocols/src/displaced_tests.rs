//! Deleted rows that only older readers see, under every protocol that displaces them: they are out of the way of others, and the readers find
//! them.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::stores::{Keyed, StoreProtocol, for_each};
use polychron_engine::{
    Aggregate, Commit, Direction, Error, Interactive, Mode, Operations, Protocol, Row, RowRef, Scan, Table, Transaction,
};
use polychron_index::AnyIndex;
use polychron_schema::{Index, Value};

#[derive(polychron_schema::Row, Clone, Debug, PartialEq)]
#[row(name = "member")]
#[index(name = "by_group", columns(group))]
pub(crate) struct Member {
    #[key]
    pub(crate) id: u64,
    group: u32,
    pub(crate) balance: i64,
}

pub(crate) fn member(id: u64) -> Member {
    Member { id, group: id as u32 % 4, balance: id as i64 + 1 }
}

/// A row of one of four groups, whose third column is its balance.
pub(crate) trait Grouped: Row<Key = u64> {
    const GROUPS: Index<Self, u32>;

    fn parts(row: &Self::Ref<'_>) -> (u64, i64);
}

impl Grouped for Member {
    const GROUPS: Index<Self, u32> = Self::BY_GROUP;

    fn parts(row: &MemberRef<'_>) -> (u64, i64) {
        (row.id(), row.balance())
    }
}

type Tx<'w, P> = <<P as StoreProtocol>::Worker as Interactive>::Transaction<'w>;

/// A database whose background is the test's.
pub(crate) struct Stage<P: StoreProtocol> {
    pub(crate) database: Arc<P>,
    pub(crate) members: Table<Member>,
    /// The index beside a store's.
    beside: fn(&P::Store) -> Option<&AnyIndex>,
    /// Has everything displaced and freed that no open transaction prevents.
    quiesce: fn(&Arc<P>, &mut P::Worker),
}

impl<P: StoreProtocol<Worker: Interactive>> Stage<P> {
    pub(crate) fn new(
        database: Arc<P>,
        beside: fn(&P::Store) -> Option<&AnyIndex>,
        quiesce: fn(&Arc<P>, &mut P::Worker),
    ) -> Self {
        let members = Table::from_id(database.create_table(Member::definition()).unwrap());
        Self { database, members, beside, quiesce }
    }

    pub(crate) fn worker(&self) -> P::Worker {
        self.database.worker().unwrap()
    }

    pub(crate) fn quiesce(&self, worker: &mut P::Worker) {
        (self.quiesce)(&self.database, worker);
    }

    /// Entries of each index, and of those beside them.
    pub(crate) fn entries(&self) -> Vec<(usize, usize)> {
        entries(&*self.database, self.members.id(), self.beside)
    }

    pub(crate) fn fill(&self, worker: &mut P::Worker, ids: Range<u64>) {
        change(worker, |t| ids.into_iter().try_for_each(|id| t.insert(&self.members, &member(id))));
    }

    pub(crate) fn delete(&self, worker: &mut P::Worker, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|id| change(worker, |t| t.delete(&self.members, id).map(|found| assert!(found))));
    }

    /// The head of a queue goes, and a new tail comes.
    pub(crate) fn turn(&self, worker: &mut P::Worker, head: u64, tail: u64) {
        change(worker, |t| {
            let first = t.scan(&self.members, ..).first(|row| row.id())?.unwrap();
            assert_eq!(first, head);
            assert!(t.delete(&self.members, head)?);
            t.insert(&self.members, &member(tail))
        });
    }

    /// Asserts that there are so many rows, and nothing beside the indexes.
    pub(crate) fn has_rows_alone(&self, rows: usize) {
        let entries = self.entries();
        assert!(entries.iter().all(|&counts| counts == (rows, 0)), "{entries:?} for {rows} rows");
    }
}

/// Entries of each index of a table, and of those beside them.
pub(crate) fn entries<D: StoreProtocol>(
    database: &D,
    table: polychron_engine::TableId,
    beside: fn(&D::Store) -> Option<&AnyIndex>,
) -> Vec<(usize, usize)> {
    let (_, tables) = database.base().catalog.snapshot();
    let table = polychron_engine::catalog::known(&tables, table).unwrap();
    database.base().deferred_drops.with_guard(|guard| {
        let count = |index: &AnyIndex| {
            let mut count = 0;
            for_each(index, guard, &mut |_, _| count += 1);
            count
        };
        table.stores().map(|store| (count(store.entries().index()), beside(store).map_or(0, count))).collect()
    })
}

/// Runs a transaction that commits at the first attempt.
pub(crate) fn change<W: Interactive>(worker: &mut W, body: impl FnOnce(&mut W::Transaction<'_>) -> Result<(), Error>) {
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    body(&mut t).unwrap();
    t.commit().unwrap();
}

/// The keys that a scan of a table visits.
fn keys_of<R: Grouped>(t: &mut impl Transaction, table: &Table<R>, direction: Direction) -> Vec<u64> {
    let mut keys = Vec::new();
    let visit = &mut |row: RowRef<'_>| {
        keys.push(R::parts(&R::view(row)).0);
        ControlFlow::Continue(())
    };
    t.scan_rows(&Scan { direction, ..Scan::all(table.id()) }, visit).unwrap();
    keys
}

/// What a reader sees, by single reads, by scans of the primary index in both directions and in parts, by those of the secondary one, as a sum,
/// and in the order of the table.
pub(crate) fn check<R: Grouped>(t: &mut impl Transaction, table: &Table<R>, rows: &BTreeMap<u64, i64>, keys: u64) {
    for id in 0..keys {
        assert_eq!(t.get(table, id).unwrap().map(|row| R::parts(&row).1), rows.get(&id).copied(), "row {id}");
    }
    let forward = t.scan(table, ..).map(|row| R::parts(&row)).collect::<Vec<_>>().unwrap();
    assert!(forward.iter().map(|row| (&row.0, &row.1)).eq(rows.iter()), "{forward:?} in place of {rows:?}");
    assert!(keys_of(t, table, Direction::Backward).iter().rev().eq(rows.keys()));
    for (from, limit) in [(0, 1), (keys / 4, 3), (keys / 2, 100)] {
        let some = t.scan(table, from..keys - 1).limit(limit).map(|row| R::parts(&row).0).collect::<Vec<_>>().unwrap();
        assert!(some.iter().eq(rows.range(from..keys - 1).map(|row| row.0).take(limit)));
    }
    let (mut by_group, sum) = (0, rows.values().sum::<i64>());
    for group in 0..4 {
        by_group += t.scan_by(table, R::GROUPS, group).map(|row| R::parts(&row).1).sum().unwrap();
    }
    assert_eq!(by_group, sum);
    // The range of an empty sum is NULL.
    let all = t.aggregate(&Scan::all(table.id()), Aggregate::Sum(2)).unwrap();
    assert!(all == Value::Integer(sum) || rows.is_empty(), "{all:?} is not {sum}");
    let mut count = 0;
    t.visit_all(table, |_| count += 1).unwrap();
    assert_eq!(count, rows.len());
}

/// Rows of a few keys come, go, move in the secondary index and come back while snapshots of several times are open, and `writers` as well, one
/// after the other: each sees its time. `tick` is what passes between two changes.
pub(crate) fn readers_find_what_was_displaced<P: StoreProtocol<Worker: Interactive>>(
    stage: &Stage<P>,
    writers: usize,
    tick: impl Fn(),
) {
    const KEYS: u64 = 40;
    let (members, every) = (&stage.members, scaled(400, 24) as i64);
    let mut worker = stage.worker();
    let mut readers: Vec<_> = (0..4).map(|_| stage.worker()).collect();
    let mut writers: Vec<_> = (0..writers).map(|_| stage.worker()).collect();
    let (mut rows, mut random) = (BTreeMap::new(), Random::stream(11, 1));
    let mut open: Vec<(Tx<'_, P>, BTreeMap<u64, i64>)> = Vec::new();
    let (mut readers, mut writers) = (readers.iter_mut(), writers.iter_mut());
    let (mut old, mut has_displaced): (Option<(Tx<'_, P>, _)>, _) = (None, false);
    for round in 0..4 * every {
        if round % every == 10
            && let Some(reader) = readers.next()
        {
            stage.quiesce(&mut worker);
            open.push((reader.begin(Mode::Snapshot).unwrap(), rows.clone()));
        }
        if round % every == 15 {
            old = writers.next().map(|writer| (writer.begin(Mode::ReadWrite).unwrap(), rows.clone()));
        }
        if round % every == every - every / 10 {
            old = None;
        }
        let id = random.below(KEYS);
        if round % 3 > 0 && rows.remove(&id).is_some() {
            stage.delete(&mut worker, [id]);
        } else {
            let row = Member { id, group: round as u32 % 4, balance: round };
            change(&mut worker, |t| t.upsert(members, &row));
            rows.insert(id, round);
        }
        tick();
        has_displaced |= stage.entries()[0].1 > 0;
        if round % 97 == 0 {
            open.iter_mut().chain(&mut old).for_each(|(t, seen)| check(t, members, seen, KEYS));
        }
    }
    assert!(has_displaced && old.is_none());
    // The oldest goes first, and then the latest, so that what others see stays.
    while !open.is_empty() {
        drop(open.remove(if open.len().is_multiple_of(2) { 0 } else { open.len() - 1 }));
        stage.quiesce(&mut worker);
        open.iter_mut().for_each(|(t, seen)| check(t, members, seen, KEYS));
    }
    stage.quiesce(&mut worker);
    stage.has_rows_alone(rows.len());
}

/// Rows are deleted and displaced while a snapshot is in the middle of a scan, in both directions: each is visited once.
pub(crate) fn rows_are_displaced_under_a_scan<P: StoreProtocol<Worker: Interactive>>(open: impl Fn() -> Stage<P>) {
    for rows in [10, scaled(300, 70) as u64] {
        for direction in [Direction::Forward, Direction::Backward] {
            for stop in [0, rows / 2, rows - 1] {
                let stage = open();
                let (mut reader, mut worker) = (stage.worker(), stage.worker());
                stage.fill(&mut worker, 0..rows);
                stage.quiesce(&mut worker);
                let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
                stage.quiesce(&mut worker);
                let mut seen = Vec::new();
                let visit = &mut |row: RowRef<'_>| {
                    if seen.len() as u64 == stop {
                        // Half of the rows go, on both sides.
                        stage.delete(&mut worker, (0..rows).step_by(2));
                        stage.quiesce(&mut worker);
                        assert_eq!(stage.entries()[0], (rows as usize / 2, rows as usize / 2));
                    }
                    seen.push(Member::view(row).id());
                    ControlFlow::Continue(())
                };
                snapshot.scan_rows(&Scan { direction, ..Scan::all(stage.members.id()) }, visit).unwrap();
                if direction == Direction::Backward {
                    seen.reverse();
                }
                assert!(seen.iter().copied().eq(0..rows), "{direction:?}, {stop}: {seen:?}");
            }
        }
    }
}
