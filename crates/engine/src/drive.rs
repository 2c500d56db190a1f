//! Driving a transaction to its end: retry, back-off, panics and counters, once for every interactive protocol.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use polychron_base::clock::{Clock, SystemClock};
use polychron_base::random::Random;
use polychron_base::{Abort, Error};
use polychron_sync::{MODELLED, spin_hint, thread};

use crate::futures::{self, Outcome, Resolved, Scope};
use crate::limits;
use crate::nested::{Endurance, is_in_the_way};
use crate::options::Retry;
use crate::{Commit, Interactive, LazyFutures, Mode, Procedure};

/// Runs `procedure` in transactions until one commits: the body of [`crate::Worker::execute`] and
/// [`crate::Worker::snapshot`] for interactive protocols.
///
/// # Errors
/// As [`crate::Worker::execute`].
pub fn execute<W: Interactive, P: Procedure>(
    worker: &mut W,
    mode: Mode,
    procedure: &mut P,
) -> Result<P::Output, P::Error> {
    until_committed(worker, mode, &mut Running(procedure))
}

/// As [`execute`], where what drives the transaction is compiled once for all procedures: each attempt takes a virtual call.
///
/// # Errors
/// As there.
pub fn execute_unnamed<W: Interactive, P: Procedure>(
    worker: &mut W,
    mode: Mode,
    procedure: &mut P,
) -> Result<P::Output, P::Error> {
    let mut kept = Kept { procedure, answer: None };
    let ended = until_unnamed_committed(worker, mode, &mut kept);
    let answer = kept.answer.take();
    match (ended, answer) {
        (Ok(()) | Err(Failure::Own(())), Some(answer)) => answer,
        (Err(Failure::Engine(error)), answer) => {
            discard(answer);
            Err(error.into())
        }
        (_, None) => unreachable!("what has run has left its answer"),
    }
}

/// [`crate::Worker::execute_batch_with`] by [`execute_unnamed`], one after the other.
pub fn execute_batch_with<W: Interactive, P: Procedure>(
    worker: &mut W,
    procedures: &mut [P],
    done: &impl Fn(usize, Result<P::Output, P::Error>),
    others: impl FnOnce(&mut W),
) {
    for (position, procedure) in procedures.iter_mut().enumerate() {
        done(position, execute_unnamed(worker, Mode::ReadWrite, procedure));
    }
    others(worker);
}

#[inline(never)]
fn until_unnamed_committed<W: Interactive>(
    worker: &mut W,
    mode: Mode,
    body: &mut dyn Unnamed<W>,
) -> Result<(), Failure<()>> {
    until_committed(worker, mode, body)
}

