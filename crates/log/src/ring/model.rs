//! Every interleaving of a worker that seals and a thread that closes epochs.

use polychron_sync::model::explore;
use polychron_sync::thread;

use super::*;

const LIMITS: Limits = Limits { ring_words: 16, transaction_bytes: 256, piece_bytes: 64, memory_bytes: 1 << 20 };

type Copied = (u64, u64, Vec<u8>);

/// Closes an epoch, and copies its records as epoch of the close, timestamp and bytes.
fn flush(rings: &Rings, records: &mut Vec<Copied>) {
    let mut heads = Vec::new();
    let epoch = rings.close(&mut heads);
    for mut ring in heads {
        while let Some(sealed) = rings.take(&mut ring, epoch) {
            let mut bytes = Vec::new();
            rings.copy(&ring, &sealed, &mut bytes);
            records.push((epoch, sealed.order.timestamp, bytes));
        }
        rings.free(&ring);
    }
}

fn commit(rings: &Rings, worker: usize, timestamp: u64) -> u64 {
    rings.stage(worker, 1, &Edit::Put(&[timestamp])).unwrap();
    rings.seal(worker, Order { era: 0, timestamp })
}

/// Each record comes with the close of the epoch in which it was sealed: never later, when the epoch would count as durable without it, and never
/// earlier. Three records of six words wrap around in a ring of sixteen.
#[test]
fn a_close_has_the_records_of_its_epoch() {
    explore(3, || {
        let rings = Arc::new(Rings::new(1, 1, LIMITS));
        let (worker, flusher) = (Arc::clone(&rings), Arc::clone(&rings));
        let worker = thread::spawn(move || [1, 2].map(|timestamp| (commit(&worker, 0, timestamp), timestamp)));
        let flusher = thread::spawn(move || {
            let mut records = Vec::new();
            flush(&flusher, &mut records);
            flush(&flusher, &mut records);
            records
        });
        let (mut sealed, mut records) = (worker.join().unwrap().to_vec(), flusher.join().unwrap());
        flush(&rings, &mut records);
        sealed.push((commit(&rings, 0, 3), 3));
        flush(&rings, &mut records);
        let copied: Vec<_> = records.iter().map(|(epoch, timestamp, _)| (*epoch, *timestamp)).collect();
        assert_eq!(copied, sealed);
        for (_, timestamp, bytes) in records {
            assert_eq!(bytes, [&[4, 1, 0, 1][..], &timestamp.to_le_bytes()].concat());
        }
    });
}

/// A transaction that is not sealed holds no close back, and its record comes when it is sealed, whatever was copied beside it.
#[test]
fn a_close_does_not_wait_for_a_transaction() {
    explore(3, || {
        let rings = Arc::new(Rings::new(1, 1, LIMITS));
        commit(&rings, 0, 1);
        rings.stage(0, 1, &Edit::Put(&[2])).unwrap();
        let (worker, flusher) = (Arc::clone(&rings), Arc::clone(&rings));
        let worker = thread::spawn(move || worker.stage(0, 1, &Edit::Put(&[3])).unwrap());
        let flusher = thread::spawn(move || {
            let mut records = Vec::new();
            flush(&flusher, &mut records);
            records
        });
        worker.join().unwrap();
        let mut records = flusher.join().unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(rings.seal(0, Order { era: 0, timestamp: 2 }), 2);
        flush(&rings, &mut records);
        let last = &records[1];
        assert_eq!((last.0, last.1, last.2.len()), (2, 2, 2 * 12));
    });
}

/// A reader that has seen what a transaction wrote is told of its epoch.
#[test]
fn a_reader_waits_for_what_it_has_read() {
    explore(3, || {
        let rings = Arc::new(Rings::new(2, 1, LIMITS));
        let written = Arc::new(AtomicU64::new(0));
        let (writer, seen) = (Arc::clone(&rings), Arc::clone(&written));
        let writer = thread::spawn(move || {
            let epoch = commit(&writer, 0, 1);
            // Release: what a protocol does when it lets others read.
            seen.store(epoch, Ordering::Release);
        });
        let other = Arc::clone(&rings);
        let reader = thread::spawn(move || {
            other.close(&mut Vec::new());
            commit(&other, 1, 2);
            let epoch = written.load(Ordering::Acquire);
            assert!(other.last_sealed() >= epoch);
        });
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(rings.last_sealed() >= 2);
    });
}

/// A ring is nearly full when a third record is sealed: it lies where the first one was, once that is copied, or outside.
#[test]
fn a_record_is_overwritten_once_it_is_copied() {
    explore(3, || {
        let rings = Arc::new(Rings::new(1, 1, LIMITS));
        let expected = [1, 2, 3].map(|timestamp: u64| [&[4, 1, 0, 1][..], &timestamp.to_le_bytes()].concat());
        for timestamp in [1, 2] {
            commit(&rings, 0, timestamp);
        }
        let (worker, flusher) = (Arc::clone(&rings), Arc::clone(&rings));
        let worker = thread::spawn(move || commit(&worker, 0, 3));
        let flusher = thread::spawn(move || {
            let mut records = Vec::new();
            flush(&flusher, &mut records);
            records
        });
        worker.join().unwrap();
        let mut records = flusher.join().unwrap();
        flush(&rings, &mut records);
        records.sort_unstable_by_key(|(_, timestamp, _)| *timestamp);
        assert!(records.iter().map(|(_, _, bytes)| bytes).eq(&expected));
    });
}
