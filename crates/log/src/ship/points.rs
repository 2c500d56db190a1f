//! Which records of a log its readers may see: those up to the last consistent point that counts.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use polychron_engine::mutations::left_out;
use polychron_engine::redo::Order;

use super::message::Mark;
use crate::frame::{Header, Piece, Record};
use crate::read::Logged;
use crate::steps::ShipStep;

/// A consistent point that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The opening of the primary whose transactions are there up to an order, and all of those before.
    pub incarnation: u64,
    /// That order.
    pub consistent: Order,
    /// The epoch whose frame tells it.
    pub epoch: u64,
    /// When that was written, by the primary's wall clock, in nanoseconds since 1970.
    pub written_ns: u64,
}

/// Records that wait for a point, and what the next point has to cover.
#[derive(Debug)]
pub(super) struct Points {
    incarnation: u64,
    /// The highest order of this incarnation so far.
    largest: Order,
    /// The part that a point has to cover: all that the log has before the first frame with the present tables.
    covered: Order,
    /// From which frame on these count; `None`: that is not known.
    mark: Option<Mark>,
    is_reached: bool,
    /// Those that become closed first are in front.
    pending: BinaryHeap<Pending>,
    pending_bytes: usize,
    /// How much memory they may take.
    most_bytes: usize,
    /// They would have taken more. From now on none is kept, and no point counts.
    pub(super) is_lapsed: bool,
    /// The last point that has counted with the present tables.
    pub(super) last: Option<Point>,
}

/// A record that waits.
#[derive(Debug)]
pub(super) struct Pending {
    incarnation: u64,
    order: Order,
    piece: Piece,
    body: Vec<u8>,
}

impl Pending {
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + size_of::<Self>()
    }

    pub(super) fn logged(&self) -> Logged<'_> {
        Logged { incarnation: self.incarnation, record: Record::of(self.order, self.piece, &self.body) }
    }
}

impl Ord for Pending {
    /// The greatest is the one that becomes closed first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.incarnation, other.order).cmp(&(self.incarnation, self.order))
    }
}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pending {}

impl Points {
    /// The tables are those from the frame with this mark on.
    pub(super) fn new(mark: Option<Mark>) -> Self {
        Self {
            incarnation: 0,
            largest: Order::default(),
            covered: Order::default(),
            mark,
            is_reached: false,
            pending: BinaryHeap::new(),
            pending_bytes: 0,
            most_bytes: usize::MAX,
            is_lapsed: false,
            last: None,
        }
    }

    /// From now on records that wait may take so much memory.
    pub(super) fn bound(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
    }

    /// The tables become others with the first frame that has this mark, or a later one.
    pub(super) fn await_tables(&mut self, mark: Mark) {
        (self.mark, self.is_reached, self.last) = (Some(mark), false, None);
    }

    /// The next frame comes; its records come behind this.
    pub(super) fn frame(&mut self, header: &Header) {
        self.begin(header.incarnation);
        let mark = Mark { incarnation: header.incarnation, generation: header.manifest };
        if !self.is_reached && self.mark.is_some_and(|first| mark >= first) {
            (self.is_reached, self.covered) = (true, self.largest);
        }
    }

    fn begin(&mut self, incarnation: u64) {
        if incarnation > self.incarnation {
            (self.incarnation, self.largest, self.covered) = (incarnation, Order::default(), Order::default());
        }
    }

    pub(super) fn record(&mut self, logged: Logged<'_>) {
        let Logged { incarnation, record } = logged;
        // What a checkpoint carries has no frame.
        self.begin(incarnation);
        self.largest = self.largest.max(record.order);
        if self.is_lapsed {
            return;
        }
        let pending = Pending { incarnation, order: record.order, piece: record.piece, body: record.body().to_vec() };
        self.pending_bytes += pending.bytes();
        self.pending.push(pending);
        if self.pending_bytes > self.most_bytes {
            (self.pending, self.pending_bytes, self.is_lapsed) = (BinaryHeap::new(), 0, true);
        }
    }

    /// Whether the frame that ends an epoch is a point that counts, when all frames of that have come.
    pub(super) fn counts(&self, header: &Header) -> bool {
        let covers = header.consistent >= self.covered || left_out(ShipStep::CoverDefinitions);
        self.is_reached && covers && !self.is_lapsed
    }

    /// Notes a record that becomes closed with the epoch that it is of, and need not wait.
    pub(super) fn pass(&mut self, order: Order) {
        self.largest = self.largest.max(order);
    }

    /// All up to this frame has come. Answers what became closed with it of what waited, if it is a point that counts.
    pub(super) fn whole(&mut self, header: &Header) -> Option<(Point, Vec<Pending>)> {
        if !self.counts(header) {
            return None;
        }
        let Header { incarnation, consistent, last_epoch: epoch, written_ns, .. } = *header;
        let point = Point { incarnation, consistent, epoch, written_ns };
        let mut closed = Vec::new();
        while let Some(first) = self.pending.peek_mut().filter(|it| is_closed(header, it.incarnation, it.order)) {
            let pending = PeekMut::pop(first);
            self.pending_bytes -= pending.bytes();
            closed.push(pending);
        }
        if self.pending.is_empty() {
            // What many of them took is given back.
            self.pending.shrink_to(1024);
        }
        self.last = Some(point);
        Some((point, closed))
    }
}

/// Whether a record is closed at the point that a frame tells.
pub(super) fn is_closed(header: &Header, incarnation: u64, order: Order) -> bool {
    incarnation < header.incarnation || order <= header.consistent || left_out(ShipStep::KeepOpen)
}
