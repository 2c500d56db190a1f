//! When answers leave: none before all that it depends on is durable, whichever way it comes; and while one waits, others go on.
//!
//! The log is in memory, and nothing in it becomes durable but on command.

use crate::setups;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use polychron::schema::{IndexDefinition, Key, KeyScratch};
use polychron::{
    Access, Database, Declare, Durability, Error, Future, Futures, Limits, Operations, Options, Procedure, Protocol,
    Resolved, Row, Submission, Table, Transaction, Worker,
};
use polychron_base::key::EncodedKey as _;
use polychron_check::Setup;
use polychron_check::journal::Recorder;
use polychron_engine::any::AnyProtocol;
use polychron_engine::mutations::{inherited, leave_out};
use polychron_engine::redo::{self, Answers, Journal};
use polychron_engine::submission::Service;
use polychron_engine::{Common, Projection, RowRef};
use polychron_protocols::hyper::Hyper;
use polychron_protocols::lazy::Lazy;
use polychron_protocols::maflingo::Maflingo;
use polychron_protocols::serial::Serial;

use crate::setups::by_epochs;

/// So long nothing takes that is not wrong.
const LONG: Duration = Duration::from_secs(120);

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "item")]
struct Item {
    #[key]
    id: u64,
    value: i64,
}

/// Writes an item, and answers what was there.
struct Put {
    items: Table<Item>,
    id: u64,
    value: i64,
}

impl Procedure for Put {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Error> {
        let before = transaction.get(&self.items, self.id)?.map(|row| row.value());
        transaction.upsert(&self.items, &Item { id: self.id, value: self.value })?;
        Ok(before)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.items.id(), self.id.encode(&mut KeyScratch::new()), Access::Write);
    }
}

/// Inserts an item, or reads it, and may fail.
struct Look {
    items: Table<Item>,
    id: u64,
    inserts: bool,
    fails: bool,
}

impl Procedure for Look {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Error> {
        if self.inserts {
            transaction.insert(&self.items, &Item { id: self.id, value: 0 })?;
        }
        let value = transaction.get(&self.items, self.id)?.map(|row| row.value());
        if self.fails { Err(Error::RolledBack) } else { Ok(value) }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let access = if self.inserts { Access::Insert } else { Access::Read };
        declaration.key(self.items.id(), self.id.encode(&mut KeyScratch::new()), access);
    }
}

/// Says that it has begun, and waits for a word before it writes.
struct Lasting(Put, Sender<()>, Receiver<()>);

impl Procedure for Lasting {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Error> {
        let before = self.0.run(transaction)?;
        self.1.send(()).expect("the test listens");
        self.2.recv_timeout(LONG).expect("the test answers");
        Ok(before)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.0.declare(declaration);
    }
}

