//! Databases, mostly with all their threads, on disks that are small, or that others fill.

use std::time::Duration;

use polychron::{Database, Error, Operations, Row, Table};
use polychron_engine::mutations::leave_out;
use polychron_log::disk::Files;
use polychron_log::steps::CheckpointStep;
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
    assert!(disk.used() <= 4 * MIB, "{} bytes", disk.used());
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

/// Few rows are written again and again; then others take all room that a disk has, at any length of the log. Rows are written until they are refused, deleted, and
/// a checkpoint is made.
fn works_on_a_disk_that_others_fill(written: u64) -> Result<(), String> {
    let disk = SimulatedDisk::new(1);
    disk.set_room(Some(24 * MIB));
    let opened =
        Database::builder().small().open_on(&Files::new(disk.clone()), |settings| settings.has_threads = false);
    let database = opened.unwrap();
    let notes = database.create_table::<Note>().unwrap();
    let write = |number: u64| database.transact(|t| t.upsert(&notes, &note(number % 20, 10_000)));
    for number in 0..written {
        if matches!(write(number), Err(Error::DiskFull(_))) {
            database.checkpoint().map_err(|error| format!("a checkpoint on a small disk: {error}"))?;
            write(number).map_err(|error| format!("{number} behind a checkpoint: {error}"))?;
        }
    }
    disk.set_room(Some(disk.used()));
    let refused = (written..).find(|number| write(*number).is_err());
    assert!(refused.is_some());
    for id in 0..10 {
        let deleted = database.transact(|t| t.delete(&notes, id));
        assert!(matches!(deleted, Ok(true)), "{id}: {deleted:?}");
    }
    database.checkpoint().map_err(|error| format!("{error}, {} bytes", disk.used()))?;
    database.close().map_err(|error| error.to_string())?;
    let database = open(&disk).map_err(|error| error.to_string())?;
    let notes = database.create_or_open_table::<Note>().unwrap();
    let count = database.transact(|t| t.len(&notes)).unwrap();
    (count == 10).then_some(()).ok_or(format!("{count} rows"))
}

/// How much was written before others came, in rows of 10 kB.
const WRITTEN: [u64; 10] = [20, 60, 95, 110, 180, 250, 400, 700, 1100, 1700];

#[test]
fn a_disk_that_others_fill_lets_a_checkpoint_be_made() {
    for written in WRITTEN {
        assert_eq!(works_on_a_disk_that_others_fill(written), Ok(()), "{written} were written before");
    }
}

/// Where nothing holds the room, the log takes it.
#[test]
fn room_for_a_checkpoint_is_held() {
    let _careless = leave_out(CheckpointStep::HoldRoom);
    assert!(WRITTEN.into_iter().any(|written| works_on_a_disk_that_others_fill(written).is_err()));
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
