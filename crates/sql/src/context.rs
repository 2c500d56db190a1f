//! What expressions are evaluated in, beside a row.

use std::cell::Cell;

use bumpalo::Bump;
use polychron_base::clock::{SystemTime, calendar_time};

use crate::datum::Datum;
use crate::exec::Exec;
use crate::text::Zone;

/// The surroundings of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// Where results with text or bytes are put.
    pub(crate) arena: &'a Bump,
    /// The statement's parameters.
    pub(crate) parameters: &'a [Datum<'a>],
    /// The rows of the queries around a subquery, the next one first.
    pub(crate) outer: Option<&'a Outer<'a>>,
    /// The zone of the session.
    pub(crate) zone: &'a Zone,
    /// What `now()` stands for.
    pub(crate) now: Now<'a>,
    /// What subqueries run in; nothing where none may stand.
    pub(crate) exec: Option<Exec<'a>>,
}

/// When the transaction began, in microseconds since 1970.
#[derive(Clone, Copy)]
pub(crate) enum Now<'a> {
    At(i64),
    /// Of a transaction of one statement: when the statement first asks, so that one that does not ask reads no clock.
    WhenAsked(&'a Cell<Option<i64>>),
}

impl Now<'_> {
    pub(crate) fn get(self) -> i64 {
        match self {
            Self::At(micros) => micros,
            Self::WhenAsked(known) => known.get().unwrap_or_else(|| {
                let now = now();
                known.set(Some(now));
                now
            }),
        }
    }
}

/// Microseconds since 1970.
pub(crate) fn now() -> i64 {
    calendar_time().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// A row of a query around a subquery.
#[derive(Clone, Copy)]
pub(crate) struct Outer<'a> {
    pub(crate) row: &'a [Datum<'a>],
    pub(crate) next: Option<&'a Outer<'a>>,
}

impl<'a> Context<'a> {
    /// One without parameters and outer rows, in 1970.
    pub(crate) const fn of(arena: &'a Bump, zone: &'a Zone) -> Self {
        Self { arena, parameters: &[], outer: None, zone, now: Now::At(0), exec: None }
    }

    /// The same, with another arena.
    pub(crate) fn with_arena<'b>(&self, arena: &'b Bump) -> Context<'b>
    where
        'a: 'b,
    {
        Context { arena, ..*self }
    }

    /// A text that `write` puts together, in the arena.
    pub(crate) fn text(&self, write: impl FnOnce(&mut String)) -> Datum<'a> {
        let mut text = String::new();
        write(&mut text);
        Datum::Text(self.arena.alloc_str(&text))
    }
}
