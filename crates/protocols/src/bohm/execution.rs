//! Execution (§3.3.1): a thread takes a chunk of a planned batch and has each of its transactions executed, by itself or by the thread that
//! claimed it first. A transaction that needs the row of another one executes that first, on the same thread.

use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::stores::{Batch, Both};
use polychron_engine::{Ticket, catalog};
use polychron_memory::{Local, stack_left};

use super::answers::run_procedure;
use super::executors::Seen;
use super::leftovers::{Leftover, Waiting};
use super::parking::{SpinBudget, ThreadParker};
use super::pipeline::Chunk;
use super::planned::{Blocker, Executing, Planned, Progress, Ran};
use super::protocol::Shared;
use super::table::BohmTable;
use super::timestamp::Timestamp;
use super::transaction::{BohmTransaction, Position, Scratch};

/// A batch behind all others, for a thread that may execute any.
pub(super) const LAST: u64 = u64::MAX;

/// How many transactions deep a thread goes before it begins anew from the bottom.
const DEEPEST: usize = 32;

/// Of the stack that the first of them had, the others together use this part at most before one is begun: how much a procedure needs is
/// known only when it has run, so each is left most of what it would have had alone.
const PART_OF_STACK: usize = 4;

/// A thread that plans or executes.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) local: Local,
    pub(super) state: ExecutorState,
}

/// What a thread keeps from one transaction to the next.
#[derive(Debug, Default)]
pub(super) struct ExecutorState {
    pub(super) tables: catalog::Seen<BohmTable>,
    pub(super) buffers: Buffers,
    /// Transactions that this thread is executing, one inside the other.
    depth: usize,
    /// Where on the stack it began with the first of them.
    top: usize,
    /// The transaction that would have been one too deep.
    pub(super) too_deep: Option<Blocker>,
    /// What the last transaction waits for that was handed back.
    pub(super) blocker: Option<Blocker>,
    /// Transactions of the present chunk that others were executing.
    left: Vec<Waiting>,
    /// What is passed on at the end of a transaction.
    pub(super) passed_on: Vec<(Position, bool)>,
    pub(super) spin_budget: SpinBudget,
    pub(super) parker: Arc<ThreadParker>,
    pub(super) seen: Seen,
    /// What the answers of the thread's client wait for.
    pub(super) ticket: Ticket,
    /// What transactions keep that no transaction uses now.
    pub(super) scratches: Vec<Scratch>,
    /// Keys that scans have met, for tests.
    #[cfg(test)]
    pub(super) scanned: usize,
}

impl ExecutorState {
    /// Whether another transaction may be executed inside of those that are: there is room for it on the stack.
    #[inline]
    fn may_go_deeper(&mut self) -> bool {
        let local = 0_u8;
        let here = (&raw const local).addr();
        if self.depth == 0 {
            self.top = here;
            return true;
        }
        self.depth < DEEPEST && has_stack(self.top, here)
    }
}

/// Whether most of the stack is left that there was at an address above.
#[cold]
fn has_stack(top: usize, here: usize) -> bool {
    // Model checkers run threads on stacks of their own.
    if polychron_sync::MODELLED {
        return true;
    }
    let used = top.saturating_sub(here);
    used <= (stack_left() + used) / PART_OF_STACK
}

/// Memory that operations use one after the other; an operation takes a buffer and puts it back.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) rows: polychron_engine::rows::Buffers,
    pub(super) batch: Batch,
    pub(super) both: Both,
}

/// How an attempt to execute a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Complete,
    /// It waits for one that another thread executes, or that is too deep.
    HandedBack,
}

impl Executor {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, Error> {
        Ok(Self { local: shared.base.memory.register()?, state: ExecutorState::default() })
    }

    /// Does the next thing that is due: rather executes than plans, and rather plans than begins something new, so that what is
    /// under way comes to its end. `false`: there was nothing to do.
    pub(super) fn take_turn(&mut self, shared: &Shared) -> bool {
        take_turn(shared, &self.local, &mut self.state, LAST)
    }

    /// The same, but executes nothing behind this batch.
    pub(super) fn take_turn_up_to(&mut self, shared: &Shared, last: u64) -> bool {
        take_turn(shared, &self.local, &mut self.state, last)
    }

