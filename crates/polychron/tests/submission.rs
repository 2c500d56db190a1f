//! Submitting through the public API; what every protocol must show of it is in the conformance tests.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};

use polychron::protocols::bohm::Bohm;
use polychron::protocols::hyper::Hyper;
use polychron::protocols::maflingo::Maflingo;
use polychron::schema::{Key, KeyScratch};
use polychron::{
    Access, Database, Declare, DefaultProtocol, Error, Interactive, Operations, Options, Procedure, Protocol,
    ProtocolInfo, ProtocolList, ProtocolVisitor, Protocols, Row, Submission, Table, Transaction, Worker,
};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "account")]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

struct Open(Table<Account>, u64);

impl Procedure for Open {
    type Output = u64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        transaction.insert(&self.0, &Account { id: self.1, balance: 0 })?;
        Ok(self.1)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0.id(), self.1.encode(&mut KeyScratch::new()), Access::Insert);
    }
}

/// Reads an account, waits for a word where it has somebody to hear it from, and writes what it read and one more.
struct Add {
    accounts: Table<Account>,
    id: u64,
    hears: Option<(Sender<()>, Receiver<()>)>,
}

impl Procedure for Add {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<i64, Error> {
        let balance = transaction.get(&self.accounts, self.id)?.map_or(0, |row| row.balance());
        if let Some((started, hears)) = &self.hears {
            started.send(()).expect("the test waits for it");
            hears.recv().expect("the test answers");
        }
        transaction.update(&self.accounts, self.id, |row| row.set_balance(balance + 1))?;
        Ok(balance + 1)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.accounts.id(), self.id.encode(&mut KeyScratch::new()), Access::Update);
    }
}

fn open<P: Protocol>(change: impl FnOnce(&mut Options<P::Options>)) -> (Database<P>, Table<Account>) {
    let mut options = Options { protocol: P::Options::default(), common: Default::default() };
    options.common.memory.huge_pages = false;
    options.common.submissions.threads = 2;
    change(&mut options);
    let database = Database::builder().with::<P>().options(options).in_memory().unwrap();
    let accounts = database.create_table::<Account>().unwrap();
    (database, accounts)
}

struct Woken(Mutex<Sender<()>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().send(()).expect("the executor waits for it");
    }
}

/// Runs a task to its end on this thread.
fn block_on<O>(task: impl Future<Output = O>) -> O {
    let mut task = std::pin::pin!(task);
    let (sender, woken) = channel();
    let waker = Arc::new(Woken(Mutex::new(sender))).into();
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => woken.recv().unwrap(),
        }
    }
}

#[test]
fn every_protocol_takes_submissions() {
    struct Submit;

    impl ProtocolVisitor for Submit {
        type Output = ();

        fn visit<P: Protocol>(self, info: &ProtocolInfo) {
            let (database, accounts) = open::<P>(|options| options.protocol = info.options_of::<P>().unwrap());
            let opened: Vec<_> = (0..20).map(|id| database.submit(Open(accounts, id))).collect();
            assert!((0..20).zip(opened).all(|(id, submission)| submission.wait().unwrap() == id));
            let sum: Result<i64, Error> = block_on(async {
                let added: Vec<_> = (0..20).map(|id| database.submit(Add { accounts, id, hears: None })).collect();
                let mut sum = 0;
                for submission in added {
                    sum += submission.await?;
                }
                Ok(sum)
            });
            assert_eq!(sum.unwrap(), 20, "{}", info.name);
            let again = database.try_submit(Open(accounts, 3)).ok().expect("there is room").wait();
            assert!(matches!(again, Err(Error::Duplicate { .. })), "{}: {again:?}", info.name);
        }
    }

    for protocol in Protocols::all() {
        Protocols::visit(protocol.name, Submit).unwrap();
    }
}

/// A transaction that reads, waits until another one has written, and writes: its only attempt fails.
fn conflicts_are_answered<P: Protocol<Worker: Interactive>>() {
    let (database, accounts) = open::<P>(|options| options.common.retry.attempts = 1);
    database.execute(&mut Open(accounts, 1)).unwrap();
    let ((started, has_started), (answers, hears)) = (channel(), channel());
    let slow = database.submit(Add { accounts, id: 1, hears: Some((started, hears)) });
    has_started.recv().unwrap();
    let add = |row: &mut AccountMut<'_>| row.set_balance(row.balance() + 10);
    while database.transact(|transaction| transaction.update(&accounts, 1, add)).is_err() {}
    answers.send(()).unwrap();
    let answer = slow.wait();
    assert!(
        matches!(answer, Err(Error::Conflicts(ref conflicts)) if conflicts.attempts == 1),
        "{}: {answer:?}",
        P::NAME
    );
    assert_eq!(database.submit(Add { accounts, id: 1, hears: None }).wait().unwrap(), 11);
}

#[test]
fn conflicts_that_exhaust_their_attempts_are_answered() {
    conflicts_are_answered::<DefaultProtocol>();
    conflicts_are_answered::<Maflingo>();
    conflicts_are_answered::<Hyper>();
}

