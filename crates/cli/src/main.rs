//! The `polychron` binary.

use std::process::ExitCode;

use polychron_cli::arguments::{Arguments, Command, parse};
use polychron_cli::{bench, output};

/// Rows and versions come from the database's own pools; for all the rest this allocator is faster than most systems'.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Arguments = match parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let Command::Bench(bench) = arguments.command;
    ExitCode::from(output::exit_code(bench::run(bench)))
}
