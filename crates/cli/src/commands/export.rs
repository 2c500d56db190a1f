//! `polychron export`.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::Path;

use polychron::{Database, Error, Operations as _, Scan, TableId};

use super::cells::cell;
use crate::arguments::Export;
use crate::progress::opening;

pub(super) fn run(given: &Export) -> Result<(), String> {
    let opened = Database::builder().on_event(opening()).open_read_only(&given.place.directory);
    let database = opened.map_err(|error| error.to_string())?;
    let table = find(&database, &given.table)?;
    let Some(path) = &given.output else {
        return match write(&database, table, io::stdout().lock()) {
            // Nobody wants to read on.
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(|failure| failure.line(Path::new("the standard output"))),
        };
    };
    let file = File::create_new(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let written = write(&database, table, BufWriter::new(&file))
        .and_then(|()| file.sync_all().map_err(Failure::Output))
        .map_err(|failure| failure.line(path));
    written.inspect_err(|_| {
        // Half a file is of no use.
        let _ = fs::remove_file(path);
    })
}

/// A table by its name.
pub(super) fn find(database: &Database, name: &str) -> Result<TableId, String> {
    database.find_table(name).ok_or_else(|| format!("--table {name}: there is no such table"))
}

enum Failure {
    Database(Error),
    Output(io::Error),
}

impl Failure {
    fn line(&self, path: &Path) -> String {
        match self {
            Self::Database(error) => error.to_string(),
            Self::Output(error) => format!("{}: {error}", path.display()),
        }
    }
}

impl From<csv::Error> for Failure {
    fn from(error: csv::Error) -> Self {
        Self::Output(error.into())
    }
}

fn write(database: &Database, table: TableId, output: impl Write) -> Result<(), Failure> {
    let definition = database.definition(table).map_err(Failure::Database)?;
    let layout = definition.layout().map_err(|error| Failure::Database(Error::definition(error.to_string())))?;
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(definition.columns.iter().map(|column| &column.name))?;
    let mut failed = None;
    let scanned = database.snapshot(|transaction| {
        transaction.scan_rows(&Scan::all(table), &mut |row| {
            let cells = definition.columns.iter().enumerate();
            let cells = cells.map(|(number, column)| cell(column.column_type, row.value_ref(&layout, number)));
            match writer.write_record(cells) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    });
    scanned.map_err(Failure::Database)?;
    match failed {
        Some(error) => Err(error.into()),
        None => writer.flush().map_err(Failure::Output),
    }
}
