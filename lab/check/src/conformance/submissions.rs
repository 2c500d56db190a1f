//! Procedures that are submitted: every one is executed once and answered once, whatever its client does meanwhile.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use polychron_base::clock::{Clock, ManualClock, SystemClock};
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::options::Submissions;
use polychron_engine::submission::{Service, Submission};
use polychron_engine::{Access, Declare, Error, Operations, Procedure, Protocol, Table, Transaction, Worker};
use polychron_schema::{Key, KeyScratch};

use crate::Setup;
use crate::rows::{Item, value};
use crate::setup::create;
use crate::watch::watched;

pub(super) const KEYS: u64 = 8;

/// Adds to an item, and answers its value.
#[derive(Clone)]
pub(super) struct Add {
    table: Table<Item>,
    id: u64,
    by: i64,
}

impl Procedure for Add {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Error> {
        t.update(&self.table, self.id, |row| row.set_value(row.value() + self.by))?;
        Ok(value(t, &self.table, self.id)?.unwrap_or(-1))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.table.id(), self.id.encode(&mut KeyScratch::new()), Access::Update);
    }
}

/// Sums all items up.
struct Sum(Table<Item>);

impl Procedure for Sum {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<i64, Error> {
        (0..KEYS).map(|id| Ok(value(t, &self.0, id)?.unwrap_or_default())).sum()
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// In which way a procedure fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    RollsBack,
    Fails,
    Panics,
    PanicsWhereItNames,
}

/// Adds, and fails.
struct Failing {
    add: Add,
    way: Way,
}

impl Procedure for Failing {
    type Output = String;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<String, Error> {
        self.add.run(t)?;
        match self.way {
            Way::RollsBack => Err(Error::RolledBack),
            Way::Fails => Err(Error::other(std::fmt::Error)),
            // As a panic, without the hook that would print it.
            Way::Panics | Way::PanicsWhereItNames => resume_unwind(Box::new("on purpose")),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        if self.way == Way::PanicsWhereItNames {
            resume_unwind(Box::new("on purpose"));
        }
        self.add.declare(declaration);
    }
}

impl Way {
    const ALL: [Self; 4] = [Self::RollsBack, Self::Fails, Self::Panics, Self::PanicsWhereItNames];

    fn assert_is(self, answer: &Result<String, Error>) {
        let is_so = match self {
            Self::RollsBack => matches!(answer, Err(Error::RolledBack)),
            Self::Fails => matches!(answer, Err(Error::Other(_))),
            Self::Panics | Self::PanicsWhereItNames => {
                matches!(answer, Err(Error::Panicked(text)) if text == "on purpose")
            }
        };
        assert!(is_so, "{self:?}: {answer:?}");
    }
}

/// Procedures that stand at it stay under way until it is opened.
#[derive(Clone)]
pub(super) struct Gate {
    arrived: Sender<()>,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub(super) fn new() -> (Self, Receiver<()>) {
        let (arrived, arrivals) = channel();
        (Self { arrived, open: Arc::default() }, arrivals)
    }

