//! The transactions.

use std::ops::{Bound, ControlFlow};

use polychron_base::key::{EncodedKey, Key8};
use polychron_base::random::Random;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::{Access, Declare, Direction, Insertion, Mode, Operations, Procedure, Scan, Transaction};
use polychron_schema::{ColumnSpan, Projection, RowBuffer, RowRef, Slot};

use crate::Transact;

/// Names of the kinds.
pub(super) const KINDS: &[&str] = &["read", "write", "scan", "insert-delete", "read-only", "long-read"];

/// The table as the transactions must know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) table: TableId,
    row: polychron_schema::Shape,
    key: Slot,
    payload: ColumnSpan,
    projection: Projection,
}

impl Shape {
    pub(super) fn new(table: TableId, row: polychron_schema::Shape, key: ColumnSpan, payload: ColumnSpan) -> Self {
        Self { table, row, key: key.slot, payload, projection: Projection::of(&[payload]) }
    }

    /// Writes a row whose counters have this value.
    pub(super) fn build(&self, key: u64, counter: u64, row: &mut RowBuffer) {
        let built = row.build(self.row, |row| {
            row.store(self.key.offset, &key.to_le_bytes());
            set_counters(row.fixed_mut(self.payload.slot), counter);
            Ok(())
        });
        built.expect("the options keep rows short enough");
    }

    /// The key in a row.
    pub(super) fn key(&self, row: RowRef<'_>) -> u64 {
        u64::from_le_bytes(row.load(self.key.offset))
    }

    /// The first and the last eight bytes of a row's payload; twice the first where they overlap.
    pub(super) fn counters(&self, row: RowRef<'_>) -> (u64, u64) {
        let payload = row.fixed(self.payload.slot);
        let read = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let first = read(payload.first_chunk());
        (first, if payload.len() < 16 { first } else { read(payload.last_chunk()) })
    }

    fn sum(&self, row: RowRef<'_>) -> u64 {
        sum(row.fixed(self.payload.slot))
    }
}

/// Touches every byte.
#[inline]
fn sum(payload: &[u8]) -> u64 {
    let word = |word: &[u8; 8]| u64::from_le_bytes(*word);
    let (blocks, rest) = payload.as_chunks::<32>();
    let (words, bytes) = rest.as_chunks::<8>();
    // Two sums side by side become one of vectors.
    let (mut even, mut odd) = (0_u64, 0_u64);
    for block in blocks {
        let [first, second, third, fourth] = block.as_chunks::<8>().0 else { continue };
        even = even.wrapping_add(word(first)).wrapping_add(word(third));
        odd = odd.wrapping_add(word(second)).wrapping_add(word(fourth));
    }
    let words = words.iter().fold(even.wrapping_add(odd), |sum, next| sum.wrapping_add(word(next)));
    bytes.iter().fold(words, |sum, &byte| sum.wrapping_add(u64::from(byte)))
}

/// Writes a payload's first and, where they do not overlap, last eight bytes.
#[inline]
fn set_counters(payload: &mut [u8], counter: u64) {
    if payload.len() >= 16
        && let Some(last) = payload.last_chunk_mut()
    {
        *last = counter.to_le_bytes();
    }
    if let Some(first) = payload.first_chunk_mut() {
        *first = counter.to_le_bytes();
    }
}

/// Keys that are kept in the transaction itself.
const INLINE: usize = 16;

/// Keys and whether each is written, in the lowest bit.
#[derive(Clone, Debug)]
pub(super) enum Requests {
    /// Up to sixteen lie in the transaction itself.
    Inline([u64; INLINE], usize),
    /// More lie on the heap.
    Heap(Box<[u64]>),
}

impl Requests {
    pub(super) fn new(requests: &[u64]) -> Self {
        if requests.len() > INLINE {
            return Self::Heap(requests.into());
        }
        let mut inline = [0; INLINE];
        inline[..requests.len()].copy_from_slice(requests);
        Self::Inline(inline, requests.len())
    }

