//! Plans: trees of operators.

use std::sync::Arc;

use hashbrown::HashMap;
use polychron_base::TableId;

use crate::bind::{Aggregate, Window, WindowCall};
use crate::catalog::{ForeignKey, Table};
use crate::changing::{Merge, With};
use crate::datum::{Datum, OwnedDatum};
pub(crate) use crate::explain::Analyzed;
use crate::expr::Expr;
use crate::functions::Function;
pub(crate) use crate::outcome::OutputColumn;
pub(crate) use crate::paths::{Path, Scan};
use crate::sequences::Drawn;

/// An operator, which gives rows.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// One row without columns.
    Nothing,
    /// Rows of expressions over no row.
    Rows(Vec<Vec<Expr>>),
    /// The statement's parameters as rows, whose values are for these columns of a table.
    Given(Vec<usize>),
    Scan(Scan),
    /// The integers from the first expression to the second one, as many steps apart as the third one says.
    Series(Box<[Expr; 3]>),
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
        kind: JoinKind,
        right_width: usize,
        /// What is equal on both sides, each over the rows of its side. If it is there, the right side looks at no left row, and its rows are kept by
        /// these values; else it runs for each left row.
        keys: Option<Vec<(Expr, Expr)>>,
    },
    /// Groups of equal values, then their aggregates, for each set of the groups' positions: others are NULL. A set of none gives one row, whatever comes in.
    Aggregate {
        input: Box<Node>,
        groups: Vec<Expr>,
        sets: Vec<Vec<usize>>,
        aggregates: Vec<Aggregate>,
    },
    /// The rows, each followed by what these calls give in its window.
    Window {
        input: Box<Node>,
        window: Box<Window>,
        calls: Vec<WindowCall>,
    },
    /// The rows, each as often as the longest of these calls gives rows, followed by the calls' columns, of which there are as many as stand beside
    /// the call, and the number of the row, from 1.
    Expand {
        input: Box<Node>,
        calls: Vec<(Expr, usize)>,
        has_numbers: bool,
    },
    Sort {
        input: Box<Node>,
        keys: Vec<SortKey>,
    },
    /// The first row of those with equal keys, or of those that are equal.
    Distinct {
        input: Box<Node>,
        keys: Option<Vec<Expr>>,
    },
    /// `EXCEPT`, or `INTERSECT`.
    Without {
        left: Box<Node>,
        right: Box<Node>,
        is_except: bool,
        is_all: bool,
    },
    /// Rows that are computed once a statement, by a number; they look at no row around.
    Kept {
        id: usize,
        input: Arc<Node>,
        width: usize,
    },
    /// The rows of `first`, and those of `step` as long as there are new ones, which it finds at the `Working` node of this number.
    Recursive {
        id: usize,
        first: Box<Node>,
        step: Box<Node>,
        is_all: bool,
    },
    Working {
        id: usize,
        width: usize,
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
            Self::Series(_) => 1,
            Self::Rows(rows) => rows.first().map_or(0, Vec::len),
            Self::Given(columns) | Self::Scan(Scan { columns, .. }) => columns.len(),
            Self::Filter { input, .. } | Self::Sort { input, .. } => input.width(),
            Self::Distinct { input, .. } | Self::Limit { input, .. } => input.width(),
            Self::Without { left, .. } | Self::Recursive { first: left, .. } => left.width(),
            Self::Kept { width, .. } | Self::Working { width, .. } => *width,
            Self::Project { columns, .. } => columns.len(),
            Self::Join { left, right_width, .. } => left.width() + right_width,
            Self::Aggregate { groups, aggregates, .. } => groups.len() + aggregates.len(),
            Self::Window { input, calls, .. } => input.width() + calls.len(),
            Self::Expand { input, calls, has_numbers } => {
                input.width() + calls.iter().map(|(_, width)| width).sum::<usize>() + usize::from(*has_numbers)
            }
            Self::Append(inputs) => inputs.first().map_or(0, Self::width),
        }
    }

    /// Calls `visit` with each expression in it and the number of rows inside of this node that are outer ones to the expression.
    pub(crate) fn each_expr(&mut self, depth: usize, visit: &mut dyn FnMut(&mut Expr, usize)) {
        let mut each = |expr: &mut Expr| visit(expr, depth);
        match self {
            Self::Nothing | Self::Given(_) | Self::Kept { .. } | Self::Working { .. } => {}
            Self::Rows(rows) => rows.iter_mut().flatten().for_each(each),
            Self::Series(parts) => parts.iter_mut().for_each(each),
            Self::Scan(scan) => {
                let bounds = scan.path.lower.iter_mut().chain(&mut scan.path.upper).map(|(value, _)| value);
                scan.path.equal.iter_mut().chain(bounds).for_each(each);
            }
            Self::Filter { input, condition } => {
                each(condition);
                input.each_expr(depth, visit);
            }
            Self::Project { input, columns } => {
                columns.iter_mut().for_each(each);
                input.each_expr(depth, visit);
            }
            Self::Join { left, right, on, keys, .. } => {
                on.iter_mut().for_each(each);
                for (of_left, of_right) in keys.iter_mut().flatten() {
                    visit(of_left, depth);
                    visit(of_right, depth + 1);
                }
                left.each_expr(depth, visit);
                right.each_expr(depth + 1, visit);
            }
            Self::Aggregate { input, groups, aggregates, .. } => {
                groups.iter_mut().chain(aggregates.iter_mut().flat_map(Aggregate::parts_mut)).for_each(each);
                input.each_expr(depth, visit);
            }
            Self::Expand { input, calls, .. } => {
                calls.iter_mut().map(|(call, _)| call).for_each(each);
                input.each_expr(depth, visit);
            }
            Self::Window { input, window, calls } => {
                window.parts_mut().chain(calls.iter_mut().flat_map(WindowCall::own_parts_mut)).for_each(each);
                input.each_expr(depth, visit);
            }
            Self::Sort { input, keys } => {
                keys.iter_mut().for_each(|key| each(&mut key.expr));
                input.each_expr(depth, visit);
            }
            Self::Distinct { input, keys } => {
                keys.iter_mut().flatten().for_each(each);
                input.each_expr(depth, visit);
            }
            Self::Without { left, right, .. } | Self::Recursive { first: left, step: right, .. } => {
                left.each_expr(depth, visit);
                right.each_expr(depth, visit);
            }
            Self::Limit { input, limit, offset } => {
                limit.iter_mut().chain(offset).for_each(each);
                input.each_expr(depth, visit);
            }
            Self::Append(inputs) => inputs.iter_mut().for_each(|input| input.each_expr(depth, visit)),
        }
    }

    /// Whether its rows come in this order by themselves, from an index that has it. An index that has the opposite order is read backward from now on.
    pub(crate) fn is_sorted(&mut self, keys: &[SortKey]) -> bool {
        let order = |key: &SortKey| {
            let Expr::Column(at) = key.expr else { return None };
            Some(Order { at, is_descending: key.is_descending, nulls_first: key.nulls_first })
        };
        let Some(keys) = keys.iter().map(order).collect::<Option<Vec<_>>>() else { return false };
        if self.is_ordered_by(keys.clone()) {
            return true;
        }
        let turned = keys.into_iter().map(Order::turned).collect();
        let is_opposite = self.is_ordered_by(turned);
        if is_opposite {
            self.read_backward();
        }
        is_opposite
    }

    fn is_ordered_by(&self, mut keys: Vec<Order>) -> bool {
        match self {
            _ if keys.is_empty() => true,
            Self::Filter { input, .. } | Self::Distinct { input, .. } => input.is_ordered_by(keys),
            Self::Project { input, columns } => {
                for key in &mut keys {
                    let Expr::Column(below) = columns[key.at] else { return false };
                    key.at = below;
                }
                input.is_ordered_by(keys)
            }
            // What a full join adds comes last.
            Self::Join { left, kind: JoinKind::Inner | JoinKind::Left, .. } => {
                keys.iter().all(|key| key.at < left.width()) && left.is_ordered_by(keys)
            }
            Self::Scan(scan) => scan.is_ordered_by(&keys),
            _ => false,
        }
    }

    /// Turns the order that [`Node::is_ordered_by`] has found.
    fn read_backward(&mut self) {
        match self {
            Self::Filter { input, .. } | Self::Distinct { input, .. } | Self::Project { input, .. } => {
                input.read_backward()
            }
            Self::Join { left, .. } => left.read_backward(),
            Self::Scan(scan) => scan.path.is_backward = !scan.path.is_backward,
            _ => {}
        }
    }
}

