//! `polychron inspect`, `verify` and `log dump`: the files of a database that need not be open. They read, and change nothing.

use std::path::Path;

use indicatif::{HumanBytes, HumanCount};
use polychron_base::line::OneLine;
use polychron_log::checkpoint::Contents;
use polychron_log::disk::{Directory, Files};
use polychron_log::manifest::Checkpoint;
use polychron_log::tools::{self, Described, ReadOnly};

use crate::arguments::{Dump, LogCommand, Place};
use crate::output::{print_error, print_output};
use crate::report::{columns, two_columns};

/// How many bytes of lines are written at once.
const AT_ONCE: usize = 64 << 10;

/// Runs `inspect`.
pub fn inspect(place: &Place) -> u8 {
    answer(files_of(&place.directory).and_then(|files| show(&opened(&files, &place.directory)?, &place.directory)))
}

/// Runs `verify`.
pub fn verify(place: &Place) -> u8 {
    let found = files_of(&place.directory).and_then(|files| {
        let found = tools::verify(&files).map_err(|error| at(&place.directory, error))?;
        found.ok_or_else(|| no_database(&place.directory))
    });
    match found {
        Ok(damages) if damages.is_empty() => {
            print_output("nothing is damaged");
            0
        }
        Ok(damages) => {
            damages.iter().for_each(|damage| print_error(OneLine(damage)));
            2
        }
        Err(line) => answer(Err(line)),
    }
}

/// Runs `log`.
pub fn log(command: &LogCommand) -> u8 {
    let LogCommand::Dump(given) = command;
    answer(files_of(&given.place.directory).and_then(|files| dump(&opened(&files, &given.place.directory)?, given)))
}

pub(crate) fn answer(result: Result<(), String>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(line) => {
            print_error(OneLine(line));
            2
        }
    }
}

fn at(directory: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", directory.display())
}

fn no_database(directory: &Path) -> String {
    at(directory, "there is no database here")
}

fn files_of(directory: &Path) -> Result<Files<Directory>, String> {
    Directory::open(directory).map(Files::new).map_err(|error| at(directory, error))
}

fn opened<'f>(files: &'f Files<Directory>, directory: &Path) -> Result<ReadOnly<'f, Directory>, String> {
    let found = ReadOnly::open(files).map_err(|error| at(directory, error))?;
    found.ok_or_else(|| no_database(directory))
}

fn show(found: &ReadOnly<'_, Directory>, directory: &Path) -> Result<(), String> {
    let manifest = &found.manifest;
    let id = manifest.database.to_string();
    let (openings, generation) = (manifest.incarnation.to_string(), found.generation.to_string());
    let checkpoint = manifest.checkpoint.as_ref().map_or("none".to_owned(), of_checkpoint);
    let (first, floor) = (manifest.first_log_file.to_string(), manifest.durable.to_string());
    let role = if found.is_standby { "a standby, which follows another one" } else { "a database of its own" };
    let rows = [
        ("role", role),
        ("openings", openings.as_str()),
        ("manifests written", &generation),
        ("checkpoint", &checkpoint),
        ("first log file", &first),
        ("durable epoch, at least", &floor),
    ];
    print_output(two_columns(["database", &id], rows));
    print_output("");
    let tables: Vec<_> = found.catalog.tables().iter().map(|(position, table)| of_table(*position, table)).collect();
    print_output(columns(["number", "table", "columns", "key", "indexes"], &tables));
    let logging = found.logging().map_err(|error| at(directory, error))?;
    print_output(format_args!(
        "\nThe log goes up to epoch {}; recovery reads {} records of it.",
        HumanCount(logging.epoch),
        HumanCount(logging.records),
    ));
    Ok(())
}

fn of_checkpoint(checkpoint: &Checkpoint) -> String {
    let counted = |is_rows: bool| -> u64 {
        let files = checkpoint.files.iter().filter(|file| matches!(file.contents, Contents::Rows { .. }) == is_rows);
        files.map(|file| file.count).sum()
    };
    format!(
        "{}, up to epoch {}: {} rows and {} records in {}",
        checkpoint.number,
        checkpoint.epoch,
        HumanCount(counted(true)),
        HumanCount(counted(false)),
        HumanBytes(checkpoint.files.iter().map(|file| file.bytes).sum()),
    )
}

fn of_table(position: u32, table: &polychron_log::catalog::StoredTable) -> [String; 5] {
    let definition = &table.definition;
    let name = |column: &usize| definition.columns[*column].name.as_str();
    let names = |columns: &[usize]| columns.iter().map(name).collect::<Vec<_>>().join(", ");
    let all = definition.columns.iter().map(|column| {
        format!("{} {}{}", column.name, column.column_type, if column.nullable { " or NULL" } else { "" })
    });
    let indexes = definition.indexes.iter().map(|index| format!("{} ({})", index.name, names(&index.columns)));
    [
        position.to_string(),
        definition.name.clone(),
        all.collect::<Vec<_>>().join(", "),
        names(&definition.key),
        indexes.collect::<Vec<_>>().join(", "),
    ]
    .map(|text| OneLine(text).to_string())
}

fn dump(found: &ReadOnly<'_, Directory>, given: &Dump) -> Result<(), String> {
    let names: Vec<&str> = found.catalog.tables().values().map(|table| table.definition.name.as_str()).collect();
    if let Some(table) = given.table.as_deref()
        && !names.contains(&table)
        && !table.starts_with('[')
    {
        return Err(format!("--table {table}: there is no such table; the tables are {}", names.join(", ")));
    }
    let mut lines = "epoch\tincarnation\torder\ttable\tkey\tchange".to_owned();
    let result = found.changes(given.table.as_deref(), given.key.as_deref(), &mut |described| {
        lines.push('\n');
        lines.push_str(&line_of(described));
        if lines.len() >= AT_ONCE {
            print_output(&lines[..lines.rfind('\n').unwrap_or(lines.len())]);
            lines.drain(..=lines.rfind('\n').unwrap_or(0));
        }
    });
    print_output(&lines);
    result.map_err(|error| at(&given.place.directory, error))
}

fn line_of(described: &Described) -> String {
    let Described { epoch, incarnation, order, table, key, change } = described;
    let era = if order.era == 0 { String::new() } else { format!("{}:", order.era) };
    let (table, key) = (OneLine(table), OneLine(key));
    format!("{epoch}\t{incarnation}\t{era}{}\t{table}\t{key}\t{change}", order.timestamp)
}
