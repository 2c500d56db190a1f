//! The commands that read a database's files.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use polychron::schema::{ColumnType, RowBuffer, TableDefinition, Value, build_row};
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

/// A database is followed, and its copy is shown as one that follows.
#[test]
fn a_standby_follows_and_is_shown_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("made"), directory.path().join("copy"));
    made(&path);
    let database = Database::builder().small().serve_standbys("127.0.0.1:0").open(&path).unwrap();
    let address = database.standby_address().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_polychron"));
    command.args(["standby", copy.to_str().unwrap(), "--of", &address]).stderr(Stdio::piped());
    let mut standby = command.spawn().unwrap();
    let mut said = BufReader::new(standby.stderr.take().unwrap()).lines();
    assert_eq!(
        said.find(|line| line.as_ref().is_ok_and(|it| it.starts_with(&address))).unwrap().unwrap(),
        format!("{address}: connected")
    );
    assert!(shown(&["inspect"], &copy).join("\n").contains("a standby, which follows"));
    standby.kill().unwrap();
    standby.wait().unwrap();
    assert!(shown(&["inspect"], &path).join("\n").contains("a database of its own"));
    assert_eq!(shown(&["verify"], &copy), ["nothing is damaged"]);
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

#[test]
fn a_backup_is_brought_up_to_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let path = |name: &str| at(name).display().to_string();
    let people = |database: &Database| {
        let cities = database.table::<City>().unwrap().unwrap();
        database.transact(|t| t.get_owned(&cities, 1)).unwrap().map(|city| city.people)
    };
    let wait = || std::thread::sleep(std::time::Duration::from_millis(100));
    let database = Database::builder().archive(at("archive")).open(at("bank")).unwrap();
    let cities = database.create_table::<City>().unwrap();
    let city = City { id: 1, people: 1, name: "Oslo".to_owned(), mayor: None };
    database.transact(|t| t.insert(&cities, &city)).unwrap();
    database.backup(at("backup")).unwrap();
    database.transact(|t| t.update(&cities, 1, |city| city.set_people(2))).unwrap();
    wait();
    let before = jiff::Timestamp::now().to_string();
    wait();
    database.create_table::<River>().unwrap();
    database.transact(|t| t.update(&cities, 1, |city| city.set_people(3))).unwrap();
    wait();
    let (bank, archive) = (path("bank"), path("archive"));
    let said = refused(&["restore", &path("x"), "--archive", &archive, "--database", &bank], &at("backup"));
    assert!(said.len() == 1 && said[0].contains("its source: ") && said[0].contains("in use by process"), "{said:?}");
    database.close().unwrap();
    let sources = ["--archive", &archive, "--database", &bank];
    let restored = |to: &str, until: Option<&str>| {
        let to = path(to);
        let mut arguments = vec!["restore", &to];
        arguments.extend(sources);
        until.into_iter().for_each(|until| arguments.extend(["--until", until]));
        shown(&arguments, &at("backup"))
    };
    assert!(restored("early", Some(&before))[0].starts_with("restored to 2"));
    assert!(restored("late", None)[0].starts_with("restored to 2"));
    let early = Database::open(at("early")).unwrap();
    assert_eq!((people(&early), early.find_table("river").is_some()), (Some(2), false));
    let late = Database::open(at("late")).unwrap();
    assert_eq!((people(&late), late.find_table("river").is_some()), (Some(3), true));
    for (arguments, line) in [
        (vec!["restore", "TO", "--until", "2001-01-01T00:00:00Z"], "the backup is of a later time"),
        (vec!["restore", "TO", "--until", "yesterday"], "it is no time such as"),
        (vec!["restore", "TO", "--archive", "/nowhere"], "/nowhere"),
        (vec!["restore", "OTHER"], "is not empty"),
    ] {
        let (to, other) = (path("to"), path("archive"));
        let arguments: Vec<&str> = arguments
            .into_iter()
            .map(|word| {
                if word == "TO" {
                    &*to
                } else if word == "OTHER" {
                    &*other
                } else {
                    word
                }
            })
            .collect();
        let said = refused(&arguments, &at("backup"));
        assert!(said.len() == 1 && said[0].contains(line), "{said:?}");
        assert!(!at("to").exists());
    }
}

