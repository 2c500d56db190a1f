//! One run of a procedure, and its answer.

use polychron_base::Error;
use polychron_engine::drive::Failure;
use polychron_engine::futures::{Attempt, Scope};
use polychron_engine::{LazyFutures, Procedure, drive};

use super::transaction::BohmTransaction;

/// How a run of a procedure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It is content, and has left its answer.
    Commit,
    /// It failed, and has left the error.
    RollBack,
    /// It passed a conflict on.
    Conflict,
}

/// How a procedure has failed.
pub(super) struct Ended<E> {
    pub(super) failure: Failure<E>,
    /// It is worth another try when there is more memory.
    pub(super) wants_memory: bool,
}

impl<E> Ended<E> {
    /// It was refused by the engine.
    pub(super) fn by(error: Error) -> Self {
        let wants_memory = matches!(error, Error::OutOfMemory(_));
        Self { failure: Failure::Engine(error), wants_memory }
    }
}

/// The result of a run: its answer, and the scope of its futures.
type Left<O, E> = Result<(O, Scope), Ended<E>>;

/// The same of a procedure of the type `P`.
pub(super) type Answer<P> = Left<<P as Procedure>::Output, <P as Procedure>::Error>;

/// Reports to a procedure that it has committed, and makes of its answer what its client gets.
pub(super) fn finish_answer<P: Procedure>(procedure: &mut P, answer: Answer<P>) -> Result<P::Output, P::Error> {
    let outcome = match answer {
        Ok((output, scope)) => drive::report_committed(procedure, output, scope).map_err(Failure::Engine),
        Err(ended) => Err(ended.failure),
    };
    outcome.map_err(Failure::into_own)
}

/// Runs a body once. Returns its answer with the scope of its futures.
pub(super) fn attempt<O, E>(
    transaction: &mut BohmTransaction<'_>,
    body: &mut dyn FnMut(&mut BohmTransaction<'_>) -> Result<O, E>,
) -> (Ran, Option<Left<O, E>>) {
    let refuse = |error| (Ran::RollBack, Some(Err(Ended::by(error))));
    if let Some(refusal) = transaction.refusal() {
        return refuse(refusal);
    }
    let _scope = Attempt::begin();
    // The transaction discards what a procedure put that panics, so nothing half done can be observed.
    match drive::catch(|| body(transaction)) {
        // A procedure may take the refusal of a write for an answer, but it would commit without that write.
        Ok(Ok(output)) if let Some(failure) = transaction.failure() => {
            drive::discard(output);
            refuse(failure)
        }
        Ok(Ok(output)) => match transaction.stage_changes() {
            Ok(()) => (Ran::Commit, Some(Ok((output, transaction.future_scope())))),
            Err(error) => {
                drive::discard(output);
                if transaction.doomed { (Ran::Conflict, None) } else { refuse(error) }
            }
        },
        // It is the transaction that knows why the procedure failed, whatever that has made of it.
        Ok(Err(own)) if let Some(requested) = transaction.lost => {
            drive::discard(own);
            refuse(transaction.out_of_memory(requested))
        }
        Ok(Err(own)) if transaction.doomed => {
            drive::discard(own);
            (Ran::Conflict, None)
        }
        Ok(Err(own)) => {
            let ended = Ended { failure: Failure::Own(own), wants_memory: transaction.was_refused_memory };
            (Ran::RollBack, Some(Err(ended)))
        }
        Err(panic) => refuse(panic.into_error()),
    }
}
