//! Below a layer that leaves futures open: a write is delayed to the commit. Its row is locked first, whatever was committed there since
//! the start; then the start is moved behind all of that, and the row is read, computed and written at once. Conditions are looked at
//! without protection.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, Reason, TableId};
use polychron_engine::lazy::{BaseTransaction, Claim, LazyHost, Names};
use polychron_engine::mutations::left_out;
use polychron_engine::rows::{self, Primitives};
use polychron_engine::stores::IndexRef;
use polychron_schema::ColumnSet;
use polychron_sync::Backoff;

use super::predicates::summary_of;
use super::protocol::Hyper;
use super::steps::Step;
use super::table::Relation;
use super::transaction::HyperTransaction;
use super::undo::{Draft, FIRST_ID, Kind};
use super::writes::Conflict;

/// How often a lock that another transaction holds is looked at. Two that wait for each other's give up, in the end, and so does one that
/// waits for a transaction that a client holds open.
const LOOKS: usize = 64;

impl LazyHost for Hyper {
    const DEFERRED: Names = Names {
        name: "lazy-hyper",
        summary: "hyper, futures open until the commit: for hot rows that are added to, beside long readers",
    };

    fn claim(transaction: &mut BaseTransaction<'_, Self>, claim: &Claim<'_>) -> Result<(), Error> {
        if claim.is_written { rows::lock_row(transaction, claim.table, claim.key) } else { Ok(()) }
    }

    fn resolving(transaction: &mut BaseTransaction<'_, Self>) -> Result<(), Error> {
        transaction.operate(HyperTransaction::begin_later)
    }

    fn conflict(transaction: &mut BaseTransaction<'_, Self>, reason: Reason, table: TableId) -> Error {
        transaction.conflict(reason, IndexRef { table, index: IndexId::PRIMARY }, None)
    }
}

impl<'w> HyperTransaction<'w> {
    /// Locks the row of a key by a before-image that changes nothing, unless the row is left to a favoured transaction. What is committed
    /// there may be younger than the start, so the row must not be read before [`Self::begin_later`].
    pub(super) fn lock_row<K: EncodedKey>(&mut self, store: &'w Relation, key: K) -> Result<(), Error> {
        // Where there is no row, any thread that reads it next finds out.
        let Some(record) = self.lookup(store, key) else { return Ok(()) };
        let draft = Draft {
            kind: Kind::Update,
            index_ref: store.index_ref(),
            row: record.id(),
            summary: summary_of(key),
            columns: ColumnSet::EMPTY,
            fragment_words: 0,
            has_out_of_line: false,
        };
        let before_image = self.state.writing.draft(self.id, draft, key, &self.guard).map_err(Error::from)?;
        let (mut backoff, mut stamp) = (Backoff::new(), 0);
        for _ in 0..LOOKS {
            let latched = record.latch();
            stamp = latched.version(&self.guard).map_or(0, |newest| newest.stamp());
            if latched.is_closed() || stamp == self.id {
                return Ok(());
            }
            if stamp < FIRST_ID {
                if self.is_barred(record) {
                    stamp = 0;
                    break;
                }
                // A before-image of a change says that there is a row below it.
                if latched.is_present() || left_out(Step::PassOverDeleted) {
                    self.state.push(latched, before_image, &self.guard);
                }
                return Ok(());
            }
            drop(latched);
            if self.shared.clock.is_open_here(stamp) {
                break;
            }
            backoff.wait();
        }
        self.state.base.contested.note(record);
        Err(self.refuse(Conflict { reason: Reason::BeingWritten, stamp }, store, key))
    }
}
