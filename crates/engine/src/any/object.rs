//! The traits of the plug point without type parameters, each implemented by whatever implements the original.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polychron_base::clock::Duration;

use super::{Erased, Naming};
use crate::aggregate::{Group, Grouping};
use crate::drive::{Failure, discard};
use crate::futures::{Assigned, Bytes, FutureColumn, NewRow, OpenKey, Operand, Resolved, Scope, Value};
use crate::{
    Abort, Access, ColumnBatch, Commit, Constraints, Counters, Declare, Error, Insertion, Interactive, Isolation,
    LoadedRow, Mode, Procedure, Projection, Protocol, RowMut, RowRef, Savepoints, Scan, Storage, TableDefinition,
    TableId, Ticket, Transaction, Worker, options,
};

/// [`Protocol`].
pub(super) trait Database: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn name(&self) -> &'static str;
    fn isolation(&self) -> Isolation;
    fn storage(&self) -> &dyn Storage;
    fn worker(&self) -> Result<Box<dyn WorkerObject>, Error>;
}

/// An open database of the protocol `P`, whose workers are driven as `S` says.
pub(super) struct Opened<P, S>(pub(super) Arc<P>, pub(super) PhantomData<fn() -> S>);

impl<P: Protocol, S: Steps<P::Worker>> Database for Opened<P, S> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn isolation(&self) -> Isolation {
        self.0.isolation()
    }

    fn storage(&self) -> &dyn Storage {
        self.0.storage()
    }

    fn worker(&self) -> Result<Box<dyn WorkerObject>, Error> {
        Ok(Box::new(Driven::<P::Worker, S> { worker: self.0.worker()?, protocol: self.0.name(), steps: PhantomData }))
    }
}

