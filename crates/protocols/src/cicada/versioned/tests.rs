//! Trees against a map: keys of every shape, both kinds of index, both directions, undone changes; what holds of the nodes; threads.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use polychron_base::TableId;
use polychron_base::key::EncodedKey;
use polychron_base::random::Random;
use polychron_base::sizes::{scaled, slowed};
use polychron_engine::{
    Commit, Common, Direction, Error, Insertion, Interactive, Mode, Operations, Procedure, Projection, Protocol,
    RowBuffer, Scan, TableDefinition, Transaction, Worker, drive,
};
use polychron_schema::{ColumnType, IndexDefinition, IndexKind};

use super::node::{KeyRef, Node, compare, word_of};
use crate::cicada::kept::Kept;
use crate::cicada::options::{Indexes, Options};
use crate::cicada::protocol::Cicada;
use crate::cicada::transaction::CicadaTransaction;
use crate::cicada::worker::CicadaWorker;

type Tx<'w> = <CicadaWorker as Interactive>::Transaction<'w>;
type Model = BTreeMap<Vec<u8>, u64>;

fn open(change: impl FnOnce(&mut Options)) -> Arc<Cicada> {
    let memory = polychron_memory::Options {
        huge_pages: false,
        region_bytes: 16 << 20,
        limit_bytes: Some(512 << 20),
        max_workers: 8,
        epoch_interval: Some(slowed(Duration::from_millis(10))),
        ..polychron_memory::Options::default()
    };
    let background_interval = slowed(Duration::from_millis(1));
    let mut options = Options { indexes: Indexes::MultiVersion, background_interval, ..Options::default() };
    change(&mut options);
    Cicada::open(options, Common { memory, ..Common::default() }).unwrap()
}

fn table(database: &Cicada, kind: IndexKind) -> TableId {
    let definition = TableDefinition::new("numbers").with_column("value", ColumnType::U64).with_key([0]);
    database.create_table(definition.with_primary_kind(kind)).unwrap()
}

fn row(value: u64) -> RowBuffer {
    let mut row = RowBuffer::new();
    row.copy_from(&value.to_le_bytes());
    row
}

fn value(row: polychron_schema::RowRef<'_>) -> u64 {
    row.as_words()[0]
}

/// Keys of one shape.
type MakeKey = fn(&mut Random) -> Vec<u8>;

fn numbers(random: &mut Random) -> Vec<u8> {
    random.below(3000).to_be_bytes().to_vec()
}

fn pairs(random: &mut Random) -> Vec<u8> {
    [&(random.below(3) as u32).to_be_bytes()[..], &random.below(800).to_be_bytes()].concat()
}

/// Prefixes of each other, zero bytes, and nothing at all.
fn mixed(random: &mut Random) -> Vec<u8> {
    let len = random.below(19) as usize;
    (0..len).map(|_| [0, 0, 1, 255][random.below(4) as usize]).collect()
}

/// Up to the longest key, with a front in common.
fn long(random: &mut Random) -> Vec<u8> {
    let len = [9, 100, 1000, 1020][random.below(4) as usize];
    let mut key = vec![7; len];
    key.extend((random.below(120) as u32).to_be_bytes());
    key
}

const SHAPES: [(&str, MakeKey); 4] = [("numbers", numbers), ("pairs", pairs), ("mixed", mixed), ("long", long)];

fn bound<'k>(random: &mut Random, key: &'k [u8]) -> Bound<&'k [u8]> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn is_range(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Included(lower), Bound::Included(upper)) => lower <= upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
            lower < upper
        }
        _ => true,
    }
}

fn scanned(t: &mut Tx<'_>, scan: &Scan<'_>) -> Result<Vec<u64>, Error> {
    let mut seen = Vec::new();
    t.scan_rows(scan, &mut |row| {
        seen.push(value(row));
        ControlFlow::Continue(())
    })?;
    Ok(seen)
}

