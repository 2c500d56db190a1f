//! Driving a transaction to its end: retry, back-off, panics and counters, once for every interactive protocol.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use polychron_base::error::Stopped;
use polychron_base::random::Random;
use polychron_base::{Abort, Error, Stop};
use polychron_sync::{spin_hint, thread};

use crate::futures::{self, Outcome, Resolved, Scope};
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
) -> Result<P::Output, Error> {
    until_committed(worker, mode, &mut Running(procedure))
}

/// Runs `body` in transactions until one commits.
///
/// # Errors
/// As [`crate::Worker::execute`].
pub fn transact<W: Interactive, O>(
    worker: &mut W,
    mode: Mode,
    body: &mut impl FnMut(&mut W::Transaction<'_>) -> Result<O, Stop>,
) -> Result<O, Error> {
    until_committed(worker, mode, body)
}

/// As [`transact`], and gives the values of the futures in the answer.
///
/// # Errors
/// As there. A future of the answer that has no value, or is another transaction's, is an error although the transaction has
/// committed.
pub fn transact_resolved<W: Interactive, O: Outcome>(
    worker: &mut W,
    body: &mut impl FnMut(&mut W::Transaction<'_>) -> Result<O, Stop>,
) -> Result<O::Values, Error> {
    let (output, scope) = transact(worker, Mode::ReadWrite, &mut |transaction: &mut W::Transaction<'_>| {
        let output = body(transaction)?;
        Ok((output, transaction.future_scope()))
    })?;
    output.resolve(&Resolved::of(scope)).map_err(|error| Error::Procedure(Box::new(error)))
}

/// What is run in transactions, and told when one has committed.
trait Body<W: Interactive> {
    type Output;

    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<Self::Output, Stop>;

    fn committed(&mut self, output: Self::Output, _scope: Scope) -> Result<Self::Output, Error> {
        Ok(output)
    }
}

impl<W: Interactive, O, F: FnMut(&mut W::Transaction<'_>) -> Result<O, Stop>> Body<W> for F {
    type Output = O;

    #[inline]
    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<O, Stop> {
        self(transaction)
    }
}

struct Running<'p, P>(&'p mut P);

impl<W: Interactive, P: Procedure> Body<W> for Running<'_, P> {
    type Output = P::Output;

    #[inline]
    fn run(&mut self, transaction: &mut W::Transaction<'_>) -> Result<P::Output, Stop> {
        self.0.run(transaction)
    }

    #[inline]
    fn committed(&mut self, output: P::Output, scope: Scope) -> Result<P::Output, Error> {
        tell_committed(self.0, output, scope)
    }
}

/// Tells a procedure that it has committed, in the transaction of this [scope](crate::LazyFutures::future_scope).
///
/// # Errors
/// [`Error::Panicked`]. It has committed nevertheless.
#[inline]
pub fn tell_committed<P: Procedure>(
    procedure: &mut P,
    mut output: P::Output,
    scope: Scope,
) -> Result<P::Output, Error> {
    let told = catch(|| procedure.committed(&mut output, &Resolved::of(scope)));
    match told {
        Ok(()) => Ok(output),
        Err(panic) => {
            discard(output);
            Err(Error::Panicked(panic.text()))
        }
    }
}

fn until_committed<W: Interactive, B: Body<W>>(worker: &mut W, mode: Mode, body: &mut B) -> Result<B::Output, Error> {
    let (mut attempts, mut endurance) = (0, None);
    loop {
        match attempt(worker, mode, body) {
            Attempt::Committed(output) => return Ok(output),
            Attempt::Failed(error) => {
                worker.counters().refused();
                return Err(error);
            }
            Attempt::Conflict => {
                attempts += 1;
                let abort = worker.last_abort();
                if let Some(abort) = &abort {
                    worker.counters().aborted(abort);
                }
                let error = worker.waits_for_itself();
                let through_others = || is_worn_out(worker, attempts, abort.as_ref(), &mut endurance);
                if let Some(error) = error.or_else(through_others) {
                    worker.counters().refused();
                    return Err(error);
                }
                if attempts >= worker.retry().attempts {
                    return Err(abort.map_or(Error::UnknownConflict, |abort| Error::Conflicts { attempts, abort }));
                }
                worker.back_off(attempts);
            }
        }
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
    let Some(&Abort { table, key, .. }) = abort.filter(|abort| is_in_the_way(abort.reason)) else {
        *endurance = None;
        return None;
    };
    if endurance.is_none() && !worker.is_nested() {
        return None;
    }
    // Between two steps it tries in quick succession: others may let go for moments only.
    if !attempts.is_multiple_of(ATTEMPTS_PER_LOOK) {
        return None;
    }
    let waits = endurance.get_or_insert_with(Endurance::begin).wait();
    (!waits).then_some(Error::WaitsForItself { table, key })
}

enum Attempt<O> {
    Committed(O),
    Conflict,
    Failed(Error),
}

#[inline]
fn attempt<W: Interactive, B: Body<W>>(worker: &mut W, mode: Mode, body: &mut B) -> Attempt<B::Output> {
    let _scope = futures::Attempt::begin();
    let mut transaction = match worker.begin(mode) {
        Ok(transaction) => transaction,
        Err(error) => return Attempt::Failed(error),
    };
    // The transaction is rolled back after a panic and never looked at again, so nothing half done can be observed.
    let result = catch(|| body.run(&mut transaction));
    let failure = match result {
        Ok(Ok(output)) => {
            let scope = transaction.future_scope();
            let Err(stop) = transaction.commit() else {
                if mode == Mode::ReadWrite {
                    worker.counters().committed();
                }
                return match body.committed(output, scope) {
                    Ok(output) => Attempt::Committed(output),
                    Err(error) => Attempt::Failed(error),
                };
            };
            discard(output);
            match stop.into_parts() {
                Stopped::Conflict => return Attempt::Conflict,
                Stopped::Failed(error) => return Attempt::Failed(error),
            }
        }
        Ok(Err(stop)) => match stop.into_parts() {
            // A transaction that the protocol has stopped is doomed, and `roll_back` tells. Any other would end like this each time.
            Stopped::Conflict => Error::UnknownConflict,
            Stopped::Failed(error) => error,
        },
        Err(panic) => panic.into_error(),
    };
    // A procedure that failed on reads which never stood together deserves another try, and so does one that was stopped.
    if transaction.roll_back() {
        return Attempt::Failed(failure);
    }
    // It may be an error of the procedure's own, with a destructor.
    discard(failure);
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

/// Ends the transaction whatever its procedure makes of errors: for who has left something half done in it. What drives it undoes it as
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

/// Drops an answer that nobody gets. Its destructor is somebody's code, which may panic.
#[inline]
pub fn discard<O>(answer: O) {
    if std::mem::needs_drop::<O>() {
        let _ = catch(move || drop(answer));
    }
}

/// A panic that was caught. What it carries is somebody's, and may panic once more where it is dropped: that stays here.
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
                Error::Panicked(self.text())
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
