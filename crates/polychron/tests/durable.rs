//! Databases that are opened with a path.
#![cfg(feature = "durability")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polychron::schema::{ForeignKeyDefinition, IndexDefinition};
use polychron::{
    Access, Database, Declare, Durability, Error, Event, OpeningStage, Operations, Procedure, Protocol, ProtocolInfo,
    ProtocolList, ProtocolVisitor, Protocols, Row, Table, Transaction,
};
use polychron_base::clock::{Clock, SystemClock};

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Owner {
    #[key]
    id: u64,
    name: String,
}

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Account {
    #[key]
    id: u64,
    owner: u64,
    balance: i64,
    note: Option<String>,
}

#[derive(Row, Clone, Debug, PartialEq, Eq)]
struct Gone {
    #[key]
    id: u64,
}

fn account(id: u64) -> Account {
    let note = (!id.is_multiple_of(3)).then(|| "note ".repeat(id as usize % 40));
    Account { id, owner: id % 4, balance: id as i64 * 10, note }
}

/// The tables, and what is done with them as one transaction.
struct Change<F>(F, [(Table<Owner>, Table<Account>); 1]);

trait Does: Send {
    fn run<T: Transaction>(&mut self, t: &mut T, owners: &Table<Owner>, accounts: &Table<Account>)
    -> Result<(), Error>;
}

impl<F: Does> Procedure for Change<F> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let [(owners, accounts)] = self.1;
        self.0.run(transaction, &owners, &accounts)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let [(owners, accounts)] = self.1;
        let all: &[u8] = &[];
        declaration.prefix(owners.id(), all, Access::Write);
        declaration.prefix(accounts.id(), all, Access::Write);
    }
}

struct Fill;

impl Does for Fill {
    fn run<T: Transaction>(
        &mut self,
        t: &mut T,
        owners: &Table<Owner>,
        accounts: &Table<Account>,
    ) -> Result<(), Error> {
        (0..5).try_for_each(|id| t.insert(owners, &Owner { id, name: format!("owner {id}") }))?;
        (0..200).try_for_each(|id| t.insert(accounts, &account(id)))
    }
}

/// Updates, deletions, rows that come again, and rows that come and go, of one round.
struct Alter(u64);

impl Does for Alter {
    fn run<T: Transaction>(&mut self, t: &mut T, _: &Table<Owner>, accounts: &Table<Account>) -> Result<(), Error> {
        let round = self.0;
        for id in (0..200).filter(|id| id % 5 == round) {
            t.update(accounts, id, |row| row.set_balance(-row.balance()))?;
        }
        t.delete(accounts, 100 + round)?;
        t.insert(accounts, &Account { note: Some(format!("round {round}")), ..account(1000 + round) })?;
        t.insert(accounts, &account(2000))?;
        t.delete(accounts, 2000)?;
        t.delete(accounts, 50)?;
        t.insert(accounts, &Account { balance: round as i64, ..account(50) })
    }
}

#[derive(Default)]
struct Look {
    owners: Vec<Owner>,
    accounts: Vec<Account>,
    by_owner: Vec<u64>,
    index: Option<polychron::Index<Account, u64>>,
}

impl Does for &mut Look {
    fn run<T: Transaction>(
        &mut self,
        t: &mut T,
        owners: &Table<Owner>,
        accounts: &Table<Account>,
    ) -> Result<(), Error> {
        self.owners = t.scan(owners, ..).rows()?;
        self.accounts = t.scan(accounts, ..).rows()?;
        if let Some(index) = self.index {
            self.by_owner = t.scan_by(accounts, index, 3).map(|row| row.id()).collect()?;
        }
        Ok(())
    }
}

/// Breaks a rule that the tables have.
struct Break(u8);

impl Does for Break {
    fn run<T: Transaction>(
        &mut self,
        t: &mut T,
        owners: &Table<Owner>,
        accounts: &Table<Account>,
    ) -> Result<(), Error> {
        match self.0 {
            0 => t.insert(accounts, &Account { owner: 99, ..account(3000) }),
            1 => t.delete(owners, 3).map(drop),
            _ => t.insert(owners, &Owner { id: 77, name: "owner 2".into() }),
        }
    }
}

