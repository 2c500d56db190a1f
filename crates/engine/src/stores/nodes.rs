//! The node set: what an optimistic transaction remembers of the index nodes in which it found nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use polychron_base::room::KeptList;
use polychron_index::{Change, Changes, Stamp};

use super::IndexRef;
use crate::mutations::left_out;
use crate::named;

named! {
    /// Steps that a test leaves out. A protocol that keeps a node set lists them among its own, under the same names.
    pub enum NodeStep {
        /// An own insertion brings the node set up to date.
        FollowOwnInsertions,
        /// It does so only for stamps that say what was there just before.
        FollowOnlyOwn,
        /// It adds the new node when the old one was divided.
        FollowSplits,
        /// It finds the stamps of nodes that were unlinked meanwhile.
        FollowResolved,
    }
}

/// The leaves and buckets whose emptiness somewhere was observed.
///
/// A list that own insertions search from end to end, until they have compared so many stamps that a hash table pays; from
/// then on each looks at one entry.
#[derive(Debug, Default)]
pub struct NodeSet {
    nodes: Vec<(Stamp, IndexRef)>,
    /// Finds stamps in the list, if it is in use.
    table: Box<Table>,
    is_hashed: bool,
    /// Stamps that own insertions have compared.
    compared: usize,
    /// Whether the epoch in which stamps were taken was left: what their nodes lead to may have been freed, they themselves were not.
    is_alone: bool,
}

/// Stamps compared before the table is made.
const SPIN_BUDGET: usize = 1024;

/// Tables larger than this are freed at the end of the transaction.
const KEPT: usize = 1 << 12;

/// A map from stamps, for long lists. Stamps differ in addresses and counts, which the hash mixes.
type ByStamp<V> = HashMap<Stamp, V, BuildHasherDefault<Mix>>;

#[derive(Debug, Default)]
struct Table {
    /// The position of each stamp of the list, which has each once.
    positions: ByStamp<u32>,
    /// Stamps that the transaction's own insertions reported since the list became long. A node that was unlinked resolves to a
    /// stamp of its heir, whose later stamps are here.
    own: ByStamp<Own>,
}

/// The effect of an own insertion on a node.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    after: Option<Stamp>,
    added: Option<Stamp>,
}

/// A hash of a few words.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

impl NodeSet {
    /// Remembers a node. Scans and repeated misses name the same node in a row, so the last one is compared.
    #[inline]
    pub fn add(&mut self, stamp: Stamp, index_ref: IndexRef) {
        if self.nodes.last().is_none_or(|(last, _)| *last != stamp) && (!self.is_hashed || self.table_adds(stamp)) {
            self.nodes.push((stamp, index_ref));
        }
    }

    /// Whether the stamp is new to the table.
    fn table_adds(&mut self, stamp: Stamp) -> bool {
        let vacant = match self.table.positions.entry(stamp) {
            Entry::Vacant(vacant) => vacant,
            Entry::Occupied(_) => return false,
        };
        vacant.insert(self.nodes.len() as u32);
        true
    }

    /// Makes the table, which knows one position of each stamp.
    #[cold]
    fn hash(&mut self) {
        let Self { nodes, table, .. } = self;
        nodes.retain(|(stamp, _)| table.positions.insert(*stamp, 0).is_none());
        for (position, (stamp, _)) in nodes.iter().enumerate() {
            table.positions.insert(*stamp, position as u32);
        }
        self.is_hashed = true;
    }

    /// The places of all nodes.
    pub fn index_refs(&self) -> impl Iterator<Item = IndexRef> {
        self.nodes.iter().map(|(_, index_ref)| *index_ref)
    }

