//! Processes whose calls of the system fail: `strace` has a drawn call of a process return an error, once, some times or for ever, while its threads write. What was
//! acknowledged is there when the database is opened again, the error names the file, nothing is synced or written again on a file of which a sync or a write has
//! failed, nothing panics, and nothing hangs.
//!
//! `POLYCHRON_FAILING_RUNS` says how many runs there are, `POLYCHRON_FIRST_SEED` with which seed they begin.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use polychron::{AnyProtocol, Database, Durability, Error, Operations, Table, TransactionOf};
use polychron_base::random::Random;
use polychron_crash::Item;

/// What a process is told by that is to write rows.
const CHILD: &str = "POLYCHRON_FAILING_CHILD";

const THREADS: u64 = 3;

/// How many transactions each thread executes.
const TRANSACTIONS: u64 = 150;

/// How long a process may take.
const LONGEST: Duration = Duration::from_secs(120);

const PROTOCOLS: [&str; 7] = ["cicada", "hyper", "maflingo", "locking", "serial", "lazy-occ", "cicada"];

fn item(thread: u64, number: u64) -> Item {
    let bytes = if number.is_multiple_of(4) { 100_000 } else { number as usize % 300 };
    Item { id: thread << 32 | number, number, text: char::from(b'a' + (number % 26) as u8).to_string().repeat(bytes) }
}

/// The row that a thread's transaction with this number deletes.
fn deleted(number: u64) -> Option<u64> {
    (number.is_multiple_of(7)).then(|| number - 3)
}

/// A transaction of a thread: it counts in row 0, inserts a row, and deletes one now and then.
fn write(t: &mut TransactionOf<'_, AnyProtocol>, items: &Table<Item>, thread: u64, number: u64) -> Result<(), Error> {
    t.upsert(items, &Item { id: thread << 32, number, text: String::new() })?;
    t.insert(items, &item(thread, number))?;
    deleted(number).map_or(Ok(()), |number| t.delete(items, thread << 32 | number).map(drop))
}

fn tell(line: std::fmt::Arguments<'_>) {
    // In one piece, whatever other threads say.
    let _ = std::io::stdout().write_all(format!("\ntold {line}\n").as_bytes());
}

fn open(protocol: &str, path: &Path) -> Result<(Database<AnyProtocol>, Table<Item>), Error> {
    let database = Database::builder().small().protocol(protocol).durability(Durability::Immediate).open(path)?;
    let items = database.create_or_open_table::<Item>()?;
    Ok((database, items))
}

/// How far a thread has come in what is there.
fn count(database: &Database<AnyProtocol>, items: &Table<Item>, thread: u64) -> u64 {
    let row = database.transact(|t| t.get_owned(items, thread << 32)).expect("it can be read");
    row.map_or(0, |row| row.number)
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn child() {
    let Some(given) = std::env::var(CHILD).ok() else { return };
    let given: Vec<&str> = given.lines().collect();
    let [protocol, path] = given[..] else { panic!("{given:?}") };
    tell(format_args!("started"));
    let (database, items) = match open(protocol, Path::new(path)) {
        Ok(opened) => opened,
        Err(error) => return tell(format_args!("unopened {error}")),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (database, items) = (&database, &items);
                scope.spawn(move || run(database, items, thread))
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(40));
            if let Err(error) = database.checkpoint() {
                tell(format_args!("checkpoint {error}"));
            }
        }
    });
    match database.close() {
        Ok(()) => tell(format_args!("closed")),
        Err(error) => tell(format_args!("unclosed {error}")),
    }
}

