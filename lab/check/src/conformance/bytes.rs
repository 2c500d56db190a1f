//! Rows and keys as bytes: what does not fit its table, stands under another key than its own or names columns that are not there is
//! refused with a clear error, changes nothing, and the transaction goes on.

use polychron_base::Error;
use polychron_base::key::{EncodedKey, Key8};
use polychron_engine::aggregate::AggregateError;
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Aggregate, Becomes, Futures, Insertion, Interactive, Operations, Projection, Protocol, Restriction, RowBuffer,
    RowMut, RowRef, Scan, Table, Transaction,
};
use polychron_schema::{ColumnSet, Row, Value};
use std::ops::ControlFlow;

use crate::Setup;
use crate::rows::{Image, Item, Name, Page, Person, person};
use crate::setup::{all, create, done, items, persons, run};

fn failure<O>(outcome: Result<O, Error>) -> Error {
    match outcome {
        Err(Error::Conflict) => panic!("a conflict where a refusal was due"),
        Err(error) => error,
        Ok(_) => panic!("nothing was refused"),
    }
}

fn encoded<R: Row>(row: &R) -> RowBuffer {
    let mut buffer = RowBuffer::new();
    row.encode(&mut buffer).unwrap();
    buffer
}

/// Neither insertion nor put takes the row under the key.
fn refused<T: Transaction, R: Row, K: EncodedKey>(
    t: &mut T,
    table: &Table<R>,
    key: K,
    row: RowRef<'_>,
    is_right: fn(&Error) -> bool,
) {
    let error = failure(t.insert_row(table.id(), key, row));
    assert!(is_right(&error), "insertion: {error:?}");
    let error = failure(t.put_row(table.id(), key, row));
    assert!(is_right(&error), "put: {error:?}");
}

/// A row stands under its own key alone, long or short.
pub fn wrong_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let names = create::<P, Name>(&database);
    let mut worker = database.worker().unwrap();
    let is_wrong_key = |error: &Error| matches!(error, Error::WrongKey { .. });
    done(&mut worker, |t| {
        let two = encoded(&Item { id: 2, value: 20 });
        refused(t, &table, Key8::new(3, 8), two.as_row(), is_wrong_key);
        refused(t, &table, Key8::new(1, 8), two.as_row(), is_wrong_key);
        refused(t, &table, Key8::new(2, 4), two.as_row(), is_wrong_key);
        refused(t, &table, &[0, 0, 0, 0, 0, 0, 0, 2, 0][..], two.as_row(), is_wrong_key);
        let name = encoded(&Name { name: "some name of seventeen".into(), value: 1 });
        refused(t, &names, &b"some name of seventeen "[..], name.as_row(), is_wrong_key);
        refused(t, &names, &b"some name of seventee"[..], name.as_row(), is_wrong_key);
        refused(t, &names, &b"some name of seventeem"[..], name.as_row(), is_wrong_key);
        assert_eq!(t.insert_row(table.id(), Key8::new(2, 8), two.as_row())?, Insertion::Inserted);
        let inserted = t.insert_row(names.id(), &b"some name of seventeen"[..], name.as_row())?;
        assert_eq!(inserted, Insertion::Inserted);
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }, Item { id: 2, value: 20 }]);
    assert_eq!(done(&mut worker, |t| t.scan(&names, ..).count()), 1);
    let ended = run(&mut worker, |t| {
        t.put_row(table.id(), Key8::new(7, 8), encoded(&Item { id: 2, value: 5 }).as_row()).map(drop)
    });
    let Err(Error::WrongKey(wrong)) = ended else { panic!("an error that is not caught ends it: {ended:?}") };
    let (key, own) = (wrong.key, wrong.own);
    assert_eq!((key.bytes(), own.bytes()), (&7u64.to_be_bytes()[..], &2u64.to_be_bytes()[..]));
}

/// A row is one of its table: of its length, with a value in each column.
pub fn wrong_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 2, 3)]);
    let (items, images) = (create::<P, Item>(&database), create::<P, Image>(&database));
    let mut worker = database.worker().unwrap();
    let is_wrong_row = |error: &Error| matches!(error, Error::WrongRow { .. });
    let key = Key8::new(2, 8);
    done(&mut worker, |t| {
        let right = encoded(&person(2, 2, 4));
        let words = right.as_words();
        refused(t, &table, key, encoded(&Item { id: 2, value: 2 }).as_row(), is_wrong_row);
        refused(t, &items, key, right.as_row(), is_wrong_row);
        refused(t, &items, key, RowRef::from_words(&[]), is_wrong_row);
        for length in 0..words.len() {
            refused(t, &table, key, RowRef::from_words(&words[..length]), is_wrong_row);
        }
        refused(t, &table, key, RowRef::from_words(&[words, &[0]].concat()), is_wrong_row);
        let text = &right.as_row().variable(Person::TEXT.slot).len();
        let at = right.as_bytes().len() - text.next_multiple_of(8);
        let mut broken = right.clone();
        broken.store(at as u32, &[0xFF]);
        refused(t, &table, key, broken.as_row(), is_wrong_row);
        let mut outside = encoded(&Image { id: 2, bytes: vec![1; 30] });
        outside.store(Image::BYTES.slot.offset, &(1u64 << 20 | 30 << 32).to_le_bytes());
        refused(t, &images, key, outside.as_row(), is_wrong_row);
        assert_eq!(t.put_row(table.id(), key, right.as_row())?, Insertion::Inserted);
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), [person(1, 2, 3), person(2, 2, 4)]);
    assert_eq!(all(&mut worker, &items), []);
    assert_eq!(done(&mut worker, |t| t.scan(&images, ..).count()), 0);
}

