//! Workers that execute whole procedures alone, for code that is written once for them and for interactive ones.

use polychron_base::key::EncodedKey;
use polychron_base::{Abort, Error, TableId};
use polychron_schema::{Projection, RowRef};

use crate::any::AnyTransaction;
use crate::{Counters, Interactive, LoadedRow, Mode, Procedure, Ticket, Worker, options};

/// A worker none of whose transactions can be begun step by step: [`Protocol::Driven`](crate::Protocol::Driven) of a protocol that plans procedures.
#[derive(Debug)]
pub struct WholeOnly<W>(W);

impl<W> From<W> for WholeOnly<W> {
    fn from(worker: W) -> Self {
        Self(worker)
    }
}

impl<W: Worker> Worker for WholeOnly<W> {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.0.execute(procedure)
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
    ) {
        self.0.execute_batch(procedures, done);
    }

    // What `others` calls has to get this worker.
    fn execute_batch_with<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &(impl Fn(usize, Result<P::Output, P::Error>) + Sync),
        others: impl FnOnce(&mut Self),
    ) {
        self.0.execute_batch_with(procedures, done, |_| ());
        others(self);
    }

    fn help_others(&mut self) -> Option<bool> {
        self.0.help_others()
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.0.snapshot(procedure)
    }

    fn read_one<K: EncodedKey, O: Send>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        read: impl FnMut(Option<RowRef<'_>>) -> O + Send,
    ) -> Result<O, Error> {
        self.0.read_one(table, key, projection, read)
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

/// Nothing can be begun.
impl<W: Worker> Interactive for WholeOnly<W> {
    type Transaction<'w>
        = AnyTransaction<'w>
    where
        W: 'w;

    fn begin(&mut self, _: Mode) -> Result<AnyTransaction<'_>, Error> {
        Err(Error::unsupported("a protocol that plans procedures", "transactions that are driven step by step"))
    }

    fn holds_transactions(&self) -> bool {
        false
    }

    fn last_abort(&self) -> Option<Abort> {
        None
    }

    fn back_off(&mut self, _attempts: u64) {}

    fn retry(&self) -> &options::Retry {
        const { &options::Retry::DEFAULT }
    }
}
