//! The rows, and the transactions.

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Table, Transaction};
use polychron_schema::Row;

use crate::Transact;

/// A row whose length changes, with a secondary entry that moves.
#[derive(Row, Clone, Debug)]
#[row(name = "churn")]
#[index(name = "by_group", columns(group))]
pub struct Churned {
    /// The queue, or 0.
    #[key]
    pub lane: u32,
    /// The key, or the position in the queue.
    #[key]
    pub number: u64,
    /// Changes with every update.
    pub group: u32,
    /// The number of updates of the row.
    pub changes: u32,
    /// Bytes of a length that changes.
    #[column(max = 255)]
    pub text: String,
}

impl Churned {
    /// A row as it is inserted.
    pub(super) fn new(lane: u32, number: u64, draw: u32) -> Self {
        Self { lane, number, group: draw % GROUPS, changes: 0, text: text(draw).to_owned() }
    }
}

/// Rows of a group are found by the secondary index.
const GROUPS: u32 = 64;

/// Up to 255 bytes, most of them short.
fn text(draw: u32) -> &'static str {
    const FULL: &str = match std::str::from_utf8(&[b'c'; 255]) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    };
    let longest = if draw.is_multiple_of(8) { 256 } else { 32 };
    &FULL[..(draw / 8 % longest) as usize]
}

/// Names of the kinds, and their positions.
pub(super) const KINDS: &[&str] = &["update", "toggle", "advance"];
pub(super) const UPDATE: usize = 0;
pub(super) const TOGGLE: usize = 1;
pub(super) const ADVANCE: usize = 2;

/// The work of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Changes a row, if it is there.
    Update { number: u64 },
    /// Deletes a row, or inserts it where there is none.
    Toggle { number: u64 },
    /// Deletes the first row of a queue and inserts one under this number.
    Advance { lane: u32, number: u64 },
}

impl Task {
    pub(super) const fn kind(self) -> usize {
        match self {
            Self::Update { .. } => UPDATE,
            Self::Toggle { .. } => TOGGLE,
            Self::Advance { .. } => ADVANCE,
        }
    }
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct ChurnProcedure {
    pub(super) table: Table<Churned>,
    pub(super) task: Task,
    /// Decides about lengths and groups.
    pub(super) draw: u32,
    /// The number of rows that were added.
    pub(super) added: i64,
}

impl ChurnProcedure {
    fn update<T: Transaction>(&self, transaction: &mut T, number: u64) -> Result<(), Error> {
        let changed = transaction.update(&self.table, (0, number), |row| {
            row.set_changes(row.changes().wrapping_add(1));
            row.set_group(self.draw % GROUPS);
            row.set_text(text(self.draw))
        });
        changed.map(drop)
    }
}

impl Procedure for ChurnProcedure {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        self.added = 0;
        match self.task {
            Task::Update { number } => self.update(transaction, number),
            Task::Toggle { number } if transaction.delete(&self.table, (0, number))? => {
                self.added = -1;
                Ok(())
            }
            Task::Toggle { number } => {
                self.added = 1;
                transaction.insert(&self.table, &Churned::new(0, number, self.draw))
            }
            Task::Advance { lane, number } => {
                let head =
                    transaction.scan_prefix(&self.table, lane).columns(Churned::NUMBER).first(|row| row.number())?;
                self.added = 1;
                if let Some(head) = head {
                    self.added -= i64::from(transaction.delete(&self.table, (lane, head))?);
                }
                transaction.insert(&self.table, &Churned::new(lane, number, self.draw))
            }
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self.task {
            Task::Update { number } | Task::Toggle { number } => {
                declaration.row(&self.table, (0, number), Access::Write);
            }
            // Which row is the first shows in the run.
            Task::Advance { lane, .. } => declaration.rows(&self.table, lane, Access::Write),
        }
    }
}

impl Transact for ChurnProcedure {
    fn kind(&self) -> usize {
        self.task.kind()
    }
}

/// Inserts rows.
pub(super) struct Load {
    pub(super) table: Table<Churned>,
    pub(super) rows: Vec<(u32, u64)>,
}

impl Procedure for Load {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let row = |&(lane, number): &(u32, u64)| Churned::new(lane, number, number as u32);
        self.rows.iter().map(row).try_for_each(|row| transaction.insert(&self.table, &row))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.rows.iter().for_each(|&key| declaration.row(&self.table, key, Access::Insert));
    }
}

/// Counts rows: all of them, and those that the secondary index leads to.
pub(super) struct Count {
    pub(super) table: Table<Churned>,
}

impl Procedure for Count {
    type Output = (u64, u64);
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(u64, u64), Error> {
        let rows = transaction.scan(&self.table, ..).count()?;
        let entries = transaction.scan_range_by::<_, _, u32>(&self.table, Churned::BY_GROUP, ..).count()?;
        Ok((rows, entries))
    }

    /// It only reads.
    fn declare<D: Declare>(&self, _declaration: &mut D) {}
}