/// Runs `body` in transactions until one commits, has failed for good, or was tried as often as the options allow.
///
/// Which of these it is does not depend on the error that `body` returns, but on the transaction: one that conflicts is run again, whatever
/// `body` made of that.
///
/// # Errors
/// As [`crate::Worker::execute`].
pub fn transact<W: Interactive, O, E: From<Error>>(
    worker: &mut W,
    mode: Mode,
    body: &mut impl FnMut(&mut W::Transaction<'_>) -> Result<O, E>,
) -> Result<O, E> {
    until_committed(worker, mode, body)
}

/// As [`transact`], and shows each conflict to `conflicted` before the transaction is run again, or given up.
///
/// # Errors
/// As there.
pub fn transact_watched<W: Interactive, O, E: From<Error>>(
    worker: &mut W,
    mode: Mode,
    body: &mut impl FnMut(&mut W::Transaction<'_>) -> Result<O, E>,
    conflicted: &mut dyn FnMut(&Abort),
) -> Result<O, E> {
    until_committed(worker, mode, &mut Watched { body, conflicted })
}

/// Runs `body` in a transaction that is dropped: nothing of what it has seen is protected or validated, and it leaves no trace by which
/// others would conflict. For hints.
///
/// # Errors
/// As [`transact`].
pub fn look<W: Interactive, O>(
    worker: &mut W,
    body: &mut impl FnMut(&mut W::Transaction<'_>) -> Result<O, Error>,
) -> Result<O, Error> {
    let mut conflicts = ConflictsSoFar::default();
    loop {
        limits::check()?;
        let mut transaction = worker.begin(Mode::ReadWrite)?;
        let seen = body(&mut transaction);
        drop(transaction);
        match seen {
            Err(error) if error.is_conflict() => {}
            seen => return seen,
        }
        if let Some(error) = conflicts.give_up(worker) {
            return Err(error);
        }
        worker.back_off(conflicts.attempts);
    }
}

/// As [`transact`], and gives the values of the futures in the answer.
///
/// # Errors
/// As there. A future of the answer that has no value, or is another transaction's, is an error although the transaction has
/// committed.
pub fn transact_resolved<W: Interactive, O: Outcome, E: From<Error>>(
    worker: &mut W,
    body: &mut impl FnMut(&mut W::Transaction<'_>) -> Result<O, E>,
) -> Result<O::Values, E> {
    let (output, scope) =
        transact(worker, Mode::ReadWrite, &mut |transaction: &mut W::Transaction<'_>| -> Result<_, E> {
            let output = body(transaction)?;
            Ok((output, transaction.future_scope()))
        })?;
    output.resolve(&Resolved::of(scope)).map_err(|error| E::from(error.into()))
}

/// Why a procedure has failed, before errors of the engine are made into its own: that is user code, which is to run where it does no
/// harm.
#[derive(Debug)]
pub enum Failure<E> {
    /// The engine refuses it.
    Engine(Error),
    /// The procedure returned this.
    Own(E),
}

impl<E> From<Error> for Failure<E> {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl<E: From<Error>> Failure<E> {
    /// The error in the procedure's own type.
    #[cold]
    pub fn into_own(self) -> E {
        match self {
            Self::Engine(error) => error.into(),
            Self::Own(error) => error,
        }
    }
}

/// Code that runs in transactions, and learns when one has committed.
trait Body<W: Interactive> {
    type Output;
    type Error: From<Error>;

    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<Self::Output, Self::Error>;

    fn committed(&mut self, output: Self::Output, _scope: Scope) -> Result<Self::Output, Error> {
        Ok(output)
    }

    /// Drops the answer of the last run, which is not used.
    fn discard(&mut self) {}

    /// The last run has conflicted.
    #[inline]
    fn conflicted(&mut self, _abort: &Abort) {}
}

/// Code that is shown the conflicts of its transactions.
struct Watched<'b, F> {
    body: &'b mut F,
    conflicted: &'b mut dyn FnMut(&Abort),
}

impl<W: Interactive, O, E: From<Error>, F: FnMut(&mut W::Transaction<'_>) -> Result<O, E>> Body<W> for Watched<'_, F> {
    type Output = O;
    type Error = E;

    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<O, E> {
        (self.body)(transaction)
    }

    fn conflicted(&mut self, abort: &Abort) {
        (self.conflicted)(abort);
    }
}

impl<W: Interactive, O, E: From<Error>, F: FnMut(&mut W::Transaction<'_>) -> Result<O, E>> Body<W> for F {
    type Output = O;
    type Error = E;

    #[inline]
    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<O, E> {
        self(transaction)
    }
}

struct Running<'p, P>(&'p mut P);

impl<W: Interactive, P: Procedure> Body<W> for Running<'_, P> {
    type Output = P::Output;
    type Error = P::Error;

    #[inline]
    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<P::Output, P::Error> {
        self.0.run(transaction)
    }

    #[inline]
    fn committed(&mut self, output: P::Output, scope: Scope) -> Result<P::Output, Error> {
        report_committed(self.0, output, scope)
    }
}

/// A procedure that keeps what its last run has answered.
struct Kept<'p, P: Procedure> {
    procedure: &'p mut P,
    answer: Option<Result<P::Output, P::Error>>,
}

/// A [`Body`] whose types are not known.
trait Unnamed<W: Interactive> {
    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<(), Failure<()>>;
    fn committed(&mut self, scope: Scope) -> Result<(), Error>;
    fn discard(&mut self);
}

impl<W: Interactive, P: Procedure> Unnamed<W> for Kept<'_, P> {
    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<(), Failure<()>> {
        let answer = self.procedure.run(transaction);
        let ended = answer.as_ref().map(|_| ()).map_err(|_| Failure::Own(()));
        self.answer = Some(answer);
        ended
    }

    fn committed(&mut self, scope: Scope) -> Result<(), Error> {
        if let Some(Ok(output)) = self.answer.take() {
            self.answer = Some(Ok(report_committed(self.procedure, output, scope)?));
        }
        Ok(())
    }

    fn discard(&mut self) {
        discard(self.answer.take());
    }
}

