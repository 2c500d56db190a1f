//! Answers that helpers give beside the client that waits for them, sleeps, leaves without them, or hands its client batch in again.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex};

use polychron_base::Error;
use polychron_engine::futures::Scope;
use polychron_engine::{Procedure, Transaction};
use polychron_sync::atomic::Ordering;
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
    /// It gives the answers that nobody has claimed.
    Gives,
    /// It leaves without them, as one that panics.
    GivesUp,
}

/// The log, clients, and the notices that they open.
struct Room {
    log: Pipeline,
    progress: Mutex<PartitionProgress>,
    acknowledged: Acknowledged,
    notices: Notices,
    clients: Vec<Client>,
}

impl Room {
    /// A room with clients that have so many procedures each.
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
        self.log.for_each(&chunk, |client_batch, place, timestamp| {
            while !Self::complete(client_batch.planned(place), timestamp) {
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
    fn serve(&self, client: &Client, rounds: usize, is_planned: bool, wait: fn(&Self, &Client, &HandedIn), end: End) {
        let count = client.given.len() / rounds;
        let job = Job::<Silent> {
            procedures: UnsafeCell::raw_get(client.procedures.as_ptr()),
            answers: UnsafeCell::raw_get(client.answers.as_ptr()),
        };
        let done = |position: usize, answer: Result<(), Error>| {
            answer.expect("it has committed");
            assert!(self.acknowledged.batch() as usize > position / count, "snapshots have it before its client knows");
            client.give(position);
        };
        let telling = SharedJob::new(&job, client.given.len(), &done);
        self.notices.open(&telling, |opened| {
            let mut own = (!is_planned).then(|| client.kept.take());
            for round in 0..rounds {
                let mut handed_in = client.handed_in.lock().expect("nobody panics").take();
                if let Some(own) = own.take() {
                    handed_in = Some(client.hand_in(own, round * count..(round + 1) * count, &self.log));
                }
                let handed_in = handed_in.expect("it was handed in");
                opened.add(&handed_in);
                if !is_planned {
                    self.plan();
                }
                wait(self, client, &handed_in);
                self.take_answers(client, &handed_in, &telling, opened, end, done);
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
        telling: &SharedJob<'_, Silent, D>,
        opened: &Opened<'_>,
        end: End,
        done: impl Fn(usize, Result<(), Error>),
    ) {
        opened.take_back(handed_in);
        if end == End::GivesUp {
            return;
        }
        let content = handed_in.content();
        self.acknowledged.raise(handed_in.batch().expect("it was executed"));
        for &position in &content.procedures {
            if telling.told(position as usize) == Delivered::No {
                // SAFETY: the transaction is complete, and nobody has claimed its answer.
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
            Room::new(&[2]),
            [|room| room.serve(&room.clients[0], 1, false, Room::wait_awake, End::Gives), Room::help],
            |room| room.clients[0].assert_given(),
        );
    });
}

/// A client that leaves without its answers leaves behind all who give some.
#[test]
fn a_client_that_gives_up_awaits_its_helpers() {
    explore(3, || {
        each(
            Room::new(&[2]),
            [|room| room.serve(&room.clients[0], 1, false, Room::wait_awake, End::GivesUp), Room::help],
            |room| room.clients[0].given.iter().for_each(|given| assert!(given.read() <= 1)),
        );
    });
}

/// A helper that comes late to a client batch does not give the answers of what that has been handed in with since.
#[test]
fn a_client_batch_that_was_handed_in_again_is_not_mistaken() {
    explore(3, || {
        each(
            Room::new(&[2]),
            [|room| room.serve(&room.clients[0], 2, false, Room::wait_awake, End::Gives), Room::help],
            |room| room.clients[0].assert_given(),
        );
    });
}

/// Two clients, of whom one helps before it comes with its own and the other one afterwards, get their answers once each, and none gets the
/// other's.
#[test]
fn two_clients_get_their_own_answers() {
    explore(2, || {
        let room = Room::new(&[1, 1]);
        for client in &room.clients {
            let handed_in = client.hand_in(client.kept.take(), 0..1, &room.log);
            *client.handed_in.lock().expect("nobody panics") = Some(handed_in);
            room.plan();
        }
        each(
            room,
            [
                |room| {
                    room.serve(&room.clients[0], 1, true, Room::wait_awake, End::Gives);
                    room.help();
                },
                |room| {
                    room.help();
                    room.serve(&room.clients[1], 1, true, Room::wait_awake, End::Gives);
                },
            ],
            |room| room.clients.iter().for_each(Client::assert_given),
        );
    });
}

/// A client that sleeps is woken by who executes its chunk, though a helper has executed some of it and given answers.
#[test]
fn a_client_that_sleeps_gets_its_answers() {
    explore(1, || {
        each(
            Room::new(&[1]),
            [
                |room| room.serve(&room.clients[0], 1, false, Room::wait_asleep, End::Gives),
                |room| {
                    while room.log.finished() == 0 {
                        room.execute();
                        thread::yield_now();
                    }
                },
                Room::help,
            ],
            |room| room.clients[0].assert_given(),
        );
    });
}

/// Two helpers beside a client give each answer once.
#[test]
fn two_helpers_share_the_answers() {
    explore(2, || {
        each(
            Room::new(&[1]),
            [|room| room.serve(&room.clients[0], 1, false, Room::wait_awake, End::Gives), Room::help, Room::help],
            |room| room.clients[0].assert_given(),
        );
    });
}
