//! What procedures declare is what they do: every workload, its load and its check included, runs on a protocol that holds
//! each write against the declaration. Planned protocols run by declarations, so a wrong one is an error there.

mod witness;

use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_engine::{
    Access, Common, Declare, Error, Mode, Operations, Procedure, Protocol, Row, Table, TableId, Transaction, Worker,
};
use polychron_schema::{Key, KeyScratch};
use polychron_sync::atomic::AtomicBool;
use polychron_workloads::churn::{Churn, ChurnOptions, Pattern};
use polychron_workloads::increment::{Increment, IncrementOptions};
use polychron_workloads::modify::{Modify, ModifyOptions};
use polychron_workloads::run::{self, IndexChoice, Settings, Share, Unobserved};
use polychron_workloads::scan::{Scan, ScanOptions};
use polychron_workloads::smallbank::{SmallBank, SmallBankOptions};
use polychron_workloads::tatp::{Tatp, TatpOptions};
use polychron_workloads::tpcc::{DeliveryMode, Indexes, Scale, Tpcc, TpccOptions};
use polychron_workloads::ycsb::{Preset, Ycsb, YcsbArguments, YcsbOptions};
use polychron_workloads::{Client, Transact, Workload};

use witness::{ANOTHER_WAY, INDEXED, NOT_DONE, UNDECLARED, UNKNOWN, Witness, WitnessWorker};

fn open() -> Arc<Witness> {
    Witness::open(Default::default(), Common::default()).unwrap()
}

/// Loads a workload, runs transactions of two clients, and checks what is left. Every kind in `kinds` must have committed.
fn is_honest<W: Workload>(options: &W::Options, transactions: usize, kinds: &[&str]) {
    W::validate(options, 2).unwrap();
    let database = open();
    let workload = W::create(options, &database).unwrap();
    let mut worker = database.worker().unwrap();
    for part in 0..2 {
        workload.load_part(&mut worker, &Share { part, parts: 2, seed: 1, progress: &|_| () }).unwrap();
    }
    let mut clients: Vec<_> = (0..2).map(|thread| workload.client(1, thread, 2)).collect();
    let mut committed = vec![0; W::KINDS.len()];
    for number in 0..transactions {
        let client = &mut clients[number % 2];
        let mut procedure = client.next();
        let (kind, mode) = (procedure.kind(), procedure.mode());
        let outcome = match mode {
            Mode::ReadWrite => worker.execute(&mut procedure),
            Mode::Snapshot => worker.snapshot(&mut procedure),
        };
        match outcome {
            Ok(_) => committed[kind] += 1,
            Err(Error::RolledBack) => {}
            Err(error) => panic!("{} of {}: {error}", W::KINDS[kind], W::NAME),
        }
        client.finished(&procedure);
    }
    drop(clients);
    workload.check(&database).unwrap();
    for kind in kinds {
        let position = W::KINDS.iter().position(|known| known == kind).unwrap();
        assert!(committed[position] > 0, "no {kind} of {} committed", W::NAME);
    }
}

#[test]
fn ycsb_is_honest() {
    let base = YcsbOptions { records: 300, record_size: 24, requests: 4, ..YcsbOptions::default() };
    is_honest::<Ycsb>(&YcsbOptions { theta: 0.9, ..base.clone() }, 500, &["read", "write"]);
    is_honest::<Ycsb>(&YcsbOptions { blind_write: true, ..base.clone() }, 300, &["write"]);
    let ordered = YcsbOptions { index: IndexChoice::Ordered, scan_share: 0.2, insert_delete_share: 0.4, ..base };
    is_honest::<Ycsb>(&ordered, 800, &["scan", "insert-delete", "write"]);
    for preset in [Preset::TenRmw, Preset::TwoRmwEightReads] {
        let given = YcsbArguments { preset: Some(preset), records: Some(300), ..YcsbArguments::default() };
        let given = YcsbArguments { long_readers: Some(10.0), read_only_share: Some(0.1), ..given };
        let given = YcsbArguments { long_reads: Some(90), read_only_length: Some(50), ..given };
        is_honest::<Ycsb>(&given.into(), 300, &["write", "read-only", "long-read"]);
    }
}