    fn as_slice(&self) -> &[u64] {
        match self {
            Self::Inline(requests, len) => &requests[..*len],
            Self::Heap(requests) => requests,
        }
    }
}

/// One request as it is kept.
pub(super) fn request(key: u64, write: bool) -> u64 {
    key << 1 | u64::from(write)
}

fn parts(request: u64) -> (u64, bool) {
    (request >> 1, request & 1 != 0)
}

/// The work of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Reads and writes of distinct keys.
    Points { requests: Requests, writes: u64, blind: Option<u64> },
    /// A range.
    Scan { from: u64, length: usize },
    /// Deletes a row, or inserts it when it is gone.
    InsertDelete { key: u64 },
    /// Many uniform reads, on a snapshot or serializable. The keys are drawn while it runs, the same ones again if it runs
    /// again.
    ReadOnly { seed: u64, length: usize, records: u64, mode: Mode },
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct YcsbProcedure {
    pub(super) shape: Shape,
    pub(super) task: Task,
    /// Whether a missing row is an error: it is unless rows come and go.
    pub(super) all_present: bool,
    /// Rows written, of the latest run.
    pub(super) written: i64,
    /// Rows inserted less rows deleted, of the latest run.
    pub(super) inserted: i64,
}

/// A row that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("the row of key {0} is missing")]
struct Missing(u64);

impl From<Missing> for Error {
    fn from(error: Missing) -> Self {
        Self::other(error)
    }
}

thread_local! {
    /// The buffer in which rows are built that are written whole.
    static ROW: std::cell::Cell<RowBuffer> = const { std::cell::Cell::new(RowBuffer::new()) };
}

