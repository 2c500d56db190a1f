//! Values at each limit and one beyond: a typed error, nothing changed, and the transaction goes on.

use polychron_base::key::Key8;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::{
    IndexDefinition, Insertion, Interactive, Isolation, Operations, Projection, Protocol, RowBuffer, RowRef, Scan,
    TableDefinition, Transaction, Worker,
};
use polychron_schema::{
    ColumnSpan, ColumnType, EnumType, EnumVariant, IndexKind, Layout, MAX_COLUMNS, MAX_KEY_BYTES, MAX_ROW_BYTES, Row,
    SchemaError, Value,
};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::Setup;
use crate::rows::{Host, Image, Item, Page};
use crate::setup::{Tx, all, create, done, items, run};

fn failure<O>(outcome: Result<O, Error>) -> Error {
    match outcome {
        Err(Error::Conflict) => panic!("a conflict where a refusal was due"),
        Err(error) => error,
        Ok(_) => panic!("nothing was refused"),
    }
}

/// A key of the longest length is like any other; one byte more is refused by every operation.
pub fn keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Page>(&database);
    let mut worker = database.worker().unwrap();
    let page = |length| Page { path: "k".repeat(length), title: String::new(), visits: 0 };
    // The secondary key carries the title and the primary key, so the longest page has no room for it.
    let plain = create::<P, crate::rows::Name>(&database);
    let name = |length| crate::rows::Name { name: "n".repeat(length), value: 7 };
    done(&mut worker, |t| {
        t.insert(&plain, &name(MAX_KEY_BYTES))?;
        let long = name(MAX_KEY_BYTES + 1);
        assert!(matches!(failure(t.insert(&plain, &long)), Error::KeyTooLong(_)));
        assert!(matches!(failure(t.upsert(&plain, &long)), Error::KeyTooLong(_)));
        assert!(matches!(failure(t.get(&plain, &long.name).map(|row| row.is_some())), Error::KeyTooLong(_)));
        assert!(matches!(failure(t.update(&plain, &long.name, |_| ())), Error::KeyTooLong(_)));
        assert!(matches!(failure(t.delete(&plain, &long.name)), Error::KeyTooLong(_)));
        assert!(matches!(failure(t.insert(&table, &page(MAX_KEY_BYTES))), Error::KeyTooLong(_)));
        t.insert(&table, &page(MAX_KEY_BYTES - 8))
    });
    assert_eq!(all(&mut worker, &plain), [name(MAX_KEY_BYTES)]);
    assert_eq!(all(&mut worker, &table), [page(MAX_KEY_BYTES - 8)]);
    done(&mut worker, |t| {
        assert_eq!(t.get(&plain, &name(MAX_KEY_BYTES).name)?.map(|row| row.value()), Some(7));
        assert!(t.delete(&plain, &name(MAX_KEY_BYTES).name)?);
        Ok(())
    });
    assert_eq!(all(&mut worker, &plain), []);
}

/// Raw keys that are too long are refused by every operation that takes one.
pub fn raw_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let key = [7u8; MAX_KEY_BYTES + 1];
    let mut row = RowBuffer::new();
    Item { id: 2, value: 20 }.encode(&mut row).unwrap();
    done(&mut worker, |t| {
        let row: RowRef<'_> = row.as_row();
        assert!(matches!(failure(t.insert_row(table.id(), &key[..], row)), Error::KeyTooLong(_)));
        assert!(matches!(failure(t.put_row(table.id(), &key[..], row)), Error::KeyTooLong(_)));
        assert_eq!(t.scan(&table, ..).count()?, 1);
        Ok(())
    });
}

