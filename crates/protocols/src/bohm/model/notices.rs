//! Answers that helpers give beside the client that waits for them, sleeps, leaves without them, or hands its client batch in again.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex};

use polychron_base::Error;
use polychron_engine::futures::Scope;
use polychron_engine::{Procedure, Transaction};
use polychron_sync::model::{Witness, explore};
use polychron_sync::thread;

use super::super::answers::Job;
use super::super::attempt;
use super::super::execution::LAST;
use super::super::notices::{Delivered, Notices, Opened, SharedJob};
use super::super::parking::{ParkTime, ParkedThreads, ThreadParker};
use super::super::pipeline::{PartitionProgress, Pipeline};
use super::super::planned::{ClientBatches, HandedIn, OwnBatch, Planned, Progress};
use super::super::protocol::Acknowledged;
use super::super::timestamp::Timestamp;
use super::each;

/// A procedure that the model executes in its own way.
struct Silent;

impl Procedure for Silent {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
        unreachable!("the model executes it")
    }
}

type Answer = Option<attempt::Answer<Silent>>;

/// A client's procedures and their answers, and what loom sees of them.
struct Client {
    procedures: Vec<UnsafeCell<Silent>>,
    answers: Vec<UnsafeCell<Answer>>,
    /// Of each procedure: written where it is executed, and read where its answer is given.
    executed: Vec<Witness>,
    /// Of each procedure: written where its answer is given.
    given: Vec<Witness>,
    /// Read where an answer is given, and written when the client leaves with all of this.
    memory: Witness,
    kept: ClientBatches,
    /// The client batch that was handed in before the threads begin.
    handed_in: Mutex<Option<HandedIn>>,
    parker: Arc<ThreadParker>,
}

// SAFETY: loom checks it, by the witnesses beside the answers.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    fn new(count: usize) -> Self {
        let witnesses = || (0..count).map(|_| Witness::default()).collect();
        Self {
            procedures: (0..count).map(|_| UnsafeCell::new(Silent)).collect(),
            answers: (0..count).map(|_| UnsafeCell::new(None)).collect(),
            executed: witnesses(),
            given: witnesses(),
            memory: Witness::default(),
            kept: ClientBatches::default(),
            handed_in: Mutex::default(),
            parker: Arc::default(),
        }
    }

    /// Fills a client batch with one of the client's procedures, or with several, and hands it in.
    fn hand_in(&self, mut client_batch: OwnBatch, procedures: std::ops::Range<usize>, log: &Pipeline) -> HandedIn {
        client_batch.clear();
        procedures.for_each(|procedure| _ = client_batch.add(procedure));
        client_batch.content_mut().job = std::ptr::from_ref(self).expose_provenance();
        // SAFETY: the client waits for it.
        unsafe { log.hand_in(client_batch) }
    }

    /// An answer is given.
    fn give(&self, position: usize) {
        assert_eq!((self.memory.read(), self.executed[position].read()), (0, 1));
        self.given[position].write();
    }

    fn assert_given(&self) {
        self.given.iter().for_each(|given| assert_eq!(given.read(), 1, "each answer is given once"));
    }
}

/// How a client goes on when its client batch is back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It takes the answers that were not claimed.
    TakesAll,
    /// It leaves without them, as one that panics.
    Leaves,
}

/// The log, clients, and the notices that they open.
struct Setting {
    log: Pipeline,
    progress: Mutex<PartitionProgress>,
    acknowledged: Acknowledged,
    notices: Notices,
    clients: Vec<Client>,
}

impl Setting {
    /// A setting with clients that have so many procedures each.
    fn new(counts: &[usize]) -> Arc<Self> {
        let (log, mut progress) = Pipeline::new(1, 1);
        Arc::new(Self {
            log,
            progress: Mutex::new(progress.pop().expect("there is one partition")),
            acknowledged: Acknowledged::default(),
            notices: Notices::default(),
            clients: counts.iter().map(|&count| Client::new(count)).collect(),
        })
    }

