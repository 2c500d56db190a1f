//! The transactions.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::TableId;
use polychron_base::clock::{Clock, SystemClock};
use polychron_base::key::Key8;
use polychron_engine::batch::Sum;
use polychron_engine::{
    Access, Aggregate, ColumnBatch, Declare, Error, Mode, Operations, Procedure, Scan, Transaction,
};
use polychron_schema::{ColumnSpan, Projection, RowBuffer, RowRef, Slot, Value};

use super::beside::Beside;
use super::options::{Ask, ScanOptions, SnapshotTime};
use crate::Transact;

/// Names of the kinds.
pub(super) const KINDS: &[&str] = &["scan", "move", "raise", "change-and-scan"];

/// The initial amount of each row.
pub(super) const AMOUNT: u64 = 1000;
/// The value of each byte of a payload.
const BYTE: u8 = 1;

/// The table as the transactions must know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) table: TableId,
    row: polychron_schema::Shape,
    key: Slot,
    amount: ColumnSpan,
    payload: Option<ColumnSpan>,
    /// The columns that a scan reads.
    scanned: Projection,
    /// Whether the payload is added up, too.
    whole: bool,
    ask: Ask,
}

impl Shape {
    pub(super) fn new(
        table: TableId,
        row: polychron_schema::Shape,
        [key, amount]: [ColumnSpan; 2],
        payload: Option<ColumnSpan>,
        options: &ScanOptions,
    ) -> Self {
        let whole = options.whole_rows && payload.is_some();
        let scanned = match payload {
            Some(payload) if whole => Projection::of(&[amount, payload]),
            _ => Projection::of(&[amount]),
        };
        Self { table, row, key: key.slot, amount, payload, scanned, whole, ask: options.ask }
    }

    /// Writes a row as it is at first.
    pub(super) fn build(&self, key: u64, row: &mut RowBuffer) {
        let built = row.build(self.row, |row| {
            row.store(self.key.offset, &key.to_le_bytes());
            row.store(self.amount.slot.offset, &AMOUNT.to_le_bytes());
            if let Some(payload) = self.payload {
                row.fixed_mut(payload.slot).fill(BYTE);
            }
            Ok(())
        });
        built.expect("the options keep rows short enough");
    }

    /// The amount of a row.
    #[inline]
    pub(super) fn amount(&self, row: RowRef<'_>) -> u64 {
        u64::from_le_bytes(row.load(self.amount.slot.offset))
    }

    /// The sum of a payload's words, and of the bytes behind them.
    #[inline]
    fn payload_sum(&self, row: RowRef<'_>) -> u64 {
        let payload = self.payload.map_or(&[][..], |payload| row.fixed(payload.slot));
        let (words, rest) = payload.as_chunks::<8>();
        let words = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        rest.iter().fold(words, |sum, &byte| sum.wrapping_add(u64::from(byte)))
    }

    /// The expected sum of the payload of each row.
    fn expected_payload(&self) -> u64 {
        let bytes = self.payload.map_or(0, |payload| u64::from(payload.slot.width));
        let word = u64::from_le_bytes([BYTE; 8]);
        word.wrapping_mul(bytes / 8).wrapping_add(u64::from(BYTE) * (bytes % 8))
    }
}

/// The work of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Adds up all rows, whose amounts were raised by so much.
    Scan { records: u64, raised: u64 },
    /// Moves an amount from one row to another, as far as there is so much.
    Move { from: u64, to: u64, amount: u64 },
    /// Adds one to a row.
    Raise { row: u64 },
    /// Has rows changed beside itself, and adds up all rows several times.
    ChangeAndScan { records: u64, snapshot_time: SnapshotTime },
}

/// The results and times of scans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) scans: u64,
    /// Scans that saw the state before the changes.
    pub(super) older: u64,
    pub(super) ns: u64,
    /// The same of the plain slice.
    pub(super) plain_ns: u64,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct ScanProcedure {
    shape: Shape,
    task: Task,
    beside: Option<Arc<Beside>>,
    /// A plain slice to be added up, too.
    plain: Option<Arc<[u64]>>,
    pub(super) tally: Tally,
}