/// A row of the longest length is like any other; one word more is refused, by insertion and by growth.
pub fn rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Image>(&database);
    let mut worker = database.worker().unwrap();
    let fixed = Image::SHAPE.fixed_bytes as usize;
    let longest = MAX_ROW_BYTES - fixed;
    let image = |id, bytes| Image { id, bytes: vec![id as u8; bytes] };
    done(&mut worker, |t| {
        t.insert(&table, &image(1, longest))?;
        let refused = failure(t.insert(&table, &image(2, longest + 1)));
        assert!(matches!(refused, Error::RowTooLong(ref long) if long.limit == MAX_ROW_BYTES), "{refused}");
        assert!(t.get(&table, 1)?.is_some_and(|row| row.bytes().len() == longest));
        t.insert(&table, &image(3, 10))
    });
    done(&mut worker, |t| {
        t.update(&table, 3, |row| assert!(row.set_bytes(&vec![3; longest + 1]).is_err()))?;
        t.update(&table, 3, |row| row.set_bytes(&vec![3; longest]).unwrap())
    });
    assert!(all(&mut worker, &table) == [image(1, longest), image(3, longest)], "the rows differ");
    let mut words = vec![0u64; MAX_ROW_BYTES / 8 + 1];
    words[0] = 4;
    done(&mut worker, |t| {
        let (table, key) = (table.id(), polychron_base::key::Key8::new(4, 8));
        let refused = failure(t.insert_row(table, key, RowRef::from_words(&words)));
        assert!(
            matches!(refused, Error::RowTooLong(long) if (long.bytes, long.limit) == (MAX_ROW_BYTES + 8, MAX_ROW_BYTES))
        );
        let refused = failure(t.put_row(table, key, RowRef::from_words(&words)));
        assert!(matches!(refused, Error::RowTooLong { .. }), "{refused}");
        Ok(())
    });
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), 2);
}

/// The longest key in hash indexes, primary and secondary, and one byte more.
pub fn hash_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Host>(&database);
    let mut worker = database.worker().unwrap();
    let host = |name: usize, address: usize| Host { name: "n".repeat(name), address: "a".repeat(address) };
    let (short, long) = (host(1, MAX_KEY_BYTES), host(MAX_KEY_BYTES, 1));
    done(&mut worker, |t| {
        t.insert(&table, &short)?;
        t.insert(&table, &long)?;
        for beyond in [host(MAX_KEY_BYTES + 1, 2), host(2, MAX_KEY_BYTES + 1)] {
            assert!(matches!(failure(t.insert(&table, &beyond)), Error::KeyTooLong(_)));
            assert!(matches!(failure(t.upsert(&table, &beyond)), Error::KeyTooLong(_)));
        }
        let grow = t.update(&table, &long.name, |row| row.set_address(&"b".repeat(MAX_KEY_BYTES + 1)).unwrap());
        assert!(matches!(failure(grow), Error::KeyTooLong(_)));
        Ok(())
    });
    done(&mut worker, |t| {
        for host in [&short, &long] {
            assert_eq!(t.get(&table, &host.name)?.map(|row| row.address().len()), Some(host.address.len()));
            assert_eq!(t.scan_by(&table, Host::BY_ADDRESS, &host.address).rows()?, std::slice::from_ref(host));
        }
        assert!(t.get(&table, "nn")?.is_none());
        assert!(t.delete(&table, &short.name)? && t.delete(&table, &long.name)?);
        Ok(())
    });
}

/// A table whose rows are built column by column; the first column is the key.
struct Dynamic {
    table: TableId,
    layout: Layout,
}

impl Dynamic {
    fn create<P: Protocol>(database: &P, definition: TableDefinition) -> Self {
        let layout = definition.layout().unwrap();
        Self { table: database.create_table(definition).unwrap(), layout }
    }

    fn insert<T: Transaction>(&self, t: &mut T, id: u64, values: &[Value]) -> Result<Insertion, Error> {
        let values: Vec<_> = std::iter::once(Value::from(id)).chain(values.iter().cloned()).collect();
        let mut row = RowBuffer::new();
        polychron_schema::build_row(&self.layout, &values, &mut row)?;
        t.insert_row(self.table, Key8::new(id, 8), row.as_row())
    }

    fn read<T: Transaction>(&self, t: &mut T, id: u64) -> Result<Option<Vec<Value>>, Error> {
        let row = t.read_row(self.table, Key8::new(id, 8), &Projection::ALL)?;
        Ok(row.map(|row| row.values(&self.layout).split_off(1)))
    }