impl<W: Interactive> Body<W> for dyn Unnamed<W> + '_ {
    type Output = ();
    type Error = Failure<()>;

    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<(), Failure<()>> {
        Unnamed::run(self, transaction)
    }

    fn committed(&mut self, (): (), scope: Scope) -> Result<(), Error> {
        Unnamed::committed(self, scope)
    }

    fn discard(&mut self) {
        Unnamed::discard(self);
    }
}

/// Tells a procedure that it has committed, in the transaction of this [scope](crate::LazyFutures::future_scope).
///
/// # Errors
/// [`Error::Panicked`]. It has committed nevertheless.
#[inline]
pub fn report_committed<P: Procedure>(
    procedure: &mut P,
    mut output: P::Output,
    scope: Scope,
) -> Result<P::Output, Error> {
    let reported = catch(|| procedure.committed(&mut output, &Resolved::of(scope)));
    match reported {
        Ok(()) => Ok(output),
        Err(panic) => {
            discard(output);
            Err(Error::panicked(panic.text()))
        }
    }
}

fn until_committed<W: Interactive, B: Body<W> + ?Sized>(
    worker: &mut W,
    mode: Mode,
    body: &mut B,
) -> Result<B::Output, B::Error> {
    let is_limited = limits::are_set();
    let begun = worker.counters().events().begin();
    let mut conflicts = ConflictsSoFar::default();
    let ended = loop {
        worker.counters().open();
        let attempted = attempt(worker, mode, body, is_limited.then_some(&conflicts));
        worker.counters().close();
        match attempted {
            Attempt::Committed(output) => break Ok(output),
            Attempt::Failed(failure) => {
                worker.counters().refused();
                break Err(failure);
            }
            Attempt::Conflict => {
                let given_up = conflicts.give_up(worker);
                if let Some(abort) = &conflicts.abort {
                    body.conflicted(abort);
                }
                if let Some(error) = given_up {
                    break Err(Failure::Engine(error));
                }
                worker.back_off(conflicts.attempts);
            }
        }
    };
    if let Some(begun) = &begun {
        worker.counters().events().ended(begun, conflicts.attempts, ended.is_ok());
    }
    ended.map_err(Failure::into_own)
}

/// The conflicts of a transaction so far.
#[derive(Default)]
struct ConflictsSoFar {
    attempts: u64,
    /// The last one.
    abort: Option<Abort>,
    endurance: Option<Endurance>,
    /// Begun a few conflicts after the first one, for most transactions have few, and to begin a clock takes longer.
    clock: Option<SystemClock>,
}

impl ConflictsSoFar {
    /// Counts a conflict, and tells why there is not to be another attempt, if so.
    fn give_up<W: Interactive>(&mut self, worker: &mut W) -> Option<Error> {
        self.attempts += 1;
        let abort = worker.last_abort();
        if let Some(abort) = &abort {
            worker.counters().aborted(abort, self.attempts);
        }
        self.abort = abort;
        let within = self.check_limits().err();
        let error = within.or_else(|| worker.waits_for_itself());
        let through_others = || is_worn_out(&*worker, self.attempts, abort.as_ref(), &mut self.endurance);
        if let Some(error) = error.or_else(through_others) {
            worker.counters().refused();
            return Some(error);
        }
        if !self.is_last(worker.retry()) {
            return None;
        }
        Some(abort.map_or(Error::Conflict, |abort| Error::conflicts(self.attempts, abort)))
    }