/// The rows that a database has after these many rounds.
fn expected(rounds: u64) -> Vec<Account> {
    let mut rows: std::collections::BTreeMap<u64, Account> = (0..200).map(|id| (id, account(id))).collect();
    for round in 0..rounds {
        rows.iter_mut().filter(|(id, _)| **id < 200 && **id % 5 == round).for_each(|(_, row)| row.balance *= -1);
        rows.remove(&(100 + round));
        rows.insert(1000 + round, Account { note: Some(format!("round {round}")), ..account(1000 + round) });
        rows.insert(50, Account { balance: round as i64, ..account(50) });
    }
    rows.into_values().collect()
}

fn open<P: Protocol>(path: &Path, info: &ProtocolInfo) -> Result<Database<P>, Error> {
    let builder = Database::builder().small().with::<P>();
    info.options.iter().fold(builder, |builder, (name, value)| builder.protocol_option(name, value)).open(path)
}

fn tables<P: Protocol>(database: &Database<P>) -> [(Table<Owner>, Table<Account>); 1] {
    [(database.table().unwrap().unwrap(), database.table().unwrap().unwrap())]
}

/// Compares what is there, and tries the rules of the tables.
fn check<P: Protocol>(database: &Database<P>, rounds: u64, what: &str) {
    let tables = tables(database);
    let accounts = tables[0].1;
    let index = database.index::<Account, u64>(&accounts, "by_owner").unwrap();
    let mut look = Look { index, ..Look::default() };
    database.execute(&mut Change(&mut look, tables)).unwrap();
    let expected = expected(rounds);
    assert_eq!(look.accounts, expected, "{what}");
    assert_eq!(look.owners.len(), 5, "{what}");
    let of_three: Vec<u64> = expected.iter().filter(|row| row.owner == 3).map(|row| row.id).collect();
    look.by_owner.sort_unstable();
    assert_eq!(look.by_owner, of_three, "{what}");
    for broken in 0..3 {
        let refused = database.execute(&mut Change(Break(broken), tables)).unwrap_err();
        let is_right = match broken {
            0 => matches!(refused, Error::NoParent(_)),
            1 => matches!(refused, Error::HasChildren(_)),
            _ => matches!(refused, Error::Duplicate(_)),
        };
        assert!(is_right, "{what}: {refused}");
    }
    assert!(database.table::<Gone>().unwrap().is_none(), "{what}");
}

/// Makes the tables, with holes in the ids of tables and indexes.
fn make<P: Protocol>(database: &Database<P>) {
    let gone = database.create_table::<Gone>().unwrap();
    let owners = Owner::definition().with_index(IndexDefinition::new("by_name", [1]).with_unique(true));
    database.create_table_with(owners).unwrap();
    database.drop_table(gone.id()).unwrap();
    let accounts = Account::definition()
        .with_index(IndexDefinition::new("by_balance", [2]))
        .with_index(IndexDefinition::new("by_owner", [1]))
        .with_foreign_key(ForeignKeyDefinition::new([1], "owner"));
    let accounts = database.create_table_with(accounts).unwrap();
    let by_balance = database.find_index(accounts, "by_balance").unwrap().unwrap();
    database.drop_index(accounts, by_balance).unwrap();
}

/// What is done with a database of a protocol: it is opened, has the rows after some rounds, gets another round, and is closed or dropped.
struct Round<'p>(&'p Path, u64);

impl ProtocolVisitor for Round<'_> {
    type Output = ();

    fn visit<P: Protocol>(self, info: &ProtocolInfo) {
        let Self(path, round) = self;
        let what = format!("{}, round {round}", info.name);
        let database = open::<P>(path, info).unwrap_or_else(|error| panic!("{what}: {error}"));
        if round == 0 {
            make(&database);
            database.execute(&mut Change(Fill, tables(&database))).unwrap();
        }
        check(&database, round, &what);
        database.execute(&mut Change(Alter(round), tables(&database))).unwrap();
        let accounts = tables(&database)[0].1.id();
        let name = format!("made in round {round}");
        database.create_index_with(accounts, IndexDefinition::new(&*name, [2])).unwrap();
        if round.is_multiple_of(2) {
            database.drop_index(accounts, database.find_index(accounts, &name).unwrap().unwrap()).unwrap();
        }
        check(&database, round + 1, &what);
        if round == 1 || round == 2 {
            database.checkpoint().unwrap();
        }
        if round.is_multiple_of(2) { database.close().unwrap() } else { drop(database) }
    }
}

