//! What a transaction hands to the log: its changes are staged before it latches anything, and sealed before it writes the first record.

use polychron_base::{Error, IndexId};
use polychron_engine::redo::{Change, Ticket};

use super::record::Tid;
use super::sets::Kind;
use super::transaction::MaflingoTransaction;
use super::worker::State;

impl Tid {
    /// The last id of an epoch.
    pub(super) fn end_of(epoch: u64) -> Self {
        Self(((epoch + 1) << Self::EPOCH_SHIFT) - 1)
    }
}

impl MaflingoTransaction<'_> {
    /// Stages the changes of rows, in the order in which they were made. Validation finds out where an insertion is no longer in its record.
    pub(super) fn stage_changes(&mut self) -> Result<(), Error> {
        let journal = &self.shared.base.common.journal;
        if journal.is_empty() {
            return Ok(());
        }
        let State { base, sets, buffers, .. } = &mut *self.state;
        for write in sets.writes.iter().filter(|write| write.index_ref.index == IndexId::PRIMARY) {
            let data = sets.writes.words(write.data);
            let change = match write.kind {
                // The row of an own record lies in the record alone.
                Kind::Insert => {
                    let record = write.record.under(&self.guard);
                    let words = &record.words()[..record.length()];
                    polychron_sync::load_words(words, buffers.row.overwrite_words(words.len()));
                    Change::Put(buffers.row.as_words())
                }
                Kind::Put => Change::Put(data),
                Kind::Patch => Change::Patch { word: write.start as usize, words: data },
                Kind::Delete => Change::Delete,
            };
            journal.stage(base.slot, write.index_ref.table, sets.writes.key_bytes(write), change)?;
        }
        Ok(())
    }

    /// What was staged has this id. Latches are held, and nothing is written yet.
    #[inline]
    pub(super) fn seal(&mut self, tid: Tid) {
        let ticket = self.shared.base.common.journal.seal(self.state.base.slot, || tid.0.into());
        self.state.base.ticket.raise(ticket);
    }

    /// The transaction has committed nothing. It waits for what it has read: up to the end of an epoch, for absent rows say not when they went.
    pub(super) fn await_reads(&mut self) {
        let (journal, State { base, sets, known, .. }) = (&self.shared.base.common.journal, &mut *self.state);
        // Nothing that was looked for was missing.
        let is_found = sets.nodes.is_empty() && !known.has_missed;
        let epoch = || match self.snapshot {
            Some(epoch) => epoch,
            None if is_found => known.newest(self.shared.base.catalog.number()),
            None => self.guard.epochs().current(),
        };
        let mut ticket = journal.ticket_of(&base.rows.watch, || Tid::end_of(epoch()).0.into());
        // Its thread may have seen what it has not: where that is not durable, it is worth while to look at what was read.
        if ticket != Ticket::DONE && self.snapshot.is_none() && is_found {
            let newest = sets.reads.iter().map(|read| read.tid.epoch()).max().unwrap_or(0).max(known.noted);
            ticket = journal.ticket(|| Tid::end_of(newest).0.into());
        }
        base.ticket.raise(ticket);
    }
}
