//! Edges in words.

use super::facts::{Facts, NONE, State};
use super::graph::{Edge, Kind};
use crate::history::{Name, Operation, Replaced};

/// One line that says why one transaction comes before the other.
pub(super) fn edge(facts: &Facts<'_>, edge: &Edge) -> String {
    let (one, other) = (Name(facts.attempt(edge.from).id), Name(facts.attempt(edge.to).id));
    let line = match edge.kind {
        Kind::Session if edge.state != NONE => {
            let wrote = wrote(facts, facts.state(edge.state));
            format!("{one} {wrote}, which a session had read before it called for the snapshot {other}")
        }
        Kind::Session => format!("{one} was acknowledged before its session called for the snapshot {other}"),
        Kind::RealTime => format!("{one} was acknowledged before {other} began"),
        Kind::Write => {
            let state = facts.state(edge.state);
            format!("{one} {}, and {other} replaced that", wrote(facts, state))
        }
        Kind::Read => {
            let how = if is_of_presence(facts, edge) { "was told that the row is there" } else { "read that" };
            format!("{one} {}, and {other} {how}", wrote(facts, facts.state(edge.state)))
        }
        Kind::Gone => {
            let state = facts.state(edge.state);
            let how = if edge.operation == NONE { "wrote there later" } else { "saw that the row was not there" };
            format!("{one} {}, and {other} {how}", wrote(facts, state))
        }
        Kind::Anti => {
            let state = facts.state(edge.state);
            let item = facts.item(state.item).item;
            let seen = match before(facts, state) {
                _ if is_of_presence(facts, edge) => format!("was told that {item} is there"),
                Some(version) => format!("read {item} in version {version}"),
                None => format!("found {item} absent"),
            };
            format!("{one} {seen}, and {other} {}", wrote(facts, state))
        }
        Kind::AntiRange => {
            let range = facts.range_read(edge.operation as usize);
            format!("{one} {range}, and {other} {}", wrote(facts, facts.state(edge.state)))
        }
    };
    format!("{one} → {other}: {line}")
}

/// Whether it follows from a row's being there, whatever its state.
fn is_of_presence(facts: &Facts<'_>, edge: &Edge) -> bool {
    edge.operation != NONE && matches!(facts.history.operations[edge.operation as usize], Operation::Present(_))
}

/// The version that a state replaced.
fn before(facts: &Facts<'_>, state: &State) -> Option<crate::history::Version> {
    if state.previous == NONE { None } else { facts.state(state.previous).row.map(|(version, _)| version) }
}

fn wrote(facts: &Facts<'_>, state: &State) -> String {
    let item = facts.item(state.item).item;
    match (state.row, state.replaced) {
        (None, _) => format!("deleted {item}"),
        (Some((version, _)), Replaced::Absent | Replaced::Follows(None)) => {
            format!("inserted {item} as version {version}")
        }
        (Some((version, _)), _) => format!("wrote {item} as version {version}"),
    }
}
