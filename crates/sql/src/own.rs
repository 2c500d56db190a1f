//! What a session shows of itself: its cursors and portals (`pg_cursors`), and its prepared statements (`pg_prepared_statements`).
//!
//! A statement that names one of these relations asks for it when it is bound, and is bound again when the session has told it. So other statements cost nothing.

use std::sync::{Arc, Mutex, PoisonError};

use polychron_engine::Protocol;

use crate::connection::Connection;
use crate::cursors::Way;

/// A cursor or portal.
#[derive(Debug)]
pub(crate) struct CursorShown {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
    pub(crate) is_held: bool,
    pub(crate) is_scrollable: bool,
    /// In microseconds since 1970.
    pub(crate) since: i64,
}

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct StatementShown {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
    pub(crate) since: i64,
    /// The types of its parameters, in words.
    pub(crate) types: Vec<String>,
    /// PREPARE has made it.
    pub(crate) is_of_sql: bool,
}

/// What the session has.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) cursors: Vec<CursorShown>,
    pub(crate) statements: Vec<StatementShown>,
}

/// What statements ask of their own session while they are bound.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<Asked>);

#[derive(Debug, Default)]
enum Asked {
    #[default]
    Nothing,
    Wanted,
    Known(Arc<Shown>),
}

impl Questions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the session has; `None`: it is told when the statement is bound next.
    pub(crate) fn ask(&self) -> Option<Arc<Shown>> {
        let mut asked = self.lock();
        if let Asked::Known(shown) = &*asked {
            return Some(shown.clone());
        }
        *asked = Asked::Wanted;
        None
    }

    fn is_wanted(&self) -> bool {
        matches!(*self.lock(), Asked::Wanted)
    }
}

impl<P: Protocol> Connection<P> {
    /// Whether a statement that could not be bound has asked what the session has: it is told now, and is to be bound again.
    pub(crate) fn answer_question(&self) -> bool {
        let questions = &self.session.drawn().questions;
        if !questions.is_wanted() {
            return false;
        }
        let (cursors, statements) = (self.cursors_shown(), self.statements_shown());
        *questions.lock() = Asked::Known(Shown { cursors, statements }.into());
        true
    }

    /// The statement is bound: the next one asks anew.
    pub(crate) fn forget_answer(&self) {
        *self.session.drawn().questions.lock() = Asked::Nothing;
    }

    fn cursors_shown(&self) -> Vec<CursorShown> {
        let now = self.session.now().unwrap_or_default();
        let shown = |portal: &crate::portals::Portal| CursorShown {
            name: portal.name.clone(),
            text: portal.text().into(),
            is_held: portal.is_held(),
            is_scrollable: portal.declaration().is_some_and(|declared| declared.way != Way::Forward),
            since: portal.declaration().map_or(now, |declared| declared.since),
        };
        self.session.portals.iter().map(shown).collect()
    }
}
