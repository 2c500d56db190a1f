//! Algorithm 2, over two-phase locking with condition locks: at the commit all rows are locked, in one order as far as they are
//! known, and by age in any case. Conditions are held from the test on.

use polychron_base::{Reason, Stop, TableId};

use super::base::{Base, Inner};
use super::program::Condition;
use crate::locking::{Conditional, Locking};

impl Base for Locking<Conditional> {
    const LAZY: (&'static str, &'static str) =
        ("lazy-2pl", "two-phase locking, futures open until the commit, conditions locked: hot rows without aborts");
    const EAGER: (&'static str, &'static str) = ("2pl", "lazy-2pl with futures resolved at once, for comparison");
    const HOLDS_CONDITIONS: bool = true;

    fn observe(
        transaction: &mut Inner<'_, Self>,
        condition: &Condition,
        _scratch: &mut Vec<u64>,
    ) -> Result<bool, Stop> {
        transaction.hold_condition(condition)
    }

    fn claim(transaction: &mut Inner<'_, Self>, table: TableId, key: &[u8], written: bool) -> Result<(), Stop> {
        transaction.lock_row(table, key, written)
    }

    fn conflict(transaction: &mut Inner<'_, Self>, reason: Reason, table: TableId) -> Stop {
        transaction.end_in_conflict(reason, table)
    }
}
