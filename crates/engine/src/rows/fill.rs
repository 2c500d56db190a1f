//! Filling a new secondary index while transactions run.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};

use super::{Primitives, make_entry};
use crate::stores::{Base, Keyed, Keys, StoreProtocol, for_each};
use crate::{Interactive, Mode, catalog, drive, limits};

/// Rows whose entries are made in one transaction: few, so that it seldom meets a writer and is quickly repeated.
const ROWS_AT_ONCE: usize = 64;

/// Makes the entries of a new index that the catalog shows already, but that is not read yet.
///
/// Writers that know the index keep it up from their first transaction on. Once every transaction that did not know it has ended, or is between
/// two operations, and so must find out before it commits, each row is either old, and its key is collected here, or its writer made the entry.
///
/// # Errors
/// [`Error::Duplicate`], [`Error::OutOfMemory`]; [`Error::TimedOut`] and [`Error::Conflicts`] where others have open for too long what stands in the
/// way.
pub fn fill<W, S: Keyed + 'static>(base: &Base<S>, worker: &mut W, table: TableId, index: IndexId) -> Result<(), Error>
where
    W: Interactive + 'static,
    for<'w> W::Transaction<'w>: Primitives<'w, Store = S>,
{
    base.wait_for_open()?;
    let mut keys = Keys::default();
    let (_, tables) = base.catalog.snapshot();
    let rows = Arc::clone(&catalog::get(&tables, table)?.primary);
    drop(tables);
    base.deferred_drops.with_guard(|guard| for_each(rows.entries().index(), guard, &mut |key, _| keys.push(key)));
    make_entries(worker, table, index, &keys)
}

/// As [`fill`], by a worker in one of the database's own slots.
///
/// # Errors
/// As [`fill`], and [`Error::TooManyWorkers`].
pub fn fill_by_own_worker<P>(database: &P, table: TableId, index: IndexId) -> Result<(), Error>
where
    P: StoreProtocol<Worker: Interactive>,
    for<'w> <P::Worker as Interactive>::Transaction<'w>: Primitives<'w, Store = P::Store>,
{
    let base = database.base();
    fill(base, &mut database.enter(base.memory.register_own()?), table, index)
}

/// Makes the entries of rows in an index that is being filled. The rows are read and the entries made in ordinary transactions, so a writer of
/// the same row conflicts with the filling, which tries again.
///
/// # Errors
/// As [`fill`].
pub fn make_entries<W, S: Keyed + 'static>(
    worker: &mut W,
    table: TableId,
    index: IndexId,
    keys: &Keys,
) -> Result<(), Error>
where
    W: Interactive + 'static,
    for<'w> W::Transaction<'w>: Primitives<'w, Store = S>,
{
    for first in (0..keys.len()).step_by(ROWS_AT_ONCE) {
        let rows = first..keys.len().min(first + ROWS_AT_ONCE);
        let mut make = |transaction: &mut W::Transaction<'_>| {
            rows.clone().try_for_each(|row| make_entry(transaction, table, index, keys.get(row)))
        };
        // A lock that is waited for is no conflict, and has no other end.
        let time = worker.retry().time;
        limits::patiently(time, || drive::transact(worker, Mode::ReadWrite, &mut make))?;
    }
    Ok(())
}
