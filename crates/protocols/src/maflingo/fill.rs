//! Work over whole tables: filling a new secondary index while transactions run, and counting versions.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::{Error, IndexId, Stop, TableId};
use polychron_engine::redo::Redo;
use polychron_engine::{Mode, Versions, drive};
use polychron_index::{AnyIndex, Handle, Stamp, ordered};
use polychron_memory::Guard;

use super::protocol::{Maflingo, Shared};
use super::record::Record;
use super::table::{MaflingoTable, Store};
use super::tid::TidSource;

/// Rows whose entries are made in one transaction: few, so that it seldom meets a writer and is quickly repeated.
const ROWS_AT_ONCE: usize = 64;

/// Visits every key and record of an index.
pub(super) fn for_each_record(store: &Store, guard: &Guard<'_>, visitor: &mut dyn FnMut(&[u8], Record)) {
    let mut visit = |key: &[u8], handle: Handle| {
        // SAFETY: the handle was found under the guard, which outlives the visitor's call.
        visitor(key, unsafe { Record::from_handle(handle) });
    };
    match &*store.index {
        AnyIndex::Ordered(index) => {
            let mut all = All { visit: &mut visit };
            index.scan(Bound::Unbounded, Bound::Unbounded, ordered::Direction::Forward, &mut all, guard);
        }
        AnyIndex::Hash(index) => index.for_each(
            |_, entries| {
                let mut bytes = Vec::new();
                for entry in entries {
                    bytes.resize(polychron_base::key::EncodedKey::len(&entry.key), 0);
                    polychron_base::key::EncodedKey::write_to(&entry.key, &mut bytes);
                    visit(&bytes, entry.handle);
                }
            },
            guard,
        ),
    }
}

struct All<'v> {
    visit: &'v mut dyn FnMut(&[u8], Handle),
}

impl ordered::Visitor for All<'_> {
    fn node(&mut self, _: Stamp) {}

    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        (self.visit)(key, handle);
        ControlFlow::Continue(())
    }
}

/// All keys of a table, one after the other in one allocation.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, position: usize) -> &[u8] {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.bytes[start..self.ends[position]]
    }
}

/// Makes the entries of a new index that the catalog shows already, but that is not read yet.
///
/// Writers that know the index keep it up from their first transaction on. Once every transaction that did not know it has
/// ended, each row is either old, and its key is collected here, or its writer made the entry. The rows are then read and
/// the entries made in ordinary transactions, so a writer of the same row conflicts with the filling, which tries again.
pub(super) fn fill<T: TidSource, R: Redo + Default>(
    database: &Arc<Maflingo<T, R>>,
    table: TableId,
    index: IndexId,
) -> Result<(), Error> {
    let mut worker = super::worker::MaflingoWorker::new(&database.shared)?;
    let epochs = database.shared.memory.epochs();
    let published = epochs.current();
    while epochs.readonly() < published {
        epochs.advance();
        polychron_sync::thread::yield_now();
    }
    let mut keys = Keys::default();
    let (_, tables) = database.shared.catalog.snapshot();
    let store = Arc::clone(&polychron_engine::catalog::get(&tables, table)?.primary);
    database.shared.keeper.with_guard(|guard| for_each_record(&store, guard, &mut |key, _| keys.push(key)));
    let positions: Vec<usize> = (0..keys.ends.len()).collect();
    for chunk in positions.chunks(ROWS_AT_ONCE) {
        drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
            chunk.iter().try_for_each(|&position| transaction.fill_entry(table, index, keys.get(position)))
        })?;
    }
    Ok(())
}

/// How many versions each record has besides the newest.
pub(super) fn count_versions<T: TidSource, R: Redo>(shared: &Shared<T, R>) -> Versions {
    let mut versions = Versions::default();
    let (_, tables) = shared.catalog.snapshot();
    shared.keeper.with_guard(|guard| {
        // The snapshot keeps every version that is counted.
        let snapshot = guard.begin_snapshot();
        for table in tables.iter().flatten() {
            for_each_record(&table.primary, guard, &mut |_, record| {
                versions.count(extra_versions(record, snapshot.epoch()));
            });
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

impl<T: TidSource, R: Redo> super::transaction::MaflingoTransaction<'_, T, R> {
    /// Makes one row's entry in an index that is being filled.
    fn fill_entry(&mut self, table: TableId, index: IndexId, key: &[u8]) -> Result<(), Stop> {
        let table: &MaflingoTable = self.table(table)?;
        let store = table.store(index).ok_or(Error::NoSuchIndex(table.id, index))?;
        self.make_entry(table, store, key)
    }
}