/// Each protocol reads what each has written: of two openings that follow each other, each pair comes somewhere.
#[test]
fn every_protocol_reads_what_any_wrote() {
    let names: Vec<_> = Protocols::all().iter().map(|protocol| protocol.name).collect();
    let mut pairs = BTreeSet::new();
    for (first, apart) in (0..names.len()).flat_map(|first| (0..names.len()).map(move |apart| (first, apart))) {
        if pairs.contains(&(names[first], names[(first + apart) % names.len()])) {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bank");
        let name = |round: usize| names[(first + round * apart) % names.len()];
        Protocols::visit(name(0), Round(&path, 0)).unwrap();
        for round in 1.. {
            Protocols::visit(name(round), Round(&path, round as u64)).unwrap();
            pairs.insert((name(round - 1), name(round)));
            if name(round) == name(0) {
                break;
            }
        }
    }
    assert_eq!(pairs.len(), names.len() * names.len());
}

/// All files of a directory but its lock.
fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                paths.push(path);
            } else if !path.ends_with("LOCK") {
                found.push((path.display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn small() -> polychron::Builder {
    Database::builder().small()
}

#[test]
fn what_is_not_a_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let refused = |name: &str| {
        let before = contents(directory.path());
        let error = small().open(at(name)).unwrap_err();
        assert!(error.to_string().contains(&at(name).display().to_string()), "{error}");
        assert!(contents(directory.path()) == before, "{name}: {error}");
        error
    };
    assert!(matches!(small().open_existing(at("none")), Err(Error::NoDatabase(_))));
    assert!(!at("none").exists());
    assert!(matches!(refused("no/parent"), Error::Inaccessible(_)));
    fs::write(at("file"), "text").unwrap();
    assert!(matches!(refused("file"), Error::Inaccessible(_)));
    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/log"), "text").unwrap();
    assert!(matches!(refused("other"), Error::NoDatabase(_)));
    for name in ["holiday photo.jpg", ".git", "\u{fc}bersicht", "a~", &"long".repeat(50)] {
        fs::create_dir(at("foreign")).unwrap();
        fs::write(at("foreign").join(name), "text").unwrap();
        let error = refused("foreign");
        assert!(matches!(&error, Error::NoDatabase(_)) && error.to_string().contains(name), "{error}");
        fs::remove_dir_all(at("foreign")).unwrap();
    }
    fs::create_dir_all(at("mounted/lost+found")).unwrap();
    fs::write(at("mounted/.DS_Store"), "").unwrap();
    small().open(at("mounted")).unwrap().close().unwrap();
    fs::create_dir(at("empty")).unwrap();
    assert!(matches!(small().open_existing(at("empty")), Err(Error::NoDatabase(_))));
    assert!(contents(&at("empty")).is_empty());
    small().create(at("empty")).unwrap().close().unwrap();
    assert!(matches!(small().create(at("empty")), Err(Error::DatabaseExists(_))));
    small().open_existing(at("empty")).unwrap();
}

/// What is wrong with a path is said in one line, with the path.
#[test]
fn paths_that_cannot_be_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let long = "a".repeat(300);
    fs::write(at("file"), "text").unwrap();
    std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
    let open = |path: &Path, reason: &str| {
        let opened = [small().open(path), small().create(path), small().open_existing(path)];
        for error in opened.map(|opened| opened.unwrap_err()) {
            let text = error.to_string();
            let expected = format!("the database at {} cannot be used: {reason}", path.display());
            assert_eq!(text.replace("\\0", "\0").replace("\\u{0}", "\0"), expected);
        }
    };
    open(Path::new(""), "the path is empty");
    open(&at("a\0b"), "the path has a zero byte");
    open(&at(&long), "a name in the path is too long, or is none that the file system takes");
    open(&at("file"), "it is not a directory");
    open(&at("file/bank"), "it is not a directory");
    open(&at("loop"), "Too many levels of symbolic links (os error 40)");
    let error = small().open(at("none/bank")).unwrap_err();
    assert!(error.to_string().ends_with("cannot be used: the directory that it is to be in does not exist"), "{error}");
}

/// Of an empty database, which has files for a long log only when it has one.
#[test]
fn an_empty_database_takes_little_room() {
    let directory = tempfile::tempdir().unwrap();
    Database::open(directory.path().join("bank")).unwrap().close().unwrap();
    let bytes: usize = contents(directory.path()).iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 8 << 20, "{bytes} bytes");
}

