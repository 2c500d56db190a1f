//! The rows, and the transactions.

use std::time::Duration;

use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::{Access, Declare, Error, Mode, Operations, Procedure, Row, Table, Transaction};

use crate::Transact;

/// Ten integers: the key, how often the row was changed, and eight more.
#[derive(Row, Clone, Debug)]
#[row(name = "modify")]
#[allow(missing_docs, reason = "eight columns that are alike")]
pub struct Tuple {
    /// The key.
    #[key]
    pub key: u64,
    /// The number of updates of the row.
    pub changes: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub d: u32,
    pub e: u32,
    pub f: u32,
    pub g: u32,
    pub h: u32,
}

impl Tuple {
    /// The row of a key as it is at first.
    pub fn new(key: u64) -> Self {
        let value = key as u32;
        Self { key, changes: 0, a: value, b: value, c: value, d: value, e: value, f: value, g: value, h: value }
    }
}

/// Names of the kinds, and their positions.
pub(super) const KINDS: &[&str] = &["insert", "update", "delete-and-insert", "read"];
pub(super) const INSERT: usize = 0;
pub(super) const UPDATE: usize = 1;
pub(super) const DELETE_AND_INSERT: usize = 2;
const READ: usize = 3;

/// The work of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Insert { key: u64 },
    Update { key: u64 },
    DeleteAndInsert { deleted: u64, inserted: u64 },
    Read { key: u64, seconds: f64 },
}

impl Task {
    pub(super) fn kind(self) -> usize {
        match self {
            Self::Insert { .. } => INSERT,
            Self::Update { .. } => UPDATE,
            Self::DeleteAndInsert { .. } => DELETE_AND_INSERT,
            Self::Read { .. } => READ,
        }
    }
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct ModifyProcedure {
    pub(super) table: Table<Tuple>,
    pub(super) task: Task,
    /// Whether the row was there that was to be updated.
    pub(super) was_there: bool,
}

/// A snapshot did not stay as it was.
#[derive(Debug, thiserror::Error)]
#[error("a snapshot showed {0:?} rows and changes, and later {1:?}")]
struct Moved((u64, u64), (u64, u64));

impl From<Moved> for Error {
    fn from(error: Moved) -> Self {
        Self::other(error)
    }
}

/// The pause of a reader between two rows: its snapshot stays open and costs no processor time.
const PAUSE: Duration = Duration::from_millis(1);

impl ModifyProcedure {
    /// Rows, and their changes.
    fn visit<T: Transaction>(&self, transaction: &mut T) -> Result<(u64, u64), Error> {
        let mut found = (0, 0);
        transaction.visit_all(&self.table, |row| {
            found.0 += 1;
            found.1 += u64::from(row.changes());
        })?;
        Ok(found)
    }

    /// Visits all rows, keeps the snapshot open, and visits them again.
    fn read<T: Transaction>(&self, transaction: &mut T, key: u64, seconds: f64) -> Result<(), Error> {
        let before = self.visit(transaction)?;
        if seconds == 0.0 {
            return Ok(());
        }
        let clock = SystemClock::new();
        while (clock.now_ns() as f64) < seconds * 1e9 {
            transaction.get_columns(&self.table, key, Tuple::CHANGES)?;
            std::thread::sleep(PAUSE);
        }
        let after = self.visit(transaction)?;
        if before == after { Ok(()) } else { Err(Moved(before, after).into()) }
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

impl Procedure for ModifyProcedure {
    type Output = ();
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        match self.task {
            Task::Insert { key } => transaction.insert(&self.table, &Tuple::new(key)),
            Task::Update { key } => {
                self.was_there = transaction.update_columns(&self.table, key, Tuple::CHANGES, |row| {
                    row.set_changes(row.changes().wrapping_add(1));
                })?;
                Ok(())
            }
            Task::DeleteAndInsert { deleted, inserted } => {
                if !transaction.delete(&self.table, deleted)? {
                    return Err(Missing(deleted).into());
                }
                transaction.insert(&self.table, &Tuple::new(inserted))
            }
            Task::Read { key, seconds } => self.read(transaction, key, seconds),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self.task {
            Task::Insert { key } => declaration.row(&self.table, key, Access::Insert),
            Task::Update { key } => declaration.row(&self.table, key, Access::Update),
            Task::DeleteAndInsert { deleted, inserted } => {
                declaration.row(&self.table, deleted, Access::Write);
                declaration.row(&self.table, inserted, Access::Insert);
            }
            Task::Read { key, .. } => declaration.row(&self.table, key, Access::Read),
        }
    }
}

impl Transact for ModifyProcedure {
    fn kind(&self) -> usize {
        self.task.kind()
    }

    fn mode(&self) -> Mode {
        if matches!(self.task, Task::Read { .. }) { Mode::Snapshot } else { Mode::ReadWrite }
    }
}