    /// Plans the next batch for some partition, or closes a batch.
    pub(super) fn plan(&mut self, shared: &Shared, first: usize) -> bool {
        plan(shared, &self.local, &self.state, first)
    }

    /// Executes a chunk of a planned batch.
    pub(super) fn execute(&mut self, shared: &Shared) -> bool {
        execute(shared, &self.local, &mut self.state, LAST)
    }

    /// Waits a little when there was nothing to do, longer each time. `true`: it is time to sleep.
    pub(super) fn rest(&mut self, busy: bool) -> bool {
        if busy {
            self.state.spin_budget.reset();
            return false;
        }
        !self.state.spin_budget.wait_shortly()
    }

    /// The same, and sleeps for a while when it is time to.
    pub(super) fn rest_or_sleep(&mut self, busy: bool) {
        if self.rest(busy) {
            let ExecutorState { spin_budget, parker, .. } = &mut self.state;
            spin_budget.wait(parker);
        }
    }
}

/// As [`Executor::take_turn_up_to`].
pub(super) fn take_turn(shared: &Shared, local: &Local, state: &mut ExecutorState, last: u64) -> bool {
    execute(shared, local, state, last) || plan(shared, local, state, local.worker_id().position())
}

fn plan(shared: &Shared, local: &Local, state: &ExecutorState, first: usize) -> bool {
    let guard = local.pin();
    let count = shared.partitions.len();
    let planned = (0..count).any(|step| {
        let number = (first + step) % count;
        shared.partitions[number].plan_next(number, shared, &guard)
    });
    let closed = !planned && shared.pipeline.sequence(state.spin_budget.is_yielding());
    if (planned || closed) && !shared.takes_turns() {
        // The caller goes on planning; executors, and planners of other partitions, may sleep.
        shared.executing.wake_one();
        shared.planning.wake_one();
    }
    planned || closed
}

fn execute(shared: &Shared, local: &Local, state: &mut ExecutorState, last: u64) -> bool {
    let Some(leave) = shared.executors.enter(state.spin_budget.has_slept()) else { return false };
    if shared.leftovers.is_empty() && !shared.pipeline.has_chunk(last) {
        return false;
    }
    // What is found stays for this guard's time: none is renewed below it. It is there before a chunk is claimed, because clients may go
    // before the chunk is done with.
    let guard = local.pin();
    let (chunk, mut left) = match shared.leftovers.take(last) {
        Some(Leftover { chunk, left }) => (chunk, left),
        None => {
            let Some(chunk) = shared.pipeline.claim(last) else { return false };
            let mut left = std::mem::take(&mut state.left);
            begin_chunk(shared, local, state, &chunk, &mut left);
            (chunk, left)
        }
    };
    if !await_left(shared, local, state, &chunk, &mut left) {
        drop(guard);
        shared.leftovers.leave(Leftover { chunk, left });
        return true;
    }
    state.left = left;
    drop(guard);
    let count = chunk.len();
    shared.pipeline.end_execution(chunk);
    if !shared.takes_turns() && shared.planning.has_some() && shared.pipeline.can_sequence(true) {
        shared.planning.wake_one();
    }
    shared.executors.leave(leave, count, &mut state.seen);
    true
}

/// Tries to complete each transaction of a chunk once; some are left, because other threads execute them or what they wait for.
fn begin_chunk(shared: &Shared, local: &Local, state: &mut ExecutorState, chunk: &Chunk, left: &mut Vec<Waiting>) {
    if shared.executing.has_some() && shared.pipeline.has_chunk(LAST) {
        shared.executing.wake_one();
    }
    shared.pipeline.for_first(chunk, |client_batch, first| client_batch.fetch_first(first));
    shared.pipeline.for_each(chunk, |client_batch, position, timestamp| {
        if let Err(blocker) = try_complete(shared, state, local, client_batch.planned(position), timestamp) {
            left.push(Waiting { position: timestamp.position(), blocker });
        }
    });
    state.seen.stalls += left.len() as u32;
}

