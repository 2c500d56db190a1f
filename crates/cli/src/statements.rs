//! Which protocols take statements: all.

use polychron::any_protocol;

/// Refuses a protocol that is not there.
///
/// # Errors
/// A line that says which there are.
pub(crate) fn check_protocol(name: &str) -> Result<(), String> {
    any_protocol(name, &[]).map(drop).map_err(|error| format!("--protocol: {error}"))
}