fn run(database: &Database<AnyProtocol>, items: &Table<Item>, thread: u64) {
    let first = match database.transact(|t| t.get_owned(items, thread << 32)) {
        Ok(row) => row.map_or(0, |row| row.number) + 1,
        Err(error) => return tell(format_args!("refused {error:?}")),
    };
    let (mut number, mut refusals) = (first, 0);
    while number < first + TRANSACTIONS {
        tell(format_args!("begin {thread} {number}"));
        match database.transact(|t| write(t, items, thread, number)) {
            Ok(()) => {
                tell(format_args!("done {thread} {number}"));
                number += 1;
            }
            Err(error) => {
                refusals += 1;
                let is_over = matches!(error, Error::LogStopped(_));
                tell(format_args!("refused {error:?}: {error}"));
                // What was durable long before is read, or it is not known whether it is durable.
                let old = first + (number - first) / 2;
                if old < number && number > first + 20 {
                    let read = database.transact(|t| t.get_owned(items, thread << 32 | old));
                    let expected = (0..=3).all(|later| deleted(old + later) != Some(old)).then(|| item(thread, old));
                    match read {
                        Ok(row) if row == expected || row.is_none() => tell(format_args!("read")),
                        Ok(row) => tell(format_args!("wrong row {row:?}")),
                        Err(Error::LogStopped(_)) if is_over => tell(format_args!("unread {old}")),
                        Err(error) => tell(format_args!("wrong: a reader gets {error:?}")),
                    }
                    let gone = (1..number).filter_map(deleted).filter(|gone| *gone < old).count() as u64;
                    match database.transact(|t| t.scan(items, (thread << 32) + 1..thread << 32 | old).count()) {
                        Ok(count) if count == old - 1 - gone => tell(format_args!("read")),
                        Ok(count) => tell(format_args!("wrong count {count} of {old}")),
                        Err(Error::LogStopped(_)) if is_over => tell(format_args!("unread before {old}")),
                        Err(error) => tell(format_args!("wrong: a reader of a range gets {error:?}")),
                    }
                }
                if is_over || refusals == 20 {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// What fails in one process.
struct Failing {
    call: &'static str,
    error: &'static str,
    when: String,
}

impl Failing {
    fn draw(random: &mut Random) -> Self {
        let calls: [(&str, u64); 11] = [
            ("fdatasync", 60),
            ("fdatasync", 5),
            ("pwrite64", 90),
            ("pwrite64", 20),
            ("fsync", 12),
            ("fallocate", 6),
            ("openat", 60),
            ("pread64", 40),
            ("ftruncate", 2),
            ("unlink", 6),
            ("mkdir", 5),
        ];
        let (call, most) = calls[random.below(calls.len() as u64) as usize];
        let error = if random.below(if call == "fallocate" { 1 } else { 3 }) == 0 { "ENOSPC" } else { "EIO" };
        let first = 1 + random.below(most);
        let when = match random.below(3) {
            0 => format!("{first}"),
            1 => format!("{first}..{}", first + 1 + random.below(6)),
            _ => format!("{first}+"),
        };
        Self { call, error, when }
    }

    fn command(&self, trace: &Path) -> Command {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-y", "--seccomp-bpf", "-e", "signal=none", "-o"]).arg(trace);
        let all: BTreeSet<&str> = ["fdatasync", "fsync", "pwrite64", "unlink", self.call].into();
        command.args(["-e", &format!("trace={}", all.into_iter().collect::<Vec<_>>().join(","))]);
        command.args(["-e", &format!("inject={}:error={}:when={}", self.call, self.error, self.when)]);
        command
    }
}

/// Whether calls can be made to fail here.
fn can_inject() -> bool {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "inject=fdatasync:error=EIO:when=1", "true"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What a process has said, on its output and as errors; an error if it hangs.
fn outcome(mut command: Command) -> Result<(String, String), String> {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn();
    let mut child = spawned.map_err(|error| error.to_string())?;
    let (mut out, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let out = std::thread::spawn(move || read(&mut out));
    let errors = std::thread::spawn(move || read(&mut errors));
    for _ in 0..LONGEST.as_millis() / 10 {
        if child.try_wait().map_err(|error| error.to_string())?.is_some() {
            return Ok((out.join().unwrap(), errors.join().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
    let _ = child.wait();
    Err(format!("it hangs: {}", out.join().unwrap()))
}

/// The path of the file that a traced call is about.
fn path_of(line: &str) -> Option<&str> {
    let (_, behind) = line.split_once('(')?;
    behind.split_once('<')?.1.split_once('>').map(|(path, _)| path)
}

/// A file of the log or of a manifest that is written or synced once a write or a sync of it has failed. A manifest that finds no room to be written may be
/// written again: nothing was told to be durable there.
fn repeated(trace: &str) -> Option<String> {
    let (mut open, mut failed) = (BTreeMap::new(), BTreeSet::new());
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(gone) = call.strip_prefix("unlink(\"") {
            // Another file may have the name behind that.
            failed.retain(|path| !gone.starts_with(&format!("{path}\"")));
        }
        let is_kept = |path: &str| path.contains("/log/") || path.contains("/manifest.");
        if ["fdatasync(", "fsync(", "pwrite64("].iter().any(|name| call.starts_with(name)) {
            let Some(path) = path_of(call) else { continue };
            if failed.contains(path) {
                let lines: Vec<&str> = trace.lines().filter(|line| line.contains(path)).collect();
                return Some(format!("{line}\nbehind\n{}", lines.join("\n")));
            }
            open.insert(thread, path);
        }
        if call.contains("(INJECTED)")
            && ["fdatasync", "fsync", "pwrite64"].iter().any(|name| call.contains(name))
            && let Some(path) = open.remove(thread)
            && is_kept(path)
            && !(call.contains("pwrite64") && call.contains("ENOSPC") && path.contains("/manifest."))
        {
            failed.insert(path);
        }
    }
    None
}

/// What one directory has come to.
#[derive(Debug, Default)]
struct Seen {
    /// The last transaction of each thread that was acknowledged, and the last one that was begun.
    acknowledged: BTreeMap<u64, u64>,
    begun: BTreeMap<u64, u64>,
}

/// What runs have shown.
#[derive(Debug, Default)]
struct Sums {
    injected: u64,
    stopped: u64,
    full: u64,
    unopened: u64,
    read: u64,
    unread: u64,
}

/// Whether an error is one that there may be, and names what it is about.
fn complaint(line: &str, failing: &Failing, path: &Path) -> Option<String> {
    let Failing { call, error, .. } = failing;
    let names = line.contains("log/")
        || line.contains("manifest")
        || line.contains("checkpoint")
        || line.contains(path.to_str()?);
    let is_kind = match line.split_once(' ')?.0 {
        "refused" => line.contains("LogStopped") || *error == "ENOSPC" && line.contains("DiskFull"),
        _ => true,
    };
    (!is_kind || !names).then(|| format!("{call} {error}: {line}"))
}

/// A process on a directory, and what is there behind it.
fn life(path: &Path, seen: &mut Seen, random: &mut Random, sums: &mut Sums) -> Result<(), String> {
    let failing = Failing::draw(random);
    let protocol = PROTOCOLS[random.below(7) as usize];
    let trace = path.with_extension("trace");
    let mut command = failing.command(&trace);
    command.arg(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("{protocol}\n{}", path.display())).env("RUST_BACKTRACE", "0");
    let about = format!("{} {} {} under {protocol}", failing.call, failing.error, failing.when);
    let (out, errors) = outcome(command).map_err(|what| format!("{about}: {what}"))?;
    let told: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("told ")).collect();
    let said: Vec<&str> =
        told.iter().filter(|line| !line.starts_with("begin") && !line.starts_with("done")).copied().collect();
    let fail = |what: &str| Err(format!("{about}: {what}\n{}\n{errors}", said.join("\n")));
    if told.is_empty() {
        // The program itself could not be loaded.
        return Ok(());
    }
    if errors.contains("panicked") {
        return fail("it panics");
    }
    let traced = std::fs::read_to_string(&trace).unwrap_or_default();
    sums.injected += u64::from(traced.contains("(INJECTED)"));
    if let Some(line) = repeated(&traced) {
        return fail(&format!("a file is used again: {line}"));
    }
    let is_ended = told.iter().any(|line| ["closed", "unclosed", "unopened"].iter().any(|end| line.starts_with(end)));
    if !is_ended {
        return fail("it has not come to its end");
    }
    for line in &told {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["begin", thread, number] => _ = seen.begun.insert(thread.parse().unwrap(), number.parse().unwrap()),
            ["done", thread, number] => _ = seen.acknowledged.insert(thread.parse().unwrap(), number.parse().unwrap()),
            ["refused", ..] | ["unopened", ..] | ["checkpoint", ..] | ["unclosed", ..] => {
                if let Some(what) = complaint(line, &failing, path) {
                    return fail(&what);
                }
                sums.stopped += u64::from(line.contains("LogStopped"));
                sums.full += u64::from(line.contains("DiskFull"));
                sums.unopened += u64::from(words[0] == "unopened");
            }
            ["wrong", ..] => return fail("what is read is wrong"),
            ["read", ..] => sums.read += 1,
            ["unread", ..] => sums.unread += 1,
            _ => {}
        }
    }
    let examiner = PROTOCOLS[random.below(7) as usize];
    let (database, items) =
        open(examiner, path).or_else(|error| fail(&format!("{examiner}: {error}")).map(|()| unreachable!()))?;
    for thread in 0..THREADS {
        let of = |map: &BTreeMap<u64, u64>| map.get(&thread).copied().unwrap_or(0);
        let (acknowledged, begun, there) = (of(&seen.acknowledged), of(&seen.begun), count(&database, &items, thread));
        if there < acknowledged || there > begun {
            return fail(&format!("thread {thread} is at {there}, of {acknowledged} acknowledged and {begun} begun"));
        }
        let rows: Vec<Item> =
            database.transact(|t| t.scan(&items, (thread << 32) + 1..(thread + 1) << 32).rows()).unwrap();
        let gone: BTreeSet<u64> = (1..=there).filter_map(deleted).collect();
        let expected = (1..=there).filter(|number| !gone.contains(number)).map(|number| item(thread, number));
        if !rows.iter().cloned().eq(expected) {
            return fail(&format!("thread {thread} has other rows, up to {there}"));
        }
    }
    let closed = database.close();
    closed.or_else(|error| fail(&format!("behind it: {error}")))
}

/// Two processes on one directory.
fn trial(seed: u64, sums: &Mutex<Sums>) -> Result<(), String> {
    let mut random = Random::from_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let (path, mut seen, mut own) = (directory.path().join("bank"), Seen::default(), Sums::default());
    for _ in 0..2 {
        life(&path, &mut seen, &mut random, &mut own).map_err(|what| format!("seed {seed}: {what}"))?;
    }
    let sums = &mut *sums.lock().unwrap();
    sums.injected += own.injected;
    sums.stopped += own.stopped;
    sums.full += own.full;
    sums.unopened += own.unopened;
    sums.read += own.read;
    sums.unread += own.unread;
    Ok(())
}

fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn calls_that_fail_lose_nothing() {
    if !can_inject() {
        eprintln!("left out: there is no strace here that may trace processes");
        return;
    }
    let (runs, first) = (number_of("POLYCHRON_FAILING_RUNS", 8), number_of("POLYCHRON_FIRST_SEED", 0));
    let (sums, failures) = (Mutex::default(), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for start in 0..2 {
            let (sums, failures) = (&sums, &failures);
            scope.spawn(move || {
                for seed in (first + start..first + runs).step_by(2) {
                    if let Err(what) = trial(seed, sums) {
                        failures.lock().unwrap().push(what);
                    }
                }
            });
        }
    });
    println!("{runs} runs: {:?}", sums.into_inner().unwrap());
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of them:\n{}", failures.len(), failures.join("\n\n"));
}
