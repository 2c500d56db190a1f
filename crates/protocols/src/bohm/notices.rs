//! Answers that any thread may deliver: a client that executes a long procedure cannot deliver those of the others that it has handed in.
//!
//! A client whose answers others may deliver ([`polychron_engine::Worker::execute_batch_with`]) opens a *notice* while its procedures are under
//! way. A thread that has nothing to do executes what is left of them, as their client would, and delivers the answers of those that are complete:
//!
//! 1. A helper looks at a client batch under the lock of the notice, and only while that is in its list. The client takes it off the list before
//!    it does anything with it.
//! 2. Each answer is delivered by the thread that claims it. A helper claims under the lock, and only what is complete; the client takes what was
//!    not claimed.
//! 3. The client does not leave before all helpers have: they use its procedures, its answers and its callback.

use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use polychron_engine::{Procedure, drive};
use polychron_sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use polychron_sync::{Backoff, Mutex, MutexGuard};

use super::answers::Job;
use super::attempt::finish_answer;
use super::execution::{Executor, ensure_complete};
use super::pipeline::Pipeline;
use super::planned::{Blocker, ClientBatch, HandedIn, Planned, Progress, Shared};
use super::protocol::{self, Acknowledged};
use super::timestamp::Timestamp;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a helper has delivered an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    /// It has not.
    No,
    /// It has, and the transaction has committed.
    Committed,
    /// It has, and the transaction has not committed.
    Refused,
}

/// A client's procedures, whose answers any thread may deliver.
pub(super) struct SharedJob<'j, P: Procedure, D> {
    job: &'j Job<P>,
    delivered: Vec<AtomicU8>,
    done: &'j D,
}

/// The same without their type.
trait Deliver {
    /// Claims the answer of a procedure whose transaction is complete. `None`: another thread has, or it is left to its client.
    fn claim(&self, complete: &Complete<'_>) -> Option<Claimed>;

    /// Delivers an answer that the caller has claimed here.
    fn deliver(&self, claimed: Claimed);
}

/// The position of a procedure whose transaction is complete, and whose client does not take the answer while the list is locked.
struct Complete<'l> {
    position: usize,
    _listed: &'l Listed<'l>,
}

/// The position of an answer that was claimed.
#[derive(Debug)]
struct Claimed(usize);

impl<'j, P: Procedure, D: Fn(usize, Result<P::Output, P::Error>) + Sync> SharedJob<'j, P, D> {
    pub(super) fn new(job: &'j Job<P>, count: usize, done: &'j D) -> Self {
        Self { job, delivered: (0..count).map(|_| AtomicU8::new(Delivered::No as u8)).collect(), done }
    }

    /// Whether a helper has delivered the answer of a procedure that its client has taken back.
    pub(super) fn delivered(&self, position: usize) -> Delivered {
        // Relaxed: written under the notice's lock, which the client has held since.
        let delivered = self.delivered[position].load(Ordering::Relaxed);
        [Delivered::No, Delivered::Committed, Delivered::Refused][usize::from(delivered)]
    }
}

impl<P: Procedure, D: Fn(usize, Result<P::Output, P::Error>) + Sync> Deliver for SharedJob<'_, P, D> {
    fn claim(&self, &Complete { position, .. }: &Complete<'_>) -> Option<Claimed> {
        // Relaxed, here and below: written under the notice's lock. The thread that has claimed an answer may be taking it.
        if self.delivered[position].load(Ordering::Relaxed) != Delivered::No as u8 {
            return None;
        }
        // SAFETY: the transaction is complete, and under the lock no other thread claims its answer, or has.
        let delivered = match unsafe { self.job.at(position) }.1 {
            Some(Ok(_)) => Delivered::Committed,
            // Its client tries it again.
            Some(Err(ended)) if ended.wants_memory => return None,
            None => return None,
            Some(Err(_)) => Delivered::Refused,
        };
        self.delivered[position].store(delivered as u8, Ordering::Relaxed);
        Some(Claimed(position))
    }

    fn deliver(&self, Claimed(position): Claimed) {
        // SAFETY: the transaction is complete and was claimed, so procedure and answer are the caller's.
        let (procedure, answer) = unsafe { self.job.at(position) };
        let answer = answer.take().expect("an answer that was claimed is there");
        // A panic of the client's code, or of what it drops there, is not for the thread that helps.
        let _ = drive::catch(|| (self.done)(position, finish_answer(procedure, answer)));
    }
}

