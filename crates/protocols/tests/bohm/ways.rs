//! Chains of placeholders, several clients, and indexes that come while transactions run.

use polychron_base::sizes::scaled;
use polychron_engine::IndexDefinition;
use polychron_protocols::bohm::Unknown;

use super::failures::metric;
use super::*;

/// Procedures of several types that come together make one batch of the log.
#[test]
fn types_that_come_together_are_one_batch() {
    struct Other<const TYPE: usize>(Script);

    impl<const TYPE: usize> Procedure for Other<TYPE> {
        type Output = Vec<i64>;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<i64>, Error> {
            self.0.run(t)
        }

        fn declare<D: Declare>(&self, declaration: &mut D) {
            self.0.declare(declaration);
        }
    }

    let mut stage = Stage::with_accounts(Options { batch_size: 64, ..Options::default() }, 1);
    let before = metric(&stage, "batches");
    let script = || stage.script(vec![Do::Add(0, 1)]);
    let mut first: Vec<_> = (0..5).map(|_| script()).collect();
    let mut second: Vec<_> = (0..5).map(|_| Other::<2>(script())).collect();
    let mut third: Vec<_> = (0..5).map(|_| Other::<3>(script())).collect();
    let mut balances = [0; 15];
    let answers = std::sync::Mutex::new(&mut balances);
    let answer =
        |position: usize, outcome: Result<Vec<i64>, Error>| answers.lock().unwrap()[position] = outcome.unwrap()[0];
    stage.worker.execute_batch_with(&mut first, &|position, outcome| answer(position, outcome), |worker| {
        worker.execute_batch_with(&mut second, &|position, outcome| answer(5 + position, outcome), |worker| {
            worker.execute_batch(&mut third, &mut |position, outcome| answer(10 + position, outcome));
        });
    });
    assert_eq!(balances.to_vec(), (1..=15).collect::<Vec<_>>());
    assert_eq!(metric(&stage, "batches"), before + 1);
    // Also with none of the first type.
    let mut alone = vec![Other::<2>(stage.script(vec![Do::Add(0, 1)]))];
    let mut answered = None;
    stage.worker.execute_batch_with(&mut Vec::<Script>::new(), &|_, _| unreachable!(), |worker| {
        worker.execute_batch(&mut alone, &mut |_, outcome| answered = Some(outcome.unwrap()));
    });
    assert_eq!(answered, Some(vec![16]));
}

/// Two clients change one row, once by a key that they name, and once by one that only the run knows.
#[test]
fn one_row_for_two_clients() {
    for step in [Do::Add(1, 1), Do::Follow(0)] {
        let mut stage = Stage::with_accounts(Options { batch_size: 500, ..Options::default() }, 2);
        stage.run(vec![Do::Add(0, 1)]).unwrap();
        let count = scaled(500, 40);
        let scripts = vec![stage.script(vec![step.clone()]); count];
        let mut worker = stage.database.worker().unwrap();
        let mut all: Vec<_> = std::thread::scope(|scope| {
            let other = scope.spawn(|| execute(&mut worker, &scripts));
            let mine = stage.run_batch(&scripts);
            mine.into_iter().chain(other.join().unwrap()).map(|answer| answer.unwrap()[0]).collect()
        });
        // Who names all keys keeps its place.
        let is_named = matches!(step, Do::Add(..));
        assert!(!is_named || (all[..count].is_sorted() && all[count..].is_sorted()));
        all.sort_unstable();
        assert_eq!(all, (1..=2 * count as i64).collect::<Vec<_>>(), "{step:?}");
    }
}

#[test]
fn indexes_come_while_batches_run() {
    for (threads, unknown) in [(0, Unknown::Reconnaissance), (0, Unknown::InPlace), (1, Unknown::InPlace)] {
        let options = Options {
            unknown,
            batch_size: 8,
            concurrency_control_threads: threads,
            execution_threads: threads,
            ..Options::default()
        };
        let mut stage = Stage::with_accounts(options, 30);
        let rounds = scaled(40, 4);
        std::thread::scope(|scope| {
            let database = &stage.database;
            for number in 0..2_u64 {
                let (mut worker, tables) = (database.worker().unwrap(), stage.tables);
                scope.spawn(move || {
                    let mut random = Random::stream(5, number);
                    for _ in 0..rounds {
                        let mut draw = |_| {
                            let id = random.below(30);
                            let step = match random.below(5) {
                                0 => Do::Delete(id),
                                1 => Do::Insert(Account { balance: random.below(9) as i64, ..account(id) }),
                                2 => Do::SetOwner(id, 1),
                                _ => Do::Put(Account { balance: random.below(9) as i64, ..account(id) }),
                            };
                            let declares = if random.below(3) == 0 { Declares::Some } else { Declares::All };
                            Script { tables, declares, steps: vec![step] }
                        };
                        let scripts: Vec<_> = (0..12).map(&mut draw).collect();
                        assert!(execute(&mut worker, &scripts).iter().all(Result::is_ok));
                    }
                });
            }
            for number in 0..3 {
                let definition = IndexDefinition::new(format!("late {number}"), [3, 1]);
                database.create_index(stage.tables.accounts.id(), definition).unwrap();
            }
        });
        let rows = stage.run(vec![Do::Sum]).map(|_| stage.contents()).unwrap();
        let mut by_primary: Vec<_> = rows[..rows.len() / 3].to_vec();
        by_primary.sort();
        for index in 3..6 {
            let mut rows = stage.worker.execute(&mut ByIndex(stage.tables, index)).unwrap();
            rows.sort();
            assert_eq!(rows, by_primary, "index {index}");
        }
    }
}

/// Answers with the bytes of all accounts that an index leads to.
struct ByIndex(Tables, u16);

impl Procedure for ByIndex {
    type Output = Vec<Vec<u8>>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Vec<Vec<u8>>, Error> {
        let mut rows = Vec::new();
        t.scan_rows(&Scan { index: IndexId(self.1), ..Scan::all(self.0.accounts.id()) }, &mut |row| {
            rows.push(row.as_bytes().to_vec());
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}
