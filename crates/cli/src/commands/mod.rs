//! Commands that make databases of others, and files of tables.

mod exchange;
mod export;
mod import;
mod standby;

use polychron::Error;
use polychron_log::backup::{back_up_directory, restore_directory};

use crate::arguments::{Backup, Export, Import, Restore, Standby};
use crate::files::answer;
use crate::output::print_output;

/// Runs `backup`.
pub fn backup(given: &Backup) -> u8 {
    answer(back_up_directory(&given.place.directory, &given.to).map_err(line_of))
}

/// Runs `restore`.
pub fn restore(given: &Restore) -> u8 {
    let Restore { from, to, archive, database, until } = given;
    let until_ns = until.unwrap_or(u64::MAX);
    let restored = restore_directory(from, archive.as_deref(), database.as_deref(), to, until_ns);
    answer(restored.map_err(line_of).map(|restored| {
        let time = jiff::Timestamp::from_nanosecond(restored.written_ns.into());
        let time = time.map_or_else(|_| "its beginning".to_owned(), |time| time.to_string());
        match restored.consistent {
            Some(_) => print_output(format_args!("restored to {time}")),
            None => {
                print_output(format_args!("restored the backup as it is, of {time}: nothing later is known up to then"))
            }
        }
    }))
}

/// Runs `standby`.
pub fn standby(given: &Standby) -> u8 {
    answer(standby::run(given).map_err(line_of))
}

/// Runs `export`.
pub fn export(given: &Export) -> u8 {
    answer(export::run(given))
}

/// Runs `import`.
pub fn import(given: &Import) -> u8 {
    answer(import::run(given))
}

fn line_of(error: Error) -> String {
    error.to_string()
}
