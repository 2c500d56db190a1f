//! Keys of types that clients define, and that do not tell the truth: too long for memory, or another one at each look.

use std::ops::{Bound, ControlFlow};

use polychron_base::key::{EncodedKey, Key8, MAX_KEY_BYTES};
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_base::{Error, TableId};
use polychron_engine::futures::{FutureColumn, Operand};
use polychron_engine::{
    Access, Aggregate, Declare, Interactive, Operations, Procedure, Projection, Protocol, RowBuffer, RowRef, Scan,
    Table, Transaction, Worker,
};
use polychron_schema::{ColumnType, Row};
use polychron_sync::atomic::{AtomicU64, Ordering};

use crate::Setup;
use crate::rows::{Cell, Item, Person, person};
use crate::setup::{all, create, done, run};
use crate::watch::watched;

/// Rows of each table.
const ROWS: u64 = 8;

/// A key that fills the memory.
#[derive(Clone, Copy)]
struct Endless;

impl EncodedKey for Endless {
    fn len(&self) -> usize {
        usize::MAX
    }

    fn slice(&self, _: usize) -> u64 {
        7
    }
}

/// A key that is another one whenever it is looked at.
#[derive(Clone, Copy)]
struct Fickle<'r>(&'r AtomicU64);

impl Fickle<'_> {
    fn draw(self) -> u64 {
        // Relaxed: one thread at a time has the key.
        Random::from_seed(self.0.fetch_add(1, Ordering::Relaxed)).next_u64()
    }
}

impl EncodedKey for Fickle<'_> {
    fn len(&self) -> usize {
        const LENGTHS: [usize; 12] = [0, 3, 8, 8, 8, 8, 9, 24, MAX_KEY_BYTES, MAX_KEY_BYTES + 1, 1 << 20, usize::MAX];
        LENGTHS[(self.draw() % 12) as usize]
    }

    fn slice(&self, _: usize) -> u64 {
        self.draw() % ROWS
    }
}

fn column() -> FutureColumn {
    FutureColumn { span: Item::VALUE.span(), column_type: ColumnType::I64, nullable: false }
}

/// Ways to use a key of a row.
const WAYS: u64 = 10;

/// Uses a key in one of the ways.
fn use_key<T: Transaction, K: EncodedKey>(
    t: &mut T,
    way: u64,
    table: TableId,
    key: K,
    row: RowRef<'_>,
) -> Result<(), Error> {
    match way {
        0 => t.read_row(table, key, &Projection::ALL).map(drop),
        1 => t.read_row_unvalidated(table, key, &Projection::ALL).map(drop),
        2 => t.update_row(table, key, &Projection::ALL, |_| ()).map(drop),
        3 => t.insert_row(table, key, row).map(drop),
        4 => t.put_row(table, key, row).map(drop),
        5 => t.delete_row(table, key).map(drop),
        6 => t.read_futures(table, key, &[column()], &mut [Operand::of(0)]),
        7 => t.write_futures(table, key, &[(column(), Operand::of(3))]),
        8 => t.update_unchecked(table, key, &Projection::ALL, |_| ()).map(drop),
        _ => {
            t.prefetch_row(table, key);
            t.read_row(table, key, &Projection::NONE).map(drop)
        }
    }
}

fn is_too_long<O>(outcome: Result<O, Error>) -> bool {
    matches!(outcome, Err(Error::KeyTooLong(_)))
}

/// A database with an ordered table, a hashed one, and one with secondary indexes, of rows with keys of eight bytes.
fn open<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
) -> (std::sync::Arc<P>, Table<Item>, Table<Cell>, Table<Person>) {
    let database = setup.open();
    let (items, cells, persons) = (create(&database), create(&database), create(&database));
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        for id in 0..ROWS {
            t.insert(&items, &Item { id, value: 1 })?;
            t.insert(&cells, &Cell { id, value: 1 })?;
            t.insert(&persons, &person(id, 1, id as u32))?;
        }
        Ok(())
    });
    (database, items, cells, persons)
}

fn row_of(id: u64) -> RowBuffer {
    let mut row = RowBuffer::new();
    Item { id, value: 2 }.encode(&mut row).unwrap();
    row
}

/// Ranges that end at a key.
fn ranges(table: TableId, key: &[u8]) -> [Scan<'_>; 4] {
    let ends = [
        (Bound::Included(key), Bound::Unbounded),
        (Bound::Unbounded, Bound::Excluded(key)),
        (Bound::Included(key), Bound::Included(key)),
        (Bound::Excluded(&[][..]), Bound::Included(key)),
    ];
    ends.map(|(lower, upper)| Scan { lower, upper, ..Scan::all(table) })
}

fn refuses_ranges<T: Transaction>(t: &mut T, table: TableId, key: &[u8]) {
    for scan in ranges(table, key) {
        assert!(is_too_long(t.scan_rows(&scan, &mut |_| ControlFlow::Continue(()))), "{scan:?}");
        assert!(is_too_long(t.scan_rows(&Scan { limit: 0, ..scan.clone() }, &mut |_| ControlFlow::Continue(()))));
        assert!(is_too_long(t.aggregate(&scan, Aggregate::Rows)), "{scan:?}");
        let columns = t.scan_columns(&scan, &[1], &mut |_| (), &mut |()| ControlFlow::Continue(()));
        assert!(is_too_long(columns), "{scan:?}");
    }
}

