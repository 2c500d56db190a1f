//! A transaction or a snapshot that is open and does nothing: others go on as if it were not there, snapshots are new, and what is kept is
//! what it can still see. Epochs are ended interactively; the database's own clock may end more.

use polychron_base::sizes::scaled;
use polychron_engine::{Interactive, Mode, Operations, Protocol, Worker};

use super::{Fixture, transact};

crate::on_each! {
    snapshots_contain_the_clients_commits;
    an_idle_writer_holds_no_versions;
    an_idle_snapshot_holds_what_it_sees;
    an_idle_snapshot_outlives_changes_of_the_catalog;
}

const ROWS: u64 = 16;

fn end_epoch<P: Protocol>(fixture: &Fixture<P>) {
    while !fixture.database.memory().epochs().advance() {
        std::thread::yield_now();
    }
}

/// Bytes that wait to be freed, once all that can be freed is.
fn waiting<P: Protocol<Worker: Interactive>>(fixture: &Fixture<P>, worker: &mut P::Worker) -> usize {
    for _ in 0..3 {
        end_epoch(fixture);
        worker.maintain();
    }
    fixture.database.memory().statistics().retired_bytes
}

fn read<P: Protocol<Worker: Interactive>>(fixture: &Fixture<P>, worker: &mut P::Worker, id: u64) -> u64 {
    let mut snapshot = worker.begin(Mode::Snapshot).unwrap();
    snapshot.get(&fixture.counters, id).unwrap().unwrap().left()
}

/// Whichever worker the client comes by, and the client that is idle beside it.
fn snapshots_contain_the_clients_commits<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..ROWS);
    let (mut first, mut second) = (fixture.worker(), fixture.worker());
    let (mut writer, mut reader) = (fixture.worker(), fixture.worker());
    let mut idle = writer.begin(Mode::ReadWrite).unwrap();
    idle.update(&fixture.counters, 5, |row| row.set_left(1)).unwrap();
    let mut old = reader.begin(Mode::Snapshot).unwrap();
    old.get(&fixture.counters, 5).unwrap();
    for round in 1..=scaled(300, 20) as u64 {
        transact(&mut first, |transaction| transaction.update(&fixture.counters, 1, |row| row.set_left(round)));
        assert_eq!(read(&fixture, &mut first, 1), round, "a session does not see its own commit");
        assert_eq!(read(&fixture, &mut second, 1), round, "a client does not see its own commit by another session");
    }
    drop((idle, old));
}

fn an_idle_writer_holds_no_versions<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..ROWS);
    let (mut writer, mut worker) = (fixture.worker(), fixture.worker());
    let mut idle = writer.begin(Mode::ReadWrite).unwrap();
    idle.get(&fixture.counters, 1).unwrap();
    for round in 1..=scaled(400, 40) as u64 {
        for id in 0..ROWS {
            transact(&mut worker, |transaction| transaction.update(&fixture.counters, id, |row| row.set_left(round)));
        }
        end_epoch(&fixture);
    }
    let waits = waiting(&fixture, &mut worker);
    assert!(waits <= 4 * 96 * ROWS as usize, "{waits} bytes wait beside a transaction that does nothing");
    drop(idle);
}

fn an_idle_snapshot_holds_what_it_sees<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..ROWS);
    let (mut reader, mut worker) = (fixture.worker(), fixture.worker());
    end_epoch(&fixture);
    end_epoch(&fixture);
    let mut idle = reader.begin(Mode::Snapshot).unwrap();
    assert_eq!(idle.get(&fixture.counters, 1).unwrap().unwrap().left(), 0);
    for round in 1..=scaled(400, 60) as u64 {
        for id in 0..ROWS {
            transact(&mut worker, |transaction| transaction.update(&fixture.counters, id, |row| row.set_left(round)));
        }
        end_epoch(&fixture);
    }
    let waits = waiting(&fixture, &mut worker);
    // Beside the version that it sees a few that were made before it was found to be a long one.
    assert!(waits <= 24 * 96 * ROWS as usize, "{waits} bytes wait beside an idle snapshot");
    for id in 0..ROWS {
        assert_eq!(idle.get(&fixture.counters, id).unwrap().unwrap().left(), 0, "the snapshot has moved");
    }
    assert_eq!(idle.scan(&fixture.counters, ..).count().unwrap(), ROWS);
    drop(idle);
    assert_eq!(waiting(&fixture, &mut worker), 0, "something is kept for a snapshot that has ended");
}

fn an_idle_snapshot_outlives_changes_of_the_catalog<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..ROWS);
    let mut reader = fixture.worker();
    end_epoch(&fixture);
    end_epoch(&fixture);
    let mut idle = reader.begin(Mode::Snapshot).unwrap();
    assert!(idle.get(&fixture.counters, 1).unwrap().is_some());
    fixture.database.drop_table(fixture.people.id()).unwrap();
    fixture.database.drop_table(fixture.counters.id()).unwrap();
    let mut worker = fixture.worker();
    for _ in 0..4 {
        waiting(&fixture, &mut worker);
    }
    for id in 0..ROWS {
        assert_eq!(
            idle.get(&fixture.counters, id).unwrap().unwrap().left(),
            0,
            "the table went with its snapshot open"
        );
    }
    assert_eq!(idle.scan(&fixture.counters, ..).count().unwrap(), ROWS);
    drop(idle);
    assert!(worker.begin(Mode::ReadWrite).unwrap().get(&fixture.counters, 1).is_err());
}
