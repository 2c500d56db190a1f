//! What tools find in the files of a database, whole and damaged.

use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::clock::ManualClock;
use polychron_engine::redo::{Change, Log as _, Order};
use polychron_log::disk::{BLOCK, Files};
use polychron_log::manifest::{Manifest, Manifests};
use polychron_log::tools::{Damage as Found, Described, ReadOnly, verify};
use polychron_log::{DatabaseId, Log, Options};
use polychron_sim::{Damage, SimulatedDisk};

use crate::history::{DROPPED, NUMBERS, TEXTS, catalog, number_key, number_row, text_row};

const COMMITS: u64 = 12;

/// A database that was opened twice; each commit is a frame of a block, and a log file has a few of them.
fn made(disk: &SimulatedDisk) {
    let files = Files::new(disk.clone());
    for opening in 0..2 {
        let first = Manifest {
            database: DatabaseId(7),
            incarnation: 0,
            first_log_file: 1,
            durable: 0,
            checkpoint: None,
            catalog: polychron_log::catalog::encode(&catalog()),
        };
        let mut manifests = match Manifests::open(&files).unwrap() {
            Some(manifests) => manifests,
            None => Manifests::create(&files, first).unwrap(),
        };
        let (clock, ended) = (Arc::new(ManualClock::new()), Box::new(Order::default));
        let log = Log::open(&files, &mut manifests, Options::tiny(), clock, ended, &mut |_| {}).unwrap();
        let commit = |order: u64, table: u32, key: &[u8], change: Change<'_>| {
            log.admit(0).unwrap();
            log.stage(0, TableId::new(1, table), key, change).unwrap();
            let ticket = log.seal(0, Order::from(order));
            log.wait(ticket).unwrap();
        };
        for order in 1..=COMMITS {
            match (opening, order % 4) {
                (0, 0) => commit(order, DROPPED, b"", Change::Put(&number_row(order, [1; 4]))),
                (0, _) => commit(order, NUMBERS, b"", Change::Put(&number_row(order, [1, 0, 2, 3]))),
                (_, 0) => commit(order, TEXTS, b"", Change::Put(&text_row(&order.to_string(), order, "a \"text\""))),
                (_, 1) => commit(order, NUMBERS, &number_key(order), Change::Delete),
                _ => commit(order, NUMBERS, &number_key(order), Change::Patch { word: 2, words: &[order, 9] }),
            }
        }
        log.close().unwrap();
    }
}

fn found(disk: &SimulatedDisk) -> Vec<Found> {
    verify(&Files::new(disk.clone())).unwrap().expect("there is a database")
}

fn is_read(disk: &SimulatedDisk) -> bool {
    let files = Files::new(disk.clone());
    let records = |found: Option<ReadOnly<'_, SimulatedDisk>>| found.expect("it is there").records(&mut |_, _| {});
    ReadOnly::open(&files).and_then(records).is_ok()
}

