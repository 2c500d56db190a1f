//! Two damages at a time: a closed database with a checkpoint of rows, changes and carried records, and a log behind it, is opened with all of its rows, or not at
//! all, and then nothing was changed.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};

use polychron::{AnyProtocol, Database, DefaultProtocol, Error, Procedure, Protocol, Transaction};
use polychron_base::random::Random;
use polychron_log::checkpoint;
use polychron_log::disk::{Access, Buffer, Files, Operation};
use polychron_sim::{At, SimulatedDisk};

use crate::client::{Dump, apply, definition, look, open, open_with, summary};
use crate::{contents, name_of, runs, trials};

const SEED: u64 = 5;

/// Is open until it is told to end.
struct Lasting(Sender<()>, Receiver<()>);

impl Procedure for Lasting {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
        self.0.send(()).expect("the test listens");
        self.1.recv().expect("the test answers");
        Ok(())
    }
}

/// Does steps of a run, those that are taken for nothing but rows and definitions.
fn steps(database: &Database<AnyProtocol>, steps: std::ops::Range<u64>) {
    steps.for_each(|step| _ = apply(database, SEED, step).unwrap());
}

/// The database, and what is in it.
fn closed() -> (SimulatedDisk, Dump) {
    let disk = SimulatedDisk::new(SEED);
    let database = open_with(&disk, <DefaultProtocol as Protocol>::NAME, |settings| {
        let tiny = checkpoint::Options::tiny();
        settings.checkpoints = checkpoint::Options { memory_bytes: 1 << 20, changes: 1000.0, ..tiny };
    });
    let database = database.unwrap();
    steps(&database, 0..20);
    let table = database.create_table_with(definition("fourth", None, 1)).unwrap();
    crate::write(&database, table).unwrap();
    database.checkpoint().unwrap();
    std::thread::scope(|scope| {
        let ((begins, begun), (ends, ended)) = (channel(), channel());
        let other = database.clone();
        scope.spawn(move || other.execute(&mut Lasting(begins, ended)).unwrap());
        begun.recv().unwrap();
        // All that is written now is carried by the checkpoint.
        (0..4).for_each(|_| crate::write(&database, table).unwrap());
        for name in ["first", "second", "third"] {
            let Some(table) = database.find_table(name) else { continue };
            crate::write(&database, table).unwrap();
        }
        database.checkpoint().unwrap();
        ends.send(()).unwrap();
    });
    steps(&database, 40..44);
    (0..3).for_each(|_| crate::write(&database, table).unwrap());
    database.close().unwrap();
    let names: BTreeSet<_> = contents(&disk).into_iter().map(|(path, _)| path).collect();
    assert!(names.iter().any(|path| path.ends_with("carried")), "{names:?}");
    let found = look(&disk.after_restart(), "serial").unwrap();
    (disk, found)
}

/// What is wrong with an opening of what is left.
fn complaint(left: &SimulatedDisk, reader: &str, expected: &Dump) -> Result<Option<String>, Error> {
    let looked = left.after_restart();
    match open(&looked, reader) {
        Ok(database) => drop(database),
        Err(error) => {
            let steps = looked.steps();
            let changed = steps.iter().find(|step| {
                let reads = [Operation::Open, Operation::Measure, Operation::Read, Operation::List, Operation::Lock];
                // A manifest is written again as it is.
                !reads.contains(&step.operation) && !step.path.starts_with("manifest.")
            });
            return match changed {
                None => Err(error),
                Some(step) => Ok(Some(format!("{step:?} before {error}"))),
            };
        }
    }
    let found = look(left, reader)?;
    Ok((found != *expected).then(|| format!("{} in place of {}", summary(&found), summary(expected))))
}

#[test]
fn two_damages_are_noticed_or_do_no_harm() {
    let (disk, expected) = closed();
    let (trials, mut noticed, mut harmless) = (trials(), 0, 0);
    for seed in runs(400) {
        let (left, random) = (disk.after_restart(), &mut Random::from_seed(seed));
        let damages = [(); 2].map(|()| left.damage_any(random));
        match complaint(&left, name_of(seed), &expected) {
            Ok(complaint) => {
                harmless += usize::from(complaint.is_none());
                trials.check(At { seed, operations: &[] }, damages, complaint);
            }
            Err(error) => {
                let is_told = match error {
                    Error::Corrupt(_) | Error::Inaccessible(_) | Error::OtherFormat(_) => true,
                    // Without any manifest the files are refused as somebody else's.
                    Error::NoDatabase(_) => damages.iter().all(|(path, ..)| path.starts_with("manifest.")),
                    _ => false,
                };
                trials.check(At { seed, operations: &[] }, damages, (!is_told).then(|| format!("{error:?}")));
                noticed += 1;
            }
        }
    }
    println!("{noticed} pairs of damages were noticed, {harmless} did no harm");
    assert!(noticed + harmless < 100 || (noticed > 20 && harmless > 5));
}

/// Log files that have changed their places are still those that they say they are, or are not believed.
#[test]
fn log_files_are_not_mixed_up() {
    let (disk, expected) = closed();
    let logs: Vec<_> = contents(&disk).into_iter().filter(|(path, _)| path.starts_with("log/")).collect();
    assert!(logs.len() > 1, "{} files", logs.len());
    for (first, (path, bytes)) in logs.iter().enumerate() {
        for (other, others) in &logs[first + 1..] {
            let left = disk.after_restart();
            let files = Files::new(left.clone());
            for (path, bytes) in [(path, others), (other, bytes)] {
                let mut buffer = Buffer::zeroed(bytes.len());
                buffer.copy_from_slice(bytes);
                files.remove(path).unwrap();
                files.create(path, bytes.len() as u64).unwrap();
                let file = files.open(path, Access::Write).unwrap();
                file.write_at(0, &buffer).unwrap();
                file.sync().unwrap();
            }
            match complaint(&left, "serial", &expected) {
                Ok(complaint) => assert_eq!(complaint, None, "{path} and {other}"),
                Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{path} and {other}: {error:?}"),
            }
        }
    }
}
