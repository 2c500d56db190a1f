//! Below a layer that leaves futures open: at the commit all rows are locked, by age. Conditions are held from the test on.

use polychron_base::{Error, Reason, TableId};
use polychron_engine::lazy::{BaseTransaction, Claim, Condition, LazyHost, Names, Scratch};
use polychron_engine::rows::Primitives;

use super::options::{Options, Policy};
use super::protocol::Locking;

impl LazyHost for Locking {
    const HOLDS_CONDITIONS: bool = true;
    const DEFERRED: Names = Names {
        name: "lazy-2pl",
        summary: "two-phase locking, futures open until the commit: for hot rows whose transactions seldom abort",
    };

    fn prepare(options: &mut Options) {
        options.policy = Policy::Conditional;
    }

    fn observe(
        transaction: &mut BaseTransaction<'_, Self>,
        condition: &Condition,
        _scratch: &mut Scratch,
    ) -> Result<bool, Error> {
        // It is looked at by ways of its own.
        transaction.watch().give_up();
        transaction.hold_condition(condition)
    }

    fn claim(transaction: &mut BaseTransaction<'_, Self>, claim: &Claim<'_>) -> Result<(), Error> {
        transaction.lock_row(claim.table, claim.key, claim.is_written)
    }

    fn conflict(transaction: &mut BaseTransaction<'_, Self>, reason: Reason, table: TableId) -> Error {
        transaction.end_in_conflict(reason, table)
    }
}
