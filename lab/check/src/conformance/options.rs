//! Options of any size: a database opens with what they say, or is refused in one line that names the option. Nothing fails later with other numbers.

use std::sync::Arc;
use std::time::Duration;

use polychron_base::Error;
use polychron_base::clock::SystemClock;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{Declare, Interactive, Operations, Procedure, Protocol, Table, Transaction, Worker};
use polychron_memory::Options;

use super::stress;
use crate::Setup;
use crate::rows::Item;
use crate::setup::{create, done, run};
use crate::watch::watched;

/// Opens a database, or checks what it is refused with.
fn open<P: Protocol>(setup: &Setup<P>, option: &str) -> Option<Arc<P>> {
    match P::open(setup.options.clone(), setup.common.clone()) {
        Ok(database) => Some(database),
        Err(Error::Options(line)) => {
            let is_clear = line.contains(option) && line.contains(|it: char| it.is_ascii_digit());
            assert!(is_clear && !line.contains('\n'), "{option}: {line}");
            None
        }
        Err(error) => panic!("{option}: {error:?}"),
    }
}

fn with_slots<P: Protocol>(setup: &Setup<P>, slots: usize) -> Setup<P> {
    let mut setup = setup.clone();
    setup.common.memory.max_workers = slots;
    setup
}

/// Worker slots: as many as were asked for can be had.
pub fn workers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        assert!(open(&with_slots(&setup, 0), "max_workers").is_none());
        let mut are_too_many = false;
        for slots in [1, 2, 500, 509, 510, 511, 512, 513, 1022, 1024, 65533, 65534, 65535, 65536, 65537, usize::MAX] {
            progress.at(format!("{slots} slots"));
            let Some(database) = open(&with_slots(&setup, slots), "max_workers") else {
                are_too_many = true;
                continue;
            };
            assert!(!are_too_many, "{slots} slots can be had, and fewer were refused");
            let wanted = slots.min(1100);
            let workers: Vec<_> = (0..wanted).map(|_| database.worker().unwrap()).collect();
            if wanted == slots {
                let refused = database.worker().err();
                assert!(matches!(refused, Some(Error::TooManyWorkers { limit }) if limit == slots), "{refused:?}");
            }
            drop(workers);
            serves(&database, false);
        }
        assert!(are_too_many);
    });
}

/// Adds to a row.
struct Add(Table<Item>);

impl Procedure for Add {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<bool, Error> {
        t.update(&self.0, 1, |row| row.set_value(row.value() + 1))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.unknown();
    }
}

/// Uses a database; it may be too small for anything.
fn serves<P: Protocol<Worker: Interactive>>(database: &Arc<P>, may_be_full: bool) {
    let fits = |outcome: Result<(), Error>| match outcome {
        Ok(()) => true,
        Err(Error::OutOfMemory(_)) if may_be_full => false,
        Err(error) => panic!("{error:?}"),
    };
    let made = Table::<Item>::create(&**database);
    let Ok(table) = made else {
        assert!(!fits(made.map(drop)));
        return;
    };
    let mut worker = database.worker().unwrap();
    if fits(run(&mut worker, |t| t.insert(&table, &Item { id: 1, value: 0 }))) {
        fits(worker.execute(&mut Add(table)).map(|found| assert!(found)));
        run(&mut worker, |t| t.get(&table, 1).map(|row| assert!(row.is_some()))).unwrap();
    }
}

/// Workers that are pinned serve as others do, on threads of clients and of the service, and are counted where a protocol has memory of its own.
pub fn pinned<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let mut setup = setup.clone();
    setup.common.memory.pin_workers = true;
    let measures_memory = setup.measures_memory;
    watched(move |_| {
        let database = setup.open();
        let pinned = |database: &Arc<P>| {
            let memory = database.statistics().memory.expect("it has memory");
            memory.nodes.iter().map(|node| node.pinned_workers).sum::<usize>()
        };
        assert_eq!(pinned(&database), 0);
        let table = create(&database);
        std::thread::scope(|scope| {
            for id in 0..3 {
                let (database, table) = (&database, &table);
                scope.spawn(move || {
                    let mut worker = database.worker().unwrap();
                    done(&mut worker, |t| t.insert(table, &Item { id, value: 0 }));
                    assert!(!measures_memory || pinned(database) > 0 || cfg!(not(target_os = "linux")));
                });
            }
        });
        let options = Submissions { threads: 2, ..Submissions::default() };
        let service = Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker()).unwrap();
        let submissions: Vec<_> = (0..20).map(|_| service.submit(Add(table))).collect();
        submissions.into_iter().for_each(|submission| assert!(submission.wait().unwrap()));
        drop(service);
        let added = done(&mut database.worker().unwrap(), |t| Ok(t.get(&table, 1)?.map(|row| row.value())));
        assert_eq!(added, Some(20));
    });
}