#[test]
fn a_path_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let database = small().open(&path).unwrap();
    let session = database.session().unwrap();
    let Err(Error::InUse(in_use)) = small().open(&path) else { panic!("it is in use") };
    assert_eq!(in_use.process, Some(std::process::id()));
    let other = database.clone();
    database.close().unwrap();
    assert!(matches!(small().open(&path), Err(Error::InUse(_))));
    drop(other);
    assert!(matches!(small().open(&path), Err(Error::InUse(_))), "a session uses it");
    drop(session);
    small().open(&path).unwrap();
}

/// A database with rows, closed.
fn written(path: &Path) {
    let database = small().open(path).unwrap();
    make(&database);
    database.execute(&mut Change(Fill, tables(&database))).unwrap();
    database.close().unwrap();
}

#[test]
fn damaged_files_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("bank"), directory.path().join("other"));
    let log = |path: &Path| {
        let mut logs: Vec<_> = fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
        logs.sort();
        logs.remove(0)
    };
    type Harm<'h> = (&'static str, &'h dyn Fn());
    let truncate = |path: &Path, bytes| fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    let overwrite = |path: &Path, offset: usize, with: &[u8]| {
        let mut bytes = fs::read(path).unwrap();
        bytes[offset..offset + with.len()].copy_from_slice(with);
        fs::write(path, bytes).unwrap();
    };
    let both = |change: &dyn Fn(&Path)| ["manifest.0", "manifest.1"].iter().for_each(|name| change(&path.join(name)));
    let harms: [Harm<'_>; 8] = [
        ("no log", &|| fs::remove_dir_all(path.join("log")).unwrap()),
        ("an empty log", &|| truncate(&log(&path), 0)),
        ("damaged logs", &|| overwrite(&log(&path), 4096 + 300, b"damage")),
        ("a damaged frame", &|| overwrite(&log(&path), 300, b"damage")),
        ("another's log", &|| _ = fs::copy(log(&other), log(&path)).unwrap()),
        ("one manifest", &|| fs::remove_file(path.join("manifest.1")).unwrap()),
        ("no manifest", &|| both(&|path| overwrite(path, 20, b"damage"))),
        ("another's manifests", &|| {
            both(&|path| _ = fs::copy(other.join(path.file_name().unwrap()), path).unwrap());
        }),
    ];
    written(&other);
    for (name, harm) in harms {
        written(&path);
        harm();
        let before = contents(&path);
        let error = small().open(&path).expect_err(name);
        assert!(matches!(error, Error::Corrupt(_)), "{name}: {error:?}");
        assert!(error.to_string().contains(&path.display().to_string()), "{name}: {error}");
        assert!(contents(&path) == before, "{name}: {error}");
        fs::remove_dir_all(&path).unwrap();
    }
    written(&path);
    both(&|path| {
        // The format, and no checksum of it.
        overwrite(path, 8, &[9, 9]);
    });
    let error = small().open(&path).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_) | Error::OtherFormat(_)), "{error:?}");
}

#[test]
fn an_opening_is_reported_and_counts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    written(&path);
    let stages = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&stages);
    let listener = move |event: &Event<'_>| {
        if let Event::Opening { stage, done, of, .. } = event {
            assert!(done <= of, "{event:?}");
            told.lock().unwrap().push((*stage, *done));
        }
    };
    let database = small().on_event(listener).open(&path).unwrap();
    let statistics = database.statistics();
    assert_eq!((statistics.commits, statistics.refusals, statistics.aborts_by_reason().count()), (0, 0, 0));
    let [(owners, accounts)] = tables(&database);
    let rows = database.snapshot(|transaction| Ok::<_, Error>(transaction.len(&owners)? + transaction.len(&accounts)?));
    let told = stages.lock().unwrap();
    assert_eq!(told.first().map(|(stage, _)| *stage), Some(OpeningStage::Log));
    assert_eq!(told.last().copied(), Some((OpeningStage::Rows, rows.unwrap() as u64)));
    database.transact(|_| polychron::Ok(())).unwrap();
    assert_eq!(database.statistics().commits, 1);
}

