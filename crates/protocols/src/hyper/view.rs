//! Version access: what a slot shows at a timestamp (§2.2 of the paper).

use std::ops::Range;

use polychron_engine::mutations::left_out;
use polychron_memory::Guard;

use super::out_of_line::OutOfLine;
use super::rows::{ReadInPlace, Record};
use super::steps::Step;
use super::undo::{FIRST_ID, Kept, Kind, Undo};

/// What a slot shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'g> {
    /// Whether there is a row.
    pub(super) present: bool,
    /// What is behind its fixed part.
    pub(super) out_of_line: Option<OutOfLine<'g>>,
    /// The newest before-image that the slot had.
    pub(super) version: Option<Undo<'g>>,
    /// See `ReadInPlace::all_visible`.
    pub(super) all_visible: bool,
    /// Whether the slot no longer serves a key.
    pub(super) closed: bool,
}

/// The same, without what only a guard keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) present: bool,
    pub(super) version: Option<Kept>,
    pub(super) all_visible: bool,
}

impl<'g> Seen<'g> {
    /// See [`Shown`].
    #[inline]
    pub(super) fn shown(self) -> Shown {
        Shown { present: self.present, version: self.version.map(Undo::kept), all_visible: self.all_visible }
    }

    pub(super) fn in_place(at: ReadInPlace<'g>) -> Self {
        let ReadInPlace { present, closed, version, all_visible, out_of_line } = at;
        Self { present, out_of_line, version, all_visible, closed }
    }
}

/// The id of a reader that writes nothing.
pub(super) const SNAPSHOT: u64 = 0;

/// Copies the words in place, and undoes whatever is newer than `timestamp` and not the reader's own, newest first, up to the first
/// before-image that is neither: the paper's rule. Before-images that are all-visible need no look, unless the reader is a [`SNAPSHOT`].
#[inline(always)]
pub(super) fn view<'g>(
    record: Record<'_>,
    range: Range<usize>,
    out: &mut [u64],
    (timestamp, own): (u64, u64),
    guard: &'g Guard<'_>,
) -> Seen<'g> {
    let at = record.read(range, out, guard);
    let mut seen = Seen::in_place(at);
    let mut next = at.version.filter(|_| !at.all_visible || own == SNAPSHOT);
    while let Some(before_image) = next {
        let stamp = before_image.stamp();
        if is_visible(stamp, timestamp, own) {
            break;
        }
        apply(before_image, out, &mut seen);
        next = before_image.older();
    }
    seen
}

#[inline]
fn is_visible(stamp: u64, timestamp: u64, own: u64) -> bool {
    stamp <= timestamp
        || stamp == own
        || stamp >= FIRST_ID && left_out(Step::UndoUncommitted)
        || stamp < FIRST_ID && left_out(Step::UndoLater)
}

/// Undoes one change. A thread that wants to know only whether there is a row brings no room for its words.
#[inline]
pub(super) fn apply<'g>(before_image: Undo<'g>, out: &mut [u64], seen: &mut Seen<'g>) {
    seen.present = before_image.kind() != Kind::Insert;
    for (first, words) in before_image.fragments() {
        if let Some(place) = out.get_mut(first..first + words.len()) {
            place.copy_from_slice(words);
        }
    }
    if let Some(out_of_line) = before_image.out_of_line() {
        seen.out_of_line = out_of_line;
    }
}
