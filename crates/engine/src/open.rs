//! A transaction that its client keeps: begun, used one operation after the other, and committed, rolled back or dropped.
//!
//! A protocol's transaction borrows its worker, which is needed again when the transaction has ended: to count what became of it, to learn why it
//! conflicted, and, where the object has the worker for itself, to give it back. So the object keeps the way to the worker beside the transaction
//! that borrows it. Nobody gets at that transaction itself: one that was exchanged for another could outlive its worker.
//!
//! Nothing is run again here. After an error that ends the transaction, each further operation answers with an error, and so does the commit.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{Projection, RowMut, RowRef, TableDefinition};

use crate::aggregate::{Group, Grouping};
use crate::futures::{
    Assigned, Attempt, Bytes, FutureColumn, NewRow, OpenKey, Operand, Outcome, Resolved, Scope, Value,
};
use crate::redo::Answers;
use crate::{
    ColumnBatch, Commit, Constraints, Insertion, Interactive, LazyFutures, Mode, Prefetch, Queries, Savepoints, Scan,
    Transaction, Worker, limits,
};

/// The receiver of a worker that an [`Open`] had for itself.
pub trait WorkerOwner<W> {
    /// Takes it back. Its transaction has ended.
    fn take_back(self, worker: Box<W>);
}

/// A worker that is lent has no other owner than who lent it.
#[derive(Debug)]
pub enum Lent {}

impl<W> WorkerOwner<W> for Lent {
    fn take_back(self, _: Box<W>) {
        match self {}
    }
}

/// A worker, lent for the transaction or given to it with its owner.
enum Source<'w, W, H> {
    Lent(&'w mut W),
    Owned(Box<W>, H),
}

/// An open transaction. Dropping it rolls it back.
///
/// It belongs to its thread, as its futures do, and what the engine knows of transactions inside of others: it is not [`Send`]. Forgetting it
/// leaks the transaction, which never commits; one that has its worker for itself leaks that, too, and what it has locked.
pub struct Open<'w, W: Interactive + 'w, H: WorkerOwner<W> = Lent> {
    /// There until it ends, which it does before the worker is used again.
    transaction: Option<W::Transaction<'w>>,
    /// The worker, which the transaction borrows.
    worker: NonNull<W>,
    owner: Option<H>,
    mode: Mode,
    /// It cannot go on: something half done is left in it.
    given_up: bool,
    answers: Answers,
    /// The thread does not wait for submissions meanwhile.
    _attempt: Attempt,
    lent: PhantomData<&'w mut W>,
}

