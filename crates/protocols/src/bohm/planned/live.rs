//! Client batches that are under way, and fetching of the versions and rows that their transactions will read and write.

use std::ops::Deref;

use polychron_sync::atomic::Ordering;

use super::super::entry::Known;
use super::{ClientBatch, Content};

/// Entries between the one that is used and the one whose row is fetched, and again as many to the one whose version is.
const AHEAD: usize = 4;

/// A client batch some transaction of which is under way, so that its client keeps it, and the stores of its entries.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct LiveBatch<'c>(pub(super) &'c ClientBatch);

impl Deref for LiveBatch<'_> {
    type Target = ClientBatch;

    #[inline]
    fn deref(&self) -> &ClientBatch {
        self.0
    }
}

impl<'c> LiveBatch<'c> {
    /// The content, to be read.
    #[inline]
    pub(in super::super) fn content(self) -> &'c Content {
        self.0.content()
    }

    /// The entry at a position.
    #[inline]
    pub(in super::super) fn entry(self, position: usize) -> Known<'c> {
        // SAFETY: the stores are kept while a transaction of the client batch is under way.
        unsafe { Known::new(&self.0.content().entries[position]) }
    }

    /// How many entries there are.
    #[inline]
    pub(in super::super) fn entry_count(self) -> usize {
        self.0.content().entries.len()
    }
}

impl ClientBatch {
    /// All that a transaction of it has read is durable, although the log has stopped.
    pub(in super::super) fn note_certain(&self) {
        // Relaxed: handed on with the transaction's state.
        self.certain.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether that holds for all of them, once they were executed.
    pub(in super::super) fn is_certain(&self) -> bool {
        self.certain.load(Ordering::Relaxed) == self.content().count
    }

    /// The client batch while some transaction of it is under way.
    ///
    /// # Safety
    /// That is so for as long as it is borrowed.
    #[inline]
    pub(in super::super) unsafe fn live(&self) -> LiveBatch<'_> {
        LiveBatch(self)
    }
}

impl LiveBatch<'_> {
    /// Starts fetching what entries lead to that will be used soon, whichever thread executes their transactions.
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