#[test]
fn threads_take_the_slots_that_there_are() {
    let (database, accounts) = open::<DefaultProtocol>(|options| {
        options.common.memory.max_workers = 3;
        options.common.submissions.threads = 8;
    });
    let mut sessions: Vec<_> = std::iter::from_fn(|| database.session().ok()).collect();
    let refused = database.submit(Open(accounts, 1)).wait();
    assert!(matches!(refused, Err(Error::TooManyWorkers { .. })), "{refused:?}");
    let refused = block_on(database.try_submit(Open(accounts, 1)).ok().expect("it is not about room"));
    assert!(matches!(refused, Err(Error::TooManyWorkers { .. })), "{refused:?}");
    // It is tried again, and one thread is enough.
    sessions.pop();
    assert_eq!(database.submit(Open(accounts, 1)).wait().unwrap(), 1);
    assert!(database.session().is_err(), "the slot is in use");
    assert_eq!(sessions[0].execute(&mut Add { accounts, id: 1, hears: None }).unwrap(), 1);
}

/// Also where the protocol has threads of its own, which must not go before the submissions do.
#[test]
fn a_dropped_database_answers_what_is_under_way() {
    fn drops<P: Protocol>(change: impl FnOnce(&mut Options<P::Options>)) {
        let (database, accounts) = open::<P>(change);
        database.execute(&mut Open(accounts, 1)).unwrap();
        let ((started, has_started), (answers, hears)) = (channel(), channel());
        let first = database.submit(Add { accounts, id: 1, hears: Some((started, hears)) });
        has_started.recv().unwrap();
        let added: Vec<_> = (0..50).map(|_| database.submit(Add { accounts, id: 1, hears: None })).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(first));
            let dropping = scope.spawn(move || drop(database));
            answers.send(()).unwrap();
            dropping.join().unwrap();
            let mut balances: Vec<_> = added.into_iter().map(|submission| submission.wait().unwrap()).collect();
            balances.push(waiting.join().unwrap().unwrap());
            balances.sort_unstable();
            assert_eq!(balances, (1..=51).collect::<Vec<_>>(), "{}", P::NAME);
        });
    }

    // One thread: with two the others would conflict with the first, and have it begin again.
    drops::<DefaultProtocol>(|options| options.common.submissions.threads = 1);
    drops::<Bohm>(|_| ());
    drops::<Bohm>(|options| {
        (options.protocol.concurrency_control_threads, options.protocol.execution_threads) = (1, 1);
    });
}

/// Submits another procedure while it runs, and waits for its answer in some way.
struct Ask<P: Protocol> {
    database: Arc<Database<P>>,
    accounts: Table<Account>,
    how: fn(&Database<P>, Table<Account>) -> Result<i64, Error>,
}

impl<P: Protocol> Procedure for Ask<P> {
    type Output = Result<i64, Error>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Result<i64, Error>, Error> {
        transaction.update(&self.accounts, 1, |row| row.set_balance(row.balance() + 100))?;
        Ok((self.how)(&self.database, self.accounts))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.accounts.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Update);
    }
}

/// Whoever executes the procedure: a client, a thread of the service, or one of the protocol. The other procedure wants the same row, so
/// it would wait for a transaction that waits for it.
#[test]
fn a_procedure_does_not_wait_for_another() {
    fn asks<P: Protocol>(
        change: impl FnOnce(&mut Options<P::Options>),
        how: fn(&Database<P>, Table<Account>) -> Result<i64, Error>,
    ) {
        let (database, accounts) = open::<P>(change);
        database.execute(&mut Open(accounts, 1)).unwrap();
        let database = Arc::new(database);
        let ask = || Ask { database: Arc::clone(&database), accounts, how };
        for answer in [database.execute(&mut ask()).unwrap(), database.submit(ask()).wait().unwrap()] {
            assert!(matches!(answer, Err(Error::Unsupported { .. })), "{}: {answer:?}", P::NAME);
        }
        let alone = database.submit(Add { accounts, id: 1, hears: None }).wait().unwrap();
        assert!(alone > 200, "what was submitted is executed all the same");
    }

    fn waits<P: Protocol>(database: &Database<P>, accounts: Table<Account>) -> Result<i64, Error> {
        database.submit(Add { accounts, id: 1, hears: None }).wait()
    }

    fn awaits<P: Protocol>(database: &Database<P>, accounts: Table<Account>) -> Result<i64, Error> {
        block_on(database.submit(Add { accounts, id: 1, hears: None }))
    }

    let own_threads = |options: &mut Options<<Bohm as Protocol>::Options>| {
        (options.protocol.concurrency_control_threads, options.protocol.execution_threads) = (1, 1);
    };
    asks::<Bohm>(|_| (), waits);
    asks::<Bohm>(|_| (), awaits);
    asks::<Bohm>(own_threads, waits);
    asks::<Bohm>(own_threads, awaits);
    asks::<Maflingo>(|_| (), waits);
    asks::<DefaultProtocol>(|_| (), awaits);
}

