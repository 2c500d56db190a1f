//! Directories in which something cannot be done: a process may write no longer files, other things are in the place of files, or memory is short. What was
//! acknowledged is there once that has gone, and nothing hangs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use polychron::{Builder, Database, Error, Operations, Row, Table};

/// What a process is told by that is to write rows into the database at a path.
const CHILD: &str = "POLYCHRON_REFUSED_CHILD";

#[derive(Row, Clone, Debug, PartialEq)]
struct Item {
    #[key]
    id: u64,
    text: String,
}

fn item(id: u64) -> Item {
    Item { id, text: char::from(b'a' + (id % 26) as u8).to_string().repeat(20_000) }
}

fn builder() -> Builder {
    Database::builder().small()
}

fn open_with(builder: Builder, path: &Path) -> Result<(Database, Table<Item>), Error> {
    let database = builder.open(path)?;
    let items = database.create_or_open_table::<Item>()?;
    Ok((database, items))
}

/// Inserts rows from an id on until one is refused; answers how many were acknowledged, and the refusal.
fn fill(database: &Database, items: &Table<Item>, first: u64) -> (u64, Error) {
    for id in first..first + 10_000 {
        if let Err(error) = database.transact(|t| t.insert(items, &item(id))) {
            return (id - first, error);
        }
    }
    panic!("nothing is refused");
}

/// A row is as it was written, or it is no longer known whether all is durable that was read with it.
fn is_read_or_refused(database: &Database, items: &Table<Item>) {
    match database.transact(|t| t.get_owned(items, 0)) {
        Ok(found) => assert_eq!(found, Some(item(0))),
        Err(error) => assert!(matches!(error, Error::LogStopped(_)), "{error:?}"),
    }
}

/// What is wrong with the rows of a database in which the first ones were acknowledged.
fn complaint(path: &Path, acknowledged: u64) -> Option<String> {
    let (database, items) = match open_with(builder().memory_limit(512 << 20), path) {
        Ok(opened) => opened,
        Err(error) => return Some(error.to_string()),
    };
    let rows: Vec<Item> = database.transact(|t| t.scan(&items, ..).rows()).expect("it can be read");
    let is_prefix = rows.iter().zip(0..).all(|(row, id)| *row == item(id));
    // The one that was refused may be there.
    let is_whole = (acknowledged..=acknowledged + 1).contains(&(rows.len() as u64));
    (!is_prefix || !is_whole).then(|| format!("{} rows where {acknowledged} were acknowledged", rows.len()))
}

/// The contents of all files below a path, but for the lock.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => all.extend(contents(&path)),
            path if path.ends_with("lock") => {}
            path => _ = all.insert(path.clone(), std::fs::read(path).unwrap()),
        }
    }
    all
}

/// A process of the system that writes rows until it may not.
#[test]
#[ignore = "another test runs it in a process of its own"]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (database, items) = open_with(builder(), Path::new(&path)).unwrap();
    let (count, refused) = fill(&database, &items, 0);
    assert!(matches!(refused, Error::LogStopped(_) | Error::DiskFull(_)), "{refused:?}");
    is_read_or_refused(&database, &items);
    let closed = database.close();
    assert_eq!(closed.is_err(), matches!(refused, Error::LogStopped(_)), "{closed:?} behind {refused:?}");
    println!("\nacknowledged {count}");
}

/// The system lets the process write no files beyond some length.
#[test]
fn files_that_may_not_grow_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let own = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 3000; exec \"$0\" child --exact --ignored --nocapture --test-threads=1";
    let output = Command::new("sh").args(["-c", script]).arg(own).env(CHILD, &path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().find_map(|line| line.strip_prefix("acknowledged "));
    let acknowledged = line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!(acknowledged > 10, "{acknowledged}");
    assert_eq!(complaint(&path, acknowledged), None);
}

/// A directory is where the log wants to make a file: the log stops, and goes on when the database is opened without it.
#[test]
fn a_directory_in_the_place_of_a_file_stops_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let (database, items) = open_with(builder(), &path).unwrap();
    let taken = (0..64).map(|slot| path.join(format!("log/{slot}.log"))).filter(|path| !path.exists());
    // Those that are being made are there already, or are not made.
    let made: Vec<PathBuf> = taken.filter(|path| std::fs::create_dir(path).is_ok()).collect();
    let (acknowledged, refused) = fill(&database, &items, 0);
    assert!(matches!(refused, Error::LogStopped(_)), "{refused:?}");
    assert!(refused.to_string().contains("log/"), "{refused}");
    is_read_or_refused(&database, &items);
    assert!(matches!(database.close(), Err(Error::LogStopped(_))));
    assert!(matches!(builder().open(&path), Err(Error::Inaccessible(_))));
    made.iter().for_each(|path| std::fs::remove_dir(path).unwrap());
    assert_eq!(complaint(&path, acknowledged), None);
}