    /// As [`limits::check`], with the last conflict.
    #[cold]
    fn check_limits(&self) -> Result<(), Error> {
        limits::check().map_err(|error| match &self.abort {
            Some(Abort { table, index, key, opponent, .. }) => {
                error.waiting_at(*table, *index, key.as_ref()).waiting_for(*opponent)
            }
            None => error,
        })
    }

    fn is_last(&mut self, retry: &Retry) -> bool {
        if self.attempts >= retry.attempts {
            return true;
        }
        // Time does not pass in models.
        let Some(time) = retry.time.filter(|_| !MODELLED && self.attempts.is_multiple_of(ATTEMPTS_PER_LOOK)) else {
            return false;
        };
        u128::from(self.clock.get_or_insert_default().now_ns()) >= time.as_nanos()
    }
}

/// Attempts after which a transaction that conflicts asks whether it is nested, and from time to time again, for the answer takes a look at
/// words that other threads write; and attempts of a nested one between two steps of its endurance.
const ATTEMPTS_PER_LOOK: u64 = 16;

/// Whether a transaction inside of another one has conflicted for so long with what others have open that they may wait for its own thread.
#[inline]
fn is_worn_out<W: Interactive>(
    worker: &W,
    attempts: u64,
    abort: Option<&Abort>,
    endurance: &mut Option<Endurance>,
) -> Option<Error> {
    if endurance.is_none() && !attempts.is_multiple_of(ATTEMPTS_PER_LOOK) {
        return None;
    }
    endure(worker, attempts, abort, endurance)
}

#[cold]
fn endure<W: Interactive>(
    worker: &W,
    attempts: u64,
    abort: Option<&Abort>,
    endurance: &mut Option<Endurance>,
) -> Option<Error> {
    let Some(&Abort { table, index, key, .. }) = abort.filter(|abort| is_in_the_way(abort.reason)) else {
        *endurance = None;
        return None;
    };
    if endurance.is_none() && !worker.is_nested() {
        return None;
    }
    // Between two steps it tries in quick succession: others may let go for times only.
    if !attempts.is_multiple_of(ATTEMPTS_PER_LOOK) {
        return None;
    }
    let waits = endurance.get_or_insert_with(Endurance::begin).wait();
    (!waits).then(|| Error::waits_in_index(table, index, key))
}

enum Attempt<O, E> {
    Committed(O),
    Conflict,
    Failed(Failure<E>),
}

/// Runs code within the limits of the calling thread, if it has some.
#[inline]
fn run_within<O, E: From<Error>>(limited: Option<&ConflictsSoFar>, run: impl FnOnce() -> Result<O, E>) -> Result<O, E> {
    let Some(conflicts) = limited else { return run() };
    conflicts.check_limits()?;
    let output = run()?;
    // What is called off in time does not commit.
    if let Err(error) = conflicts.check_limits() {
        discard(output);
        return Err(error.into());
    }
    Ok(output)
}

