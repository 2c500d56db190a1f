//! The node set: what an optimistic transaction remembers of the index nodes in which it found nothing.

use polychron_index::{Change, Changes, Stamp};

use super::Place;
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
        /// It finds the stamps of nodes that were taken out meanwhile.
        FollowSettled,
    }
}

/// The leaves and buckets whose emptiness somewhere was observed.
#[derive(Debug, Default)]
pub struct NodeSet {
    nodes: Vec<(Stamp, Place)>,
}

impl NodeSet {
    /// Remembers a node. Scans and repeated misses name the same node in a row, so the last one is compared.
    #[inline]
    pub fn add(&mut self, stamp: Stamp, place: Place) {
        if self.nodes.last().is_none_or(|(last, _)| *last != stamp) {
            self.nodes.push((stamp, place));
        }
    }

    /// How many there are.
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
        self.nodes.clear();
    }

    /// Forgets the nodes from `len` on.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.nodes.truncate(len);
    }

    /// The first node whose stamp does not hold any more.
    ///
    /// # Safety
    /// The guard under which the stamps were taken is alive.
    #[inline]
    pub unsafe fn first_broken(&self) -> Option<Place> {
        // SAFETY: the caller keeps the guard.
        self.nodes.iter().find(|(stamp, _)| !unsafe { stamp.holds() }).map(|(_, place)| *place)
    }
}

/// Whether a stamp in the set is the one that an insertion reports. The node may have been taken out since, in the
/// background; then the stamp stands for its range in the node that took it over.
#[inline]
fn same(stamp: &Stamp, reported: &Stamp) -> bool {
    if left_out(NodeStep::FollowSettled) {
        return stamp == reported;
    }
    // SAFETY: insertions happen under the guard under which the transaction took its stamps.
    stamp == reported || unsafe { stamp.settled() } == *reported
}

impl Changes for NodeSet {
    /// The transaction's own insertions must not abort it. A stamp of a node that was taken out meanwhile, by itself
    /// or by others, is known by what it has settled to.
    fn change(&mut self, change: Change) {
        if left_out(NodeStep::FollowOwnInsertions) {
            return;
        }
        match change {
            Change::Moved { before, after } => {
                for (stamp, _) in &mut self.nodes {
                    if same(stamp, &before) || left_out(NodeStep::FollowOnlyOwn) {
                        *stamp = after;
                    }
                }
            }
            Change::Added { of, new } if !left_out(NodeStep::FollowSplits) => {
                if let Some(&(_, place)) = self.nodes.iter().find(|(stamp, _)| same(stamp, &of)) {
                    self.nodes.push((new, place));
                }
            }
            Change::Added { .. } => {}
        }
    }
}
