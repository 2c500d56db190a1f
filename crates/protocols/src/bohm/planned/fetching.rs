//! Fetching of the versions and rows that transactions of a client batch will read and write.

use super::LiveBatch;

/// Entries between the one that is used and the one whose row is fetched, and again as many to the one whose version is.
const AHEAD: usize = 4;

impl LiveBatch<'_> {
    /// Starts fetching what entries lead to that will be used soon, whoever executes their transactions.
    #[inline]
    pub(in super::super) fn fetch_behind(self, position: usize) {
        self.fetch_version(position + 2 * AHEAD);
        self.fetch_row(position + AHEAD);
    }

    /// Starts fetching what the first of some entries lead to.
    pub(in super::super) fn fetch_first(self, position: usize) {
        (position..position + 2 * AHEAD).for_each(|position| self.fetch_version(position));
        (position..position + AHEAD).for_each(|position| self.fetch_row(position));
    }

    #[inline]
    fn fetch_version(self, position: usize) {
        if position < self.entry_count() {
            self.entry(position).fetch_version();
        }
    }

    #[inline]
    fn fetch_row(self, position: usize) {
        if position < self.entry_count() {
            self.entry(position).fetch_row();
        }
    }
}
