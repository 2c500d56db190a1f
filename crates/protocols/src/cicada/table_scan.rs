//! Scans of whole tables in a snapshot: along the pages of heads, in the order in which they lie, past every index.
//!
//! A slot is seen whether or not a key leads to it. What it shows to a snapshot is right all the same:
//!
//! * A row that the snapshot sees lies in one record, which stays open as long as the snapshot holds its timestamp, because
//!   only a deletion before `min_rts` closes a record; so the row is found, and found once. Its slot was made before the
//!   snapshot began, so the pages that are listed then hold it.
//! * A record that is being inserted, was given up, or serves another key by now holds only versions of transactions that
//!   began after the snapshot. They are later than its timestamp, and passed over.
//! * What hangs on a slot is kept by the guard like anything else that is found under it; between runs the guard is
//!   renewed, and nothing is held then.
//!
//! Heads are fetched ahead by software, because the processor's own prefetching ends at small pages and does not follow
//! versions that lie outside.

use std::ops::ControlFlow;

use polychron_base::Error;
use polychron_engine::RowVisitor;
use polychron_engine::midway::Midway;

use super::array::Run;
use super::record::{Link, Status};
use super::table::Store;
use super::transaction::CicadaTransaction;

/// How far ahead heads are fetched, in bytes.
const AHEAD_BYTES: usize = 8192;
/// Heads between two renewals of the guard.
const HEADS_AT_ONCE: usize = 1024;

impl CicadaTransaction<'_> {
    /// Visits every row that this snapshot sees.
    #[inline]
    pub(super) fn scan_records(&mut self, store: &Store, visitor: &mut impl RowVisitor) -> Result<(), Error> {
        debug_assert!(self.snapshot, "what is not there is protected by indexes");
        for run in store.records.runs().iter() {
            for first in (0..run.len()).step_by(HEADS_AT_ONCE) {
                // Renews the guard.
                self.midway = Midway::at_once();
                self.step()?;
                if self.scan_heads(run, first, visitor).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Visits the rows of the heads from `first` on.
    #[inline]
    fn scan_heads(&self, run: Run<'_>, first: usize, visitor: &mut impl RowVisitor) -> ControlFlow<()> {
        let (lines, reader) = (run.lines(), self.guard.reader());
        let ahead = AHEAD_BYTES.div_ceil(64 * lines);
        for position in first..run.len().min(first + HEADS_AT_ONCE) {
            if let Some(record) = run.get(position + ahead) {
                record.prefetch(lines);
            }
            if let Some(record) = run.get(position + ahead / 2) {
                // By now the head has come. Its version needs no more lines than the head has.
                record.prefetch_latest_lines(lines);
            }
            let Some(record) = run.get(position) else { break };
            let Link::To(latest) = reader.latest(record) else { continue };
            let mut visible = latest;
            if latest.wts().is_after(self.timestamp()) || latest.status() != Status::Committed {
                let seen = reader.search(record, None, false);
                let Some(version) = seen.version.filter(|_| seen.is_row) else { continue };
                visible = version;
            }
            visitor(visible.row())?;
        }
        ControlFlow::Continue(())
    }
}
