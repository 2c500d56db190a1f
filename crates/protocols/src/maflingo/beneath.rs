//! Beneath a layer that leaves futures open: rows that will be written are latched before they are read, at the commit, so that no
//! two transactions spoil each other's reads. Conditions are looked at without protection.

use polychron_base::{Reason, Stop, TableId};
use polychron_engine::Transaction;
use polychron_engine::futures::FutureError;
use polychron_engine::lazy::{Beneath, Condition, Inner};
use polychron_schema::Projection;

use super::protocol::Maflingo;
use super::tid::TidSource;

impl<T: TidSource> Beneath for Maflingo<T> {
    const HOLDS_CONDITIONS: bool = false;

    fn observe(transaction: &mut Inner<'_, Self>, condition: &Condition, scratch: &mut Vec<u64>) -> Result<bool, Stop> {
        let mut look = |validated: bool| {
            condition.evaluate(scratch, |table, key, column| {
                let projection = Projection::of(&[column.span]);
                let row = if validated {
                    transaction.read_row(table, key, &projection)?
                } else {
                    transaction.read_row_unvalidated(table, key, &projection)?
                };
                let row = row.ok_or(FutureError::NoRow(table))?;
                Ok(column.load(row).ok_or(FutureError::Null(table))?)
            })
        };
        // What has no value ends the transaction, so that must come from reads that are validated.
        look(false).or_else(|_| look(true))
    }

    fn claim(transaction: &mut Inner<'_, Self>, table: TableId, key: &[u8], written: bool) -> Result<(), Stop> {
        if written { transaction.latch_row(table, key) } else { Ok(()) }
    }

    fn conflict(transaction: &mut Inner<'_, Self>, reason: Reason, table: TableId) -> Stop {
        transaction.end_in_conflict(reason, table)
    }
}
