//! Every interleaving of a leaf's readers, writers and validators, under loom; of a whole tree's in `tree.rs`.
//!
//! Loom takes sequentially consistent accesses for acquire and release ones, so the crossing of two insertions (claim 3 of
//! `docs/ordered-index.md`) is not modelled here; a stress test covers it.

mod tree;

use super::lookup::{handle_of, value_of};
use super::node::{Entry, Leaf};
use super::stamps::stamp_holds;
use super::version::Latched;
use crate::Handle;
use polychron_sync::{Arc, thread};

fn entry(slice: u64) -> Entry {
    Entry { slice, kind: 8, value: value_of(Handle::new(slice * 10).expect("slices are not zero here")) }
}

fn leaf(slices: &[u64]) -> Arc<Leaf> {
    let entries: Vec<_> = slices.iter().map(|slice| entry(*slice)).collect();
    let leaf = Arc::new(Leaf::new(0, &entries));
    drop(Latched::newborn(leaf.node()));
    leaf
}

fn insert(leaf: &Leaf, slice: u64) {
    let mut latched = Latched::wait(leaf.node());
    latched.change_content();
    leaf.insert_entry(leaf.rank(slice, 8), entry(slice));
    leaf.count_insertion();
}

fn remove(leaf: &Leaf, slot: usize) {
    let mut latched = Latched::wait(leaf.node());
    latched.change_content();
    leaf.remove_entry(slot);
}

fn holds(leaf: &Leaf, state: u64) -> bool {
    // SAFETY: the leaves of a model live as long as the model.
    unsafe { stamp_holds(leaf.node().pointer().cast(), state) }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    polychron_sync::model::explore(3, model);
}

/// Runs a reader beside a writer, which begins first: so loom lets the reader's loads choose among older values.
fn beside(writer: impl FnOnce() + 'static, reader: impl FnOnce() + 'static) {
    let (writer, reader) = (thread::spawn(writer), thread::spawn(reader));
    writer.join().expect("the writer does not panic");
    reader.join().expect("the reader does not panic");
}

/// A reader that validates never takes the handle of one key for that of another that reuses the slot.
#[test]
fn a_reused_slot_is_recognized() {
    explore(|| {
        let shared = leaf(&[1]);
        let written = shared.clone();
        beside(
            move || {
                remove(&written, 0);
                insert(&written, 2);
            },
            move || {
                let version = shared.version().stable();
                for slice in [1, 2] {
                    let found = shared.find(slice, 8).map(|(slot, _)| shared.value(slot));
                    if shared.version().is(version)
                        && let Some(value) = found
                    {
                        assert_eq!(handle_of(value).get(), slice * 10);
                    }
                }
            },
        );
    });
}

/// A validated copy has the entries that belong to its state, and its stamp fails once there are more.
#[test]
fn a_copy_and_its_state_belong_together() {
    explore(|| {
        let shared = leaf(&[]);
        let (written, read) = (shared.clone(), shared.clone());
        beside(
            move || insert(&written, 3),
            move || {
                let version = read.version().stable();
                let state = read.state();
                let count = read.permutation().count();
                if read.version().is(version) {
                    assert_eq!(state, 1 + count as u64);
                }
            },
        );
        assert!(!holds(&shared, 1));
        assert!(holds(&shared, 2));
    });
}

/// Taking a leaf out fails no stamp at any time; an insertion into the heir does.
#[test]
fn forwards_keep_stamps_until_an_insertion() {
    for inserts in [false, true] {
        explore(move || {
            let (empty, heir) = (leaf(&[]), leaf(&[]));
            let (unlinked, heir, asked) = (empty.clone(), heir.clone(), empty.clone());
            beside(
                move || {
                    let mut doomed = Latched::wait(unlinked.node());
                    let mut heir_latched = Latched::wait(heir.node());
                    doomed.delete();
                    heir_latched.change_structure();
                    unlinked.set_forward(&heir);
                    drop(heir_latched);
                    drop(doomed);
                    if inserts {
                        insert(&heir, 4);
                    }
                },
                move || assert!(holds(&asked, 1) || inserts),
            );
            assert_eq!(holds(&empty, 1), !inserts);
        });
    }
}
