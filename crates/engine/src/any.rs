//! A protocol that is chosen when the program runs: every operation is one virtual call.
//!
//! Code over [`Protocol`] is compiled once for each protocol, which is what makes it fast, and what makes large code slow to
//! build. [`AnyProtocol`] is a protocol itself, so that code which is large and not hot (the tests of behaviour, above all)
//! runs over it unchanged and is compiled once. Keys come to the chosen protocol as bytes.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_base::key::{EncodedKey, MAX_KEY_BYTES};

use crate::aggregate::{Group, Grouping};
use crate::futures::{Assigned, Bytes, FutureColumn, NewRow, OpenKey, Operand, Scope, Value};
use crate::keys::with_bytes_of;
use crate::{
    Abort, Access, ColumnBatch, Commit, Common, Constraints, Counters, Declare, Error, Insertion, Interactive,
    Isolation, LazyFutures, LoadedRow, Mode, Prefetch, Procedure, Projection, Protocol, Queries, RowMut, RowRef,
    Savepoints, Scan, Storage, TableDefinition, TableId, Ticket, Transaction, Worker, options,
};

mod object;

use object::{Answer, Database, End, Held, Name, Opened, Reach, Stepped, Steps, Unnamed, Whole, WorkerObject};

/// A database of a protocol that its options, or who opened it, chose.
pub struct AnyProtocol(Box<dyn Database>);

impl AnyProtocol {
    /// An open database of the protocol `P`, for whole procedures.
    pub fn over<P: Protocol>(database: &Arc<P>) -> Arc<Self> {
        Arc::new(Self(Box::new(Opened::<P, Whole>(Arc::clone(database), PhantomData))))
    }

    /// The database of the chosen protocol, if it is one of `P` that [`AnyOptions::interactive`] opened.
    pub fn database<P: Protocol<Worker: Interactive>>(&self) -> Option<&Arc<P>> {
        let opened = self.0.as_any().downcast_ref::<Opened<P, Stepped>>();
        opened.map(|opened| &opened.0)
    }
}

impl fmt::Debug for AnyProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AnyProtocol").finish_non_exhaustive()
    }
}

type Open = dyn Fn(Common) -> Result<Box<dyn Database>, Error> + Send + Sync;
/// The same options with another value of one.
type Set = dyn Fn(&str, &str) -> Result<AnyOptions, Error> + Send + Sync;

/// A protocol with its own options. By default there is none, and nothing can be opened.
#[derive(Clone, Default)]
pub struct AnyOptions {
    chosen: Option<Chosen>,
}

#[derive(Clone)]
struct Chosen {
    open: Arc<Open>,
    set: Arc<Set>,
}

impl AnyOptions {
    /// The protocol `P` with these options, for whole procedures: none of its transactions can be begun interactively.
    pub fn of<P: Protocol>(options: P::Options) -> Self {
        Self::opened::<P, Whole>(options)
    }

    /// The protocol `P` with these options, for whole procedures and for transactions that are driven step by step.
    pub fn interactive<P: Protocol<Worker: Interactive>>(options: P::Options) -> Self {
        Self::opened::<P, Stepped>(options)
    }

    fn opened<P: Protocol, S: Steps<P::Worker>>(options: P::Options) -> Self {
        let before = options.clone();
        let set = move |name: &str, value: &str| {
            let mut options = before.clone();
            P::set_option(&mut options, name, value)?;
            Ok(Self::opened::<P, S>(options))
        };
        let open = move |common| {
            let database = P::open(options.clone(), common)?;
            Ok(Box::new(Opened::<P, S>(database, PhantomData)) as Box<dyn Database>)
        };
        Self { chosen: Some(Chosen { open: Arc::new(open), set: Arc::new(set) }) }
    }
}

impl fmt::Debug for AnyOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AnyOptions").field("chosen", &self.chosen.is_some()).finish()
    }
}

impl Protocol for AnyProtocol {
    const NAME: &'static str = "any";
    const SUMMARY: &'static str = "the protocol that the options name, behind virtual calls";
    // What the chosen protocol promises, the open database tells.
    const ISOLATION: Isolation = Isolation::Nothing;

    type Options = AnyOptions;
    type Worker = AnyWorker;
    type Driven = AnyWorker;

    fn open(options: AnyOptions, common: Common) -> Result<Arc<Self>, Error> {
        let chosen = options.chosen.ok_or_else(|| Error::options("no protocol was chosen"))?;
        Ok(Arc::new(Self((chosen.open)(common)?)))
    }

