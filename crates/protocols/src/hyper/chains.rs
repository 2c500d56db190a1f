//! Rows whose chains are long above what is collected, because some thread reads an old timestamp. Each before-image that is collected would
//! go past the same newer ones; a worker that has done so once remembers how far the chain is done.

use super::undo::Undo;

/// Places for rows, of which two in one place forget each other.
const SLOTS: usize = 256;

/// For some rows, by when all their before-images have been seen to. That stays true: later before-images have later commit times.
#[derive(Debug, Default)]
pub(super) struct LongChains {
    /// None while there are none.
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    table: u32,
    index: u32,
    row: u64,
    by: u64,
}

impl LongChains {
    /// Before-images above what is collected, of a chain that is worth it.
    pub(super) const LEAST: u64 = 16;

    fn slot_of(before_image: Undo<'_>) -> (usize, Slot) {
        let index_ref = before_image.index_ref();
        let (table, index, row) = (index_ref.table.position() as u32, u32::from(index_ref.index.0), before_image.row());
        let mixed = (row ^ u64::from(table) << 40 ^ u64::from(index) << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed >> 32) as usize % SLOTS, Slot { table, index, row, by: 0 })
    }

    /// Whether a before-image's row is known to be done up to the before-image.
    #[inline]
    pub(super) fn has(&self, before_image: Undo<'_>) -> bool {
        !self.slots.is_empty() && self.has_slot(before_image)
    }

    #[cold]
    fn has_slot(&self, before_image: Undo<'_>) -> bool {
        let (number, wanted) = Self::slot_of(before_image);
        let Slot { table, index, row, by } = self.slots[number];
        (table, index, row) == (wanted.table, wanted.index, wanted.row) && before_image.stamp() <= by
    }

    /// A before-image's row is done up to a timestamp.
    #[cold]
    pub(super) fn note(&mut self, before_image: Undo<'_>, by: u64) {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); SLOTS].into();
        }
        let (number, slot) = Self::slot_of(before_image);
        self.slots[number] = Slot { by, ..slot };
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.slots = Box::default();
    }
}
