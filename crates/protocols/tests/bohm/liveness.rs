//! Everybody gets on: beside a procedure that takes long, with more clients than processors, and with threads of its own for each stage.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

/// How long a test waits before it says that something hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs something in a thread, and fails when it does not end.
fn ends<O: Send + 'static>(work: impl FnOnce() -> O + Send + 'static) -> O {
    let (done, answer) = mpsc::channel();
    let worker = thread::spawn(move || done.send(work()));
    match answer.recv_timeout(WATCHDOG) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
    }
}

/// Adds one to an account, once it is told to go on.
struct Long {
    tables: Tables,
    began: mpsc::Sender<()>,
    goes_on: mpsc::Receiver<()>,
}

impl Procedure for Long {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        self.began.send(()).unwrap();
        self.goes_on.recv_timeout(WATCHDOG).expect("the others get on");
        Do::Add(0, 1).run(self.tables, t).map(drop)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        Do::Add(0, 1).name(self.tables, declaration);
    }
}

/// Turns, and threads of its own for each stage.
fn ways() -> [Options; 3] {
    let staged = Options { concurrency_control_threads: 1, execution_threads: 2, ..Options::default() };
    [Options::default(), staged.clone(), Options { concurrency_control_threads: 2, partitions: 3, ..staged }]
}

/// A procedure that is under way, and what lets it end.
fn begin_long(stage: &Stage) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let ((began, has_begun), (end, goes_on)) = (mpsc::channel(), mpsc::channel());
    let (mut worker, tables) = (stage.database.worker().unwrap(), stage.tables);
    let long = thread::spawn(move || worker.execute(&mut Long { tables, began, goes_on }).unwrap());
    has_begun.recv_timeout(WATCHDOG).expect("it begins");
    (end, long)
}