/// Each row by its key, in a log that has stopped: those that were acknowledged are there, and the one that was refused is in doubt.
fn are_read_from_a_stopped_log(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let database = builder().protocol(name).open(&path).unwrap();
    let items = database.create_or_open_table::<Item>().unwrap();
    let put = |id| database.transact(|t| t.insert(&items, &item(id)));
    (0..10).for_each(|id| put(id).unwrap());
    // Then they are old, also where a protocol counts time in epochs.
    while database.snapshot(|t| t.get_owned(&items, 9)).unwrap().is_none() {
        std::thread::yield_now();
    }
    (0..64).for_each(|slot| _ = std::fs::create_dir(path.join(format!("log/{slot}.log"))));
    let acknowledged = (10..10_000).find(|id| put(*id).is_err()).unwrap();
    for id in 0..10 {
        let found = database.transact(|t| t.get_owned(&items, id));
        assert_eq!(found.unwrap_or_else(|error| panic!("{id} under {name}: {error}")), Some(item(id)));
    }
    let read = database.transact(|t| Ok::<_, Error>((t.get_owned(&items, 1)?, t.get_owned(&items, 5)?)));
    assert_eq!(read.unwrap(), (Some(item(1)), Some(item(5))));
    // What was sealed last may be lost, and so may be whatever a transaction sees with it.
    let doubtful = database.transact(|t| t.get_owned(&items, acknowledged));
    assert!(matches!(doubtful, Err(Error::LogStopped(_)) | Ok(None)), "{name}: {doubtful:?}");
}

#[test]
fn what_is_durable_is_read_from_a_stopped_log() {
    for name in ["cicada", "maflingo"] {
        are_read_from_a_stopped_log(name);
    }
}

/// A file is where checkpoints want to have their directory: they fail, and all else goes on.
#[test]
fn a_file_in_the_place_of_a_directory_prevents_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let (database, items) = open_with(builder(), &path).unwrap();
    std::fs::write(path.join("checkpoint"), "somebody else's").unwrap();
    database.transact(|t| t.insert(&items, &item(0))).unwrap();
    assert!(matches!(database.checkpoint(), Err(Error::Inaccessible(_))));
    database.transact(|t| t.insert(&items, &item(1))).unwrap();
    std::fs::remove_file(path.join("checkpoint")).unwrap();
    database.checkpoint().unwrap();
    database.close().unwrap();
    assert_eq!(complaint(&path, 2), None);
}

/// Named pipes and devices are no files: nobody waits for what comes out of them, and nothing is written there.
#[test]
fn what_is_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let (database, items) = open_with(builder(), &path).unwrap();
    database.transact(|t| t.insert(&items, &item(0))).unwrap();
    database.checkpoint().unwrap();
    database.close().unwrap();
    let files = contents(&path);
    assert!(files.len() > 3);
    let inside = |file: &Path| file.strip_prefix(&path).unwrap().to_owned();
    for (file, bytes) in &files {
        for is_pipe in [true, false] {
            std::fs::remove_file(file).unwrap();
            if is_pipe {
                assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
            } else {
                std::os::unix::fs::symlink("/dev/zero", file).unwrap();
            }
            let opened = builder().open(&path).map(drop);
            assert!(
                matches!(opened, Err(Error::Inaccessible(_) | Error::Corrupt(_))),
                "{:?}: {opened:?}",
                inside(file)
            );
            std::fs::remove_file(file).unwrap();
            std::fs::write(file, bytes).unwrap();
        }
    }
    assert_eq!(complaint(&path, 1), None);
}

/// Memory is short while rows are written, and less of it when they are recovered: nothing is changed, and a database with more has all.
#[test]
fn a_lack_of_memory_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let (database, items) = open_with(builder().memory_limit(48 << 20), &path).unwrap();
    let (acknowledged, refused) = fill(&database, &items, 0);
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused:?}");
    assert!(acknowledged > 100, "{acknowledged}");
    // Rows can be read, and their room be used again.
    assert_eq!(database.transact(|t| t.get_owned(&items, 0)).unwrap(), Some(item(0)));
    database.checkpoint().unwrap();
    database.close().unwrap();
    let before = contents(&path);
    let opened = builder().memory_limit(16 << 20).open(&path).map(drop);
    assert!(matches!(opened, Err(Error::OutOfMemory(_))), "{opened:?}");
    let written_again = |path: &&PathBuf| path.to_string_lossy().contains("manifest");
    let changed: Vec<_> =
        before.iter().filter(|(path, bytes)| std::fs::read(path).ok().as_ref() != Some(bytes)).collect();
    assert!(
        changed.iter().all(|(path, _)| written_again(path)),
        "{:?}",
        changed.iter().map(|it| it.0).collect::<Vec<_>>()
    );
    assert_eq!(complaint(&path, acknowledged), None);
}