fn compare_range(
    t: &mut Tx<'_>,
    table: TableId,
    model: &Model,
    random: &mut Random,
    make: MakeKey,
) -> Result<(), Error> {
    let (from, to) = (make(random), make(random));
    let (lower, upper) = (bound(random, &from), bound(random, &to));
    let limit = [1, 7, 100, usize::MAX][random.below(4) as usize];
    let backward = random.below(2) == 0;
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let seen = scanned(t, &Scan { lower, upper, direction, limit, ..Scan::all(table) })?;
    let range: Vec<u64> = if is_range(lower, upper) {
        model.range::<[u8], _>((lower, upper)).map(|(_, value)| *value).collect()
    } else {
        Vec::new()
    };
    let expected: Vec<u64> =
        if backward { range.into_iter().rev().take(limit).collect() } else { range.into_iter().take(limit).collect() };
    assert_eq!(seen, expected, "{lower:?} {upper:?} {direction:?} {limit}");
    Ok(())
}

/// One operation on both.
fn operate(t: &mut Tx<'_>, table: TableId, model: &mut Model, random: &mut Random, key: &[u8]) -> Result<(), Error> {
    let new = random.below(1 << 40);
    match random.below(10) {
        0..4 => {
            let inserted = t.insert_unchecked(table, key, row(new).as_row())? == Insertion::Inserted;
            assert_eq!(inserted, !model.contains_key(key), "insertion of {key:?}");
            if inserted {
                model.insert(key.to_vec(), new);
            }
        }
        4..8 => assert_eq!(t.delete_unchecked(table, key)?, model.remove(key).is_some(), "deletion of {key:?}"),
        8 => {
            assert_eq!(t.put_unchecked(table, key, row(new).as_row())?, Insertion::Inserted);
            model.insert(key.to_vec(), new);
        }
        _ => {
            let seen = t.read_row(table, key, &Projection::ALL)?.map(value);
            assert_eq!(seen, model.get(key).copied(), "read of {key:?}");
        }
    }
    Ok(())
}

/// Transactions of a few operations, some undone as a whole and some in part, now more insertions and now more deletions.
fn against_a_map(kind: IndexKind, make: MakeKey, seed: u64, change: impl FnOnce(&mut Options)) {
    let database = open(change);
    let table = table(&database, kind);
    let mut worker = database.worker().unwrap();
    let mut random = Random::from_seed(seed);
    let mut model = Model::new();
    let run = scaled(300, 2);
    for round in 0..5 * run {
        let mut changed = model.clone();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        for _ in 0..random.below(scaled(12, 4) as u64) {
            let mut key = make(&mut random);
            // In the second of two runs what is there goes.
            if round / run % 2 == 1 && random.below(4) > 0 {
                key = changed.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
            }
            operate(&mut t, table, &mut changed, &mut random, &key).unwrap();
        }
        let (savepoint, before) = (t.savepoint(), changed.clone());
        for _ in 0..random.below(scaled(30, 6) as u64) {
            let key = make(&mut random);
            operate(&mut t, table, &mut changed, &mut random, &key).unwrap();
        }
        if random.below(2) == 0 {
            t.roll_back_to(savepoint).unwrap();
            changed = before;
        }
        if kind == IndexKind::Ordered {
            compare_range(&mut t, table, &changed, &mut random, make).unwrap();
        }
        if random.below(4) > 0 {
            t.commit().unwrap();
            model = changed;
        } else {
            drop(t);
        }
        if round % scaled(100, 10) == 0 {
            database.tick();
            check(&mut worker, table, &model, kind);
        }
    }
    drive::transact(&mut worker, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
        model.keys().try_for_each(|key| t.delete_unchecked(table, &key[..]).map(|deleted| assert!(deleted)))
    })
    .unwrap();
    check(&mut worker, table, &Model::new(), kind);
}

/// What holds of every node, and that the rows are those of the model.
fn check(worker: &mut CicadaWorker, table: TableId, model: &Model, kind: IndexKind) {
    let mut t = worker.begin_in_epoch(Mode::ReadWrite).unwrap();
    let store = &t.state.base.tables.table(table).unwrap().primary;
    let nodes = store.versioned.as_ref().unwrap();
    let mut keys = Vec::new();
    for number in 0..nodes.roots.count {
        let root = t.guard.keep(nodes.roots.get(number));
        let spot = t.spot(root);
        let node = t.node_of(&spot).expect("a root is a node");
        assert!(node.low().is_none() && node.high().is_none() && node.next() == 0);
        assert!(node.level() == 0 || node.count() > 1, "a root with a single child");
        let mut last_of_level = vec![None; node.level() + 1];
        check_node(&t, root, node, &mut last_of_level, &mut keys);
        assert!(last_of_level.iter().all(|last| *last == Some(0)), "the last of a level has a sibling");
    }
    if kind == IndexKind::Ordered {
        assert!(keys.is_sorted(), "the leaves are in order");
        let all: Vec<_> = model.values().copied().collect();
        assert_eq!(scanned(&mut t, &Scan::all(table)).unwrap(), all);
        let mut backward = scanned(&mut t, &Scan { direction: Direction::Backward, ..Scan::all(table) }).unwrap();
        backward.reverse();
        assert_eq!(backward, all);
    }
    keys.sort();
    assert!(keys.iter().eq(model.keys()), "the leaves hold the keys of the model");
    t.commit().unwrap();
}

