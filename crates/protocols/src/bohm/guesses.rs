//! Procedures that are planned again with the keys that a run found out (reconnaissance, §3).

use polychron_base::{Abort, Error, IndexId, Reason, TableId};
use polychron_engine::stores::OwnedKey;

use super::planned::HandedIn;

/// A procedure that is planned again, and what is known of the keys it writes.
pub(super) struct Guess {
    pub(super) position: usize,
    pub(super) attempts: u32,
    pub(super) keys: Vec<(TableId, OwnedKey)>,
}

impl Guess {
    /// The error of a procedure whose guesses were wrong as often as it may conflict. The first run, which finds out what there is to guess, is
    /// none of them.
    pub(super) fn given_up(&self, most: u64) -> Option<Error> {
        let wrong = u64::from(self.attempts) - 1;
        if wrong == 0 || wrong < most {
            return None;
        }
        let table = self.keys.last().map_or_else(TableId::default, |(table, _)| *table);
        let abort = Abort { reason: Reason::StaleRead, table, index: IndexId::PRIMARY, key: None, opponent: None };
        Some(Error::conflicts(wrong, abort))
    }
}

/// What is known of the keys that a procedure writes: those that it named, and those that its run found out.
pub(super) fn guess(client_batch: &HandedIn, in_batch: usize, position: usize, attempts: u32) -> Guess {
    let written = client_batch.entries(in_batch).filter(|entry| entry.is_written());
    let of_rows = written
        .map(|entry| (entry, entry.store().index_ref()))
        .filter(|(_, index_ref)| index_ref.index == IndexId::PRIMARY);
    let keys = of_rows.map(|(entry, index_ref)| (index_ref.table, OwnedKey::new(entry.key()))).collect();
    Guess { position, attempts, keys }
}
