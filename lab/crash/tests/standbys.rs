//! Standbys and replicas from outside: processes that are killed, stopped, without room or without file descriptors, directories that are not what they were, and
//! whoever else connects. What was answered is where it was promised to be, and nothing hangs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use polychron::AnyProtocol as Any;
use polychron::{Builder, Database, Error, Operations, Table};
use polychron_crash::Item;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a process is told by what it is to do, and with what.
const CHILD: &str = "POLYCHRON_STANDBYS_CHILD";

/// For how long something may take before it counts as hanging.
const LONGEST: Duration = Duration::from_secs(100);

fn item(id: u64, number: u64, bytes: usize) -> Item {
    Item { id, number, text: char::from(b'a' + (number % 26) as u8).to_string().repeat(bytes) }
}

fn builder(protocol: &str) -> Builder<Any> {
    Database::builder().small().protocol(protocol)
}

fn serving(replicas: usize, timeout: Duration) -> Builder<Any> {
    builder("cicada").serve_standbys("127.0.0.1:0").replicas(replicas).replica_timeout(timeout)
}

fn address(database: &Database<Any>) -> String {
    database.standby_address().unwrap().to_string()
}

fn items(database: &Database<Any>) -> Table<Item> {
    database.create_or_open_table::<Item>().unwrap()
}

fn put(database: &Database<Any>, items: &Table<Item>, row: &Item) -> Result<(), Error> {
    database.transact(|t| t.upsert(items, row))
}

/// What a database shows of a row.
fn number(database: &Database<Any>, id: u64) -> Option<u64> {
    let items = database.table::<Item>().ok()??;
    database.snapshot(|t| t.get_owned(&items, id)).ok()?.map(|row| row.number)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..LONGEST.as_millis() / 10 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come to be: {what}");
}

/// Fails if something takes too long.
fn in_time<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = channel();
    std::thread::spawn(move || send.send(act()));
    receive.recv_timeout(LONGEST).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// A process of the system that does something with a database, until it is told to end.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// `limits` are commands of a shell.
    fn start(limits: &str, arguments: &[&str]) -> Self {
        let script = format!("{limits} exec \"$0\" child --exact --ignored --nocapture --test-threads=1");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(std::env::current_exe().unwrap());
        command.env(CHILD, arguments.join("\n")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let told = line.split_once("told ").map(|(_, told)| told.to_owned());
                if told.is_some_and(|told| send.send(told).is_err()) {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines }
    }

    fn standby(limits: &str, protocol: &str, path: &Path, primary: &str) -> Self {
        let process = Self::start(limits, &["standby", protocol, path.to_str().unwrap(), primary]);
        process.expect("open");
        process
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(LONGEST).expect("the process says something")
    }

    fn expect(&self, wanted: &str) {
        let line = self.line();
        assert!(line.starts_with(wanted), "{line:?} instead of {wanted:?}");
    }

    /// Has it do what this line says.
    fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Stops it, and waits until none of its threads runs any longer.
    fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        wait_until("it is stopped", || {
            let stat =
                |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
            tasks.map(stat).all(|status| status.contains("State:\tT"))
        });
    }

    fn end(mut self) {
        drop(self.stdin.take());
        for _ in 0..LONGEST.as_millis() / 10 {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the process does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process of its own does.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let Some(given) = std::env::var(CHILD).ok() else { return };
    let given: Vec<&str> = given.lines().collect();
    let opened = match given[..] {
        ["standby", protocol, path, primary] => builder(protocol).open_standby(path, primary),
        ["primary", protocol, path, replicas] => {
            let replicas = replicas.parse().unwrap();
            let waiting = builder(protocol).replicas(replicas).replica_timeout(Duration::from_millis(300));
            waiting.serve_standbys("127.0.0.1:0").open(path)
        }
        _ => panic!("{given:?}"),
    };
    let database = match opened {
        Ok(database) => database,
        Err(error) => return println!("\ntold refused: {error:?}"),
    };
    match database.standby_address() {
        Some(address) => println!("\ntold open {address}"),
        None => println!("\ntold open"),
    }
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["show", id] => println!("\ntold {:?}", number(&database, id.parse().unwrap())),
            ["status"] => println!("\ntold {:?}", database.standby().unwrap()),
            ["put", id, number, bytes] => {
                let row = item(id.parse().unwrap(), number.parse().unwrap(), bytes.parse().unwrap());
                println!("\ntold {:?}", put(&database, &items(&database), &row));
            }
            _ => panic!("{line}"),
        }
    }
    let closed = database.close();
    println!("\ntold closed {closed:?}");
}