/// A transaction that has written a row and reads it finds what was there before, where the look for own writes is left out; those that read no own writes
/// are none the worse.
pub fn without_own_writes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create(&database);
    let mut worker = database.worker().unwrap();
    let mut put = |value| {
        done(&mut worker, |t| {
            t.upsert(&table, &Item { id: 1, value })?;
            let scanned = t.scan(&table, ..).count()?;
            Ok((t.get(&table, 1)?.map(|row| row.value()), scanned))
        })
    };
    assert_eq!(put(1), (None, 0));
    assert_eq!(put(2), (Some(1), 1));
    assert_eq!(put(3), (Some(2), 1));
    stress::bank(setup);
    stress::counters(setup);
}

/// Limits and sizes of memory.
pub fn memory<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        let with = |option: &'static str, set: &dyn Fn(&mut Options, usize), values: &[usize]| {
            for value in values {
                progress.at(format!("{option} of {value}"));
                let mut setup = setup.clone();
                set(&mut setup.common.memory, *value);
                if let Some(database) = open(&setup, option) {
                    serves(&database, true);
                }
            }
        };
        let sizes =
            [0, 1, 63, 64, 1000, 4095, 4096, 10_000, 1 << 16, 1 << 17, 1 << 20, isize::MAX as usize, usize::MAX];
        with("limit_bytes", &|memory, bytes| memory.limit_bytes = Some(bytes), &sizes);
        with("reserve_bytes", &|memory, bytes| memory.reserve_bytes = Some(bytes), &sizes);
        with("region_bytes", &|memory, bytes| memory.region_bytes = bytes, &sizes);
        with("region_bytes", &|memory, bytes| memory.region_bytes = bytes << 16, &[1, 1 << 30, usize::MAX >> 16]);
        with("chunk_bytes", &|memory, bytes| memory.chunk_bytes = bytes, &sizes);
        with("chunk_bytes", &|memory, bytes| memory.chunk_bytes = bytes, &[1 << 62, 1 << 63]);
        with("soft_percent", &|memory, percent| memory.soft_percent = percent as u8, &[0, 100, 101, 255]);
        let micros = |micros| Some(Duration::from_micros(micros as u64));
        with("epoch_interval", &|memory, time| memory.epoch_interval = micros(time), &[0, 1, usize::MAX]);
        with("epoch_interval", &|memory, _| memory.epoch_interval = Some(Duration::MAX), &[0]);
    });
}

/// How conflicts are retried, and procedures gathered.
pub fn others<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        for extreme in [0, 1, u64::MAX] {
            progress.at(format!("retries of {extreme}"));
            let mut setup = setup.clone();
            (setup.common.retry.attempts, setup.common.retry.backoff_max_us) = (extreme, extreme);
            let Some(database) = open(&setup, "attempts") else { continue };
            serves(&database, false);
            let table = create::<P, crate::rows::Cell>(&database);
            assert!(database.definition(table.id()).is_ok());
        }
        for extreme in [0, 1, usize::MAX] {
            progress.at(format!("submissions of {extreme}"));
            let Some(database) = open(&setup, "submissions") else { continue };
            let table = Table::<Item>::create(&*database).unwrap();
            run(&mut database.worker().unwrap(), |t| t.insert(&table, &Item { id: 1, value: 0 })).unwrap();
            for (threads, batch_time_us) in [(extreme, 0), (1, 0), (2, 10)] {
                let options = Submissions { threads, batch_size: extreme, batch_time_us, most_waiting: extreme };
                let service = Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker());
                let service = service.unwrap();
                let submissions: Vec<_> = (0..5).map(|_| service.submit(Add(table))).collect();
                submissions.into_iter().for_each(|submission| assert!(submission.wait().unwrap()));
            }
        }
    });
}
