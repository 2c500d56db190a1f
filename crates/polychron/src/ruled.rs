//! Tables that SQL has rules for: CHECKs, foreign keys, generated columns and the like, which the engine does not know.
//!
//! What is written through SQL obeys them. A procedure that writes otherwise is held to them (`polychron_engine::write_rules`); and refused as long as
//! nobody has loaded them, so that they hold in a program without SQL, too.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_engine::write_rules::{MARK, RECORDS};
use polychron_engine::{Error, Operations as _, Procedure, Protocol, RowRef, Scan, TableId, Transaction, WriteRules};
use polychron_schema::{KeyExtractor, KeyScratch, Layout, Value, ValueRef};

use crate::Database;

/// A table has rules of SQL that are not loaded: a program that writes into it without SQL loads them once, by [`Database::sql`]. It is the content of an
/// [`Error::Other`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SQL has rules for the rows of `{table}`, which are not loaded: use `Database::sql` before they are changed")]
pub struct RulesNotLoaded {
    /// The name of the table.
    pub table: String,
}

impl WriteRules for RulesNotLoaded {
    fn check_row(&self, _: RowRef<'_>) -> Result<(), Error> {
        Err(Error::other(self.clone()))
    }

    fn check_deletion(&self) -> Result<(), Error> {
        Err(Error::other(self.clone()))
    }
}

/// Refuses writes into the tables that SQL has recorded rules for, in a database that was just opened.
pub(crate) fn refuse_writes<P: Protocol>(database: &Database<P>) -> Result<(), Error> {
    let storage = database.protocol.storage();
    for table in recorded(database)? {
        if let Some(id) = storage.find_table(&table) {
            storage.set_write_rules(id, Some(Arc::new(RulesNotLoaded { table })))?;
        }
    }
    Ok(())
}

/// The names of the tables with rules.
fn recorded<P: Protocol>(database: &Database<P>) -> Result<Vec<String>, Error> {
    let Some(records) = database.protocol.storage().find_table(RECORDS) else { return Ok(Vec::new()) };
    let definition = database.protocol.storage().definition(records)?;
    let keys = KeyExtractor::primary(&definition)?;
    let mut scratch = KeyScratch::new();
    let first = keys.encode_key(&[Value::String(MARK.to_string())], &mut scratch)?.to_vec();
    database.execute(&mut Recorded { records, layout: definition.layout()?, first })
}

/// Reads the records.
struct Recorded {
    records: TableId,
    layout: Layout,
    /// Before the key of the first one.
    first: Vec<u8>,
}

impl Procedure for Recorded {
    type Output = Vec<String>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        let scan = Scan { lower: Bound::Included(&self.first), ..Scan::all(self.records) };
        transaction.scan_rows(&scan, &mut |row| {
            let [name, table] = [0, 1].map(|column| row.value_ref(&self.layout, column));
            match (name, table) {
                (ValueRef::String(name), ValueRef::String(table)) if name.starts_with(MARK) => {
                    names.push(table.to_owned());
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            }
        })?;
        Ok(names)
    }
}