/// What a client has under way whose answers any thread may deliver.
struct Notice {
    /// Its client waits until all that help have left.
    answers: NonNull<dyn Deliver>,
    client_batches: Mutex<Vec<Shared>>,
    helpers: AtomicUsize,
}

// SAFETY: the procedures and their answers can be sent to other threads, and so can the callback be shared; their client keeps them
// while the notice is open.
unsafe impl Send for Notice {}
// SAFETY: as above.
unsafe impl Sync for Notice {}

impl std::fmt::Debug for Notice {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Notice").finish_non_exhaustive()
    }
}

/// All notices.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Vec<Arc<Notice>>>);

/// A notice that its client has opened. Others go on with it until it is dropped.
pub(super) struct Opened<'s> {
    notices: &'s Notices,
    notice: Arc<Notice>,
    /// The address of the client's job.
    job: usize,
}

impl Notices {
    /// Lets others help with the answers of `answers` while `work` runs.
    pub(super) fn open<'s, P: Procedure, D: Fn(usize, Result<P::Output, P::Error>) + Sync, O>(
        &'s self,
        answers: &'s SharedJob<'s, P, D>,
        work: impl FnOnce(&Opened<'s>) -> O,
    ) -> O {
        let job = std::ptr::from_ref(answers.job).addr();
        let answers: NonNull<dyn Deliver + 's> = NonNull::from(answers);
        // SAFETY: only the lifetime changes. Nothing looks at it after `Opened` is dropped, which is done here, however `work` ends.
        let answers = unsafe { std::mem::transmute::<NonNull<dyn Deliver + 's>, NonNull<dyn Deliver>>(answers) };
        let notice = Arc::new(Notice { answers, client_batches: Mutex::default(), helpers: AtomicUsize::new(0) });
        lock(&self.0).push(Arc::clone(&notice));
        work(&Opened { notices: self, notice, job })
    }

    /// Helps all clients. Returns whether there was something to do.
    pub(super) fn help(&self, shared: &protocol::Shared, executor: &mut Executor) -> bool {
        let Executor { local, state } = executor;
        self.help_by(&shared.pipeline, &shared.acknowledged, &mut |planned, timestamp| {
            if !shared.takes_turns() {
                return false;
            }
            // What is executed goes by this guard, as it goes by a client's.
            let _guard = local.pin();
            planned.progress(timestamp) == Progress::Unprocessed
                && ensure_complete(shared, state, local, planned, timestamp)
        })
    }

    /// The same, and has `execute` execute what is left. That returns whether the transaction is complete now, and was not before.
    pub(super) fn help_by(&self, log: &Pipeline, acknowledged: &Acknowledged, execute: Execute<'_>) -> bool {
        let notices: Vec<_> = {
            let open = lock(&self.0);
            // Relaxed: under the lock, behind which the client looks.
            open.iter().for_each(|notice| _ = notice.helpers.fetch_add(1, Ordering::Relaxed));
            open.iter().map(|notice| Helper(Arc::clone(notice))).collect()
        };
        notices.iter().filter(|notice| notice.0.help(log, acknowledged, execute)).count() > 0
    }
}

impl Opened<'_> {
    /// A client batch of the client was handed in.
    pub(super) fn add(&self, client_batch: &HandedIn) {
        // The models have jobs of their own.
        assert!(polychron_sync::MODELLED || client_batch.content().job == self.job, "the answers are of this job");
        lock(&self.notice.client_batches).push(client_batch.share());
    }

    /// All transactions of a client batch were executed: it is its client's alone, but for the answers that others have claimed.
    pub(super) fn take_back(&self, client_batch: &HandedIn) {
        lock(&self.notice.client_batches).retain(|other| !std::ptr::eq(&**other, &**client_batch));
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        lock(&self.notices.0).retain(|other| !Arc::ptr_eq(other, &self.notice));
        let mut backoff = Backoff::new();
        // Acquire: pairs with the release of those that leave.
        while self.notice.helpers.load(Ordering::Acquire) > 0 {
            backoff.wait();
        }
    }
}