impl<W: Interactive, H: WorkerOwner<W>> fmt::Debug for Open<'_, W, H> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Open").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl<'w, W: Interactive, H: WorkerOwner<W>> Open<'w, W, H> {
    /// Begins a transaction of a worker that is lent.
    ///
    /// # Errors
    /// As [`Interactive::begin`], and those of [`limits::check`].
    pub fn lend(worker: &'w mut W, answers: &Answers, mode: Mode) -> Result<Self, Error> {
        Self::begin(Source::Lent(worker), answers, mode)
    }

    fn begin(worker: Source<'w, W, H>, answers: &Answers, mode: Mode) -> Result<Self, Error> {
        let attempt = Attempt::begin();
        let (worker, owner) = match worker {
            Source::Lent(worker) => (NonNull::from(worker), None),
            Source::Owned(worker, owner) => (NonNull::from(Box::leak(worker)), Some(owner)),
        };
        // From here on the worker goes back to its owner whatever happens.
        let mut open = Self {
            transaction: None,
            worker,
            owner,
            mode,
            given_up: false,
            answers: answers.clone(),
            _attempt: attempt,
            lent: PhantomData,
        };
        limits::check()?;
        // SAFETY: only the object uses the worker, which it has borrowed for `'w`, or has in a box that is a pointer meanwhile. It does so again only
        // once its transaction has ended (`with_worker`, and `drop`, which ends the transaction first), and nobody else gets the transaction.
        let worker = unsafe { open.worker.as_mut() };
        worker.counters().open();
        if mode == Mode::ReadWrite {
            worker.admit()?;
        }
        open.transaction = Some(worker.begin(mode)?);
        Ok(open)
    }

    /// Commits, and answers when what the transaction has read and written is durable, as far as `answers` wait for that; the worker is back by then.
    /// After an error nothing of the transaction remains, but for [`Error::LogStopped`]. What its operations have answered is to be believed when this
    /// has.
    ///
    /// # Errors
    /// [`Error::Conflicts`], with the reason: the same transaction, begun again, may commit. [`Error::WaitsForItself`] in its place where it would
    /// conflict again for as long as what this thread has open is open, and where it conflicts for the second time in a row, or repeatedly, with
    /// what this thread has committed since it began: that is no [conflict](Error::is_conflict), so a loop that begins conflicts again ends.
    /// [`Error::Ended`] where an operation has ended it. Refusals such as [`Error::OutOfMemory`], [`Error::TimedOut`] and [`Error::Cancelled`], which
    /// come before it has committed; [`Error::LogStopped`] where it may have.
    pub fn commit(mut self) -> Result<(), Error> {
        let ended = self.end();
        self.answer(ended)
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.given_up {
            return Err(Error::Ended);
        }
        limits::check()?;
        let transaction = self.transaction.take().expect("it is there until it ends");
        match transaction.commit() {
            Ok(()) if self.mode == Mode::ReadWrite => self.with_worker(|worker| worker.counters().committed()),
            Ok(()) => {}
            Err(error) if error.is_conflict() => return Err(self.with_worker(|worker| conflict(worker))),
            Err(error) => {
                self.with_worker(|worker| worker.counters().refused());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Commits, and gives the values of the futures in an answer.
    ///
    /// # Errors
    /// As [`Open::commit`]. A future that has no value, or is another transaction's, is [`Error::NoValue`] although the transaction has committed.
    pub fn commit_resolved<O: Outcome>(mut self, answer: O) -> Result<O::Values, Error> {
        let scope = self.future_scope();
        self.commit()?;
        Ok(answer.resolve(&Resolved::of(scope))?)
    }

    /// Undoes the transaction, and answers whether what it had read was consistent, and is durable, as [`Open::commit`] has it. If not, the reason for
    /// the rollback may come from reads that do not count.
    pub fn rollback(mut self) -> bool {
        let is_consistent = self.undo();
        is_consistent && self.answer(Ok(())).is_ok()
    }

    /// Gives the worker back, and then the answer. A conflict is none: the client begins again.
    fn answer(mut self, ended: Result<(), Error>) -> Result<(), Error> {
        if self.answers.is_empty() || ended.as_ref().is_err_and(Error::is_conflict) {
            return ended;
        }
        self.undo();
        let ticket = self.with_worker(Worker::take_ticket);
        let answers = std::mem::take(&mut self.answers);
        drop(self);
        answers.give(ticket, ended)
    }

    fn undo(&mut self) -> bool {
        let Some(transaction) = self.transaction.take() else { return true };
        // A panic of the client's own code may have left anything: it is only undone.
        let is_consistent = if std::thread::panicking() || self.given_up {
            drop(transaction);
            true
        } else {
            transaction.roll_back()
        };
        if !is_consistent {
            self.with_worker(|worker| conflict(worker));
        } else if self.mode == Mode::ReadWrite {
            self.with_worker(|worker| worker.counters().refused());
        }
        is_consistent
    }

    /// Lends the worker, when the transaction has ended.
    fn with_worker<O>(&mut self, work: impl FnOnce(&mut W) -> O) -> O {
        assert!(self.transaction.is_none(), "the transaction borrows the worker");
        // SAFETY: the worker is the object's, see `begin`, and the transaction, which borrowed it, is gone.
        work(unsafe { self.worker.as_mut() })
    }

    /// Runs an operation, unless the transaction cannot go on.
    #[inline]
    fn act<'t, O>(
        &'t mut self,
        operation: impl FnOnce(&'t mut W::Transaction<'w>) -> Result<O, Error>,
    ) -> Result<O, Error> {
        if self.given_up {
            return Err(Error::Ended);
        }
        let Self { transaction, given_up, .. } = self;
        let transaction = transaction.as_mut().expect("it is there until it ends");
        match catch_unwind(AssertUnwindSafe(|| operation(transaction))) {
            Ok(outcome) => outcome,
            // What the engine ends a transaction with from its inside, as `drive` expects it; other panics are the client's own.
            Err(panic) => match panic.downcast::<Error>() {
                Ok(error) => {
                    *given_up = true;
                    Err(*error)
                }
                Err(panic) => resume_unwind(panic),
            },
        }
    }

    fn look(&self) -> &W::Transaction<'w> {
        self.transaction.as_ref().expect("it is there until it ends")
    }

    fn reach(&mut self) -> &mut W::Transaction<'w> {
        self.transaction.as_mut().expect("it is there until it ends")
    }
}

/// The latest transaction of a worker has ended in a conflict.
#[cold]
fn conflict<W: Interactive>(worker: &mut W) -> Error {
    let abort = worker.last_abort();
    if let Some(abort) = &abort {
        worker.counters().aborted(abort, 1);
    }
    if let Some(error) = worker.waits_for_itself() {
        worker.counters().refused();
        return error;
    }
    abort.map_or(Error::Conflict, |abort| Error::conflicts(1, abort))
}