fn bytes(key: KeyRef<'_>) -> Vec<u8> {
    let mut bytes = vec![0; key.len()];
    key.write_to(&mut bytes);
    bytes
}

/// Children cover what their parent does, one after the other, and siblings are linked; no leaf but a root is empty.
fn check_node(
    t: &CicadaTransaction<'_>,
    record: Kept,
    node: Node<'_>,
    last_of_level: &mut [Option<u64>],
    keys: &mut Vec<Vec<u8>>,
) {
    let linked = last_of_level[node.level()].replace(node.next());
    assert!(linked.is_none_or(|linked| linked == word_of(record.address())), "siblings are linked");
    let is_root = node.low().is_none() && node.high().is_none();
    assert!(is_root || node.count() > 0, "an empty node");
    for position in 0..node.count() {
        let key = node.key(position);
        if node.level() == 0 {
            assert!(node.low().is_none_or(|low| compare(low, key).is_le()));
            assert!(node.high().is_none_or(|high| compare(key, high).is_lt()));
            keys.push(bytes(key));
            continue;
        }
        let child = t.guard.keep(node.record(position));
        let spot = t.spot(child);
        let below = t.node_of(&spot).expect("a child is a node");
        assert_eq!(below.level() + 1, node.level());
        let low = if position == 0 { node.low() } else { Some(key) };
        let high = if position + 1 == node.count() { node.high() } else { Some(node.key(position + 1)) };
        assert_eq!(below.low().map(bytes), low.map(bytes), "a child begins where its parent says");
        assert_eq!(below.high().map(bytes), high.map(bytes), "a child ends where the next begins");
        check_node(t, child, below, last_of_level, keys);
    }
}

#[test]
fn ordered_indexes_do_what_a_map_does() {
    for (seed, (name, make)) in SHAPES.into_iter().enumerate() {
        println!("{name}");
        against_a_map(IndexKind::Ordered, make, seed as u64, |_| ());
    }
}

#[test]
fn hash_indexes_do_what_a_map_does() {
    for (seed, (name, make)) in SHAPES.into_iter().enumerate() {
        println!("{name}");
        against_a_map(IndexKind::Hash, make, 100 + seed as u64, |_| ());
    }
}

#[test]
fn nodes_that_lie_outside_of_their_heads_are_as_good() {
    against_a_map(IndexKind::Ordered, mixed, 9, |options| options.ablation.inlining = false);
    against_a_map(IndexKind::Hash, numbers, 10, |options| options.ablation.inlining = false);
}

/// Keys in ascending and in descending order, with a tail that follows: leaves come and go at the ends.
#[test]
fn queues_leave_no_empty_leaves() {
    for descending in [false, true].into_iter().take(scaled(2, 1)) {
        let database = open(|_| ());
        let table = table(&database, IndexKind::Ordered);
        let mut worker = database.worker().unwrap();
        let key = |number: u64| if descending { u64::MAX - number } else { number }.to_be_bytes();
        let mut model = Model::new();
        let tail = scaled(1000, 30) as u64;
        for number in 0..scaled(6000, 60) as u64 {
            drive::transact(&mut worker, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
                assert_eq!(t.insert_unchecked(table, &key(number)[..], row(number).as_row())?, Insertion::Inserted);
                if number >= tail {
                    assert!(t.delete_unchecked(table, &key(number - tail)[..])?);
                }
                Ok::<_, Error>(())
            })
            .unwrap();
            model.insert(key(number).to_vec(), number);
            if number >= tail {
                model.remove(&key(number - tail)[..]);
            }
        }
        check(&mut worker, table, &model, IndexKind::Ordered);
    }
}

