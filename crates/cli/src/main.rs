//! The `polychron` binary.

use std::process::ExitCode;

use polychron_cli::arguments::{Arguments, Command, parse};
use polychron_cli::{bench, commands, files, output, pages, shell};

fn main() -> ExitCode {
    let arguments: Arguments = match parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let code = match arguments.command {
        Command::Bench(bench) => bench::run(bench),
        Command::Inspect(place) => files::inspect(&place),
        Command::Verify(place) => files::verify(&place),
        Command::Backup(given) => commands::backup(&given),
        Command::Restore(given) => commands::restore(&given),
        Command::Standby(given) => commands::standby(&given),
        Command::Export(given) => commands::export(&given),
        Command::Import(given) => commands::import(&given),
        Command::Shell(given) => shell::run(&given),
        Command::Log(command) => files::log(&command),
        Command::Pages(given) => pages::run::<Arguments>(&given),
    };
    ExitCode::from(output::exit_code(code))
}
