//! Waiting until snapshots show what was loaded.

use std::sync::Arc;

use polychron_base::key::Key8;
use polychron_base::{Error, TableId};
use polychron_engine::any::AnyProtocol;
use polychron_engine::{Access, Declare, Insertion, Operations, Procedure, Protocol, Transaction, Worker};
use polychron_schema::{ColumnType, Projection, RowRef, TableDefinition};

use super::TICK;

/// Looks at a snapshot so often at most; a protocol whose snapshots lie further back has to live with that.
const LOOKS: u32 = 500;

/// The table of the row that is waited for.
const TABLE: &str = "polychron quiesces";

/// Returns when a snapshot shows what has been committed by now: snapshots may lie slightly in the past, and the first
/// ones after a load would show empty tables.
pub(super) fn quiesce(database: &Arc<AnyProtocol>) -> Result<(), Error> {
    let definition = TableDefinition::new(TABLE).with_column("key", ColumnType::U64).with_key([0]);
    let table = database.create_table(definition)?;
    let mut worker = database.worker()?;
    worker.execute(&mut Insert(table))?;
    for _ in 0..LOOKS {
        // A snapshot from before the table was made may not know it.
        if matches!(worker.snapshot(&mut Look(table)), Ok(true)) {
            break;
        }
        worker.maintain();
        std::thread::sleep(TICK);
    }
    database.drop_table(table)
}

struct Insert(TableId);

impl Procedure for Insert {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let row = [0_u64];
        match transaction.insert_row(self.0, Key8::new(0, 8), RowRef::from_words(&row))? {
            Insertion::Inserted => Ok(()),
            Insertion::Duplicate(index) => Err(Error::duplicate(self.0, index)),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0, Key8::new(0, 8), Access::Insert);
    }
}

struct Look(TableId);

impl Procedure for Look {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
        Ok(transaction.read_row(self.0, Key8::new(0, 8), &Projection::ALL)?.is_some())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0, Key8::new(0, 8), Access::Read);
    }
}
