//! Multi-version indexes (§3.6): a B⁺-tree, and a hash table of such trees, whose nodes are records like any others.
//!
//! A node has a head, a list of versions with read and write timestamps, is read and written through the sets of a
//! transaction, validated and collected like a row. So whoever reads an index at a timestamp sees it as it was at that timestamp,
//! and what a transaction changes in it stays with the transaction until it is validated. `docs/protocols/cicada-indexes.md`
//! has the invariants and the argument why only leaves are validated.
//!
//! * `node.rs`, `draft.rs`: how nodes lie in words, and how changed ones are made.
//! * `look_up.rs`, `scan.rs`: from the root to a leaf, and along the leaves. `walk.rs`: many lookups at once.
//! * `change.rs`, `unlink.rs`: insertion and division, deletion and the merging of what has become empty.
//!
//! **Memory.** A record that a node names is kept for who read the node: it was named at the reader's timestamp, so the
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

use std::ptr::NonNull;

use polychron_base::Error;
use polychron_base::key::{EncodedKey, HashSeed};
use polychron_engine::stores::StoreDefinition;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::{IndexKind, RowBuffer};

use super::array::{RecordArray, Window};
use super::record::{HEAD_BYTES, NewVersion, Reader, Record, RecordAddress, Status};
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
    pages: Box<[NonNull<u8>]>,
    /// Roots in all, a power of two; and in each page.
    count: usize,
    per_page: usize,
    head_bytes: usize,
}

// SAFETY: the pages are owned by the index, and what lies in them is shared through `Record`.
unsafe impl Send for Roots {}
// SAFETY: as above.
unsafe impl Sync for Roots {}

impl Roots {
    /// Roots without versions.
    fn new(count: usize, head_bytes: usize, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let per_page = count.min(ROOTS_PER_PAGE);
        let mut pages = Vec::with_capacity(count / per_page);
        for _ in 0..count / per_page {
            match guard.allocate(per_page * head_bytes) {
                Ok(page) => pages.push(page),
                Err(error) => {
                    // SAFETY: the pages were allocated with this size just now.
                    pages.into_iter().for_each(|page| unsafe { guard.free(page, per_page * head_bytes) });
                    return Err(error);
                }
            }
        }
        let roots = Self { pages: pages.into(), count, per_page, head_bytes };
        for number in 0..count {
            // SAFETY: the slot has room for a head and is nobody else's.
            unsafe { Record::create(roots.slot(number)) };
        }
        Ok(roots)
    }

    #[inline]
    fn slot(&self, number: usize) -> NonNull<u8> {
        let page = self.pages[number / self.per_page];
        // SAFETY: the page has room for so many heads.
        unsafe { page.add(number % self.per_page * self.head_bytes) }
    }

    #[inline]
    fn get(&self, number: usize) -> Record<'_> {
        // SAFETY: a record was created there, and the pages live as long as the index.
        unsafe { RecordAddress::at(self.slot(number)).under(self) }
    }

    #[inline]
    fn get_under<'g>(&self, number: usize, guard: &'g Guard<'_>) -> Record<'g> {
        // SAFETY: a record was created there, and the index lives for as long as a guard under which it was found.
        unsafe { self.get(number).address().under(guard) }
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
        let nodes = RecordArray::with_room(head_bytes - HEAD_BYTES);
        let versioned = Self {
            ordered,
            nodes,
            roots: Roots::new(count, head_bytes, guard)?,
            hash_seed: store_definition.hash_seed,
        };
        if let Err(error) = versioned.fill_roots(timestamp, guard) {
            // SAFETY: nobody knows the index.
            unsafe { versioned.destroy(guard) };
            return Err(error.into());
        }
        Ok(versioned)
    }

    /// Gives each root a version, so that who finds nothing there has something to leave a read timestamp on.
    fn fill_roots(&self, timestamp: Timestamp, guard: &Guard<'_>) -> Result<(), OutOfMemory> {
        // SAFETY: nobody else knows the index, so nothing of it is collected.
        let reader = unsafe { Reader::new(guard, timestamp) };
        let mut row = RowBuffer::new();
        Draft::empty(0).write(&mut row);
        let words = row.as_words();
        for number in 0..self.roots.count {
            let root = self.roots.get(number);
            let fits = words.len() <= self.nodes.inline_words();
            // SAFETY: the root's head has as much room as those of other nodes.
            let version = match if fits { unsafe { root.claim_version(reader, words) } } else { None } {
                Some(version) => version,
                None => NewVersion::allocate(reader, words, guard)?,
            };
            // SAFETY: nobody else knows the root, and so the version.
            unsafe { root.install_first(version).end(Status::Committed) };
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
    pub(super) fn for_each<'g>(&self, guard: &'g Guard<'_>, mut visit: impl FnMut(Record<'g>)) {
        (0..self.roots.count).for_each(|number| visit(self.roots.get_under(number, guard)));
        self.nodes.for_each(guard, visit);
    }

    /// Visits the nodes in a window, and slots where none is.
    pub(super) fn for_some<'g>(&self, window: &mut Window, guard: &'g Guard<'_>, mut visit: impl FnMut(Record<'g>)) {
        window.of(self.roots.count).for_each(|number| visit(self.roots.get_under(number, guard)));
        self.nodes.for_some(window, guard, visit);
    }

    /// Gives all memory back.
    ///
    /// # Safety
    /// Nobody uses a record of the index, now or later.
    pub(super) unsafe fn destroy(&self, guard: &Guard<'_>) {
        let (roots, bytes) = (&self.roots, self.roots.per_page * self.roots.head_bytes);
        // SAFETY: as promised; the pages of the roots were allocated with this size.
        unsafe {
            self.nodes.destroy(guard);
            (0..roots.count).for_each(|number| roots.get(number).free_versions(guard));
            roots.pages.iter().for_each(|&page| guard.free(page, bytes));
        }
    }
}
