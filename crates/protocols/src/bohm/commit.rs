//! The end of a run: rows are published, or the rows below are passed on.

use polychron_base::Error;
use polychron_engine::mutations::left_out;
use polychron_engine::redo;

use super::entry::{Put, Want};
use super::execution::Outcome;
use super::planned::Ran;
use super::steps::Step;
use super::transaction::{BohmTransaction, Position};

impl BohmTransaction<'_> {
    /// Ends the run of a planned transaction: fills its placeholders with what it put, or passes on what was there.
    pub(super) fn end(&mut self, ran: Ran) -> Outcome {
        if self.doomed && !self.again && self.lost.is_none() {
            return self.leave();
        }
        debug_assert!(ran != Ran::Conflict || self.doomed, "a conflict that is passed on was observed");
        self.again |= self.is_guessing;
        let commits = ran == Ran::Commit && !self.again || left_out(Step::DiscardFailed);
        for position in self.positions().filter(|_| !commits) {
            self.entry(position).set_put(Put::Nothing);
        }
        if self.pass_on().is_err() {
            return self.leave();
        }
        if !left_out(redo::Step::SealFirst) {
            self.seal();
        }
        for position in self.positions() {
            self.publish(position);
        }
        self.seal();
        if self.scratch.watch.is_certain()
            && let Some(planned) = &self.planned
        {
            planned.client_batch().note_certain();
        }
        Outcome::Complete
    }

    /// Passes on the row below where the transaction put nothing. First all these rows are resolved, which can fail, and then they are put, which
    /// cannot.
    pub(super) fn pass_on(&mut self) -> Result<(), Error> {
        let mut below = std::mem::take(&mut self.state.passed_on);
        below.clear();
        for position in self.positions() {
            let entry = self.entry(position);
            let is_placeholder = matches!(entry.want, Want::Write | Want::Update | Want::Late);
            if entry.put() != Put::Nothing || !is_placeholder || entry.version().is_none() {
                continue;
            }
            let found = if left_out(Step::PassOn) { None } else { self.present(position)? };
            below.push((position, found.is_some()));
        }
        below.iter().for_each(|&(position, has_row)| self.put_below(position, has_row));
        self.state.passed_on = below;
        Ok(())
    }

    pub(super) fn publish(&mut self, position: Position) {
        match self.entry(position).want {
            Want::Read => return,
            Want::Guessed => return self.free_guessed(position),
            _ => {}
        }
        let Some((version, entry, _)) = self.filling(position) else { return };
        let put = entry.put();
        version.finish(put == Put::Row);
        if put == Put::Deletion {
            self.leave_deleted(position);
        }
    }

    /// Leaves the transaction as if it had not run. Versions that were not planned stay pending in their chains: whatever could read them waits for
    /// the whole transaction.
    pub(super) fn leave(&mut self) -> Outcome {
        self.discard_staged();
        for position in self.positions() {
            let entry = self.entry(position);
            entry.set_put(Put::Nothing);
            if entry.want == Want::Guessed {
                self.publish(position);
            }
        }
        let planned = self.planned.as_mut().expect("only planned transactions are left");
        planned.body_mut().late.retain(|entry| entry.want != Want::Guessed);
        Outcome::HandedBack
    }
}
