//! Rows whose chains are long above what is collected, because somebody reads an old timestamp. Each image that is collected would go past the
//! same newer ones; a worker that has done so once remembers how far the chain is done.

use super::undo::Undo;

/// Places for rows, of which two in one place forget each other.
const SLOTS: usize = 256;

/// For some rows, by when all their images have been seen to. That stays true: later images have later commit times.
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
    /// Images above what is collected, of a chain that is worth it.
    pub(super) const LEAST: u64 = 16;

    fn slot_of(image: Undo<'_>) -> (usize, Slot) {
        let index_ref = image.index_ref();
        let (table, index, row) = (index_ref.table.position() as u32, u32::from(index_ref.index.0), image.row());
        let mixed = (row ^ u64::from(table) << 40 ^ u64::from(index) << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed >> 32) as usize % SLOTS, Slot { table, index, row, by: 0 })
    }

    /// Whether an image's row is known to be done up to the image.
    #[inline]
    pub(super) fn has(&self, image: Undo<'_>) -> bool {
        !self.slots.is_empty() && self.has_slot(image)
    }

    #[cold]
    fn has_slot(&self, image: Undo<'_>) -> bool {
        let (number, wanted) = Self::slot_of(image);
        let Slot { table, index, row, by } = self.slots[number];
        (table, index, row) == (wanted.table, wanted.index, wanted.row) && image.stamp() <= by
    }

    /// An image's row is done up to a timestamp.
    #[cold]
    pub(super) fn note(&mut self, image: Undo<'_>, by: u64) {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); SLOTS].into();
        }
        let (number, slot) = Self::slot_of(image);
        self.slots[number] = Slot { by, ..slot };
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.slots = Box::default();
    }
}
