//! Databases under failures: after any crash all transactions and changes of tables are there that were acknowledged, whole, and perhaps the one that was not
//! answered.
//!
//! One client changes rows and tables, opens and closes, as a seed decides. What is found is compared with a database in memory in which the same was
//! done. Some protocols write, and all read; each writes if there are more runs. `POLYCHRON_DATABASE_RUNS` says how many runs are tried,
//! `POLYCHRON_CRASH_SEEDS` how many outcomes of each power failure, `POLYCHRON_STRIDE` that one in so many operations fails, and `POLYCHRON_FIRST_SEED` and
//! `POLYCHRON_FIRST_CRASH_SEED` from which seeds on.

mod client;
mod full;
mod pairs;
mod stopped;

use polychron::Error;
use polychron_base::sizes::scaled;
use polychron_log::disk::{Access, BLOCK, Buffer, Files, Operation};
use polychron_log::steps::OpeningStep;
use polychron_sim::{At, Damage, Fault, SimulatedDisk, Survival, Trials, each_step_is_needed};

use client::{Run, definition, definitions_have_their_rows, dump_of, look, names, open, run, summary, write};

const STEPS: u64 = 24;

fn runs(default: usize) -> std::ops::Range<u64> {
    polychron_sim::seeds("POLYCHRON_DATABASE_RUNS", scaled(default, 1))
}

fn outcomes() -> std::ops::Range<u64> {
    polychron_sim::crash_seeds(1)
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

/// Runs with a fault at one in so many operations, and looks at what is left; in the end the power fails once more while one of that is opened.
fn fail_everywhere(seed: u64, fault: Fault, stride: usize, trials: &Trials) {
    let writer = name_of(seed);
    let undisturbed = SimulatedDisk::new(seed);
    let whole = run(&undisturbed, writer, seed, STEPS);
    assert!(whole.steps.iter().all(|(_, acknowledged)| *acknowledged) && whole.steps.len() > 8, "{writer}: {whole:?}");
    let (count, stride) = (undisturbed.steps().len(), polychron_sim::stride(stride));
    for number in (seed as usize % stride..count).step_by(stride) {
        let disk = SimulatedDisk::new(seed);
        disk.plan(number, fault);
        let disturbed = run(&disk, writer, seed, STEPS);
        let at = At { seed, operations: &[number] };
        let reader = name_of(seed + number as u64);
        let complain = |left: &SimulatedDisk| {
            complaint(left, reader, seed, &disturbed).map(|it| format!("{writer}, {reader}, {fault:?}: {it}"))
        };
        if fault == Fault::PowerFailure {
            trials.crash(&disk, at, outcomes(), complain);
        } else {
            trials.check(at, fault, complain(&disk.after_restart()));
        }
        let left = trials.after(&disk, at, Survival::ALL[number % 6], outcomes().start);
        let second = left.steps().len() + (7 * number + seed as usize) % 60;
        left.plan(second, Fault::PowerFailure);
        // Whoever opens it may come to an end before, or not.
        let _ = open(&left, reader).map(polychron::Database::close);
        trials.crash(&left, At { seed, operations: &[number, second] }, outcomes(), complain);
    }
}

fn trials() -> Trials {
    Trials::new("POLYCHRON_DATABASE_RUNS")
}

#[test]
fn what_is_acknowledged_survives_a_power_failure() {
    let trials = trials();
    runs(5).for_each(|seed| fail_everywhere(seed, Fault::PowerFailure, 34, &trials));
}

/// Few operations, and of each power failure as many outcomes as tell nearly all that can be left apart.
#[test]
fn whatever_a_power_failure_leaves_has_what_was_acknowledged() {
    let (trials, outcomes) = (trials(), polychron_sim::crash_seeds(16));
    for seed in runs(2) {
        let writer = name_of(3 * seed);
        let undisturbed = SimulatedDisk::new(seed);
        run(&undisturbed, writer, seed, STEPS);
        let count = undisturbed.steps().len();
        // One in so many, and in later runs others.
        let stride = polychron_sim::stride(count / 5);
        for number in (31 * seed as usize % stride..count).step_by(stride) {
            let disk = SimulatedDisk::new(seed);
            disk.plan(number, Fault::PowerFailure);
            let disturbed = run(&disk, writer, seed, STEPS);
            let reader = name_of(seed + number as u64);
            trials.crash(&disk, At { seed, operations: &[number] }, outcomes.clone(), |left| {
                complaint(left, reader, seed, &disturbed).map(|it| format!("{writer}, {reader}: {it}"))
            });
        }
    }
    assert!(outcomes.count() < 16 || trials.recoveries() >= 64);
}

#[test]
fn what_is_acknowledged_survives_a_failed_operation() {
    let trials = trials();
    for seed in runs(6) {
        let fault = [Fault::Fail, Fault::FailForEver, Fault::Full, Fault::SyncFull][seed as usize % 4];
        fail_everywhere(seed, fault, 39, &trials);
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

/// Whether anything is done in a directory with somebody's files.
fn takes_a_foreign_directory() -> bool {
    let disk = SimulatedDisk::new(1);
    Files::new(disk.clone()).create("notes", 0).unwrap();
    let before = disk.steps().len();
    let is_taken = open(&disk, "serial").is_ok();
    is_taken || disk.steps()[before..].iter().any(|step| step.operation != Operation::List)
}

/// Whether an index, or a table with other rows, is there without what others have committed before.
fn loses_what_definitions_depend_on() -> bool {
    let is_lost = |name: &&str| !matches!(definitions_have_their_rows(name), Ok(true));
    let losing = names().iter().filter(|name| is_lost(name)).count();
    assert!(losing == 0 || losing == names().len(), "{losing} protocols lose it");
    losing > 0
}

fn killer(step: OpeningStep) -> fn() -> bool {
    match step {
        OpeningStep::RefuseForeign => takes_a_foreign_directory,
        OpeningStep::FlushFirst => loses_what_definitions_depend_on,
        OpeningStep::StopInDoubt => loses_what_is_behind_a_drop_in_doubt,
    }
}

each_step_is_needed! {
    OpeningStep, killer: RefuseForeign FlushFirst StopInDoubt
}