#[test]
fn increments_scans_and_banks_are_honest() {
    let options = IncrementOptions { records: 200, theta: 0.9, ..IncrementOptions::default() };
    is_honest::<Increment>(&options, 200, &["increment"]);
    is_honest::<Modify>(&ModifyOptions { records: 50, ..ModifyOptions::default() }, 300, &Modify::KINDS[..3]);
    let options = ScanOptions { records: 200, record_size: 20, writers: 1, ..ScanOptions::default() };
    is_honest::<Scan>(&options, 100, &["scan", "move"]);
    let options = SmallBankOptions { customers: 50, spin_us: 1, ..SmallBankOptions::default() };
    is_honest::<SmallBank>(&options, 2000, SmallBank::KINDS);
}

#[test]
fn churn_is_honest() {
    let keys = ChurnOptions { records: 40, ..ChurnOptions::default() };
    is_honest::<Churn>(&keys, 500, &["update", "toggle"]);
    is_honest::<Churn>(&ChurnOptions { pattern: Pattern::Queue, queues: 3, ..keys }, 500, &["advance"]);
}

#[test]
fn tatp_is_honest() {
    is_honest::<Tatp>(&TatpOptions { subscribers: 130, ..TatpOptions::default() }, 3000, Tatp::KINDS);
}

#[test]
fn tpcc_is_honest() {
    for (index, delivery) in [(Indexes::Hash, DeliveryMode::Deferred), (Indexes::Ordered, DeliveryMode::Immediate)] {
        let options = TpccOptions {
            warehouses: 2,
            scale: Scale::tiny(),
            index,
            delivery,
            remote_item_percent: 20,
            top_customer_percent: 5,
            snapshots: true,
            ..TpccOptions::default()
        };
        is_honest::<Tpcc>(&options, 1500, Tpcc::KINDS);
    }
}

/// A whole run has more procedures than its transactions: those that quiesce the database before, and batches.
#[test]
fn runs_are_honest() {
    let options = IncrementOptions { records: 100, ..IncrementOptions::default() };
    let settings = Settings { threads: 2, warmup_seconds: 0.0, seconds: 0.05, batch: 7, ..Settings::default() };
    let report = run::run::<Witness, Increment>(&open(), &options, &settings, &AtomicBool::new(false), &Unobserved);
    assert!(report.unwrap().passed());
}

/// A planner that goes by keys alone learns of a prefix that there may be writes which are not named.
#[test]
fn a_prefix_is_unknown_to_protocols_that_ignore_it() {
    #[derive(Default)]
    struct Keys {
        count: usize,
        is_unknown: bool,
    }
    impl Declare for Keys {
        fn key<K: EncodedKey>(&mut self, _: TableId, _: K, _: Access) {
            self.count += 1;
        }
        fn unknown(&mut self) {
            self.is_unknown = true;
        }
    }
    let database = open();
    let table = Table::<Marble>::from_id(database.create_table(Marble::definition()).unwrap());
    let declared = |named: &[Named]| {
        let mut keys = Keys::default();
        Player { table, named, deeds: &[] }.declare(&mut keys);
        (keys.count, keys.is_unknown)
    };
    let key = Named::Key((1, 1), Access::Update);
    assert_eq!(declared(&[key, key]), (2, false));
    assert_eq!(declared(&[key, Named::Bag(1)]), (1, true));
}

/// A row with a column that an index keys on.
#[derive(Row, Clone)]
#[row(name = "marble")]
#[index(name = "by_colour", columns(colour))]
struct Marble {
    #[key]
    bag: u8,
    #[key]
    number: u8,
    colour: u16,
    weight: u16,
}

type MarbleKey = (u8, u8);

#[derive(Clone, Copy)]
enum Named {
    Key(MarbleKey, Access),
    Bag(u8),
    Unknown,
}

#[derive(Clone, Copy)]
enum Deed {
    Look(MarbleKey),
    Weigh(MarbleKey),
    Colour(MarbleKey),
    Add(MarbleKey),
    Put(MarbleKey),
    Remove(MarbleKey),
}

