//! Below a layer that leaves futures open: rows that will be written are latched before they are read, at the commit, so that no
//! two transactions spoil each other's reads. Conditions are looked at without protection.

use polychron_base::{Error, Reason, TableId};
use polychron_engine::lazy::{BaseTransaction, Claim, LazyHost, Names};
use polychron_engine::{Configuration, rows};

use super::protocol::Maflingo;

impl LazyHost for Maflingo {
    const DEFERRED: Names = Names {
        name: "lazy-occ",
        summary: "optimistic, futures open until the commit: for hot rows that are added to, above all",
    };
    const EAGER: &'static [Configuration] = &[Configuration::new(
        "occ",
        "lazy-occ with futures resolved at once, for comparison",
        &[("resolution", "eager")],
    )];

    fn claim(transaction: &mut BaseTransaction<'_, Self>, claim: &Claim<'_>) -> Result<(), Error> {
        if claim.is_written { rows::lock_row(transaction, claim.table, claim.key) } else { Ok(()) }
    }

    fn conflict(transaction: &mut BaseTransaction<'_, Self>, reason: Reason, table: TableId) -> Error {
        transaction.end_in_conflict(reason, table)
    }
}