    pub(super) fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

impl Procedure for Gate {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
        // No client may still be listening.
        let _ = self.arrived.send(());
        let (open, opened) = &*self.open;
        let mut is_open = open.lock().unwrap();
        while !*is_open {
            is_open = opened.wait(is_open).unwrap();
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// A database with items of value zero, and its service.
pub(super) struct Stage<P: Protocol> {
    database: Arc<P>,
    table: Table<Item>,
    pub(super) service: Service<P>,
}

impl<P: Protocol> Stage<P> {
    pub(super) fn with(setup: &Setup<P>, options: Submissions, clock: Arc<dyn Clock>) -> Self {
        let database = setup.open();
        let table = create::<P, Item>(&database);
        let mut worker = database.worker().unwrap();
        for id in 0..KEYS {
            worker.execute(&mut Insert(table, id)).unwrap();
        }
        let service = Service::start(&database, &options, clock, || database.worker()).unwrap();
        Self { database, table, service }
    }

    /// One thread, so that a gate holds everything up.
    fn of_one_thread(setup: &Setup<P>) -> Self {
        Self::with(setup, Submissions { threads: 1, ..Submissions::default() }, Arc::new(SystemClock::new()))
    }

    pub(super) fn add(&self, id: u64, by: i64) -> Add {
        Add { table: self.table, id, by }
    }

    /// What an item is worth, seen from outside of the service.
    pub(super) fn value(&self, id: u64) -> i64 {
        self.database.worker().unwrap().execute(&mut self.add(id, 0)).unwrap()
    }
}

struct Insert(Table<Item>, u64);

impl Procedure for Insert {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.insert(&self.0, &Item { id: self.1, value: 0 })
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0.id(), self.1.encode(&mut KeyScratch::new()), Access::Insert);
    }
}

/// Counts how often it was woken, and tells so.
struct Woken(Mutex<Sender<()>>);

impl Woken {
    fn pair() -> (Waker, Receiver<()>) {
        let (sender, receiver) = channel();
        (Arc::new(Self(Mutex::new(sender))).into(), receiver)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // No client may still be listening.
        let _ = self.0.lock().unwrap().send(());
    }
}

/// The smallest executor: runs one task on this thread.
fn block_on<O>(task: impl Future<Output = O>) -> O {
    let mut task = pin!(task);
    let (waker, woken) = Woken::pair();
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => woken.recv().unwrap(),
        }
    }
}

/// Clients submit procedures of several types, which meet in batches, through a queue that is too short for them.
pub fn of_many_types<P: Protocol>(setup: &Setup<P>) {
    for (threads, batch_size, most_waiting) in [(1, 1, 1), (2, 5, 7), (3, 64, 1000)] {
        let options = Submissions { threads, batch_size, most_waiting, ..Submissions::default() };
        let stage = Stage::with(setup, options, Arc::new(SystemClock::new()));
        let added: i64 = std::thread::scope(|scope| {
            let stage = &stage;
            let clients = (0..3).map(|client| scope.spawn(move || be_a_client(stage, client)));
            clients.collect::<Vec<_>>().into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert_eq!(stage.service.submit(Sum(stage.table)).wait().unwrap(), added);
        let executed = 3 * 10 * (ROUND as u64 + 1) + 1;
        assert!((executed.div_ceil(batch_size as u64)..=executed).contains(&stage.service.batches()));
    }
}

/// Submissions that a client has under way.
const ROUND: usize = scaled(60, 5);

/// Answers the sum of what was added.
fn be_a_client<P: Protocol>(stage: &Stage<P>, client: u64) -> i64 {
    let mut random = Random::stream(31, client);
    let mut added = 0;
    for _ in 0..10 {
        let (mut adds, mut sums, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..ROUND {
            let add = stage.add(random.below(KEYS), random.range_inclusive(1, 5) as i64);
            match number % 6 {
                0 => sums.push(stage.service.submit(Sum(stage.table))),
                1 => {
                    let way = Way::ALL[random.below(4) as usize];
                    failures.push((way, stage.service.submit(Failing { add, way })));
                }
                _ => {
                    added += add.by;
                    adds.push(stage.service.submit(add));
                }
            }
        }
        // Half of the clients wait, and half of them await.
        let answer = |submission: Submission<i64>| {
            if client.is_multiple_of(2) { submission.wait() } else { block_on(submission) }
        };
        assert!(adds.into_iter().all(|submission| answer(submission).unwrap() > 0));
        // What this client added and was told of is there.
        let observed = added;
        assert!(sums.into_iter().all(|submission| answer(submission).unwrap() >= 0));
        assert!(answer(stage.service.submit(Sum(stage.table))).unwrap() >= observed);
        failures.into_iter().for_each(|(way, submission)| way.assert_is(&submission.wait()));
    }
    added
}

/// A task that is polled under one waker and then under another one: the later one is told. An answer is taken once.
pub fn polled_by_tasks<P: Protocol>(setup: &Setup<P>) {
    let stage = Stage::of_one_thread(setup);
    let (gate, arrivals) = Gate::new();
    let held = stage.service.submit(gate.clone());
    arrivals.recv().unwrap();
    let mut behind = stage.service.submit(stage.add(1, 5));
    let ((first, first_woken), (second, second_woken)) = (Woken::pair(), Woken::pair());
    for waker in [&first, &second, &second] {
        assert!(pin!(&mut behind).poll(&mut Context::from_waker(waker)).is_pending());
        assert!(!behind.is_answered() && behind.try_take().is_none());
    }
    gate.open();
    second_woken.recv().unwrap();
    assert!(first_woken.try_recv().is_err() && second_woken.try_recv().is_err());
    let answer = pin!(&mut behind).poll(&mut Context::from_waker(&first));
    assert!(matches!(answer, Poll::Ready(Ok(5))));
    assert!(matches!(behind.try_take(), Some(Err(Error::AnswerTaken))));
    assert!(matches!(pin!(&mut behind).poll(&mut Context::from_waker(&first)), Poll::Ready(Err(Error::AnswerTaken))));
    assert!(matches!(behind.wait(), Err(Error::AnswerTaken)));
    held.wait().unwrap();
    // A task of several submissions.
    let sum = block_on(async {
        let all: Vec<_> = (0..KEYS).map(|id| stage.service.submit(stage.add(id, 2))).collect();
        let mut sum = 0;
        for submission in all {
            sum += submission.await?;
        }
        Ok::<_, Error>(sum)
    });
    assert_eq!(sum.unwrap(), 5 + 2 * KEYS as i64);
}

/// Whose claim is dropped is executed none the less: before it began, while it runs, and after it was answered.
pub fn given_up<P: Protocol>(setup: &Setup<P>) {
    let stage = Stage::of_one_thread(setup);
    let (gate, arrivals) = Gate::new();
    let during = stage.service.submit(gate.clone());
    arrivals.recv().unwrap();
    drop(during);
    drop(stage.service.submit(stage.add(1, 1)));
    let mut polled = stage.service.submit(stage.add(1, 10));
    assert!(pin!(&mut polled).poll(&mut Context::from_waker(&Woken::pair().0)).is_pending());
    drop(polled);
    gate.open();
    let after = stage.service.submit(stage.add(2, 1));
    while !after.is_answered() {
        std::thread::yield_now();
    }
    drop(after);
    stage.service.submit(Sum(stage.table)).wait().unwrap();
    assert_eq!((stage.value(1), stage.value(2)), (11, 1));
}

/// The service ends while submissions are under way, some waited for: all are executed and answered first.
pub fn under_way_at_the_end<P: Protocol>(setup: &Setup<P>) {
    let Stage { database, table, service } = Stage::of_one_thread(setup);
    let (gate, arrivals) = Gate::new();
    let held = service.submit(gate.clone());
    arrivals.recv().unwrap();
    let adds: Vec<_> = (0..20).map(|_| service.submit(Add { table, id: 3, by: 1 })).collect();
    let mut failing = service.submit(Failing { add: Add { table, id: 3, by: 100 }, way: Way::Panics });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || held.wait());
        let ending = scope.spawn(move || drop(service));
        gate.open();
        ending.join().unwrap();
        waiting.join().unwrap().unwrap();
    });
    let answers: Vec<_> = adds.into_iter().map(|submission| submission.wait().unwrap()).collect();
    assert_eq!(answers, (1..=20).collect::<Vec<_>>());
    Way::Panics.assert_is(&failing.try_take().expect("it was answered before the end"));
    assert_eq!(database.worker().unwrap().execute(&mut Add { table, id: 3, by: 0 }).unwrap(), 20);
}

/// A queue that is full gives procedures back, or makes their client wait, and takes them when there is room again.
pub fn held_up<P: Protocol>(setup: &Setup<P>) {
    let options = Submissions { threads: 1, batch_size: 2, most_waiting: 3, ..Submissions::default() };
    let stage = Stage::with(setup, options, Arc::new(SystemClock::new()));
    let (gate, arrivals) = Gate::new();
    let held = stage.service.submit(gate.clone());
    arrivals.recv().unwrap();
    let room: Vec<_> = (0..3).map(|_| stage.service.try_submit(stage.add(0, 1)).ok().expect("there is room")).collect();
    let refused = stage.service.try_submit(stage.add(5, 7)).expect_err("there is no room");
    assert_eq!((refused.id, refused.by), (5, 7));
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..3)
            .map(|id| {
                scope.spawn({
                    let stage = &stage;
                    move || stage.service.submit(stage.add(5 + id % 2, 7)).wait()
                })
            })
            .collect();
        assert!(stage.service.try_submit(stage.add(0, 1)).is_err(), "who waits takes no room");
        gate.open();
        waiting.into_iter().for_each(|client| assert!(client.join().unwrap().unwrap() >= 7));
    });
    room.into_iter().for_each(|submission| assert!(submission.wait().unwrap() > 0));
    held.wait().unwrap();
    assert_eq!((stage.value(0), stage.value(5), stage.value(6)), (3, 14, 7));
}

