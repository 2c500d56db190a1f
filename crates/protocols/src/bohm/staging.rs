//! What a transaction hands to the log: its changes are staged at the end of its run, and sealed before the first of them is published.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId};
use polychron_engine::mutations::left_out;
use polychron_engine::redo::Change;
use polychron_engine::stores::IndexRef;

use super::entry::{AnyKey, Put, Want};
use super::steps::Step;
use super::timestamp::Timestamp;
use super::transaction::{BohmTransaction, Position};
use super::version::State;

impl BohmTransaction<'_> {
    /// Stages the changes of rows of a run that is to commit. What is below the rows is resolved first: that may execute other transactions in this
    /// thread, and those stage changes, too. From then on until the sealing none is executed.
    ///
    /// # Errors
    /// Why it does not commit, unless it is doomed.
    pub(super) fn stage_changes(&mut self) -> Result<(), Error> {
        if self.shared.base.common.journal.is_empty() || self.planned.is_none() || self.is_void() {
            return Ok(());
        }
        if !left_out(Step::ResolveBeforeStaging) {
            self.resolve_below()?;
        }
        let staged = self.positions().try_for_each(|position| self.stage(position));
        staged.inspect_err(|_| self.discard_staged())
    }

    /// Resolves what [`Self::pass_on`] will ask for, and what a row replaces that was put without a look at it.
    fn resolve_below(&mut self) -> Result<(), Error> {
        for position in self.positions() {
            let entry = self.entry(position);
            if !matches!(entry.want, Want::Write | Want::Update | Want::Late) || entry.version().is_none() {
                continue;
            }
            match entry.put() {
                Put::Nothing => _ = self.present(position)?,
                // Transactions before this one may put versions below that they have not named.
                Put::Row if entry.store().prefixes.lengths() != 0 => _ = self.await_prefixes_at(position)?,
                Put::Row | Put::Deletion => {}
            }
        }
        Ok(())
    }

    /// Stages the change of an entry's row, if it is one's. The version below stays as it is, if its transaction is complete.
    fn stage(&mut self, position: Position) -> Result<(), Error> {
        let entry = self.entry(position);
        let put = entry.put();
        if put == Put::Nothing || !matches!(entry.want, Want::Write | Want::Update | Want::Late) {
            return Ok(());
        }
        let IndexRef { table, index } = entry.store().index_ref();
        if index != IndexId::PRIMARY {
            return Ok(());
        }
        if !self.has_staged {
            // Here, and not before it begins: its client's thread may be another one, and its ring too. Nothing is latched, and those who wait for the
            // transaction wait for no longer than it takes to flush.
            self.shared.base.common.journal.admit(self.local.worker_id().position())?;
        }
        // Before the first of several patches.
        self.has_staged = true;
        let entry = self.entry(position);
        let mut bytes = [0; size_of::<u128>()];
        let key = match entry.key() {
            AnyKey::Long(key) => key,
            AnyKey::Short(key) => {
                let len = key.write_to(&mut bytes);
                &bytes[..len]
            }
        };
        let (journal, worker) = (&self.shared.base.common.journal, self.local.worker_id().position());
        let row = self.own_version_at(position).filter(|_| put == Put::Row).map(|version| self.words_put(version));
        match (row, self.below(position).map(|below| below.state())) {
            (Some(row), Some(State::Row(below))) => journal.stage_update(worker, (table, key), below.words(), row),
            (Some(row), _) => journal.stage(worker, table, key, Change::Put(row)),
            (None, _) => journal.stage(worker, table, key, Change::Delete),
        }
    }

    /// What was staged counts: nothing of it is published yet, and the transaction is going to commit.
    pub(super) fn seal(&mut self) {
        if std::mem::take(&mut self.has_staged) {
            let worker = self.local.worker_id().position();
            self.shared.base.common.journal.seal(worker, || self.timestamp.bits().into());
        }
    }

    /// The transaction does not commit.
    pub(super) fn discard_staged(&mut self) {
        if std::mem::take(&mut self.has_staged) {
            self.shared.base.common.journal.discard(self.local.worker_id().position());
        }
    }

    /// Its client waits for all of its batch: that has read nothing that came later, and some other thread may have sealed it.
    pub(super) fn await_batch(&mut self) {
        if !self.scratch.watch.is_certain() {
            let batch = self.timestamp.batch();
            self.state.ticket.raise(self.shared.journal_ticket(batch));
        }
    }
}

impl super::protocol::Shared {
    /// What answers of a batch wait for.
    pub(super) fn journal_ticket(&self, batch: u64) -> polychron_engine::Ticket {
        self.base.common.journal.ticket(|| Timestamp::end_of(batch).bits().into())
    }
}
