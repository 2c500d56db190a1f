//! Condition locks (Figure 4 of *Lazy state determination*): who was told whether a condition over some rows is true holds a request
//! with the condition at each of their names, and others may write the rows as long as the answer stays the same.
//!
//! * A condition is tested under shared locks of all rows that it depends on, which then become condition locks. So whoever
//!   writes one of the rows has locked it before, and the condition was tested on what it wrote; or locks it later, and finds
//!   the condition.
//! * Conditions stand in nobody's way when locks are asked for. Who has written looks for them before it commits, when its
//!   rows are in place and it still has them exclusively, so that no condition is added to them meanwhile. One that
//!   would be answered differently now must go first: its holder is wounded if it is younger, and waited for if not.
//! * A condition over several rows is evaluated with the others locked shared, for the writer (§3.3.4).
//!
//! A condition that is in a list does not change, and stays where it is until its holder has taken it out.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::futures::{FutureColumn, FutureError, Scalar};
use polychron_engine::lazy::{Condition, Values};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::IndexRef;
use polychron_schema::RowRef;

use super::held::{Lock, Taken};
use super::locks::{Answer, LockTable, Requests};
use super::rows::own_wait;
use super::steps::Step;
use super::transaction::LockingTransaction;
use super::wounds::{SpinBudget, Wounds};

/// A condition of another transaction, copied to be evaluated.
#[derive(Debug, Default)]
struct Met {
    /// Where the other keeps it; only compared.
    address: usize,
    condition: Condition,
}

/// The condition locks of a worker's running transaction, and what it needs to look at those of others.
#[derive(Debug)]
pub(super) struct Conditions {
    /// Some may still be shared locks. They are given back before the conditions go to which they lead.
    requests: Requests,
    /// Conditions that are held, and behind them those that were.
    #[allow(clippy::vec_box, reason = "others point to them, so they must not move")]
    kept: Vec<Box<Condition>>,
    in_use: usize,
    met: Vec<Met>,
    values: Values,
}

impl Conditions {
    /// No conditions of a table.
    pub(super) fn new(table: &LockTable) -> Self {
        let (kept, met, values) = (Vec::new(), Vec::new(), Values::default());
        Self { requests: Requests::new(table), kept, in_use: 0, met, values }
    }

    fn locks(&self) -> &[Lock] {
        self.requests.locks()
    }

    /// Locks a name shared, for a test.
    pub(super) fn take(&mut self, name: u64, own: &Wounds) -> Taken {
        match self.requests.take(Lock { name, exclusive: false }, own, SpinBudget::Wound, |wait| wait()) {
            Answer::Granted => Taken::Held,
            Answer::Queued(_) | Answer::Refused => Taken::Refused,
            Answer::Own => Taken::Own,
        }
    }

    /// Keeps a condition that was tested under the locks from the `first` one on: these become condition locks.
    pub(super) fn hold(&mut self, first: usize, condition: &Condition, truth: bool) {
        if self.in_use == self.kept.len() {
            self.kept.push(Box::default());
        }
        let kept = &mut self.kept[self.in_use];
        kept.copy_from(condition);
        kept.truth = truth;
        self.in_use += 1;
        if left_out(Step::HoldConditions) {
            return self.requests.release_from(first);
        }
        // SAFETY: the condition is in use, so it stays as it is until `release` has given all requests back.
        unsafe { self.requests.hold(first, &self.kept[self.in_use - 1]) };
    }

    /// Gives all back.
    #[inline]
    pub(super) fn release(&mut self) {
        self.requests.release_from(0);
        self.in_use = 0;
    }

    /// Waits until the condition at an address is held at a name no more: see [`Requests::outlast`].
    pub(super) fn outlast(&mut self, name: u64, address: usize, own: &Wounds) -> Answer {
        self.requests.outlast(name, address, own)
    }
}

