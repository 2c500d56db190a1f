//! Processes that are killed: nothing is lost, and where something would be lost that is found.

use std::path::Path;
use std::process::Command;

use polychron::Durability;
use polychron_crash::{Client, Failure, Plan, Report, run};

/// Runs clients of these protocols, which open their databases with the durability that they are told, or with another one.
fn crash(seed: u64, lives: u64, protocols: &[&str], instead: Option<Durability>) -> Result<Report, Failure> {
    crash_and_restore(seed, lives, protocols, instead, 0)
}

fn crash_and_restore(
    seed: u64,
    lives: u64,
    protocols: &[&str],
    instead: Option<Durability>,
    restores: u64,
) -> Result<Report, Failure> {
    let directory = tempfile::tempdir().expect("there is room");
    let protocols = protocols.iter().map(|name| (*name).to_owned()).collect();
    let plan = Plan { seed, lives, threads: 2, protocols, restores };
    run(&plan, directory.path(), |client| command(Path::new(env!("CARGO_BIN_EXE_polychron-lab")), client, instead))
}

fn command(program: &Path, client: &Client, instead: Option<Durability>) -> Command {
    let Client { directory, protocol, durability, life, seed, threads, kept } = client;
    let durability = instead.unwrap_or(*durability).to_string();
    let mut command = Command::new(program);
    command.arg("crash-client").arg("--directory").arg(directory).args(["--protocol", protocol]);
    command.args(["--durability", &durability, "--life", &life.to_string()]);
    command.args(["--seed", &seed.to_string(), "--threads", &threads.to_string()]);
    if let Some(kept) = kept {
        command.arg("--archive").arg(&kept.archive).arg("--backup").arg(&kept.backup);
    }
    command
}

#[test]
fn nothing_is_lost() {
    let protocols = ["cicada", "maflingo", "hyper", "bohm", "locking", "serial", "lazy-occ"];
    for seed in 1..4 {
        let report = crash(seed, 4, &protocols, None).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.kills > 0, "{report:?}");
    }
}

#[test]
fn what_is_restored_is_a_prefix() {
    let protocols = ["cicada", "maflingo", "hyper", "bohm", "locking", "serial", "lazy-occ"];
    let (mut restores, mut points) = (0, 0);
    for seed in 1..4 {
        let report = crash_and_restore(seed, 3, &protocols, None, 8).unwrap_or_else(|failure| panic!("{failure}"));
        restores += report.restores;
        points += report.points;
    }
    assert!(restores > 4 && points > 2, "{restores} restores to {points} points");
}

/// Clients that answer before anything is durable are found out.
#[test]
fn losses_are_found() {
    let found = (1..20).find_map(|seed| crash(seed, 4, &["cicada"], Some(Durability::OnCheckpoint)).err());
    let failure = found.expect("what was acknowledged is lost");
    assert!(failure.what.contains("lost"), "{failure}");
}

#[test]
fn bad_input_is_refused() {
    for (arguments, complaint) in [
        (["crash", "--protocol", "hyper-snapshot"], "serializable"),
        (["crash", "--runs", "0"], "--runs is 0"),
        (["crash", "--directory", "/dev/null/nothing"], "no directory can be made"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_polychron-lab")).args(arguments).output().expect("it is there");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(complaint) && text.lines().count() == 1, "{text}");
    }
}
