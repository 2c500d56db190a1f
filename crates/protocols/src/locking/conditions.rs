//! Condition locks (Figure 4 of *Lazy state determination*): a transaction that has tested a condition over some rows holds a request with the
//! condition at each of their names, and others may write the rows as long as the condition keeps its truth value.
//!
//! * A condition is tested under shared locks of all rows that it depends on, which then become condition locks. So a transaction that writes one
//!   of the rows has locked it before, and the condition was tested on what it wrote; or locks it later, and finds the condition.
//! * Conditions block no lock requests. A transaction that has written looks for them before it commits, when its rows are written and it still
//!   has them exclusively, so that no condition is added to them meanwhile. It does not commit beside one whose truth value has changed: the
//!   holder of that is wounded if it is younger, and waited for if not.
//! * A condition over several rows is evaluated with the others locked shared, for the writer (§3.3.4).
//!
//! A condition that is in a list does not change, and does not move until its holder has unlinked it.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::futures::{FutureColumn, FutureError, Span, Texts, Value};
use polychron_engine::lazy::{Condition, Scratch};
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
struct Other {
    /// Where the other keeps it; only compared.
    address: usize,
    condition: Condition,
}

/// The condition locks of a worker's running transaction, and what it needs to look at those of others.
#[derive(Debug)]
pub(super) struct Conditions {
    /// Some may still be shared locks. They become condition locks, or are released, before the next condition is tested.
    requests: Requests,
    others: Vec<Other>,
    scratch: Scratch,
}

impl Conditions {
    /// No conditions of a table.
    pub(super) fn new(table: &LockTable) -> Self {
        Self { requests: Requests::new(table), others: Vec::new(), scratch: Scratch::default() }
    }

    /// The shared locks under which a condition is tested.
    pub(super) fn shared_locks(&self) -> &[Lock] {
        self.requests.unconverted()
    }

    /// Locks a name shared, for a test.
    pub(super) fn acquire(&mut self, name: u64, own: &Wounds) -> Taken {
        match self.requests.acquire(Lock { name, exclusive: false }, own, SpinBudget::Wound, |wait| wait()) {
            Answer::Granted => Taken::Held,
            Answer::Queued(_) | Answer::Refused => Taken::Refused,
            Answer::Own => Taken::Own,
        }
    }

    /// Keeps a condition that was tested under the shared locks: these become condition locks.
    pub(super) fn hold(&mut self, condition: &Condition, truth: bool) {
        if left_out(Step::HoldConditions) {
            return self.requests.release_unconverted();
        }
        self.requests.hold_condition(condition, truth);
    }

    /// Releases all locks.
    #[inline]
    pub(super) fn release(&mut self) {
        self.requests.release_from(0);
    }

    /// Waits until the condition at an address is released at a name: see [`Requests::await_condition`].
    pub(super) fn await_other(&mut self, name: u64, address: usize, own: &Wounds) -> Answer {
        self.requests.await_condition(name, address, own)
    }
}

