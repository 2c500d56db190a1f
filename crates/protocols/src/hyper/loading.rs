//! Rows that are loaded ([`polychron_engine::Worker::load`]): they stand in their slots without before-images, as those that all transactions see.

use polychron_base::{Error, TableId};
use polychron_engine::stores::{Indexes, Loading, load_rows};
use polychron_engine::{LoadedRow, catalog};
use polychron_memory::{Epochs, Local};
use polychron_schema::RowBuffer;

use super::entries::entry_words;
use super::out_of_line::OutOfLineAddress;
use super::protocol::Shared;
use super::table::Relation;

struct Rows<'d>(&'d Epochs);

/// Loads rows.
pub(super) fn load(shared: &Shared, local: &Local, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
    let guard = local.pin();
    let (_, tables) = shared.base.catalog.snapshot();
    load_rows(&Rows(shared.base.memory.epochs()), catalog::get(&tables, table)?, rows, &guard)
}

impl Loading for Rows<'_> {
    type Store = Relation;
    type Link = u64;

    #[inline]
    fn load(
        &self,
        store: &Relation,
        key: &[u8],
        words: &[u64],
        indexes: &mut Indexes<'_>,
    ) -> Result<Option<u64>, Error> {
        let (fixed, rest) = words.split_at(store.rows.words());
        let out_of_line = OutOfLineAddress::new(rest, indexes.guard())?;
        let slot = store.rows.allocate(self.0, indexes.guard())?;
        let mut latched = slot.latch();
        latched.store(0, fixed);
        latched.set_out_of_line(out_of_line);
        latched.set_present(true);
        drop(latched);
        Ok(indexes.insert(store, key, slot.record.handle())?.then(|| slot.record.id()))
    }

    fn entry<'b>(&self, row: u64, _primary: &[u8], buffer: &'b mut RowBuffer) -> &'b [u64] {
        entry_words(row, buffer)
    }
}
