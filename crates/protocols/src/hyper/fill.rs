//! Work over whole tables: filling a new secondary index while transactions run, and counting versions.

use std::sync::{Arc, PoisonError};

use polychron_base::{Error, IndexId, Stop, TableId};
use polychron_engine::redo::Redo;
use polychron_engine::rows::{self, Primitives};
use polychron_engine::stores::{Keys, for_each, wait_for};
use polychron_engine::{Mode, Versions, drive};

use super::protocol::{Hyper, Shared};
use super::transaction::HyperTransaction;
use super::worker::HyperWorker;

/// Rows whose entries are made in one transaction: few, so that it seldom meets a writer and is quickly repeated.
const ROWS_AT_ONCE: usize = 64;

/// Makes the entries of a new index that the catalog shows already, but that is not read yet.
///
/// Writers that know the index keep it up from their first transaction on. Once every transaction that did not know it has
/// ended, or is between two operations, and so must find out before it commits, each row is either old, and its key is
/// collected here, or its writer made the entry. The rows are then read and
/// the entries made in ordinary transactions, so a writer of the same row conflicts with the filling, which tries again.
/// Answers a moment at which all entries are there. One index at a time: there is one slot for this.
pub(super) fn fill<R: Redo + Default>(database: &Arc<Hyper<R>>, table: TableId, index: IndexId) -> Result<u64, Error> {
    let shared = &database.shared;
    let _alone = shared.filling.lock().unwrap_or_else(PoisonError::into_inner);
    let mut worker = HyperWorker::own(shared)?;
    let epochs = shared.memory.epochs();
    wait_for(epochs, epochs.current());
    let mut keys = Keys::default();
    let (_, tables) = shared.catalog.snapshot();
    let store = Arc::clone(&polychron_engine::catalog::get(&tables, table)?.primary);
    shared.keeper.with_guard(|guard| for_each(store.index(), guard, &mut |key, _| keys.push(key)));
    for first in (0..keys.len()).step_by(ROWS_AT_ONCE) {
        let rows = first..keys.len().min(first + ROWS_AT_ONCE);
        drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
            rows.clone().try_for_each(|row| transaction.fill_entry(table, index, keys.get(row)))
        })?;
    }
    Ok(shared.clock.latest())
}

/// How many before-images each record has.
pub(super) fn count_versions<R: Redo>(shared: &Shared<R>) -> Versions {
    let mut versions = Versions::default();
    let (_, tables) = shared.catalog.snapshot();
    shared.keeper.with_guard(|_| {
        for table in tables.iter().flatten() {
            table.primary.rows.for_each(|record| {
                if !record.is_versioned() {
                    // Without a latch, which a slot that nobody has used yet does not have for others.
                    if record.is_present() {
                        versions.count(0);
                    }
                    return;
                }
                // Under the latch nothing leaves the chain.
                let latched = record.latch();
                if !latched.is_closed() {
                    versions.count(std::iter::successors(latched.version(), |image| image.older()).count());
                }
            });
        }
    });
    versions
}

impl<R: Redo> HyperTransaction<'_, R> {
    /// Makes one row's entry in an index that is being filled.
    fn fill_entry(&mut self, table: TableId, index: IndexId, key: &[u8]) -> Result<(), Stop> {
        self.operate(|this| {
            let table = this.table(table)?;
            rows::make_entry(this, table, table.store(index)?, key)
        })
    }
}