/// Wakes a thread.
struct Waking(Thread);

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: std::future::Future>(future: F) -> F::Output {
    let waker = Arc::new(Waking(std::thread::current())).into();
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

/// A database whose log holds back what it is given.
struct Stage {
    log: Arc<Recorder>,
    database: Database<AnyProtocol>,
    items: Table<Item>,
}

impl Stage {
    fn open(setup: &Setup<AnyProtocol>, change: impl FnOnce(&mut Common)) -> Self {
        Self::with_log(setup, Recorder::patient(), change)
    }

    fn with_log(setup: &Setup<AnyProtocol>, log: Recorder, change: impl FnOnce(&mut Common)) -> Self {
        let log = Arc::new(log);
        let journal = Journal::new(Arc::clone(&log) as _);
        let mut common = Common { journal, ..setup.common.clone() };
        common.submissions.threads = 1;
        change(&mut common);
        let options = Options { protocol: setup.options.clone(), common };
        let database = Database::builder().with::<AnyProtocol>().options(options).in_memory().expect("it opens");
        let items = database.create_table::<Item>().expect("there is none yet");
        Self { log, database, items }
    }

    fn put(&self, id: u64) -> Put {
        Put { items: self.items, id, value: id as i64 }
    }

    fn look(&self, id: u64) -> Look {
        Look { items: self.items, id, inserts: false, fails: false }
    }

    /// Writes an item, durably or not, and does not wait for it.
    fn write(&self, id: u64) {
        self.database.with(Durability::OnCheckpoint).execute(&mut self.put(id)).expect("it commits");
    }

    /// How answers of workers wait that are nobody's.
    fn answers(&self) -> Answers {
        Answers::new(self.database.protocol().storage().journal().clone())
    }

    /// Waits until something is so.
    fn comes(&self, is_so: impl Fn(&Recorder) -> bool) {
        for _ in 0..LONG.as_millis() {
            if is_so(&self.log) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it does not come");
    }

    /// Whether an answer waits until what was sealed by then is durable. It comes in the end.
    fn waits<O: Send>(&self, what: &str, act: impl FnOnce(&Self) -> O + Send) -> (bool, O) {
        self.log.hold();
        let (gives, answer) = channel();
        let left_out = inherited();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || {
                let _careless = left_out.leave_out();
                gives.send(act(self)).expect("somebody listens");
            });
            let mut early = None;
            for _ in 0..LONG.as_millis() {
                early = answer.try_recv().ok();
                if early.is_some() || self.log.waiting() > 0 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if let Some(early) = early {
                return (false, early);
            }
            assert!(matches!(answer.try_recv(), Err(TryRecvError::Empty)), "{what}");
            self.log.let_go();
            (true, answer.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what} is answered")))
        });
        self.log.let_go();
        outcome
    }
}

type Way = (&'static str, fn(&Stage, u64) -> Result<Option<i64>, Error>);

/// Every way of writing that answers, whole procedures first.
const WHOLE: [Way; 6] = [
    ("execute", |stage, id| stage.database.execute(&mut stage.put(id))),
    ("a session", |stage, id| stage.database.session()?.execute(&mut stage.put(id))),
    ("a batch", |stage, id| {
        let mut answers = Vec::new();
        let mut puts = [stage.put(id), stage.put(id)];
        stage.database.session()?.execute_batch(&mut puts, |_, answer| answers.push(answer));
        assert_eq!(answers.len(), 2);
        answers.swap_remove(0)
    }),
    ("a submission", |stage, id| stage.database.submit(stage.put(id)).wait()),
    ("an asynchronous call", |stage, id| block_on(stage.database.execute_async(stage.put(id)))),
    ("a submission that is looked at", |stage, id| {
        let mut submission = stage.database.submit(stage.put(id));
        loop {
            match submission.try_take() {
                Some(answer) => return answer,
                None => std::thread::yield_now(),
            }
        }
    }),
];

/// The others.
const STEPPED: [Way; 11] = [
    ("transact", |stage, id| stage.database.transact(|t| put(t, stage, id))),
    ("transact within limits", |stage, id| {
        stage.database.transact_within(&Limits::timeout(LONG), |t| put(t, stage, id))
    }),
    ("a request", |stage, id| stage.database.request("put").transact(|t| put(t, stage, id))),
    ("a session that transacts", |stage, id| stage.database.session()?.transact(|t| put(t, stage, id))),
    ("a resolved answer", |stage, id| stage.database.transact_resolved(|t| put_future(t, stage, id)).map(Some)),
    ("a resolved answer of a session", |stage, id| {
        stage.database.session()?.transact_resolved(|t| put_future(t, stage, id)).map(Some)
    }),
    ("an open transaction", |stage, id| {
        let mut transaction = stage.database.begin()?;
        let before = put(&mut transaction, stage, id)?;
        transaction.commit().map(|()| before)
    }),
    ("an open transaction of a session", |stage, id| {
        let mut session = stage.database.session()?;
        let mut transaction = session.begin()?;
        let before = put(&mut transaction, stage, id)?;
        transaction.commit().map(|()| before)
    }),
    ("a closure that is submitted", |stage, id| {
        let items = stage.items;
        let put = move |t: &mut polychron::TransactionOf<'_, AnyProtocol>| {
            t.upsert(&items, &Item { id, value: 1 }).map(|()| None)
        };
        stage.database.submit_closure(put).wait()
    }),
    ("an asynchronous closure", |stage, id| {
        let items = stage.items;
        block_on(stage.database.transact_async(move |t| t.upsert(&items, &Item { id, value: 1 }).map(|()| None)))
    }),
    ("a row that is claimed", |stage, _| {
        stage.write(0);
        stage.database.claim_first(&stage.items, |_, item| Ok::<_, Error>(item.value))
    }),
];