/// A table with columns of all types, each once with NULL.
fn all_types() -> TableDefinition {
    let kinds = [
        ColumnType::Bool,
        ColumnType::I8,
        ColumnType::I16,
        ColumnType::I32,
        ColumnType::I64,
        ColumnType::U8,
        ColumnType::U16,
        ColumnType::U32,
        ColumnType::U64,
        ColumnType::I128,
        ColumnType::U128,
        ColumnType::F32,
        ColumnType::F64,
        ColumnType::Char,
        ColumnType::Decimal { scale: 3 },
        ColumnType::Decimal128 { scale: 20 },
        ColumnType::Date,
        ColumnType::Timestamp,
        ColumnType::FixedString { bytes: 6 },
        ColumnType::FixedBytes { bytes: 3 },
        ColumnType::String { max: 40 },
        ColumnType::Bytes { max: 40 },
    ];
    let table = TableDefinition::new("all").with_column("id", ColumnType::U64).with_key([0]);
    kinds.into_iter().enumerate().fold(table, |table, (number, kind)| {
        table.with_column(format!("c{number}"), kind).with_nullable_column(format!("n{number}"), kind)
    })
}

fn draw(random: &mut polychron_base::random::Random, kind: ColumnType) -> Value {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let bits = if random.chance(0.3) { [0, u128::MAX][random.below(2) as usize] } else { bits };
    let mut text = |most: u64| -> String {
        let letters = ['a', ',', '"', '\n', '\r', '\\', 'N', '\u{e4}', ' ', '\'', ';'];
        (0..random.below(most)).map(|_| letters[random.below(letters.len() as u64) as usize]).collect()
    };
    match kind {
        ColumnType::Bool => Value::Bool(bits & 1 == 1),
        ColumnType::I128 => Value::Integer128(bits.cast_signed()),
        ColumnType::U128 => Value::Unsigned128(bits),
        ColumnType::F32 => {
            Value::Float(f64::from(Some(f32::from_bits(bits as u32)).filter(|it| !it.is_nan()).unwrap_or(0.1)))
        }
        ColumnType::F64 => Value::Float(Some(f64::from_bits(bits as u64)).filter(|it| !it.is_nan()).unwrap_or(0.1)),
        ColumnType::Char => Value::Char(char::from_u32(bits as u32 >> 11).unwrap_or('\\')),
        ColumnType::Decimal { scale } => Value::Decimal { units: (bits as i64).into(), scale },
        ColumnType::Decimal128 { scale } => Value::Decimal { units: bits.cast_signed(), scale },
        ColumnType::Date => Value::Date(if bits & 2 == 0 { bits as i32 } else { bits as i32 % 1_000_000 }),
        ColumnType::Timestamp => Value::Timestamp(if bits & 2 == 0 { bits as i64 } else { bits as i64 >> 12 }),
        ColumnType::FixedString { .. } => Value::String(text(4)),
        ColumnType::FixedBytes { .. } => Value::Bytes(bits.to_le_bytes()[..3].to_vec()),
        ColumnType::String { .. } => Value::String(text(20)),
        ColumnType::Bytes { .. } => Value::Bytes(bits.to_le_bytes()[..(bits >> 9) as usize % 16].to_vec()),
        ColumnType::I8 => Value::Integer((bits as i8).into()),
        ColumnType::I16 => Value::Integer((bits as i16).into()),
        ColumnType::I32 => Value::Integer((bits as i32).into()),
        ColumnType::I64 => Value::Integer(bits as i64),
        ColumnType::U8 => Value::Unsigned((bits as u8).into()),
        ColumnType::U16 => Value::Unsigned((bits as u16).into()),
        ColumnType::U32 => Value::Unsigned((bits as u32).into()),
        _ => Value::Unsigned(bits as u64),
    }
}

fn fill(directory: &Path, rows: u64) {
    let database = Database::open(directory).unwrap();
    let definition = all_types();
    let (layout, table) = (definition.layout().unwrap(), database.create_table_with(definition.clone()).unwrap());
    let mut random = polychron_base::random::Random::from_seed(rows);
    for id in 0..rows {
        let mut values = vec![Value::Unsigned(id)];
        for column in &definition.columns[1..] {
            let is_null = column.nullable && random.chance(0.3);
            values.push(if is_null { Value::Null } else { draw(&mut random, column.column_type) });
        }
        let mut row = RowBuffer::new();
        build_row(&layout, &values, &mut row).unwrap();
        let key = id.to_be_bytes();
        database.transact(|t| t.insert_row(table, &key[..], row.as_row()).map(drop)).unwrap();
    }
    database.close().unwrap();
}