/// How rows are sorted by a column.
#[derive(Clone, Copy)]
struct Order {
    at: usize,
    is_descending: bool,
    nulls_first: bool,
}

impl Order {
    fn turned(self) -> Self {
        Self { is_descending: !self.is_descending, nulls_first: !self.nulls_first, ..self }
    }
}

impl Scan {
    fn is_ordered_by(&self, keys: &[Order]) -> bool {
        let index = &self.table.indexes[self.path.index];
        let source = |column: usize| self.table.source(column);
        let (equal, rest) = index.columns.split_at(self.path.equal.len());
        let mut rest = rest.iter().enumerate();
        index.is_ordered
            && keys.iter().all(|key| {
                let key = if self.path.is_backward { key.turned() } else { *key };
                let column = self.columns[key.at];
                // One value has any order.
                equal.iter().any(|own| source(*own) == column)
                    || rest.next().is_some_and(|(position, own)| {
                        let position = equal.len() + position;
                        let nulls_first = !index.orders.get(position).copied().unwrap_or_default().nulls_last;
                        let has_nulls = self.table.columns[column].nullable;
                        source(*own) == column
                            && index.is_ascending(position) != key.is_descending
                            && (!has_nulls || nulls_first == key.nulls_first)
                    })
            })
    }
}

/// Which rows without a match a join keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinKind {
    Inner,
    Left,
    Full,
}

