//! Scans walk the leaves in both directions. There is no left link, because every split would have to maintain it; the scan descends again instead.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::{Direction, Scan};

use super::Versioned;
use super::draft::keep;
use super::look_up::{Aim, Spot};
use super::node::{KeyRef, Node, compare};
use crate::cicada::kept::Kept;
use crate::cicada::steps::Step;
use crate::cicada::table::Store;
use crate::cicada::transaction::{CicadaTransaction, Found, Source};

/// Memory of scans, kept from one to the next. Scans may lie within each other, each then has its own.
#[derive(Debug, Default)]
pub(in crate::cicada) struct Scanning {
    /// The records of a leaf that lie in the range, in the order of the scan.
    records: Vec<Kept>,
    /// Where the next leaf begins, or the one before ends.
    seam: Vec<u64>,
}

/// Records ahead that are fetched.
const AHEAD: usize = 8;

/// What follows a leaf in the order of a scan.
#[derive(Clone, Copy, Debug)]
struct Following {
    /// Bytes of the seam.
    seam_len: usize,
    /// The right sibling.
    next: Option<Kept>,
}

/// The entries of a leaf that lie in the bounds of a scan.
fn within(node: &Node<'_>, scan: &Scan<'_>) -> std::ops::Range<usize> {
    let from = match scan.lower {
        Bound::Unbounded => 0,
        Bound::Included(key) => node.rank(key).0,
        Bound::Excluded(key) => {
            let (rank, is_there) = node.rank(key);
            rank + usize::from(is_there)
        }
    };
    let to = match scan.upper {
        Bound::Unbounded => node.count(),
        Bound::Excluded(key) => node.rank(key).0,
        Bound::Included(key) => {
            let (rank, is_there) = node.rank(key);
            rank + usize::from(is_there)
        }
    };
    from..to.max(from)
}

/// Whether a range goes on behind the keys that a leaf covers.
fn goes_on_above(node: &Node<'_>, upper: Bound<&[u8]>) -> bool {
    match (node.high(), upper) {
        (None, _) => false,
        (Some(_), Bound::Unbounded) => true,
        (Some(high), Bound::Included(upper)) => compare(high, upper) != Ordering::Greater,
        (Some(high), Bound::Excluded(upper)) => compare(high, upper) == Ordering::Less,
    }
}

/// Whether a range goes on before the keys that a leaf covers.
fn goes_on_below(node: &Node<'_>, lower: Bound<&[u8]>) -> bool {
    match (node.low(), lower) {
        (None, _) => false,
        (Some(_), Bound::Unbounded) => true,
        (Some(low), Bound::Included(lower) | Bound::Excluded(lower)) => compare(low, lower) == Ordering::Greater,
    }
}

impl CicadaTransaction<'_> {
    /// Visits what a range shows to this transaction. The leaves of the range, as far as it was visited, are remembered.
    pub(in crate::cicada) fn scan_versioned(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        nodes: &Versioned,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        if let Some(key) = scan.point() {
            if let Found::Row(source) = self.find_versioned(store, nodes, key)? {
                // One row at most, so whether the visitor breaks makes no difference.
                let _ = visitor(self, source)?;
            }
            return Ok(());
        }
        let mut scanning = std::mem::take(&mut self.state.buffers.scanning);
        let outcome = self.scan_leaves(scan, store, nodes, &mut scanning, visitor);
        self.state.buffers.scanning = scanning;
        outcome
    }

    fn scan_leaves(
        &mut self,
        scan: &Scan<'_>,
        store: &Store,
        nodes: &Versioned,
        scanning: &mut Scanning,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let (place, root) = (store.place(), nodes.root(&[][..]));
        let aim = match (scan.direction, scan.lower, scan.upper) {
            (Direction::Forward, Bound::Unbounded, _) => Aim::First,
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key), _) => Aim::At(key),
            (Direction::Backward, _, Bound::Unbounded) => Aim::Last,
            (Direction::Backward, _, Bound::Included(key)) => Aim::At(key),
            // Nothing is below the empty key.
            (Direction::Backward, _, Bound::Excluded([])) => return Ok(()),
            (Direction::Backward, _, Bound::Excluded(key)) => Aim::Below(key),
        };
        if self.snapshot {
            // A snapshot that scans again and again holds back nothing but what it sees.
            self.renew_guard();
        }
        scanning.records.clear();
        let mut leaf = self.leaf(nodes, root, aim, place, None)?;
        loop {
            self.remember(&leaf, place, Step::NodesOfRanges);
            if self.snapshot {
                // The leaf that it sees is kept by its timestamp, so that it may do so between leaves, too.
                self.midway.pass(scanning.records.len());
                self.step()?;
            }
            let following = self.collect_leaf(scan, &leaf, scanning)?;
            if self.visit_leaf(store, scanning, visitor)?.is_break() {
                return Ok(());
            }
            let Some(Following { seam_len, next }) = following else { return Ok(()) };
            let seam = KeyRef::new(&scanning.seam, seam_len);
            leaf = match scan.direction {
                Direction::Forward => match self.sibling(next, seam) {
                    Some(leaf) => leaf,
                    None => self.leaf(nodes, root, Aim::At(seam), place, None)?,
                },
                Direction::Backward => self.leaf(nodes, root, Aim::Below(seam), place, None)?,
            };
        }
    }

    /// The right sibling, if it begins where the leaf before it ended.
    fn sibling(&self, next: Option<Kept>, seam: KeyRef<'_>) -> Option<Spot> {
        let spot = self.spot(next?);
        let low = self.node_of(&spot)?.low()?;
        compare(low, seam).is_eq().then_some(spot)
    }

    /// Notes the records of a leaf, and where the range goes on.
    fn collect_leaf(
        &mut self,
        scan: &Scan<'_>,
        leaf: &Spot,
        scanning: &mut Scanning,
    ) -> Result<Option<Following>, Error> {
        scanning.records.clear();
        let Some(node) = self.node_of(leaf) else { return Ok(None) };
        let records = within(&node, scan).map(|position| self.guard.keep(node.record(position)));
        let seam = match scan.direction {
            Direction::Forward => {
                scanning.records.extend(records);
                node.high().filter(|_| goes_on_above(&node, scan.upper))
            }
            Direction::Backward => {
                scanning.records.extend(records.rev());
                node.low().filter(|_| goes_on_below(&node, scan.lower))
            }
        };
        let Some(seam) = seam else { return Ok(None) };
        keep(seam, &mut scanning.seam);
        let following = Following { seam_len: seam.len(), next: node.sibling().map(|record| self.guard.keep(record)) };
        if let (Direction::Forward, Some(next)) = (scan.direction, following.next) {
            next.address().prefetch(super::TREE_HEAD_BYTES / 64);
        }
        Ok(Some(following))
    }

    fn visit_leaf(
        &mut self,
        store: &Store,
        scanning: &Scanning,
        visitor: &mut impl FnMut(&mut Self, Source) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        let (records, lines) = (&scanning.records[..], store.records.lines());
        records.iter().take(AHEAD).for_each(|record| record.address().prefetch(lines));
        for (position, &record) in records.iter().enumerate() {
            if let Some(ahead) = records.get(position + AHEAD) {
                ahead.address().prefetch(lines);
            }
            if !self.snapshot {
                self.step()?;
            }
            match self.read_record(record, store.place()) {
                Found::Row(source) => {
                    if visitor(self, source)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                // The leaf has changed since it was looked at.
                Found::Absent(_) => return Err(self.is_inconsistent(store.place())),
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
