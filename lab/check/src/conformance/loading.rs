//! Rows that are loaded before anybody uses the database ([`Worker::load`]) are rows like others: all that begins later finds them, and their memory
//! comes back.

use polychron_base::{Error, IndexId};
use polychron_engine::{Interactive, LoadedRow, Mode, Operations, Protocol, Row, RowBuffer, Table, Worker};

use super::reclamation::{SLACK, used};
use crate::Setup;
use crate::client::Client;
use crate::rows::{Guest, Item, Person, person, set};
use crate::setup::{all, create, done, snapshot};

/// Rows of one batch.
const TOGETHER: usize = 100;

/// Loads rows that have these keys, in batches.
fn load<W: Worker, R: Row>(worker: &mut W, table: &Table<R>, rows: &[R], id: fn(&R) -> u64) -> Result<(), Error> {
    let encoded = rows.iter().map(|row| {
        let mut buffer = RowBuffer::new();
        row.encode(&mut buffer).unwrap();
        (id(row).to_be_bytes(), buffer)
    });
    let encoded: Vec<_> = encoded.collect();
    encoded.chunks(TOGETHER).try_for_each(|rows| {
        let rows = rows.iter().map(|(key, row)| LoadedRow { key, row: row.as_row() });
        worker.load(table.id(), &rows.collect::<Vec<_>>())
    })
}

fn people(ids: impl Iterator<Item = u64>) -> Vec<Person> {
    ids.map(|id| person(id, (id % 7) as u16, 10_000 - id as u32)).collect()
}

/// The first snapshot and the first transaction find all rows, by each index.
pub fn all_rows_are_found<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let (table, guests) = (create::<P, Person>(&database), create::<P, Guest>(&database));
    std::thread::scope(|scope| {
        for part in 0..3 {
            let (database, table, guests) = (&database, &table, &guests);
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                let mut rows = people((part..600).step_by(3));
                rows.reverse();
                load(&mut worker, table, &rows, |person| person.id).unwrap();
                let of_part = (part..90).step_by(3);
                let rows = of_part.map(|id| Guest { id, badge: 7 * id as u32, room: id as u32 % 10 });
                load(&mut worker, guests, &rows.collect::<Vec<_>>(), |guest| guest.id).unwrap();
            });
        }
    });
    let mut worker = database.worker().unwrap();
    let found = snapshot(&mut worker, |t| t.scan(&table, ..).rows());
    assert_eq!(found, people(0..600), "the first snapshot");
    assert_eq!(all(&mut worker, &table), people(0..600), "the first transaction");
    done(&mut worker, |t| {
        for team in 0..7 {
            let ids: Vec<_> = t.scan_by(&table, Person::BY_TEAM, team).map(|row| row.id()).collect()?;
            assert_eq!(ids, (u64::from(team)..600).step_by(7).collect::<Vec<_>>(), "team {team}");
        }
        for id in 0..600 {
            let ids: Vec<_> =
                t.scan_by(&table, Person::BY_CODE, Some(10_000 - id as u32)).map(|row| row.id()).collect()?;
            assert_eq!(ids, [id]);
        }
        for id in 0..90 {
            let ids: Vec<_> = t.scan_by(&guests, Guest::BY_BADGE, 7 * id as u32).map(|row| row.id()).collect()?;
            assert_eq!(ids, [id]);
        }
        assert_eq!(t.scan_by(&guests, Guest::BY_ROOM, 3).count()?, 9);
        Ok(())
    });
}

/// A row whose key is taken is refused, be it that of the primary index or of a unique one, in one batch with the other or behind it.
pub fn duplicates_are_refused<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let twice = |rows: &[Person]| {
        let database = setup.open();
        let table = create::<P, Person>(&database);
        let mut worker = database.worker().unwrap();
        load(&mut worker, &table, rows, |person| person.id)
    };
    for apart in [1, TOGETHER as u64 + 1] {
        let rows = people(0..=apart);
        assert!(twice(&rows).is_ok());
        let (mut same_id, mut same_code) = (rows.clone(), rows);
        same_id[apart as usize].id = 0;
        same_code[apart as usize].code = same_code[0].code;
        for (rows, index) in [(same_id, IndexId::PRIMARY), (same_code, IndexId(2))] {
            match twice(&rows) {
                Err(Error::Duplicate(duplicate)) => assert_eq!(duplicate.index, index),
                other => panic!("{other:?} of two rows with one key"),
            }
        }
    }
}

/// What a snapshot has seen of loaded rows it goes on seeing while they are changed and deleted; later ones see the changes.
pub fn snapshots_keep_loaded_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Item>(&database);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    let items: Vec<_> = (0..40).map(|id| Item { id, value: 1 }).collect();
    load(&mut left, &table, &items, |item| item.id).unwrap();
    let change = |worker: &mut P::Worker| {
        done(worker, |t| {
            (0..20).try_for_each(|id| set(t, &table, id, 2))?;
            (10..30).try_for_each(|id| t.delete(&table, id).map(drop))
        });
    };
    if setup.snapshots_interleave && !setup.snapshots_lock {
        let mut client = Client::begin(&mut left, Mode::Snapshot);
        assert_eq!(client.step(|t| t.scan(&table, ..5).rows()), Some(items[..5].to_vec()));
        change(&mut right);
        setup.pass(&database, 3);
        right.maintain();
        assert_eq!(client.step(|t| t.scan(&table, ..).rows()), Some(items));
        assert!(client.commit());
    } else {
        change(&mut right);
    }
    let changed = (0..10).map(|id| Item { id, value: 2 }).chain((30..40).map(|id| Item { id, value: 1 }));
    assert_eq!(all(&mut right, &table), changed.collect::<Vec<_>>());
}

/// Rows that were loaded leave no more behind than those that were inserted, when they are deleted.
pub fn memory_comes_back<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let left = |is_loaded: bool| {
        let database = setup.open();
        let table = create::<P, Person>(&database);
        let mut workers = [database.worker().unwrap()];
        let [worker] = &mut workers;
        let mut rows = people(0..600);
        rows.iter_mut().for_each(|row| row.text = "l".repeat(row.id as usize % 500));
        if is_loaded {
            load(worker, &table, &rows, |person| person.id).unwrap();
        } else {
            rows.chunks(TOGETHER)
                .for_each(|rows| done(worker, |t| rows.iter().try_for_each(|row| t.insert(&table, row))));
        }
        let full = used(setup, &database, &mut workers);
        for first in (0..600).step_by(TOGETHER) {
            let ids = first..first + TOGETHER as u64;
            done(&mut workers[0], |t| ids.clone().try_for_each(|id| t.delete(&table, id).map(drop)));
        }
        (full, used(setup, &database, &mut workers))
    };
    let ((full, loaded), (_, inserted)) = (left(true), left(false));
    assert!(loaded < full, "{loaded} bytes are left of {full}");
    let most = inserted + SLACK + setup.kept_slots_bytes;
    assert!(loaded <= most, "{loaded} bytes are left of rows that were loaded, and {inserted} of others");
}
