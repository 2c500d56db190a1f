//! The rows, and the transactions.

use polychron_engine::{Access, Declare, Operations, Procedure, Row, Stop, Table, Transaction};

use crate::Transact;
use crate::declare::declare_key;

/// Ten integers: the key, how often the row was changed, and eight more.
#[derive(Row, Clone, Debug)]
#[row(name = "modify")]
#[allow(missing_docs, reason = "eight columns that are alike")]
pub struct Tuple {
    /// The key.
    #[key]
    pub key: u64,
    /// How often the row was updated.
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
pub(super) const KINDS: &[&str] = &["insert", "update", "delete-and-insert"];
pub(super) const INSERT: usize = 0;
pub(super) const UPDATE: usize = 1;
pub(super) const DELETE_AND_INSERT: usize = 2;

/// What a transaction does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Insert { key: u64 },
    Update { key: u64 },
    DeleteAndInsert { deleted: u64, inserted: u64 },
}

impl Task {
    pub(super) fn kind(self) -> usize {
        match self {
            Self::Insert { .. } => INSERT,
            Self::Update { .. } => UPDATE,
            Self::DeleteAndInsert { .. } => DELETE_AND_INSERT,
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

/// A row that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("the row of key {0} is missing")]
struct Missing(u64);

impl Procedure for ModifyProcedure {
    type Output = ();

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Stop> {
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
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self.task {
            Task::Insert { key } => declare_key(declaration, &self.table, key, Access::Insert),
            Task::Update { key } => declare_key(declaration, &self.table, key, Access::Update),
            Task::DeleteAndInsert { deleted, inserted } => {
                declare_key(declaration, &self.table, deleted, Access::Write);
                declare_key(declaration, &self.table, inserted, Access::Insert);
            }
        }
    }
}

impl Transact for ModifyProcedure {
    fn kind(&self) -> usize {
        self.task.kind()
    }
}
