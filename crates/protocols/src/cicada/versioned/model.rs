//! Every interleaving, under loom, of a reader with a commit that changes several nodes at a time. That one node's versions are
//! installed, read and collected as they should be is shown by the models of records; here ways lead from one record to another,
//! also to one that its writer has just made, while the versions of one commit become visible one after the other.

use polychron_memory::Guard;
use polychron_schema::RowBuffer;
use polychron_sync::atomic::{Ordering, fence};
use polychron_sync::model::explore;

use super::draft::Draft;
use super::look_up::{Aim, Moment, Spot, Viewer, go_down};
use super::node::{KeyRef, word_of};
use crate::cicada::model::{Passed, empty, have_passed, install, pass};
use crate::cicada::record::{Record, Status, Version, search};
use crate::cicada::timestamp::Timestamp;
use polychron_memory::model::beside;

/// When the nodes were first written; when the writer commits; and when the reader looks.
const START: Timestamp = Timestamp(1);
const EARLIER: Timestamp = Timestamp(5);
const LATER: Timestamp = Timestamp(9);

/// Keys of one letter. Those up to `f` are in the left leaf, and those from `m` on in the right one.
const SEAM: &[u8] = b"m";

fn key(word: &[u64; 1]) -> KeyRef<'_> {
    KeyRef::new(word, 1)
}

/// A key's letter as a node keeps it: the first byte of the first word.
const fn letter(letter: u8) -> [u64; 1] {
    [(letter as u64) << 56]
}

/// A root and two leaves.
#[derive(Clone, Copy)]
struct Tree {
    root: Record,
    left: Record,
    right: Record,
}

/// Installs a node, which is pending.
fn write(record: Record, wts: Timestamp, draft: &Draft<'_>, guard: &Guard<'_>) -> Version {
    let mut row = RowBuffer::new();
    draft.write(&mut row);
    let version = Version::allocate(row.as_words().len(), guard).expect("memory is there");
    // SAFETY: the version was allocated just now, with room for the row.
    unsafe { version.fill(wts, row.as_words()) };
    assert!(install(record, version));
    version
}

/// A leaf of these letters, which covers the keys from `low` up to, not including, `high`.
fn write_leaf(
    record: Record,
    wts: Timestamp,
    (low, high): (Option<&[u64; 1]>, Option<&[u64; 1]>),
    letters: &[u8],
    next: Option<Record>,
    guard: &Guard<'_>,
) -> Version {
    let words: Vec<_> = letters.iter().copied().map(letter).collect();
    let mut draft = Draft::empty(0);
    (draft.low, draft.high, draft.next) = (low.map(key), high.map(key), next.map_or(0, word_of));
    words.iter().for_each(|word| draft.push(key(word), word_of(record)));
    write(record, wts, &draft, guard)
}

fn write_root(
    root: Record,
    wts: Timestamp,
    first: Record,
    others: &[([u64; 1], Record)],
    guard: &Guard<'_>,
) -> Version {
    let mut draft = Draft::empty(1);
    draft.push(KeyRef::EMPTY, word_of(first));
    others.iter().for_each(|(word, child)| draft.push(key(word), word_of(*child)));
    write(root, wts, &draft, guard)
}

/// `a` and `f` in the left leaf, `m` and `t` in the right one.
fn tree(guard: &Guard<'_>) -> Tree {
    let tree = Tree { root: empty(guard), left: empty(guard), right: empty(guard) };
    let seam = letter(SEAM[0]);
    write_leaf(tree.right, START, (Some(&seam), None), b"mt", None, guard).end(Status::Committed);
    write_leaf(tree.left, START, (None, Some(&seam)), b"af", Some(tree.right), guard).end(Status::Committed);
    write_root(tree.root, START, tree.left, &[(seam, tree.right)], guard).end(Status::Committed);
    tree
}