/// Tells each time it is asked what time it is.
struct Watch {
    clock: ManualClock,
    asked: Mutex<Sender<()>>,
}

impl Clock for Watch {
    fn now_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        // No client may still be listening.
        let _ = self.asked.lock().unwrap().send(());
        now_ns
    }
}

/// A batch that is not full is closed when its time is over, and not before.
pub fn in_batches<P: Protocol>(setup: &Setup<P>) {
    let (sender, asked) = channel();
    let watch = Arc::new(Watch { clock: ManualClock::new(), asked: Mutex::new(sender) });
    let options = Submissions { threads: 1, batch_size: 4, batch_time_us: 100, ..Submissions::default() };
    let clock: Arc<dyn Clock> = watch.clone();
    let stage = Stage::with(setup, options, clock);
    // By size: the thread has looked at what is there, and waits for more.
    let mut few: Vec<_> = (0..3).map(|_| stage.service.submit(stage.add(0, 1))).collect();
    let looked = |times| {
        asked.try_iter().for_each(drop);
        (0..times).for_each(|_| asked.recv().unwrap());
    };
    looked(3);
    assert_eq!((stage.service.batches(), few.iter().any(Submission::is_answered)), (0, false));
    few.push(stage.service.submit(stage.add(0, 1)));
    few.into_iter().for_each(|submission| assert!(submission.wait().unwrap() > 0));
    assert_eq!(stage.service.batches(), 1);
    // By time, from its first procedure on.
    watch.clock.advance_ns(1_000_000);
    let first = stage.service.submit(stage.add(0, 1));
    watch.clock.advance_ns(99_999);
    let second = stage.service.submit(stage.add(0, 1));
    looked(3);
    assert_eq!((stage.service.batches(), first.is_answered() || second.is_answered()), (1, false));
    watch.clock.advance_ns(1);
    assert_eq!((first.wait().unwrap() + second.wait().unwrap(), stage.service.batches()), (5 + 6, 2));
    // The end does not wait for the time.
    let last = stage.service.submit(stage.add(0, 1));
    drop(stage.service);
    assert_eq!(last.wait().unwrap(), 7);
}