#[test]
fn changes_are_described_by_their_tables() {
    let disk = SimulatedDisk::new(1);
    made(&disk);
    let files = Files::new(disk.clone());
    let read = ReadOnly::open(&files).unwrap().unwrap();
    let all = |table, key| {
        let mut all: Vec<Described> = Vec::new();
        read.changes(table, key, &mut |described| all.push(described.clone())).unwrap();
        all
    };
    let told: Vec<String> =
        all(None, None).iter().map(|it| format!("{}: {} {}", it.table, it.key, it.change)).collect();
    assert_eq!(told.len() as u64, 2 * COMMITS);
    assert_eq!(told[0], "numbers: 1 put id=1 n0=1 n1=0 n2=2 n3=3");
    assert_eq!(told[3], "[2]:  put [0]=0x4 [1]=0x1 [2]=0x1 [3]=0x1 [4]=0x1");
    assert_eq!(told[12], "numbers: 1 delete");
    assert_eq!(told[13], "numbers: 2 patch n1=2 n2=9");
    assert_eq!(told[15], r#"texts: 4 put number=4 name="4" text="a \"text\"""#);
    let of_one = all(Some("numbers"), Some("2"));
    assert_eq!(of_one.iter().map(|it| (it.incarnation, it.order.timestamp)).collect::<Vec<_>>(), [(1, 2), (2, 2)]);
    assert!(of_one[0].epoch > 0 && of_one[0].epoch < of_one[1].epoch);
    let logging = read.logging().unwrap();
    assert_eq!((logging.records, logging.incarnations), (2 * COMMITS, 2));
    assert!(logging.epoch >= of_one[1].epoch);
    assert_eq!(verify(&Files::new(SimulatedDisk::new(1))).unwrap(), None);
    assert_eq!(found(&disk), []);
}

/// Each block of each file of the log is damaged in each way: what is named is in its file, at its frame, if reading notices anything, and nothing if not.
/// The files stay as they are.
#[test]
fn damage_is_named_where_it_is() {
    let disk = SimulatedDisk::new(2);
    made(&disk);
    assert_eq!(found(&disk), []);
    let (files, mut noticed) = (Files::new(disk.clone()), 0);
    for entry in files.list("log").unwrap() {
        let path = format!("log/{}", entry.name);
        let blocks = files.open(&path, polychron_log::disk::Access::Read).unwrap().bytes().unwrap() / BLOCK as u64;
        for block in 0..blocks {
            for damage in
                [Damage::FlipBit { bit: 300 }, Damage::Zero, Damage::Garbage, Damage::Stale, Damage::Unreadable]
            {
                let left = disk.after_restart();
                left.damage(&path, block, damage).unwrap();
                let (is_read, all) = (is_read(&left), found(&left));
                assert_eq!(all.is_empty(), is_read, "{path}, block {block}, {damage:?}: {all:?}");
                let begin = block * BLOCK as u64;
                // What lies behind the log is read many blocks at a time, and a device does not say which of them has failed.
                let is_near = |at: u64| at / BLOCK as u64 == block || damage == Damage::Unreadable && at <= begin;
                let is_here = |it: &Found| it.file == path && it.offset.is_some_and(is_near);
                let is_before = |it: &Found| it.file != path || it.offset.is_none_or(|at| at == begin);
                assert!(all.iter().all(|it| is_here(it) || block == 0 && is_before(it)), "{path} {block}: {all:?}");
                noticed += usize::from(!all.is_empty());
            }
        }
    }
    assert!(noticed > 3 * 2 * COMMITS as usize, "{noticed} were noticed");
}

#[test]
fn all_damages_are_named() {
    let disk = SimulatedDisk::new(3);
    made(&disk);
    let damaged = |places: &[&(String, u64)]| {
        let left = disk.after_restart();
        for (path, block) in places {
            left.damage(path, *block, Damage::Garbage).unwrap();
        }
        found(&left)
    };
    let places: Vec<(String, u64)> =
        (0..4).flat_map(|slot| (0..4).map(move |block| (format!("log/{slot}.log"), block))).collect();
    let mut tried = 0;
    for (number, first) in places.iter().enumerate() {
        for second in &places[places.len().min(number + 2)..] {
            let (mut each, one) = (damaged(&[first]), damaged(&[second]));
            assert!(each.len() == 1 && one.len() == 1, "{each:?}, {one:?}");
            each.extend(one);
            assert_eq!(damaged(&[first, second]), each, "{first:?} and {second:?}");
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// Of the manifests, and of rows that contradict each other in files that are whole.
#[test]
fn other_damage_is_named() {
    let disk = SimulatedDisk::new(4);
    made(&disk);
    for path in ["manifest.0", "manifest.1"] {
        disk.damage(path, 0, Damage::Garbage).unwrap();
    }
    let told: Vec<String> = found(&disk).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["manifest.0: neither it nor the other one is valid"]);

    let disk = SimulatedDisk::new(4);
    made(&disk);
    let files = Files::new(disk.clone());
    let mut manifests = Manifests::open(&files).unwrap().unwrap();
    let clock = Arc::new(ManualClock::new());
    let log = Log::open(&files, &mut manifests, Options::tiny(), clock, Box::new(Order::default), &mut |_| {}).unwrap();
    log.stage(0, TableId::new(1, NUMBERS), &number_key(99), Change::Patch { word: 1, words: &[1] }).unwrap();
    log.wait(log.seal(0, Order::from(1))).unwrap();
    let told: Vec<String> = found(&disk).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["the row 99 of table numbers cannot be recovered: it was patched where there was none"]);
}
