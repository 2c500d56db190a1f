//! The `polychron` binary.

use std::process::ExitCode;

use polychron_cli::arguments::{Arguments, Command, parse};
#[cfg(feature = "serve")]
use polychron_cli::serve;
#[cfg(feature = "shell")]
use polychron_cli::shell;
use polychron_cli::{bench, commands, files, output, pages};

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
        #[cfg(feature = "shell")]
        Command::Shell(given) => shell::run(&given),
        #[cfg(not(feature = "shell"))]
        Command::Shell(_) => {
            output::print_error("this program was built without the shell: build it with `--features shell`");
            2
        }
        #[cfg(feature = "serve")]
        Command::Serve(given) => serve::run(&given),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) => {
            output::print_error("this program was built without the server: build it with `--features serve`");
            2
        }
        Command::Log(command) => files::log(&command),
        Command::Pages(given) => pages::run::<Arguments>(&given),
    };
    ExitCode::from(output::exit_code(code))
}
