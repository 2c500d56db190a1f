//! The log of transactions that take long: a line of JSON each.

use std::fmt;
use std::sync::Arc;

use polychron_base::Reason;
use polychron_base::clock::Duration;
use serde_json::{Value, json};

use super::{shape, shown};
use crate::context::now;

/// The most statements of a transaction that are told.
const MOST: usize = 20;

/// Where transactions are told that take long.
#[derive(Clone)]
pub struct SlowLog {
    /// From how long on; `None`: none are told. `SET log_min_duration_transaction` says otherwise for a session.
    pub after: Option<Duration>,
    /// Statements are told without their constants. Passwords never are told.
    pub cuts_constants: bool,
    /// Takes a line, which has no end of line. It is called by the thread of the transaction.
    pub line: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for SlowLog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, cuts_constants, .. } = self;
        out.debug_struct("SlowLog")
            .field("after", after)
            .field("cuts_constants", cuts_constants)
            .finish_non_exhaustive()
    }
}

/// What is known of an open transaction.
#[derive(Debug, Default)]
pub(super) struct Slow {
    statements: Vec<(Arc<str>, u64)>,
    count: u64,
    running_ns: u64,
    conflicts: u64,
    reasons: Vec<Reason>,
    pub(super) log: Option<SlowLog>,
}

impl Slow {
    pub(super) fn ran(&mut self, text: Arc<str>, ns: u64) {
        self.count += 1;
        self.running_ns += ns;
        if self.statements.len() < MOST {
            self.statements.push((text, ns));
        }
    }

    pub(super) fn conflicted(&mut self, reason: Reason) {
        self.conflicts += 1;
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    pub(super) fn tell(&self, (number, application): (u32, &str), time_ns: u64, has_committed: bool) {
        let Some(log) = &self.log else { return };
        let ms = |ns: u64| ns as f64 / 1e6;
        let statement = |(text, ns): &(Arc<str>, u64)| {
            let text = if log.cuts_constants { shape(text) } else { shown(text).into_owned() };
            json!({ "text": text, "ms": ms(*ns) })
        };
        let line: Value = json!({
            "event": "slow transaction",
            "time_us": now(),
            "pid": number,
            "application": application,
            "outcome": if has_committed { "committed" } else { "rolled back" },
            "ms": ms(time_ns),
            "running_ms": ms(self.running_ns),
            "waiting_for_client_ms": ms(time_ns.saturating_sub(self.running_ns)),
            "attempts": self.conflicts + 1,
            "reasons": self.reasons.iter().map(|reason| reason.name()).collect::<Vec<_>>(),
            "statements": self.statements.iter().map(statement).collect::<Vec<_>>(),
            "statement_count": self.count,
        });
        (log.line)(&line.to_string());
    }
}