    /// Closes and plans a batch with what was handed in.
    fn plan(&self) {
        assert!(self.log.sequence(false), "there is something to put into it");
        let mut progress = self.progress.lock().expect("no thread panics");
        assert!(self.log.plan_next(&mut progress, |_, _, _| ()), "there is a batch to plan");
    }

    /// As the thread that executes: leaves the answer. Answers whether the transaction is complete, by whomever.
    fn complete(planned: &Planned, timestamp: Timestamp) -> bool {
        if let Some(executing) = planned.claim(timestamp) {
            let (job, position) = (executing.client_batch().content().job, executing.procedure());
            // SAFETY: it was claimed, and its client waits.
            unsafe {
                let client = &*std::ptr::with_exposed_provenance::<Client>(job);
                client.executed[position].write();
                *client.answers[position].get() = Some(Ok(((), Scope::default())));
            }
            executing.complete(false);
        }
        planned.progress(timestamp) == Progress::Complete
    }

    /// Executes a chunk, if there is one.
    fn execute(&self) {
        let Some(chunk) = self.log.claim(LAST) else { return };
        self.log.for_each(&chunk, |client_batch, position, timestamp| {
            while !Self::complete(client_batch.planned(position), timestamp) {
                thread::yield_now();
            }
        });
        self.log.end_execution(chunk);
    }

    /// As an idle thread: goes on with what clients have under way.
    fn help(&self) {
        self.notices.help_by(&self.log, &self.acknowledged, &mut |planned, timestamp| {
            planned.progress(timestamp) == Progress::Unprocessed && Self::complete(planned, timestamp)
        });
    }

    /// As a client from its first step to its last: has its procedures executed in so many rounds, each in the memory of the one before.
    fn run_client(
        &self,
        client: &Client,
        rounds: usize,
        is_planned: bool,
        wait: fn(&Self, &Client, &HandedIn),
        end: End,
    ) {
        let count = client.given.len() / rounds;
        let (procedures, answers) = (client.procedures.as_ptr(), client.answers.as_ptr());
        let job = Job::<Silent>::new(UnsafeCell::raw_get(procedures), UnsafeCell::raw_get(answers));
        let done = |position: usize, answer: Result<(), Error>| {
            answer.expect("it has committed");
            assert!(self.acknowledged.batch() as usize > position / count, "snapshots have it before its client knows");
            client.give(position);
        };
        let shared = SharedJob::new(&job, client.given.len(), &done);
        self.notices.open(&shared, |opened| {
            let mut own = (!is_planned).then(|| client.kept.take());
            for round in 0..rounds {
                let mut handed_in = client.handed_in.lock().expect("no thread panics").take();
                if let Some(own) = own.take() {
                    handed_in = Some(client.hand_in(own, round * count..(round + 1) * count, &self.log));
                }
                let handed_in = handed_in.expect("it was handed in");
                opened.add(&handed_in);
                if !is_planned {
                    self.plan();
                }
                wait(self, client, &handed_in);
                self.take_answers(client, &handed_in, &shared, opened, end, done);
                own = Some(handed_in.take_back().expect("it is back"));
            }
        });
        client.memory.write();
    }

    /// Takes a client batch back, and gives the answers that are left.
    fn take_answers<D: Fn(usize, Result<(), Error>) + Sync>(
        &self,
        client: &Client,
        handed_in: &HandedIn,
        shared: &SharedJob<'_, Silent, D>,
        opened: &Opened<'_>,
        end: End,
        done: impl Fn(usize, Result<(), Error>),
    ) {
        opened.take_back(handed_in);
        if end == End::Leaves {
            return;
        }
        let content = handed_in.content();
        self.acknowledged.raise(handed_in.batch().expect("it was executed"));
        for &position in &content.procedures {
            if shared.delivered(position as usize) == Delivered::No {
                // SAFETY: the transaction is complete, and its answer was not claimed.
                let answer = unsafe { (*client.answers[position as usize].get()).take() };
                let answer = answer.expect("it was executed").map(|_| ());
                done(position as usize, answer.map_err(|ended| ended.failure.into_own()));
            }
        }
    }

