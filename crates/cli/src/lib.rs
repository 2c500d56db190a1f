//! The command line, for the `polychron` binary and for programs that have more commands.

pub mod arguments;
pub mod bench;
pub mod interrupt;
pub mod output;
mod progress;
pub mod report;

/// The commit that was built, or `unknown`.
pub const COMMIT: &str = env!("POLYCHRON_COMMIT");
