//! The traits of the plug point without type parameters, each implemented by whatever implements the original.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use polychron_memory::Memory;
use polychron_schema::Value;

use super::{Erased, Naming};
use crate::futures::{Expression, FutureColumn, Operand, Scalar};
use crate::{
    Abort, Access, Aggregate, ColumnBatch, Commit, Counters, Declare, Error, Figure, IndexDefinition, IndexId,
    Insertion, Interactive, Mode, Procedure, Projection, Protocol, RowMut, RowRef, Savepoint, Scan, Statistics, Stop,
    TableDefinition, TableId, Transaction, Versions, Worker, options,
};

/// [`Protocol`].
pub(super) trait Database: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn memory(&self) -> &Arc<Memory>;
    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error>;
    fn drop_table(&self, table: TableId) -> Result<(), Error>;
    fn create_index(&self, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error>;
    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error>;
    fn find_table(&self, name: &str) -> Option<TableId>;
    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error>;
    fn worker(&self) -> Result<Box<dyn Hand>, Error>;
    fn statistics(&self) -> Statistics;
    fn versions(&self) -> Option<Versions>;
    fn inspect(&self) -> Vec<Figure>;
}

/// An open database of the protocol `P`.
pub(super) struct Opened<P>(pub(super) Arc<P>);

impl<P: Protocol<Worker: Interactive>> Database for Opened<P> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn memory(&self) -> &Arc<Memory> {
        self.0.memory()
    }

    fn create_table(&self, definition: TableDefinition) -> Result<TableId, Error> {
        self.0.create_table(definition)
    }

    fn drop_table(&self, table: TableId) -> Result<(), Error> {
        self.0.drop_table(table)
    }

    fn create_index(&self, table: TableId, definition: IndexDefinition) -> Result<IndexId, Error> {
        self.0.create_index(table, definition)
    }

    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error> {
        self.0.drop_index(table, index)
    }

    fn find_table(&self, name: &str) -> Option<TableId> {
        self.0.find_table(name)
    }

    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error> {
        self.0.definition(table)
    }

    fn worker(&self) -> Result<Box<dyn Hand>, Error> {
        Ok(Box::new(self.0.worker()?))
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    fn versions(&self) -> Option<Versions> {
        self.0.versions()
    }

    fn inspect(&self) -> Vec<Figure> {
        self.0.inspect()
    }
}