fn put<T: Transaction>(transaction: &mut T, stage: &Stage, id: u64) -> Result<Option<i64>, Error> {
    stage.put(id).run(transaction)
}

fn put_future<T: Transaction>(transaction: &mut T, stage: &Stage, id: u64) -> Result<Future<i64>, Error> {
    put(transaction, stage, id)?;
    transaction.future(&stage.items, id, Item::VALUE)
}

fn ways(stepped: bool) -> impl Iterator<Item = Way> {
    WHOLE.into_iter().chain(STEPPED.into_iter().filter(move |_| stepped))
}

/// No answer of a writer leaves before it is durable, and each does when it is.
fn writers_wait(setup: &Setup<AnyProtocol>, stepped: bool) {
    let stage = Stage::open(setup, |_| ());
    for (id, (what, way)) in (1..).zip(ways(stepped)) {
        let (waited, answer) = stage.waits(what, |stage| way(stage, id));
        assert!(waited, "{what} of {} does not wait", setup.name);
        answer.unwrap_or_else(|error| panic!("{what} of {}: {error}", setup.name));
    }
    assert_eq!(stage.log.flaws(), Vec::<String>::new());
}

/// Nor does one of a reader, whatever becomes of its transaction; and where all is durable none waits.
fn readers_wait(setup: &Setup<AnyProtocol>, stepped: bool) {
    let stage = Stage::open(setup, |_| ());
    let is = |value: i64| move |answer: &Result<Option<i64>, Error>| matches!(answer, Ok(Some(is)) if *is == value);
    type Reader = (&'static str, fn(&Stage, u64) -> Result<Option<i64>, Error>);
    let whole: [Reader; 5] = [
        ("a reader", |stage, id| stage.database.execute(&mut stage.look(id))),
        ("a failure", |stage, id| stage.database.execute(&mut Look { fails: true, ..stage.look(id) })),
        ("a duplicate", |stage, id| stage.database.execute(&mut Look { inserts: true, ..stage.look(id) })),
        ("a row alone", |stage, id| {
            let mut worker = stage.database.protocol().worker()?;
            let mut scratch = KeyScratch::new();
            let view = |row: Option<RowRef<'_>>| row.map(|row| row.as_words()[1] as i64);
            let value = worker.read_one(stage.items.id(), id.encode(&mut scratch), &Projection::ALL, view);
            stage.answers().give(worker.take_ticket(), value)
        }),
        ("a submitted reader", |stage, id| stage.database.submit(stage.look(id)).wait()),
    ];
    let by_steps: [Reader; 3] = [
        ("transact", |stage, id| stage.database.transact(|t| Ok(t.get(&stage.items, id)?.map(|row| row.value())))),
        ("an open transaction", |stage, id| {
            let mut transaction = stage.database.begin()?;
            let value = transaction.get(&stage.items, id)?.map(|row| row.value());
            transaction.commit().map(|()| value)
        }),
        ("a rollback", |stage, id| {
            let mut transaction = stage.database.begin()?;
            let value = transaction.get(&stage.items, id)?.map(|row| row.value());
            if transaction.rollback() { Ok(value) } else { Err(Error::Conflict) }
        }),
    ];
    for (id, (what, read)) in (1..).zip(whole.into_iter().chain(by_steps.into_iter().filter(|_| stepped))) {
        stage.log.hold();
        stage.write(id);
        let (waited, answer) = stage.waits(what, |stage| read(stage, id));
        assert!(waited, "{what} of {} does not wait", setup.name);
        let fails = matches!(&answer, Err(Error::RolledBack | Error::Duplicate { .. }));
        assert!(fails || is(id as i64)(&answer), "{what} of {}: {answer:?}", setup.name);
        // All is durable by now.
        let (waited, _) = stage.waits(what, |stage| read(stage, id));
        assert!(!waited, "{what} of {} waits for what is durable", setup.name);
    }
    snapshots_wait(&stage, setup);
}

/// A snapshot shows nothing new before that is durable.
fn snapshots_wait(stage: &Stage, setup: &Setup<AnyProtocol>) {
    let mut shown = 0;
    for value in 1..8 {
        stage.log.hold();
        stage.database.with(Durability::OnCheckpoint).execute(&mut Put { value, ..stage.put(50) }).expect("it commits");
        (setup.tick)(stage.database.protocol());
        let (waited, seen) = stage.waits("a snapshot", |stage| {
            let mut worker = stage.database.protocol().worker()?;
            let seen = worker.snapshot(&mut stage.look(50));
            stage.answers().give(worker.take_ticket(), seen)
        });
        let seen = seen.expect("it reads").unwrap_or(0);
        assert!(waited || seen < value, "{}", setup.name);
        shown += u32::from(seen == value);
    }
    let _ = shown;
}

/// With one slot for all, others go on while 64 clients wait; and no epoch is held.
fn others_go_on(setup: &Setup<AnyProtocol>) {
    let stage = Stage::open(setup, |common| common.memory.max_workers = 1);
    stage.log.hold();
    std::thread::scope(|scope| {
        for id in 1..=64 {
            let stage = &stage;
            scope.spawn(move || stage.database.execute(&mut stage.put(id)).expect("it is durable in the end"));
        }
        stage.comes(|log| log.waiting() == 64);
        let others = stage.database.with(Durability::OnCheckpoint);
        for id in 1..=64 {
            assert_eq!(others.execute(&mut stage.look(id)).unwrap(), Some(id as i64));
        }
        let epochs = stage.database.protocol().memory().epochs();
        let now = epochs.current();
        stage.comes(|_| {
            epochs.advance();
            epochs.readonly() >= now
        });
        drop(others.session().expect("nobody has the slot"));
        assert_eq!(stage.log.waiting(), 64);
        stage.log.let_go();
    });
}

/// A procedure that lasts delays nobody else's answer.
fn lasting_delays_nobody(setup: &Setup<AnyProtocol>) {
    let stage = Stage::open(setup, |common| common.submissions.threads = 2);
    // Nobody's insertion makes the one that lasts begin again.
    (1..=3).for_each(|id| stage.write(id));
    stage.log.flush();
    stage.log.hold();
    let (begins, begun) = channel();
    let (ends, ended) = channel();
    let first = stage.database.submit(stage.put(1));
    let lasting = stage.database.submit(Lasting(stage.put(2), begins, ended));
    let last = stage.database.submit(stage.put(3));
    begun.recv_timeout(LONG).expect("it begins");
    // Those before it and behind it have sealed, and are held back until that is durable.
    stage.comes(|log| log.seals() >= 3 + if setup.name == "serial" { 1 } else { 2 });
    assert!(!first.is_answered() && !last.is_answered());
    stage.log.let_go();
    first.wait().unwrap();
    if setup.name == "serial" {
        ends.send(()).unwrap();
    } else {
        last.wait().unwrap();
        assert!(!lasting.is_answered());
        ends.send(()).unwrap();
    }
    lasting.wait().unwrap();
}

/// A log that stops answers all that wait, and nothing begins; a reader of what is durable is answered.
fn a_stop_answers_all(setup: &Setup<AnyProtocol>) {
    let stage = Stage::open(setup, |_| ());
    stage.database.execute(&mut stage.put(99)).unwrap();
    stage.log.hold();
    let submitted: Vec<_> = (1..=8).map(|id| stage.database.submit(stage.put(id))).collect();
    std::thread::scope(|scope| {
        let stage = &stage;
        let waiting: Vec<_> =
            (9..=16).map(|id| scope.spawn(move || stage.database.execute(&mut stage.put(id)))).collect();
        stage.comes(|log| log.seals() == 17 && log.waiting() >= 8);
        stage.log.stop();
        for waiting in waiting {
            let answer = waiting.join().unwrap();
            assert!(matches!(answer, Err(Error::LogStopped(_))), "{}: {answer:?}", setup.name);
        }
    });
    for submission in submitted {
        let answer = submission.wait();
        assert!(matches!(answer, Err(Error::LogStopped(_))), "{}: {answer:?}", setup.name);
    }
    let sealed = stage.log.seals();
    for (what, way) in WHOLE {
        // A row that is there may be written as it is, which stages nothing.
        let answer = way(&stage, 1000);
        assert!(matches!(answer, Err(Error::LogStopped(_))), "{what} of {}: {answer:?}", setup.name);
    }
    assert_eq!(stage.log.seals(), sealed);
}

/// While there is no room nothing begins that writes, and that it goes on by itself.
fn a_full_disk_refuses(setup: &Setup<AnyProtocol>, stepped: bool) {
    let stage = Stage::open(setup, |_| ());
    for (id, (what, way)) in (1..).zip(ways(stepped).filter(|(what, _)| *what != "a row that is claimed")) {
        let asked = stage.log.admitted();
        stage.log.fill(true);
        let answer = way(&stage, id);
        assert!(matches!(answer, Err(Error::DiskFull(_))), "{what} of {}: {answer:?}", setup.name);
        assert!(stage.log.admitted() > asked);
        let mut worker = stage.database.protocol().worker().unwrap();
        assert_eq!(worker.snapshot(&mut stage.look(id)).unwrap(), None, "{what}");
        stage.log.fill(false);
        way(&stage, id).unwrap_or_else(|error| panic!("{what} of {}: {error}", setup.name));
    }
    assert_eq!(stage.log.flaws(), Vec::<String>::new());
}

/// An answer that leaves at once is taken early, and its durability awaited later: asked for before the answer is there, or behind it.
fn durability_comes_later(setup: &Setup<AnyProtocol>) {
    let stage = Stage::open(setup, |_| ());
    let early = stage.database.with(Durability::OnCheckpoint);
    stage.log.hold();
    let submission = early.submit(stage.put(1));
    let mut before = submission.durable();
    while !submission.is_answered() {
        std::thread::yield_now();
    }
    let mut behind = submission.durable();
    assert_eq!(submission.wait().unwrap(), None, "{}", setup.name);
    assert!(before.try_take().is_none() && behind.try_take().is_none(), "{}", setup.name);
    stage.log.let_go();
    before.wait().unwrap();
    block_on(behind).unwrap();
    // Of an answer that waits by itself there is nothing more to wait for.
    let held = stage.database.submit(stage.put(2));
    let durable = held.durable();
    held.wait().unwrap();
    durable.wait().unwrap();
    stage.log.hold();
    let lost = early.submit(stage.put(3));
    let durable = lost.durable();
    lost.wait().unwrap();
    stage.log.stop();
    assert!(matches!(durable.wait(), Err(Error::LogStopped(_))), "{}", setup.name);
    assert_eq!(stage.log.flaws(), Vec::<String>::new());
}

/// All sessions that there may be at once.
fn sessions(stage: &Stage) -> usize {
    let sessions: Vec<_> = std::iter::repeat_with(|| stage.database.session()).take_while(Result::is_ok).collect();
    sessions.len()
}

/// A session goes on its thread when it has sealed and before that is durable; and one goes whose answer waits for ever. Both leave their workers.
fn sessions_go_before_their_answers(setup: &Setup<AnyProtocol>) {
    let stage = Stage::open(setup, |_| ());
    let most = sessions(&stage);
    stage.log.hold();
    std::thread::scope(|scope| {
        let stage = &stage;
        scope.spawn(move || {
            let mut session = stage.database.with(Durability::OnCheckpoint).session().unwrap();
            session.execute(&mut stage.put(1)).unwrap();
        });
    });
    assert_eq!((stage.log.seals(), sessions(&stage)), (1, most), "{}", setup.name);
    // Whoever has its worker now reads what is not durable.
    let (waited, value) = stage.waits("a reader", |stage| stage.database.session()?.execute(&mut stage.look(1)));
    assert!(waited, "{}", setup.name);
    assert_eq!(value.unwrap(), Some(1), "{}", setup.name);
    stage.log.hold();
    std::thread::scope(|scope| {
        let stage = &stage;
        let going = scope.spawn(move || {
            let mut session = stage.database.session().unwrap();
            let answer = session.execute(&mut stage.put(2));
            assert!(matches!(answer, Err(Error::LogStopped(_))), "{answer:?}");
            panic!("the client ends");
        });
        stage.comes(|log| log.waiting() == 1);
        stage.log.stop();
        assert!(going.join().is_err());
    });
    assert_eq!(sessions(&stage), most, "{}", setup.name);
    assert_eq!(stage.log.flaws(), Vec::<String>::new());
}

/// Panics when it has committed.
struct Panics(Put);

impl Procedure for Panics {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Error> {
        self.0.run(transaction)
    }

    fn committed(&mut self, _: &mut Option<i64>, _: &Resolved) {
        panic!("it has committed");
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.0.declare(declaration);
    }
}

/// A panic behind the commit is answered once that is durable; its row is there and in the log, and its worker is free.
fn panics_behind_commits_wait(setup: &Setup<AnyProtocol>) {
    const WAYS: [Way; 4] = [
        ("execute", |stage, id| stage.database.execute(&mut Panics(stage.put(id)))),
        ("a session", |stage, id| stage.database.session()?.execute(&mut Panics(stage.put(id)))),
        ("a batch", |stage, id| {
            let mut answers = Vec::new();
            stage.database.session()?.execute_batch(&mut [Panics(stage.put(id))], |_, answer| answers.push(answer));
            answers.swap_remove(0)
        }),
        ("a submission", |stage, id| stage.database.submit(Panics(stage.put(id))).wait()),
    ];
    let stage = Stage::open(setup, |_| ());
    // A submission before, so that its threads have their workers.
    stage.database.submit(stage.put(99)).wait().unwrap();
    let most = sessions(&stage);
    for (id, (what, way)) in (1..).zip(WAYS) {
        let seals = stage.log.seals();
        let (waited, answer) = stage.waits(what, |stage| way(stage, id));
        assert!(matches!(answer, Err(Error::Panicked { .. })), "{what} of {}: {answer:?}", setup.name);
        assert!(waited, "{what} of {}", setup.name);
        assert_eq!(stage.log.seals(), seals + 1, "{what} of {}", setup.name);
        assert_eq!(sessions(&stage), most, "{what} of {}", setup.name);
        let mut scratch = KeyScratch::new();
        let key = id.encode(&mut scratch);
        let mut bytes = vec![0; key.len()];
        key.write_to(&mut bytes);
        assert!(stage.log.row(stage.items.id(), &bytes).is_some(), "{what} of {}", setup.name);
        assert_eq!(stage.database.execute(&mut stage.put(id)).unwrap(), Some(id as i64), "{what} of {}", setup.name);
    }
    assert_eq!(stage.log.flaws(), Vec::<String>::new());
}

macro_rules! answers {
    ($($name:ident: $setup:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn writers_wait() {
                super::writers_wait(&$setup.erased(), stringify!($name) != "bohm");
            }

            #[test]
            fn readers_wait() {
                super::readers_wait(&$setup.erased(), stringify!($name) != "bohm");
            }

            #[test]
            fn others_go_on() {
                super::others_go_on(&$setup.erased());
            }

            #[test]
            fn durability_comes_later() {
                super::durability_comes_later(&$setup.erased());
            }

            #[test]
            fn lasting_delays_nobody() {
                super::lasting_delays_nobody(&$setup.erased());
            }

            #[test]
            fn a_stop_answers_all() {
                super::a_stop_answers_all(&$setup.erased());
            }

            #[test]
            fn sessions_go_before_their_answers() {
                super::sessions_go_before_their_answers(&$setup.erased());
            }

            #[test]
            fn panics_behind_commits_wait() {
                super::panics_behind_commits_wait(&$setup.erased());
            }

            #[test]
            fn a_full_disk_refuses() {
                super::a_full_disk_refuses(&$setup.erased(), stringify!($name) != "bohm");
            }
        }
    )*};
}

