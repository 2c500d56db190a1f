//! What changes in a before-image that is in a chain: the columns and the changes for which it stands, and its marks.

use polychron_schema::ColumnSet;
use polychron_sync::atomic::Ordering;

use super::{CAME_OR_WENT, Header, Kind, LEFT, OVER_ALL_VISIBLE, OWNS_OUT_OF_LINE, Undo};

impl Undo<'_> {
    /// The columns that changed, in newer changes too for which it stands.
    #[inline]
    pub(in crate::hyper) fn columns(self) -> ColumnSet {
        // Relaxed: any thread that does not find the before-image that was taken over has come by a link that was changed behind this word.
        ColumnSet::from_bits(self.header().columns.load(Ordering::Relaxed))
    }

    /// Whether the row came or went, in a newer change perhaps for which it stands.
    #[inline]
    pub(in crate::hyper) fn comes_or_goes(self) -> bool {
        self.kind() != Kind::Update || self.header().marks.load(Ordering::Relaxed) & CAME_OR_WENT != 0
    }

    /// From now on it stands for the next newer before-image, too, which is about to leave the chain: any thread that asks what has changed
    /// in the row since a timestamp before both finds it here. Under the latch of the slot.
    pub(in crate::hyper) fn take_over(self, newer: Undo<'_>) {
        let Header { columns, marks, .. } = self.header();
        columns.store(columns.load(Ordering::Relaxed) | newer.columns().bits(), Ordering::Relaxed);
        if newer.comes_or_goes() {
            marks.store(marks.load(Ordering::Relaxed) | CAME_OR_WENT, Ordering::Relaxed);
        }
    }

    /// Says that the out-of-line part goes with the before-image, or that it does not; answers what was so.
    #[inline]
    pub(in crate::hyper) fn own_out_of_line(self, owns: bool) -> bool {
        let marks = &self.header().marks;
        let before = marks.load(Ordering::Relaxed);
        marks.store(if owns { before | OWNS_OUT_OF_LINE } else { before & !OWNS_OUT_OF_LINE }, Ordering::Relaxed);
        before & OWNS_OUT_OF_LINE != 0 && self.header().out_of_line != 0
    }

    /// It is put in front of an all-visible one, and the slot does not count what it puts back yet; under the latch of the slot.
    #[inline]
    pub(in crate::hyper) fn set_over_all_visible(self, is_over_all_visible: bool) {
        let marks = &self.header().marks;
        let before = marks.load(Ordering::Relaxed);
        marks.store(
            if is_over_all_visible { before | OVER_ALL_VISIBLE } else { before & !OVER_ALL_VISIBLE },
            Ordering::Relaxed,
        );
    }

    /// See [`Undo::set_over_all_visible`]: what is older is looked at by no thread that may write.
    #[inline]
    pub(in crate::hyper) fn is_over_all_visible(self) -> bool {
        self.header().marks.load(Ordering::Relaxed) & OVER_ALL_VISIBLE != 0
    }

    /// The before-image has left its chain, under the latch of the slot, before its buffer was old.
    #[inline]
    pub(in crate::hyper) fn leave(self) {
        let marks = &self.header().marks;
        marks.store(marks.load(Ordering::Relaxed) | LEFT, Ordering::Relaxed);
    }

    /// Whether [`Undo::leave`] was called.
    #[inline]
    pub(in crate::hyper) fn has_left(self) -> bool {
        self.header().marks.load(Ordering::Relaxed) & LEFT != 0
    }
}