    /// The rows in the order of the first secondary index.
    fn by_first_index<T: Transaction>(&self, t: &mut T) -> Result<Vec<Vec<Value>>, Error> {
        let mut rows = Vec::new();
        let scan = Scan { index: IndexId::secondary(0)?, ..Scan::all(self.table) };
        t.scan_rows(&scan, &mut |row| {
            rows.push(row.values(&self.layout).split_off(1));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    /// Sets one column, and answers what setting it answered.
    fn set<T: Transaction>(
        &self,
        t: &mut T,
        id: u64,
        column: usize,
        value: &Value,
    ) -> Result<Result<(), SchemaError>, Error> {
        let mut outcome = Ok(());
        let found = t.update_row(self.table, Key8::new(id, 8), &Projection::ALL, |row| {
            outcome = polychron_schema::set_value(row, &self.layout, column, value);
        })?;
        assert!(found);
        Ok(outcome)
    }

    fn put_back<W: Interactive + 'static>(&self, worker: &mut W, values: &[Value]) {
        done(worker, |t| {
            t.delete_row(self.table, Key8::new(1, 8))?;
            self.insert(t, 1, values).map(drop)
        });
    }

    fn projection(&self, columns: &[usize]) -> Projection {
        let span = |&index: &usize| ColumnSpan { index: index as u16, slot: self.layout.columns()[index].slot };
        Projection::of(&columns.iter().map(span).collect::<Vec<_>>())
    }

    /// Sets columns to their negative numbers, with the projection of some.
    fn update<T: Transaction>(&self, t: &mut T, columns: &[usize], set: &[usize]) -> Result<(), Error> {
        let found = t.update_row(self.table, Key8::new(1, 8), &self.projection(columns), |row| {
            for &column in set {
                let value = Value::from(-(column as i64));
                polychron_schema::set_value(row, &self.layout, column, &value).expect("it fits");
            }
        })?;
        assert!(found);
        Ok(())
    }
}

/// As many columns as there may be, the last one indexed; and one more.
pub fn columns<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let wide = |columns: usize| {
        let table = TableDefinition::new(format!("wide{columns}")).with_column("id", ColumnType::U64).with_key([0]);
        let column = |table: TableDefinition, at| table.with_nullable_column(format!("c{at}"), ColumnType::I64);
        (1..columns).fold(table, column).with_index(IndexDefinition::new("last", [columns - 1]))
    };
    let refused = database.create_table(wide(MAX_COLUMNS + 1));
    assert!(matches!(refused, Err(Error::Definition(_))), "{refused:?}");
    assert_eq!(database.find_table(&wide(MAX_COLUMNS + 1).name), None);
    let table = Dynamic::create(&*database, wide(MAX_COLUMNS));
    let mut worker = database.worker().unwrap();
    let none = vec![Value::Null; MAX_COLUMNS - 1];
    let mut all: Vec<_> = (1..MAX_COLUMNS as i64).map(Value::from).collect();
    done(&mut worker, |t| {
        assert_eq!(table.insert(t, 1, &none)?, Insertion::Inserted);
        table.insert(t, 2, &all).map(drop)
    });
    all[MAX_COLUMNS - 2] = Value::Integer(-1);
    done(&mut worker, |t| {
        table.set(t, 2, MAX_COLUMNS - 1, &Value::Integer(-1))?.unwrap();
        assert!(table.set(t, 2, MAX_COLUMNS, &Value::Integer(-1))?.is_err());
        assert_eq!(table.read(t, 1)?.as_ref(), Some(&none));
        assert_eq!(table.read(t, 2)?.as_ref(), Some(&all));
        Ok(())
    });
}

/// Updates of a table of more columns than a set of columns has bits, with projections of one of them or two: what lies beside them stays as
/// it is, also where one transaction updates the row twice, or another one was rolled back. To set a column outside of the projection is
/// refused, unless it shares its bit with one inside.
pub fn wide_updates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const COLUMNS: usize = 70;
    /// Columns from this one on share a bit.
    const SHARED: usize = 63;
    const CHOSEN: [usize; 8] = [1, 2, 40, 62, 63, 64, 68, 69];
    let database = setup.open();
    let mut worker = database.worker().unwrap();
    for is_nullable in [false, true] {
        let table = TableDefinition::new(format!("wide{is_nullable}")).with_column("id", ColumnType::U64).with_key([0]);
        let column = |table: TableDefinition, at: usize| {
            // Two kinds, so that columns lie in one word with others.
            let column_type = if at.is_multiple_of(2) { ColumnType::I8 } else { ColumnType::I64 };
            let name = format!("c{at}");
            if is_nullable && at > 60 {
                table.with_nullable_column(name, column_type)
            } else {
                table.with_column(name, column_type)
            }
        };
        let table = (1..COLUMNS).fold(table, column).with_index(IndexDefinition::new("last", [COLUMNS - 1]));
        let table = Dynamic::create(&*database, table);
        let before: Vec<_> = (1..COLUMNS as i64).map(Value::from).collect();
        for (one, other) in CHOSEN.into_iter().flat_map(|one| CHOSEN.map(|other| (one, other))) {
            let mut after = before.clone();
            [one, other].iter().for_each(|&column| after[column - 1] = Value::from(-(column as i64)));
            let updates: [&[(&[usize], &[usize])]; 2] =
                [&[(&[one, other], &[one, other])], &[(&[one], &[one]), (&[other], &[other])]];
            for updates in updates {
                table.put_back(&mut worker, &before);
                done(&mut worker, |t| {
                    updates.iter().try_for_each(|(columns, set)| table.update(t, columns, set))?;
                    assert_eq!(table.read(t, 1)?.as_ref(), Some(&after), "{updates:?}");
                    Ok(())
                });
                let undone = run(&mut worker, |t| {
                    table.update(t, &CHOSEN, &CHOSEN)?;
                    Err::<(), _>(Error::RolledBack)
                });
                assert!(undone.is_err());
                let seen = done(&mut worker, |t| Ok((table.read(t, 1)?, table.by_first_index(t)?)));
                assert_eq!(seen, (Some(after.clone()), vec![after.clone()]), "{updates:?}");
            }
            table.put_back(&mut worker, &before);
            let outside = one != other && !(one >= SHARED && other >= SHARED);
            let outcome = run(&mut worker, |t| table.update(t, &[one], &[other]));
            let is_refused = matches!(outcome, Err(Error::WrongRow { .. }));
            assert_eq!(is_refused, outside, "{other} by {one}: {outcome:?}");
            let changed = if outcome.is_ok() { other } else { 0 };
            let seen = done(&mut worker, |t| table.read(t, 1)).expect("it is there");
            for (column, value) in (1..).zip(seen) {
                let sign = if column == changed { -1 } else { 1 };
                assert_eq!(value, Value::from(sign * column as i64), "column {column}, {other} by {one}");
            }
        }
    }
}