/// An update leaves the key alone, keeps to its projection, and says what it changes.
pub fn wrong_updates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 2, 3), person(2, 2, 4)]);
    let pages = create::<P, Page>(&database);
    let mut worker = database.worker().unwrap();
    let page = Page { path: "path".into(), title: "title".into(), visits: 1 };
    done(&mut worker, |t| t.insert(&pages, &page));
    let key = Key8::new(1, 8);
    fn check<T: Transaction, R: Row, K: EncodedKey>(
        t: &mut T,
        at: (&Table<R>, K),
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) {
        let error = failure(t.update_row(at.0.id(), at.1, projection, change));
        assert!(matches!(error, Error::WrongRow { .. }), "{error:?}");
    }
    done(&mut worker, |t| {
        check(t, (&table, key), &Projection::ALL, |row| Person::ID.set(row, 9));
        check(t, (&table, key), &Projection::of(&[Person::ID.span()]), |row| {
            row.fixed_mut(Person::ID.span())[0] ^= 1;
        });
        check(t, (&pages, &b"path"[..]), &Projection::ALL, |row| Page::PATH.set(row, "other").unwrap());
        check(t, (&table, key), &Person::NUMBER.projection(), |row| Person::TEAM.set(row, 9));
        check(t, (&table, key), &Projection::ALL, |row| {
            // The column of another table: it says that the team changes, and changes something else.
            let span = polychron_schema::ColumnSpan { index: Person::TEAM.index, slot: Person::NUMBER.slot };
            row.fixed_mut(span)[0] ^= 1;
        });
        assert!(t.update_row(table.id(), key, &Projection::ALL, |row| Person::ID.set(row, 1))?, "it is the same key");
        assert!(t.update_row(table.id(), key, &Person::TEAM.projection(), |row| Person::TEAM.set(row, 5))?);
        Ok(())
    });
    let moved = Person { team: 5, ..person(1, 2, 3) };
    assert_eq!(all(&mut worker, &table), [moved.clone(), person(2, 2, 4)]);
    assert_eq!(all(&mut worker, &pages), [page]);
    assert_eq!(done(&mut worker, |t| t.scan_by(&table, Person::BY_TEAM, 5).rows()), std::slice::from_ref(&moved));
    let beside = run(&mut worker, |t| t.update_columns(&table, 1, Person::NUMBER, |row| row.set_team(7)));
    assert!(matches!(beside, Err(Error::Panicked(_))), "{beside:?}");
    let future = run(&mut worker, |t| {
        let number = t.future(&table, 2, Person::NUMBER)?;
        t.set_futures(&table, 1, [Person::NUMBER.becomes(number)])
    });
    assert!(future.is_ok(), "{future:?}");
    let future = run(&mut worker, |t| {
        let id = t.future(&table, 2, Person::ID)?;
        t.set_futures(&table, 1, [Person::ID.becomes(id)])
    });
    assert!(matches!(future, Err(Error::WrongRow { .. })), "{future:?}");
    let moved = Person { number: 20, ..moved };
    assert_eq!(all(&mut worker, &table), [moved, person(2, 2, 4)]);
}

/// Columns that a table does not have, in restrictions, aggregates, batches and projections.
pub fn columns_that_are_not_there<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    fn is_no_column<O>(outcome: Result<O, Error>) -> bool {
        let Error::NoAnswer(failed) = failure(outcome) else { return false };
        matches!(failed.why, AggregateError::NoSuchColumn(_, 2 | 64 | usize::MAX))
    }
    let whole = Scan::all(table.id());
    done(&mut worker, |t| {
        for column in [2, 64, usize::MAX] {
            let restrictions = [Restriction { column, comparison: Comparison::Equal, value: Value::Integer(1) }];
            let restricted = Scan { restrictions: &restrictions, ..whole.clone() };
            assert!(is_no_column(t.scan_rows(&restricted, &mut |_| ControlFlow::Continue(()))));
            assert!(is_no_column(t.aggregate(&restricted, Aggregate::Rows)));
            let columns = t.scan_columns(&restricted, &[1], &mut |_| (), &mut |()| ControlFlow::Continue(()));
            assert!(is_no_column(columns));
            for wanted in [Aggregate::Sum, Aggregate::Count, Aggregate::Min, Aggregate::Max] {
                assert!(is_no_column(t.aggregate(&whole, wanted(column))));
            }
            let columns = t.scan_columns(&whole, &[1, column], &mut |_| (), &mut |()| ControlFlow::Continue(()));
            assert!(is_no_column(columns));
        }
        for (start, end) in [(0, 8), (800, 16), (4096, u32::MAX), (16, 8), (u32::MAX, u32::MAX)] {
            let projection = Projection { columns: ColumnSet::ALL, start, end };
            assert!(t.read_row(table.id(), Key8::new(1, 8), &projection)?.is_some());
            let mut rows = 0;
            t.scan_rows(&Scan { projection, ..whole.clone() }, &mut |_| {
                rows += 1;
                ControlFlow::Continue(())
            })?;
            assert_eq!(rows, 2);
            let update = |row: &mut RowMut<'_>| Item::VALUE.set(row, 7);
            let refused = failure(t.update_row(table.id(), Key8::new(1, 8), &projection, update));
            assert!(matches!(refused, Error::WrongRow { .. }), "{refused:?}");
        }
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 10 }, Item { id: 2, value: 20 }]);
}
