//! `polychron export`.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::Path;

use polychron::{Database, Error, Operations as _, Scan, TableId};

use super::exchange::{Sink, Target, csv, format_of};
use crate::arguments::{Export, Format};
use crate::progress::opening;

pub(super) fn run(given: &Export) -> Result<(), String> {
    let format = format_of(given.format, given.output.as_deref())?;
    let opened = Database::builder().on_event(opening()).open_read_only(&given.place.directory);
    let database = opened.map_err(|error| error.to_string())?;
    let target = Target::find(&database, &given.table, format)?;
    let Some(path) = &given.output else {
        return match write(&database, &target, format, io::stdout()) {
            // Nobody wants to read on.
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(|failure| failure.line(Path::new("the standard output"))),
        };
    };
    let file = File::create_new(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let written = write(&database, &target, format, BufWriter::new(&file))
        .and_then(|()| file.sync_all().map_err(Failure::Output))
        .map_err(|failure| failure.line(path));
    written.inspect_err(|_| {
        // Half a file is of no use.
        let _ = fs::remove_file(path);
    })
}

pub(super) enum Failure {
    Database(Error),
    Output(io::Error),
    #[cfg(any(feature = "shell", feature = "serve"))]
    Sql(polychron::sql::Error),
}

impl Failure {
    fn line(&self, path: &Path) -> String {
        match self {
            Self::Database(error) => error.to_string(),
            Self::Output(error) => format!("{}: {error}", path.display()),
            #[cfg(any(feature = "shell", feature = "serve"))]
            Self::Sql(error) => error.to_string(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn write(database: &Database, target: &Target, format: Format, output: impl Write + Send) -> Result<(), Failure> {
    let table = match target {
        Target::Engine(table) => *table,
        #[cfg(any(feature = "shell", feature = "serve"))]
        Target::Copied(table) => return table.write(database, output),
    };
    let definition = database.definition(table).map_err(Failure::Database)?;
    let layout = definition.layout().map_err(|error| Failure::Database(Error::definition(error.to_string())))?;
    match format {
        Format::Csv => copy(database, table, csv::Lines::new(&definition, &layout, output)?),
        #[cfg(feature = "parquet")]
        Format::Parquet => copy(database, table, super::exchange::parquet::Groups::new(&definition, &layout, output)?),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => unreachable!("`format_of` refuses it"),
    }
}

fn copy(database: &Database, table: TableId, mut sink: impl Sink) -> Result<(), Failure> {
    let mut failed = None;
    let scanned = database.snapshot(|transaction| {
        transaction.scan_rows(&Scan::all(table), &mut |row| match sink.write(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })
    });
    scanned.map_err(Failure::Database)?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(sink.finish()?),
    }
}
