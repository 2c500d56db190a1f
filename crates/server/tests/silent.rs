//! Clients that are silent, slow, or many: how many threads they have, and that they go on where they were.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Db, Raw, bind, execute, kinds, parse, query, startup, sync};
use polychron::Database;
use polychron_server::{Credentials, Options, Server};

/// Threads are counted, so the tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn server(clients: usize) -> Server<Db> {
    let database =
        Database::builder().small().workers(clients.min(400) + 56).memory_limit(1 << 30).in_memory().unwrap();
    let mut options = Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    options.max_connections = clients;
    Server::start(database, options).unwrap()
}

/// How many threads of sessions there are in this process.
fn threads() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        // It may end meanwhile.
        fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| name.trim() == "session").count()
}

/// Waits until there are no more threads of sessions than this.
fn until_threads(most: usize) {
    for _ in 0..2_400 {
        if threads() <= most {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{} threads, of which {most} were expected", threads());
}

/// Silent clients have no threads, and their statements, settings and transactions stay.
#[test]
fn silent_clients_have_no_threads() {
    let _alone = alone();
    let server = server(400);
    let mut owner = Raw::ready(&server);
    owner.ask(&query("CREATE TABLE t (id int PRIMARY KEY, n int)"));
    let mut clients = Vec::new();
    for id in 0..300 {
        let mut raw = Raw::ready(&server);
        match id % 3 {
            // Some begin a message.
            0 => raw.send(&query("SELECT 1")[..id % 7]),
            1 => {
                let prepared = [parse("p", "SELECT $1::int + 1"), sync()].concat();
                assert_eq!(raw.ask(&prepared), "1 Z:I");
            }
            _ => {
                let text = format!("BEGIN; INSERT INTO t VALUES ({id}, 0)");
                assert_eq!(raw.ask(&query(&text)), "C:BEGIN C:INSERT 0 1 Z:T");
            }
        }
        clients.push(raw);
    }
    until_threads(0);
    // Some go without a word, and what they have done with them.
    for _ in 0..60 {
        clients.remove(0);
    }
    for (id, raw) in clients.iter_mut().enumerate().map(|(at, raw)| (at + 60, raw)) {
        match id % 3 {
            0 => assert_eq!(raw.ask(&query("SELECT 1")[id % 7..]), "T D C:SELECT 1 Z:I"),
            1 => {
                let run = [bind("", "p", &["41"]), execute("", 0), sync()].concat();
                assert_eq!(raw.ask(&run), "2 D C:SELECT 1 Z:I");
            }
            _ => {
                let text = format!("UPDATE t SET n = 1 WHERE id = {id}; COMMIT");
                assert_eq!(raw.ask(&query(&text)), "C:UPDATE 1 C:COMMIT Z:I");
            }
        }
    }
    let answer = owner.ask(&query("SELECT FROM t WHERE n = 1"));
    assert!(answer.ends_with("C:SELECT 80 Z:I"), "{answer}");
    assert_eq!(owner.ask(&query("SELECT FROM t WHERE n = 0")), "T C:SELECT 0 Z:I");
    until_threads(0);
}

/// Clients that have come and say nothing have no threads; what they say then is answered, and those whose time is over go.
#[test]
fn clients_that_have_said_nothing_have_no_threads() {
    let _alone = alone();
    let database = Database::builder().small().workers(96).memory_limit(512 << 20).in_memory().unwrap();
    let mut options = Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    (options.max_unauthenticated, options.max_connections) = (400, 400);
    let server = Server::start(database, options).unwrap();
    let mut clients: Vec<_> = (0..300).map(|_| Raw::open(&server)).collect();
    // The last one is admitted, so the others have come.
    drop(Raw::ready(&server));
    until_threads(0);
    for raw in &mut clients {
        raw.send(&startup(3 << 16, &[("user", "postgres")]));
        assert!(kinds(&raw.until_ready()).ends_with("Z:I"));
    }
    let database = Database::builder().small().workers(96).memory_limit(512 << 20).in_memory().unwrap();
    let mut options = Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    options.authentication_timeout = Duration::from_millis(50);
    let server = Server::start(database, options).unwrap();
    let mut late = Raw::open(&server);
    assert!(late.next().is_none());
}

/// Far more clients than workers that all speak at once are all answered: those outside of transactions give their workers back.
#[test]
fn clients_wait_for_workers() {
    let _alone = alone();
    let database = Database::builder().small().workers(12).memory_limit(512 << 20).in_memory().unwrap();
    let mut options = Options::new(Credentials::Trust);
    options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let server = Server::start(database, options).unwrap();
    let mut clients: Vec<_> = (0..60).map(|_| Raw::ready(&server)).collect();
    for _ in 0..5 {
        clients.iter_mut().for_each(|raw| raw.send(&query("SELECT 1")));
        for raw in &mut clients {
            assert_eq!(kinds(&raw.until_ready()), "T D C:SELECT 1 Z:I");
        }
    }
}

/// A transaction that cannot be run again keeps its thread, and goes on there.
#[test]
fn transactions_that_cannot_be_parked_keep_their_threads() {
    let _alone = alone();
    let server = server(100);
    let mut owner = Raw::ready(&server);
    owner.ask(&query("CREATE TABLE t (id int PRIMARY KEY, n int)"));
    let mut kept = Vec::new();
    for id in 0..5 {
        let mut raw = Raw::ready(&server);
        let text = format!("SET replay = off; BEGIN; INSERT INTO t VALUES ({id}, 0)");
        assert!(raw.ask(&query(&text)).ends_with("C:INSERT 0 1 Z:T"));
        kept.push(raw);
    }
    let mut off = Raw::ready(&server);
    assert_eq!(off.ask(&query("SET park_after = 0")), "C:SET Z:I");
    // Without a transaction it needs none all the same.
    until_threads(5);
    for raw in &mut kept {
        assert_eq!(raw.ask(&query("SELECT 1; COMMIT")), "T D C:SELECT 1 C:COMMIT Z:I");
    }
    assert_eq!(off.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
    until_threads(0);
}

/// The end of a server reaches those that are silent, and lets their transactions end.
#[test]
fn a_server_that_ends_tells_silent_clients() {
    let _alone = alone();
    let server = server(100);
    let (mut idle, mut open, mut half) = (Raw::ready(&server), Raw::ready(&server), Raw::ready(&server));
    open.ask(&query("CREATE TABLE t (id int PRIMARY KEY)"));
    assert_eq!(open.ask(&query("BEGIN; INSERT INTO t VALUES (1)")), "C:BEGIN C:INSERT 0 1 Z:T");
    half.send(&query("SELECT 1")[..6]);
    let mut times_out = Raw::ready(&server);
    times_out.ask(&query("SET idle_in_transaction_session_timeout = '1500ms'; BEGIN; SELECT 1"));
    until_threads(0);
    assert_eq!(kinds(&times_out.until_ready()), "E:25P03");
    assert!(times_out.next().is_none());
    server.stopper().stop();
    let waits = std::thread::spawn(move || server.wait().unwrap());
    assert_eq!(kinds(&idle.until_ready()), "E:57P01");
    assert_eq!(kinds(&half.until_ready()), "E:57P01");
    assert_eq!(open.ask(&query("COMMIT")), "C:COMMIT Z:I");
    assert_eq!(kinds(&open.until_ready()), "E:57P01");
    let database = waits.join().unwrap();
    assert_eq!(database.sql().unwrap().execute("SELECT * FROM t", ()).unwrap(), 1);
}

/// A client that never reads and clients that send byte by byte hold up nobody else; the latter are answered.
#[test]
fn slow_clients_hold_up_nobody() {
    let _alone = alone();
    let server = server(100);
    let mut deaf = Raw::ready(&server);
    deaf.send(&query("SELECT repeat('x', 1000) FROM generate_series(1, 200000)"));
    let text = query("SELECT 2");
    let mut slow: Vec<_> = (0..5).map(|_| Raw::ready(&server)).collect();
    let mut beside = Raw::ready(&server);
    for byte in &text[..text.len() - 1] {
        slow.iter_mut().for_each(|raw| raw.stream.write_all(&[*byte]).unwrap());
        assert_eq!(beside.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
        std::thread::sleep(Duration::from_millis(30));
    }
    // What has not come whole needs no thread.
    until_threads(1);
    for raw in &mut slow {
        assert_eq!(raw.ask(&text[text.len() - 1..]), "T D C:SELECT 1 Z:I");
    }
    drop(deaf);
    until_threads(0);
}

/// What a connection takes, of 100 and of more: `POLYCHRON_CLIENTS=10000 cargo test --release -p polychron-server --test silent -- --ignored --nocapture`. Half of the
/// files that it needs are those of the clients.
#[test]
#[ignore = "it measures"]
fn memory_of_silent_clients() {
    let _alone = alone();
    let most: usize = std::env::var("POLYCHRON_CLIENTS").map_or(2_000, |text| text.parse().unwrap());
    let server = server(2 * most);
    let resident = || -> usize {
        let text = fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let mut clients = Vec::new();
    let mut before = (0, resident());
    for count in [1, 100, most] {
        while clients.len() < count {
            clients.push(Raw::ready(&server));
        }
        until_threads(0);
        let now = (clients.len(), resident());
        let each = (now.1.saturating_sub(before.1)) as f64 / (now.0 - before.0) as f64;
        println!("{} clients: {} kB in all, {each:.1} kB for each more", now.0, now.1);
        before = now;
    }
    clients[0].ask(&query("CREATE TABLE t (id int PRIMARY KEY, n int)"));
    let parked = most / 10;
    for (id, raw) in clients.iter_mut().take(parked).enumerate() {
        raw.ask(&query(&format!("BEGIN; INSERT INTO t VALUES ({id}, 0)")));
    }
    until_threads(0);
    println!("{parked} transactions parked: {} kB in all", resident());
    for raw in &mut clients {
        raw.send(&query("SELECT 1"));
    }
    for raw in &mut clients {
        assert!(kinds(&raw.until_ready()).contains("C:SELECT 1"));
    }
    println!("all have asked at once: {} kB in all, {} threads", resident(), threads());
    until_threads(0);
    println!("silent again: {} kB in all", resident());
}

/// A client reads two million rows slowly, and the server has a few of them in memory at any time.
#[test]
fn long_answers_take_little_memory() {
    let _alone = alone();
    let server = server(8);
    const ROWS: usize = 2_000_000;
    let text =
        format!("SELECT g, 'about fifty bytes of text so that it is some memory' FROM generate_series(1, {ROWS}) g");
    let resident = || -> usize {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 12
    };
    let extended = [parse("", &text), bind("", "", &[]), execute("", 0), sync()].concat();
    for request in [query(&text), extended] {
        let mut raw = Raw::ready(&server);
        assert_eq!(raw.ask(&query("SELECT 1")), "T D C:SELECT 1 Z:I");
        let before = resident();
        raw.send(&request);
        let mut reader = std::io::BufReader::with_capacity(1 << 16, raw.stream.try_clone().unwrap());
        let (mut count, mut most, mut tag) = (0, 0, String::new());
        loop {
            let mut head = [0; 5];
            reader.read_exact(&mut head).unwrap();
            let mut content = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
            reader.read_exact(&mut content).unwrap();
            match head[0] {
                b'D' => count += 1,
                b'C' => tag = String::from_utf8(content).unwrap(),
                b'E' => panic!("{}", String::from_utf8_lossy(&content)),
                b'Z' => break,
                _ => {}
            }
            if head[0] == b'D' && count % 100_000 == 0 {
                std::thread::sleep(Duration::from_millis(20));
                most = most.max(resident());
            }
        }
        assert_eq!((count, tag.as_str()), (ROWS, "SELECT 2000000\0"));
        let grown = most.saturating_sub(before);
        assert!(grown < 48 << 20, "it took {grown} bytes");
    }
}