    fn set_option(options: &mut AnyOptions, name: &str, value: &str) -> Result<(), Error> {
        let chosen = options.chosen.as_ref().ok_or_else(|| Error::options("no protocol was chosen"))?;
        *options = (chosen.set)(name, value)?;
        Ok(())
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

    fn worker(self: &Arc<Self>) -> Result<AnyWorker, Error> {
        self.0.worker().map(AnyWorker)
    }
}

/// A worker of [`AnyProtocol`].
pub struct AnyWorker(Box<dyn WorkerObject>);

impl fmt::Debug for AnyWorker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AnyWorker").finish_non_exhaustive()
    }
}

impl Worker for AnyWorker {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        let answer = Answer::default();
        let outcome = self.0.execute(&mut Held { procedure, answer: &answer });
        answer.take(outcome)
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
    ) {
        let answers: Vec<_> = procedures.iter().map(|_| Answer::default()).collect();
        let held = procedures.iter_mut().zip(&answers).map(|(procedure, answer)| Held { procedure, answer });
        let mut held: Vec<_> = held.collect();
        let mut unnamed: Vec<_> = held.iter_mut().map(|held| Unnamed(held)).collect();
        self.0.execute_batch(&mut unnamed, &mut |position, outcome| {
            done(position, answers[position].take(outcome));
        });
    }

    // One type after the other: what `others` calls has to get this worker.
    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &(impl Fn(usize, Result<P::Output, P::Error>) + Sync),
        others: impl FnOnce(&mut Self),
    ) {
        let answers: Vec<_> = procedures.iter().map(|_| Answer::default()).collect();
        let held = procedures.iter_mut().zip(&answers).map(|(procedure, answer)| Held { procedure, answer });
        let mut held: Vec<_> = held.collect();
        let mut unnamed: Vec<_> = held.iter_mut().map(|held| Unnamed(held)).collect();
        self.0.execute_batch_with(&mut unnamed, &|position, outcome| {
            done(position, answers[position].take(outcome));
        });
        drop(unnamed);
        others(self);
    }

    fn help_others(&mut self) -> Option<bool> {
        self.0.help_others()
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        let answer = Answer::default();
        let outcome = self.0.snapshot(&mut Held { procedure, answer: &answer });
        answer.take(outcome)
    }

    fn read_one<K: EncodedKey, O: Send>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        mut read: impl FnMut(Option<RowRef<'_>>) -> O + Send,
    ) -> Result<O, Error> {
        let mut output = None;
        with_bytes_of(table, key, |key| self.0.read_one(table, key, projection, &mut |row| output = Some(read(row))))??;
        Ok(output.expect("a read that succeeds has looked at the row"))
    }

    fn load(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
        self.0.load(table, rows)
    }

    fn admit(&mut self) -> Result<(), Error> {
        self.0.admit()
    }

    fn take_ticket(&mut self) -> Ticket {
        self.0.take_ticket()
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }

    fn maintain(&mut self) {
        self.0.maintain();
    }
}

impl Interactive for AnyWorker {
    type Transaction<'w> = AnyTransaction<'w>;

    fn begin(&mut self, mode: Mode) -> Result<AnyTransaction<'_>, Error> {
        Ok(Erased(self.0.begin(mode)?))
    }

    fn holds_transactions(&self) -> bool {
        self.0.holds_transactions()
    }

    fn last_abort(&self) -> Option<Abort> {
        self.0.last_abort()
    }

    fn waits_for_itself(&self) -> Option<Error> {
        self.0.waits_for_itself()
    }

    fn is_nested(&self) -> bool {
        self.0.is_nested()
    }

    fn await_snapshot(&mut self, longest: Duration) -> bool {
        self.0.await_snapshot(longest)
    }

    fn keeps_readers(&self, mode: Mode) -> bool {
        self.0.keeps_readers(mode)
    }

    fn back_off(&mut self, attempts: u64) {
        self.0.back_off(attempts);
    }

    fn retry(&self) -> &options::Retry {
        self.0.retry()
    }
}

/// A transaction that its client drives.
pub type AnyTransaction<'w> = Erased<Box<dyn End + 'w>>;

/// A transaction behind an owner or a borrower.
pub struct Erased<B>(B);

impl<B> fmt::Debug for Erased<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Erased").finish_non_exhaustive()
    }
}

impl Commit for AnyTransaction<'_> {
    fn commit(self) -> Result<(), Error> {
        self.0.commit()
    }

    fn roll_back(self) -> bool {
        self.0.roll_back()
    }
}

impl AnyTransaction<'_> {
    /// Forgets the transaction: it neither commits nor is rolled back. In place of [`std::mem::forget`], which would also keep the
    /// memory that it lies in, so that pointers to it would go on leading to it.
    pub fn leak(self) {
        self.0.leak();
    }
}