/// A batch that is not full waits for nothing once no more procedures are let in, however long it might be filled.
pub fn in_a_queue_that_is_full<P: Protocol>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        for threads in [1, 2] {
            let options = Submissions { threads, batch_size: 8, batch_time_us: u64::MAX, most_waiting: 4 };
            let stage = Stage::with(&setup, options, Arc::new(SystemClock::new()));
            progress.at("clients that wait for room");
            let submitted: Vec<_> = (0..12).map(|_| stage.service.submit(stage.add(0, 1))).collect();
            submitted.into_iter().for_each(|submission| assert!(submission.wait().unwrap() > 0));
            progress.at("tasks that wait for room");
            let submitted: Vec<_> = (0..12).map(|_| block_on(stage.service.submit_async(stage.add(0, 1)))).collect();
            submitted.into_iter().for_each(|submission| assert!(submission.wait().unwrap() > 12));
            progress.at("clients that try again");
            let mut submitted = Vec::new();
            while submitted.len() < 12 {
                submitted.extend(stage.service.try_submit(stage.add(0, 1)).ok());
                std::thread::yield_now();
            }
            submitted.into_iter().for_each(|submission| assert!(submission.wait().unwrap() > 24));
            assert_eq!(stage.service.batches(), 9);
            progress.at("more than may wait");
            let service = Arc::new(stage.service);
            let (of_task, adds) = (Arc::clone(&service), [stage.table; 5]);
            let task = Inline(Mutex::new(Some(Box::new(move || {
                adds.into_iter().for_each(|table| drop(of_task.submit(Add { table, id: 1, by: 1 })));
            }))));
            let waker: Waker = Arc::new(task).into();
            let mut first = service.submit(Add { table: stage.table, id: 0, by: 1 });
            assert!(pin!(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
            // With this it is full, and is executed, and the task puts more behind it than may wait.
            let others: Vec<_> = (0..3).map(|_| service.submit(Add { table: stage.table, id: 0, by: 1 })).collect();
            others.into_iter().for_each(|submission| assert!(submission.wait().unwrap() > 36));
            assert_eq!(first.wait().unwrap(), 37);
            while service.batches() < 11 {
                std::thread::yield_now();
            }
        }
    });
}

/// Runs its task at once, on the thread that wakes it.
struct Inline(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let task = self.0.lock().unwrap().take();
        task.expect("it is woken once")();
    }
}