/// Scans that follow on one change of the dirty rows.
const SCANS: u64 = 8;

/// A scan that found something else than there is.
#[derive(Debug, thiserror::Error)]
#[error("a scan found {rows} rows that add up to {sum}; there are {expected_rows}, and they add up to {expected_sum}")]
struct Wrong {
    rows: u64,
    sum: u64,
    expected_rows: u64,
    expected_sum: u64,
}

impl From<Wrong> for Error {
    fn from(error: Wrong) -> Self {
        Self::other(error)
    }
}

/// The column has no sum as a number without sign.
#[derive(Debug, thiserror::Error)]
#[error("the sum of the amounts is not a number but {0:?}")]
struct NoSum(Value);

impl From<NoSum> for Error {
    fn from(error: NoSum) -> Self {
        Self::other(error)
    }
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

impl ScanProcedure {
    pub(super) fn new(shape: Shape, task: Task) -> Self {
        Self { shape, task, beside: None, plain: None, tally: Tally::default() }
    }

    /// With what else a client's transactions have.
    pub(super) fn with(self, beside: Option<&Arc<Beside>>, plain: Option<&Arc<[u64]>>) -> Self {
        Self { beside: beside.cloned(), plain: plain.cloned(), ..self }
    }

    /// Adds up all rows, and holds that against both states that there may be.
    fn scan<T: Transaction>(&mut self, transaction: &mut T, expected_rows: u64, raised: [u64; 2]) -> Result<(), Error> {
        let clock = SystemClock::new();
        let (rows, sum) = match self.shape.ask {
            Ask::Rows => self.add_up_rows(transaction)?,
            Ask::Sum => (expected_rows, self.ask_for_sum(transaction)?),
            Ask::Columns => self.add_up_batches(transaction)?,
        };
        self.tally.ns += clock.now_ns();
        let payload = if self.shape.whole { self.shape.expected_payload() } else { 0 };
        let sum_of = |raised: u64| expected_rows.wrapping_mul(AMOUNT.wrapping_add(payload)).wrapping_add(raised);
        if rows != expected_rows || !raised.map(sum_of).contains(&sum) {
            return Err(Wrong { rows, sum, expected_rows, expected_sum: sum_of(raised[1]) }.into());
        }
        self.tally.scans += 1;
        self.tally.older += u64::from(raised[0] != raised[1] && sum == sum_of(raised[0]));
        if let Some(plain) = &self.plain {
            let clock = SystemClock::new();
            black_box(black_box(plain).iter().fold(0_u64, |sum, number| sum.wrapping_add(*number)));
            self.tally.plain_ns += clock.now_ns();
        }
        Ok(())
    }

    fn change_and_scan<T: Transaction>(
        &mut self,
        transaction: &mut T,
        records: u64,
        snapshot_time: SnapshotTime,
    ) -> Result<(), Error> {
        let beside = Arc::clone(self.beside.as_ref().expect("the client knows the thread"));
        let before = beside.raised();
        beside.change()?;
        let raised = [before, beside.raised()];
        for _ in 0..SCANS {
            match snapshot_time {
                SnapshotTime::Oldest => self.scan(transaction, records, raised)?,
                SnapshotTime::Newest => {
                    let task = Task::Scan { records, raised: raised[1] };
                    let scanned = beside.scan(Self { task, beside: None, ..self.clone() })?;
                    self.tally = scanned.tally;
                }
            }
        }
        Ok(())
    }

    fn ask_for_sum<T: Transaction>(&self, transaction: &mut T) -> Result<u64, Error> {
        let amount = self.shape.amount.index.into();
        match transaction.aggregate(&Scan::all(self.shape.table), Aggregate::Sum(amount))? {
            Value::Unsigned(sum) => Ok(sum),
            other => Err(NoSum(other).into()),
        }
    }