#[test]
fn a_checkpoint_that_is_gone_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    written(&path);
    let database = small().open(&path).unwrap();
    database.checkpoint().unwrap();
    database.close().unwrap();
    fs::remove_dir_all(path.join("checkpoint")).unwrap();
    let error = small().open(&path).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}

#[cfg(unix)]
#[test]
fn without_rights_nothing_is_opened() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).unwrap();
    // Who may do everything is refused nothing.
    if fs::write(path.join("probe"), "").is_err() {
        let error = small().open(&path).unwrap_err();
        assert!(matches!(error, Error::Inaccessible(_)), "{error:?}");
        assert!(contents(&path).is_empty());
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

mod after {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "owner")]
    pub(super) struct Owner {
        #[key]
        pub(super) id: u64,
        #[column(was = "name")]
        pub(super) title: String,
        #[column(default = 7)]
        pub(super) rank: i64,
    }
}

mod without {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "owner")]
    pub(super) struct Owner {
        #[key]
        pub(super) id: u64,
    }
}

mod retyped {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "owner")]
    pub(super) struct Owner {
        #[key]
        pub(super) id: u64,
        pub(super) name: i64,
    }
}

mod rekeyed {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "owner")]
    pub(super) struct Owner {
        pub(super) id: u64,
        #[key]
        pub(super) name: String,
    }
}

/// A program with other rows is told which column of which table is another one, and nothing is changed.
#[test]
fn rows_that_cannot_be_those_are_named() {
    fn texts<R: Row>(path: &Path) -> [String; 2] {
        let database = small().open(path).unwrap();
        let texts = [database.table::<R>().unwrap_err(), database.create_or_open_table::<R>().unwrap_err()];
        database.close().unwrap();
        texts.map(|error| error.to_string())
    }

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    written(&path);
    let told = [texts::<without::Owner>(&path), texts::<retyped::Owner>(&path), texts::<rekeyed::Owner>(&path)];
    for [present, wanted] in &told {
        for text in [present, wanted] {
            assert!(text.contains("owner") && text.contains("name") && !text.contains('\n'), "{text}");
        }
    }
    let [without, retyped, rekeyed] = told.map(|[_, wanted]| wanted);
    assert!(without.contains("owner.name") && retyped.contains("owner.name"), "{without}; {retyped}");
    assert!(retyped.contains("i64") && rekeyed.contains("key") && rekeyed.contains("id"), "{retyped}; {rekeyed}");
    let database = small().open(&path).unwrap();
    check(&database, 0, "it is as it was");
}

#[test]
fn rows_evolve_after_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let database = small().open(&path).unwrap();
    let owners = database.create_or_open_table::<Owner>().unwrap();
    database.transact(|t| (0..600).try_for_each(|id| t.insert(&owners, &Owner { id, name: id.to_string() }))).unwrap();
    database.close().unwrap();
    let database = small().open(&path).unwrap();
    assert!(database.table::<after::Owner>().is_err(), "they have other columns");
    let owners = database.create_or_open_table::<after::Owner>().unwrap();
    database.transact(|t| t.update(&owners, 5, |row| row.set_rank(1)).map(drop)).unwrap();
    drop(database);
    for _ in 0..2 {
        let database = small().open(&path).unwrap();
        let owners = database.create_or_open_table::<after::Owner>().unwrap();
        let rows: Vec<after::Owner> = database.transact(|t| t.scan(&owners, ..).rows()).unwrap();
        assert_eq!(rows.len(), 600);
        assert!(rows.iter().all(|row| row.title == row.id.to_string() && row.rank == if row.id == 5 { 1 } else { 7 }));
    }
}

