//! Commands that make databases of others, and files of tables.

use polychron::Error;

use crate::arguments::Backup;
use crate::files::answer;

/// Runs `backup`.
pub fn backup(given: &Backup) -> u8 {
    answer(polychron_log::backup::back_up_directory(&given.place.directory, &given.to).map_err(line_of))
}

fn line_of(error: Error) -> String {
    error.to_string()
}
