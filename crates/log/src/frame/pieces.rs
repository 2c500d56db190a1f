//! Whether the pieces of long transactions are all there, each behind the one before.

use polychron_engine::mutations::left_out;

use super::{Malformed, Order, Piece, Record};
use crate::steps::Step;

/// The part of a transaction that was read so far. All of it lies in one epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pieces {
    /// Its order, its worker, and the number of its next change.
    open: Option<(Order, u32, u32)>,
}

impl Pieces {
    /// The next record. One that is not all of its transaction is read to its end.
    ///
    /// # Errors
    /// [`Malformed`]: a change is, or the record is not the piece that comes next.
    pub(crate) fn follow(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        if record.piece == Piece::WHOLE && self.open.is_none() { Ok(()) } else { self.take(record) }
    }

    /// Reads the next record to its end.
    ///
    /// # Errors
    /// As of [`follow`](Self::follow).
    pub(crate) fn take(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        let mut end = u64::from(record.piece.first);
        for change in record.changes() {
            change?;
            end += 1;
        }
        let end = u32::try_from(end).map_err(|_| Malformed)?;
        let this = (record.order, record.worker, record.piece.first);
        let follows = self.open.take().map_or(record.piece.first == 0, |next| next == this);
        self.open = record.piece.goes_on.then_some((record.order, record.worker, end));
        if follows || left_out(Step::FollowPieces) { Ok(()) } else { Err(Malformed) }
    }

    /// An epoch ends here, or what is carried of the log.
    ///
    /// # Errors
    /// [`Malformed`]: a transaction lacks its last piece.
    pub(crate) fn end(&mut self) -> Result<(), Malformed> {
        let is_whole = self.open.take().is_none() || left_out(Step::AwaitLastPiece);
        if is_whole { Ok(()) } else { Err(Malformed) }
    }
}