/// Threads move keys about, each from where it is to where none is, while others count them in transactions and on snapshots.
#[test]
fn threads_that_move_keys_lose_none() {
    const KEYS: u64 = scaled(300, 30) as u64;
    for kind in [IndexKind::Ordered, IndexKind::Hash] {
        let database = open(|options| options.collection_interval = Duration::ZERO);
        let table = table(&database, kind);
        let mut worker = database.worker().unwrap();
        let key = |number: u64| (number * 7919 % 100_003).to_be_bytes();
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
            (0..KEYS).try_for_each(|number| t.insert_unchecked(table, &key(number)[..], row(number).as_row()).map(drop))
        })
        .unwrap();
        let move_one = |t: &mut Tx<'_>, random: &mut Random| -> Result<(), Error> {
            let (from, to) = (key(random.below(4 * KEYS)), key(random.below(4 * KEYS)));
            let Some(moved) = t.read_row(table, &from[..], &Projection::ALL)?.map(value) else { return Ok(()) };
            if t.insert_unchecked(table, &to[..], row(moved).as_row())? == Insertion::Inserted {
                assert!(t.delete_unchecked(table, &from[..])?);
            }
            Ok(())
        };
        let count = |t: &mut Tx<'_>| -> Result<u64, Error> {
            if kind == IndexKind::Ordered {
                return Ok(scanned(t, &Scan::all(table))?.len() as u64);
            }
            (0..4 * KEYS).try_fold(0, |count, number| {
                Ok(count + u64::from(t.read_row(table, &key(number)[..], &Projection::ALL)?.is_some()))
            })
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (database, move_one, count) = (&database, &move_one, &count);
                scope.spawn(move || {
                    let mut worker = database.worker().unwrap();
                    let mut random = Random::stream(3, thread);
                    for round in 0..scaled(3000, 8) {
                        let mode = if round % 100 == 0 { Mode::Snapshot } else { Mode::ReadWrite };
                        if round % 50 == 0 {
                            assert_eq!(drive::transact(&mut worker, mode, &mut |t| count(t)).unwrap(), KEYS);
                        } else {
                            drive::transact(&mut worker, mode, &mut |t| move_one(t, &mut random)).unwrap();
                        }
                    }
                });
            }
        });
        let mut model = Model::new();
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
            model.clear();
            (0..4 * KEYS).try_for_each(|number| {
                let seen = t.read_row(table, &key(number)[..], &Projection::ALL)?.map(value);
                model.extend(seen.map(|value| (key(number).to_vec(), value)));
                Ok::<_, Error>(())
            })
        })
        .unwrap();
        assert_eq!(model.len() as u64, KEYS);
        check(&mut worker, table, &model, kind);
    }
}

/// A key that came after a snapshot began, and went, leaves nothing behind while the snapshot is open.
#[test]
fn what_comes_and_goes_behind_a_snapshot_leaves_nothing() {
    let database = open(|options| {
        options.background_interval = Duration::from_secs(3600);
        (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
    });
    let table = table(&database, IndexKind::Ordered);
    let (mut reader, mut worker) = (database.worker().unwrap(), database.worker().unwrap());
    let insert =
        |t: &mut Tx<'_>, number: u64| t.insert_unchecked(table, &number.to_be_bytes()[..], row(number).as_row());
    drive::transact(&mut worker, Mode::ReadWrite, &mut |t| insert(t, 5).map(drop)).unwrap();
    database.tick();
    let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
    assert_eq!(scanned(&mut snapshot, &Scan::all(table)).unwrap(), [5]);
    let mut used = Vec::new();
    let (rounds, keys) = (scaled(40, 7), scaled(100, 30) as u64);
    for round in 1..=rounds as u64 {
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t| {
            (0..keys).try_for_each(|number| insert(t, 1000 * round + number).map(drop))
        })
        .unwrap();
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
            (0..keys)
                .try_for_each(|number| t.delete_unchecked(table, &(1000 * round + number).to_be_bytes()[..]).map(drop))
        })
        .unwrap();
        for _ in 0..4 {
            database.tick();
            worker.maintain();
            assert_eq!(scanned(&mut snapshot, &Scan::all(table)).unwrap(), [5]);
        }
        used.push(database.memory().statistics().used_bytes);
    }
    assert_eq!(used[5], used[rounds - 1], "{used:?}");
    check(&mut worker, table, &Model::from([(5_u64.to_be_bytes().to_vec(), 5)]), IndexKind::Ordered);
    assert!(snapshot.commit().is_ok());
}

