//! Every interleaving, under loom, of a reader with a commit that changes several nodes at a time. That one node's versions are
//! installed, read and collected as they should be is shown by the models of records; here ways lead from one record to another,
//! also to one that its writer has just made, while the versions of one commit become visible one after the other.

use polychron_memory::Guard;
use polychron_schema::RowBuffer;
use polychron_sync::atomic::{Ordering, fence};
use polychron_sync::model::explore;

use super::draft::Draft;
use super::look_up::{Aim, CommittedView, Sight, Viewer, go_down};
use super::node::{KeyRef, word_of};
use crate::cicada::model::{Modelled, Passed, at, empty, end, have_passed, install, new_version, pass};
use crate::cicada::record::{Installed, Record, Status};
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
    root: Modelled,
    left: Modelled,
    right: Modelled,
}

/// Installs a node, which is pending.
fn write<'g>(record: Record<'g>, wts: Timestamp, draft: &Draft<'_>, guard: &'g Guard<'_>) -> Installed<'g> {
    let mut row = RowBuffer::new();
    draft.write(&mut row);
    install_row(record, wts, row.as_words(), guard)
}

fn install_row<'g>(record: Record<'g>, wts: Timestamp, row: &[u64], guard: &'g Guard<'_>) -> Installed<'g> {
    install(record, wts.0, new_version(record, wts.0, row, false, guard), guard).expect("nobody closes it")
}

/// A leaf of these letters, which covers the keys from `low` up to, not including, `high`.
fn write_leaf<'g>(
    record: Record<'g>,
    wts: Timestamp,
    (low, high): (Option<&[u64; 1]>, Option<&[u64; 1]>),
    letters: &[u8],
    next: Option<Record<'_>>,
    guard: &'g Guard<'_>,
) -> Installed<'g> {
    let words: Vec<_> = letters.iter().copied().map(letter).collect();
    let mut draft = Draft::empty(0);
    (draft.low, draft.high) = (low.map(key), high.map(key));
    draft.next = next.map_or(0, |next| word_of(next.address()));
    words.iter().for_each(|word| draft.push(key(word), word_of(record.address())));
    write(record, wts, &draft, guard)
}

fn write_root<'g>(
    root: Record<'g>,
    wts: Timestamp,
    first: Record<'_>,
    others: &[([u64; 1], Record<'_>)],
    guard: &'g Guard<'_>,
) -> Installed<'g> {
    let mut draft = Draft::empty(1);
    draft.push(KeyRef::EMPTY, word_of(first.address()));
    others.iter().for_each(|(word, child)| draft.push(key(word), word_of(child.address())));
    write(root, wts, &draft, guard)
}

/// `a` and `f` in the left leaf, `m` and `t` in the right one.
fn tree(guard: &Guard<'_>) -> Tree {
    let (root, left, right) = (empty(guard), empty(guard), empty(guard));
    let seam = letter(SEAM[0]);
    let versions = [
        write_leaf(right, START, (Some(&seam), None), b"mt", None, guard),
        write_leaf(left, START, (None, Some(&seam)), b"af", Some(right), guard),
        write_root(root, START, left, &[(seam, right)], guard),
    ];
    versions.into_iter().for_each(|version| end(version, Status::Committed));
    Tree { root: Modelled::of(root), left: Modelled::of(left), right: Modelled::of(right) }
}

/// What a way down to a key comes to, of a reader that does not wait, so that it sees one commit in part; `None`: nothing, and the
/// transaction would go again.
fn look_up<'g>(tree: Tree, wanted: u8, guard: &'g Guard<'_>) -> Option<(Sight<'g>, bool)> {
    let view = CommittedView { reader: at(LATER.0, guard), wait: false };
    let leaf = go_down(view, 1, tree.root.under(guard), Aim::At(&[wanted][..]), None)?;
    let node = view.node(&leaf).expect("a leaf was found");
    assert!(node.side_of(&[wanted][..]).is_eq(), "the leaf does not cover the key");
    Some((leaf, node.rank(&[wanted][..]).1))
}

/// The commit of a division of the left leaf: `f` comes into a new one, together with what is `inserted`.
fn divide<'g>(tree: Tree, inserted: &[u8], guard: &'g Guard<'_>) -> [Installed<'g>; 3] {
    let (root, left, right) = (tree.root.under(guard), tree.left.under(guard), tree.right.under(guard));
    let (upper, middle, seam) = (empty(guard), letter(b'd'), letter(SEAM[0]));
    let letters: Vec<_> = inserted.iter().copied().chain([b'f']).collect();
    [
        write_leaf(left, EARLIER, (None, Some(&middle)), b"a", Some(upper), guard),
        write_leaf(upper, EARLIER, (Some(&middle), Some(&seam)), &letters, Some(right), guard),
        write_root(root, EARLIER, left, &[(middle, upper), (seam, right)], guard),
    ]
}

/// The commit of a merge: the left leaf takes over what the right one covers.
fn merge<'g>(tree: Tree, guard: &'g Guard<'_>) -> [(Installed<'g>, Status); 3] {
    let (root, left, right) = (tree.root.under(guard), tree.left.under(guard), tree.right.under(guard));
    let leaf = write_leaf(left, EARLIER, (None, None), b"afmt", None, guard);
    let deletion = install_row(right, EARLIER, &[], guard);
    let root = write_root(root, EARLIER, left, &[], guard);
    [(leaf, Status::Committed), (deletion, Status::Deleted), (root, Status::Committed)]
}

/// A key that was and will be there is found, or the way leads nowhere.
fn a_key_is_never_missed(wanted: u8, write: for<'g> fn(Tree, &'g Guard<'_>) -> [(Installed<'g>, Status); 3]) {
    explore(3, move || {
        beside(
            tree,
            move |tree, guard| write(tree, guard).into_iter().for_each(|(version, status)| end(version, status)),
            move |tree, guard| {
                assert!(look_up(tree, wanted, guard).is_none_or(|(_, is_there)| is_there), "the key is missed");
            },
            move |tree, guard| assert!(look_up(tree, wanted, guard).is_some_and(|(_, is_there)| is_there)),
        );
    });
}

#[test]
fn a_division_hides_no_key() {
    fn commit<'g>(tree: Tree, guard: &'g Guard<'_>) -> [(Installed<'g>, Status); 3] {
        divide(tree, b"", guard).map(|version| (version, Status::Committed))
    }
    a_key_is_never_missed(b'f', commit);
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
                    [tree.left, tree.root].into_iter().zip([&versions[0], &versions[2]]).any(|(node, own)| {
                        let below = at(EARLIER.0, guard).search(node.under(guard), Some(own.version()), true);
                        let below = below.version.expect("it was committed");
                        below.rts().is_after(EARLIER)
                    });
                if !read_later {
                    pass(&by_writer, "writer");
                }
                let status = if read_later { Status::Aborted } else { Status::Committed };
                versions.into_iter().for_each(|version| end(version, status));
            },
            move |tree, guard| {
                let Some((leaf, false)) = look_up(tree, b'e', guard) else { return };
                let version = leaf.version().expect("a leaf was found");
                version.raise_rts(LATER);
                fence(Ordering::SeqCst);
                if at(LATER.0, guard).search(leaf.record, None, true).version == Some(version) {
                    pass(&by_reader, "reader");
                }
            },
            |_, _| assert!(have_passed(&passed) < 2, "a phantom"),
        );
    });
}