answers! {
    serial: Setup::<Serial>::new(Default::default(), |_| ()).alone();
    locking: setups::locking();
    hyper: by_epochs::<Hyper>();
    maflingo: setups::maflingo();
    lazy_occ: setups::lazy_occ();
    lazy_2pl: setups::lazy_2pl();
    lazy_hyper: by_epochs::<Lazy<Hyper>>();
    bohm: setups::bohm();
    cicada: setups::still_cicada();
    cicada_multi_version: setups::still_multi_version();
    lazy_cicada: setups::lazy_cicada();
}

/// Each way that does not hold its answer back is found out.
#[test]
fn holding_is_needed() {
    let stage = Stage::open(&setups::maflingo().erased(), |_| ());
    for (id, (what, way)) in (1..).zip(ways(true)) {
        let _careless = leave_out(redo::Step::HoldAnswers);
        // The service asks once, when it starts.
        let stage = if what.contains("submi") || what.contains("asyn") {
            &Stage::open(&setups::maflingo().erased(), |_| ())
        } else {
            &stage
        };
        let (waited, _) = stage.waits(what, |stage| way(stage, id));
        assert!(!waited, "{what}");
    }
}

/// A handle's answers wait as it wants, and not as the database does.
#[test]
fn each_handle_as_it_wants() {
    let setup = setups::maflingo().erased();
    for (usual, other) in
        [(Durability::Immediate, Durability::OnCheckpoint), (Durability::OnCheckpoint, Durability::Immediate)]
    {
        let stage = Stage::with_log(&setup, Recorder::of(usual), |_| ());
        for (id, (what, way)) in (1..).zip(ways(true).filter(|(what, _)| *what != "a row that is claimed")) {
            let (waited, _) = stage.waits(what, |stage| way(stage, id));
            assert_eq!(waited, usual.waits(), "{what}");
            let handle =
                Stage { database: stage.database.with(other), log: Arc::clone(&stage.log), items: stage.items };
            let (waited, _) = handle.waits(what, |stage| way(stage, id));
            assert_eq!(waited, other.waits(), "{what}");
        }
    }
}