impl LockingTransaction<'_> {
    /// Tells whether a condition is true, and sees to it that it stays so.
    pub(crate) fn hold_condition(&mut self, condition: &Condition) -> Result<bool, Error> {
        self.alive()?;
        let first = self.state.conditions.locks().len();
        for (table, key) in condition.rows() {
            self.lock_source(first, table, key)?;
        }
        // SAFETY: the rows are locked just above.
        let truth = match unsafe { self.evaluate(condition) } {
            Ok(truth) => truth,
            Err(error) => {
                let kept = self.work(|this| this.keep_seen(first, condition));
                return Err(kept.err().unwrap_or(error));
            }
        };
        self.state.conditions.hold(first, condition, truth);
        Ok(truth)
    }

    /// Whether a condition is true of rows that are locked.
    ///
    /// # Safety
    /// Its rows are locked.
    unsafe fn evaluate(&mut self, condition: &Condition) -> Result<bool, Error> {
        self.work(|this| {
            let mut values = std::mem::take(&mut this.state.conditions.values);
            // SAFETY: a condition looks at its rows, which are locked.
            let look = |table, key: &[u8], column| unsafe { this.look(table, key, column) };
            let truth = condition.evaluate(&mut values, look);
            this.state.conditions.values = values;
            truth
        })
    }

    /// A condition has no value. The procedure may go on, so what was seen of its rows stays locked as if it had been read.
    #[cold]
    fn keep_seen(&mut self, first: usize, condition: &Condition) -> Result<(), Error> {
        for (table, key) in condition.rows() {
            let index = &self.state.base.tables.table(table)?.primary;
            self.lock(index, key, false)?;
        }
        self.state.conditions.requests.release_from(first);
        Ok(())
    }

    /// Locks a row shared that a condition depends on, unless it is locked already.
    fn lock_source(&mut self, first: usize, table: TableId, key: &[u8]) -> Result<(), Error> {
        let name = self.state.base.tables.table(table)?.primary.name_of(key);
        let known = self.state.conditions.locks()[first..].iter().any(|lock| lock.name == name);
        if known || self.state.held.has(name) {
            return Ok(());
        }
        let state = &mut *self.state;
        let wounded = state.held.own.wounded() && !left_out(Step::GiveWay);
        if wounded {
            return Err(self.refuse(table, key));
        }
        match state.conditions.take(name, &state.held.own) {
            Taken::Held => Ok(()),
            Taken::Refused => Err(self.refuse(table, key)),
            Taken::Own => Err(own_wait(&self.state.held.own, IndexRef { table, index: IndexId::PRIMARY }, key)),
        }
    }

    /// A column of a row that is locked.
    ///
    /// # Safety
    /// The row is locked.
    unsafe fn look(&mut self, table: TableId, key: &[u8], column: FutureColumn) -> Result<Scalar, Error> {
        let primary = &self.state.base.tables.table(table)?.primary;
        // SAFETY: the row is locked, and nothing is written here.
        let words = unsafe { self.lookup(primary, key).map(|record| record.words()) };
        let row = RowRef::from_words(words.ok_or(FutureError::NoRow(table))?);
        Ok(column.load(row).ok_or(FutureError::Null(table))?)
    }

    #[cold]
    fn refuse<K: EncodedKey>(&mut self, table: TableId, key: K) -> Error {
        let place = IndexRef { table, index: IndexId::PRIMARY };
        self.conflict(self.reason(), place, Some(polychron_base::error::KeyPreview::new(key)), None)
    }

    /// Locks a row exclusively that will be written, or shared that will be read.
    pub(crate) fn lock_row(&mut self, table: TableId, key: &[u8], written: bool) -> Result<(), Error> {
        let table = self.state.base.tables.table(table)?;
        self.lock(&table.primary, key, written)
    }

    /// The transaction conflicts.
    pub(crate) fn end_in_conflict(&mut self, reason: polychron_base::Reason, table: TableId) -> Error {
        let place = IndexRef { table, index: IndexId::PRIMARY };
        self.conflict(reason, place, None, None)
    }

    /// Waits until every condition of others is answered with what was written as it was answered before.
    pub(super) fn respect_conditions(&mut self) -> Result<(), Error> {
        // Locks that are taken on the way are shared.
        for position in 0..self.state.held.locks().len() {
            let lock = self.state.held.locks()[position];
            if lock.exclusive && !left_out(Step::RespectConditions) {
                self.respect(lock.name)?;
            }
        }
        Ok(())
    }

    fn respect(&mut self, name: u64) -> Result<(), Error> {
        let mut met = std::mem::take(&mut self.state.conditions.met);
        let mut count = 0;
        self.shared.locks.conditions(name, self.state.held.own.requester(), |condition| {
            if count == met.len() {
                met.push(Met::default());
            }
            met[count].address = std::ptr::from_ref(condition).addr();
            met[count].condition.copy_from(condition);
            count += 1;
        });
        let outcome = met[..count]
            .iter()
            .try_for_each(|met| if self.keeps(&met.condition)? { Ok(()) } else { self.outlast(name, met) });
        self.state.conditions.met = met;
        outcome
    }

    /// Whether a condition is answered as it was, with the rows as they are.
    fn keeps(&mut self, condition: &Condition) -> Result<bool, Error> {
        for (table, key) in condition.rows() {
            let index = &self.state.base.tables.table(table)?.primary;
            if !self.state.held.has(index.name_of(key)) && !left_out(Step::LockOperands) {
                self.lock(index, key, false)?;
            }
        }
        // SAFETY: the rows are locked: the written ones since they were written, the others just above.
        let truth = unsafe { self.evaluate(condition) };
        // What has no value any more is no answer.
        Ok(truth.is_ok_and(|truth| truth == condition.truth))
    }

    /// Waits until a condition is held no more.
    fn outlast(&mut self, name: u64, met: &Met) -> Result<(), Error> {
        let state = &mut *self.state;
        let answer = state.conditions.outlast(name, met.address, &state.held.own);
        if answer == Answer::Granted {
            return Ok(());
        }
        let source = met.condition.rows().find(|(table, key)| {
            self.state.base.tables.table(*table).is_ok_and(|table| table.primary.name_of(*key) == name)
        });
        let (table, key) = source.unwrap_or((TableId::default(), &[]));
        match answer {
            Answer::Own => Err(own_wait(&self.state.held.own, IndexRef { table, index: IndexId::PRIMARY }, key)),
            _ => Err(self.refuse(table, key)),
        }
    }
}
