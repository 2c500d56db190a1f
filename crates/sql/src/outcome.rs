//! What statements answer.

use crate::datum::OwnedDatum;
use crate::error::SqlState;
use crate::plan::Plan;
use crate::rows::ColumnOrigin;
use crate::text::{self, Zone};
use crate::types::{Bound, ColumnType, Type};

/// What a statement has done.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What PostgreSQL calls it: `INSERT 0 2`, `SELECT 3`, `ROLLBACK`. Empty where the text has no statement.
    pub tag: String,
    /// Rows that were changed, or answered.
    pub count: u64,
    /// Whether it has rows to answer, even if these have no columns.
    pub is_query: bool,
    /// Names and types of the columns of its rows.
    pub columns: Vec<(String, Type)>,
    /// What the types of its columns allow of values; empty: anything.
    pub bounds: Vec<Bound>,
    /// The columns of tables that they are; empty: none is.
    pub origins: Vec<Option<ColumnOrigin>>,
    /// The rows.
    pub rows: Vec<Vec<OwnedDatum>>,
    /// What the client is to know, although nothing has failed.
    pub notices: Vec<Notice>,
    /// In which zone its values are shown.
    pub(crate) zone: Zone,
}

/// A column of what a statement answers.
#[derive(Clone, Debug)]
pub(crate) struct OutputColumn {
    pub(crate) name: String,
    pub(crate) of: ColumnType,
    /// The column of a table that it is, if it is one.
    pub(crate) origin: Option<ColumnOrigin>,
}

impl OutputColumn {
    pub(crate) fn new(name: impl Into<String>, of: impl Into<ColumnType>) -> Self {
        Self { name: name.into(), of: of.into(), origin: None }
    }
}

/// A remark about a statement that has not failed.
#[derive(Clone, Debug)]
pub struct Notice {
    /// `WARNING` or `NOTICE`.
    pub severity: &'static str,
    /// The code.
    pub state: SqlState,
    /// The text.
    pub message: String,
    /// What says more.
    pub detail: Option<String>,
    /// Advice.
    pub hint: Option<String>,
}

impl Notice {
    pub(crate) fn warning(state: SqlState, message: impl Into<String>) -> Self {
        Self { severity: "WARNING", state, message: message.into(), detail: None, hint: None }
    }

    pub(crate) fn remark(state: SqlState, message: impl Into<String>) -> Self {
        Self { severity: "NOTICE", state, message: message.into(), detail: None, hint: None }
    }
}

/// What an answer is called, but for its count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tag {
    #[default]
    None,
    /// With the count behind it.
    Counted(&'static str),
    /// As it is.
    Fixed(Box<str>),
}

impl Plan {
    /// The statement that it is.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Query { .. } => "SELECT",
            Self::Insert { .. } => "INSERT",
            Self::Update { .. } => "UPDATE",
            Self::Delete { .. } => "DELETE",
            Self::With(with) => with.plan.verb(),
            Self::Merge(_) => "MERGE",
            Self::Truncate(_) => "TRUNCATE TABLE",
            Self::Lock => "LOCK TABLE",
            Self::Call(_) => "CALL",
            Self::Analyze(analyzed) => analyzed.plan.verb(),
        }
    }
}

impl Tag {
    /// The verb of a query.
    pub(crate) const QUERY: &'static str = "SELECT";

    pub(crate) fn of(plan: &Plan) -> Self {
        match plan {
            Plan::Insert { .. } => Self::Counted("INSERT 0"),
            Plan::With(with) => Self::of(&with.plan),
            Plan::Truncate(_) | Plan::Lock | Plan::Call(_) => Self::Fixed(plan.verb().into()),
            Plan::Analyze(_) => Self::Fixed("EXPLAIN".into()),
            _ => Self::Counted(plan.verb()),
        }
    }

    /// The whole tag.
    pub(crate) fn text(&self, count: u64) -> String {
        match self {
            Self::None => String::new(),
            Self::Counted(verb) => format!("{verb} {count}"),
            Self::Fixed(text) => text.to_string(),
        }
    }
}

impl Outcome {
    /// The outcome of a statement without rows.
    pub(crate) fn tagged(tag: impl Into<String>) -> Self {
        Self { tag: tag.into(), ..Self::default() }
    }

    /// The rows as text, as PostgreSQL shows values; NULL is `None`.
    pub fn texts(&self) -> impl Iterator<Item = Vec<Option<String>>> {
        let zone = &self.zone;
        self.rows.iter().map(move |row| {
            let shown = row.iter().zip(&self.columns).map(|(value, (_, of))| {
                let value = value.get();
                (!value.is_null()).then(|| {
                    let mut shown = String::new();
                    text::write(*of, value, zone, &mut shown);
                    shown
                })
            });
            shown.collect()
        })
    }
}
