//! Transactions whose answers are futures.

use polychron_engine::futures::Outcome;
use polychron_engine::{Error, Interactive, Protocol, drive};

use crate::{Database, Session, TransactionOf};

impl<P: Protocol<Worker: Interactive>> Database<P> {
    /// As [`Database::transact`], of a body that answers with futures: the commit tells their values, at no cost in concurrency,
    /// because they are those that it went by.
    ///
    /// ```
    /// # use polychron::{Becomes, Database, Futures, Operations, Row};
    /// # #[derive(Row)] struct Counter { #[key] id: u64, next: u64 }
    /// # #[derive(Row)] struct Ticket { #[key] number: u64, weight: u32 }
    /// # let database = Database::in_memory()?;
    /// # let counters = database.create_table::<Counter>()?;
    /// # let tickets = database.create_table::<Ticket>()?;
    /// # database.transact(|transaction| transaction.insert(&counters, &Counter { id: 1, next: 7 }))?;
    /// let number = database.transact_resolved(|transaction| {
    ///     let number = transaction.future(&counters, 1, Counter::NEXT)?;
    ///     transaction.set_future(&counters, 1, Counter::NEXT, number + 1)?;
    ///     transaction.insert_future(&tickets, &Ticket { number: 0, weight: 3 }, [Ticket::NUMBER.becomes(number)])?;
    ///     polychron::Ok(number)
    /// })?;
    /// assert_eq!(number, 7);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there. A future of the answer that has no value is an error although the transaction has committed.
    pub fn transact_resolved<O: Outcome, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O::Values, E> {
        self.answer(|worker| drive::transact_resolved(worker, &mut body))
    }
}

impl<P: Protocol<Worker: Interactive>> Session<P> {
    /// As [`Database::transact_resolved`].
    ///
    /// ```
    /// # use polychron::{Database, Futures, Operations, Row};
    /// # #[derive(Row)] struct Counter { #[key] id: u64, next: u64 }
    /// # let database = Database::in_memory()?;
    /// # let counters = database.create_table::<Counter>()?;
    /// # database.transact(|transaction| transaction.insert(&counters, &Counter { id: 1, next: 7 }))?;
    /// let mut session = database.session()?;
    /// let (next, double) = session.transact_resolved(|transaction| {
    ///     let next = transaction.future(&counters, 1, Counter::NEXT)?;
    ///     polychron::Ok((next, 2 * next))
    /// })?;
    /// assert_eq!((next, double), (7, 14));
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn transact_resolved<O: Outcome, E: From<Error>>(
        &mut self,
        mut body: impl FnMut(&mut TransactionOf<'_, P>) -> Result<O, E>,
    ) -> Result<O::Values, E> {
        self.answer(|worker| drive::transact_resolved(worker, &mut body))
    }
}
