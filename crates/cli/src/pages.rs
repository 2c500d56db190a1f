//! What a shell and `man` want to know of the program, from the definition of its command line.

use std::path::Path;

use clap::{Command, CommandFactory};

use crate::arguments::Pages;
use crate::output::{print_error, print_output};

/// Runs one of the commands.
pub fn run<A: CommandFactory>(pages: &Pages) -> u8 {
    let mut command = A::command();
    let name = command.get_name().to_owned();
    match pages {
        Pages::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, name, &mut script);
            print_output(String::from_utf8_lossy(&script).trim_end());
            0
        }
        Pages::Man { directory } => match manual(command, directory.as_deref()) {
            Ok(()) => 0,
            Err(line) => {
                print_error(line);
                2
            }
        },
    }
}

fn manual(command: Command, directory: Option<&Path>) -> Result<(), String> {
    if let Some(directory) = directory {
        let failed = |error: std::io::Error| format!("--directory {}: {error}", directory.display());
        return clap_mangen::generate_to(command, directory).map_err(failed);
    }
    let mut page = Vec::new();
    let failed = |error: std::io::Error| format!("the page could not be made: {error}");
    clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
    print_output(String::from_utf8_lossy(&page).trim_end());
    Ok(())
}