/// What a new index has found may not be durable.
#[test]
fn an_index_waits_for_the_rows_it_was_made_of() {
    let stage = Stage::open(&setups::maflingo().erased(), |_| ());
    stage.log.hold();
    stage.write(1);
    let (waited, made) = stage.waits("an index", |stage| {
        stage.database.create_index_with(stage.items.id(), IndexDefinition::new("by_value", [1]))
    });
    assert!(waited);
    made.unwrap();
}

/// A conflict is no answer: the client begins again at once.
#[test]
fn conflicts_do_not_wait() {
    let stage = Stage::open(&setups::maflingo().erased(), |_| ());
    stage.database.execute(&mut stage.put(1)).unwrap();
    let mut transaction = stage.database.begin().unwrap();
    assert!(transaction.get(&stage.items, 1).unwrap().is_some());
    stage.log.hold();
    stage.database.with(Durability::OnCheckpoint).execute(&mut Put { value: 7, ..stage.put(1) }).unwrap();
    transaction.upsert(&stage.items, &Item { id: 2, value: 2 }).unwrap();
    assert!(transaction.commit().unwrap_err().is_conflict());
    stage.log.let_go();
}

/// As many answers wait as may, and no more procedures come in meanwhile.
#[test]
fn what_is_held_is_bounded() {
    const MOST: usize = 4;
    let stage = Stage::open(&setups::maflingo().erased(), |common| common.submissions.most_waiting = MOST);
    stage.log.hold();
    let mut submitted = Vec::new();
    for id in 1.. {
        match stage.database.try_submit(stage.put(id)) {
            Ok(submission) => submitted.push(submission),
            Err(_) => {
                // Either it waits to be executed, or none will come in before something is durable.
                if stage.log.seals() == submitted.len() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        assert!(submitted.len() <= 3 * MOST, "those that are executed have begun when there was room");
    }
    stage.comes(|log| log.waiting() == 1);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| stage.database.submit(stage.put(1)).wait());
        let task = scope.spawn(|| block_on(stage.database.execute_async(stage.put(1))));
        assert!(submitted.iter().all(|submission| !submission.is_answered()));
        stage.log.let_go();
        late.join().unwrap().unwrap();
        task.join().unwrap().unwrap();
    });
    submitted.into_iter().for_each(|submission| _ = submission.wait().unwrap());
}