/// Tasks run on the service's own threads, where they submit more than there is room for, wait for what only this thread can
/// execute, and panic.
pub fn from_their_own_threads<P: Protocol>(setup: &Setup<P>) {
    let options = Submissions { threads: 1, batch_size: 1, most_waiting: 1, ..Submissions::default() };
    let Stage { database, table, service } = Stage::with(setup, options, Arc::new(SystemClock::new()));
    let service = Arc::new(service);
    let (gate, arrivals) = Gate::new();
    let mut held = service.submit(gate.clone());
    arrivals.recv().unwrap();
    let (observed, reports) = channel();
    let own = Arc::clone(&service);
    let task = Box::new(move || {
        let more: Vec<_> = (0..5).map(|_| own.submit(Add { table, id: 4, by: 1 })).collect();
        let waited = own.submit(Add { table, id: 4, by: 1 }).wait();
        observed.send((more, waited)).unwrap();
        // The last reference may go here, too: then the thread goes on alone.
        drop(own);
        resume_unwind(Box::new("a waker panics"));
    });
    let waker = Arc::new(Inline(Mutex::new(Some(task)))).into();
    assert!(pin!(&mut held).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(service);
    gate.open();
    let (more, waited) = reports.recv().unwrap();
    assert!(matches!(waited, Err(Error::Unsupported { .. })), "{waited:?}");
    more.into_iter().for_each(|submission| assert!(submission.wait().unwrap() > 0));
    held.wait().unwrap();
    // The one that could not be waited for is the last one to be executed.
    let mut worker = database.worker().unwrap();
    while worker.execute(&mut Add { table, id: 4, by: 0 }).unwrap() < 6 {
        std::thread::yield_now();
    }
}

/// Answers that panic when they are dropped hurt no other client.
pub fn with_wild_answers<P: Protocol>(setup: &Setup<P>) {
    struct Wild;

    impl Drop for Wild {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                resume_unwind(Box::new("an answer panics"));
            }
        }
    }

    struct Answer(Gate);

    impl Procedure for Answer {
        type Output = Wild;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Wild, Error> {
            self.0.run(t)?;
            Ok(Wild)
        }

        fn declare<D: Declare>(&self, _: &mut D) {}
    }

    let stage = Stage::of_one_thread(setup);
    let (gate, arrivals) = Gate::new();
    drop(stage.service.submit(Answer(gate.clone())));
    arrivals.recv().unwrap();
    let wild: Vec<_> = (0..3).map(|_| stage.service.submit(Answer(gate.clone()))).collect();
    let tame = stage.service.submit(stage.add(0, 1));
    drop(wild);
    gate.open();
    assert_eq!(tame.wait().unwrap(), 1);
    assert_eq!(stage.service.submit(stage.add(0, 1)).wait().unwrap(), 2);
}

/// Memory that is refused is an answer, and what was answered otherwise is there.
pub fn beyond_memory<P: Protocol>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let mut setup = setup.clone();
    // A client that validates all that was read at every operation takes a time that is quadratic in what is there.
    setup.common.memory.limit_bytes = Some(scaled(4 << 20, 1 << 20));
    setup.common.memory.region_bytes = scaled(1 << 20, 256 << 10);
    setup.common.memory.chunk_bytes = 64 << 10;
    let stage = Stage::with(&setup, Submissions { threads: 1, ..Submissions::default() }, Arc::new(SystemClock::new()));
    let mut inserted = 0;
    let mut ids = KEYS..;
    loop {
        let round: Vec<_> = ids.by_ref().take(500).map(|id| stage.service.submit(Insert(stage.table, id))).collect();
        let (mut fine, mut refused) = (0, 0);
        for submission in round {
            match submission.wait() {
                Ok(()) => fine += 1,
                Err(Error::OutOfMemory(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        inserted += fine;
        if refused > 0 {
            break;
        }
        assert!(inserted < 1 << 20, "the limit does not bind");
    }
    struct Count(Table<Item>);

    impl Procedure for Count {
        type Output = u64;
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<u64, Error> {
            t.scan(&self.0, ..).fold(0, |count, _| count + 1)
        }

        fn declare<D: Declare>(&self, _: &mut D) {}
    }
    let counted = stage.service.submit(Count(stage.table)).wait();
    assert!(matches!(counted, Ok(count) if count == inserted + KEYS), "{counted:?}, {inserted}");
}
