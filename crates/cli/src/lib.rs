//! The command line, for the `polychron` binary and for programs that have more commands.

pub mod arguments;
pub mod bench;
pub mod commands;
mod compare;
pub mod files;
pub mod interrupt;
pub mod output;
pub mod pages;
pub mod progress;
pub mod report;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "shell")]
pub mod shell;
#[cfg(any(feature = "serve", feature = "shell"))]
mod statements;

/// The commit that was built, or `unknown`.
pub const COMMIT: &str = env!("COMMIT_OF_POLYCHRON");