/// A query in an expression. It sees one outer row: the values of its inputs.
#[derive(Clone)]
pub(crate) struct Subquery {
    /// Its number in the statement.
    pub(crate) id: usize,
    pub(crate) node: Node,
    /// What it looks at of the rows around it. Where there is nothing, it is answered once a statement.
    pub(crate) inputs: Vec<Expr>,
    pub(crate) question: Question,
}

/// What is wanted of a subquery.
#[derive(Clone)]
pub(crate) enum Question {
    /// The value of its row, of which there is one at most.
    Value,
    /// Whether there is a row.
    Exists,
    /// An array of the values of its rows, which are arrays themselves or not.
    Array { is_nested: bool },
    /// Whether all comparisons hold for some row, or for every row.
    Any { comparisons: Vec<(&'static Function, Expr)>, needs_all: bool },
}

impl std::fmt::Debug for Subquery {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Subquery {}{:?}", self.id, self.inputs)
    }
}

impl Subquery {
    /// The query as one of its own: what it looks at of the rows around becomes its inputs.
    pub(crate) fn new(id: usize, mut node: Node, question: Question) -> Self {
        let mut inputs = Vec::new();
        let mut seen = Vec::new();
        node.each_outer(&mut |it, depth| {
            let Expr::Outer { level, column } = it else { return };
            let around = (*level - depth, *column);
            let at = seen.iter().position(|own| *own == around).unwrap_or_else(|| {
                seen.push(around);
                inputs.push(match around {
                    (1, column) => Expr::Column(column),
                    (level, column) => Expr::Outer { level: level - 1, column },
                });
                seen.len() - 1
            });
            *it = Expr::Outer { level: depth + 1, column: at };
        });
        Self { id, node, inputs, question }
    }

    /// The expressions over the row around it.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Expr> {
        let values = match &self.question {
            Question::Any { comparisons, .. } => &comparisons[..],
            _ => &[],
        };
        self.inputs.iter().chain(values.iter().map(|(_, value)| value))
    }

    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let values = match &mut self.question {
            Question::Any { comparisons, .. } => &mut comparisons[..],
            _ => &mut [],
        };
        self.inputs.iter_mut().chain(values.iter_mut().map(|(_, value)| value))
    }
}

impl Node {
    /// Makes rows around this node lie so many levels farther or, if fewer than none, nearer.
    pub(crate) fn shift(&mut self, by: isize) {
        self.each_outer(&mut |it, _| {
            if let Expr::Outer { level, .. } = it {
                *level = level.wrapping_add_signed(by);
            }
        });
    }

    /// Whether it looks at the row this many levels out, or at any row around where `level` is `None`.
    pub(crate) fn looks_at(&mut self, wanted: Option<usize>) -> bool {
        let mut looks = false;
        self.each_outer(&mut |it, depth| {
            looks |= matches!(it, Expr::Outer { level, .. } if wanted.is_none_or(|wanted| *level - depth == wanted));
        });
        looks
    }

    /// Calls `visit` with each reference to a row around this node, and the number of outer rows that lie inside of it.
    pub(crate) fn each_outer(&mut self, visit: &mut dyn FnMut(&mut Expr, usize)) {
        self.each_expr(0, &mut |expr, depth| {
            // Nothing in here fails.
            let _ = expr.replace(&mut |it| {
                let is_around = matches!(it, Expr::Outer { level, .. } if *level > depth);
                if is_around {
                    visit(it, depth);
                }
                Ok(is_around)
            });
        });
    }
}

/// What rows are sorted by.
#[derive(Clone, Debug)]
pub(crate) struct SortKey {
    pub(crate) expr: Expr,
    pub(crate) is_descending: bool,
    pub(crate) nulls_first: bool,
}