/// [`Worker`] and [`Interactive`].
pub(super) trait Hand: Send {
    fn execute(&mut self, procedure: &mut dyn Run) -> Result<(), Error>;
    fn execute_batch(&mut self, procedures: &mut [Unnamed<'_>], done: &mut dyn FnMut(usize, Result<(), Error>));
    fn snapshot(&mut self, procedure: &mut dyn Run) -> Result<(), Error>;
    fn read_one(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        read: &mut (dyn FnMut(Option<RowRef<'_>>) + Send),
    ) -> Result<(), Error>;
    fn counters(&self) -> &Counters;
    fn tidy_up(&mut self);
    fn begin(&mut self, mode: Mode) -> Result<Box<dyn End + '_>, Error>;
    fn last_abort(&self) -> Option<Abort>;
    fn back_off(&mut self, attempts: u64);
    fn retry(&self) -> &options::Retry;
}

impl<W: Interactive + 'static> Hand for W {
    fn execute(&mut self, procedure: &mut dyn Run) -> Result<(), Error> {
        Worker::execute(self, &mut Unnamed(procedure))
    }

    fn execute_batch(&mut self, procedures: &mut [Unnamed<'_>], done: &mut dyn FnMut(usize, Result<(), Error>)) {
        Worker::execute_batch(self, procedures, &mut |position, outcome| done(position, outcome));
    }

    fn snapshot(&mut self, procedure: &mut dyn Run) -> Result<(), Error> {
        Worker::snapshot(self, &mut Unnamed(procedure))
    }

    fn read_one(
        &mut self,
        table: TableId,
        key: &[u8],
        projection: &Projection,
        read: &mut (dyn FnMut(Option<RowRef<'_>>) + Send),
    ) -> Result<(), Error> {
        Worker::read_one(self, table, key, projection, read)
    }

    fn counters(&self) -> &Counters {
        Worker::counters(self)
    }

    fn tidy_up(&mut self) {
        Worker::tidy_up(self);
    }

    fn begin(&mut self, mode: Mode) -> Result<Box<dyn End + '_>, Error> {
        Ok(Box::new(Interactive::begin(self, mode)?))
    }

    fn last_abort(&self) -> Option<Abort> {
        Interactive::last_abort(self)
    }

    fn back_off(&mut self, attempts: u64) {
        Interactive::back_off(self, attempts);
    }

    fn retry(&self) -> &options::Retry {
        Interactive::retry(self)
    }
}

/// [`Procedure`], which leaves its answer where its owner finds it.
pub(super) trait Run: Send {
    fn run(&mut self, transaction: &mut dyn Operate) -> Result<(), Stop>;
    fn declare(&self, declaration: &mut dyn Name);
}

/// A procedure of a type that is known, and the place of its answer.
pub(super) struct Held<'p, P: Procedure> {
    pub(super) procedure: &'p mut P,
    pub(super) output: &'p Mutex<Option<P::Output>>,
}

impl<P: Procedure> Run for Held<'_, P> {
    fn run(&mut self, transaction: &mut dyn Operate) -> Result<(), Stop> {
        let output = self.procedure.run(&mut Erased(transaction))?;
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
        Ok(())
    }

    fn declare(&self, declaration: &mut dyn Name) {
        self.procedure.declare(&mut Naming(declaration));
    }
}

/// A procedure of a type that is not known: the only one that the protocol beneath is compiled for.
pub(super) struct Unnamed<'p>(pub(super) &'p mut dyn Run);

impl Procedure for Unnamed<'_> {
    type Output = ();

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Stop> {
        self.0.run(transaction)
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
    fn commit(self: Box<Self>) -> Result<(), Stop>;
    /// As there.
    fn roll_back(self: Box<Self>) -> bool;
}

impl<T: Commit> End for T {
    fn commit(self: Box<Self>) -> Result<(), Stop> {
        Commit::commit(*self)
    }

    fn roll_back(self: Box<Self>) -> bool {
        Commit::roll_back(*self)
    }
}

/// What leads to a transaction.
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
            fn update_row(
                &mut self,
                table: TableId,
                key: &[u8],
                projection: &Projection,
                change: &mut dyn FnMut(&mut RowMut<'_>),
            ) -> Result<bool, Stop>;
            fn scan_rows(
                &mut self,
                scan: &Scan<'_>,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Stop>;
            fn scan_table(
                &mut self,
                table: TableId,
                projection: &Projection,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Stop>;
            fn scan_columns(
                &mut self,
                scan: &Scan<'_>,
                columns: &[usize],
                visitor: &mut dyn FnMut(&ColumnBatch<'_>) -> ControlFlow<()>,
            ) -> Result<(), Stop>;
            fn has_prefetched(&self) -> bool;
            fn definition(&self, table: TableId) -> Result<&TableDefinition, Stop>;
        }

        impl<T: Transaction> Operate for T {
            $(
                fn $name(&mut self $(, $argument: $type)*) $(-> $answer)? {
                    Transaction::$name(self $(, $argument)*)
                }
            )+

            fn update_row(
                &mut self,
                table: TableId,
                key: &[u8],
                projection: &Projection,
                change: &mut dyn FnMut(&mut RowMut<'_>),
            ) -> Result<bool, Stop> {
                Transaction::update_row(self, table, key, projection, change)
            }

            fn scan_rows(
                &mut self,
                scan: &Scan<'_>,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Stop> {
                Transaction::scan_rows(self, scan, &mut |row| visitor(row))
            }

            fn scan_table(
                &mut self,
                table: TableId,
                projection: &Projection,
                visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
            ) -> Result<(), Stop> {
                Transaction::scan_table(self, table, projection, &mut |row| visitor(row))
            }

            fn scan_columns(
                &mut self,
                scan: &Scan<'_>,
                columns: &[usize],
                visitor: &mut dyn FnMut(&ColumnBatch<'_>) -> ControlFlow<()>,
            ) -> Result<(), Stop> {
                Transaction::scan_columns(self, scan, columns, &mut |batch| visitor(batch))
            }

            fn has_prefetched(&self) -> bool {
                Transaction::has_prefetched(self)
            }

            fn definition(&self, table: TableId) -> Result<&TableDefinition, Stop> {
                Transaction::definition(self, table)
            }
        }
    };
}

operate! {
    fn read_row(&mut self, table: TableId, key: &[u8], projection: &Projection) -> Result<Option<RowRef<'_>>, Stop>;
    fn read_row_unvalidated(&mut self, table: TableId, key: &[u8], projection: &Projection) -> Result<Option<RowRef<'_>>, Stop>;
    fn insert_row(&mut self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Stop>;
    fn put_row(&mut self, table: TableId, key: &[u8], row: RowRef<'_>) -> Result<Insertion, Stop>;
    fn delete_row(&mut self, table: TableId, key: &[u8]) -> Result<bool, Stop>;
    fn aggregate(&mut self, scan: &Scan<'_>, wanted: Aggregate) -> Result<Value, Stop>;
    fn read_future(&mut self, table: TableId, key: &[u8], column: FutureColumn) -> Result<Operand, Stop>;
    fn combine_futures(&mut self, expression: Expression) -> Result<Operand, Stop>;
    fn test_future(&mut self, condition: Operand) -> Result<bool, Stop>;
    fn test_future_assuming(&mut self, condition: Operand, assumed: bool) -> Result<bool, Stop>;
    fn write_future(&mut self, table: TableId, key: &[u8], column: FutureColumn, value: Operand) -> Result<(), Stop>;
    fn resolve_future(&mut self, future: Operand) -> Result<Scalar, Stop>;
    fn savepoint(&mut self) -> Savepoint;
    fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<(), Stop>;
    fn prefetch_row(&mut self, table: TableId, key: &[u8]);
}
