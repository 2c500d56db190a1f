//! The process that starts clients, kills them, and looks at what they leave.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use polychron::Durability;
use polychron_base::random::Random;

use crate::client::{Client, Kept, open};
use crate::examine::examine;
use crate::ledger::{Ledger, Line};
use crate::restore::{now_ns, restore_often};

/// For how long a client may take to open or to close its database before it counts as one that hangs.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// What is to be done with one directory.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is drawn from.
    pub seed: u64,
    /// How many clients there are, one after the other.
    pub lives: u64,
    /// Threads of each.
    pub threads: u64,
    /// The protocols that are drawn from.
    pub protocols: Vec<String>,
    /// To how many times between the first client and the last one it is restored at the end.
    pub restores: u64,
}

/// What was seen of one directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// How many times a client was killed.
    pub kills: u64,
    /// How many transactions were acknowledged, and how many more were there.
    pub acknowledged: u64,
    /// How many were there without having been acknowledged.
    pub others: u64,
    /// How many times it was restored, and to how many different points.
    pub restores: u64,
    /// How many of them had something that the one before had not.
    pub points: u64,
}

/// Something was wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the plan.
    pub seed: u64,
    /// What the clients were, up to the last one.
    pub clients: Vec<String>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "seed {}, behind {}: {}", self.seed, self.clients.join(", "), self.what)
    }
}

/// How a client ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It is killed so long after it was started, whether its database is open or not.
    KilledEarly(Duration),
    /// It is killed so long after its database was open.
    Killed(Duration),
    /// It closes its database.
    Closed(Duration),
}

/// Starts clients on an empty directory, one after the other, with `command`, which has the process call [`client`](crate::client()); kills them, and
/// examines the database behind each.
///
/// # Errors
/// The first thing that is wrong.
pub fn run(plan: &Plan, directory: &Path, command: impl Fn(&Client) -> Command) -> Result<Report, Failure> {
    let mut random = Random::from_seed(plan.seed);
    let (mut report, mut ledger, mut clients) = (Report::default(), Ledger::default(), Vec::new());
    let kept =
        (plan.restores > 0).then(|| Kept { archive: directory.join("archive"), backup: directory.join("backup") });
    let begun_ns = now_ns();
    let mut told = Vec::new();
    for life in 1..=plan.lives {
        let client = Client { kept: kept.clone(), ..draw(plan, directory.join("database"), life, &mut random) };
        let end = draw_end(&mut random);
        clients.push(format!("{} {:?} {end:?}", client.protocol, client.durability));
        let fail = |what| Failure { seed: plan.seed, clients: clients.clone(), what };
        let lines = live(command(&client), end).map_err(fail)?;
        let waits = client.durability.waits() || lines.contains(&Line::Closed);
        report.kills += u64::from(!matches!(end, End::Closed(_)));
        report.acknowledged += lines.iter().filter(|line| matches!(line, Line::Done(..))).count() as u64;
        told.extend(lines.clone());
        ledger.add(lines, waits);
        let examiner = &plan.protocols[random.below(plan.protocols.len() as u64) as usize];
        clients.push(format!("examined with {examiner}"));
        let fail = |what| Failure { seed: plan.seed, clients: clients.clone(), what };
        let database = open(&client.directory, examiner, Durability::Immediate, kept.as_ref())
            .map_err(|error| fail(error.to_string()))?;
        report.others += examine(&database, &mut ledger).map_err(fail)? as u64;
    }
    if let Some(kept) = &kept {
        let fail = |what| Failure { seed: plan.seed, clients: clients.clone(), what };
        let times = (begun_ns, now_ns());
        restore_often(plan, directory, kept, &told, times, &mut random, &mut report).map_err(fail)?;
    }
    Ok(report)
}

fn draw(plan: &Plan, directory: PathBuf, life: u64, random: &mut Random) -> Client {
    let protocol = plan.protocols[random.below(plan.protocols.len() as u64) as usize].clone();
    let durability = match random.below(6) {
        0 => Durability::Group(Duration::from_millis(1)),
        1 => Durability::Eventual(Duration::from_millis(20)),
        2 => Durability::OnCheckpoint,
        _ => Durability::Immediate,
    };
    Client { directory, protocol, durability, life, seed: random.next_u64(), threads: plan.threads, kept: None }
}

fn draw_end(random: &mut Random) -> End {
    let after = Duration::from_micros(random.below(200_000));
    match random.below(10) {
        0 => End::KilledEarly(after / 4),
        1 => End::Closed(after),
        _ => End::Killed(after),
    }
}

/// A client from its start to its end, and what it has told.
fn live(mut command: Command, end: End) -> Result<Vec<Line>, String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("a client could not be started: {error}"))?;
    let told = listen(&mut child);
    let mut lines = Vec::new();
    let ended = match end {
        End::KilledEarly(after) => {
            std::thread::sleep(after);
            Ok(())
        }
        End::Killed(after) | End::Closed(after) => {
            until(&told, &Line::Open, &mut lines).map(|()| std::thread::sleep(after))
        }
    };
    let ended = match (ended, end) {
        (Ok(()), End::Closed(_)) => {
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(b"."));
            until(&told, &Line::Closed, &mut lines)
        }
        (ended, _) => ended,
    };
    let _ = child.kill();
    let status = child.wait().map_err(|error| error.to_string())?;
    lines.extend(told.iter());
    match ended {
        Err(what) => Err(format!("{what} ({status})")),
        Ok(()) => Ok(lines),
    }
}

/// Has a thread read what the client tells.
fn listen(child: &mut Child) -> Receiver<Line> {
    let (send, receive) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { return };
                // The last one may be cut off.
                let Some(line) = Line::parse(&line) else { continue };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receive
}

fn until(told: &Receiver<Line>, wanted: &Line, lines: &mut Vec<Line>) -> Result<(), String> {
    loop {
        match told.recv_timeout(LONGEST_WAIT) {
            Ok(line) => {
                let is_wanted = line == *wanted;
                lines.push(line);
                if is_wanted {
                    return Ok(());
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("a client tells nothing, and has not told {wanted:?}"));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(format!("a client has ended, and not told {wanted:?}")),
        }
    }
}
