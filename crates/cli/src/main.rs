//! The `polychron` binary.

mod arguments;
mod bench;
mod check;
mod figures;
mod interrupt;
mod output;
mod progress;
mod report;

use std::process::ExitCode;

use clap::Parser;

/// Rows and versions come from the database's own pools; for all the rest this allocator is faster than most systems'.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match arguments::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return arguments::refuse(&error),
    };
    let code = match arguments.command {
        arguments::Command::Bench(bench) => bench::run(bench),
        arguments::Command::Check(given) => check::run(&given),
        arguments::Command::Figures(given) => figures::run(&given),
    };
    ExitCode::from(output::exit_code(code))
}