/// A directory, which goes at the end, and in it the places of a primary and two standbys.
fn places() -> (tempfile::TempDir, PathBuf, [PathBuf; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let [primary, first, second] = ["primary", "first", "second"].map(|name| directory.path().join(name));
    (directory, primary, [first, second])
}

/// A standby is killed again and again while clients write. At the end the primary is gone, and what it answered is there.
#[test]
fn a_killed_standby_has_what_was_answered() {
    let (_directory, path, [copy, _]) = places();
    let database = serving(1, LONGEST).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let (is_over, answered) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    std::thread::scope(|scope| {
        for (id, answered) in (0..).zip(&answered) {
            let (database, rows, is_over) = (&database, &rows, &is_over);
            scope.spawn(move || {
                for number in 1.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    put(database, rows, &item(id, number, number as usize % 3000)).unwrap();
                    answered.store(number, Ordering::Relaxed);
                }
            });
        }
        for round in 0..8 {
            let protocol = ["cicada", "hyper", "maflingo", "locking", "serial", "lazy-occ"][round % 6];
            let standby = Process::standby("", protocol, &copy, &at);
            let before = answered[0].load(Ordering::Relaxed);
            wait_until("answers", || answered[0].load(Ordering::Relaxed) > before + 20);
            standby.signal("KILL");
        }
        let last = Process::standby("", "cicada", &copy, &at);
        is_over.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        drop(last);
        // Those that still wait are answered by this one.
        let again = Process::standby("", "cicada", &copy, &at);
        wait_until("all", || {
            let status = database.replication().unwrap();
            status.replicated == status.durable
        });
        drop(again);
    });
    std::fs::remove_dir_all(&path).unwrap();
    drop(database);
    let promoted = builder("hyper").open(&copy).unwrap();
    for (id, answered) in (0..).zip(&answered) {
        assert!(number(&promoted, id) >= Some(answered.load(Ordering::Relaxed)), "{id}");
    }
}

/// The standby's files may grow no longer: it acknowledges nothing that it does not have, and goes on where it may.
#[test]
fn a_standby_without_room_acknowledges_nothing() {
    let (_directory, path, [copy, _]) = places();
    let database = serving(1, Duration::from_millis(200)).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let mut standby = Process::standby("trap '' XFSZ; ulimit -f 3000;", "cicada", &copy, &at);
    // On a busy machine answers are late, too, while it has room.
    let mut is_refused = |number| match put(&database, &rows, &item(number, number, 20_000)) {
        Ok(()) => false,
        Err(Error::NotReplicated(_)) => standby.ask("status").contains("trouble: Some"),
        Err(error) => panic!("{error}"),
    };
    let refused = (0..400).find(|number| is_refused(*number)).expect("it has no room for all");
    drop(standby);
    let mut standby = Process::standby("", "cicada", &copy, &at);
    wait_until("with room it goes on", || put(&database, &rows, &item(1000, 1000, 0)).is_ok());
    for _ in 0..1000 {
        if standby.ask("show 1000") == "Some(1000)" {
            break;
        }
    }
    assert_eq!(standby.ask(&format!("show {refused}")), format!("Some({refused})"));
    standby.end();
}

/// A small file system of its own, if this process may mount one.
struct Mounted(PathBuf);

