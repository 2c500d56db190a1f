//! Rows as they are in a database, and in another one into which they were loaded.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::Error;
use polychron_engine::{
    IndexId, Insertion, Interactive, Mode, Procedure, Projection, Protocol, RowRef, Scan, TableDefinition, TableId,
    Transaction, Worker, drive,
};
use polychron_schema::{IndexKind, Key, KeyExtractor, KeyScratch};

use super::recorder::Rows;

/// Keys of a history are below this one.
const MOST_KEYS: u64 = 64;

/// A table with its rows.
#[derive(Debug)]
pub(super) struct Dumped {
    definition: TableDefinition,
    pub(super) rows: Rows,
    /// Of each ordered secondary index the rows in its order.
    orders: Vec<Vec<Vec<u64>>>,
}

struct Dump(TableId);

impl Procedure for Dump {
    type Output = Dumped;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Dumped, Error> {
        let definition = transaction.definition(self.0)?.clone();
        let extractor = KeyExtractor::primary(&definition)?;
        let mut rows = Rows::new();
        let mut scratch = KeyScratch::new();
        let mut keep = |row: RowRef<'_>| {
            let key = extractor.extract(row, &mut scratch).expect("a row has a key").to_vec();
            rows.insert(key, row.as_words().to_vec());
            ControlFlow::Continue(())
        };
        match definition.primary_kind {
            IndexKind::Ordered => transaction.scan_unchecked(&Scan::all(self.0), &mut keep)?,
            // It cannot be asked for all.
            IndexKind::Hash => {
                let mut scratch = KeyScratch::new();
                for id in 0..MOST_KEYS {
                    let row = transaction.read_row(self.0, id.encode(&mut scratch), &Projection::ALL)?;
                    _ = row.map(&mut keep);
                }
            }
        }
        let mut orders = Vec::new();
        for (position, _) in definition.indexes.iter().enumerate().filter(|(_, index)| index.kind == IndexKind::Ordered)
        {
            let mut order = Vec::new();
            let scan = Scan { index: IndexId::secondary(position)?, ..Scan::all(self.0) };
            transaction.scan_unchecked(&scan, &mut |row| {
                order.push(row.as_words().to_vec());
                ControlFlow::Continue(())
            })?;
            orders.push(order);
        }
        Ok(Dumped { definition, rows, orders })
    }
}

/// The rows of a table.
pub(super) fn rows_of<W: Worker>(worker: &mut W, table: TableId) -> Result<Dumped, Error> {
    worker.execute(&mut Dump(table))
}

/// Loads the rows that a log makes into another database, and answers in what that differs from the original.
pub(super) fn same_in<P: Protocol<Worker: Interactive + 'static>>(
    database: &Arc<P>,
    there: &Dumped,
    replayed: &Rows,
) -> Result<Option<String>, Error> {
    // What the rows refer to is in another table, which is compared by itself.
    let definition = TableDefinition { foreign_keys: Vec::new(), ..there.definition.clone() };
    let table = database.create_table(definition)?;
    let mut worker = database.worker()?;
    let refused = drive::transact(&mut worker, Mode::ReadWrite, &mut |transaction| {
        for (key, row) in replayed {
            if transaction.insert_unchecked(table, &key[..], RowRef::from_words(row))? != Insertion::Inserted {
                return Ok(Some(format!("the row of {key:?} stands in the way of another one")));
            }
        }
        Ok::<_, Error>(None)
    })?;
    if refused.is_some() {
        return Ok(refused);
    }
    let loaded = rows_of(&mut worker, table)?;
    let is_same = loaded.rows == there.rows && loaded.orders == there.orders;
    Ok((!is_same).then(|| format!("table {} differs from its copy", there.definition.name)))
}
