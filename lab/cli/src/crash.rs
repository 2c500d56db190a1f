//! `polychron-lab crash`.

use std::process::Command;

use polychron::{Isolation, ProtocolInfo, ProtocolList, Protocols};
use polychron_cli::output::{print_error, print_output};
use polychron_cli::progress::Steps;
use polychron_cli::report::{columns, thousands};
use polychron_crash::{Client, Kept, Plan, Report};

use crate::arguments::{Crash, CrashClient};

const HEADER: [&str; 7] = ["databases", "kills", "acknowledged", "there besides", "restores", "to points", "verdict"];

/// Runs the command.
pub(crate) fn run(given: &Crash) -> u8 {
    match run_all(given) {
        Ok(code) => code,
        Err(line) => {
            print_error(line);
            2
        }
    }
}

fn run_all(given: &Crash) -> Result<u8, String> {
    for (option, value) in [("runs", given.runs), ("lives", given.lives), ("threads", given.threads)] {
        if value == 0 {
            return Err(format!("--{option} is 0; it is at least 1"));
        }
    }
    let program = std::env::current_exe().map_err(|error| format!("this program cannot be started again: {error}"))?;
    let promises = |it: &&ProtocolInfo| it.isolation == Isolation::Serializable;
    let known = Protocols::all();
    let all: Vec<String> = known.iter().filter(promises).map(|it| it.name.to_owned()).collect();
    if let Some(name) = given.protocol.iter().find(|name| !all.contains(name)) {
        return Err(format!("there is no serializable protocol `{name}`; those are {}", all.join(", ")));
    }
    let protocols = if given.protocol.is_empty() { all } else { given.protocol.clone() };
    let steps = Steps::new(given.runs);
    let mut sum = Report::default();
    for run in 0..given.runs {
        let plan = Plan {
            seed: given.seed.wrapping_add(run),
            lives: given.lives,
            threads: given.threads,
            protocols: protocols.clone(),
            restores: given.restores,
        };
        let directory = match &given.directory {
            Some(path) => tempfile::tempdir_in(path),
            None => tempfile::tempdir(),
        };
        let directory = directory.map_err(|error| format!("no directory can be made: {error}"))?;
        match polychron_crash::run(&plan, directory.path(), |client| command(&program, client)) {
            Ok(report) => {
                sum.kills += report.kills;
                sum.acknowledged += report.acknowledged;
                sum.others += report.others;
                sum.restores += report.restores;
                sum.points += report.points;
            }
            Err(failure) => {
                let path = directory.keep();
                steps.pause(|| print_output(format_args!("{failure}\nThe database is {}\n", path.display())));
                return Ok(1);
            }
        }
        steps.step();
    }
    drop(steps);
    let row = [given.runs, sum.kills, sum.acknowledged, sum.others, sum.restores, sum.points].map(thousands);
    let [runs, kills, acknowledged, others, restores, points] = row;
    let verdict = "nothing was lost".to_owned();
    print_output(columns(HEADER, &[[runs, kills, acknowledged, others, restores, points, verdict]]));
    Ok(0)
}

/// This program as a client.
fn command(program: &std::path::Path, client: &Client) -> Command {
    let mut command = Command::new(program);
    command.arg("crash-client").arg("--directory").arg(&client.directory).args(["--protocol", &client.protocol]);
    command.args(["--durability", &client.durability.to_string()]);
    for (option, value) in [("--life", client.life), ("--seed", client.seed), ("--threads", client.threads)] {
        command.args([option, &value.to_string()]);
    }
    if let Some(Kept { archive, backup }) = &client.kept {
        command.arg("--archive").arg(archive).arg("--backup").arg(backup);
    }
    command
}

/// Runs the command that is killed.
pub(crate) fn client(given: CrashClient) -> u8 {
    let CrashClient { directory, protocol, durability, life, seed, threads, archive, backup } = given;
    let kept = archive.zip(backup).map(|(archive, backup)| Kept { archive, backup });
    match polychron_crash::client(&Client { directory, protocol, durability, life, seed, threads, kept }) {
        Ok(()) => 0,
        Err(error) => {
            print_error(error.to_string());
            2
        }
    }
}