impl Mounted {
    fn new(path: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        let size = format!("size={size}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        mount.is_ok_and(|done| done.status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The standby's disk is full, and then it is not.
#[test]
fn a_standby_on_a_full_disk_goes_on_when_there_is_room() {
    let (directory, path, _) = places();
    let Some(disk) = Mounted::new(&directory.path().join("disk"), "24m") else {
        eprintln!("left out: this process may not mount a file system");
        return;
    };
    let ballast = disk.0.join("ballast");
    let copy = disk.0.join("copy");
    let database = serving(1, Duration::from_millis(200)).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let standby = builder("cicada").open_standby(&copy, &at).unwrap();
    wait_until("it follows", || put(&database, &rows, &item(0, 0, 0)).is_ok());
    let mut fill = std::fs::File::create(&ballast).unwrap();
    while fill.write_all(&[7; 4096]).is_ok() {}
    drop(fill);
    // On a busy machine answers are late, too, while it has room.
    let is_refused = |number: u64| match put(&database, &rows, &item(number % 4, number, 100_000)) {
        Ok(()) => false,
        Err(Error::NotReplicated(_)) => standby.standby().unwrap().trouble.is_some(),
        Err(error) => panic!("{error}"),
    };
    assert!((1..400).any(is_refused), "it has no room for all");
    let status = standby.standby().unwrap();
    assert!(status.ended.is_none(), "{status:?}");
    std::fs::remove_file(&ballast).unwrap();
    wait_until("it goes on by itself", || put(&database, &rows, &item(9, 9, 0)).is_ok());
    wait_until("it shows it", || number(&standby, 9) == Some(9));
    standby.close().unwrap();
}

/// A standby that is stopped, and whose connection stays, is given up: it counts no more, and no log is kept for it. It learns that, and begins anew.
#[test]
fn a_stopped_standby_loses_its_place() {
    let (_directory, path, [copy, _]) = places();
    let database = serving(0, LONGEST).standby_timeout(Duration::from_secs(2)).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let count = || database.replication().unwrap().acknowledged.len();
    put(&database, &rows, &item(0, 0, 0)).unwrap();
    let mut standby = Process::standby("", "cicada", &copy, &at);
    wait_until("it follows", || count() == 1);
    standby.stop();
    wait_until("it is given up", || count() == 0);
    for number in 0..600 {
        put(&database, &rows, &item(number % 50, number, 20_000)).unwrap();
        if number % 100 == 99 {
            database.checkpoint().unwrap();
        }
    }
    standby.signal("CONT");
    for _ in 0..LONGEST.as_millis() / 10 {
        if !standby.ask("status").contains("ended: None") {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = standby.ask("status");
    assert!(status.contains("is gone: it begins anew"), "{status}");
    standby.end();
    let again = builder("hyper").open_standby(&copy, &at).unwrap();
    wait_until("it begins anew", || number(&again, 49) == Some(599));
    again.close().unwrap();
}

/// A standby that is stopped holds up neither the primary's flushes nor its end, and goes on.
#[test]
fn a_stopped_standby_holds_up_answers_alone() {
    let (_directory, path, [copy, _]) = places();
    // The log is kept for it meanwhile.
    let database = serving(1, Duration::from_millis(200)).standby_timeout(LONGEST).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let mut standby = Process::standby("", "cicada", &copy, &at);
    wait_until("it follows", || put(&database, &rows, &item(0, 0, 0)).is_ok());
    standby.stop();
    let refused = put(&database, &rows, &item(1, 1, 0));
    assert!(matches!(refused, Err(Error::NotReplicated(_))), "{refused:?}");
    let eventually = database.with(polychron::Durability::Eventual(Duration::from_millis(1)));
    for number in 0..3000 {
        put(&eventually, &rows, &item(2 + number % 50, number, 20_000)).unwrap();
        if number % 500 == 0 {
            database.checkpoint().unwrap();
        }
    }
    drop(eventually);
    standby.signal("CONT");
    wait_until("it goes on", || put(&database, &rows, &item(1, 2, 0)).is_ok());
    for _ in 0..1000 {
        if standby.ask("show 1") == "Some(2)" {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(standby.ask("show 1"), "Some(2)", "{}", standby.ask("status"));
    standby.stop();
    let _ = put(&database, &rows, &item(3, 3, 900_000));
    in_time("the primary ends", move || database.close()).unwrap();
    standby.signal("CONT");
    standby.end();
}

/// The primary is stopped: a standby says that it is not connected, and follows when it goes on.
#[test]
fn a_stopped_primary_is_noticed() {
    let (_directory, path, [copy, _]) = places();
    let mut primary = Process::start("", &["primary", "cicada", path.to_str().unwrap(), "1"]);
    let at = primary.line().strip_prefix("open ").unwrap().to_owned();
    primary.ask("put 0 1 10");
    let standby = builder("cicada").open_standby(&copy, &at).unwrap();
    wait_until("it follows", || number(&standby, 0) == Some(1));
    primary.stop();
    wait_until("it is noticed", || !standby.standby().unwrap().is_connected);
    primary.signal("CONT");
    primary.ask("put 0 2 10");
    wait_until("it follows again", || number(&standby, 0) == Some(2));
    primary.end();
    standby.close().unwrap();
}

/// Any number of replicas, and any time.
#[test]
fn numbers_and_times_may_be_any() {
    for (replicas, timeout) in [(16, Duration::from_millis(10)), (3, Duration::ZERO), (2, Duration::from_nanos(1))] {
        let (_directory, path, [copy, _]) = places();
        let database = serving(replicas, timeout).open(&path).unwrap();
        let rows = items(&database);
        let standby = builder("cicada").open_standby(&copy, &address(&database)).unwrap();
        wait_until("it follows", || {
            let refused = put(&database, &rows, &item(1, 1, 1));
            assert!(matches!(&refused, Err(Error::NotReplicated(few)) if few.replicas == replicas), "{refused:?}");
            number(&standby, 1) == Some(1)
        });
        let status = database.replication().unwrap();
        assert_eq!((status.replicas, status.replicated), (replicas, 0), "{status:?}");
        in_time("it is closed", move || database.close()).unwrap();
    }
    for replicas in [17, usize::MAX] {
        let (_directory, path, _) = places();
        let refused = serving(replicas, LONGEST).open(&path);
        assert!(matches!(refused, Err(Error::Options(_))) && !path.exists());
    }
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_nanos(u64::MAX)] {
        let (_directory, path, [copy, _]) = places();
        let database = serving(1, timeout).standby_timeout(timeout).open(&path).unwrap();
        let rows = items(&database);
        let standby = builder("cicada").standby_timeout(timeout).open_standby(&copy, &address(&database)).unwrap();
        let database = in_time("it is answered", move || {
            (0..20).for_each(|number| put(&database, &rows, &item(1, number, 1)).unwrap());
            database
        });
        in_time("it is closed", move || database.close()).unwrap();
        drop(standby);
    }
}

/// A standby of one database does not count for another one, even at the same address, nor does its directory change.
#[test]
fn a_standby_of_another_database_does_not_count() {
    let (_directory, path, [copy, other]) = places();
    let database = serving(1, Duration::from_millis(100)).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let standby = builder("cicada").open_standby(&copy, &at).unwrap();
    wait_until("it follows", || put(&database, &rows, &item(1, 1, 1)).is_ok());
    wait_until("it shows", || number(&standby, 1) == Some(1));
    drop(database);
    let another = builder("cicada").serve_standbys(&at).replicas(1).replica_timeout(Duration::from_millis(100));
    let another = another.open(&other).unwrap();
    let rows = items(&another);
    wait_until("it says so", || standby.standby().unwrap().trouble.is_some_and(|trouble| trouble.contains("database")));
    for number in 0..10 {
        let refused = put(&another, &rows, &item(1, 100 + number, 1));
        assert!(matches!(&refused, Err(Error::NotReplicated(few)) if few.acknowledged == 0), "{refused:?}");
    }
    assert!(another.replication().unwrap().acknowledged.is_empty());
    assert_eq!(number(&standby, 1), Some(1));
    drop(standby);
    let standby = builder("cicada").open_standby(&copy, &at).unwrap();
    wait_until("it says so", || standby.standby().unwrap().trouble.is_some_and(|trouble| trouble.contains("database")));
    assert_eq!(number(&standby, 1), Some(1));
    standby.close().unwrap();
    drop(another);
    let database = builder("cicada").serve_standbys(&at).replicas(1).open(&path).unwrap();
    let standby = builder("cicada").open_standby(&copy, &at).unwrap();
    put(&database, &items(&database), &item(1, 2, 1)).unwrap();
    drop(standby);
}

/// One directory has one standby, and copies of one count as one.
#[test]
fn a_directory_has_one_standby() {
    let (_directory, path, [copy, second]) = places();
    let database = serving(2, Duration::from_millis(150)).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let standby = builder("cicada").open_standby(&copy, &at).unwrap();
    let refused = builder("hyper").open_standby(&copy, &at);
    assert!(matches!(refused, Err(Error::InUse(_))), "{:?}", refused.err());
    assert!(matches!(builder("hyper").open(&copy), Err(Error::InUse(_))));
    let process = Process::start("", &["standby", "hyper", copy.to_str().unwrap(), &at]);
    process.expect("refused: InUse");
    wait_until("it follows", || database.replication().unwrap().acknowledged.len() == 1);
    standby.close().unwrap();
    let copied = Command::new("cp").arg("-r").args([&copy, &second]).status().unwrap();
    assert!(copied.success());
    let both = [&copy, &second].map(|path| builder("cicada").open_standby(path, &at).unwrap());
    for number in 0..20 {
        let refused = put(&database, &rows, &item(1, number, 1));
        assert!(matches!(&refused, Err(Error::NotReplicated(few)) if few.acknowledged < 2), "{refused:?}");
    }
    drop(both);
}

/// The primary is closed, or dropped, with submissions under way and clients that wait, with standbys or without.
#[test]
fn a_primary_is_closed_with_answers_under_way() {
    for (has_standby, is_closed) in [(false, true), (false, false), (true, true), (true, false)] {
        let (_directory, path, [copy, _]) = places();
        let database = serving(1, Duration::from_secs(2)).open(&path).unwrap();
        let (at, rows) = (address(&database), items(&database));
        let standby = has_standby.then(|| builder("cicada").open_standby(&copy, &at).unwrap());
        let submit = |id: u64| {
            database.submit_closure(move |t: &mut polychron::TransactionOf<'_, Any>| t.upsert(&rows, &item(id, id, 10)))
        };
        let submitted: Vec<_> = (0..200).map(submit).collect();
        let clone = database.clone();
        let waits = std::thread::spawn(move || put(&clone, &rows, &item(1000, 1000, 1)));
        in_time("it is closed", move || if is_closed { drop(database.close()) } else { drop(database) });
        let answers = in_time("all are answered", move || {
            let answers: Vec<_> = submitted.into_iter().map(|it| it.wait()).collect();
            (answers, waits.join().unwrap())
        });
        for answer in answers.0.iter().chain([&answers.1]) {
            match answer {
                Ok(()) => assert!(has_standby),
                Err(Error::NotReplicated(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        if let Some(standby) = standby {
            standby.close().unwrap();
            let promoted = builder("serial").open(&copy).unwrap();
            for (id, answer) in (0..).zip(&answers.0) {
                assert!(answer.is_err() || number(&promoted, id) == Some(id), "{id}");
            }
        }
    }
}

/// Two standbys are promoted, one behind the other, and the primaries before come back: they get no acknowledgement.
#[test]
fn primaries_that_were_replaced_are_fenced() {
    let (directory, path, [first, second]) = places();
    let third = directory.path().join("third");
    let database = serving(1, LONGEST).open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let one = builder("cicada").open_standby(&first, &at).unwrap();
    let two = builder("hyper").open_standby(&second, &at).unwrap();
    let three = builder("maflingo").open_standby(&third, &at).unwrap();
    for number in 0..20 {
        put(&database, &rows, &item(1, number, 1)).unwrap();
    }
    wait_until("all have it", || [&one, &two, &three].iter().all(|it| number(it, 1) == Some(19)));
    drop(database);
    let serve = |path: &Path| {
        let serves = builder("cicada").serve_standbys(&at).replicas(1).replica_timeout(Duration::from_millis(300));
        serves.open(path).unwrap()
    };
    let check = |database: &Database<Any>, value| {
        let rows = items(database);
        wait_until("it has a standby", || put(database, &rows, &item(1, value, 1)).is_ok());
    };
    one.close().unwrap();
    let promoted = serve(&first);
    check(&promoted, 30);
    // A standby that has not heard of the new primary follows the old one.
    wait_until("both have heard of it", || number(&two, 1) == Some(30) && number(&three, 1) == Some(30));
    drop(promoted);
    // The one that comes back is the first primary.
    let old = serve(&path);
    for value in 40..45 {
        let refused = put(&old, &items(&old), &item(1, value, 1));
        assert!(matches!(&refused, Err(Error::NotReplicated(_))), "{refused:?}");
    }
    drop(old);
    assert!(number(&two, 1) == Some(30) && number(&three, 1) == Some(30));
    two.close().unwrap();
    let promoted = serve(&second);
    check(&promoted, 50);
    drop(promoted);
    for old in [&path, &first, &path] {
        let old = serve(old);
        for value in 60..63 {
            let refused = put(&old, &items(&old), &item(1, value, 1));
            assert!(matches!(&refused, Err(Error::NotReplicated(_))), "{refused:?}");
        }
        let refused = builder("cicada").open_standby(directory.path().join("first"), &at);
        assert!(refused.is_err());
        drop(old);
    }
    assert_eq!(number(&three, 1), Some(50), "{:?}", three.standby());
    let promoted = serve(&second);
    check(&promoted, 51);
    wait_until("it follows", || number(&three, 1) == Some(51));
}

/// Long rows, a long transaction, and many tables.
#[test]
fn standbys_take_what_primaries_take() {
    let (_directory, path, [copy, second]) = places();
    let wide = |protocol: &str| builder(protocol).memory_limit(1 << 30);
    let opened = wide("cicada").serve_standbys("127.0.0.1:0").replicas(1).replica_timeout(LONGEST);
    let database = opened.open(&path).unwrap();
    let (at, rows) = (address(&database), items(&database));
    let standby = wide("hyper").open_standby(&copy, &at).unwrap();
    let text = |id: u64| item(id, id, (1 << 20) - 100);
    for id in 0..20 {
        put(&database, &rows, &text(id)).unwrap();
    }
    database.transact(|t| (20..50).try_for_each(|id| t.insert(&rows, &text(id)))).unwrap();
    wait_until("it shows them", || number(&standby, 49) == Some(49));
    let there = standby.table::<Item>().unwrap().unwrap();
    for id in [0, 19, 20, 49] {
        assert_eq!(standby.snapshot(|t| t.get_owned(&there, id)).unwrap(), Some(text(id)));
    }
    for number in 0..400 {
        let definition = polychron::schema::TableDefinition::new(format!("table{number}"));
        let definition = definition.with_column("id", polychron::schema::ColumnType::U64).with_key([0]);
        let table = database.create_table_with(definition).unwrap();
        if number % 3 == 0 {
            database.drop_table(table).unwrap();
        }
    }
    put(&database, &rows, &item(1, 77, 1)).unwrap();
    wait_until("it shows it", || number(&standby, 1) == Some(77) && standby.find_table("table398").is_some());
    assert!(standby.find_table("table399").is_none() && standby.find_table("table0").is_none());
    // One that begins with all of it.
    database.checkpoint().unwrap();
    let two = wide("serial").open_standby(&second, &at).unwrap();
    wait_until("it shows it", || number(&two, 1) == Some(77) && two.find_table("table398").is_some());
    drop((standby, two));
    drop(database);
    assert_eq!(number(&wide("maflingo").open(&second).unwrap(), 49), Some(49));
}

/// Strangers keep connections open by the hundred, silent, with the beginning of a message, or with wrong bytes, at a process with few file descriptors.
#[test]
fn strangers_take_no_room_from_the_log_or_standbys() {
    let (_directory, path, [copy, _]) = places();
    let mut primary = Process::start("ulimit -n 100;", &["primary", "cicada", path.to_str().unwrap(), "0"]);
    let at = primary.line().strip_prefix("open ").unwrap().to_owned();
    let mut held = Vec::new();
    for number in 0..600 {
        let Ok(mut stream) = TcpStream::connect(&at) else { break };
        let bytes: &[u8] = [&b""[..], &[40, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n", &[0xFF; 3]][number % 4];
        let _ = stream.write_all(bytes);
        held.push(stream);
    }
    for number in 0..100 {
        assert_eq!(primary.ask(&format!("put {number} {number} 100000")), "Ok(())");
    }
    // More come all the time.
    let (is_over, there) = (AtomicBool::new(false), at.clone());
    let standby = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut streams = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                streams.push(TcpStream::connect(&there));
                streams.drain(..streams.len().saturating_sub(300));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let opened = in_time("a standby comes", move || builder("cicada").open_standby(&copy, &at).unwrap());
        wait_until("it follows", || number(&opened, 99) == Some(99));
        is_over.store(true, Ordering::Relaxed);
        opened
    });
    wait_until("it follows", || number(&standby, 99) == Some(99));
    for stream in &mut held {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "strangers are sent nothing");
    }
    primary.end();
}

/// What a standby connects to says anything, slowly, or nothing at all.
#[test]
fn a_standby_that_finds_a_stranger_ends() {
    let (_directory, path, [copy, fresh]) = places();
    let database = serving(0, LONGEST).open(&path).unwrap();
    let at = address(&database);
    put(&database, &items(&database), &item(1, 1, 1)).unwrap();
    let standby = builder("cicada").open_standby(&copy, &at).unwrap();
    wait_until("it follows", || number(&standby, 1) == Some(1));
    standby.close().unwrap();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = stranger.local_addr().unwrap().to_string();
    let strangers = std::thread::spawn(move || {
        for stream in stranger.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                // One byte at a time, for ever.
                while stream.write_all(&[1]).is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
    });
    // A new one does not wait for ever.
    let its = there.clone();
    let refused = in_time("a new standby ends", move || builder("cicada").open_standby(&fresh, &its).err());
    assert!(matches!(refused, Some(Error::NotFollowing(_))));
    let standby = builder("cicada").open_standby(&copy, &there).unwrap();
    wait_until("it says so", || standby.standby().unwrap().trouble.is_some());
    assert_eq!(number(&standby, 1), Some(1));
    in_time("it ends", move || standby.close()).unwrap();
    drop(strangers);
}

/// Options that are refused leave no directory behind.
#[test]
fn what_is_refused_makes_nothing() {
    let (_directory, path, _) = places();
    let minutes = polychron::Durability::Group(Duration::from_secs(600));
    let refused = [
        builder("cicada").durability(minutes).open(&path).err(),
        builder("cicada").durability(minutes).open_standby(&path, "127.0.0.1:1").err(),
        builder("cicada").replicas(1).open(&path).err(),
        builder("cicada").replicas(1).open_standby(&path, "127.0.0.1:1").err(),
        serving(17, LONGEST).create(&path).err(),
        serving(1, LONGEST).open_standby(&path, "127.0.0.1:1").err(),
        serving(0, LONGEST).standby_timeout(Duration::from_millis(99)).open(&path).err(),
        builder("cicada").standby_timeout(Duration::ZERO).open_standby(&path, "127.0.0.1:1").err(),
    ];
    for error in refused {
        assert!(matches!(error, Some(Error::Options(_))), "{error:?}");
    }
    assert!(!path.exists());
}
