//! The decoder panics at some damaged files where it should return an error. From then on nothing of it is used.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use parquet::errors::{ParquetError, Result};

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

static INSTALLED: Once = Once::new();

/// Runs the decoder. A panic is an error like others, and writes nothing.
pub(super) fn guarded<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                before(info);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    // Whoever gets the error does not go on reading.
    let result = panic::catch_unwind(AssertUnwindSafe(decode));
    IS_QUIET.set(was_quiet);
    result.unwrap_or_else(|_| Err(ParquetError::General("it is damaged".to_owned())))
}
