//! Multi-version indexes (§3.6): a B⁺-tree, and a hash table of such trees, whose nodes are records like any others.
//!
//! A node has a head, a list of versions with read and write timestamps, is read and written through the sets of a
//! transaction, validated and collected like a row. So a transaction that reads an index at a timestamp sees it as it was at that timestamp,
//! and what a transaction changes in it stays with the transaction until it is validated. `docs/protocols/cicada-indexes.md`
//! has the invariants and the argument why only leaves are validated.
//!
//! * `node.rs`, `draft.rs`: how nodes lie in words, and how changed ones are made.
//! * `look_up.rs`, `scan.rs`: from the root to a leaf, and along the leaves. `walk.rs`: many lookups at once.
//! * `change.rs`, `unlink.rs`: insertion and division, deletion and the merging of what has become empty.
//!
//! **Memory.** A record that a node names is kept for the transaction that read the node: it was named at the reader's timestamp, so the
//! deletion that unlinks it is later than the reader's horizon, and collection waits for that (`reclaim.rs`).

mod change;
mod draft;
mod look_up;
#[cfg(all(test, loom))]
mod model;
mod node;
mod scan;
#[cfg(test)]
mod tests;
mod unlink;
mod walk;

use polychron_base::Error;
use polychron_base::key::{EncodedKey, HashSeed};
use polychron_engine::stores::StoreDefinition;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::{IndexKind, RowBuffer};

use super::array::{Page, RecordArray, Window};
use super::record::{HEAD_BYTES, Record};
use super::timestamp::Timestamp;
pub(super) use change::Changing;
use draft::Draft;
pub(super) use look_up::CommittedView;
pub(super) use scan::Scanning;
pub(super) use walk::Planned;

/// Bytes of a head in a tree, its node included. What a record itself takes is more in models.
const TREE_HEAD_BYTES: usize = HEAD_BYTES + 472;
/// Bytes of a head in a hash table.
const BUCKET_HEAD_BYTES: usize = HEAD_BYTES + 216;
/// Rows for each bucket, when it is known how many there will be: few enough that most buckets are one node.
const ROWS_PER_BUCKET: usize = 7;
const LEAST_BUCKETS: usize = 64;
const MOST_BUCKETS: usize = 1 << 32;
/// Heads of roots in one allocation.
const ROOTS_PER_PAGE: usize = 4096;

const _: () = {
    assert!(TREE_HEAD_BYTES == 512 && BUCKET_HEAD_BYTES == 256 || polychron_sync::MODELLED, "whole lines");
    assert!((TREE_HEAD_BYTES - HEAD_BYTES) / 16 < draft::MOST, "a full node, and one entry more, can be drafted");
    assert!(ROOTS_PER_PAGE.is_power_of_two() && LEAST_BUCKETS <= ROOTS_PER_PAGE);
};

/// The nodes of one index.
#[derive(Debug)]
pub(super) struct Versioned {
    /// Whether there is one tree, and so an order.
    pub(super) ordered: bool,
    /// All nodes but the roots.
    pub(super) nodes: RecordArray,
    roots: Roots,
    hash_seed: HashSeed,
}

/// The roots: their records stay where they are for as long as the index.
#[derive(Debug)]
struct Roots {
    pages: Vec<Page>,
    /// Roots in all, a power of two; and in each page.
    count: usize,
    per_page: usize,
    head_bytes: usize,
}

impl Roots {
    #[inline]
    fn get(&self, number: usize) -> Record<'_> {
        let root = self.pages[number / self.per_page].get(number % self.per_page);
        root.expect("all roots were made with the index")
    }

    fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.count).map(|number| self.get(number))
    }
}

impl Versioned {
    /// An empty index; it is empty at every timestamp from `timestamp` on.
    pub(super) fn new(
        store_definition: &StoreDefinition,
        inlining: bool,
        timestamp: Timestamp,
        guard: &Guard<'_>,
    ) -> Result<Self, Error> {
        let ordered = store_definition.kind == IndexKind::Ordered;
        let (head_bytes, count) = if ordered {
            (TREE_HEAD_BYTES, 1)
        } else {
            let wanted = (store_definition.expected_rows / ROWS_PER_BUCKET).clamp(LEAST_BUCKETS, MOST_BUCKETS);
            (BUCKET_HEAD_BYTES, wanted.next_power_of_two())
        };
        let head_bytes = if inlining { head_bytes } else { 64 };
        let mut versioned = Self {
            ordered,
            nodes: RecordArray::with_room(head_bytes - HEAD_BYTES),
            roots: Roots { pages: Vec::new(), count, per_page: count.min(ROOTS_PER_PAGE), head_bytes },
            hash_seed: store_definition.hash_seed,
        };
        match versioned.make_roots(timestamp, guard) {
            Ok(()) => Ok(versioned),
            Err(error) => {
                versioned.free_all(guard);
                Err(error.into())
            }
        }
    }

    /// Makes the roots, each with a version, so that a transaction that finds nothing there has something to leave a read timestamp on.
    fn make_roots(&mut self, timestamp: Timestamp, guard: &Guard<'_>) -> Result<(), OutOfMemory> {
        let mut row = RowBuffer::new();
        Draft::empty(0).write(&mut row);
        let Roots { pages, count, per_page, head_bytes } = &mut self.roots;
        while pages.len() < *count / *per_page {
            let page = pages.push_mut(Page::allocate(*per_page, *head_bytes, guard)?);
            while let Some(root) = page.make() {
                root.version(timestamp, row.as_words(), true, guard)?.install_first().commit();
            }
        }
        Ok(())
    }

    /// The words of a node that lies in its head: larger ones are divided, unless their keys are long.
    #[inline]
    pub(super) fn node_words(&self) -> usize {
        (if self.ordered { TREE_HEAD_BYTES } else { BUCKET_HEAD_BYTES } - HEAD_BYTES) / 8
    }

    /// The root of the tree in which a key is.
    #[inline]
    fn root<K: EncodedKey>(&self, key: K) -> Record<'_> {
        if self.ordered {
            return self.roots.get(0);
        }
        self.roots.get(key.hash(self.hash_seed) as usize & (self.roots.count - 1))
    }

    /// Visits all nodes, and slots where none is.
    pub(super) fn for_each<'g>(&'g self, guard: &'g Guard<'_>, mut visit: impl FnMut(Record<'g>)) {
        self.roots.iter().for_each(&mut visit);
        self.nodes.for_each(guard, visit);
    }

    /// Visits the nodes in a window, and slots where none is.
    pub(super) fn for_some<'g>(&'g self, window: &mut Window, guard: &'g Guard<'_>, mut visit: impl FnMut(Record<'g>)) {
        window.of(self.roots.count).for_each(|number| visit(self.roots.get(number)));
        self.nodes.for_some(window, guard, visit);
    }

    /// Frees all memory: the index's last user does.
    pub(super) fn free_all(&mut self, guard: &Guard<'_>) {
        self.nodes.free_all(guard);
        self.roots.pages.drain(..).for_each(|page| page.free(guard));
    }
}