/// A database that goes answers all that is held back.
#[test]
fn the_end_of_a_database_answers_all() {
    for stops in [false, true] {
        let Stage { log, database, items } = Stage::open(&setups::maflingo().erased(), |_| ());
        log.hold();
        let submitted: Vec<_> = (1..=8).map(|id| database.submit(Put { items, id, value: 1 })).collect();
        let going = std::thread::spawn(move || drop(database));
        while log.seals() < 8 || log.waiting() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!going.is_finished());
        if stops {
            log.stop()
        } else {
            log.let_go()
        }
        going.join().unwrap();
        for submission in submitted {
            assert_eq!(matches!(submission.wait(), Err(Error::LogStopped(_))), stops);
        }
        assert_eq!(Arc::strong_count(&log), 1, "nobody still has the log");
    }
}

/// A waker, and an answer nobody takes, may do what they like.
#[test]
fn panics_of_others_delay_nobody() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("woken");
        }
    }
    struct Drops(Arc<Mutex<u32>>);
    impl Drop for Drops {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    let stage = Stage::open(&setups::maflingo().erased(), |_| ());
    stage.log.hold();
    let waker = Waker::from(Arc::new(Panics));
    let mut context = Context::from_waker(&waker);
    let mut woken = pin!(stage.database.submit(stage.put(1)));
    assert!(woken.as_mut().poll(&mut context).is_pending());
    let (dropped, items) = (Arc::new(Mutex::new(0)), stage.items);
    let kept = Arc::clone(&dropped);
    let unwanted = stage.database.submit_closure(move |t| {
        t.upsert(&items, &Item { id: 2, value: 1 })?;
        Ok::<_, Error>(Drops(Arc::clone(&kept)))
    });
    stage.comes(|log| log.seals() == 2);
    drop(unwanted);
    let last = stage.database.submit(stage.put(3));
    stage.comes(|log| log.seals() == 3);
    stage.log.let_go();
    last.wait().unwrap();
    assert!(block_on(woken).is_ok());
    stage.comes(|_| *dropped.lock().unwrap() == 1);
}

/// The engine's own service does the same, for workers that are nobody's.
#[test]
fn a_service_holds_back() {
    let setup = setups::maflingo();
    let log = Arc::new(Recorder::patient());
    let setup = setup.logged(&log);
    let database = Maflingo::open(setup.options, setup.common).unwrap();
    let items = Table::<Item>::create(&*database).unwrap();
    let clock = Arc::new(polychron_base::clock::SystemClock::new());
    let service = Service::start(&database, &Default::default(), clock, || database.worker()).unwrap();
    log.hold();
    let held: Submission<_, _> = service.submit(Put { items, id: 1, value: 1 });
    while log.waiting() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!held.is_answered());
    let at_once = service.submitter(false).submit(Put { items, id: 1, value: 2 });
    assert_eq!(at_once.wait().unwrap(), Some(1));
    assert!(!held.is_answered());
    log.let_go();
    assert_eq!(held.wait().unwrap(), None);
}