fn what_is_exported_is_imported(ending: &str, first_row: &str) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let path = |name: &str| at(name).display().to_string();
    fill(&at("one"), 300);
    fill(&at("two"), 0);
    let (first, second) = (path(&format!("first.{ending}")), path(&format!("second.{ending}")));
    assert_eq!(shown(&["export", "--table", "all", "--output", &first], &at("one")), Vec::<String>::new());
    assert_eq!(shown(&["import", "--table", "all", "--input", &first], &at("two")), ["300 rows inserted"]);
    shown(&["export", "--table", "all", "--output", &second], &at("two"));
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap());
    let rows = |name: &str| {
        let database = Database::builder().open_read_only(at(name)).unwrap();
        let table = database.find_table("all").unwrap();
        let mut rows = Vec::new();
        database
            .transact(|t| {
                t.scan_rows(&polychron::Scan::all(table), &mut |row| {
                    rows.push(row.as_words().to_vec());
                    std::ops::ControlFlow::Continue(())
                })
            })
            .unwrap();
        rows
    };
    assert!(rows("one") == rows("two"), "bit by bit");
    assert_eq!(rows("one").len(), 300);
    // Nothing is overwritten, and nothing inserted twice.
    assert!(refused(&["export", "--table", "all", "--output", &first], &at("one"))[0].contains(&first));
    let said = refused(&["import", "--table", "all", "--input", &first], &at("two"));
    assert!(said.len() == 1 && said[0].contains(&format!("{first}, {first_row}: duplicate key")), "{said:?}");
}

