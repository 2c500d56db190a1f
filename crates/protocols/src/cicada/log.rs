//! What the log gets of a transaction that has been validated.

use polychron_base::IndexId;
use polychron_engine::redo::{self, Redo};

use super::sets::Kind;
use super::transaction::CicadaTransaction;

impl<R: Redo> CicadaTransaction<'_, R> {
    /// The timestamp with its era. The worker's clock, of which it was made, knows how often it has wrapped around.
    fn extended_timestamp(&self) -> redo::ExtendedTimestamp {
        let (shape, adjusted) = (self.shared.clocks.shape, self.state.clock.adjusted);
        debug_assert_eq!(
            shape.timestamp(adjusted, self.state.base.slot),
            self.timestamp(),
            "a worker runs one transaction"
        );
        redo::ExtendedTimestamp { era: shape.era(adjusted), timestamp: self.timestamp().0 }
    }

    /// Hands the changes of rows to the log.
    pub(super) fn log(&self) {
        if !R::ENABLED {
            return;
        }
        let (redo, worker) = (&self.shared.redo, self.state.base.slot);
        let timestamp = self.extended_timestamp();
        let writes = &self.state.sets.writes;
        for pending in &self.state.buffers.pending {
            let write = writes.get(pending.write);
            if write.place.index != IndexId::PRIMARY || write.unlogged {
                continue;
            }
            let change = match write.kind {
                Kind::Put => redo::Change::Put(writes.row(pending.write).as_words()),
                Kind::Delete => redo::Change::Delete,
            };
            redo.change(worker, timestamp, write.place.table, writes.key(write), change);
        }
        redo.committed(worker, timestamp);
    }
}