/// What a batch declares is found by its hints, or without them where they are of the past.
#[test]
fn batches_find_what_they_declare() {
    struct Move {
        table: TableId,
        from: u64,
        to: u64,
    }
    impl Procedure for Move {
        type Output = bool;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
            let (from, to) = (self.from.to_be_bytes(), self.to.to_be_bytes());
            let Some(moved) = t.read_row(self.table, &from[..], &Projection::ALL)?.map(value) else { return Ok(false) };
            assert_eq!(moved, self.from, "the row of another key");
            if t.insert_unchecked(self.table, &to[..], row(self.to).as_row())? != Insertion::Inserted {
                return Ok(false);
            }
            t.delete_unchecked(self.table, &from[..])
        }

        fn declare<D: polychron_engine::Declare>(&self, declaration: &mut D) {
            for key in [self.from, self.to] {
                declaration.key(self.table, &key.to_be_bytes()[..], polychron_engine::Access::Write);
            }
        }
    }
    for kind in [IndexKind::Ordered, IndexKind::Hash] {
        let database = open(|options| options.collection_interval = Duration::ZERO);
        let table = table(&database, kind);
        let mut worker = database.worker().unwrap();
        let keys = scaled(200, 30) as u64;
        let mut model: Model = (0..keys).map(|key| (key.to_be_bytes().to_vec(), key)).collect();
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
            model
                .iter()
                .try_for_each(|(key, value)| t.insert_unchecked(table, &key[..], row(*value).as_row()).map(drop))
        })
        .unwrap();
        let mut random = Random::from_seed(5);
        for _ in 0..scaled(200, 2) {
            let mut moves: Vec<_> = (0..scaled(30, 6))
                .map(|_| Move { table, from: random.below(2 * keys), to: random.below(2 * keys) })
                .collect();
            let pairs: Vec<_> = moves.iter().map(|it| (it.from, it.to)).collect();
            worker.execute_batch(&mut moves, &mut |position, moved| {
                let (from, to) = pairs[position];
                let key = |key: u64| key.to_be_bytes().to_vec();
                let expected = model.contains_key(&key(from)) && !model.contains_key(&key(to));
                assert_eq!(moved.unwrap(), expected);
                if expected {
                    model.remove(&key(from));
                    model.insert(key(to), to);
                }
            });
        }
        check(&mut worker, table, &model, kind);
    }
}

/// Each index is what it was chosen to be, and a new one on a full table is filled.
#[test]
fn indexes_are_chosen_one_by_one() {
    let named = Indexes::MultiVersionOf(vec!["numbers.by_half".into(), "others".into()]);
    assert_eq!("multi-version:numbers.by_half,others".parse::<Indexes>().unwrap(), named);
    assert!("multi-version:".parse::<Indexes>().is_err() && "".parse::<Indexes>().is_err());
    for indexes in [named, Indexes::MultiVersion, Indexes::SingleVersion] {
        let database = open(|options| options.indexes = indexes.clone());
        let definition = TableDefinition::new("numbers")
            .with_column("value", ColumnType::U64)
            .with_column("half", ColumnType::U64)
            .with_key([0]);
        let id = database.create_table(definition).unwrap();
        let mut worker = database.worker().unwrap();
        let rows = scaled(500, 12) as u64;
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t: &mut Tx<'_>| {
            (0..rows).try_for_each(|number| {
                let mut row = RowBuffer::new();
                row.copy_from(&[number.to_le_bytes(), (number / 2).to_le_bytes()].concat());
                t.insert_unchecked(id, &number.to_be_bytes()[..], row.as_row()).map(drop)
            })
        })
        .unwrap();
        let index = database.create_index(id, IndexDefinition::new("by_half", [1])).unwrap();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let present = t.state.base.tables.table(id).unwrap();
        assert_eq!(present.primary.versioned.is_some(), indexes == Indexes::MultiVersion);
        let secondary = present.store(index).unwrap();
        assert_eq!(secondary.versioned.is_some(), indexes != Indexes::SingleVersion);
        assert_eq!(scanned(&mut t, &Scan { index, ..Scan::all(id) }).unwrap(), (0..rows).collect::<Vec<_>>());
        t.commit().unwrap();
    }
}
