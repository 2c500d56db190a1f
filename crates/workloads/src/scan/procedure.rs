//! The transactions.

use std::ops::ControlFlow;

use polychron_base::TableId;
use polychron_base::clock::{Clock, SystemClock};
use polychron_base::key::Key8;
use polychron_engine::{Access, Declare, Mode, Procedure, Stop, Transaction};
use polychron_schema::{ColumnSpan, Projection, RowBuffer, RowRef, Slot};

use super::options::ScanOptions;
use crate::Transact;

/// Names of the kinds.
pub(super) const KINDS: &[&str] = &["scan", "move"];

/// What each row holds at first.
pub(super) const AMOUNT: u64 = 1000;
/// What each byte of a payload is.
const BYTE: u8 = 1;

/// The table as the transactions must know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) table: TableId,
    row: polychron_schema::Shape,
    key: Slot,
    amount: ColumnSpan,
    payload: Option<ColumnSpan>,
    /// What a scan looks at.
    scanned: Projection,
    /// Whether the payload is added up, too.
    whole: bool,
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
        Self { table, row, key: key.slot, amount, payload, scanned, whole }
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

    /// What a row holds.
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

    /// What that sum is, of each row.
    fn expected_payload(&self) -> u64 {
        let bytes = self.payload.map_or(0, |payload| u64::from(payload.slot.width));
        let word = u64::from_le_bytes([BYTE; 8]);
        word.wrapping_mul(bytes / 8).wrapping_add(u64::from(BYTE) * (bytes % 8))
    }
}

/// What a transaction does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Adds up all rows.
    Scan { records: u64 },
    /// Moves an amount from one row to another, as far as there is so much.
    Move { from: u64, to: u64, amount: u64 },
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct ScanProcedure {
    pub(super) shape: Shape,
    pub(super) task: Task,
    /// How long the scan took.
    pub(super) ns: u64,
}

/// A scan that found something else than there is.
#[derive(Debug, thiserror::Error)]
#[error("a scan found {rows} rows that add up to {sum}; there are {expected_rows}, and they add up to {expected_sum}")]
struct Wrong {
    rows: u64,
    sum: u64,
    expected_rows: u64,
    expected_sum: u64,
}

/// A row that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("the row of key {0} is missing")]
struct Missing(u64);

impl ScanProcedure {
    fn scan<T: Transaction>(&mut self, transaction: &mut T, expected_rows: u64) -> Result<(), Stop> {
        let clock = SystemClock::new();
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
        self.ns = clock.now_ns();
        let payload = if shape.whole { shape.expected_payload() } else { 0 };
        let expected_sum = expected_rows.wrapping_mul(AMOUNT.wrapping_add(payload));
        if (rows, sum) != (expected_rows, expected_sum) {
            return Err(Wrong { rows, sum, expected_rows, expected_sum }.into());
        }
        Ok(())
    }

    fn take<T: Transaction>(&self, transaction: &mut T, from: u64, to: u64, amount: u64) -> Result<(), Stop> {
        let Shape { table, amount: column, .. } = self.shape;
        let projection = Projection::of(&[column]);
        let mut moved = 0;
        let mut change = |key: u64, by: &mut dyn FnMut(u64) -> u64| -> Result<(), Stop> {
            let found = transaction.update_row(table, Key8::new(key, 8), &projection, |row| {
                let before = u64::from_le_bytes(row.as_row().load(column.slot.offset));
                row.fixed_mut(column).copy_from_slice(&by(before).to_le_bytes());
            })?;
            if found { Ok(()) } else { Err(Missing(key).into()) }
        };
        change(from, &mut |before| {
            moved = amount.min(before);
            before - moved
        })?;
        change(to, &mut |before| before + moved)
    }
}

impl Procedure for ScanProcedure {
    type Output = ();

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Stop> {
        match self.task {
            Task::Scan { records } => self.scan(transaction, records),
            Task::Move { from, to, amount } => self.take(transaction, from, to, amount),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self.task {
            Task::Scan { .. } => {}
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
        usize::from(matches!(self.task, Task::Move { .. }))
    }

    fn mode(&self) -> Mode {
        match self.task {
            Task::Scan { .. } => Mode::Snapshot,
            Task::Move { .. } => Mode::ReadWrite,
        }
    }
}