macro_rules! broad {
    ($($column:ident)*) => {
        /// A row of more columns than a set of columns has bits.
        #[derive(Row, Clone, Debug, Default, PartialEq)]
        struct Broad {
            #[key]
            id: u64,
            $($column: i64,)*
        }
    };
}

broad! {
    a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 d1 d2 d3 d4
    d5 d6 d7 d8 d9 e0 e1 e2 e3 e4 e5 e6 e7 e8 e9 f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 g0 g1 g2 g3 g4 g5 g6 g7 g8 g9
}

/// The same of typed rows, of which the last column has an index: those columns alone are set that the update names, and those that share a
/// bit with one of them.
pub fn broad_updates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Broad>(&database);
    let mut worker = database.worker().unwrap();
    let mut expected = Broad { id: 1, f4: 4, f9: 9, g0: 10, g9: 19, ..Broad::default() };
    done(&mut worker, |t| t.insert(&table, &expected));
    let beside = run(&mut worker, |t| t.update_columns(&table, 1, Broad::F0, |row| row.set_g9(7)));
    assert!(matches!(beside, Err(Error::Panicked(_))), "{beside:?}");
    done(&mut worker, |t| t.update_columns(&table, 1, Broad::G3, |row| row.set_g8(7)).map(drop));
    expected.g8 = 7;
    assert_eq!(all(&mut worker, &table), [expected.clone()]);
    done(&mut worker, |t| {
        t.update_columns(&table, 1, (Broad::A1, Broad::G9), |row| {
            row.set_a1(-1);
            row.set_g9(-19);
        })?;
        t.update_columns(&table, 1, Broad::F4, |row| row.set_f4(-4))?;
        t.update_columns(&table, 1, Broad::G5, |row| row.set_g5(-15)).map(drop)
    });
    (expected.a1, expected.g9, expected.f4, expected.g5) = (-1, -19, -4, -15);
    assert_eq!(all(&mut worker, &table), [expected]);
}

/// The variants' numbers are the ends of what the smallest integer would hold, but for the gaps.
static STATES: EnumType = EnumType::new(&[
    EnumVariant { name: "Closed", number: 300 },
    EnumVariant { name: "Lost", number: -1 },
    EnumVariant { name: "Open", number: 7 },
]);

