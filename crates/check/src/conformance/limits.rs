//! Values at each limit and one beyond: a typed error, nothing changed, and the transaction goes on.

use std::sync::Arc;

use polychron_base::error::Stopped;
use polychron_base::{Error, Stop};
use polychron_engine::{Insertion, Interactive, Operations, Protocol, RowBuffer, RowRef, Transaction, Worker};
use polychron_schema::{MAX_KEY_BYTES, MAX_ROW_BYTES, Row};

use crate::Setup;
use crate::rows::{Image, Item, Page};
use crate::setup::{all, create, done, items, run};

fn failure<O>(outcome: Result<O, Stop>) -> Error {
    match outcome.map_err(Stop::into_parts) {
        Err(Stopped::Failed(error)) => error,
        Err(Stopped::Conflict) => panic!("a conflict where a refusal was due"),
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
        assert!(matches!(failure(t.insert(&plain, &long)), Error::KeyTooLong));
        assert!(matches!(failure(t.upsert(&plain, &long)), Error::KeyTooLong));
        assert!(matches!(failure(t.get(&plain, &long.name).map(|row| row.is_some())), Error::KeyTooLong));
        assert!(matches!(failure(t.update(&plain, &long.name, |_| ())), Error::KeyTooLong));
        assert!(matches!(failure(t.delete(&plain, &long.name)), Error::KeyTooLong));
        assert!(matches!(failure(t.insert(&table, &page(MAX_KEY_BYTES))), Error::KeyTooLong));
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
        assert!(matches!(failure(t.insert_row(table.id(), &key[..], row)), Error::KeyTooLong));
        assert!(matches!(failure(t.put_row(table.id(), &key[..], row)), Error::KeyTooLong));
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
        assert!(matches!(refused, Error::RowTooLong { limit: MAX_ROW_BYTES, .. }), "{refused}");
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
        assert!(matches!(refused, Error::RowTooLong { bytes, limit: MAX_ROW_BYTES } if bytes == MAX_ROW_BYTES + 8));
        let refused = failure(t.put_row(table, key, RowRef::from_words(&words)));
        assert!(matches!(refused, Error::RowTooLong { .. }), "{refused}");
        Ok(())
    });
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), 2);
}

/// As many workers as the options name fit, whatever the database does by itself; one more is refused, and a slot that was
/// given back serves again. A new index is filled all the same.
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
/// blocks of small rows that were deleted before are room enough; afterwards their memory serves again.
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
    let mut setup = setup.clone();
    setup.common.memory.limit_bytes = Some(8 << 20);
    setup.common.memory.region_bytes = 1 << 20;
    setup.common.memory.chunk_bytes = 64 << 10;
    let (database, small) = items(&setup, &[]);
    let table = create::<P, Image>(&database);
    let mut worker = database.worker().unwrap();
    if small_blocks_are_free {
        done(&mut worker, |t| (0..2000).try_for_each(|id| t.insert(&small, &Item { id, value: 0 })));
        done(&mut worker, |t| (0..2000).try_for_each(|id| t.delete(&small, id).map(drop)));
        settle(&setup, &database, &mut worker);
    }
    let image = |id| Image { id, bytes: vec![id as u8; 10_000] };
    let mut inserted = 0;
    let refused = loop {
        let outcome = run(&mut worker, |t| {
            t.insert(&table, &image(inserted))?;
            t.insert(&table, &image(inserted + 1))
        });
        match outcome {
            Ok(()) => inserted += 2,
            Err(error) => break error,
        }
        assert!(inserted < 10_000, "the limit does not bind");
    };
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    assert!(inserted > 100, "{inserted} rows found room");
    // The epoch of the rows ends, so that snapshots have a right to them.
    setup.pass(&database, 2);
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), inserted);
    done(&mut worker, |t| (0..inserted / 2).try_for_each(|id| t.delete(&table, id).map(drop)));
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), inserted / 2);
    settle(&setup, &database, &mut worker);
    let again = (0..inserted / 4).all(|id| {
        let insert = run(&mut worker, |t| t.try_insert(&table, &image(id)));
        matches!(insert, Ok(Insertion::Inserted))
    });
    assert!(again, "the memory of deleted rows is not used again");
}

fn settle<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, database: &Arc<P>, worker: &mut P::Worker) {
    for _ in 0..3 {
        setup.pass(database, 2);
        worker.tidy_up();
    }
}
