//! Answers that stay with the session, or go to the client row by row.

use polychron_engine::Interactive;

use super::modes::View;
use super::script::MOST_BYTES;
use super::{HERE, Kept, Session};
use crate::context::Now;
use crate::copy::Encoder;
use crate::cursors::{Cursor, Declare};
use crate::error::SqlError;
use crate::exec::{WORK_MEMORY, bytes_of};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::statement::each_row;
use crate::tape::lend;
use crate::text::Zone;

impl<W: Interactive + 'static> Session<W> {
    /// Runs the query of a cursor in the open transaction, and keeps its answer.
    pub(crate) fn declare(&mut self, declare: &Declare, (plan, values): Kept<'_>, zone: &Zone) -> Result<(), SqlError> {
        if self.may_move_to_snapshot() {
            self.begin_anew(View::Fresh)?;
        }
        let room = WORK_MEMORY.saturating_sub(self.cursors.iter().map(|cursor| cursor.bytes).sum());
        loop {
            let (mut rows, mut bytes) = (Vec::new(), 0);
            let block = self.block.as_mut().expect("a transaction is open");
            let transaction = block.transaction.as_mut().expect("one that has failed runs nothing");
            let now = Now::At(block.now);
            let mut sum = block.script.begin_sum();
            let mut keep = |row: &[crate::Datum<'_>]| {
                row.iter().for_each(|value| sum.add(*value));
                bytes += bytes_of(row);
                if bytes > room {
                    let detail = format!("The cursors of a session take at most {WORK_MEMORY} bytes.");
                    return Err(SqlError::out_of_memory(detail));
                }
                rows.push(row.iter().map(|value| value.owned()).collect());
                Ok(())
            };
            let run = || {
                transaction.with(|transaction| each_row((plan, values), transaction, zone, now, &mut keep)).expect(HERE)
            };
            match lend(&mut block.tape, run) {
                Ok(count) => {
                    block.script.push(plan, values, sum.finish(count, &[]));
                    let columns = plan.columns().iter().map(|column| (column.name.clone(), column.of.base)).collect();
                    let number = self.next_cursor();
                    let bounds = plan.columns().iter().map(|column| column.of.bound).collect();
                    let outcome = Outcome { columns, bounds, rows, ..Outcome::default() };
                    self.cursors.push(Cursor::new(declare, outcome, bytes, number));
                    return Ok(());
                }
                Err(failure) => self.recover(failure, zone).map_err(|failure| self.fail(failure))?,
            }
        }
    }

    /// Behind which number cursors and portals were undone since this was asked last.
    pub(crate) fn take_undone(&mut self) -> Option<u64> {
        self.undone_behind.take()
    }

    /// The number of a new cursor or portal.
    pub(crate) fn next_cursor(&mut self) -> u64 {
        self.cursor_count += 1;
        self.cursor_count
    }

    /// The transaction has ended: its cursors go, but for those that are held where it has committed.
    pub(super) fn end_cursors(&mut self, has_committed: bool) {
        self.cursors.retain_mut(|cursor| {
            cursor.has_survived |= has_committed && cursor.is_held;
            cursor.has_survived
        });
    }

    /// Runs a plan in the open transaction, and gives its rows to the client as they come.
    pub(crate) fn run_out(
        &mut self,
        plan: &std::sync::Arc<Plan>,
        zone: &Zone,
        encoder: &mut Encoder<'_>,
    ) -> Result<u64, SqlError> {
        self.make_way_for(plan, zone)?;
        if self.is_explicit() {
            // What is long cannot be run again.
            self.leave_undeclared(false, zone)?;
        }
        loop {
            let block = self.block.as_mut().expect("a transaction is open");
            let transaction = block.transaction.as_mut().expect("one that has failed runs nothing");
            let (now, mut bytes) = (Now::At(block.now), 0_usize);
            let mut sum = block.script.begin_sum();
            let mut give = |row: &[crate::Datum<'_>]| {
                row.iter().for_each(|value| sum.add(*value));
                bytes = bytes.saturating_add(bytes_of(row));
                encoder.row(row)
            };
            let run = || {
                transaction.with(|transaction| each_row((plan, &[]), transaction, zone, now, &mut give)).expect(HERE)
            };
            match lend(&mut block.tape, run) {
                // An answer that is run again is kept whole.
                Ok(count) if bytes > MOST_BYTES => {
                    block.script.cut();
                    return Ok(count);
                }
                Ok(count) => {
                    block.script.push(plan, &[], sum.finish(count, &[]));
                    return Ok(count);
                }
                Err(failure) if encoder.has_given => return Err(self.fail(failure)),
                Err(failure) => {
                    self.recover(failure, zone).map_err(|failure| self.fail(failure))?;
                    encoder.begin();
                }
            }
        }
    }
}
