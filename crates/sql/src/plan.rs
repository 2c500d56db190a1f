//! Plans: trees of operators.

use std::sync::Arc;

use crate::bind::Aggregate;
use crate::catalog::Table;
use crate::expr::Expr;
use crate::types::ColumnType;

/// A column of what a statement answers.
#[derive(Clone, Debug)]
pub(crate) struct OutputColumn {
    pub(crate) name: String,
    pub(crate) of: ColumnType,
}

/// An operator, which gives rows.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// One row without columns.
    Nothing,
    /// Rows of expressions over no row.
    Rows(Vec<Vec<Expr>>),
    Scan(Scan),
    Filter {
        input: Box<Node>,
        condition: Expr,
    },
    Project {
        input: Box<Node>,
        columns: Vec<Expr>,
    },
    /// Each row of the left side with those of the right side, which sees the left row as the next outer one.
    Join {
        left: Box<Node>,
        right: Box<Node>,
        on: Option<Expr>,
        is_outer: bool,
        right_width: usize,
    },
    /// Groups of equal values, then their aggregates. Without groups there is one row, whatever comes in.
    Aggregate {
        input: Box<Node>,
        groups: Vec<Expr>,
        aggregates: Vec<Aggregate>,
    },
    Sort {
        input: Box<Node>,
        keys: Vec<SortKey>,
    },
    /// Each row once.
    Distinct {
        input: Box<Node>,
    },
    Limit {
        input: Box<Node>,
        limit: Option<Expr>,
        offset: Option<Expr>,
    },
    /// The rows of each, one after the other.
    Append(Vec<Node>),
}

impl Node {
    /// How many columns its rows have.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Rows(rows) => rows.first().map_or(0, Vec::len),
            Self::Scan(scan) => scan.columns.len(),
            Self::Filter { input, .. } | Self::Sort { input, .. } => input.width(),
            Self::Distinct { input } | Self::Limit { input, .. } => input.width(),
            Self::Project { columns, .. } => columns.len(),
            Self::Join { left, right_width, .. } => left.width() + right_width,
            Self::Aggregate { groups, aggregates, .. } => groups.len() + aggregates.len(),
            Self::Append(inputs) => inputs.first().map_or(0, Self::width),
        }
    }

    /// Calls `visit` with each expression in it.
    pub(crate) fn each_expr(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match self {
            Self::Nothing => {}
            Self::Rows(rows) => rows.iter_mut().flatten().for_each(visit),
            Self::Scan(scan) => {
                let bounds = scan.path.lower.iter_mut().chain(&mut scan.path.upper).map(|(value, _)| value);
                scan.path.equal.iter_mut().chain(bounds).for_each(visit);
            }
            Self::Filter { input, condition } => {
                input.each_expr(visit);
                visit(condition);
            }
            Self::Project { input, columns } => {
                input.each_expr(visit);
                columns.iter_mut().for_each(visit);
            }
            Self::Join { left, right, on, .. } => {
                left.each_expr(visit);
                right.each_expr(visit);
                on.iter_mut().for_each(visit);
            }
            Self::Aggregate { input, groups, aggregates } => {
                input.each_expr(visit);
                groups.iter_mut().for_each(&mut *visit);
                for aggregate in aggregates {
                    aggregate.argument.iter_mut().for_each(|argument| visit(&mut argument.expr));
                    aggregate.filter.iter_mut().for_each(&mut *visit);
                }
            }
            Self::Sort { input, keys } => {
                input.each_expr(visit);
                keys.iter_mut().for_each(|key| visit(&mut key.expr));
            }
            Self::Distinct { input } => input.each_expr(visit),
            Self::Limit { input, limit, offset } => {
                input.each_expr(visit);
                limit.iter_mut().chain(offset).for_each(visit);
            }
            Self::Append(inputs) => inputs.iter_mut().for_each(|input| input.each_expr(visit)),
        }
    }
}

