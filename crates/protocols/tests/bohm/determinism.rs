//! The same procedures in the same order give the same database, the client that executes them.

use polychron_base::sizes::scaled;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::*;
use polychron_protocols::bohm::Unknown;
use polychron_protocols::serial::{self, Serial};

const ACCOUNTS: u64 = 12;
const BRANCHES: u64 = 3;

fn draw_step(random: &mut Random) -> Do {
    let id = random.below(ACCOUNTS);
    let branch = random.below(BRANCHES) as u32;
    let other = Account { card: random.below(2 * ACCOUNTS), owner: random.below(3) as u32, balance: 7, ..account(id) };
    match random.below(22) {
        0..=5 => Do::Add(id, random.below(5) as i64),
        6 => Do::Read(id),
        7 => Do::SetOwner(id, random.below(3) as u32),
        8..=9 => Do::Insert(other),
        10 => Do::Put(other),
        11..=12 => Do::Delete(id),
        13 => Do::Sum,
        14 => Do::SumOfOwner(random.below(3) as u32),
        15..=16 => Do::Append(branch),
        17 => Do::Cut(branch),
        18 => Do::Text(branch, random.below(200) as usize),
        19 => Do::Follow(id),
        20 => Do::Undone(Box::new(draw_step(random))),
        _ => Do::Add(0, 1),
    }
}

fn draw(seed: u64, tables: Tables, count: usize) -> Vec<Script> {
    let mut random = Random::from_seed(seed);
    let mut script = || {
        let mut steps: Vec<_> = (0..=random.below(4)).map(|_| draw_step(&mut random)).collect();
        match random.below(12) {
            0 => steps.push(Do::Fail),
            1 if random.chance(0.3) => steps.push(Do::Panic),
            _ => {}
        }
        let declares = if random.chance(0.1) { Declares::Some } else { Declares::All };
        Script { tables, declares, steps }
    };
    (0..count).map(|_| script()).collect()
}

fn one_by_one(seed: u64, count: usize) -> (Answers, Vec<Vec<u8>>) {
    let database = Serial::open(serial::Options::default(), common()).unwrap();
    let tables = Tables::create(&*database);
    let mut worker = database.worker().unwrap();
    let mut answers = Answers::new();
    for mut script in draw(seed, tables, count) {
        answers.push(worker.execute(&mut script).map_err(|error| error.to_string()));
    }
    (answers, worker.execute(&mut Contents(tables)).unwrap())
}

/// Executes the procedures while other clients, who only read, take their turns as well.
fn together(options: Options, helpers: usize, seed: u64, count: usize) -> (Answers, Vec<Vec<u8>>) {
    let mut stage = Stage::new(options);
    let scripts = draw(seed, stage.tables, count);
    let done = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        for _ in 0..helpers {
            let (mut worker, tables, done) = (stage.database.worker().unwrap(), stage.tables, &done);
            scope.spawn(move || {
                let mut script = Script { tables, declares: Declares::All, steps: vec![Do::Read(0)] };
                while !done.load(Ordering::Relaxed) {
                    worker.execute(&mut script).unwrap();
                }
            });
        }
        let answers = stage.run_batch(&scripts);
        done.store(true, Ordering::Relaxed);
        answers
    });
    (answers, stage.contents())
}

/// One of 27 ways to divide the work among threads, with one of twelve settings of the knobs.
fn way(division: usize, knobs: usize) -> (Options, usize) {
    let threads = division / 3 % 3;
    let options = Options {
        partitions: division % 3 + 1,
        concurrency_control_threads: threads,
        execution_threads: threads,
        annotate_reads: knobs.is_multiple_of(2),
        preprocess: (knobs / 2).is_multiple_of(2),
        batch_size: [1, 7, 1024][knobs / 4 % 3],
        unknown: Unknown::InPlace,
        stale_snapshots: false,
    };
    (options, division / 9 % 3)
}

fn compare(ways: impl IntoIterator<Item = (usize, usize)>, seed: u64) {
    let count = scaled(150, 30);
    let (answers, contents) = one_by_one(seed, count);
    assert!(answers.iter().any(Result::is_ok) && answers.iter().any(Result::is_err) && !contents.is_empty());
    for (division, knobs) in ways {
        let (options, helpers) = way(division, knobs);
        let what = format!("{options:?} with {helpers} helpers, seed {seed}");
        let (given, left) = together(options, helpers, seed, count);
        for (position, (given, wanted)) in given.iter().zip(&answers).enumerate() {
            assert_eq!(given, wanted, "procedure {position} of {what}");
        }
        assert_eq!(left, contents, "{what}");
    }
}

#[test]
fn divisions_of_the_work_change_nothing() {
    compare((0..27).rev().take(scaled(27, 1)).map(|division| (division, 5 * division)), 1);
}

#[test]
fn knobs_change_nothing() {
    compare((0..12).rev().take(scaled(12, 1)).map(|knobs| (knobs % 3, knobs)), 4);
}

#[test]
fn chance_changes_nothing() {
    compare([26, 26, 20, 20, 8, 8].into_iter().take(scaled(6, 1)).map(|division| (division, 8)), 3);
}

#[test]
fn many_procedures_of_one_thread() {
    for seed in 10..10 + scaled(20, 1) as u64 {
        compare([(2, 4), (0, 9)], seed);
    }
}

/// Whatever was looked up ahead: rows of one batch that come, go, and come again.
#[test]
fn declared_reads_find_what_their_batch_inserts() {
    let mut stage = Stage::new(Options::default());
    let scripts: Vec<_> = (0..scaled(100, 20) as u64)
        .flat_map(|id| {
            let steps = [Do::Read(id), Do::Insert(account(id)), Do::Read(id), Do::Delete(id), Do::Read(id)];
            steps.map(|step| stage.script(vec![step]))
        })
        .collect();
    for answers in stage.run_batch(&scripts).chunks(5) {
        let answers: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap()[0]).collect();
        assert_eq!(answers, [-1, 1, 0, 1, -1]);
    }
}
