//! Rows that are loaded ([`polychron_engine::Worker::load`]): each is the only version of a record, and is older than all that anybody looks for later.

use polychron_base::{Error, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Indexes, Loading, load_rows};
use polychron_engine::{LoadedRow, catalog};
use polychron_memory::Local;

use super::protocol::Shared;
use super::steps::Step;
use super::table::Store;
use super::timestamp::Timestamp;

/// Versions that are made at a timestamp.
struct Versions {
    slot: usize,
    timestamp: Timestamp,
    inlines: bool,
}

/// Loads rows. `false`: the table has multi-version indexes, whose nodes transactions alone write.
pub(super) fn load(shared: &Shared, local: &Local, table: TableId, rows: &[LoadedRow<'_>]) -> Result<bool, Error> {
    let guard = local.pin();
    let (_, tables) = shared.base.catalog.snapshot();
    let table = catalog::get(&tables, table)?;
    if table.stores().any(|store| store.versioned.is_some()) {
        return Ok(false);
    }
    // Nobody looks behind it, now or later: every snapshot and every transaction that begins finds the version, and writes later ones.
    let clocks = &shared.clocks;
    let timestamp = if left_out(Step::LoadInThePast) { clocks.min_wts() } else { clocks.min_rts() };
    let inlines = shared.options.parts().inlining;
    load_rows(&Versions { slot: local.worker_id().position(), timestamp, inlines }, table, rows, &guard)?;
    Ok(true)
}

impl Loading for Versions {
    type Store = Store;
    type Link = ();

    #[inline]
    fn load(&self, store: &Store, key: &[u8], words: &[u64], indexes: &mut Indexes<'_>) -> Result<Option<()>, Error> {
        let guard = indexes.guard();
        let record = store.records.take(self.slot, guard)?;
        record.version(self.timestamp, words, self.inlines, guard)?.install_first().commit();
        let is_new = indexes.insert(&store.entries, key, record.address().handle())?;
        record.publish();
        Ok(is_new.then_some(()))
    }
}