    /// As a client that takes its turns.
    fn wait_awake(&self, _: &Client, handed_in: &HandedIn) {
        // Acquire: as clients do.
        while !handed_in.is_executed() {
            self.execute();
            thread::yield_now();
        }
    }

    /// As a client that leaves its turns to others and sleeps.
    fn wait_asleep(&self, client: &Client, handed_in: &HandedIn) {
        // Acquire, here and below: as above.
        let is_back = || handed_in.is_executed();
        while !is_back() {
            handed_in.await_with(&client.parker, || {
                ParkedThreads::default()
                    .sleep(&client.parker, || if is_back() { ParkTime::None } else { ParkTime::UntilWoken });
            });
        }
    }
}

/// A helper and the client execute what is left, and one of them gives each answer.
#[test]
fn each_answer_is_given_once() {
    explore(3, || {
        each(
            Setting::new(&[2]),
            [
                |setting| setting.run_client(&setting.clients[0], 1, false, Setting::wait_awake, End::TakesAll),
                Setting::help,
            ],
            |setting| setting.clients[0].assert_given(),
        );
    });
}

/// A client that leaves without its answers waits for all helpers first.
#[test]
fn a_client_that_gives_up_awaits_its_helpers() {
    explore(3, || {
        each(
            Setting::new(&[2]),
            [
                |setting| setting.run_client(&setting.clients[0], 1, false, Setting::wait_awake, End::Leaves),
                Setting::help,
            ],
            |setting| setting.clients[0].given.iter().for_each(|given| assert!(given.read() <= 1)),
        );
    });
}

/// A helper that comes late to a client batch does not give the answers of what that has been handed in with since.
#[test]
fn a_client_batch_that_was_handed_in_again_is_not_mistaken() {
    explore(3, || {
        each(
            Setting::new(&[2]),
            [
                |setting| setting.run_client(&setting.clients[0], 2, false, Setting::wait_awake, End::TakesAll),
                Setting::help,
            ],
            |setting| setting.clients[0].assert_given(),
        );
    });
}

/// Two clients, of which one helps before it comes with its own and the other one afterwards, get their answers once each, and none gets the
/// other's.
#[test]
fn two_clients_get_their_own_answers() {
    explore(2, || {
        let setting = Setting::new(&[1, 1]);
        for client in &setting.clients {
            let handed_in = client.hand_in(client.kept.take(), 0..1, &setting.log);
            *client.handed_in.lock().expect("no thread panics") = Some(handed_in);
            setting.plan();
        }
        each(
            setting,
            [
                |setting| {
                    setting.run_client(&setting.clients[0], 1, true, Setting::wait_awake, End::TakesAll);
                    setting.help();
                },
                |setting| {
                    setting.help();
                    setting.run_client(&setting.clients[1], 1, true, Setting::wait_awake, End::TakesAll);
                },
            ],
            |setting| setting.clients.iter().for_each(Client::assert_given),
        );
    });
}

/// A client that sleeps is woken by the thread that executes its chunk, though a helper has executed some of it and delivered answers.
#[test]
fn a_client_that_sleeps_gets_its_answers() {
    explore(1, || {
        each(
            Setting::new(&[1]),
            [
                |setting| setting.run_client(&setting.clients[0], 1, false, Setting::wait_asleep, End::TakesAll),
                |setting| {
                    while setting.log.finished() == 0 {
                        setting.execute();
                        thread::yield_now();
                    }
                },
                Setting::help,
            ],
            |setting| setting.clients[0].assert_given(),
        );
    });
}

/// Two helpers beside a client give each answer once.
#[test]
fn two_helpers_share_the_answers() {
    explore(2, || {
        each(
            Setting::new(&[1]),
            [
                |setting| setting.run_client(&setting.clients[0], 1, false, Setting::wait_awake, End::TakesAll),
                Setting::help,
                Setting::help,
            ],
            |setting| setting.clients[0].assert_given(),
        );
    });
}
