//! The `polychron` binary.

use std::process::ExitCode;

use polychron_cli::arguments::{Arguments, Command, parse};
use polychron_cli::{bench, output};

fn main() -> ExitCode {
    let arguments: Arguments = match parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let Command::Bench(bench) = arguments.command;
    ExitCode::from(output::exit_code(bench::run(bench)))
}