/// What a way down to a key comes to, of a reader that does not wait, so that it sees one commit in part; `None`: nothing, and the
/// transaction would go again.
fn look_up(tree: Tree, wanted: u8) -> Option<(Spot, bool)> {
    let moment = Moment { timestamp: LATER, wait: false };
    let leaf = go_down(&moment, 1, tree.root, Aim::At(&[wanted][..]), None)?;
    let node = moment.node(&leaf).expect("a leaf was found");
    assert!(node.place_of(&[wanted][..]).is_eq(), "the leaf does not cover the key");
    Some((leaf, node.rank(&[wanted][..]).1))
}

/// The commit of a division of the left leaf: `f` comes into a new one, together with what is `inserted`.
fn divide(tree: Tree, inserted: &[u8], guard: &Guard<'_>) -> [Version; 3] {
    let (upper, middle, seam) = (empty(guard), letter(b'd'), letter(SEAM[0]));
    let letters: Vec<_> = inserted.iter().copied().chain([b'f']).collect();
    [
        write_leaf(tree.left, EARLIER, (None, Some(&middle)), b"a", Some(upper), guard),
        write_leaf(upper, EARLIER, (Some(&middle), Some(&seam)), &letters, Some(tree.right), guard),
        write_root(tree.root, EARLIER, tree.left, &[(middle, upper), (seam, tree.right)], guard),
    ]
}

/// The commit of a merge: the left leaf takes over what the right one covers.
fn merge(tree: Tree, guard: &Guard<'_>) -> [(Version, Status); 3] {
    let deletion = Version::allocate(0, guard).expect("memory is there");
    // SAFETY: the version was allocated just now, for no words.
    unsafe { deletion.fill(EARLIER, &[]) };
    let left = write_leaf(tree.left, EARLIER, (None, None), b"afmt", None, guard);
    assert!(install(tree.right, deletion));
    let root = write_root(tree.root, EARLIER, tree.left, &[], guard);
    [(left, Status::Committed), (deletion, Status::Deleted), (root, Status::Committed)]
}

/// A key that was and will be there is found, or the way leads nowhere.
fn a_key_is_never_missed(wanted: u8, write: fn(Tree, &Guard<'_>) -> [(Version, Status); 3]) {
    explore(3, move || {
        beside(
            tree,
            move |tree, guard| write(tree, guard).into_iter().for_each(|(version, status)| version.end(status)),
            move |tree, _| {
                assert!(look_up(tree, wanted).is_none_or(|(_, is_there)| is_there), "the key is missed");
            },
            move |tree, _| assert!(look_up(tree, wanted).is_some_and(|(_, is_there)| is_there)),
        );
    });
}

#[test]
fn a_division_hides_no_key() {
    let divide = |tree, guard: &Guard<'_>| divide(tree, b"", guard).map(|version| (version, Status::Committed));
    a_key_is_never_missed(b'f', divide);
}

#[test]
fn a_merge_hides_no_key() {
    a_key_is_never_missed(b't', merge);
}

/// Of a later reader that misses a key and an earlier writer that inserts it, and divides the leaf, one fails.
#[test]
fn a_key_is_missed_or_comes_with_a_division() {
    explore(3, || {
        let passed = Passed::default();
        let (by_writer, by_reader) = (Passed::clone(&passed), Passed::clone(&passed));
        beside(
            tree,
            move |tree, guard| {
                let versions = divide(tree, b"e", guard);
                fence(Ordering::SeqCst);
                let read_later =
                    [tree.left, tree.root].into_iter().zip([versions[0], versions[2]]).any(|(node, own)| {
                        let below = search(node, EARLIER, Some(own), true).version.expect("it was committed");
                        below.rts().is_after(EARLIER)
                    });
                if !read_later {
                    pass(&by_writer, "writer");
                }
                let status = if read_later { Status::Aborted } else { Status::Committed };
                versions.into_iter().for_each(|version| version.end(status));
            },
            move |tree, _| {
                let Some((leaf, false)) = look_up(tree, b'e') else { return };
                let read = leaf.version().expect("a leaf was found");
                read.raise_rts(LATER);
                fence(Ordering::SeqCst);
                if search(leaf.record, LATER, None, true).version == Some(read) {
                    pass(&by_reader, "reader");
                }
            },
            |_, _| assert!(have_passed(&passed) < 2, "a phantom"),
        );
    });
}