#[test]
fn submissions_under_way_are_there_when_the_database_was_dropped() {
    struct Insert(Table<Owner>, u64);

    impl Procedure for Insert {
        type Output = ();
        type Error = Error;

        fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
            t.insert(&self.0, &Owner { id: self.1, name: String::new() })
        }
    }

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let database = small().open(&path).unwrap();
    let owners = database.create_table::<Owner>().unwrap();
    let submitted: Vec<_> = (0..300).map(|id| database.submit(Insert(owners, id))).collect();
    drop(database);
    let outcomes: Vec<_> = submitted.into_iter().map(polychron::Submission::wait).collect();
    assert!(outcomes.iter().all(Result::is_ok));
    let database = small().open(&path).unwrap();
    let owners = database.table::<Owner>().unwrap().unwrap();
    assert_eq!(database.transact(|t| t.len(&owners)).unwrap(), 300);
}

/// Answers of a group wait for its time; changes of tables, and the end of the database, do not.
#[test]
fn a_group_holds_up_no_definitions_and_no_end() {
    const MINUTE: Duration = Duration::from_secs(60);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let too_long = small().durability(Durability::Group(Duration::MAX)).open(&path);
    assert!(matches!(too_long, Err(Error::Options(_))), "{too_long:?}");
    assert!(contents(&path).is_empty());
    let clock = SystemClock::new();
    let database = small().durability(Durability::Group(MINUTE)).open(&path).unwrap();
    let owners = database.create_table::<Owner>().unwrap();
    let at_once = database.with(Durability::OnCheckpoint);
    at_once.transact(|transaction| transaction.insert(&owners, &Owner { id: 1, name: "one".into() })).unwrap();
    database.create_index_with(owners.id(), IndexDefinition::new("by_name", [1])).unwrap();
    at_once.transact(|transaction| transaction.insert(&owners, &Owner { id: 2, name: "two".into() })).unwrap();
    database.checkpoint().unwrap();
    drop(at_once);
    database.close().unwrap();
    assert!(clock.now_ns() < MINUTE.as_nanos() as u64, "something has waited for the group");
    let database = small().open(&path).unwrap();
    let owners = database.table::<Owner>().unwrap().unwrap();
    assert_eq!(database.transact(|transaction| transaction.len(&owners)).unwrap(), 2);
}

/// Few rows are written so often that their log is many times as long as what a small file system holds, which is to be at the path that
/// `POLYCHRON_SMALL_DISK` has; then others fill it, rows are deleted, and the database ends.
#[test]
#[ignore = "it wants a file system of its own"]
fn a_small_file_system_is_enough() {
    let small_disk = std::env::var_os("POLYCHRON_SMALL_DISK").expect("it has the path of a small file system");
    let path = Path::new(&small_disk).join("bank");
    let database = small().open(&path).unwrap();
    let owners = database.create_or_open_table::<Owner>().unwrap();
    let name = "name ".repeat(2000);
    let put = |id: u64| database.transact(|t| t.upsert(&owners, &Owner { id: id % 20, name: name.clone() }));
    let refused = (0..20_000).filter(|id| put(*id).is_err()).count();
    println!("{refused} of 20000 were refused");
    let filler = Path::new(&small_disk).join("filler");
    let mut bytes = 64 << 20;
    let mut filled = Vec::new();
    while bytes >= 4096 {
        match fs::write(&filler, [&filled[..], &vec![1; bytes]].concat()) {
            Ok(()) => filled.extend(vec![1; bytes]),
            Err(_) => bytes /= 2,
        }
    }
    println!("others have filled {} bytes", filled.len());
    let refused = (0..2_000).filter(|id| put(*id).is_err()).count();
    println!("{refused} of 2000 were refused on the full disk");
    (0..10).for_each(|id| assert!(database.transact(|t| t.delete(&owners, id)).unwrap()));
    println!("a checkpoint: {:?}", database.checkpoint());
    fs::remove_file(&filler).unwrap();
    let refused =
        (0..100_000).take_while(|_| put(1).is_err()).inspect(|_| std::thread::sleep(Duration::from_millis(1))).count();
    println!("room was noticed after {refused} attempts");
    database.close().unwrap();
}
