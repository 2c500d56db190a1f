//! What is asked of a protocol, of the behaviours of clients and of liveness, and what is known to be missing.

use polychron_engine::Protocol;

use crate::Setup;

/// A behaviour that some protocols do not show.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// The behaviour, with its group.
    pub behaviour: &'static str,
    /// Those that do not show it, by the protocols' names.
    pub protocols: &'static [&'static str],
    /// What is missing.
    pub what: &'static str,
}

/// Whether a protocol's test of a behaviour is run: it is where the question makes sense and nothing is known to be missing.
/// `POLYCHRON_MISSING=run` runs what is missing, too.
pub fn is_asked<P: Protocol>(setup: &Setup<P>, group: &str, behaviour: &str) -> bool {
    let name = format!("{group}::{behaviour}");
    let runs_missing = std::env::var_os("POLYCHRON_MISSING").is_some_and(|value| value == "run");
    makes_sense(setup, &name) && (runs_missing || missing(setup.name, &name).is_none())
}

/// What the protocol lacks of a behaviour.
pub fn missing(protocol: &str, behaviour: &str) -> Option<&'static Missing> {
    MISSING.iter().find(|it| it.behaviour == behaviour && it.protocols.contains(&protocol))
}

/// Whether a behaviour can be asked for: where one transaction runs at a time, or reading locks, an open one stops the others by
/// design, and where memory is not the engine's no client counts it.
pub fn makes_sense<P: Protocol>(setup: &Setup<P>, behaviour: &str) -> bool {
    match behaviour.strip_prefix("liveness::") {
        None => match behaviour {
            "clients::doomed_by_other_threads" => setup.interleaves && !setup.snapshots_lock,
            "clients::nested_on_two_threads"
            | "clients::nested_beside_a_plain_client"
            | "clients::nested_at_random"
            | "clients::nested_meets_a_busy_row" => setup.interleaves,
            _ => true,
        },
        Some("garbage_of_an_idle_session") => setup.measures_memory,
        Some("own_commits_beside_a_writer" | "fresh_beside_a_writer") => setup.interleaves && !setup.snapshots_lock,
        Some(name) if name.ends_with("_beside_an_insertion") => setup.interleaves && !setup.snapshots_lock,
        Some(name) if name.ends_with("_beside_a_snapshot") => setup.snapshots_interleave && !setup.snapshots_lock,
        Some(name) if name.ends_with("_beside_a_writer") => setup.interleaves,
        Some(_) => true,
    }
}

/// The behaviours of clients and of liveness, in the order of the list.
pub const BEHAVIOURS: &[&str] = &[
    "clients::nested_transactions",
    "clients::nested_procedures",
    "clients::nested_on_two_threads",
    "clients::nested_beside_a_plain_client",
    "clients::nested_at_random",
    "clients::nested_meets_a_busy_row",
    "clients::doomed_by_their_own_thread",
    "clients::doomed_by_other_threads",
    "clients::new_index_inside_of_a_transaction",
    "clients::leaked_transactions",
    "clients::leaked_transactions_of_workers_that_leave",
    "clients::leaked_transactions_before_failures",
    "clients::threads_that_end",
    "clients::work_at_the_end_of_a_thread",
    "clients::conflicts_of_their_own",
    "clients::more_threads_than_slots",
    "clients::changes_between_transactions",
    "liveness::updates_beside_a_snapshot",
    "liveness::queue_beside_a_snapshot",
    "liveness::hot_row_beside_a_snapshot",
    "liveness::updates_beside_a_writer",
    "liveness::queue_beside_a_writer",
    "liveness::hot_row_beside_a_writer",
    "liveness::updates_beside_a_session",
    "liveness::queue_beside_a_session",
    "liveness::hot_row_beside_a_session",
    "liveness::crowd_that_reads_and_writes",
    "liveness::crowd_that_writes_blindly",
    "liveness::garbage_of_an_idle_session",
    "liveness::own_commits_beside_a_snapshot",
    "liveness::own_commits_beside_a_writer",
    "liveness::fresh_beside_a_snapshot",
    "liveness::fresh_beside_a_writer",
    "liveness::reads_beside_an_insertion",
    "liveness::insertions_beside_an_insertion",
    "liveness::wanted_beside_an_insertion",
];

/// All that is known to be missing.
pub const MISSING: &[Missing] = &[
    Missing {
        behaviour: "liveness::hot_row_beside_a_snapshot",
        protocols: &["hekaton", "snapshot-isolation"],
        what: "what is retired waits until the idle client looks again or ends",
    },
    Missing {
        behaviour: "liveness::hot_row_beside_a_writer",
        protocols: &["hekaton", "snapshot-isolation"],
        what: "what is retired waits until the idle client looks again or ends",
    },
    Missing {
        behaviour: "liveness::queue_beside_a_snapshot",
        protocols: &["hekaton", "snapshot-isolation"],
        what: "what is retired waits until the idle client looks again or ends",
    },
    Missing {
        behaviour: "liveness::queue_beside_a_writer",
        protocols: &["hekaton", "snapshot-isolation"],
        what: "what is retired waits until the idle client looks again or ends",
    },
    Missing {
        behaviour: "liveness::updates_beside_a_snapshot",
        protocols: &["hekaton", "snapshot-isolation"],
        what: "what is retired waits until the idle client looks again or ends",
    },
    Missing {
        behaviour: "liveness::updates_beside_a_writer",
        protocols: &["hekaton", "snapshot-isolation"],
        what: "what is retired waits until the idle client looks again or ends",
    },
];