/// Declares one thing and does another.
struct Player<'a> {
    table: Table<Marble>,
    named: &'a [Named],
    deeds: &'a [Deed],
}

impl Procedure for Player<'_> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let marble = |(bag, number)| Marble { bag, number, colour: 1, weight: 1 };
        for &deed in self.deeds {
            match deed {
                Deed::Look(key) => drop(transaction.get_columns(&self.table, key, Marble::WEIGHT)?),
                Deed::Weigh(key) => drop(transaction.update(&self.table, key, |row| row.set_weight(2))?),
                Deed::Colour(key) => drop(transaction.update(&self.table, key, |row| row.set_colour(2))?),
                Deed::Add(key) => transaction.insert(&self.table, &marble(key))?,
                Deed::Put(key) => transaction.upsert(&self.table, &marble(key))?,
                Deed::Remove(key) => drop(transaction.delete(&self.table, key)?),
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let mut scratch = KeyScratch::new();
        for &named in self.named {
            match named {
                Named::Key(key, access) => declaration.key(self.table.id(), key.encode(&mut scratch), access),
                Named::Bag(bag) => declaration.prefix(self.table.id(), bag.encode_prefix(&mut scratch), Access::Write),
                Named::Unknown => declaration.unknown(),
            }
        }
    }
}

/// The witness sees what it is there to see.
#[test]
fn dishonesty_is_noticed() {
    use {Access::*, Deed::*};
    let database = open();
    let table = Table::<Marble>::from_id(database.create_table(Marble::definition()).unwrap());
    let mut worker: WitnessWorker = database.worker().unwrap();
    let mut play = |named: &[Named], deeds: &[Deed]| {
        let played = worker.execute(&mut Player { table, named, deeds });
        played.err().map(|error| error.to_string())
    };
    let (one, two) = ((7, 1), (7, 2));
    let key = Named::Key;
    let honest: &[(&[Named], &[Deed])] = &[
        (&[key(one, Insert)], &[Add(one)]),
        (&[key(one, Update)], &[Weigh(one)]),
        (&[key(one, Write)], &[Colour(one)]),
        (&[key(one, Write), key(two, Read)], &[Remove(one), Add(one), Look((9, 9))]),
        (&[key(one, Write)], &[Put(one)]),
        (&[Named::Bag(7)], &[Remove(one), Add(one), Add(two), Colour(two)]),
        (&[Named::Bag(8)], &[]),
    ];
    for (named, deeds) in honest {
        assert_eq!(play(named, deeds), None);
    }
    let dishonest: &[(&[Named], &[Deed], &str)] = &[
        (&[Named::Unknown], &[], UNKNOWN),
        (&[key(one, Update), Named::Unknown], &[Weigh(one)], UNKNOWN),
        (&[], &[Weigh(one)], UNDECLARED),
        (&[key(one, Read)], &[Weigh(one)], UNDECLARED),
        (&[key(two, Write)], &[Remove(two), Remove(one)], UNDECLARED),
        (&[Named::Bag(8)], &[Weigh(one)], UNDECLARED),
        (&[key(one, Update)], &[Remove(one)], ANOTHER_WAY),
        (&[key(one, Update)], &[Put(one)], ANOTHER_WAY),
        (&[key((1, 1), Update)], &[Add((1, 1))], ANOTHER_WAY),
        (&[key(one, Insert)], &[Weigh(one)], ANOTHER_WAY),
        (&[key(one, Update)], &[Colour(one)], INDEXED),
        (&[key(one, Update), key(two, Update)], &[Weigh(one)], NOT_DONE),
        (&[key(two, Insert)], &[], NOT_DONE),
    ];
    for (number, (named, deeds, expected)) in dishonest.iter().enumerate() {
        let found = play(named, deeds);
        assert!(found.as_ref().is_some_and(|found| found.contains(expected)), "{number}: {found:?}, not {expected}");
    }
    // Nothing of a dishonest transaction remains.
    assert_eq!(play(&[key((1, 1), Insert)], &[Add((1, 1))]), None);
}
