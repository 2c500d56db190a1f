//! The `polychron-lab` binary: what measures and proves the product.

mod arguments;
mod check;
mod crash;
mod durability;
mod figures;

use std::process::ExitCode;

use polychron_cli::arguments::parse;
use polychron_cli::{bench, output, pages};
use polychron_compared::Everything;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments: Arguments = match parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let code = match arguments.command {
        Command::Bench(bench) => bench::run_with::<Everything>(bench),
        Command::Check(given) => check::run(&given),
        Command::Crash(given) => crash::run(&given),
        Command::CrashClient(given) => crash::client(given),
        Command::Durability(given) => durability::run(&given),
        Command::Figures(given) => figures::run(&given),
        Command::Pages(given) => pages::run::<Arguments>(&given),
    };
    ExitCode::from(output::exit_code(code))
}
