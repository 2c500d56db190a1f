//! Databases, mostly with all their threads, on disks that are small, or that others fill.

use std::time::Duration;

use polychron::{Database, Error, Operations, Row, Table};
use polychron_log::disk::Files;
use polychron_sim::SimulatedDisk;

#[derive(Row, Clone, Debug, PartialEq)]
struct Note {
    #[key]
    id: u64,
    text: String,
}

const MIB: u64 = 1 << 20;
/// How often something is tried, a millisecond apart, before it counts as refused for good.
const ATTEMPTS: u32 = 60_000;

fn open(disk: &SimulatedDisk) -> Result<Database, Error> {
    Database::builder().small().open_on(&Files::new(disk.clone()), |_| ())
}

fn note(id: u64, length: usize) -> Note {
    Note { id, text: char::from(b'a' + (id % 26) as u8).to_string().repeat(length) }
}

/// Does something until it is not refused for a lack of room. Answers how often it was.
fn insist(mut act: impl FnMut() -> Result<(), Error>) -> u32 {
    for refused in 0..ATTEMPTS {
        match act() {
            Ok(()) => return refused,
            Err(Error::DiskFull(_)) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it is refused for good");
}

/// An empty database takes little.
#[test]
fn an_empty_database_is_small() {
    let disk = SimulatedDisk::new(1);
    open(&disk).unwrap().close().unwrap();
    assert!(disk.used() <= 3 * MIB, "{} bytes", disk.used());
}

/// Few rows are written so often that their log would be many times as long as the disk.
#[test]
fn a_small_database_goes_on_for_ever_on_a_small_disk() {
    let disk = SimulatedDisk::new(1);
    disk.set_room(Some(8 * MIB));
    let database = open(&disk).unwrap();
    let notes = database.create_table::<Note>().unwrap();
    let write = |number: u64| database.transact(|t| t.upsert(&notes, &note(number % 20, 20_000)));
    (0..1500).for_each(|number| _ = insist(|| write(number)));
    database.close().unwrap();
    let database = open(&disk).unwrap();
    let notes = database.create_or_open_table::<Note>().unwrap();
    assert_eq!(database.transact(|t| t.len(&notes)).unwrap(), 20);
}

/// A database with 400 rows on a disk that others have filled.
fn full(disk: &SimulatedDisk, has_threads: bool) -> (Database, Table<Note>) {
    let files = Files::new(disk.clone());
    let opened = Database::builder().small().open_on(&files, |settings| settings.has_threads = has_threads);
    let database = opened.unwrap();
    let notes = database.create_table::<Note>().unwrap();
    for first in (0..400).step_by(20) {
        database.transact(|t| (first..first + 20).try_for_each(|id| t.insert(&notes, &note(id, 5_000)))).unwrap();
    }
    disk.set_room(Some(disk.used()));
    // What is free is soon used.
    let full = (0..).find(|number| database.transact(|t| t.upsert(&notes, &note(500 + number % 10, 20_000))).is_err());
    assert!(full.is_some());
    (database, notes)
}

/// Rows are read and deleted, as long as no checkpoint begins by itself and takes the room of deletions.
#[test]
fn a_full_disk_lets_rows_be_read_and_deleted() {
    let disk = SimulatedDisk::new(1);
    let (database, notes) = full(&disk, false);
    for id in 0..100 {
        assert_eq!(database.transact(|t| t.get_owned(&notes, id)).unwrap(), Some(note(id, 5_000)), "{id}");
        let deleted = database.transact(|t| t.delete(&notes, id));
        assert!(matches!(deleted, Ok(true)), "{id}: {deleted:?}");
    }
}

/// A checkpoint and an end are possible, and deletions beside it. When others have left the disk, all goes on by itself.
#[test]
fn a_full_disk_lets_checkpoints_be_made() {
    let disk = SimulatedDisk::new(1);
    let (database, notes) = full(&disk, true);
    for id in 0..100 {
        assert_eq!(database.transact(|t| t.get_owned(&notes, id)).unwrap(), Some(note(id, 5_000)), "{id}");
        insist(|| database.transact(|t| t.delete(&notes, id)).map(|deleted| assert!(deleted, "{id}")));
    }
    // It finds room as soon as a thread of the database has had the time to make files ahead, in one of these milliseconds.
    let is_made = |_: &u32| {
        let made = database.checkpoint();
        disk.set_room(None);
        std::thread::sleep(Duration::from_millis(1));
        disk.set_room(Some(disk.used()));
        made.is_ok() && database.transact(|t| t.insert(&notes, &note(1000, 10))).is_ok()
    };
    assert!((0..ATTEMPTS).find(is_made).is_some());
    disk.set_room(None);
    insist(|| database.transact(|t| (2000..2500).try_for_each(|id| t.insert(&notes, &note(id, 5_000)))));
    database.close().unwrap();
    let database = open(&disk).unwrap();
    let notes = database.create_or_open_table::<Note>().unwrap();
    let has = |id| database.transact(|t| t.contains(&notes, id)).unwrap();
    assert!(!has(0) && !has(99) && has(100) && has(1000) && has(2499));
}

/// Not even a checkpoint has room: the database ends, and is there when it is opened again.
#[test]
fn a_database_ends_on_a_full_disk() {
    let disk = SimulatedDisk::new(1);
    let database = open(&disk).unwrap();
    let notes = database.create_table::<Note>().unwrap();
    disk.set_room(Some(0));
    let written =
        (0_u64..).take_while(|id| database.transact(|t| t.insert(&notes, &note(*id, 5_000))).is_ok()).count() as u64;
    let error = database.transact(|t| t.insert(&notes, &note(0, 5_000)).or(t.upsert(&notes, &note(0, 1)))).unwrap_err();
    assert_eq!(error.to_string(), "the database at a disk has no room: the log cannot grow");
    assert!(matches!(database.checkpoint(), Err(Error::DiskFull(_))));
    database.close().unwrap();
    let database = open(&disk).unwrap();
    let notes = database.create_or_open_table::<Note>().unwrap();
    assert_eq!(database.transact(|t| t.len(&notes)).unwrap(), written);
}