#[inline]
fn attempt<W: Interactive, B: Body<W> + ?Sized>(
    worker: &mut W,
    mode: Mode,
    body: &mut B,
    limited: Option<&ConflictsSoFar>,
) -> Attempt<B::Output, B::Error> {
    if mode == Mode::ReadWrite
        && let Err(error) = worker.admit()
    {
        return Attempt::Failed(Failure::Engine(error));
    }
    let _scope = futures::Attempt::begin();
    let mut transaction = match worker.begin(mode) {
        Ok(transaction) => transaction,
        Err(error) => return Attempt::Failed(Failure::Engine(error)),
    };
    // The transaction is rolled back after a panic and never looked at again, so nothing half done can be observed.
    let result = catch(|| run_within(limited, || body.run(&mut transaction)));
    let failure = match result {
        Ok(Ok(output)) => {
            let scope = transaction.future_scope();
            let Err(error) = transaction.commit() else {
                if mode == Mode::ReadWrite {
                    worker.counters().committed();
                }
                return match body.committed(output, scope) {
                    Ok(output) => Attempt::Committed(output),
                    Err(error) => Attempt::Failed(Failure::Engine(error)),
                };
            };
            discard(output);
            body.discard();
            return if error.is_conflict() { Attempt::Conflict } else { Attempt::Failed(Failure::Engine(error)) };
        }
        Ok(Err(own)) => Failure::Own(own),
        Err(panic) => Failure::Engine(panic.into_error()),
    };
    // Whatever the procedure has returned: one that failed on reads which were never mutually consistent deserves another try, and so does
    // one that the protocol has stopped.
    if transaction.roll_back() {
        return Attempt::Failed(failure);
    }
    discard(failure);
    body.discard();
    Attempt::Conflict
}

/// The waits of one worker between the attempts of a transaction, for protocols without a rule of their own.
#[derive(Debug)]
pub struct RandomWait {
    random: Random,
}

impl RandomWait {
    /// Conflicts in a row after which it only spins.
    pub const SPINS: u64 = 8;

    /// The waits of worker `worker`, which differ from those of all others.
    pub fn new(worker: usize) -> Self {
        Self { random: Random::stream(0xBAC0FF, worker as u64) }
    }

    /// Waits for a random time below a bound that doubles with each conflict in a row, so that two transactions that
    /// met once do not meet again in step.
    pub fn wait(&mut self, attempts: u64, retry: &Retry) {
        // A spin hint takes some 40 ns on common processors; the bound is a matter of scale, not of precision.
        let longest = retry.backoff_max_us.saturating_mul(25).max(1);
        for _ in 0..self.random.below((1u64 << attempts.min(20)).min(longest)) {
            spin_hint();
        }
        if attempts > Self::SPINS {
            // The other side may be waiting for this processor.
            thread::yield_now();
        }
    }
}

/// Ends the transaction whatever its procedure makes of errors: for an operation that was left half done. What drives it undoes it as
/// after a panic, and answers with the error.
pub(crate) fn end(error: Error) -> ! {
    resume_unwind(Box::new(error))
}

/// Runs code that may panic, and of which nothing is looked at afterwards that a panic leaves half done.
///
/// # Errors
/// The panic.
#[inline]
pub fn catch<O>(work: impl FnOnce() -> O) -> Result<O, Caught> {
    catch_unwind(AssertUnwindSafe(work)).map_err(Caught)
}

/// Drops an answer that is not taken. Its destructor is user code, which may panic.
#[inline]
pub fn discard<O>(answer: O) {
    if std::mem::needs_drop::<O>() {
        let _ = catch(move || drop(answer));
    }
}

/// A panic that was caught. What it carries is a user's, and may panic once more where it is dropped: that stays here.
#[derive(Debug)]
pub struct Caught(Box<dyn Any + Send>);

impl Caught {
    /// Its text, as far as it has one.
    pub fn text(&self) -> String {
        if let Some(text) = self.0.downcast_ref::<&str>() {
            (*text).to_owned()
        } else if let Some(text) = self.0.downcast_ref::<String>() {
            text.clone()
        } else if let Some(error) = self.0.downcast_ref::<Error>() {
            error.to_string()
        } else {
            "a panic without a text".to_owned()
        }
    }

    /// The error that it carries, as one does that ends a transaction from its inside, or [`Error::Panicked`].
    pub fn into_error(mut self) -> Error {
        match std::mem::replace(&mut self.0, Box::new(())).downcast::<Error>() {
            Ok(error) => *error,
            Err(panic) => {
                self.0 = panic;
                Error::panicked(self.text())
            }
        }
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        let carried = std::mem::replace(&mut self.0, Box::new(()));
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(carried))) {
            // This may go on for ever, so it ends with what is not given back.
            std::mem::forget(again);
        }
    }
}