/// A thread that helps.
struct Helper(Arc<Notice>);

impl Drop for Helper {
    fn drop(&mut self) {
        // Release: pairs with the acquire of the client.
        self.0.helpers.fetch_sub(1, Ordering::Release);
    }
}

/// Executes a transaction.
type Execute<'e> = &'e mut dyn FnMut(&Planned, Timestamp) -> bool;

/// A transaction of a client batch that is under way.
struct Left {
    in_batch: usize,
    planned: Blocker,
}

/// The client batches that are in the list, which is locked.
type Listed<'l> = MutexGuard<'l, Vec<Shared>>;

impl Notice {
    fn answers(&self) -> &dyn Deliver {
        // SAFETY: the client waits for its helpers, of which the caller is one.
        unsafe { self.answers.as_ref() }
    }

    fn help(&self, log: &Pipeline, acknowledged: &Acknowledged, execute: Execute<'_>) -> bool {
        let mut left = Vec::new();
        let mut helped = self.deliver_all(log, acknowledged, &mut left);
        for left in left {
            if execute(left.planned.planned(), left.planned.timestamp()) {
                self.deliver_one(acknowledged, &left);
                helped = true;
            }
        }
        helped
    }

    /// Delivers the answers that are there, and finds out what is left to be executed.
    fn deliver_all(&self, log: &Pipeline, acknowledged: &Acknowledged, left: &mut Vec<Left>) -> bool {
        let mut claimed = Vec::new();
        {
            let client_batches = lock(&self.client_batches);
            for client_batch in client_batches.iter() {
                let Some(batch) = client_batch.batch().filter(|&batch| log.planned() >= batch) else { continue };
                for in_batch in 0..client_batch.content().count {
                    let (planned, timestamp) = (client_batch.planned(in_batch), client_batch.timestamp(in_batch));
                    match planned.progress(timestamp) {
                        Progress::Unprocessed => left.push(Left { in_batch, planned: planned.blocker(timestamp) }),
                        Progress::Executing => {}
                        Progress::Complete => {
                            claimed.extend(self.claim(&client_batches, client_batch, in_batch, timestamp))
                        }
                    }
                }
                // Snapshots see the last one before its client gets the answer.
                acknowledged.raise(if claimed.is_empty() { 0 } else { batch });
            }
        }
        // Clients' code runs outside of the lock.
        let any = !claimed.is_empty();
        claimed.into_iter().for_each(|claimed| self.answers().deliver(claimed));
        any
    }

    /// Delivers the answer of a transaction that was executed, if it is still to be delivered.
    fn deliver_one(&self, acknowledged: &Acknowledged, Left { in_batch, planned }: &Left) {
        let timestamp = planned.timestamp();
        let claimed = {
            let client_batches = lock(&self.client_batches);
            // The client may have taken the client batch back by now, and may add transactions to it.
            let listed = client_batches.iter().find(|&listed| planned.is_of(listed));
            let under_way = listed.filter(|listed| listed.batch() == Some(timestamp.batch()));
            under_way.and_then(|client_batch| self.claim(&client_batches, client_batch, *in_batch, timestamp))
        };
        if let Some(claimed) = claimed {
            acknowledged.raise(timestamp.batch());
            self.answers().deliver(claimed);
        }
    }

    /// Claims the answer of a transaction of a client batch in the list, unless it is left to the client.
    fn claim(
        &self,
        listed: &Listed<'_>,
        client_batch: &ClientBatch,
        in_batch: usize,
        timestamp: Timestamp,
    ) -> Option<Claimed> {
        let position = client_batch.content().procedures[in_batch] as usize;
        let planned = client_batch.planned(in_batch);
        let is_left_to_client = planned.progress(timestamp) != Progress::Complete || planned.is_again();
        if is_left_to_client { None } else { self.answers().claim(&Complete { position, _listed: listed }) }
    }
}
