//! Rows that are loaded ([`polychron_engine::Worker::load`]): their records have the id [`Tid::LOADED`].

use polychron_base::{Error, TableId};
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Indexes, Loading, load_rows};
use polychron_engine::{LoadedRow, catalog};
use polychron_memory::Local;

use super::protocol::Shared;
use super::record::{Record, Tid};
use super::steps::Step;
use super::table::Store;

/// Records of this id.
struct Rows(Tid);

/// Loads rows.
pub(super) fn load(shared: &Shared, local: &Local, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
    let guard = local.pin();
    let (_, tables) = shared.base.catalog.snapshot();
    let drawn = left_out(Step::LoadInThePast).then(|| Tid::after(Tid::ZERO, shared.base.memory.epochs().current(), 0));
    let tid = drawn.flatten().unwrap_or(Tid::LOADED);
    load_rows(&Rows(tid), catalog::get(&tables, table)?, rows, &guard)
}

impl Loading for Rows {
    type Store = Store;
    type Link = ();

    #[inline]
    fn load(&self, store: &Store, key: &[u8], words: &[u64], indexes: &mut Indexes<'_>) -> Result<Option<()>, Error> {
        let record = Record::present(words, self.0, indexes.guard())?;
        Ok(indexes.insert(store, key, record.handle())?.then_some(()))
    }
}
