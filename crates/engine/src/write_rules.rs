//! Rules for the rows of a table that belong to a layer above the engine, such as the CHECKs of SQL.
//!
//! The layer obeys its rules by itself and says so where it writes ([`obeying`]). Every other write, typed or of bytes, comes through
//! [`crate::foreign_keys`], which asks the rules.

use std::cell::Cell;
use std::fmt::Debug;

use polychron_schema::RowRef;

use crate::Error;

/// The table in which SQL records what it knows of tables: the first column is its key, the second one a text.
pub const RECORDS: &str = "polychron_sql_definitions";

/// What the keys of records begin with that name a table with rules, which is their text.
pub const MARK: char = '\u{6}';

/// What is asked of writes into a table.
pub trait WriteRules: Debug + Send + Sync {
    /// Whether a row may be in the table.
    ///
    /// # Errors
    /// Why not. The write is undone then, and the transaction may go on.
    fn check_row(&self, row: RowRef<'_>) -> Result<(), Error>;

    /// Whether a row may be deleted.
    ///
    /// # Errors
    /// As for [`WriteRules::check_row`].
    fn check_deletion(&self) -> Result<(), Error>;
}

thread_local! {
    static OBEYED: Cell<bool> = const { Cell::new(false) };
}

/// Whether what writes in this thread obeys the rules by itself.
#[inline]
pub(crate) fn are_obeyed() -> bool {
    OBEYED.get()
}

/// Writes on behalf of the layer whose rules they are: the engine does not ask them.
#[inline]
pub fn obeying<O>(write: impl FnOnce() -> O) -> O {
    /// Says so no longer, also when the write panics.
    struct Before(bool);

    impl Drop for Before {
        #[inline]
        fn drop(&mut self) {
            OBEYED.set(self.0);
        }
    }

    let _before = Before(OBEYED.replace(true));
    write()
}
