//! The end of a run: rows are made known, or what was there before is passed on.

use polychron_base::Stop;
use polychron_engine::mutations::left_out;

use super::collection::Deleted;
use super::execution::Outcome;
use super::planned::{Put, Ran, Want};
use super::steps::Step;
use super::transaction::{BohmTransaction, Position};

impl BohmTransaction<'_> {
    /// Ends the run of a planned transaction: fills its placeholders with what it put, or passes on what was there.
    pub(super) fn end(&mut self, ran: Ran) -> Outcome {
        if self.doomed && !self.again && self.lost.is_none() {
            return self.leave();
        }
        debug_assert!(ran != Ran::Conflict || self.doomed, "only who was told of a conflict passes one on");
        self.again |= self.is_guessing;
        let commits = ran == Ran::Commit && !self.again || left_out(Step::DiscardFailed);
        let body = self.body().expect("only planned transactions end");
        for position in self.positions().filter(|_| !commits) {
            self.entry(position).put.set(Put::Nothing);
        }
        if self.pass_on().is_err() {
            return self.leave();
        }
        for position in self.positions() {
            self.publish(position);
        }
        body.again.set(self.again);
        Outcome::Complete
    }

    /// Puts what was there before where the transaction put nothing. First all of it is made known, which can fail, and then
    /// put, which cannot.
    pub(super) fn pass_on(&mut self) -> Result<(), Stop> {
        let mut below = std::mem::take(&mut self.state.passed_on);
        below.clear();
        for position in self.positions() {
            let entry = self.entry(position);
            let is_placeholder = matches!(entry.want, Want::Write | Want::Update | Want::Late);
            if entry.put.get() != Put::Nothing || !is_placeholder || entry.version.get().is_none() {
                continue;
            }
            let found = if left_out(Step::PassOn) { None } else { self.present(position)? };
            below.push((position, found));
        }
        for &(position, below) in &below {
            let entry = self.entry(position);
            let version = entry.version.get().expect("it was looked at just now");
            // SAFETY: the transaction is executed here; the version below has a row.
            unsafe {
                version.clear(&self.guard);
                match below {
                    None => entry.put.set(Put::Deletion),
                    Some(below) => {
                        version.put_again(below);
                        entry.put.set(Put::Row);
                    }
                }
            }
        }
        self.state.passed_on = below;
        Ok(())
    }

    pub(super) fn publish(&self, position: Position) {
        let entry = self.entry(position);
        let Some(version) = entry.version.get() else { return };
        match entry.want {
            Want::Read => return,
            Want::Guessed => {
                // SAFETY: no chain has the version.
                unsafe { version.free(&self.guard) };
                entry.version.set(None);
                return;
            }
            // SAFETY: the transaction is executed here.
            _ => unsafe { version.finish(entry.put.get() == Put::Row) },
        }
        if entry.put.get() == Put::Deletion
            && let Some(chain) = entry.chain.get()
            && chain.head().newest() == Some(version)
        {
            // SAFETY: the client keeps the store until the transaction was executed, which ends after this.
            let deleted = unsafe { Deleted::new(entry, chain, version) };
            self.shared.partition(entry.hash).leave_deleted(deleted);
        }
    }

    /// Leaves the transaction as if it had not run. Versions that were not planned stay pending in their chains: who could want them
    /// waits for the whole transaction.
    pub(super) fn leave(&mut self) -> Outcome {
        for position in self.positions() {
            let entry = self.entry(position);
            entry.put.set(Put::Nothing);
            if entry.want == Want::Guessed {
                self.publish(position);
            }
        }
        self.late().expect("only planned transactions are left").retain(|entry| entry.want != Want::Guessed);
        Outcome::HandedBack
    }
}
