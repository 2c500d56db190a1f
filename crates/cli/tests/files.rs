//! The commands that read a database's files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polychron::{Database, Operations, Row};

#[derive(Row, Clone, Debug, PartialEq)]
struct City {
    #[key]
    id: u32,
    people: u64,
    name: String,
    mayor: Option<String>,
}

#[derive(Row, Clone, Debug, PartialEq)]
struct River {
    #[key]
    name: String,
    #[key]
    part: u8,
}

fn run(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
    let (words, options) = arguments.split_at(if arguments[0] == "log" { 2 } else { 1 });
    command.args(words).arg(directory).args(options).output().expect("the binary was built for this test")
}

fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// Standard output of a run that is right.
#[track_caller]
fn shown(arguments: &[&str], directory: &Path) -> Vec<String> {
    let output = run(arguments, directory);
    assert_eq!((output.status.code(), lines(&output.stderr)), (Some(0), vec![]), "{arguments:?}");
    lines(&output.stdout)
}

/// What a run that is not says.
#[track_caller]
fn refused(arguments: &[&str], directory: &Path) -> Vec<String> {
    let output = run(arguments, directory);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    lines(&output.stderr)
}

/// A database with some rows.
fn made(directory: &Path) {
    let database = Database::open(directory).unwrap();
    let (cities, rivers) = (database.create_table::<City>().unwrap(), database.create_table::<River>().unwrap());
    let city = City { id: 7, people: 700, name: "Oslo\n".to_owned(), mayor: None };
    database.transact(|transaction| transaction.insert(&cities, &city)).unwrap();
    let river = River { name: "Elbe".to_owned(), part: 3 };
    database.transact(|transaction| transaction.insert(&rivers, &river)).unwrap();
    database.transact(|transaction| transaction.update(&cities, 7, |city| city.set_people(701))).unwrap();
    database.transact(|transaction| transaction.delete(&rivers, ("Elbe", 3))).unwrap();
}

fn files_of(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files_of(&path));
        } else {
            all.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn a_database_is_shown_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    made(directory.path());
    let before = files_of(directory.path());
    let text = shown(&["inspect"], directory.path()).join("\n");
    for part in
        ["database", "openings", "city", "river", "people u64", "mayor ", " or NULL", "name, part", "The log goes"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(shown(&["verify"], directory.path()), ["nothing is damaged"]);
    let all = shown(&["log", "dump"], directory.path());
    assert_eq!(all[0], "epoch\tincarnation\torder\ttable\tkey\tchange");
    let changes: Vec<Vec<&str>> = all[1..].iter().map(|line| line.split('\t').skip(3).collect()).collect();
    let expected: [&[&str]; 4] = [
        &["city", "7", r#"put id=7 people=700 name="Oslo\n" mayor=NULL"#],
        &["river", "Elbe,3", r#"put name="Elbe" part=3"#],
        &["city", "7", "patch people=701"],
        &["river", "Elbe,3", "delete"],
    ];
    assert_eq!(changes, expected);
    assert_eq!(shown(&["log", "dump", "--table", "river"], directory.path()).len(), 3);
    assert_eq!(shown(&["log", "dump", "--table", "river", "--key", "Elbe,3"], directory.path()).len(), 3);
    assert_eq!(shown(&["log", "dump", "--table", "river", "--key", "Elbe,4"], directory.path()).len(), 1);
    assert_eq!(files_of(directory.path()), before, "nothing is changed");
}

/// One that is open is read, too.
#[test]
fn a_database_in_use_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    made(directory.path());
    let _database = Database::open(directory.path()).unwrap();
    assert_eq!(shown(&["verify"], directory.path()), ["nothing is damaged"]);
    shown(&["inspect"], directory.path());
}

#[test]
fn what_is_no_database_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    for command in [&["inspect"][..], &["verify"], &["log", "dump"]] {
        assert_eq!(refused(command, directory.path()), [format!("error: {path}: there is no database here")]);
        let nowhere = directory.path().join("nowhere");
        assert_eq!(refused(command, &nowhere), [format!("error: {path}/nowhere: it does not exist")]);
    }
    made(&directory.path().join("made"));
    let no_table = refused(&["log", "dump", "--table", "lake"], &directory.path().join("made"));
    assert_eq!(no_table, ["error: --table lake: there is no such table; the tables are city, river"]);
    assert_eq!(refused(&["log", "dump", "--key", "7"], &directory.path().join("made")).len(), 1);
}

/// Two places of the log are damaged, and both are named.
#[test]
fn all_damage_is_named() {
    let directory = tempfile::tempdir().unwrap();
    made(directory.path());
    let path = directory.path().join("log/0.log");
    // Each commit has written a block or more, behind the first one.
    let file = File::options().write(true).open(&path).unwrap();
    for block in [1, 3] {
        file.write_all_at(&[0xAB; 16], block * 4096 + 20).unwrap();
    }
    let said = refused(&["verify"], directory.path());
    assert_eq!(
        said,
        [
            "error: log/0.log, byte 4096: frames lack from here up to log/0.log, byte 8192",
            "error: log/0.log, byte 12288: frames lack from here up to log/0.log, byte 16384",
        ]
    );
    let said = refused(&["log", "dump"], directory.path());
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("log/0.log is damaged from byte 4096 on"), "{said:?}");
    assert_eq!(refused(&["inspect"], directory.path()).len(), 1);
}

#[test]
fn a_backup_is_a_database_and_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    made(&at("bank"));
    let before = files_of(&at("bank"));
    let to = at("copy").display().to_string();
    assert_eq!(shown(&["backup", &to], &at("bank")), Vec::<String>::new());
    assert_eq!(files_of(&at("bank")), before);
    assert_eq!(shown(&["verify"], &at("copy")), ["nothing is damaged"]);
    let copy = Database::open(at("copy")).unwrap();
    let cities = copy.create_or_open_table::<City>().unwrap();
    assert_eq!(copy.transact(|t| t.get_owned(&cities, 7)).unwrap().map(|city| city.people), Some(701));
    drop(copy);
    let written = files_of(&at("copy"));
    assert_eq!(refused(&["backup", &to], &at("bank")), [format!("error: there is a database at {to} already")]);
    assert!(files_of(&at("copy")) == written);
    let nothing = at("nothing").display().to_string();
    let said = refused(&["backup", &at("other").display().to_string()], &at("nothing"));
    assert_eq!(said, [format!("error: there is no database at {nothing}: it does not exist")]);
    let _database = Database::open(at("bank")).unwrap();
    let said = refused(&["backup", &at("other").display().to_string()], &at("bank"));
    let bank = at("bank").display().to_string();
    assert_eq!(said, [format!("error: the database at {bank} is in use by process {}", std::process::id())]);
    assert!(!at("other").exists());
}
