//! Stamps: how a protocol remembers what it saw of an index.

use std::ptr::NonNull;

/// A node of an index and the state in which it was seen.
///
/// The stamp of a node changes when a key is inserted into the range (or hash bucket) the node covers, and when part of
/// that range moves to another node because of insertions. It does **not** change when a key is removed, when a handle is
/// replaced, or when an empty node is unlinked: those happen in the background too, and background work aborts no transaction.
/// A node that was unlinked, or a bucket that was moved by growth, forwards the question to the node that took its range over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The node, tagged by the index that made the stamp. Valid while the guard under which it was taken lives.
    pub(crate) node: NonNull<()>,
    /// The node's insertion state.
    pub(crate) state: u64,
    /// Which kind of index the node belongs to.
    pub(crate) kind: Kind,
}

// SAFETY: a stamp is an address and a number; what the address leads to is read through atomics alone, and only under a
// guard (`holds`).
unsafe impl Send for Stamp {}

/// The kinds of node a stamp may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Ordered,
    /// With the number of the bucket's table: an address may be used again, the two together are not.
    Hash(u32),
}

/// An insertion's effect on one node.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A stamp that equals `before` is to be replaced by `after`: the change was the caller's own.
    Moved {
        /// The node's stamp just before the insertion.
        before: Stamp,
        /// The node's stamp just after it.
        after: Stamp,
    },
    /// The range of the node stamped `of` is now partly covered by a new node stamped `new`: a thread that holds `of` must hold both.
    Added {
        /// The stamp, before the insertion, of the node whose range was divided.
        of: Stamp,
        /// The new node's stamp.
        new: Stamp,
    },
}

/// Receives the changes of an insertion, so that a transaction can bring its own node set up to date (§4.5 of the
/// Maflingo thesis).
pub trait Changes {
    /// Called once for each node that the insertion changed, `Added` before the `Moved` of the node it was divided from.
    fn change(&mut self, change: Change);
}

impl Changes for () {
    fn change(&mut self, _: Change) {}
}

impl Stamp {
    /// Whether no key was inserted into the node's range since the stamp was taken.
    ///
    /// Waits while a writer holds the node. All loads are sequentially consistent: together with the sequentially
    /// consistent latch of every insertion, of two transactions that each insert what the other found absent, at least
    /// one sees the other's insertion.
    ///
    /// # Safety
    /// The guard under which the stamp was taken is still alive.
    #[inline]
    pub unsafe fn holds(&self) -> bool {
        match self.kind {
            // SAFETY: the caller keeps the guard alive, so the node's memory has not been reused.
            Kind::Ordered => unsafe { crate::ordered::stamp_holds(self.node, self.state) },
            // SAFETY: as above.
            Kind::Hash(_) => unsafe { crate::hash::stamp_holds(self.node, self.state) },
        }
    }

    /// As [`Stamp::holds`], for a caller that can ask the node alone: one that was unlinked, or a bucket that was moved, is answered with
    /// `false`, for what took its range over may have been freed.
    ///
    /// # Safety
    /// The memory at [`Stamp::address`] was not freed since the stamp was taken.
    #[inline]
    pub unsafe fn holds_alone(&self) -> bool {
        match self.kind {
            // SAFETY: the caller keeps the node.
            Kind::Ordered => unsafe { crate::ordered::stamp_holds_alone(self.node, self.state) },
            // SAFETY: as above.
            Kind::Hash(_) => unsafe { crate::hash::stamp_holds_alone(self.node, self.state) },
        }
    }

    /// An address inside of the block in which the node lies.
    #[inline]
    pub fn address(&self) -> usize {
        self.node.addr().get()
    }

    /// The stamp that says the same as this one and names a node that is still there, as long as that is so: a node that
    /// was unlinked forwards to the one that took its range over. An insertion into the range reports that one as its
    /// `before`; so a caller whose node set has no stamp equal to `before` compares the resolved ones as well.
    ///
    /// # Safety
    /// The guard under which the stamp was taken is still alive.
    #[inline]
    pub unsafe fn resolved(&self) -> Self {
        match self.kind {
            Kind::Ordered => {
                // SAFETY: the caller keeps the guard alive.
                let (node, state) = unsafe { crate::ordered::resolved(self.node, self.state) };
                Self { node, state, ..*self }
            }
            _ => *self,
        }
    }
}
