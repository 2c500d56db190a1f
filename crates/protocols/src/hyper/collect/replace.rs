//! Puts copies of before-images in the place of the originals.

use polychron_engine::mutations::left_out;
use polychron_memory::Guard;

use super::super::rows::Record;
use super::super::steps::Step;
use super::super::undo::Undo;

/// Replaces a before-image that is needed by a copy. `false`: another thread has unlinked it.
pub(in crate::hyper) fn replace(record: Record<'_>, before_image: Undo<'_>, copy: Undo<'_>, guard: &Guard<'_>) -> bool {
    let mut latched = record.latch();
    let all_visible = latched.is_all_visible();
    let (mut newer, mut next) = (None, latched.version(guard));
    while let Some(present) = next.filter(|present| *present != before_image) {
        newer = next;
        next = present.older();
    }
    if before_image.has_left() {
        return false;
    }
    before_image.leave();
    if next.is_none() {
        return false;
    }
    copy.set_older(before_image.older());
    copy.own_out_of_line(before_image.own_out_of_line(false));
    // What it took over since the copy was made.
    copy.take_over(before_image);
    let after = if left_out(Step::MoveOut) { before_image.older() } else { Some(copy) };
    match newer {
        Some(newer) => Undo::set_older(newer, after),
        None => latched.set_version(after),
    }
    if all_visible {
        latched.mark_all_visible();
    }
    true
}