    fn add_up_batches<T: Transaction>(&self, transaction: &mut T) -> Result<(u64, u64), Error> {
        let (mut rows, mut sum) = (0, 0_i128);
        let look = &mut |batch: &ColumnBatch<'_>| (batch.count() as u64, batch.sum(0));
        let keep = &mut |(of_batch, more)| {
            rows += of_batch;
            if let Some(Sum::Whole(more)) = more {
                sum += more;
            }
            ControlFlow::Continue(())
        };
        transaction.scan_columns(&Scan::all(self.shape.table), &[self.shape.amount.index.into()], look, keep)?;
        Ok((rows, sum as u64))
    }

    fn add_up_rows<T: Transaction>(&self, transaction: &mut T) -> Result<(u64, u64), Error> {
        let shape = self.shape;
        let (mut rows, mut sum) = (0_u64, 0_u64);
        if shape.whole {
            transaction.scan_table(shape.table, &shape.scanned, &mut |row| {
                rows += 1;
                sum = sum.wrapping_add(shape.amount(row)).wrapping_add(shape.payload_sum(row));
                ControlFlow::Continue(())
            })?;
        } else {
            transaction.scan_table(shape.table, &shape.scanned, &mut |row| {
                rows += 1;
                sum = sum.wrapping_add(shape.amount(row));
                ControlFlow::Continue(())
            })?;
        }
        Ok((rows, sum))
    }

    fn take<T: Transaction>(&self, transaction: &mut T, from: u64, to: u64, amount: u64) -> Result<(), Error> {
        let mut moved = 0;
        self.change(transaction, from, |before| {
            moved = amount.min(before);
            before - moved
        })?;
        self.change(transaction, to, |before| before + moved)
    }

    fn change<T: Transaction>(&self, transaction: &mut T, key: u64, by: impl FnOnce(u64) -> u64) -> Result<(), Error> {
        let Shape { table, amount: column, .. } = self.shape;
        let found = transaction.update_unchecked(table, Key8::new(key, 8), &Projection::of(&[column]), |row| {
            let before = u64::from_le_bytes(row.as_row().load(column.slot.offset));
            row.fixed_mut(column).copy_from_slice(&by(before).to_le_bytes());
        })?;
        if found { Ok(()) } else { Err(Missing(key).into()) }
    }
}

impl Procedure for ScanProcedure {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        // It may run again.
        self.tally = Tally::default();
        match self.task {
            Task::Scan { records, raised } => self.scan(transaction, records, [raised; 2]),
            Task::Move { from, to, amount } => self.take(transaction, from, to, amount),
            Task::Raise { row } => self.change(transaction, row, |before| before + 1),
            Task::ChangeAndScan { records, snapshot_time } => self.change_and_scan(transaction, records, snapshot_time),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self.task {
            Task::Scan { .. } | Task::ChangeAndScan { .. } => {}
            Task::Raise { row } => declaration.key(self.shape.table, Key8::new(row, 8), Access::Update),
            Task::Move { from, to, .. } => {
                for key in [from, to] {
                    declaration.key(self.shape.table, Key8::new(key, 8), Access::Update);
                }
            }
        }
    }
}

impl Transact for ScanProcedure {
    fn kind(&self) -> usize {
        match self.task {
            Task::Scan { .. } => 0,
            Task::Move { .. } => 1,
            Task::Raise { .. } => 2,
            Task::ChangeAndScan { .. } => 3,
        }
    }

    fn mode(&self) -> Mode {
        match self.task {
            Task::Scan { .. } => Mode::Snapshot,
            // One that may write keeps every version since its beginning, as if nothing were collected.
            Task::Move { .. } | Task::Raise { .. } | Task::ChangeAndScan { .. } => Mode::ReadWrite,
        }
    }
}
