//! The result of client code that changes a row, and the fate of the row when that code fails.

use std::cell::RefCell;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_schema::{Changes, Projection, RowBuffer, RowMut, RowRef};

use crate::mutations::left_out;
use crate::rows::Step;
use crate::{Transaction, foreign_keys};

/// The result of an update's closure: nothing, or a `Result` whose error is the client's own, into which an [`Error`] can be made.
///
/// ```
/// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
/// # #[derive(Row)] struct Account { #[key] id: u64, balance: u64, #[column(max = 80)] note: String }
/// #[derive(Debug)]
/// enum Refused { Broke, Database(Error) }
///
/// impl From<Error> for Refused {
///     fn from(error: Error) -> Self {
///         Self::Database(error)
///     }
/// }
///
/// fn withdraw<T: Transaction>(t: &mut T, accounts: &Table<Account>, id: u64, amount: u64) -> Result<bool, Refused> {
///     t.update(accounts, id, |row| {
///         row.set_balance(row.balance().checked_sub(amount).ok_or(Refused::Broke)?);
///         row.set_note("withdrawn")?;
///         Ok(())
///     })
/// }
///
/// fn empty<T: Transaction>(t: &mut T, accounts: &Table<Account>, id: u64) -> Result<bool, Error> {
///     t.update(accounts, id, |row| row.set_balance(0))
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "an update's closure cannot answer `{Self}`",
    note = "it answers `()`, or `Result<(), E>` where an error `E` can be made of a `polychron::Error`"
)]
pub trait ChangeOutcome {
    /// The error of the update.
    type Error: From<Error>;
    /// Whether it can fail at all.
    const CAN_FAIL: bool;

    /// As a `Result`.
    ///
    /// # Errors
    /// The error of the closure.
    fn into_result(self) -> Result<(), Self::Error>;
}

impl ChangeOutcome for () {
    type Error = Error;
    const CAN_FAIL: bool = false;

    #[inline(always)]
    fn into_result(self) -> Result<(), Error> {
        Ok(())
    }
}

impl<E: From<Error>> ChangeOutcome for Result<(), E> {
    type Error = E;
    const CAN_FAIL: bool = true;

    #[inline(always)]
    fn into_result(self) -> Self {
        self
    }
}

thread_local! {
    /// Memory for the row before an update.
    static BEFORE: RefCell<RowBuffer> = RefCell::default();
}

/// As [`foreign_keys::update_row`], of a change that may fail.
///
/// # Errors
/// The error of the change, and those of that function.
#[inline]
pub(crate) fn update_row<T: Transaction + ?Sized, K: EncodedKey, O: ChangeOutcome>(
    transaction: &mut T,
    table: TableId,
    key: K,
    projection: &Projection,
    change: impl FnOnce(&mut RowMut<'_>) -> O,
) -> Result<bool, O::Error> {
    if O::CAN_FAIL {
        return change_or_restore(transaction, (table, key), projection, |row, _| change(row).into_result());
    }
    Ok(foreign_keys::update_row(transaction, table, key, projection, |row| {
        // It cannot fail.
        let _ = change(row).into_result();
    })?)
}

/// Gives the change the row as it was, and what of it had been changed. If it fails, the row is put back in place, and nothing counts as
/// changed: so the protocol writes nothing, and protects what was looked at as it does where nothing is changed.
pub(crate) fn change_or_restore<T: Transaction + ?Sized, K: EncodedKey, E: From<Error>>(
    transaction: &mut T,
    (table, key): (TableId, K),
    projection: &Projection,
    change: impl FnOnce(&mut RowMut<'_>, (RowRef<'_>, Changes)) -> Result<(), E>,
) -> Result<bool, E> {
    // In a thread that ends what it kept may be gone.
    let mut before = BEFORE.try_with(RefCell::take).unwrap_or_default();
    let mut outcome = Ok(());
    let found = foreign_keys::update_row(transaction, table, key, projection, |row| {
        before.copy_from(row.as_row().as_bytes());
        let earlier = row.changes();
        outcome = change(row, (before.as_row(), earlier));
        if outcome.is_err() && !left_out(Step::RestoreRows) {
            row.restore(before.as_row(), earlier);
        }
    });
    let _ = BEFORE.try_with(|slot| slot.replace(before));
    // A conflict comes first: what was looked at may never have were mutually consistent.
    let found = found?;
    outcome.map(|()| found)
}