/// Of every type the least and the greatest value, and one beyond.
fn extremes() -> Vec<(ColumnType, Value, Value, Value)> {
    let text = |text: &str| Value::String(text.into());
    let decimal = |units, scale| Value::Decimal { units, scale };
    vec![
        (ColumnType::I8, Value::from(i64::from(i8::MIN)), Value::from(127_i64), Value::from(128_i64)),
        (ColumnType::U16, Value::from(0_u64), Value::from(65_535_u64), Value::from(65_536_u64)),
        (ColumnType::I64, Value::from(i64::MIN), Value::from(i64::MAX), Value::from(u64::MAX)),
        (ColumnType::U64, Value::from(0_u64), Value::from(u64::MAX), Value::from(-1_i64)),
        (ColumnType::F64, Value::Float(f64::MIN), Value::Float(f64::MAX), text("1.0")),
        (ColumnType::Decimal { scale: 18 }, decimal(i64::MIN.into(), 18), decimal(i64::MAX.into(), 18), decimal(10, 0)),
        (ColumnType::Decimal { scale: 18 }, decimal(0, 0), decimal(9, 0), decimal(i128::from(i64::MAX) + 1, 18)),
        (ColumnType::Decimal128 { scale: 38 }, decimal(i128::MIN, 38), decimal(i128::MAX, 38), decimal(2, 0)),
        (ColumnType::I128, Value::from(i128::MIN), Value::from(i128::MAX), Value::from(1_u128 << 127)),
        (ColumnType::U128, Value::from(0_u128), Value::from(u128::MAX), Value::from(-1_i128)),
        (ColumnType::F32, Value::from(f32::MIN), Value::from(f32::MAX), Value::Float(f64::MAX)),
        (ColumnType::Char, Value::Char('\0'), Value::Char(char::MAX), text("a")),
        (ColumnType::Enum(&STATES), Value::from(-1_i64), Value::from(300_i64), Value::from(0_i64)),
        (ColumnType::Decimal { scale: 2 }, decimal(i64::MIN.into(), 2), decimal(i64::MAX.into(), 2), decimal(1, 3)),
        (ColumnType::Date, Value::Date(i32::MIN), Value::Date(i32::MAX), Value::Timestamp(0)),
        (ColumnType::String { max: 5 }, text(""), text("12345"), text("123456")),
        (ColumnType::Bytes { max: 5 }, Value::Bytes(vec![]), Value::Bytes(vec![255; 5]), Value::Bytes(vec![255; 6])),
        (
            ColumnType::FixedBytes { bytes: 3 },
            Value::Bytes(vec![0; 3]),
            Value::Bytes(vec![255; 3]),
            Value::Bytes(vec![0; 4]),
        ),
        (ColumnType::Bool, Value::Bool(false), Value::Bool(true), Value::from(2_i64)),
    ]
}

/// Every type's least and greatest value, NULL, and what lies beyond: in rows, and as keys of unique indexes of both kinds.
pub fn values<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let mut worker = database.worker().unwrap();
    for (position, (column_type, least, greatest, beyond)) in extremes().into_iter().enumerate() {
        let unique = |kind| IndexDefinition { unique: true, kind, ..IndexDefinition::new(format!("{kind:?}"), [1]) };
        let definition = TableDefinition::new(format!("values{position}"))
            .with_column("id", ColumnType::U64)
            .with_nullable_column("value", column_type)
            .with_key([0])
            .with_index(unique(IndexKind::Ordered))
            .with_index(unique(IndexKind::Hash));
        let table = Dynamic::create(&*database, definition);
        let rows = [(1, least.clone()), (2, greatest.clone()), (3, Value::Null), (4, Value::Null)];
        let stands = |t: &mut Tx<'_, P>| {
            rows.iter().try_for_each(|(id, value)| {
                assert_eq!(table.read(t, *id)?.as_deref(), Some(std::slice::from_ref(value)), "{column_type}");
                Ok(())
            })
        };
        done(&mut worker, |t| {
            for (id, value) in &rows {
                // NULL equals nothing, so any number of rows have it in a unique index.
                assert_eq!(table.insert(t, *id, std::slice::from_ref(value))?, Insertion::Inserted, "{column_type}");
            }
            stands(t)
        });
        done(&mut worker, |t| {
            for value in [&least, &greatest] {
                assert_ne!(table.insert(t, 5, std::slice::from_ref(value))?, Insertion::Inserted, "{column_type}");
                assert!(matches!(failure(table.set(t, 3, 1, value)), Error::Duplicate { .. }), "{column_type}");
            }
            assert!(table.set(t, 1, 1, &beyond)?.is_err(), "{column_type} takes {beyond:?}");
            assert!(
                matches!(
                    failure(table.insert(t, 5, std::slice::from_ref(&beyond))),
                    Error::TooLong(_) | Error::WrongValue(_)
                ),
                "{column_type}"
            );
            stands(t)
        });
        done(&mut worker, stands);
    }
}

