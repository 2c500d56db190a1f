//! Work over whole tables: filling a new secondary index while transactions run, and counting versions.

use std::sync::{Arc, PoisonError};

use polychron_base::{Error, IndexId, Stop, TableId};
use polychron_engine::redo::Redo;
use polychron_engine::stores::{Keys, for_each, wait_for};
use polychron_engine::{Interactive, Mode, Versions, drive};
use polychron_schema::KeyScratch;

use super::protocol::{Cicada, Shared};
use super::record::{Link, Record, Status};
use super::table::{CicadaTable, Store};
use super::timestamp::Timestamp;
use super::transaction::CicadaTransaction;
use super::worker::CicadaWorker;

/// Rows whose entries are made in one transaction: few, so that it seldom meets a writer and is quickly repeated.
const ROWS_AT_ONCE: usize = 64;

/// Makes the entries of a new index that the catalog shows already, but that is not read yet.
///
/// Writers that know the index keep it up from their first transaction on. Once every transaction that did not know it has
/// ended, each row is either old, and its key is collected here, or its writer made the entry. The rows are then read and
/// the entries made in ordinary transactions, so a writer of the same row conflicts with the filling, which tries again.
/// Answers a moment at which all entries are there.
pub(super) fn fill<R: Redo + Default>(
    database: &Arc<Cicada<R>>,
    table: TableId,
    index: IndexId,
) -> Result<Timestamp, Error> {
    let shared = &database.shared;
    let _alone = shared.filling.lock().unwrap_or_else(PoisonError::into_inner);
    let mut worker = CicadaWorker::own(shared)?;
    let epochs = shared.memory.epochs();
    wait_for(epochs, epochs.current());
    let mut keys = Keys::default();
    let (_, tables) = shared.catalog.snapshot();
    let store = Arc::clone(&polychron_engine::catalog::get(&tables, table)?.primary);
    match &store.versioned {
        None => shared.keeper.with_guard(|guard| for_each(store.index(), guard, &mut |key, _| keys.push(key))),
        Some(_) => collect_keys(&store, &mut worker, &mut keys)?,
    }
    for first in (0..keys.len()).step_by(ROWS_AT_ONCE) {
        let rows = first..keys.len().min(first + ROWS_AT_ONCE);
        drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
            rows.clone().try_for_each(|row| transaction.fill_entry(table, index, keys.get(row)))
        })?;
    }
    // Snapshots that begin from now on are to find the entries, so what was written here must have become the past.
    let filled = worker.last_timestamp();
    while !shared.clocks.min_wts().is_after(filled) {
        shared.clocks.lead();
        polychron_sync::thread::yield_now();
    }
    Ok(filled)
}

/// The keys of a table whose primary index keeps versions, as of the latest commits: who did not know the new index may have had a
/// timestamp that lies ahead of this one's.
fn collect_keys<R: Redo>(store: &Store, worker: &mut CicadaWorker<R>, keys: &mut Keys) -> Result<(), Error> {
    // The latest settled version of a record is freed when a later one is, which the transaction's horizon prevents.
    let transaction = worker.begin(Mode::ReadWrite)?;
    let mut failed = Ok(());
    store.records.for_each(|record| {
        let mut place = record.latest();
        while let Link::To(version) = place.link() {
            place = version.next();
            match version.settled() {
                Status::Committed => {
                    let mut scratch = KeyScratch::new();
                    // SAFETY: as above.
                    match store.entries.extractor.extract(unsafe { version.row() }, &mut scratch) {
                        Ok(key) => keys.push(key),
                        Err(error) => failed = Err(error.into()),
                    }
                    return;
                }
                Status::Deleted => return,
                _ => {}
            }
        }
    });
    drop(transaction);
    failed
}

/// How many versions each record has besides the newest.
pub(super) fn count_versions<R: Redo>(shared: &Arc<Shared<R>>) -> Versions {
    let mut versions = Versions::default();
    // Without a free slot nobody can be kept from collecting, and nothing can be counted.
    let Ok(worker) = CicadaWorker::new(shared) else { return versions };
    let moment = shared.clocks.begin_snapshot(worker.slot());
    let (_, tables) = shared.catalog.snapshot();
    shared.keeper.with_guard(|guard| {
        for table in tables.iter().flatten() {
            let mut count = |record| {
                let found = versions_since(record, moment);
                if found > 0 {
                    versions.count(found - 1);
                }
            };
            if table.primary.versioned.is_some() {
                table.primary.records.for_each(count);
                continue;
            }
            for_each(table.primary.index(), guard, &mut |_, handle| {
                // SAFETY: the handle was found under the guard.
                count(unsafe { Record::from_handle(handle) });
            });
        }
    });
    shared.clocks.end(worker.slot());
    versions
}

/// The versions down to the one that is visible at a moment which is held: who looks further may look at what is collected.
fn versions_since(record: Record, moment: Timestamp) -> usize {
    let (mut place, mut found) = (record.latest(), 0);
    while let Link::To(version) = place.link() {
        let counts = matches!(version.status(), Status::Committed | Status::Deleted);
        found += usize::from(counts);
        if counts && !version.wts().is_after(moment) {
            break;
        }
        place = version.next();
    }
    found
}

impl<R: Redo> CicadaTransaction<'_, R> {
    /// Makes one row's entry in an index that is being filled.
    fn fill_entry(&mut self, table: TableId, index: IndexId, key: &[u8]) -> Result<(), Stop> {
        let table: &CicadaTable = self.table(table)?;
        self.make_entry(table, table.store(index)?, key)
    }
}