/// What is too long is refused by every operation before any other look at it, and the transaction goes on.
pub fn too_long<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        let (database, items, cells, _) = open(&setup);
        let mut worker = database.worker().unwrap();
        let (long, row) = ([7; MAX_KEY_BYTES + 1], row_of(3));
        done(&mut worker, |t| {
            for table in [items.id(), cells.id()] {
                for way in 0..WAYS {
                    progress.at(format!("way {way}, {table}"));
                    assert!(is_too_long(use_key(t, way, table, Endless, row.as_row())), "way {way}");
                    assert!(is_too_long(use_key(t, way, table, &long[..], row.as_row())), "way {way}");
                }
                progress.at(format!("ranges, {table}"));
                refuses_ranges(t, table, &long);
            }
            t.update(&items, 1, |row| row.set_value(5)).map(drop)
        });
        for table in [items.id(), cells.id()] {
            progress.at(format!("alone, {table}"));
            let read = worker.read_one(table, Endless, &Projection::ALL, |row| row.is_some());
            assert!(matches!(read, Err(Error::KeyTooLong(_))), "{read:?}");
            let read = worker.read_one(table, &long[..], &Projection::ALL, |row| row.is_some());
            assert!(matches!(read, Err(Error::KeyTooLong(_))), "{read:?}");
        }
        let values = all(&mut worker, &items).into_iter().map(|row| row.value);
        assert!(values.eq((0..ROWS).map(|id| if id == 1 { 5 } else { 1 })));
    });
}

/// A key that changes is at most a wrong one: whatever is done with it, tables and indexes agree.
pub fn fickle<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        let (database, items, cells, persons) = open(&setup);
        let mut worker = database.worker().unwrap();
        let mut random = Random::from_seed(11);
        for round in 0..scaled(2000, 200) as u64 {
            let state = AtomicU64::new(random.next_u64());
            let (way, table, row) = (random.below(WAYS), random.below(3), row_of(random.below(ROWS)));
            let table = [items.id(), cells.id(), persons.id()][table as usize];
            progress.at(format!("round {round}, way {way}, {table}"));
            let outcome = run(&mut worker, |t| use_key(t, way, table, Fickle(&state), row.as_row()));
            let is_fine = !matches!(outcome, Err(Error::Panicked(_) | Error::Conflicts(_)));
            assert!(is_fine, "round {round}, way {way}, {table}: {outcome:?}");
            if round % 16 == 0 {
                (setup.tick)(&database);
                let _ = worker.read_one(table, Fickle(&state), &Projection::ALL, |row| row.is_some());
            }
        }
        agree(&mut worker, items, cells, persons);
    });
}

fn agree<W: Interactive + 'static>(worker: &mut W, items: Table<Item>, cells: Table<Cell>, persons: Table<Person>) {
    let (some, others) = (all(worker, &items), all(worker, &persons));
    done(worker, |t| {
        for row in &some {
            assert_eq!(t.get(&items, row.id)?.map(Item::from_ref).as_ref(), Some(row));
        }
        for row in &others {
            assert_eq!(t.get(&persons, row.id)?.map(Person::from_ref).as_ref(), Some(row));
        }
        assert_eq!(t.scan_by(&persons, Person::BY_TEAM, 1).rows()?, others);
        // Every key can be written, and deleted, in the table without order too.
        for id in 0..ROWS {
            t.upsert(&items, &Item { id, value: 9 })?;
            t.upsert(&cells, &Cell { id, value: 9 })?;
            assert!(t.delete(&cells, id)?, "{id}");
            assert!(t.get(&cells, id)?.is_none(), "{id}");
        }
        Ok(())
    });
    assert_eq!(all(worker, &items).len() as u64, ROWS);
}

/// Declares keys besides its own.
struct Declaring<K> {
    items: Table<Item>,
    cells: TableId,
    key: K,
    is_prefix: bool,
}

impl<K: EncodedKey> Procedure for Declaring<K> {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
        t.update(&self.items, 0, |row| row.set_value(row.value() + 1))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.items.id(), Key8::new(0, 8), Access::Update);
        for table in [self.items.id(), self.cells] {
            if self.is_prefix {
                declaration.prefix(table, self.key, Access::Write);
            }
            for access in [Access::Read, Access::Update, Access::Write, Access::Insert] {
                declaration.key(table, self.key, access);
            }
        }
    }
}

/// A declaration of such a key is refused, or of no consequence.
pub fn declared<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        let (database, items, cells, persons) = open(&setup);
        let mut worker = database.worker().unwrap();
        let cells_id = cells.id();
        let mut expected = 1;
        let mut check = |outcome: Result<bool, Error>| match outcome {
            Ok(found) => {
                assert!(found);
                expected += 1;
            }
            Err(error) => assert!(matches!(error, Error::KeyTooLong(_)), "{error:?}"),
        };
        for is_prefix in [false, true] {
            progress.at(format!("endless, prefix {is_prefix}"));
            let declaring = || Declaring { items, cells: cells_id, key: Endless, is_prefix };
            check(worker.execute(&mut declaring()));
            worker.execute_batch(&mut [declaring(), declaring()], &mut |_, outcome| check(outcome));
            for seed in 0..scaled(200, 20) as u64 {
                progress.at(format!("fickle, prefix {is_prefix}, seed {seed}"));
                let state = AtomicU64::new(seed << 20);
                let declaring = || Declaring { items, cells: cells_id, key: Fickle(&state), is_prefix };
                check(worker.execute(&mut declaring()));
                worker.execute_batch(&mut [declaring(), declaring()], &mut |_, outcome| check(outcome));
            }
        }
        assert_eq!(all(&mut worker, &items)[0].value, expected);
        agree(&mut worker, items, cells, persons);
    });
}
