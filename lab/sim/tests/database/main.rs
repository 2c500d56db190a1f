//! Databases under failures: after any crash all transactions and changes of tables are there that were acknowledged, whole, and perhaps the one that was not
//! answered.
//!
//! One client changes rows and tables, opens and closes, as a seed decides. What is found is compared with a database in memory in which the same was
//! done. Some protocols write, and all read; each writes if there are more runs. `POLYCHRON_DATABASE_RUNS` says how many runs are tried,
//! `POLYCHRON_CRASH_SEEDS` how many outcomes of each power failure, and `POLYCHRON_FIRST_SEED` from which seed on.

mod client;
mod full;

use polychron::Error;
use polychron_base::sizes::scaled;
use polychron_engine::mutations::leave_out;
use polychron_log::disk::{Access, BLOCK, Buffer, Files};
use polychron_log::steps::OpeningStep;
use polychron_sim::{Damage, Fault, SimulatedDisk};

use client::{Run, definition, definitions_have_their_rows, dump_of, look, names, open, run, summary, write};

const STEPS: u64 = 24;

fn runs(default: usize) -> std::ops::Range<u64> {
    polychron_sim::seeds("POLYCHRON_DATABASE_RUNS", scaled(default, 1))
}

fn outcomes() -> std::ops::Range<u64> {
    polychron_sim::seeds("POLYCHRON_CRASH_SEEDS", 1)
}

fn name_of(number: u64) -> &'static str {
    let names = names();
    names[number as usize % names.len()]
}

/// What is wrong with what a reader finds on a disk. An error is wrong, too.
fn complaint(disk: &SimulatedDisk, reader: &str, seed: u64, run: &Run) -> Option<String> {
    let found = match look(disk, reader) {
        Ok(found) => found,
        Err(error) => return Some(error.to_string()),
    };
    let possible: Vec<_> = run.possible().into_iter().map(|steps| dump_of(seed, &steps)).collect();
    if possible.contains(&found) {
        return None;
    }
    let possible: Vec<_> = possible.iter().map(summary).collect();
    Some(format!("{} is none of {possible:?} after {:?}", summary(&found), run.steps))
}

/// Runs with a fault at each operation, and answers the first complaint.
fn first_complaint(seed: u64, fault: Fault, stride: usize) -> Option<String> {
    let writer = name_of(seed);
    let undisturbed = SimulatedDisk::new(seed);
    let whole = run(&undisturbed, writer, seed, STEPS);
    assert!(whole.steps.iter().all(|(_, acknowledged)| *acknowledged) && whole.steps.len() > 8, "{writer}: {whole:?}");
    let count = undisturbed.steps().len();
    for number in (seed as usize % stride..count).step_by(stride) {
        let disk = SimulatedDisk::new(seed);
        disk.plan(number, fault);
        let disturbed = run(&disk, writer, seed, STEPS);
        let left: Vec<_> = match fault {
            Fault::PowerFailure => disk.outcomes(outcomes()).collect(),
            _ => vec![disk.after_restart()],
        };
        for (outcome, left) in left.iter().enumerate() {
            let reader = name_of(seed + (number + outcome) as u64);
            if let Some(complaint) = complaint(left, reader, seed, &disturbed) {
                return Some(format!("{writer}, {reader}, seed {seed}, {fault:?} at {number}: {complaint}"));
            }
        }
    }
    None
}

#[test]
fn what_is_acknowledged_survives_a_power_failure() {
    for seed in runs(5) {
        assert_eq!(first_complaint(seed, Fault::PowerFailure, 17), None);
    }
}

#[test]
fn what_is_acknowledged_survives_a_failed_operation() {
    for seed in runs(5) {
        let fault = if seed.is_multiple_of(2) { Fault::Fail } else { Fault::FailForEver };
        assert_eq!(first_complaint(seed, fault, 13), None);
    }
}

/// All files, with what they have.
fn contents(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    fn visit(files: &Files<SimulatedDisk>, directory: &str, all: &mut Vec<(String, Vec<u8>)>) {
        for entry in files.list(directory).unwrap() {
            let path = if directory.is_empty() { entry.name } else { format!("{directory}/{}", entry.name) };
            if entry.is_directory {
                visit(files, &path, all);
                continue;
            }
            let file = files.open(&path, Access::Read).unwrap();
            let mut bytes = Buffer::zeroed(file.bytes().unwrap() as usize);
            file.read_at(0, &mut bytes).unwrap();
            all.push((path, bytes.to_vec()));
        }
    }
    let mut all = Vec::new();
    visit(&Files::new(disk.clone()), "", &mut all);
    all
}

/// Nothing is changed where a file of a checkpoint is damaged, wherever it is: neither is the opening counted, nor the log gone on with.
#[test]
fn what_is_damaged_is_left_as_it_is() {
    let disk = SimulatedDisk::new(1);
    let database = open(&disk, "serial").unwrap();
    let tables = ["first", "second"].map(|name| database.create_table_with(definition(name, None, 1)).unwrap());
    tables.iter().for_each(|table| write(&database, *table).unwrap());
    database.checkpoint().unwrap();
    let third = database.create_table_with(definition("third", None, 0)).unwrap();
    write(&database, third).unwrap();
    database.close().unwrap();
    let mut damaged = 0;
    for (path, bytes) in contents(&disk).into_iter().filter(|(path, _)| path.starts_with("checkpoint")) {
        for block in 0..bytes.len() / BLOCK {
            let left = disk.after_restart();
            left.damage(&path, block as u64, Damage::FlipBit { bit: 8 * 9 }).unwrap();
            let before = contents(&left);
            assert!(matches!(open(&left, "serial"), Err(Error::Corrupt(_))), "{path}, block {block}");
            assert_eq!(contents(&left), before, "{path}, block {block}");
            damaged += 1;
        }
    }
    assert!(damaged >= 2);
}

/// Whether a row is lost that was written into a table behind a drop that failed, of which it is not known whether it is durable.
fn loses_what_is_behind_a_drop_in_doubt() -> bool {
    (0..8).any(|later| {
        let disk = SimulatedDisk::new(1);
        let database = open(&disk, "serial").unwrap();
        let table = database.create_table_with(definition("first", None, 0)).unwrap();
        disk.plan(disk.steps().len() + later, Fault::Fail);
        let is_dropped = database.drop_table(table).is_ok();
        let is_written = write(&database, table).is_ok();
        drop(database);
        let found = open(&disk.after_restart(), "serial").unwrap().find_table("first");
        !is_dropped && is_written && found.is_none()
    })
}

#[test]
fn the_log_stops_when_it_is_not_known_which_tables_there_are() {
    assert!(!loses_what_is_behind_a_drop_in_doubt());
    let _careless = leave_out(OpeningStep::StopInDoubt);
    assert!(loses_what_is_behind_a_drop_in_doubt());
}

/// An index is possible, and a table has its rows, by what others have committed before; so that is durable first.
#[test]
fn definitions_come_behind_the_rows_that_they_depend_on() {
    for name in names() {
        assert_eq!(definitions_have_their_rows(name).map_err(|error| error.to_string()), Ok(true), "{name}");
    }
    let _careless = leave_out(OpeningStep::FlushFirst);
    for name in names() {
        assert!(!matches!(definitions_have_their_rows(name), Ok(true)), "{name}");
    }
}