    /// The number of nodes.
    #[inline]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.nodes.forget();
        self.compared = 0;
        self.is_alone = false;
        if self.is_hashed {
            self.is_hashed = false;
            self.table.clear();
        }
    }

    /// Forgets the nodes from `len` on. When the table was made since the list had this length, some of them may stay.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if self.is_hashed {
            for (stamp, _) in self.nodes.iter().skip(len) {
                self.table.positions.remove(stamp);
            }
        }
        self.nodes.truncate(len);
    }

    /// The epoch of the guard under which the stamps were taken was left, and their nodes alone, those at [`NodeSet::addresses`], are
    /// protected still. From now on a node that was unlinked is broken.
    pub fn stand_alone(&mut self) {
        self.is_alone = !self.nodes.is_empty();
    }

    /// An address in each node.
    pub fn addresses(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().map(|(stamp, _)| stamp.address())
    }

    /// The first node whose stamp no longer holds.
    ///
    /// # Safety
    /// The guard under which the stamps were taken is alive, or [`NodeSet::stand_alone`] was called when its epoch had been left.
    #[inline]
    pub unsafe fn first_broken(&self) -> Option<IndexRef> {
        if self.nodes.is_empty() {
            return None;
        }
        if self.is_alone {
            // SAFETY: the nodes themselves are protected.
            let broken = self.nodes.iter().find(|(stamp, _)| unsafe { !stamp.holds_alone() });
            return broken.map(|(_, index_ref)| *index_ref);
        }
        let mut known = ByStamp::default();
        // SAFETY: the caller keeps the guard.
        let mut broken = |stamp: &Stamp| unsafe { !stamp.holds() && !self.stands(*stamp, &mut known) };
        self.nodes.iter().find(|(stamp, _)| broken(stamp)).map(|(_, index_ref)| *index_ref)
    }

    /// Whether a stamp that does not hold is of a node that was unlinked, and nothing but own insertions came into its range
    /// since. As long as there is no table, insertions bring such stamps up to date themselves.
    ///
    /// Nodes that own insertions have divided off may have been unlinked, too, and stand for ranges of one heir then: `known` has
    /// the stamps that were followed, each of which is followed once.
    ///
    /// # Safety
    /// As for [`NodeSet::first_broken`].
    #[cold]
    unsafe fn stands(&self, stamp: Stamp, known: &mut ByStamp<()>) -> bool {
        if !self.is_hashed || left_out(NodeStep::FollowResolved) {
            return false;
        }
        let mut left = vec![stamp];
        while let Some(stamp) = left.pop() {
            // SAFETY: the caller keeps the guard.
            if unsafe { stamp.holds() } || known.insert(stamp, ()).is_some() {
                continue;
            }
            // SAFETY: as above.
            let resolved = unsafe { stamp.resolved() };
            let Some(&Own { after: Some(after), added }) = self.table.own.get(&resolved) else { return false };
            left.push(after);
            left.extend(added);
        }
        true
    }

    /// Searches the list.
    fn change_listed(&mut self, change: Change) {
        self.compared += self.nodes.len();
        let is_alone = self.is_alone;
        match change {
            Change::Moved { before, after } => {
                for (stamp, _) in &mut self.nodes {
                    if same(stamp, &before, is_alone) || left_out(NodeStep::FollowOnlyOwn) {
                        *stamp = after;
                    }
                }
            }
            Change::Added { of, new } if !left_out(NodeStep::FollowSplits) => {
                if let Some(&(_, index_ref)) = self.nodes.iter().find(|(stamp, _)| same(stamp, &of, is_alone)) {
                    self.nodes.push((new, index_ref));
                }
            }
            Change::Added { .. } => {}
        }
    }
}

/// Whether a stamp in the set is the one that an insertion reports. The node may have been unlinked since, in the
/// background; then the stamp stands for its range in the node that took it over.
#[inline]
fn same(stamp: &Stamp, reported: &Stamp, is_alone: bool) -> bool {
    if is_alone || left_out(NodeStep::FollowResolved) {
        return stamp == reported;
    }
    // SAFETY: insertions happen under the guard under which the transaction took its stamps.
    stamp == reported || unsafe { stamp.resolved() } == *reported
}

impl Table {
    fn clear(&mut self) {
        if self.positions.capacity() + self.own.capacity() > KEPT {
            *self = Self::default();
        } else {
            self.positions.clear();
            self.own.clear();
        }
    }

    fn change(&mut self, nodes: &mut Vec<(Stamp, IndexRef)>, change: Change) {
        match change {
            Change::Moved { before, after } => {
                self.own.entry(before).or_default().after = Some(after);
                if let Some(position) = self.positions.remove(&before) {
                    nodes[position as usize].0 = after;
                    self.positions.insert(after, position);
                }
            }
            Change::Added { of, new } if !left_out(NodeStep::FollowSplits) => {
                self.own.entry(of).or_default().added = Some(new);
                if let Some(&position) = self.positions.get(&of) {
                    self.positions.insert(new, nodes.len() as u32);
                    nodes.push((new, nodes[position as usize].1));
                }
            }
            Change::Added { .. } => {}
        }
    }
}