/// As many workers as the options name fit, whatever the database does by itself; one more is refused, and a slot that was
/// given back is reused. A new index is filled all the same.
pub fn workers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let mut setup = setup.clone();
    setup.common.memory.max_workers = 4;
    let (database, table) = items(&setup, &[(1, 10)]);
    let mut workers = Vec::new();
    let refused = loop {
        match database.worker() {
            Ok(worker) => workers.push(worker),
            Err(error) => break error,
        }
        assert!(workers.len() <= 4, "a slot was given twice");
    };
    assert!(matches!(refused, Error::TooManyWorkers { limit: 4 }), "{refused}");
    assert_eq!(workers.len(), 4);
    let by_value = polychron_engine::IndexDefinition::new("by_value", [1]);
    database.create_index(table.id(), by_value).unwrap();
    workers.pop();
    let mut worker = database.worker().unwrap();
    assert_eq!(all(&mut worker, &table).len(), 1);
}

/// At the memory limit writing fails with a typed error, nothing changes, and reads go on. So do deletions, for which the
/// blocks of small rows that were deleted before are room enough; afterwards their memory is reused.
pub fn memory<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    fill_up(setup, true);
}

/// The same where every block is in use: a deletion that must keep the row for snapshots has nothing to do it with but
/// what was put aside for it.
pub fn deletions_without_any_memory<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    fill_up(setup, false);
}

fn fill_up<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, small_blocks_are_free: bool) {
    if !setup.measures_memory {
        return;
    }
    const LIMIT: usize = 8 << 20;
    let mut setup = setup.clone();
    setup.common.memory.limit_bytes = Some(LIMIT);
    setup.common.memory.region_bytes = 1 << 20;
    setup.common.memory.chunk_bytes = 64 << 10;
    let (database, small) = items(&setup, &[]);
    let table = create::<P, Image>(&database);
    let mut worker = database.worker().unwrap();
    if small_blocks_are_free {
        done(&mut worker, |t| (0..2000).try_for_each(|id| t.insert(&small, &Item { id, value: 0 })));
        done(&mut worker, |t| (0..2000).try_for_each(|id| t.delete(&small, id).map(drop)));
        quiesce(&setup, &database, &mut worker);
    }
    let image = |id| Image { id, bytes: vec![id as u8; 10_000] };
    // Without transactions the first of two rows would stay where the second one is refused.
    let at_once = if setup.isolation == Isolation::Nothing { 1 } else { 2 };
    let mut inserted = 0;
    let refused = loop {
        let outcome =
            run(&mut worker, |t| (inserted..inserted + at_once).try_for_each(|id| t.insert(&table, &image(id))));
        match outcome {
            Ok(()) => inserted += at_once,
            Err(error) => break error,
        }
        assert!(inserted < 10_000, "the limit does not bind");
    };
    let Error::OutOfMemory(full) = refused else { panic!("{refused}") };
    assert!(full.requested > 0 && full.used > LIMIT / 2 && full.used <= LIMIT && full.limit == LIMIT, "{full}");
    assert!(inserted > 100, "{inserted} rows found room");
    // The epoch of the rows ends, so that snapshots have a right to them.
    setup.pass(&database, 2);
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), inserted);
    done(&mut worker, |t| (0..inserted / 2).try_for_each(|id| t.delete(&table, id).map(drop)));
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), inserted - inserted / 2);
    quiesce(&setup, &database, &mut worker);
    let again = (0..inserted / 4).all(|id| {
        let insert = run(&mut worker, |t| t.try_insert(&table, &image(id)));
        matches!(insert, Ok(Insertion::Inserted))
    });
    assert!(again, "the memory of deleted rows is not used again");
}

fn quiesce<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, database: &Arc<P>, worker: &mut P::Worker) {
    for _ in 0..3 {
        setup.pass(database, 2);
        worker.maintain();
    }
}