impl LockingTransaction<'_> {
    /// Tests whether a condition is true, and holds its truth value until the transaction ends.
    pub(crate) fn hold_condition(&mut self, condition: &Condition) -> Result<bool, Error> {
        self.alive()?;
        for (table, key) in condition.rows() {
            self.lock_source(table, key)?;
        }
        let truth = match self.evaluate(condition) {
            Ok(truth) => truth,
            Err(error) => {
                let kept = self.work(|this| this.keep_seen(condition));
                return Err(kept.err().unwrap_or(error));
            }
        };
        self.state.conditions.hold(condition, truth);
        Ok(truth)
    }

    /// Whether a condition is true of rows that are locked.
    fn evaluate(&mut self, condition: &Condition) -> Result<bool, Error> {
        self.work(|this| {
            let mut scratch = std::mem::take(&mut this.state.conditions.scratch);
            let truth = condition
                .evaluate(&mut scratch, |table, key: &[u8], column, texts| this.look(table, key, column, texts));
            this.state.conditions.scratch = scratch;
            truth
        })
    }

    /// A condition has no value. The procedure may go on, so what was seen of its rows stays locked as if it had been read.
    #[cold]
    fn keep_seen(&mut self, condition: &Condition) -> Result<(), Error> {
        for (table, key) in condition.rows() {
            self.lock_row(table, key, false)?;
        }
        self.state.conditions.requests.release_unconverted();
        Ok(())
    }

    /// Locks a row shared that a condition depends on, unless it is locked already.
    fn lock_source(&mut self, table: TableId, key: &[u8]) -> Result<(), Error> {
        let name = self.state.base.tables.table(table)?.primary.name_of(key);
        let known = self.state.conditions.shared_locks().iter().any(|lock| lock.name == name);
        if known || self.records.held().has(name) {
            return Ok(());
        }
        let own = &self.records.held().own;
        if own.wounded() && !left_out(Step::GiveWay) {
            return Err(self.refuse(table, key));
        }
        match self.state.conditions.acquire(name, own) {
            Taken::Held => Ok(()),
            Taken::Refused => Err(self.refuse(table, key)),
            Taken::Own => Err(own_wait(&self.records.held().own, IndexRef { table, index: IndexId::PRIMARY }, key)),
        }
    }

    /// A column of a row that is locked.
    fn look(
        &mut self,
        table: TableId,
        key: &[u8],
        column: FutureColumn,
        texts: &mut Texts,
    ) -> Result<Value<Span>, Error> {
        let primary = &self.state.base.tables.table(table)?.primary;
        let words = self.records.look(primary, key, self.state.conditions.shared_locks());
        let row = RowRef::from_words(words.ok_or(FutureError::NoRow(table))?);
        Ok(texts.keep_value(&column.load(table, row)?)?)
    }

    #[cold]
    fn refuse<K: EncodedKey>(&mut self, table: TableId, key: K) -> Error {
        let primary = IndexRef { table, index: IndexId::PRIMARY };
        self.conflict(self.reason(), primary, Some(polychron_base::error::KeyPreview::new(key)), None)
    }

    /// Locks a row exclusively that will be written, or shared that will be read.
    pub(crate) fn lock_row(&mut self, table: TableId, key: &[u8], written: bool) -> Result<(), Error> {
        let index = &self.state.base.tables.table(table)?.primary;
        let (lock, index_ref) = (Lock { name: index.name_of(key), exclusive: written }, index.store.index_ref);
        self.lock_named(lock, index_ref, key)
    }

    /// The transaction conflicts.
    pub(crate) fn end_in_conflict(&mut self, reason: polychron_base::Reason, table: TableId) -> Error {
        let primary = IndexRef { table, index: IndexId::PRIMARY };
        self.conflict(reason, primary, None, None)
    }

    /// Waits until every condition of others has the truth value that it had before this transaction wrote.
    pub(super) fn respect_conditions(&mut self) -> Result<(), Error> {
        // Locks that are acquired on the way are shared.
        for position in 0..self.records.held().locks().len() {
            let lock = self.records.held().locks()[position];
            if lock.exclusive && !left_out(Step::RespectConditions) {
                self.respect(lock.name)?;
            }
        }
        Ok(())
    }

    fn respect(&mut self, name: u64) -> Result<(), Error> {
        let mut others = std::mem::take(&mut self.state.conditions.others);
        let mut count = 0;
        self.shared.locks.conditions(name, self.records.held().own.requester(), |condition| {
            if count == others.len() {
                others.push(Other::default());
            }
            others[count].address = std::ptr::from_ref(condition).addr();
            others[count].condition.copy_from(condition);
            count += 1;
        });
        let outcome = others[..count]
            .iter()
            .try_for_each(|other| if self.keeps(&other.condition)? { Ok(()) } else { self.await_other(name, other) });
        self.state.conditions.others = others;
        outcome
    }

    /// Whether a condition keeps its truth value with the rows as they are.
    fn keeps(&mut self, condition: &Condition) -> Result<bool, Error> {
        for (table, key) in condition.rows() {
            let index = &self.state.base.tables.table(table)?.primary;
            if !self.records.held().has(index.name_of(key)) && !left_out(Step::LockOperands) {
                self.lock_row(table, key, false)?;
            }
        }
        // One that no longer has a value does not keep its truth value.
        Ok(self.evaluate(condition).is_ok_and(|truth| truth == condition.truth))
    }

    /// Waits until a condition is released.
    fn await_other(&mut self, name: u64, other: &Other) -> Result<(), Error> {
        let answer = self.state.conditions.await_other(name, other.address, &self.records.held().own);
        if answer == Answer::Granted {
            return Ok(());
        }
        let source = other.condition.rows().find(|(table, key)| {
            self.state.base.tables.table(*table).is_ok_and(|table| table.primary.name_of(*key) == name)
        });
        let (table, key) = source.unwrap_or((TableId::default(), &[]));
        match answer {
            Answer::Own => Err(own_wait(&self.records.held().own, IndexRef { table, index: IndexId::PRIMARY }, key)),
            _ => Err(self.refuse(table, key)),
        }
    }
}
