//! Work over whole tables: filling a new secondary index while transactions run, and counting versions.

use std::sync::{Arc, PoisonError};

use polychron_base::{Error, IndexId, Stop, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Redo;
use polychron_engine::stores::{Keys, for_each, wait_for};
use polychron_engine::{Mode, Versions, drive, rows};

use super::protocol::{Maflingo, Shared};
use super::record::Record;
use super::steps::Step;

/// Rows whose entries are made in one transaction: few, so that it seldom meets a writer and is quickly repeated.
const ROWS_AT_ONCE: usize = 64;

/// Makes the entries of a new index that the catalog shows already, but that is not read yet.
///
/// Writers that know the index keep it up from their first transaction on. Once every transaction that did not know it has
/// ended, each row is either old, and its key is collected here, or its writer made the entry. The rows are then read and
/// the entries made in ordinary transactions, so a writer of the same row conflicts with the filling, which tries again.
/// Answers the epoch of the last entry. One index at a time: there is one slot for this.
pub(super) fn fill<R: Redo + Default>(
    database: &Arc<Maflingo<R>>,
    table: TableId,
    index: IndexId,
) -> Result<u64, Error> {
    let _alone = database.shared.filling.lock().unwrap_or_else(PoisonError::into_inner);
    let mut worker = super::worker::MaflingoWorker::own(&database.shared)?;
    let epochs = database.shared.memory.epochs();
    wait_for(epochs, epochs.current());
    let mut keys = Keys::default();
    let (_, tables) = database.shared.catalog.snapshot();
    let store = Arc::clone(&polychron_engine::catalog::get(&tables, table)?.primary);
    database.shared.keeper.with_guard(|guard| for_each(store.index(), guard, &mut |key, _| keys.push(key)));
    for first in (0..keys.len()).step_by(ROWS_AT_ONCE) {
        let rows = first..keys.len().min(first + ROWS_AT_ONCE);
        drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
            rows.clone().try_for_each(|row| transaction.fill_entry(table, index, keys.get(row)))
        })?;
    }
    // Snapshots that begin from now on are to find the entries, so what was written here must have become the past.
    let filled = epochs.current();
    if !left_out(Step::AwaitFilling) {
        database.shared.wait_until_past(filled);
    }
    Ok(filled)
}

/// How many versions each record has besides the newest.
pub(super) fn count_versions<R: Redo>(shared: &Shared<R>) -> Versions {
    let mut versions = Versions::default();
    let (_, tables) = shared.catalog.snapshot();
    shared.keeper.with_guard(|guard| {
        // The snapshot keeps every version that is counted.
        let snapshot = guard.begin_snapshot();
        for table in tables.iter().flatten() {
            for index in std::iter::once(table.primary.index()).chain(table.primary.displaced.index()) {
                for_each(index, guard, &mut |_, handle| {
                    // SAFETY: the handle was found under the guard.
                    let record = unsafe { Record::from_handle(handle) };
                    versions.count(extra_versions(record, snapshot.epoch()));
                });
            }
        }
    });
    versions
}

fn extra_versions(record: Record, epoch: u64) -> usize {
    let (mut extra, mut at) = (0, record);
    while at.tid().epoch() > epoch {
        let Some(previous) = at.previous() else { break };
        extra += 1;
        at = previous;
    }
    extra
}

impl<R: Redo> super::transaction::MaflingoTransaction<'_, R> {
    /// Makes one row's entry in an index that is being filled.
    fn fill_entry(&mut self, table: TableId, index: IndexId, key: &[u8]) -> Result<(), Stop> {
        let table = self.table(table)?;
        self.work(|this| rows::make_entry(this, table, table.store(index)?, key))
    }
}