impl<W: Interactive + 'static, H: WorkerOwner<W>> Open<'static, W, H> {
    /// Begins a transaction of a worker that goes back to its owner when the object is dropped.
    ///
    /// # Errors
    /// As [`Open::lend`]. The worker is back with its owner then.
    pub fn own(worker: Box<W>, owner: H, answers: &Answers, mode: Mode) -> Result<Self, Error> {
        Self::begin(Source::Owned(worker, owner), answers, mode)
    }
}

impl<W: Interactive, H: WorkerOwner<W>> Drop for Open<'_, W, H> {
    fn drop(&mut self) {
        self.undo();
        self.with_worker(|worker| worker.counters().close());
        if let Some(owner) = self.owner.take() {
            // SAFETY: a worker that has an owner was in a box, in `begin`. The transaction, which borrowed it, is gone.
            owner.take_back(unsafe { Box::from_raw(self.worker.as_ptr()) });
        }
    }
}

impl<W: Interactive, H: WorkerOwner<W>> Transaction for Open<'_, W, H> {
    #[inline]
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        self.act(|transaction| transaction.read_row(table, key, projection))
    }

    #[inline]
    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        self.act(|transaction| transaction.read_row_unvalidated(table, key, projection))
    }

    #[inline]
    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        self.act(|transaction| transaction.update_unchecked(table, key, projection, change))
    }

    #[inline]
    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        self.act(|transaction| transaction.insert_unchecked(table, key, row))
    }

    #[inline]
    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        self.act(|transaction| transaction.put_unchecked(table, key, row))
    }

    #[inline]
    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        self.act(|transaction| transaction.delete_unchecked(table, key))
    }

    #[inline]
    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.act(|transaction| transaction.scan_unchecked(scan, visitor))
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.act(Transaction::mark)
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.act(|transaction| transaction.undo_unchecked(position))
    }

    fn mark_operation(&mut self) -> Result<usize, Error> {
        self.act(Transaction::mark_operation)
    }

    fn undo_operation(&mut self, position: usize) -> Result<(), Error> {
        self.act(|transaction| transaction.undo_operation(position))
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.reach().savepoints()
    }

    fn is_reconnaissance(&self) -> bool {
        self.look().is_reconnaissance()
    }

    #[inline]
    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        self.look().definition(table)
    }

    #[inline]
    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        self.look().constraints(table)
    }

    fn protect_reads(&mut self, protect: bool) {
        self.reach().protect_reads(protect);
    }

    fn give_up(&mut self, error: Error) -> Error {
        self.given_up = true;
        error
    }
}

impl<W: Interactive, H: WorkerOwner<W>> Queries for Open<'_, W, H> {
    fn visit_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.act(|transaction| transaction.visit_table(table, projection, visitor))
    }

    fn aggregate_range(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        self.act(|transaction| transaction.aggregate_range(scan, grouping))
    }

    fn visit_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.act(|transaction| transaction.visit_columns(scan, columns, look, keep))
    }
}

impl<W: Interactive, H: WorkerOwner<W>> LazyFutures for Open<'_, W, H> {
    fn future_scope(&mut self) -> Scope {
        self.reach().future_scope()
    }

    fn read_futures<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        columns: &[FutureColumn],
        futures: &mut [Operand],
    ) -> Result<(), Error> {
        self.act(|transaction| transaction.read_futures(table, key, columns, futures))
    }

    fn test_future(&mut self, condition: Operand) -> Result<bool, Error> {
        self.act(|transaction| transaction.test_future(condition))
    }

    fn test_future_assuming(&mut self, condition: Operand, assumed: bool) -> Result<bool, Error> {
        self.act(|transaction| transaction.test_future_assuming(condition, assumed))
    }

    fn write_futures<K: EncodedKey>(&mut self, table: TableId, key: K, columns: &Assigned) -> Result<(), Error> {
        self.act(|transaction| transaction.write_futures(table, key, columns))
    }

    fn write_futures_at(&mut self, table: TableId, key: &OpenKey, columns: &Assigned) -> Result<(), Error> {
        self.act(|transaction| transaction.write_futures_at(table, key, columns))
    }

    fn insert_futures(
        &mut self,
        table: TableId,
        key: &OpenKey,
        row: NewRow<'_>,
        columns: &Assigned,
    ) -> Result<(), Error> {
        self.act(|transaction| transaction.insert_futures(table, key, row, columns))
    }

    fn resolve_future(&mut self, future: Operand) -> Result<Value<Bytes>, Error> {
        self.act(|transaction| transaction.resolve_future(future))
    }
}

impl<W: Interactive, H: WorkerOwner<W>> Prefetch for Open<'_, W, H> {
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        self.reach().prefetch_row(table, key);
    }

    fn has_prefetched(&self) -> bool {
        self.look().has_prefetched()
    }
}