impl SortKey {
    /// Rising, with NULLs at the end.
    pub(crate) const fn rising(expr: Expr) -> Self {
        Self { expr, is_descending: false, nulls_first: false }
    }
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
        keys: Arc<ForeignKeys>,
        on_conflict: OnConflict,
        returning: Option<Returning>,
    },
    /// `source` gives all columns of the rows, followed by the new values of the columns that are set and what RETURNING sees beside.
    Update {
        table: Arc<Table>,
        source: Node,
        /// A row may come several times, and is changed once.
        is_joined: bool,
        set: Vec<usize>,
        checks: Vec<Condition>,
        keys: Arc<ForeignKeys>,
        returning: Option<Returning>,
    },
    /// `source` gives all columns of the rows, followed by what RETURNING sees beside.
    Delete {
        table: Arc<Table>,
        source: Node,
        is_joined: bool,
        keys: Arc<ForeignKeys>,
        returning: Option<Returning>,
    },
    With(Box<With>),
    Merge(Box<Merge>),
    /// All rows of the tables.
    Truncate(Vec<(Arc<Table>, Node)>),
    /// LOCK TABLE: the tables are noted as those of a statement that reads them.
    Lock,
    Call(Arc<crate::procedures::Call>),
    /// The plan is run, and answers with what it has done.
    Analyze(Box<Analyzed>),
}

/// The foreign keys that a change of a table may lead to: by the tables, which may be the same again.
#[derive(Debug, Default)]
pub(crate) struct ForeignKeys {
    pub(crate) tables: HashMap<TableId, TableKeys>,
    /// The connection that is told what its transaction has to look at before it commits.
    pub(crate) drawn: Option<Arc<Drawn>>,
    /// The rows are a batch of a COPY: parents in the same table may come later.
    pub(crate) is_copy: bool,
}

/// The foreign keys that lead from a table and to it, and its CHECKs.
#[derive(Debug)]
pub(crate) struct TableKeys {
    pub(crate) checks: Vec<Condition>,
    pub(crate) parents: Vec<Arc<Link>>,
    pub(crate) children: Vec<Arc<Link>>,
}

/// A foreign key between two tables.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) key: ForeignKey,
    pub(crate) child: Arc<Table>,
    pub(crate) parent: Arc<Table>,
    /// Its columns in the child, and those of the key in the parent.
    pub(crate) columns: Vec<usize>,
    pub(crate) parents: Vec<usize>,
    /// The parent, and the children, of values that are the next outer row.
    pub(crate) find_parent: Node,
    pub(crate) find_children: Node,
    /// The same of values of the table's own, where those have another form than the other table's.
    pub(crate) find_by_own: Option<[Node; 2]>,
    /// The defaults of the child's columns, and the parent's values as ones of these columns.
    pub(crate) defaults: Vec<Expr>,
    pub(crate) converted: Vec<Expr>,
}

impl Link {
    /// What finds the parent, and the children, of values of the child or of the parent.
    pub(crate) fn parent_node(&self, is_of_child: bool) -> &Node {
        self.find_by_own.as_ref().filter(|_| !is_of_child).map_or(&self.find_parent, |[parent, _]| parent)
    }

    pub(crate) fn children_node(&self, is_of_child: bool) -> &Node {
        self.find_by_own.as_ref().filter(|_| is_of_child).map_or(&self.find_children, |[_, children]| children)
    }
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
    /// The query whose rows are the lines of a plan.
    pub(crate) fn in_words(plan: &Self, is_planned: bool) -> Self {
        let lines = crate::explain::lines(plan, is_planned).into_iter();
        let rows = lines.map(|line| vec![Expr::Constant(OwnedDatum::Text(line.into()))]).collect();
        Self::Query { node: Node::Rows(rows), columns: explained() }
    }

    /// The plan that runs another one, and tells what that has done.
    pub(crate) fn analyzing(plan: Self, has_summary: bool) -> Self {
        Self::Analyze(Box::new(Analyzed { plan, columns: explained(), has_summary }))
    }

    /// The columns of the rows that it answers with.
    pub(crate) fn columns(&self) -> &[OutputColumn] {
        match self {
            Self::Query { columns, .. } => columns,
            Self::Truncate(_) | Self::Lock | Self::Merge(_) => &[],
            Self::With(with) => with.plan.columns(),
            Self::Call(call) => &call.columns,
            Self::Analyze(analyzed) => &analyzed.columns,
            Self::Insert { returning, .. } | Self::Update { returning, .. } | Self::Delete { returning, .. } => {
                returning.as_ref().map_or(&[], |returning| &returning.names)
            }
        }
    }
}

/// The column of what EXPLAIN answers.
fn explained() -> Vec<OutputColumn> {
    vec![OutputColumn::new("QUERY PLAN", crate::types::Type::Text)]
}

/// The parts of a condition that all have to hold.
pub(crate) fn conjuncts(condition: Expr, parts: &mut Vec<Expr>) {
    match condition {
        Expr::And(inner) => inner.into_iter().for_each(|part| conjuncts(part, parts)),
        Expr::Constant(ref value) if matches!(value.get(), Datum::Bool(true)) => {}
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