impl Changes for NodeSet {
    /// The transaction's own insertions must not abort it. A stamp of a node that was unlinked meanwhile, by itself
    /// or by others, is known by the stamp to which it resolves.
    #[inline]
    fn change(&mut self, change: Change) {
        if self.nodes.is_empty() || left_out(NodeStep::FollowOwnInsertions) {
            return;
        }
        if self.is_hashed {
            self.compared += 1;
            self.table.change(&mut self.nodes, change);
            return;
        }
        self.change_listed(change);
        if self.compared > SPIN_BUDGET {
            self.hash();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron_base::key::{HashSeed, Key16};
    use polychron_base::random::Random;
    use polychron_base::sizes::scaled;
    use polychron_base::{IndexId, TableId};
    use polychron_index::hash::HashIndex;
    use polychron_index::ordered::OrderedIndex;
    use polychron_index::{AnyIndex, Handle};
    use polychron_memory::{Guard, Memory, Options};

    use super::*;

    const PLACE: IndexRef = IndexRef { table: TableId::new(1, 0), index: IndexId::PRIMARY };

    fn key(number: u64) -> Key16 {
        Key16::from_key(&number.to_be_bytes()[..]).unwrap()
    }

    fn handle(number: u64) -> Handle {
        Handle::new(number + 1).unwrap()
    }

    /// As a transaction does that finds nothing and inserts.
    fn get_and_insert(index: &AnyIndex, nodes: &mut NodeSet, number: u64, guard: &Guard<'_>) {
        nodes.add(index.get(key(number), guard).stamp, PLACE);
        index.insert(key(number), handle(number), nodes, guard).unwrap();
    }

    fn in_memory(test: impl Fn(&Guard<'_>)) {
        let memory = Memory::new(Options { limit_bytes: Some(256 << 20), ..Options::tiny() }).unwrap();
        let local = memory.register().unwrap();
        test(&local.pin());
    }

    /// A node is divided by an insertion and unlinked with it, again and again, so that ever more stamps stand for ranges of one heir.
    #[test]
    fn nodes_that_come_and_go_are_followed_once() {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            in_memory(|guard| {
                let index = AnyIndex::Ordered(OrderedIndex::new(guard).unwrap());
                let mut nodes = NodeSet::default();
                for number in 0..64 {
                    get_and_insert(&index, &mut nodes, number, guard);
                }
                nodes.hash();
                for _ in 0..64 {
                    // Past the end of a full node, and out again.
                    for number in 64..80 {
                        get_and_insert(&index, &mut nodes, number, guard);
                    }
                    for number in 64..80 {
                        assert!(index.remove(key(number), handle(number), guard));
                        nodes.add(index.get(key(number), guard).stamp, PLACE);
                    }
                }
                // SAFETY: the guard is the one of the stamps.
                assert!(unsafe { nodes.first_broken() }.is_none());
            });
            sender.send(()).unwrap();
        });
        let longest = polychron_base::sizes::slowed(std::time::Duration::from_secs(60));
        receiver.recv_timeout(longest).expect("each stamp is followed once");
    }

    #[test]
    fn an_own_insertion_looks_at_few_entries() {
        in_memory(|guard| {
            let ordered = AnyIndex::Ordered(OrderedIndex::new(guard).unwrap());
            let hash = AnyIndex::Hash(HashIndex::new(64, HashSeed::FIXED, guard).unwrap());
            let count = scaled(1 << 16, 256) as u64;
            for index in [ordered, hash] {
                for order in [|number: u64| number, |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15)] {
                    let mut nodes = NodeSet::default();
                    (0..count).for_each(|number| get_and_insert(&index, &mut nodes, order(number) | 1 << 63, guard));
                    // SAFETY: the guard lives.
                    assert_eq!(unsafe { nodes.first_broken() }, None, "own insertions break nothing");
                    // An insertion into a growing hash index reports the buckets that it divided, too.
                    assert!(nodes.compared as u64 <= 16 * count + 4096, "{} steps for {count}", nodes.compared);
                    nodes.clear();
                    assert!(nodes.is_empty() && nodes.compared == 0);
                    (0..count).for_each(|number| {
                        let (number, at) =
                            (order(number) | 1 << 63, index.get(key(order(number) | 1 << 63), guard).handle);
                        index.remove(key(number), at.unwrap(), guard);
                    });
                }
            }
        });
    }

    /// Long sets, too, tell others' insertions from own ones, in nodes that are there and in those that were unlinked.
    #[test]
    fn long_sets_follow_own_insertions_alone() {
        const KEYS: u64 = 4000;
        for seed in 0..scaled(20, 2) as u64 {
            in_memory(|guard| {
                let index = AnyIndex::Ordered(OrderedIndex::new(guard).unwrap());
                let mut random = Random::stream(7, seed);
                for number in 0..KEYS {
                    index.insert(key(2 * number), handle(number), &mut (), guard).unwrap();
                }
                let mut nodes = NodeSet::default();
                (0..KEYS).for_each(|number| nodes.add(index.get(key(2 * number + 1), guard).stamp, PLACE));
                for number in 0..64 {
                    index.insert(key(2 * (60 * number) + 1), handle(number), &mut nodes, guard).unwrap();
                }
                assert!(nodes.is_hashed);
                // Leaves in the middle become empty and are unlinked; the range is inserted into again.
                let from = random.below(KEYS / 2);
                let gone = from..from + 200;
                gone.clone().for_each(|number| assert!(index.remove(key(2 * number), handle(number), guard)));
                for number in gone.clone().filter(|number| number % 3 == 0 && number % 60 != 0) {
                    index.insert(key(2 * number + 1), handle(number), &mut nodes, guard).unwrap();
                }
                // SAFETY: the guard lives.
                assert_eq!(unsafe { nodes.first_broken() }, None, "own insertions break nothing");
                index.insert(key(2 * (from + 100)), handle(1), &mut (), guard).unwrap();
                // SAFETY: the guard lives.
                assert_eq!(unsafe { nodes.first_broken() }, Some(PLACE), "another's insertion went unnoticed");
            });
        }
    }
}
