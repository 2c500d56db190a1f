//! Numbers of sequences in planned transactions.
//!
//! A thread that runs such a transaction asks the database for nothing, and waits for no other thread: what it would wait for may be behind what it runs. So the database
//! knows of enough numbers before. Where a transaction finds none, or sets a sequence, it fails; its client does what was wanted, and has it run again. Each run is given
//! the same numbers.

use std::sync::Arc;

use polychron_sync::spin_hint;

use crate::advisory::Own;

use super::{Drawn, DrawnInner, ROW_BLOCKS, Sequence, Shown};
use crate::error::SqlError;

/// How often a sequence is looked at that another thread has.
const SPINS: usize = 1000;

/// What a planned transaction has failed for, because only its client can do it, before it is run again.
#[derive(Debug)]
pub(super) enum Wanted {
    /// To find so many numbers.
    Numbers(Arc<Sequence>, i128),
    /// To set the sequence, which then goes on with this number or behind it.
    Set(Arc<Sequence>, i64, bool),
    /// To look at a part of its row.
    Show(Arc<Sequence>, Shown),
}

impl Sequence {
    /// Has the database know of so many more numbers, for [`Sequence::take_granted`].
    fn provide(&self, count: i128) -> Result<(), SqlError> {
        let (mut state, of) = (self.state()?, &self.definition);
        let mut next = self.behind(state.last, 1);
        if !self.is_within(next) {
            if !of.cycles {
                return Err(self.ended());
            }
            // It begins again.
            next = if of.increment > 0 { of.least } else { of.greatest }.into();
            let before = next - i128::from(of.increment);
            let before = i64::try_from(before).map_err(|_| SqlError::unsupported("a sequence of all numbers"))?;
            (state.last, state.granted) = (Some(before), None);
        }
        let last = next + i128::from(of.increment) * (count - 1);
        if !self.is_granted(&state, last.clamp(of.least.into(), of.greatest.into())) {
            self.grant(&mut state, next, count)?;
        }
        Ok(())
    }

    /// As [`Sequence::take`], of numbers that the database knows already. `None`: there are none, or another thread asks for some at this time. A thread that runs a
    /// planned transaction asks the database for nothing, and waits for no other thread.
    pub(super) fn take_granted(&self, count: i128) -> Option<(i64, i128)> {
        // Others have it for a short time, but for one that asks the database.
        let lock = |attempt| {
            if attempt > 0 {
                spin_hint();
            }
            self.state.try_lock().ok()
        };
        let mut state = (0..SPINS).find_map(lock).filter(|state| state.is_known)?;
        let next = self.behind(state.last, 1);
        let last = next + i128::from(self.definition.increment) * (count - 1);
        // Where they end, the first of them is all that is left.
        let last = if self.is_within(last) { last } else { next };
        if !self.is_within(last) || !self.is_granted(&state, last) {
            return None;
        }
        state.last = Some(last as i64);
        state.is_set_to_next = false;
        Some((next as i64, (last - next) / i128::from(self.definition.increment)))
    }
}

impl Drawn {
    /// That of a connection whose transactions are planned.
    pub(crate) fn planned() -> Self {
        Self { is_planned: true, locks: Own::planned(), ..Self::default() }
    }

    pub(crate) fn is_planned(&self) -> bool {
        self.is_planned
    }

    /// Draws the number of a row before the transaction runs, which is then given it.
    pub(crate) fn draw_ahead(&self, sequence: &Sequence) -> Option<i64> {
        let mut inner = self.inner();
        let own = sequence.definition.number;
        let (given, again) = inner.given_rows.entry(own).or_default();
        let number = match given.get(*again).copied() {
            Some(number) => number,
            None => inner.row_number(sequence, |count| sequence.take(count, ROW_BLOCKS.0)).ok()?,
        };
        inner.note_row(own, number);
        Some(number)
    }

    /// Does what a planned transaction could not do, and tells whether there was something, so that it is to be run again.
    ///
    /// # Errors
    /// It cannot be done.
    pub(crate) fn provide(&self) -> Result<bool, SqlError> {
        if self.locks.provide(self.activity.get().map(|it| &**it))? {
            return Ok(true);
        }
        let wanted = if self.is_used() { self.inner().wanted.take() } else { None };
        match wanted {
            None => return Ok(false),
            Some(Wanted::Numbers(sequence, count)) => sequence.provide(count)?,
            Some(Wanted::Set(sequence, number, is_called)) => {
                sequence.set(number, is_called)?;
                self.inner().note_given(sequence.definition.number, number);
            }
            Some(Wanted::Show(sequence, part)) => {
                let number = sequence.shown(part)?;
                self.inner().note_given(sequence.definition.number, number);
            }
        }
        Ok(true)
    }
}

impl DrawnInner {
    /// A row has this number, for the first time or again.
    fn note_row(&mut self, sequence: i64, number: i64) {
        let (given, again) = self.given_rows.entry(sequence).or_default();
        if *again == given.len() {
            given.push(number);
        }
        *again += 1;
    }

    /// A planned transaction finds no numbers: it fails, and is run again with more of them.
    #[cold]
    pub(super) fn exhaust(&mut self, sequence: &Arc<Sequence>, block: i128) -> SqlError {
        let drawn = self.given.len() + self.given_rows.values().map(|(given, _)| given.len()).sum::<usize>();
        self.wanted = Some(Wanted::Numbers(sequence.clone(), block.max(4 * drawn as i128)));
        SqlError::internal("a planned transaction has no numbers of a sequence")
    }

    /// The number of a row that is inserted.
    pub(super) fn planned_row(&mut self, sequence: &Arc<Sequence>) -> Result<i64, SqlError> {
        let own = sequence.definition.number;
        let (given, again) = self.given_rows.entry(own).or_default();
        if let Some(number) = given.get(*again).copied() {
            self.note_row(own, number);
            return Ok(number);
        }
        let nothing = || SqlError::internal("there are no row numbers");
        let number = self.row_number(sequence, |count| sequence.take_granted(count).ok_or_else(nothing));
        let number = number.map_err(|_| self.exhaust(sequence, ROW_BLOCKS.0))?;
        self.note_row(own, number);
        Ok(number)
    }
}