/// What rows are sorted by.
#[derive(Clone, Debug)]
pub(crate) struct SortKey {
    pub(crate) expr: Expr,
    pub(crate) is_descending: bool,
    pub(crate) nulls_first: bool,
}

/// Rows of a table.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) table: Arc<Table>,
    /// The columns that it gives, by their positions in the table.
    pub(crate) columns: Vec<usize>,
    pub(crate) path: Path,
}

/// Which rows of a table are looked at. The expressions look at no row of the table itself.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// The position of the index.
    pub(crate) index: usize,
    /// What the first columns of its key are equal to.
    pub(crate) equal: Vec<Expr>,
    /// The bounds of the column behind these, each with whether it is included.
    pub(crate) lower: Option<(Expr, bool)>,
    pub(crate) upper: Option<(Expr, bool)>,
}

impl Path {
    /// All rows, in the order of their primary keys.
    pub(crate) const ALL: Self = Self { index: 0, equal: Vec::new(), lower: None, upper: None };
}

/// A statement that can be executed.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    Query {
        node: Node,
        columns: Vec<OutputColumn>,
    },
    /// Rows of all columns of the table.
    Insert {
        table: Arc<Table>,
        source: Node,
        checks: Vec<Condition>,
        on_conflict: OnConflict,
        returning: Option<Returning>,
    },
    /// `source` gives all columns of the rows, followed by the new values of the columns that are set.
    Update {
        table: Arc<Table>,
        source: Node,
        set: Vec<usize>,
        checks: Vec<Condition>,
        returning: Option<Returning>,
    },
    /// `source` gives all columns of the rows.
    Delete {
        table: Arc<Table>,
        source: Node,
        returning: Option<Returning>,
    },
    /// All rows of the tables.
    Truncate(Vec<(Arc<Table>, Node)>),
}

/// A CHECK: its name, and what may be NULL but not false of a row.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) holds: Expr,
}

/// What is done when there is a row of the key already.
#[derive(Clone, Debug)]
pub(crate) enum OnConflict {
    Fail,
    /// Nothing, where the key is one of any index, or of the one at this position.
    Skip(Option<usize>),
    /// The row that has the key of an index is changed.
    Update(OnConflictUpdate),
}

/// The expressions are over the row that is there, followed by the one that was to be inserted.
#[derive(Clone, Debug)]
pub(crate) struct OnConflictUpdate {
    /// The position of the index.
    pub(crate) index: usize,
    pub(crate) set: Vec<usize>,
    pub(crate) values: Vec<Expr>,
    pub(crate) condition: Option<Expr>,
}

/// Expressions over a changed row.
#[derive(Clone, Debug)]
pub(crate) struct Returning {
    pub(crate) columns: Vec<Expr>,
    pub(crate) names: Vec<OutputColumn>,
}

impl Plan {
    /// The statement that it is.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Query { .. } => "SELECT",
            Self::Insert { .. } => "INSERT",
            Self::Update { .. } => "UPDATE",
            Self::Delete { .. } => "DELETE",
            Self::Truncate(_) => "TRUNCATE TABLE",
        }
    }

    /// The columns of the rows that it answers with.
    pub(crate) fn columns(&self) -> &[OutputColumn] {
        match self {
            Self::Query { columns, .. } => columns,
            Self::Truncate(_) => &[],
            Self::Insert { returning, .. } | Self::Update { returning, .. } | Self::Delete { returning, .. } => {
                returning.as_ref().map_or(&[], |returning| &returning.names)
            }
        }
    }
}

/// The parts of a condition that all have to hold.
pub(crate) fn conjuncts(condition: Expr, parts: &mut Vec<Expr>) {
    match condition {
        Expr::And(inner) => inner.into_iter().for_each(|part| conjuncts(part, parts)),
        Expr::Constant(ref value) if matches!(value.get(), crate::datum::Datum::Bool(true)) => {}
        other => parts.push(other),
    }
}

/// The condition that all parts hold, if there are any.
pub(crate) fn all_of(mut parts: Vec<Expr>) -> Option<Expr> {
    match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(Expr::And(parts.into())),
    }
}