#[test]
fn csv_is_without_loss() {
    what_is_exported_is_imported("csv", "line 2");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_is_without_loss() {
    what_is_exported_is_imported("parquet", "row 1");
}

#[test]
fn rows_that_are_wrong_are_named_and_none_is_inserted() {
    let directory = tempfile::tempdir().unwrap();
    let bank = directory.path().join("bank");
    made(&bank);
    let file = directory.path().join("cities.csv");
    let name = file.display().to_string();
    let before = shown(&["export", "--table", "city"], &bank);
    for (text, line) in [
        ("id,people,name,mayor\n1,2,a,b\n2,x,a,b\n", ", line 3, column `people`: `x` is no u64"),
        ("id,people,name\n1,2,\"a\nb\"\n-1,2,a\n", ", line 4: "),
        ("id,people,name\n1,2,a\n1,3,b\n", ", line 3: duplicate key"),
        ("id,people,name\n1,2\n", ", line 2: there are 2 cells, and 3 columns"),
        ("id,people,name,lake\n", ", line 1: the table has no column `lake`"),
        ("id,people\n", ", line 1: the column `name` is missing"),
        ("id,id,people,name\n", ", line 1: the column `id` is there twice"),
        ("id,people,name\n1,\\N,a\n", ", line 2: "),
    ] {
        fs::write(&file, text).unwrap();
        let said = refused(&["import", "--table", "city", "--input", &name], &bank);
        assert!(said.len() == 1 && said[0].starts_with(&format!("error: {name}{line}")), "{text:?}: {said:?}");
        assert_eq!(shown(&["export", "--table", "city"], &bank), before);
    }
    assert_eq!(
        refused(&["import", "--table", "lake", "--input", &name], &bank),
        ["error: --table lake: there is no such table"]
    );
    assert_eq!(refused(&["export", "--table", "lake"], &bank), ["error: --table lake: there is no such table"]);
    assert_eq!(refused(&["export", "--table", "city"], directory.path()).len(), 1);
    fs::write(&file, "name,id,people,mayor\nBonn,8,1,\\N\n").unwrap();
    assert_eq!(shown(&["import", "--table", "city", "--input", &name], &bank), ["1 rows inserted"]);
    assert_eq!(shown(&["export", "--table", "city"], &bank).last().unwrap(), r"8,1,Bonn,\N");
}

/// Tables that SQL has made keep its rules, and values look as in SQL.
#[cfg(any(feature = "shell", feature = "serve"))]
#[test]
fn tables_of_sql_are_copied() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let text = "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE SCHEMA shop; CREATE TABLE kind (id int PRIMARY KEY);
        CREATE TABLE shop.item (id int PRIMARY KEY, mood mood, tags text[], price numeric(6, 2) CHECK (price > 0),
            kind int REFERENCES kind, \"Twice\" numeric GENERATED ALWAYS AS (price * 2) STORED, name varchar(5));
        INSERT INTO kind VALUES (1)";
    for name in ["one", "two"] {
        let database = Database::builder().small().open(at(name)).unwrap();
        database.sql().unwrap().run(text, &mut |_| {}).unwrap();
        if name == "one" {
            let rows = r#"INSERT INTO shop.item VALUES (1, 'happy', '{a,NULL,"b c"}', 2.5, 1, DEFAULT, '\N'), (2)"#;
            database.sql().unwrap().run(rows, &mut |_| {}).unwrap();
        }
        database.close().unwrap();
    }
    let file = at("items.csv");
    let name = file.display().to_string();
    assert!(shown(&["export", "--table", "shop.item", "--output", &name], &at("one")).is_empty());
    let exported = fs::read_to_string(&file).unwrap();
    let expected =
        "id,mood,tags,price,kind,name\n1,happy,\"{a,NULL,\"\"b c\"\"}\",2.50,1,\"\\N\"\n2,\\N,\\N,\\N,\\N,\\N\n";
    assert_eq!(exported, expected);
    for (row, what) in [
        ("3,happy,{},-1,1,x", "23514"),
        ("3,happy,{},1,7,x", "23503"),
        ("3,glad,{},1,1,x", "22P02"),
        ("3,sad,{},1,1,longer", "22001"),
        ("3,sad,{},1,1", "22P04"),
    ] {
        fs::write(&file, format!("{expected}{row}\n")).unwrap();
        let said = refused(&["import", "--table", "shop.item", "--input", &name], &at("two"));
        assert!(said.len() == 1 && said[0].starts_with(&format!("error: {name}: {what}: ")), "{row}: {said:?}");
    }
    assert_eq!(shown(&["export", "--table", "shop.item"], &at("two")).len(), 1, "nothing was inserted");
    fs::write(&file, expected).unwrap();
    assert_eq!(shown(&["import", "--table", "shop.item", "--input", &name], &at("two")), ["2 rows inserted"]);
    assert_eq!(shown(&["export", "--table", "shop.item"], &at("two")), expected.lines().collect::<Vec<_>>());
    fs::write(&file, "mood,id\nsad,9\n").unwrap();
    assert_eq!(shown(&["import", "--table", "shop.item", "--input", &name], &at("two")), ["1 rows inserted"]);
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::*;

    fn fixture(name: &str) -> String {
        format!("{}/tests/fixtures/{name}.parquet", env!("CARGO_MANIFEST_DIR"))
    }

    /// A database with an empty table of this name, or with rows of a key and a text.
    fn table(directory: &Path, definition: TableDefinition, rows: &[(Value, &str)]) {
        let database = Database::open(directory).unwrap();
        let layout = definition.layout().unwrap();
        let keys = polychron::schema::KeyExtractor::primary(&definition).unwrap();
        let table = database.create_table_with(definition).unwrap();
        for (id, text) in rows {
            let mut row = RowBuffer::new();
            build_row(&layout, &[id.clone(), Value::from(*text)], &mut row).unwrap();
            let mut scratch = polychron::schema::KeyScratch::new();
            let key = keys.extract(row.as_row(), &mut scratch).unwrap().to_vec();
            database.transact(|t| t.insert_row(table, key.as_slice(), row.as_row()).map(drop)).unwrap();
        }
        database.close().unwrap();
    }

    fn named(name: &str, id: ColumnType) -> TableDefinition {
        TableDefinition::new("t").with_column("id", id).with_key([0]).with_column(name, ColumnType::String { max: 9 })
    }

    #[test]
    fn files_that_are_wrong_are_named_and_nothing_is_inserted() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let export = |name: &str, definition: TableDefinition, rows: &[(Value, &str)]| {
            table(&at(name), definition, rows);
            let file = at(&format!("{name}.parquet")).display().to_string();
            shown(&["export", "--table", "t", "--output", &file], &at(name));
            file
        };
        table(&at("here"), named("name", ColumnType::U8), &[(Value::from(9_u64), "old")]);
        let before = shown(&["export", "--table", "t"], &at("here"));
        let right = |id: u64| (Value::from(id), "new");
        let duplicate = export("duplicate", named("name", ColumnType::U16), &[right(1), right(9), right(10)]);
        let range = export("range", named("name", ColumnType::U16), &[right(1), right(256)]);
        let columns = export("columns", named("other", ColumnType::U8), &[right(1)]);
        let types = export("types", named("name", ColumnType::Date), &[(Value::Date(1), "new")]);
        let twice = named("name", ColumnType::U8).with_nullable_column("id2", ColumnType::U8);
        let twice = export("more", twice, &[]);
        let cut = at("cut.parquet").display().to_string();
        fs::write(&cut, &fs::read(&duplicate).unwrap()[..400]).unwrap();
        let text = at("text.parquet").display().to_string();
        fs::write(&text, "id,name\n1,new\n").unwrap();
        for (file, line) in [
            (duplicate.clone(), ", row 2: duplicate key"),
            (range, ", row 2: "),
            (columns, ": the table has no column `other`"),
            (types, ", column `id`: dates are not values of u8"),
            (twice, ": the table has no column `id2`"),
            (cut, ": "),
            (text, ": "),
            (fixture("zstd"), ": the column `name` is missing, and cannot be NULL"),
            (fixture("nested"), ": the column `name.list.element` is nested"),
        ] {
            let said = refused(&["import", "--table", "t", "--input", &file], &at("here"));
            assert!(said.len() == 1 && said[0].starts_with(&format!("error: {file}{line}")), "{line}: {said:?}");
            assert_eq!(shown(&["export", "--table", "t"], &at("here")), before);
        }
        // The format that is asked for counts.
        let said = refused(&["import", "--table", "t", "--format", "csv", "--input", &duplicate], &at("here"));
        assert!(said.len() == 1 && said[0].starts_with(&format!("error: {duplicate}")), "{said:?}");
    }

    #[test]
    fn a_key_cannot_be_null() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let nullable = TableDefinition::new("t").with_column("id", ColumnType::U8).with_key([0]);
        let nullable = nullable.with_nullable_column("other", ColumnType::U8);
        // Of the two columns the other one is the key here.
        let other = TableDefinition::new("t").with_nullable_column("id", ColumnType::U8);
        let other = other.with_column("other", ColumnType::U8).with_key([1]);
        let database = Database::open(at("one")).unwrap();
        let layout = nullable.layout().unwrap();
        let made = database.create_table_with(nullable).unwrap();
        for (id, value) in [(1_u8, Value::from(7_u64)), (2, Value::Null)] {
            let mut row = RowBuffer::new();
            build_row(&layout, &[Value::from(u64::from(id)), value], &mut row).unwrap();
            database.transact(|t| t.insert_row(made, &[id][..], row.as_row()).map(drop)).unwrap();
        }
        database.close().unwrap();
        table(&at("two"), other, &[]);
        let file = at("one.parquet").display().to_string();
        shown(&["export", "--table", "t", "--output", &file], &at("one"));
        let said = refused(&["import", "--table", "t", "--input", &file], &at("two"));
        assert!(said.len() == 1 && said[0].starts_with(&format!("error: {file}, row 2: ")), "{said:?}");
        assert!(said[0].contains("other"), "{said:?}");
        assert_eq!(shown(&["export", "--table", "t"], &at("two")), ["id,other"]);
    }

    #[test]
    fn files_of_others_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let definition = TableDefinition::new("t").with_column("id", ColumnType::U32).with_key([0]);
        let definition = [
            ("small", ColumnType::I16),
            ("time", ColumnType::Timestamp),
            ("day", ColumnType::Date),
            ("price", ColumnType::Decimal { scale: 3 }),
            ("name", ColumnType::String { max: 9 }),
            ("raw", ColumnType::Bytes { max: 9 }),
            ("ratio", ColumnType::F64),
            ("yes", ColumnType::Bool),
            ("absent", ColumnType::Bool),
        ]
        .into_iter()
        .fold(definition, |table, (name, kind)| table.with_nullable_column(name, kind));
        table(&at("one"), definition, &[]);
        assert_eq!(shown(&["import", "--table", "t", "--input", &fixture("others")], &at("one")), ["5 rows inserted"]);
        let infinite = format!("1{}", "0".repeat(300));
        assert_eq!(
            shown(&["export", "--table", "t"], &at("one")),
            [
                "id,small,time,day,price,name,raw,ratio,yes,absent".to_owned(),
                r"0,-1,1970-01-01T00:00:00Z,1970-01-01,1.500,a,00ff,0.1,true,\N".to_owned(),
                r"1,\N,1970-01-01T00:00:00.000001Z,1969-12-31,\N,ä,\N,\N,false,\N".to_owned(),
                r"2,3,\N,\N,-0.250,a,,-0,\N,\N".to_owned(),
                format!(r"3,4,1969-12-31T23:59:59.999999Z,1970-01-04,99999.990,\N,78,{infinite},true,\N"),
                r"4,127,2001-09-09T01:46:40Z,2024-10-04,0.000,,79,5,false,\N".to_owned(),
            ]
        );
        let only = TableDefinition::new("t").with_column("id", ColumnType::U64).with_key([0]);
        table(&at("two"), only, &[]);
        let file = fixture("zstd");
        assert_eq!(
            refused(&["import", "--table", "t", "--input", &file], &at("two")),
            [format!("error: {file}, column `id`: it is compressed with ZSTD, and only SNAPPY, GZIP and LZ4 are read")]
        );
    }
}
