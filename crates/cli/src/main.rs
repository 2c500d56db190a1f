//! The `polychron` binary.

use std::process::ExitCode;

use polychron_cli::arguments::{Arguments, Command, parse};
use polychron_cli::{bench, output, pages};

fn main() -> ExitCode {
    let arguments: Arguments = match parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let code = match arguments.command {
        Command::Bench(bench) => bench::run(bench),
        Command::Pages(given) => pages::run::<Arguments>(&given),
    };
    ExitCode::from(output::exit_code(code))
}