/// [`Worker`] and [`Interactive`].
pub(super) trait WorkerObject: Send {
    fn execute(&mut self, procedure: &mut dyn Run) -> Outcome;
    fn execute_batch(&mut self, procedures: &mut [Unnamed<'_>], done: &mut dyn FnMut(usize, Outcome));
    fn execute_batch_with(&mut self, procedures: &mut [Unnamed<'_>], done: &(dyn Fn(usize, Outcome) + Sync));
    fn help_others(&mut self) -> Option<bool>;
    fn snapshot(&mut self, procedure: &mut dyn Run) -> Outcome;
    fn read_one(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        read: &mut (dyn FnMut(Option<RowRef<'_>>) + Send),
    ) -> Result<(), Error>;
    fn load(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error>;
    fn admit(&mut self) -> Result<(), Error>;
    fn take_ticket(&mut self) -> Ticket;
    fn counters(&self) -> &Counters;
    fn maintain(&mut self);
    fn begin(&mut self, mode: Mode) -> Result<Box<dyn End + '_>, Error>;
    fn holds_transactions(&self) -> bool;
    fn last_abort(&self) -> Option<Abort>;
    fn waits_for_itself(&self) -> Option<Error>;
    fn is_nested(&self) -> bool;
    fn await_snapshot(&mut self, longest: Duration) -> bool;
    fn keeps_readers(&self, mode: Mode) -> bool;
    fn back_off(&mut self, attempts: u64);
    fn retry(&self) -> &options::Retry;
}

/// [`Interactive`], for workers that have it and for those that do not.
pub(super) trait Steps<W>: 'static {
    /// `protocol` is its name.
    fn begin<'w>(worker: &'w mut W, mode: Mode, protocol: &'static str) -> Result<Box<dyn End + 'w>, Error>;
    fn holds_transactions(worker: &W) -> bool;
    fn last_abort(worker: &W) -> Option<Abort>;
    fn waits_for_itself(worker: &W) -> Option<Error>;
    fn is_nested(worker: &W) -> bool;
    fn await_snapshot(worker: &mut W, longest: Duration) -> bool;
    fn keeps_readers(worker: &W, mode: Mode) -> bool;
    fn back_off(worker: &mut W, attempts: u64);
    fn retry(worker: &W) -> &options::Retry;
}

/// Clients drive transactions step by step.
pub(super) struct Stepped;

impl<W: Interactive> Steps<W> for Stepped {
    fn begin<'w>(worker: &'w mut W, mode: Mode, _: &'static str) -> Result<Box<dyn End + 'w>, Error> {
        Ok(Box::new(worker.begin(mode)?))
    }

    fn holds_transactions(worker: &W) -> bool {
        worker.holds_transactions()
    }

    fn last_abort(worker: &W) -> Option<Abort> {
        worker.last_abort()
    }

    fn waits_for_itself(worker: &W) -> Option<Error> {
        worker.waits_for_itself()
    }

    fn is_nested(worker: &W) -> bool {
        worker.is_nested()
    }

    fn await_snapshot(worker: &mut W, longest: Duration) -> bool {
        worker.await_snapshot(longest)
    }

    fn keeps_readers(worker: &W, mode: Mode) -> bool {
        worker.keeps_readers(mode)
    }

    fn back_off(worker: &mut W, attempts: u64) {
        worker.back_off(attempts);
    }

    fn retry(worker: &W) -> &options::Retry {
        worker.retry()
    }
}

/// Whole procedures alone are executed.
pub(super) struct Whole;

impl<W> Steps<W> for Whole {
    fn begin<'w>(_: &'w mut W, _: Mode, protocol: &'static str) -> Result<Box<dyn End + 'w>, Error> {
        Err(Error::unsupported(protocol, "transactions that are driven step by step"))
    }

    fn holds_transactions(_: &W) -> bool {
        false
    }

    fn last_abort(_: &W) -> Option<Abort> {
        None
    }

    fn waits_for_itself(_: &W) -> Option<Error> {
        None
    }

    fn is_nested(_: &W) -> bool {
        false
    }

    fn await_snapshot(_: &mut W, _: Duration) -> bool {
        false
    }

    fn keeps_readers(_: &W, _: Mode) -> bool {
        false
    }

    fn back_off(_: &mut W, _: u64) {}

    fn retry(_: &W) -> &options::Retry {
        const { &options::Retry::DEFAULT }
    }
}

/// A worker, and how it is driven.
struct Driven<W, S> {
    worker: W,
    protocol: &'static str,
    steps: PhantomData<fn() -> S>,
}

impl<W: Worker + 'static, S: Steps<W>> WorkerObject for Driven<W, S> {
    fn execute(&mut self, procedure: &mut dyn Run) -> Outcome {
        Worker::execute(&mut self.worker, &mut Unnamed(procedure))
    }

    fn execute_batch(&mut self, procedures: &mut [Unnamed<'_>], done: &mut dyn FnMut(usize, Outcome)) {
        Worker::execute_batch(&mut self.worker, procedures, &mut |position, outcome| done(position, outcome));
    }

    fn execute_batch_with(&mut self, procedures: &mut [Unnamed<'_>], done: &(dyn Fn(usize, Outcome) + Sync)) {
        Worker::execute_batch_with(&mut self.worker, procedures, &|position, outcome| done(position, outcome), |_| ());
    }

    fn help_others(&mut self) -> Option<bool> {
        Worker::help_others(&mut self.worker)
    }

    fn snapshot(&mut self, procedure: &mut dyn Run) -> Outcome {
        Worker::snapshot(&mut self.worker, &mut Unnamed(procedure))
    }

    fn read_one(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        read: &mut (dyn FnMut(Option<RowRef<'_>>) + Send),
    ) -> Result<(), Error> {
        Worker::read_one(&mut self.worker, table, key, projection, read)
    }

    fn load(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
        self.worker.load(table, rows)
    }

    fn admit(&mut self) -> Result<(), Error> {
        self.worker.admit()
    }

    fn take_ticket(&mut self) -> Ticket {
        self.worker.take_ticket()
    }

    fn counters(&self) -> &Counters {
        self.worker.counters()
    }

    fn maintain(&mut self) {
        self.worker.maintain();
    }

    fn begin(&mut self, mode: Mode) -> Result<Box<dyn End + '_>, Error> {
        S::begin(&mut self.worker, mode, self.protocol)
    }

    fn holds_transactions(&self) -> bool {
        S::holds_transactions(&self.worker)
    }

    fn last_abort(&self) -> Option<Abort> {
        S::last_abort(&self.worker)
    }

    fn waits_for_itself(&self) -> Option<Error> {
        S::waits_for_itself(&self.worker)
    }

    fn is_nested(&self) -> bool {
        S::is_nested(&self.worker)
    }

    fn await_snapshot(&mut self, longest: Duration) -> bool {
        S::await_snapshot(&mut self.worker, longest)
    }

    fn keeps_readers(&self, mode: Mode) -> bool {
        S::keeps_readers(&self.worker, mode)
    }

    fn back_off(&mut self, attempts: u64) {
        S::back_off(&mut self.worker, attempts);
    }

    fn retry(&self) -> &options::Retry {
        S::retry(&self.worker)
    }
}

/// How a procedure of an unknown type has ended: its answer, or its own error, is where its owner finds it.
pub(super) type Outcome = Result<(), Failure<()>>;

/// [`Procedure`], which leaves its answer where its owner finds it.
pub(super) trait Run: Send {
    fn run(&mut self, transaction: &mut dyn Operate) -> Outcome;
    fn committed(&mut self, resolved: &Resolved);
    fn declare(&self, declaration: &mut dyn Name);
}

/// The answer of the procedure's last run. An answer that no thread gets is dropped where it may panic.
pub(super) struct Answer<O, E>(Mutex<Option<Result<O, E>>>);

impl<O, E> Default for Answer<O, E> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<O, E> Answer<O, E> {
    fn lock(&self) -> MutexGuard<'_, Option<Result<O, E>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, answer: Result<O, E>) {
        let before = self.lock().replace(answer);
        discard(before);
    }

    /// The answer of a procedure that ended like this.
    pub(super) fn take(&self, outcome: Outcome) -> Result<O, E>
    where
        E: From<Error>,
    {
        match outcome {
            Ok(()) | Err(Failure::Own(())) => self.lock().take().expect("a procedure that has ended so has answered"),
            Err(Failure::Engine(error)) => Err(error.into()),
        }
    }
}

impl<O, E> Drop for Answer<O, E> {
    fn drop(&mut self) {
        discard(self.lock().take());
    }
}

/// A procedure of a type that is known, and the place of its answer.
pub(super) struct Held<'p, P: Procedure> {
    pub(super) procedure: &'p mut P,
    pub(super) answer: &'p Answer<P::Output, P::Error>,
}

impl<P: Procedure> Run for Held<'_, P> {
    fn run(&mut self, transaction: &mut dyn Operate) -> Outcome {
        let answer = self.procedure.run(&mut Erased(transaction));
        let outcome = if answer.is_ok() { Ok(()) } else { Err(Failure::Own(())) };
        self.answer.put(answer);
        outcome
    }

    fn committed(&mut self, resolved: &Resolved) {
        if let Some(Ok(output)) = &mut *self.answer.lock() {
            self.procedure.committed(output, resolved);
        }
    }

    fn declare(&self, declaration: &mut dyn Name) {
        self.procedure.declare(&mut Naming(declaration));
    }
}

/// A procedure of a type that is not known: the only one that the chosen protocol is compiled for.
pub(super) struct Unnamed<'p>(pub(super) &'p mut dyn Run);

impl Procedure for Unnamed<'_> {
    type Output = ();
    type Error = Failure<()>;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Outcome {
        self.0.run(transaction)
    }

    fn committed(&mut self, _output: &mut (), resolved: &Resolved) {
        self.0.committed(resolved);
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.0.declare(declaration);
    }
}

/// [`Declare`].
pub(super) trait Name {
    fn key(&mut self, table: TableId, key: &[u8], access: Access);
    fn prefix(&mut self, table: TableId, prefix: &[u8], access: Access);
    fn partition(&mut self, partition: u64);
    fn unknown(&mut self);
}

impl<D: Declare> Name for D {
    fn key(&mut self, table: TableId, key: &[u8], access: Access) {
        Declare::key(self, table, key, access);
    }

    fn prefix(&mut self, table: TableId, prefix: &[u8], access: Access) {
        Declare::prefix(self, table, prefix, access);
    }

    fn partition(&mut self, partition: u64) {
        Declare::partition(self, partition);
    }

    fn unknown(&mut self) {
        Declare::unknown(self);
    }
}

/// [`Commit`].
pub trait End: Operate {
    /// As there.
    #[allow(clippy::missing_errors_doc)]
    fn commit(self: Box<Self>) -> Result<(), Error>;
    /// As there.
    fn roll_back(self: Box<Self>) -> bool;
    /// Forgets the transaction, and gives its memory back.
    fn leak(self: Box<Self>);
}

impl<T: Commit> End for T {
    fn commit(self: Box<Self>) -> Result<(), Error> {
        Commit::commit(*self)
    }

    fn roll_back(self: Box<Self>) -> bool {
        Commit::roll_back(*self)
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(*self);
    }
}

/// A path to a transaction.
pub trait Reach {
    /// The transaction.
    fn operate(&mut self) -> &mut (dyn Operate + '_);
    /// As [`Reach::operate`].
    fn look(&self) -> &(dyn Operate + '_);
}

impl Reach for Box<dyn End + '_> {
    fn operate(&mut self) -> &mut (dyn Operate + '_) {
        &mut **self
    }

    fn look(&self) -> &(dyn Operate + '_) {
        &**self
    }
}

impl Reach for &mut (dyn Operate + '_) {
    fn operate(&mut self) -> &mut (dyn Operate + '_) {
        &mut **self
    }

    fn look(&self) -> &(dyn Operate + '_) {
        &**self
    }
}

macro_rules! operate {
    ($(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)+) => {
        /// [`Transaction`].
        #[allow(missing_docs, clippy::missing_errors_doc)]
        pub trait Operate {
            $(fn $name(&mut self $(, $argument: $type)*) $(-> $answer)?;)+
            fn update_unchecked(
                &mut self,
                table: TableId,
                key: &[u8],
                projection: &Projection,
                change: &mut dyn FnMut(&mut RowMut<'_>),
            ) -> Result<bool, Error>;
            fn scan_unchecked(
                &mut self,
                scan: &Scan<'_>,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Error>;
            fn visit_table(
                &mut self,
                table: TableId,
                projection: &Projection,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Error>;
            fn visit_columns(
                &mut self,
                scan: &Scan<'_>,
                columns: &[usize],
                look: &mut dyn FnMut(&ColumnBatch<'_>),
                keep: &mut dyn FnMut() -> ControlFlow<()>,
            ) -> Result<(), Error>;
            fn has_prefetched(&self) -> bool;
            fn is_reconnaissance(&self) -> bool;
            fn definition(&self, table: TableId) -> Result<&TableDefinition, Error>;
            fn constraints(&self, table: TableId) -> Result<&Constraints, Error>;
        }

        impl<T: Transaction> Operate for T {
            $(
                fn $name(&mut self $(, $argument: $type)*) $(-> $answer)? {
                    T::$name(self $(, $argument)*)
                }
            )+

            fn update_unchecked(
                &mut self,
                table: TableId,
                key: &[u8],
                projection: &Projection,
                change: &mut dyn FnMut(&mut RowMut<'_>),
            ) -> Result<bool, Error> {
                T::update_unchecked(self, table, key, projection, change)
            }

            fn scan_unchecked(
                &mut self,
                scan: &Scan<'_>,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Error> {
                T::scan_unchecked(self, scan, &mut |row| visitor(row))
            }

            fn visit_table(
                &mut self,
                table: TableId,
                projection: &Projection,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Error> {
                T::visit_table(self, table, projection, &mut |row| visitor(row))
            }

            fn visit_columns(
                &mut self,
                scan: &Scan<'_>,
                columns: &[usize],
                look: &mut dyn FnMut(&ColumnBatch<'_>),
                keep: &mut dyn FnMut() -> ControlFlow<()>,
            ) -> Result<(), Error> {
                T::visit_columns(self, scan, columns, &mut |batch| look(batch), &mut |()| keep())
            }

            fn has_prefetched(&self) -> bool {
                T::has_prefetched(self)
            }

            fn is_reconnaissance(&self) -> bool {
                T::is_reconnaissance(self)
            }

            fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
                T::definition(self, table)
            }

            fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
                T::constraints(self, table)
            }
        }
    };
}

operate! {
    fn read_row(&mut self, table: TableId, key: &[u8], projection: &Projection) -> Result<Option<RowRef<'_>>, Error>;
    fn read_row_unvalidated(&mut self, table: TableId, key: &[u8], projection: &Projection) -> Result<Option<RowRef<'_>>, Error>;
    fn insert_unchecked(&mut self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Error>;
    fn put_unchecked(&mut self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Error>;
    fn delete_unchecked(&mut self, table: TableId, key: &[u8]) -> Result<bool, Error>;
    fn aggregate_range(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error>;
    fn read_futures(&mut self, table: TableId, key: &[u8], columns: &[FutureColumn], futures: &mut [Operand]) -> Result<(), Error>;
    fn test_future(&mut self, condition: Operand) -> Result<bool, Error>;
    fn test_future_assuming(&mut self, condition: Operand, assumed: bool) -> Result<bool, Error>;
    fn write_futures(&mut self, table: TableId, key: &[u8], columns: &Assigned) -> Result<(), Error>;
    fn write_futures_at(&mut self, table: TableId, key: &OpenKey, columns: &Assigned) -> Result<(), Error>;
    fn insert_futures(&mut self, table: TableId, key: &OpenKey, row: NewRow<'_>, columns: &Assigned) -> Result<(), Error>;
    fn resolve_future(&mut self, future: Operand) -> Result<Value<Bytes>, Error>;
    fn future_scope(&mut self) -> Scope;
    fn leaves_futures_open(&mut self) -> bool;
    fn mark(&mut self) -> Result<usize, Error>;
    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error>;
    fn mark_operation(&mut self) -> Result<usize, Error>;
    fn undo_operation(&mut self, position: usize) -> Result<(), Error>;
    fn savepoints(&mut self) -> &mut Savepoints;
    fn prefetch_row(&mut self, table: TableId, key: &[u8]);
    fn protect_reads(&mut self, protect: bool);
}