type Task<'d> = std::pin::Pin<Box<dyn Future<Output = Submission<i64>> + 'd>>;

/// The service has one thread, which executes a procedure that waits for a word, and room for one more.
#[test]
fn tasks_wait_for_room() {
    let (database, accounts) = open::<DefaultProtocol>(|options| {
        let submissions = &mut options.common.submissions;
        (submissions.threads, submissions.batch_size, submissions.most_waiting) = (1, 1, 1);
    });
    database.execute(&mut Open(accounts, 1)).unwrap();
    let ((started, has_started), (answers, hears)) = (channel(), channel());
    let first = database.submit(Add { accounts, id: 1, hears: Some((started, hears)) });
    has_started.recv().unwrap();
    let second = database.submit(Add { accounts, id: 1, hears: None });
    assert!(database.try_submit(Add { accounts, id: 1, hears: None }).is_err(), "there is no room");
    let mut tasks: Vec<Task<'_>> = Vec::new();
    tasks.extend((0..4).map(|_| Box::pin(database.submit_async(Add { accounts, id: 1, hears: None })) as Task<'_>));
    let mut woken = Vec::new();
    let mut poll = |task: &mut Task<'_>| {
        let (sender, receiver) = channel();
        woken.push(receiver);
        task.as_mut().poll(&mut Context::from_waker(&Arc::new(Woken(Mutex::new(sender))).into())).is_ready()
    };
    // The first is looked at twice, and keeps its place.
    assert!(!poll(&mut tasks[0]) && tasks.iter_mut().all(|task| !poll(task)));
    // One that is dropped before it was woken, and the first of the others when it was.
    drop(tasks.remove(1));
    answers.send(()).unwrap();
    assert_eq!((first.wait().unwrap(), second.wait().unwrap()), (1, 2));
    woken[1].recv().expect("there is room for the first task");
    assert!(woken[0].try_recv().is_err(), "the waker that was given last is the one that is woken");
    drop(tasks.remove(0));
    woken[3].recv().expect("the room that the first did not take is the next one's");
    let mut submitted = tasks.into_iter().map(block_on);
    let third = submitted.next().expect("there are two").wait().unwrap();
    let fourth = submitted.next().expect("there is another one").wait().unwrap();
    assert_eq!((third, fourth), (3, 4));
}

/// Counts the accounts.
struct Count(Table<Account>);

impl Procedure for Count {
    type Output = u64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        transaction.scan(&self.0, ..).count()
    }
}

/// What a thread, or a task, has the answer of is in the snapshots that it begins afterwards.
#[test]
fn snapshots_contain_what_was_answered() {
    struct Contains;

    impl ProtocolVisitor for Contains {
        type Output = ();

        fn visit<P: Protocol>(self, info: &ProtocolInfo) {
            let (database, accounts) = open::<P>(|options| options.protocol = info.options_of::<P>().unwrap());
            let mut worker = database.protocol().worker().unwrap();
            for id in 0..300 {
                if id % 2 == 0 {
                    database.submit(Open(accounts, id)).wait().unwrap();
                } else {
                    block_on(database.execute_async(Open(accounts, id))).unwrap();
                }
                assert_eq!(worker.snapshot(&mut Count(accounts)).unwrap(), id + 1, "{}", info.name);
            }
        }
    }

    for protocol in Protocols::all() {
        Protocols::visit(protocol.name, Contains).unwrap();
    }
}

/// What was submitted waits for a transaction that the thread has leaked which gives the database up: that thread does not wait for ever.
#[cfg(feature = "any")]
#[test]
fn a_leaked_transaction_keeps_no_database_from_ending() {
    for protocol in Protocols::all().iter().map(|info| info.name) {
        let (ends, ended) = channel();
        std::thread::spawn(move || {
            let database = Database::builder().small().protocol(protocol).in_memory().unwrap();
            let accounts = database.create_table::<Account>().unwrap();
            if let Ok(mut leaked) = database.begin() {
                leaked.insert(&accounts, &Account { id: 1, balance: 0 }).unwrap();
                std::mem::forget(leaked);
                drop(database.submit(Open(accounts, 1)));
            }
            ends.send(database.close()).unwrap();
        });
        let closed = ended.recv_timeout(std::time::Duration::from_secs(120));
        let closed = closed.unwrap_or_else(|_| panic!("{protocol}: it hangs"));
        assert!(matches!(closed, Ok(()) | Err(Error::WaitsForItself(_))), "{protocol}: {closed:?}");
        assert!(protocol != "serial" || closed.is_err());
    }
}

/// The same where the transaction ends later: what was submitted is executed then.
#[test]
fn what_waits_for_the_thread_that_closes_is_executed_later() {
    let database = Database::builder().small().with::<polychron::protocols::Serial>().in_memory().unwrap();
    let accounts = database.create_table::<Account>().unwrap();
    let open = database.begin().unwrap();
    let submission = database.submit(Open(accounts, 1));
    assert!(matches!(database.close(), Err(Error::WaitsForItself(_))));
    open.commit().unwrap();
    assert_eq!(submission.wait().unwrap(), 1);
}
