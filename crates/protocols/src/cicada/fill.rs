//! Work over whole tables: filling a new secondary index while transactions run, and counting versions.

use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::Keys;
use polychron_engine::{Metric, MetricValue, Mode, Versions, catalog, drive, limits, rows};
use polychron_schema::KeyScratch;
use polychron_sync::Backoff;

use super::protocol::Shared;
use super::record::{Reader, Record, Status};
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;
use super::worker::CicadaWorker;

/// Makes the entries of a new index that the catalog shows already, but that is not read yet.
///
/// As [`rows::fill`] does, but behind all that did not know the index, which are not ahead of the clock reading `unknowing`, whatever this
/// worker's own clock says. Answers a timestamp at which all entries are there.
pub(super) fn fill(shared: &Arc<Shared>, table: TableId, index: IndexId, unknowing: u64) -> Result<Timestamp, Error> {
    let mut worker = CicadaWorker::new(shared.base.memory.register_own()?, shared);
    if !left_out(Step::FillAfterUnknowing) {
        worker.follow(unknowing);
    }
    let (_, tables) = shared.base.catalog.snapshot();
    let store = Arc::clone(&catalog::get(&tables, table)?.primary);
    drop(tables);
    if store.versioned.is_some() {
        shared.base.wait_for_open()?;
        let mut keys = Keys::default();
        collect_keys(&store, &mut worker, &mut keys)?;
        rows::make_entries(&mut worker, table, index, &keys)?;
    } else {
        rows::fill(&shared.base, &mut worker, table, index)?;
    }
    // Without rows, too: where a counter stands for the clock, only a timestamp that was drawn becomes the past.
    drive::transact(&mut worker, Mode::ReadWrite, &mut |_| Ok::<_, Error>(()))?;
    // Snapshots that begin from now on are to find the entries.
    let filled = worker.last_timestamp();
    if !left_out(Step::AwaitFilling) {
        await_past(shared, filled)?;
    }
    Ok(filled)
}

/// Waits until what was written at a timestamp has become the past, which all snapshots see.
pub(super) fn await_past(shared: &Shared, timestamp: Timestamp) -> Result<(), Error> {
    let mut backoff = Backoff::new();
    limits::patiently(shared.base.common.retry.time, || {
        while !shared.clocks.min_wts().is_after(timestamp) {
            limits::check()?;
            shared.clocks.lead();
            backoff.wait();
        }
        Ok(())
    })
}

/// The keys of a table whose primary index keeps versions, as of the latest commits: a transaction that did not know the new index may have had a
/// timestamp that lies ahead of this one's.
fn collect_keys(store: &Store, worker: &mut CicadaWorker, keys: &mut Keys) -> Result<(), Error> {
    // The latest stable version of a record is freed when a later one is, which the transaction's horizon prevents.
    let transaction = worker.begin_in_epoch(Mode::ReadWrite)?;
    let mut failed = Ok(());
    let reader = transaction.guard.reader();
    store.records.for_each(&transaction.guard, |record| {
        for version in reader.versions(record) {
            match version.ended() {
                Status::Committed => {
                    let mut scratch = KeyScratch::new();
                    match store.entries.extractor.extract(version.row(), &mut scratch) {
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

/// What is found in all tables' records.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Records by the versions that they have besides the newest.
    pub(super) versions: Versions,
    rows: u64,
    /// Rows whose newest version lies in its head.
    inlined: u64,
    /// Versions besides the newest of all records.
    extra: u64,
}

impl Found {
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let records: u64 = self.versions.records.iter().sum();
        let percent = |part: u64, of: u64| MetricValue::Level(part as f64 * 100.0 / of.max(1) as f64);
        vec![
            Metric { name: "inlined_rows_percent", value: percent(self.inlined, self.rows) },
            Metric { name: "space_overhead_percent", value: percent(self.extra, records) },
        ]
    }

    fn count<'g>(&mut self, record: Record<'g>, reader: Reader<'g>) {
        let mut found = 0;
        for version in reader.versions(record) {
            let status = version.status();
            let counts = status.counts();
            if counts && found == 0 && status == Status::Committed {
                self.rows += 1;
                self.inlined += u64::from(record.is_inline(version.address()));
            }
            found += usize::from(counts);
        }
        if found > 0 {
            self.versions.count(found - 1);
            self.extra += found as u64 - 1;
        }
    }
}

/// Looks at the versions of all rows, secondary entries aside.
pub(super) fn look_through(shared: &Arc<Shared>) -> Found {
    let mut found = Found::default();
    // Without a free slot nobody can be kept from collecting, and nothing can be counted.
    let Ok(local) = shared.base.memory.register() else { return found };
    let worker = CicadaWorker::new(local, shared);
    let held = shared.clocks.hold(worker.slot());
    let (_, tables) = shared.base.catalog.snapshot();
    shared.base.deferred_drops.with_guard(|guard| {
        let reader = Reader::at(&held, guard);
        for table in tables.iter().flatten() {
            table.primary.records.for_each(guard, |record| found.count(record, reader));
        }
    });
    drop(held);
    found
}