/// Waits for what is left of a chunk. `false`: that takes long, and there may be something else to do.
fn await_left(
    shared: &Shared,
    local: &Local,
    state: &mut ExecutorState,
    chunk: &Chunk,
    left: &mut Vec<Waiting>,
) -> bool {
    let mut spin_budget = SpinBudget::default();
    while !left.is_empty() {
        if !spin_budget.wait_shortly() {
            return false;
        }
        left.retain_mut(|waiting| {
            let (planned, timestamp) = shared.pipeline.transaction(chunk, waiting.position);
            let done = try_complete(shared, state, local, planned, timestamp);
            done.map_err(|blocker| waiting.blocker = blocker).is_err()
        });
    }
    true
}

/// Executes a transaction and those that it waits for, unless other threads do. Returns whether it is complete.
pub(super) fn ensure_complete(
    shared: &Shared,
    state: &mut ExecutorState,
    local: &Local,
    planned: &Planned,
    timestamp: Timestamp,
) -> bool {
    try_complete(shared, state, local, planned, timestamp).is_ok()
}

/// The same; `Err` is the transaction to wait for.
fn try_complete(
    shared: &Shared,
    state: &mut ExecutorState,
    local: &Local,
    planned: &Planned,
    timestamp: Timestamp,
) -> Result<(), Blocker> {
    // Below the transaction are those that would have been too deep; the list allocates only when there are some.
    let mut below: Vec<Blocker> = Vec::new();
    loop {
        let (next, at) = match below.last() {
            None => (planned, timestamp),
            Some(deep) => (deep.planned(), deep.timestamp()),
        };
        if let Some(executing) = next.claim(at)
            && execute_claimed(shared, state, local, executing, at) == Outcome::HandedBack
        {
            match state.too_deep.take() {
                Some(deeper) => below.push(deeper),
                None => {
                    let blocker = state.blocker.take().unwrap_or_else(|| next.blocker(at));
                    return Err(wait_above(planned, timestamp, &below, blocker));
                }
            }
        } else if next.progress(at) != Progress::Complete {
            return Err(wait_above(planned, timestamp, &below, next.blocker(at)));
        } else if below.pop().is_none() {
            return Ok(());
        }
    }
}

/// Lets transactions wait for the one that the deepest of those below them waits for: those that lay too deep do not know it.
fn wait_above(planned: &Planned, timestamp: Timestamp, below: &[Blocker], blocker: Blocker) -> Blocker {
    let Some((_, above)) = below.split_last() else { return blocker };
    let first = planned.blocker(timestamp);
    for above in above.iter().chain([&first]) {
        if let Some(mut above) = above.planned().claim(above.timestamp()) {
            above.body_mut().blocker = Some(blocker.clone());
            above.hand_back();
        }
    }
    blocker
}

/// Executes a transaction that the calling thread has claimed.
pub(super) fn execute_claimed(
    shared: &Shared,
    state: &mut ExecutorState,
    local: &Local,
    mut executing: Executing<'_>,
    timestamp: Timestamp,
) -> Outcome {
    // It would come as far as last time, and no further.
    if let Some(blocker) = executing.body().blocker.as_ref().filter(|blocker| blocker.is_executing()) {
        state.blocker = Some(blocker.clone());
        executing.hand_back();
        return Outcome::HandedBack;
    }
    if !state.may_go_deeper() {
        state.too_deep = Some(executing.planned().blocker(timestamp));
        executing.hand_back();
        return Outcome::HandedBack;
    }
    if executing.body().blocker.is_some() {
        executing.body_mut().blocker = None;
    }
    if state.depth == 0 {
        shared.running.enter(local.worker_id().position());
    }
    state.depth += 1;
    let mut transaction = BohmTransaction::planned(shared, &mut *state, local, executing, timestamp);
    let ran = match transaction.begin() {
        Ok(()) => run_procedure(&mut transaction),
        Err(_) => Ran::Conflict,
    };
    let outcome = transaction.end(ran);
    let mut executing = transaction.planned.take().expect("it was planned");
    match outcome {
        Outcome::Complete => executing.complete(transaction.again),
        Outcome::HandedBack => {
            // It has waited for that one last, unless it lies too deep.
            let state = &transaction.state;
            executing.body_mut().blocker = state.blocker.clone().filter(|_| state.too_deep.is_none());
            executing.hand_back();
        }
    }
    drop(transaction);
    state.depth -= 1;
    if state.depth == 0 {
        shared.running.leave(local.worker_id().position());
    }
    outcome
}
