//! Which before-images must stay in their chains.

use polychron_engine::mutations::left_out;

use super::clock::Held;
use super::steps::Step;
use super::undo::{FIRST_ID, Kind, Undo};

/// Whether any timestamp that is read needs a before-image.
pub(super) fn is_needed(before_image: Undo<'_>, held: &Held) -> bool {
    let stamp = before_image.stamp();
    if stamp >= FIRST_ID || stamp > held.upto {
        return true;
    }
    // One that is old is cut by the thread that has its buffer, which then sees whether the slot is to be closed.
    let Some(timestamp) = held.latest_before(stamp) else { return true };
    let older = before_image.older().filter(|older| older.stamp() > timestamp);
    // A thread that may write and began before a lock was committed must not write what was locked.
    older.map_or_else(
        || !is_blank(before_image) || stamp > held.from,
        |older| !is_covered(before_image, older, timestamp),
    )
}

/// Whether a before-image is only a lock.
fn is_blank(before_image: Undo<'_>) -> bool {
    before_image.kind() == Kind::Update
        && before_image.fragments().next().is_none()
        && before_image.out_of_line().is_none()
}

/// Whether before-images from `older` on that are undone at `timestamp` put back all that `before_image` does.
fn is_covered(before_image: Undo<'_>, older: Undo<'_>, timestamp: u64) -> bool {
    let undone = || std::iter::successors(Some(older), |undo| undo.older()).take_while(|undo| undo.stamp() > timestamp);
    let has_out_of_line = |undo: Undo<'_>| undo.kind() == Kind::Insert || undo.out_of_line().is_some();
    let has_word = |undo: Undo<'_>, word: usize| {
        undo.kind() == Kind::Insert
            || undo.fragments().any(|(first, fragment)| (first..first + fragment.len()).contains(&word))
    };
    let mut words = before_image.fragments().flat_map(|(first, fragment)| first..first + fragment.len());
    left_out(Step::KeepWords)
        || words.all(|word| undone().any(|undo| has_word(undo, word)))
            && (before_image.out_of_line().is_none() || undone().any(has_out_of_line))
}
