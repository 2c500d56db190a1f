//! Which images must stay in their chains.

use polychron_engine::mutations::left_out;

use super::clock::Held;
use super::steps::Step;
use super::undo::{FIRST_ID, Kind, Undo};

/// Whether any timestamp that is read needs an image.
pub(super) fn is_needed(image: Undo<'_>, held: &Held) -> bool {
    let stamp = image.stamp();
    if stamp >= FIRST_ID || stamp > held.upto {
        return true;
    }
    // One that is old is cut by who has its buffer, who then sees whether the slot is to be closed.
    let Some(timestamp) = held.latest_before(stamp) else { return true };
    let older = image.older().filter(|older| older.stamp() > timestamp);
    // Who may write and began before a lock was committed must not write what was locked.
    older.map_or_else(|| !is_blank(image) || stamp > held.from, |older| !is_covered(image, older, timestamp))
}

/// Whether an image is only a lock.
fn is_blank(image: Undo<'_>) -> bool {
    image.kind() == Kind::Update && image.pieces().next().is_none() && image.tail().is_none()
}

/// Whether images from `older` on that are undone at `timestamp` put back all that `image` does.
fn is_covered(image: Undo<'_>, older: Undo<'_>, timestamp: u64) -> bool {
    let undone = || std::iter::successors(Some(older), |undo| undo.older()).take_while(|undo| undo.stamp() > timestamp);
    let has_tail = |undo: Undo<'_>| undo.kind() == Kind::Insert || undo.tail().is_some();
    let has_word = |undo: Undo<'_>, word: usize| {
        undo.kind() == Kind::Insert || undo.pieces().any(|(first, piece)| (first..first + piece.len()).contains(&word))
    };
    let mut words = image.pieces().flat_map(|(first, piece)| first..first + piece.len());
    left_out(Step::KeepWords)
        || words.all(|word| undone().any(|undo| has_word(undo, word)))
            && (image.tail().is_none() || undone().any(has_tail))
}
