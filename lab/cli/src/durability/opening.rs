//! Opening a database, beside reading its files.

use std::path::Path;

use polychron::{Durability, Error, Operations, Row, Table};
use polychron_base::clock::SystemClock;
use tempfile::TempDir;

use super::{Comparison, Place, Series, at, seconds_of};

/// Rows of a transaction that fills.
const TOGETHER: u64 = 100;

#[derive(Row)]
struct Item {
    #[key]
    id: u64,
    value: Vec<u8>,
}

/// A comparison for each length of rows: from the log, and from a checkpoint.
pub(super) fn sizes<'p>(place: &'p Place<'_>) -> Result<Vec<Comparison<'p>>, String> {
    let megabytes = place.given.megabytes;
    let lengths = [8, 80, 1000];
    lengths.into_iter().map(|bytes| of_length(place, bytes, (megabytes << 20) / (bytes as u64 + 20))).collect()
}

fn of_length<'p>(place: &'p Place<'_>, bytes: usize, rows: u64) -> Result<Comparison<'p>, String> {
    let (log, checkpoint) = (filled(place, bytes, rows, false)?, filled(place, bytes, rows, true)?);
    let mut series = Vec::new();
    for (name, directory) in [("the log", log), ("a checkpoint", checkpoint)] {
        let directory = std::rc::Rc::new(directory);
        let files = std::rc::Rc::clone(&directory);
        series.push(Series::new(format!("read {name}"), move || read(files.path())));
        series.push(Series::new(format!("open from {name}"), move || open(place, directory.path(), rows)));
    }
    let megabytes = (rows * (bytes as u64 + 20)) >> 20;
    Ok(Comparison::new(format!("{rows} rows of {bytes} bytes, about {megabytes} MiB"), "seconds", series))
}

fn filled(place: &Place<'_>, bytes: usize, rows: u64, checkpoint: bool) -> Result<TempDir, String> {
    let directory = place.directory()?;
    let fill = || -> Result<(), Error> {
        let database = place.builder().durability(Durability::OnCheckpoint).create(directory.path())?;
        let items = database.create_table::<Item>()?;
        for first in (0..rows).step_by(TOGETHER as usize) {
            database.transact(|transaction| {
                let mut row = Item { id: 0, value: vec![0; bytes] };
                (first..rows.min(first + TOGETHER)).try_for_each(|id| {
                    row.id = id;
                    row.value.fill_with(|| (id % 251) as u8 | 1);
                    transaction.insert(&items, &row)
                })
            })?;
        }
        if checkpoint {
            database.checkpoint()?;
        }
        database.close()
    };
    fill().map_err(|error| error.to_string())?;
    Ok(directory)
}

/// Reads all files once. They may lie in the system's cache, as they may when they are opened.
fn read(path: &Path) -> Result<f64, String> {
    let begin = SystemClock::new();
    let mut directories = vec![path.to_owned()];
    let mut buffer = vec![0; 1 << 20];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).map_err(|error| at(&directory, error))? {
            let path = entry.map_err(|error| at(&directory, error))?.path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let mut file = std::fs::File::open(&path).map_err(|error| at(&path, error))?;
            while std::io::Read::read(&mut file, &mut buffer).map_err(|error| at(&path, error))? > 0 {}
        }
    }
    Ok(seconds_of(&begin))
}

fn open(place: &Place<'_>, path: &Path, rows: u64) -> Result<f64, String> {
    let begin = SystemClock::new();
    let open = || -> Result<f64, Error> {
        let database = place.builder().open_existing(path)?;
        let time = seconds_of(&begin);
        let items: Table<Item> = database.table()?.expect("it was created");
        let last = database.snapshot(|snapshot| Ok::<_, Error>(snapshot.get_owned(&items, rows - 1)?.is_some()))?;
        assert!(last, "a row is missing");
        database.close()?;
        Ok(time)
    };
    open().map_err(|error| error.to_string())
}
