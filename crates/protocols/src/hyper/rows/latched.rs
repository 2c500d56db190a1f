//! Slots whose latch is held, and slots that no thread has seen yet.

use polychron_memory::Guard;
use polychron_sync::atomic::Ordering;
use polychron_sync::store_words;

use super::{
    ABSENT, ALL_VISIBLE, CHANGE, CLOSED, DISPLACED, LATCHED, OUT_OF_LINE, RESTORED, Record, SPECIAL, STATE, VERSION,
    VERSIONED,
};
use crate::hyper::out_of_line::OutOfLineAddress;
use crate::hyper::restored::Restored;
use crate::hyper::undo::Undo;

/// A slot that was allocated and shows nothing yet.
#[derive(Clone, Copy, Debug)]
pub(in crate::hyper) struct Fresh<'t> {
    pub(in crate::hyper) record: Record<'t>,
    pub(super) is_reused: bool,
}

impl<'t> Fresh<'t> {
    /// Takes the latch of the slot, which is absent then. One that was in use before may have others at its latch, which go along
    /// before-images that have left it; at the latch of one that never was there is no thread, so no exchange is needed.
    #[inline]
    pub(in crate::hyper) fn latch(self) -> Latched<'t> {
        if self.is_reused {
            return self.record.reopen();
        }
        let word = self.record.word::<STATE>();
        // Relaxed: any thread that goes along the slots is kept off as in `Record::latch`.
        let state = word.load(Ordering::Relaxed);
        debug_assert!(state & (LATCHED | SPECIAL) == ABSENT, "no thread has had the slot");
        word.store(state | LATCHED, Ordering::Relaxed);
        Latched { record: self.record, state }
    }
}

/// A slot whose latch is held.
#[derive(Debug)]
pub(in crate::hyper) struct Latched<'t> {
    pub(super) record: Record<'t>,
    /// What will stand in the state.
    pub(super) state: u64,
}

impl Latched<'_> {
    /// The newest before-image.
    #[inline]
    pub(in crate::hyper) fn version<'g>(&self, guard: &'g Guard<'_>) -> Option<Undo<'g>> {
        self.record.version_of(Ordering::Relaxed, guard)
    }

    #[inline]
    pub(in crate::hyper) fn set_version(&mut self, version: Option<Undo<'_>>) {
        // Release: pairs with the acquire in `read`.
        self.record.word::<VERSION>().store(version.map_or(0, Undo::address), Ordering::Release);
        self.state &= !(VERSIONED | ALL_VISIBLE);
        if version.is_some() {
            self.state |= VERSIONED;
        }
    }

    /// See [`ReadInPlace::all_visible`].
    #[inline]
    pub(in crate::hyper) fn is_all_visible(&self) -> bool {
        self.state & ALL_VISIBLE != 0
    }

    /// Says that the newest before-image is all-visible.
    #[inline]
    pub(in crate::hyper) fn mark_all_visible(&mut self) {
        self.state |= ALL_VISIBLE;
    }

    /// What is behind the fixed part.
    #[inline]
    pub(in crate::hyper) fn out_of_line(&self) -> Option<OutOfLineAddress> {
        self.record.out_of_line(Ordering::Relaxed)
    }

    #[inline]
    pub(in crate::hyper) fn set_out_of_line(&mut self, out_of_line: Option<OutOfLineAddress>) {
        debug_assert!(out_of_line.is_none() || self.record.rows.has_out_of_line);
        if self.record.rows.has_out_of_line {
            // Release: as above.
            self.record
                .word::<OUT_OF_LINE>()
                .store(out_of_line.map_or(0, OutOfLineAddress::to_word), Ordering::Release);
        }
    }

    /// What any thread that undoes the slot puts back, as far as it is known.
    #[inline]
    pub(in crate::hyper) fn restored(&self) -> Restored {
        let has_out_of_line = self.record.rows.has_out_of_line;
        if has_out_of_line {
            Restored::default()
        } else {
            Restored::from_word(self.record.word::<RESTORED>().load(Ordering::Relaxed))
        }
    }

    #[inline]
    pub(super) fn set_restored(&mut self, restored: Restored) {
        if !self.record.rows.has_out_of_line {
            // Only the holder of the latch reads it.
            self.record.word::<RESTORED>().store(restored.to_word(), Ordering::Relaxed);
        }
    }

    /// Notes what a committed before-image puts back that stays in the chain; `timestamp` is the latest one before its commit that is read.
    #[inline]
    pub(in crate::hyper) fn note_restored(&mut self, before_image: Undo<'_>, timestamp: u64) {
        self.set_restored(self.restored().with(before_image, timestamp, self.record.rows.words));
    }

    /// A word of the row.
    #[inline]
    pub(in crate::hyper) fn load(&self, word: usize) -> u64 {
        self.record.of_row(word).load(Ordering::Relaxed)
    }

    /// Writes words of the row from `start` on.
    #[inline]
    pub(in crate::hyper) fn store(&mut self, start: usize, words: &[u64]) {
        if self.record.rows.word_stride == 1 {
            store_words(self.record.adjacent(start..start + words.len()), words);
            return;
        }
        for (word, value) in words.iter().enumerate() {
            // Release: pairs with the acquire in `read`.
            self.record.of_row(start + word).store(*value, Ordering::Release);
        }
    }

    /// Whether there is a row.
    #[inline]
    pub(in crate::hyper) fn is_present(&self) -> bool {
        self.state & ABSENT == 0
    }

    #[inline]
    pub(in crate::hyper) fn set_present(&mut self, present: bool) {
        self.state = if present { self.state & !ABSENT } else { self.state | ABSENT };
    }

    /// Whether the slot no longer serves a key.
    #[inline]
    pub(in crate::hyper) fn is_closed(&self) -> bool {
        self.state & CLOSED != 0
    }

    /// The slot no longer serves a key. Whether its key is to leave the index beside.
    #[inline]
    pub(in crate::hyper) fn close(&mut self) -> bool {
        self.state |= CLOSED;
        self.state & DISPLACED != 0
    }

    /// The slot was given back, and is going to serve another key.
    #[inline]
    pub(super) fn serve_anew(&mut self) {
        self.state &= !(CLOSED | DISPLACED);
    }

    /// See [`Record::is_in_index`].
    #[inline]
    pub(in crate::hyper) fn is_in_index(&self) -> bool {
        self.state & (CLOSED | DISPLACED) == 0
    }

    /// The record's key is in the index beside, and is about to leave the other one.
    #[inline]
    pub(in crate::hyper) fn displace(&mut self) {
        self.state |= DISPLACED;
    }
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquires in `read` and `latch`.
        self.record.word::<STATE>().store(self.state.wrapping_add(CHANGE), Ordering::Release);
    }
}