fn clients(stage: &Stage, count: u64, each: impl Fn(&mut BohmWorker, u64) + Clone + Send + 'static) {
    let clients: Vec<_> = (0..count)
        .map(|number| {
            let (mut worker, each) = (stage.database.worker().unwrap(), each.clone());
            thread::spawn(move || each(&mut worker, number))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
#[cfg_attr(miri, ignore = "many threads take an interpreter too long")]
fn a_long_procedure_delays_only_those_that_need_its_rows() {
    const CLIENTS: u64 = 4;
    const EACH: u64 = 12;
    for options in ways() {
        ends(move || {
            let stage = Stage::with_accounts(options, 1 + CLIENTS);
            let tables = stage.tables;
            let (end, long) = begin_long(&stage);
            // Each alone is a batch, so there is more to do than few batches around the long one can hold.
            clients(&stage, CLIENTS, move |worker, number| {
                for round in 1..=EACH {
                    let mut script = Script { tables, declares: Declares::All, steps: vec![Do::Add(1 + number, 1)] };
                    assert_eq!(worker.execute(&mut script).unwrap(), [round as i64]);
                }
            });
            // Who needs its row waits, and sees it.
            let mut worker = stage.database.worker().unwrap();
            let reader = thread::spawn(move || {
                let mut script = Script { tables, declares: Declares::All, steps: vec![Do::Read(0)] };
                worker.execute(&mut script).unwrap()
            });
            thread::sleep(Duration::from_millis(20));
            end.send(()).unwrap();
            long.join().unwrap();
            assert_eq!(reader.join().unwrap(), [1]);
        });
    }
}

/// One thread more or less, few and many, on one row: all get on, and none of them is forgotten.
#[test]
#[cfg_attr(miri, ignore = "many threads take an interpreter too long")]
fn any_number_of_clients() {
    for (options, counts) in ways().into_iter().zip([&[1, 2, 3, 4, 8, 64][..], &[1, 3, 64], &[2, 8]]) {
        for &count in counts {
            let options = options.clone();
            ends(move || {
                const EACH: usize = 20;
                let common =
                    Common { memory: polychron_memory::Options { max_workers: 80, ..common().memory }, ..common() };
                let mut stage = Stage::over(options, common);
                let tables = stage.tables;
                stage.run(vec![Do::Insert(account(0))]).unwrap();
                clients(&stage, count, move |worker, _| {
                    for _ in 0..EACH {
                        let mut script =
                            Script { tables, declares: Declares::All, steps: vec![Do::Read(0), Do::Add(0, 1)] };
                        let answer = worker.execute(&mut script).unwrap();
                        assert_eq!(answer[0] + 1, answer[1]);
                    }
                });
                assert_eq!(stage.run(vec![Do::Read(0)]).unwrap(), [count as i64 * EACH as i64]);
            });
        }
    }
}

/// A snapshot has what its client was told of, though an earlier batch is not at its end yet; one that may be older says how old it is.
#[test]
#[cfg_attr(miri, ignore = "many threads take an interpreter too long")]
fn snapshots_have_what_was_answered() {
    for (options, is_stale) in ways().into_iter().flat_map(|options| [(options.clone(), false), (options, true)]) {
        ends(move || {
            let mut stage = Stage::with_accounts(Options { stale_snapshots: is_stale, ..options }, 3);
            let (end, long) = begin_long(&stage);
            assert_eq!(stage.run(vec![Do::Add(1, 5)]).unwrap(), [5]);
            thread::sleep(Duration::from_millis(2));
            let read = |stage: &mut Stage, steps| {
                let mut script = stage.script(steps);
                stage.worker.snapshot(&mut script).unwrap()
            };
            assert_eq!(read(&mut stage, vec![Do::Read(1), Do::Read(2)]), [if is_stale { 0 } else { 5 }, 0]);
            assert_eq!(stage.database.statistics().staleness_max_us >= 2000, is_stale);
            end.send(()).unwrap();
            // Whatever is under way before it is waited for, and seen.
            let sum = stage.script(vec![Do::Sum, Do::SumOfOwner(1)]);
            if !is_stale {
                assert_eq!(stage.worker.snapshot(&mut sum.clone()).unwrap(), [24, 5]);
            }
            long.join().unwrap();
            // One that may be older has it when the last thread has left the batches.
            while stage.worker.snapshot(&mut sum.clone()).unwrap()[1] != 5 {
                assert!(is_stale, "the client was told");
                thread::yield_now();
            }
        });
    }
}

/// What would wait for a transaction of its own thread is refused at once.
#[test]
fn no_transaction_waits_for_itself() {
    /// Executes a procedure by another worker, in the middle of itself.
    struct Nested(Tables, BohmWorker, Arc<Bohm>);

    impl Procedure for Nested {
        type Output = ();
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
            let Self(tables, worker, database) = self;
            Do::Add(1, 1).run(*tables, t)?;
            let mut script = Script { tables: *tables, declares: Declares::All, steps: vec![Do::Add(1, 1)] };
            let refused = worker.execute(&mut script);
            let Err(Error::WaitsForItself(wait)) = refused else { panic!("{refused:?}") };
            let (table, key) = (wait.table, wait.key.expect("it is known"));
            assert_eq!((table, key.bytes()), (tables.accounts.id(), &1_u64.to_be_bytes()[..]));
            worker.execute_batch(&mut [script.clone()], &mut |_, refused| {
                assert!(matches!(refused, Err(Error::WaitsForItself { .. })), "{refused:?}");
            });
            // Where it names nothing, the answer names no table either.
            let mut unnamed = Script { steps: vec![Do::Sum], ..script.clone() };
            let refused = worker.execute(&mut unnamed);
            assert!(
                matches!(&refused, Err(Error::WaitsForItself(wait)) if (wait.table, wait.key) == (polychron_base::TableId::NONE, None)),
                "{refused:?}"
            );
            let index = polychron_engine::IndexDefinition::new("by_balance", [3]);
            let refused = database.create_index(tables.accounts.id(), index);
            assert!(matches!(refused, Err(Error::WaitsForItself { .. })), "{refused:?}");
            // It sees what is there so far.
            let mut script = Script { steps: vec![Do::Read(1)], ..script };
            assert_eq!(worker.snapshot(&mut script).unwrap(), [0]);
            Ok(())
        }

        fn declare<D: Declare>(&self, declaration: &mut D) {
            Do::Add(1, 1).name(self.0, declaration);
        }
    }

    for options in ways() {
        ends(move || {
            let mut stage = Stage::with_accounts(options, 2);
            let mut nested = Nested(stage.tables, stage.database.worker().unwrap(), Arc::clone(&stage.database));
            stage.worker.execute(&mut nested).unwrap();
            assert_eq!(nested.1.execute(&mut stage.script(vec![Do::Read(1)])).unwrap(), [1]);
        });
    }
}