/// Lends a row that was built in a buffer that the thread keeps.
fn with_row<O>(shape: &Shape, key: u64, counter: u64, then: impl FnOnce(RowRef<'_>) -> O) -> O {
    let mut row = ROW.take();
    shape.build(key, counter, &mut row);
    let output = then(row.as_row());
    ROW.set(row);
    output
}

fn encode(key: u64) -> Key8 {
    Key8::new(key, 8)
}

impl Shape {
    /// The sum of a row's payload.
    #[inline]
    fn read<T: Transaction>(&self, transaction: &mut T, key: u64) -> Result<Option<u64>, Error> {
        let row = transaction.read_row(self.table, encode(key), &self.projection)?;
        Ok(row.map(|row| self.sum(row)))
    }

    /// Raises the counters by one after reading the whole payload.
    #[inline]
    fn change<T: Transaction>(&self, transaction: &mut T, key: u64) -> Result<Option<u64>, Error> {
        let mut seen = 0;
        let found = transaction.update_unchecked(self.table, encode(key), &self.projection, |row| {
            let payload = row.fixed_mut(self.payload);
            seen = sum(payload);
            let counter = payload.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
            set_counters(payload, counter.wrapping_add(1));
        })?;
        Ok(found.then_some(seen))
    }

    fn overwrite<T: Transaction>(&self, transaction: &mut T, key: u64, value: u64) -> Result<u64, Error> {
        let table = self.table;
        match with_row(self, key, value, |row| transaction.put_unchecked(table, encode(key), row))? {
            Insertion::Inserted => Ok(0),
            Insertion::Duplicate(index) => Err(Error::duplicate(table, index)),
        }
    }
}

impl YcsbProcedure {
    fn points<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        let Self { shape, task: Task::Points { requests, blind, .. }, all_present, written, .. } = self else {
            return Ok(0);
        };
        let requests = requests.as_slice();
        if requests.len() > 1 && !transaction.has_prefetched() {
            for &request in requests {
                transaction.prefetch_row(shape.table, encode(parts(request).0));
            }
        }
        let mut sum = 0_u64;
        for &request in requests {
            let (key, write) = parts(request);
            let seen = match (write, *blind) {
                (false, _) => shape.read(transaction, key)?,
                (true, None) => shape.change(transaction, key)?,
                (true, Some(value)) => Some(shape.overwrite(transaction, key, value)?),
            };
            match seen {
                Some(seen) => sum = sum.wrapping_add(seen),
                None if *all_present => return Err(Missing(key).into()),
                None => continue,
            }
            *written += i64::from(write);
        }
        Ok(sum)
    }

    fn read<T: Transaction>(&self, transaction: &mut T, key: u64) -> Result<u64, Error> {
        match self.shape.read(transaction, key)? {
            Some(sum) => Ok(sum),
            None if self.all_present => Err(Missing(key).into()),
            None => Ok(0),
        }
    }

    fn scan<T: Transaction>(&self, transaction: &mut T, from: u64, length: usize) -> Result<u64, Error> {
        let mut lower = [0; 8];
        encode(from).write_to(&mut lower);
        let scan = Scan {
            table: self.shape.table,
            index: IndexId::PRIMARY,
            lower: Bound::Included(&lower),
            upper: Bound::Unbounded,
            direction: Direction::Forward,
            limit: length,
            projection: self.shape.projection,
            restrictions: &[],
        };
        let (mut sum, mut left) = (0_u64, length);
        transaction.scan_rows(&scan, &mut |row| {
            sum = sum.wrapping_add(self.shape.sum(row));
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(sum)
    }

    fn insert_or_delete<T: Transaction>(&mut self, transaction: &mut T, key: u64) -> Result<u64, Error> {
        let table = self.shape.table;
        if transaction.delete_unchecked(table, encode(key))? {
            self.inserted -= 1;
            return Ok(0);
        }
        match with_row(&self.shape, key, 0, |row| transaction.insert_unchecked(table, encode(key), row))? {
            Insertion::Inserted => self.inserted += 1,
            Insertion::Duplicate(index) => return Err(Error::duplicate(table, index)),
        }
        Ok(0)
    }
}

impl Procedure for YcsbProcedure {
    /// A sum over all bytes that were read.
    type Output = u64;
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        (self.written, self.inserted) = (0, 0);
        match self.task {
            Task::Points { .. } => self.points(transaction),
            Task::Scan { from, length } => self.scan(transaction, from, length),
            Task::InsertDelete { key } => self.insert_or_delete(transaction, key),
            Task::ReadOnly { seed, length, records, .. } => {
                let mut random = Random::from_seed(seed);
                (0..length)
                    .try_fold(0_u64, |sum, _| Ok(sum.wrapping_add(self.read(transaction, random.below(records))?)))
            }
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let table = self.shape.table;
        match &self.task {
            Task::Points { requests, blind, .. } => {
                let write = if blind.is_some() { Access::Write } else { Access::Update };
                for &request in requests.as_slice() {
                    let (key, is_written) = parts(request);
                    declaration.key(table, encode(key), if is_written { write } else { Access::Read });
                }
            }
            Task::Scan { .. } => {}
            // Whether the row is there, and so will be deleted or inserted, shows only when it is looked at.
            Task::InsertDelete { key } => declaration.key(table, encode(*key), Access::Write),
            Task::ReadOnly { seed, length, records, .. } => {
                let mut random = Random::from_seed(*seed);
                for _ in 0..*length {
                    declaration.key(table, encode(random.below(*records)), Access::Read);
                }
            }
        }
    }
}

impl Transact for YcsbProcedure {
    fn kind(&self) -> usize {
        match &self.task {
            Task::Points { writes: 0, .. } => 0,
            Task::Points { .. } => 1,
            Task::Scan { .. } => 2,
            Task::InsertDelete { .. } => 3,
            Task::ReadOnly { mode: Mode::Snapshot, .. } => 4,
            Task::ReadOnly { mode: Mode::ReadWrite, .. } => 5,
        }
    }

    fn mode(&self) -> Mode {
        match self.task {
            Task::ReadOnly { mode, .. } => mode,
            _ => Mode::ReadWrite,
        }
    }
}
