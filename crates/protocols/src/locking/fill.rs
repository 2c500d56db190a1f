//! Filling a new secondary index while transactions run.

use std::sync::{Arc, PoisonError};

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::stores::{Keys, for_each, wait_for};
use polychron_engine::{Mode, catalog, drive, rows};

use super::protocol::Shared;
use super::worker::LockingWorker;

/// Rows whose entries are made in one transaction: few, so that it holds back few writers.
const ROWS_AT_ONCE: usize = 64;

/// Makes the entries of a new index that the catalog shows already, but that is not read yet.
///
/// Writers that know the index keep it up from their first transaction on; those that do not know it, and have not ended when
/// it came into the catalog, do not commit to its table. Operations of such transactions are waited for, and not the transactions: what they
/// have written is locked. Then the rows are locked and their entries made in ordinary transactions. One index at a time: there is one slot
/// for this.
pub(super) fn fill(shared: &Arc<Shared>, table: TableId, index: IndexId) -> Result<(), Error> {
    let _alone = shared.filling.lock().unwrap_or_else(PoisonError::into_inner);
    let mut worker = LockingWorker::new(shared.memory.register_own()?, shared);
    let epochs = shared.memory.epochs();
    wait_for(epochs, epochs.current());
    let mut keys = Keys::default();
    let (_, tables) = shared.catalog.snapshot();
    let rows = Arc::clone(&catalog::get(&tables, table)?.primary);
    drop(tables);
    shared.keeper.with_guard(|guard| for_each(rows.store.index(), guard, &mut |key, _| keys.push(key)));
    for first in (0..keys.len()).step_by(ROWS_AT_ONCE) {
        let rows = first..keys.len().min(first + ROWS_AT_ONCE);
        drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
            rows.clone().try_for_each(|row| {
                let table = transaction.table(table)?;
                let index = table.store(index)?;
                transaction.work(|transaction| rows::make_entry(transaction, table, index, keys.get(row)))
            })
        })?;
    }
    Ok(())
}