impl<B: Reach> Transaction for Erased<B> {
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        with_bytes_of(table, key, |key| self.0.operate().read_row(table, key, projection))?
    }

    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        with_bytes_of(table, key, |key| self.0.operate().read_row_unvalidated(table, key, projection))?
    }

    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        let mut change = Some(change);
        let mut once = |row: &mut RowMut<'_>| {
            if let Some(change) = change.take() {
                change(row);
            }
        };
        with_bytes_of(table, key, |key| self.0.operate().update_unchecked(table, key, projection, &mut once))?
    }

    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        with_bytes_of(table, key, |key| self.0.operate().insert_unchecked(table, key, row))?
    }

    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        with_bytes_of(table, key, |key| self.0.operate().put_unchecked(table, key, row))?
    }

    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        with_bytes_of(table, key, |key| self.0.operate().delete_unchecked(table, key))?
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.0.operate().scan_unchecked(scan, visitor)
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.0.operate().mark()
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.0.operate().undo_unchecked(position)
    }

    fn mark_operation(&mut self) -> Result<usize, Error> {
        self.0.operate().mark_operation()
    }

    fn undo_operation(&mut self, position: usize) -> Result<(), Error> {
        self.0.operate().undo_operation(position)
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.0.operate().savepoints()
    }

    fn is_reconnaissance(&self) -> bool {
        self.0.look().is_reconnaissance()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        self.0.look().definition(table)
    }

    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        self.0.look().constraints(table)
    }

    fn protect_reads(&mut self, protect: bool) {
        self.0.operate().protect_reads(protect);
    }
}

impl<B: Reach> Queries for Erased<B> {
    fn visit_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.0.operate().visit_table(table, projection, visitor)
    }

    fn aggregate_range(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        self.0.operate().aggregate_range(scan, grouping)
    }

    fn visit_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let seen = Cell::new(None);
        self.0.operate().visit_columns(scan, columns, &mut |batch| seen.set(Some(look(batch))), &mut || {
            seen.take().map_or(ControlFlow::Continue(()), &mut *keep)
        })
    }
}

impl<B: Reach> LazyFutures for Erased<B> {
    fn future_scope(&mut self) -> Scope {
        self.0.operate().future_scope()
    }

    fn leaves_futures_open(&mut self) -> bool {
        self.0.operate().leaves_futures_open()
    }

    fn read_futures<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        columns: &[FutureColumn],
        futures: &mut [Operand],
    ) -> Result<(), Error> {
        with_bytes_of(table, key, |key| self.0.operate().read_futures(table, key, columns, futures))?
    }

    fn test_future(&mut self, condition: Operand) -> Result<bool, Error> {
        self.0.operate().test_future(condition)
    }

    fn test_future_assuming(&mut self, condition: Operand, assumed: bool) -> Result<bool, Error> {
        self.0.operate().test_future_assuming(condition, assumed)
    }

    fn write_futures<K: EncodedKey>(&mut self, table: TableId, key: K, columns: &Assigned) -> Result<(), Error> {
        with_bytes_of(table, key, |key| self.0.operate().write_futures(table, key, columns))?
    }

    fn write_futures_at(&mut self, table: TableId, key: &OpenKey, columns: &Assigned) -> Result<(), Error> {
        self.0.operate().write_futures_at(table, key, columns)
    }

    fn insert_futures(
        &mut self,
        table: TableId,
        key: &OpenKey,
        row: NewRow<'_>,
        columns: &Assigned,
    ) -> Result<(), Error> {
        self.0.operate().insert_futures(table, key, row, columns)
    }

    fn resolve_future(&mut self, future: Operand) -> Result<Value<Bytes>, Error> {
        self.0.operate().resolve_future(future)
    }
}

impl<B: Reach> Prefetch for Erased<B> {
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        // One that is too long has no row.
        let _ = with_bytes_of(table, key, |key| self.0.operate().prefetch_row(table, key));
    }

    fn has_prefetched(&self) -> bool {
        self.0.look().has_prefetched()
    }
}

/// Stands for every key that is longer than any can be: the chosen protocol decides what a procedure is answered that declares one.
const TOO_LONG: &[u8] = &[0; MAX_KEY_BYTES + 1];

/// Receives what a procedure declares for the chosen protocol.
struct Naming<'d>(&'d mut dyn Name);

impl Declare for Naming<'_> {
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access) {
        if with_bytes_of(table, key, |key| self.0.key(table, key, access)).is_err() {
            self.0.key(table, TOO_LONG, access);
        }
    }

    fn prefix<K: EncodedKey>(&mut self, table: TableId, prefix: K, access: Access) {
        if with_bytes_of(table, prefix, |prefix| self.0.prefix(table, prefix, access)).is_err() {
            self.0.prefix(table, TOO_LONG, access);
        }
    }

    fn partition(&mut self, partition: u64) {
        self.0.partition(partition);
    }

    fn unknown(&mut self) {
        self.0.unknown();
    }
}
