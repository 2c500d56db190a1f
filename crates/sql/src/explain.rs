//! EXPLAIN: a plan in words, in PostgreSQL's form without costs.

use polychron_base::Abort;
use sqlparser::ast;

use crate::bind::{AggregateKind, WindowFunction};
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::exec::futures;
use crate::exec::profile::{Counts, Profile};
use crate::expr::Expr;
use crate::outcome::Outcome;
use crate::plan::{JoinKind, Node, OutputColumn, Plan, Scan, SortKey};
use crate::text::{Zone, write};
use crate::types::Type;
use crate::watch::Activity;

/// What EXPLAIN ANALYZE runs.
#[derive(Clone, Debug)]
pub(crate) struct Analyzed {
    pub(crate) plan: Plan,
    pub(crate) columns: Vec<OutputColumn>,
    /// Whether it tells of the transaction, too.
    pub(crate) has_summary: bool,
}

/// The column of what EXPLAIN answers.
fn explained() -> Vec<OutputColumn> {
    vec![OutputColumn::new("QUERY PLAN", Type::Text)]
}

impl Plan {
    /// The query whose rows are the lines of a plan.
    pub(crate) fn in_words(plan: &Self, is_planned: bool) -> Self {
        let lines = lines(plan, is_planned).into_iter();
        let rows = lines.map(|line| vec![Expr::Constant(OwnedDatum::Text(line.into()))]).collect();
        Self::Query { node: Node::Rows(rows), columns: explained(), is_explained: true }
    }

    /// The plan that runs another one, and tells what that has done.
    pub(crate) fn analyzing(plan: Self, has_summary: bool) -> Self {
        Self::Analyze(Box::new(Analyzed { plan, columns: explained(), has_summary }))
    }
}

/// What is wanted of EXPLAIN.
pub(crate) struct Wanted {
    /// The statement runs.
    pub(crate) is_run: bool,
    /// What its transaction has done is told, too.
    pub(crate) has_summary: bool,
}

/// What the options ask for.
///
/// # Errors
/// [`SqlError::unsupported`] where that is not known: times, and what pages cost.
pub(crate) fn wanted(analyze: bool, options: &[ast::UtilityOption]) -> Result<Wanted, SqlError> {
    let name = |option: &ast::UtilityOption| option.name.value.to_lowercase();
    let is_off = |option: &ast::UtilityOption| {
        let value = option.arg.as_ref().map_or_else(String::new, ToString::to_string).to_lowercase();
        matches!(value.as_str(), "off" | "false" | "0")
    };
    let last = |wanted: &str| options.iter().rfind(|option| name(option) == wanted).map(|option| !is_off(option));
    let is_run = last("analyze").unwrap_or(analyze);
    let refused = options.iter().find(|option| match name(option).as_str() {
        "analyze" | "costs" | "verbose" | "settings" | "summary" => false,
        "timing" | "buffers" => is_run && !is_off(option),
        "format" => !option.arg.as_ref().is_some_and(|it| it.to_string().eq_ignore_ascii_case("text")),
        _ => !is_off(option),
    });
    if let Some(option) = refused {
        return Err(SqlError::unsupported(format!("EXPLAIN ({option})")));
    }
    Ok(Wanted { is_run, has_summary: last("summary").unwrap_or(true) })
}

/// The lines of a plan.
///
/// `is_planned`: the protocol plans it. What is declared of a call is told in any case.
pub(crate) fn lines(plan: &Plan, is_planned: bool) -> Vec<String> {
    let mut out = Out { lines: Vec::new(), profile: None, answered: 0, outer: Vec::new() };
    out.plan(plan);
    if is_planned || matches!(plan, Plan::Call(_)) {
        out.lines.extend(crate::declared::in_words(plan));
    }
    out.lines
}

/// The lines of a plan that has run, and has answered with so many rows.
pub(crate) fn analyzed(analyzed: &Analyzed, profile: &Profile, answered: u64) -> Vec<String> {
    let mut out = Out { lines: Vec::new(), profile: Some(profile), answered, outer: Vec::new() };
    out.plan(&analyzed.plan);
    if analyzed.has_summary {
        out.lines.push(format!("Rows Read: {}", profile.read()));
    }
    out.lines
}

/// The conflicts of a transaction: all are counted, and the first ones told.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// Nobody asks.
    is_ignored: bool,
    count: u64,
    first: Vec<String>,
}

/// How many conflicts are told.
const TOLD: usize = 20;

impl Conflicts {
    /// None so far, of a transaction of these plans.
    pub(crate) fn of<'p>(mut plans: impl Iterator<Item = &'p Plan>) -> Self {
        Self { is_ignored: !plans.any(|plan| matches!(plan, Plan::Analyze(_))), ..Self::default() }
    }

    pub(crate) fn note(&mut self, abort: &Abort, activity: &Activity) {
        self.count += 1;
        activity.note_conflict(abort, self.count);
        if self.is_ignored {
            return;
        }
        if self.first.len() < TOLD {
            self.first.push(format!("  Conflict: {}", crate::names::in_words(&abort.to_string())));
        }
    }

    /// Adds what is said of a transaction that has committed to the answers of its statements.
    pub(crate) fn tell<'p>(&self, plans: impl Iterator<Item = &'p Plan>, outcomes: &mut [Outcome]) {
        for (plan, outcome) in plans.zip(outcomes) {
            outcome.rows.extend(self.lines(plan).into_iter().map(|line| vec![OwnedDatum::Text(line.into())]));
        }
    }

    /// What is said of a transaction that ran this statement, and has committed.
    pub(crate) fn lines(&self, plan: &Plan) -> Vec<String> {
        match plan {
            Plan::Analyze(analyzed) if analyzed.has_summary => {
                std::iter::once(format!("Attempts: {}", self.count + 1)).chain(self.first.iter().cloned()).collect()
            }
            _ => Vec::new(),
        }
    }
}

struct Out<'p> {
    lines: Vec<String>,
    /// What the operators have done, if they have run.
    profile: Option<&'p Profile>,
    /// The rows that the plan has answered with.
    answered: u64,
    /// What the columns of the rows around are called, the next one last.
    outer: Vec<Vec<String>>,
}

/// What columns are called: those of the row, and of the rows around, the next one last.
#[derive(Clone, Copy, Default)]
struct Names<'n> {
    own: &'n [String],
    outer: &'n [Vec<String>],
}

impl<'n> From<&'n Vec<String>> for Names<'n> {
    fn from(own: &'n Vec<String>) -> Self {
        Self { own, outer: &[] }
    }
}

impl Names<'_> {
    /// A column of a row around, the next of which has level 1.
    fn of_outer(self, level: usize, column: usize) -> String {
        let row = self.outer.len().checked_sub(level).and_then(|at| self.outer.get(at));
        row.and_then(|row| row.get(column)).cloned().unwrap_or_else(|| format!("outer{level}.column{}", column + 1))
    }
}

/// The names of a node's columns.
fn names_of(node: &Node) -> Vec<String> {
    match node {
        Node::Scan(scan) => scan.columns.iter().map(|&at| scan.table.columns[at].name.clone()).collect(),
        Node::Project { input, columns } => {
            let names = names_of(input);
            columns.iter().map(|expr| in_words(expr, (&names).into())).collect()
        }
        Node::Filter { input, .. }
        | Node::Sort { input, .. }
        | Node::Distinct { input, .. }
        | Node::Limit { input, .. } => names_of(input),
        Node::Join { left, right, .. } => [names_of(left), names_of(right)].concat(),
        Node::Aggregate { input, groups, aggregates, .. } => {
            let names = names_of(input);
            let own = aggregates
                .iter()
                .map(|it| call_in_words(&format!("{:?}", it.kind).to_lowercase(), &it.arguments, (&names).into()));
            groups.iter().map(|expr| in_words(expr, (&names).into())).chain(own).collect()
        }
        other => (1..=other.width()).map(|at| format!("column{at}")).collect(),
    }
}

fn call_in_words(name: &str, arguments: &[Expr], names: Names<'_>) -> String {
    format!("{name}({})", list(arguments, names))
}

fn list<'e>(exprs: impl IntoIterator<Item = &'e Expr>, names: Names<'_>) -> String {
    exprs.into_iter().map(|expr| in_words(expr, names)).collect::<Vec<_>>().join(", ")
}

fn constant(value: &OwnedDatum) -> String {
    let of = match value.get() {
        Datum::Null => return "NULL".to_owned(),
        Datum::Bool(value) => return value.to_string(),
        Datum::Int(value) => return value.to_string(),
        Datum::Timestamp(_) => Type::Timestamp,
        Datum::Array(_) => Type::Texts,
        _ => Type::Text,
    };
    let mut text = String::new();
    write(of, value.get(), &Zone::utc(), &mut text);
    if matches!(value.get(), Datum::Float(_) | Datum::Numeric(_) | Datum::Wide(_)) {
        text
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// An expression over columns of these names.
fn in_words(expr: &Expr, names: Names<'_>) -> String {
    let part = |expr: &Expr| in_words(expr, names);
    let joined = |parts: &[Expr], by: &str| format!("({})", parts.iter().map(part).collect::<Vec<_>>().join(by));
    match expr {
        Expr::Constant(value) => constant(value),
        Expr::Parameter(number) => format!("${}", number + 1),
        Expr::Column(at) => names.own.get(*at).cloned().unwrap_or_else(|| format!("column{}", at + 1)),
        Expr::Outer { level, column } => names.of_outer(*level, *column),
        Expr::Call(function, arguments) if !function.name.starts_with(|it: char| it.is_ascii_alphabetic()) => {
            match &arguments[..] {
                [left, right] => format!("({} {} {})", part(left), function.name, part(right)),
                _ => format!("({} {})", function.name, list(arguments, names)),
            }
        }
        Expr::Call(function, arguments) if function.name == crate::sort_keys::SORT_KEY.name => list(arguments, names),
        Expr::Call(function, arguments) => call_in_words(function.name, arguments, names),
        Expr::Cast(_, inner) => part(inner),
        Expr::Bounded(of, _, inner) => format!("({})::{of}", part(inner)),
        Expr::And(parts) => joined(parts, " AND "),
        Expr::Or(parts) => joined(parts, " OR "),
        Expr::Not(inner) => format!("(NOT {})", part(inner)),
        Expr::IsNull(inner) => format!("({} IS NULL)", part(inner)),
        Expr::Is(value, inner) => format!("({} IS {})", part(inner), value.to_string().to_uppercase()),
        Expr::Distinct(pair) => format!("({} IS DISTINCT FROM {})", part(&pair.0), part(&pair.1)),
        Expr::Case { .. } => "CASE".to_owned(),
        Expr::Coalesce(parts) => call_in_words("COALESCE", parts, names),
        Expr::NullIf(pair) => format!("NULLIF({}, {})", part(&pair.0), part(&pair.1)),
        Expr::Extreme { is_greatest, of } => call_in_words(if *is_greatest { "GREATEST" } else { "LEAST" }, of, names),
        Expr::Any { needs_all, value, list: parts, .. } => {
            let sign = if *needs_all { "<> ALL" } else { "= ANY" };
            format!("({} {sign} (ARRAY[{}]))", part(value), list(parts, names))
        }
        Expr::AnyItem { needs_all, pair, .. } => {
            let sign = if *needs_all { "ALL" } else { "ANY" };
            format!("({} = {sign} ({}))", part(&pair.0), part(&pair.1))
        }
        Expr::Array { parts, .. } => format!("ARRAY[{}]", list(parts, names)),
        Expr::Lookup { of, .. } => part(of),
        Expr::Drawn(drawing, arguments) => call_in_words(drawing.draw.name(), arguments, names),
        Expr::Subquery(subquery) => format!("(SubPlan {})", subquery.id),
        Expr::Aggregate(at) | Expr::Window(at) | Expr::Set(at) => format!("column{}", at + 1),
    }
}

impl Out<'_> {
    fn plan(&mut self, plan: &Plan) {
        match plan {
            Plan::Query { node, .. } => self.node(node, 0),
            Plan::Insert { table, source, .. } => self.change("Insert", table.name.plain(), source),
            Plan::Update { table, source, .. } => {
                self.change("Update", table.name.plain(), source);
                if let Some(step) = futures::of_plan(plan) {
                    self.lines.insert(1, format!("  Future: {}", table.columns[step.column].name));
                }
            }
            Plan::Delete { table, source, .. } => self.change("Delete", table.name.plain(), source),
            Plan::With(with) => {
                self.plan(&with.plan);
                let parts = with.parts.iter().map(|(id, part)| (format!("  CTE {id}"), part));
                for (title, part) in parts.chain(with.last.iter().map(|part| ("  CTE".to_owned(), part))) {
                    self.lines.push(title);
                    let from = self.lines.len();
                    self.plan(part);
                    self.lines[from..].iter_mut().for_each(|line| line.insert_str(0, "    "));
                }
            }
            Plan::Merge(merge) => self.change("Merge", merge.table.name.plain(), &merge.source),
            Plan::Truncate(tables) => {
                tables.iter().for_each(|(table, source)| self.change("Truncate", table.name.plain(), source));
            }
            Plan::Lock => {}
            Plan::Analyze(analyzed) => self.plan(&analyzed.plan),
            Plan::Call(call) => {
                let title = call.unit.routines.first().map_or("", |routine| &routine.title);
                self.lines.push(format!("Call of {title}"));
            }
        }
    }

    /// The line of an operator, with what that has done.
    fn line(&mut self, depth: usize, text: &str, node: &Node) {
        let counts = self.profile.map(|profile| profile.of(node));
        self.counted(depth, text, counts);
    }

    fn counted(&mut self, depth: usize, text: &str, counts: Option<Counts>) {
        let done = match counts {
            None => String::new(),
            Some(Counts { loops: 0, .. }) => " (never executed)".to_owned(),
            Some(counts) => format!(" (actual rows={} loops={})", each(counts.rows, counts.loops), counts.loops),
        };
        let arrow = if depth == 0 { String::new() } else { format!("{}->  ", " ".repeat(depth * 6 - 4)) };
        self.lines.push(format!("{arrow}{text}{done}"));
    }

    /// Tells how many rows a filter has left out.
    fn left_out(&mut self, filter: &Node, input: &Node, depth: usize) {
        let Some(profile) = self.profile else { return };
        let (before, behind) = (profile.of(input), profile.of(filter));
        if behind.loops > 0 && before.rows > behind.rows {
            let each = each(before.rows - behind.rows, behind.loops);
            self.more(depth, format!("Rows Removed by Filter: {each}"));
        }
    }

    fn more(&mut self, depth: usize, text: String) {
        self.lines.push(format!("{}{text}", " ".repeat(depth * 6 + 2)));
    }

    fn change(&mut self, verb: &str, table: &str, source: &Node) {
        let counts = self.profile.map(|_| Counts { rows: self.answered, loops: 1 });
        self.counted(0, &format!("{verb} on {table}"), counts);
        self.node(source, 1);
    }

    fn node(&mut self, node: &Node, depth: usize) {
        match node {
            Node::Nothing => self.line(depth, "Result", node),
            Node::Rows(_) => self.line(depth, "Values Scan", node),
            Node::Series(_) => self.line(depth, "Function Scan on generate_series", node),
            Node::Scan(scan) => self.scan((scan, node), None, depth),
            Node::Filter { input, condition } => {
                match &**input {
                    Node::Scan(scan) => self.scan((scan, node), Some(condition), depth),
                    input => {
                        self.node(input, depth);
                        self.more(depth, format!("Filter: {}", in_words(condition, self.names(&names_of(input)))));
                    }
                }
                self.left_out(node, input, depth);
            }
            // What a list computes is no operator of its own.
            Node::Project { input, .. } => self.node(input, depth),
            Node::Join { .. } => self.join(node, depth),
            Node::Aggregate { .. } | Node::Window { .. } => self.gathered(node, depth),
            Node::Expand { input, .. } => {
                self.line(depth, "ProjectSet", node);
                self.node(input, depth + 1);
            }
            Node::Sort { input, keys } => {
                self.line(depth, "Sort", node);
                self.more(depth, format!("Sort Key: {}", order(keys, self.names(&names_of(input)))));
                self.node(input, depth + 1);
            }
            Node::Distinct { input, keys } => {
                self.line(depth, if keys.is_some() { "Unique" } else { "HashAggregate" }, node);
                self.node(input, depth + 1);
            }
            Node::Without { left, right, is_except, is_all } => {
                let all = if *is_all { " All" } else { "" };
                self.line(depth, &format!("HashSetOp {}{all}", if *is_except { "Except" } else { "Intersect" }), node);
                self.node(left, depth + 1);
                self.node(right, depth + 1);
            }
            Node::Kept { id, input, .. } => {
                self.line(depth, &format!("CTE Scan {id}"), node);
                self.node(input, depth + 1);
            }
            Node::Recursive { first, step, .. } => {
                self.line(depth, "Recursive Union", node);
                self.node(first, depth + 1);
                self.node(step, depth + 1);
            }
            Node::Given(_) => self.line(depth, "Copied Rows", node),
            Node::Working { id, .. } => self.line(depth, &format!("WorkTable Scan {id}"), node),
            Node::Limit { input, .. } => {
                self.line(depth, "Limit", node);
                self.node(input, depth + 1);
            }
            Node::Append(inputs) => {
                self.line(depth, "Append", node);
                inputs.iter().for_each(|input| self.node(input, depth + 1));
            }
        }
    }

    /// Groups and windows.
    fn gathered(&mut self, node: &Node, depth: usize) {
        match node {
            Node::Aggregate { input, groups, sets, .. } => {
                let name = if groups.is_empty() { "Aggregate" } else { "HashAggregate" };
                self.line(depth, name, node);
                let names = names_of(input);
                let is_one = sets.len() == 1;
                for set in sets.iter().filter(|_| !groups.is_empty()) {
                    let keys = list(set.iter().map(|&at| &groups[at]), self.names(&names));
                    let keys = if keys.is_empty() { "()".to_owned() } else { keys };
                    self.more(depth, format!("{}: {keys}", if is_one { "Group Key" } else { "Hash Key" }));
                }
                self.node(input, depth + 1);
            }
            Node::Window { input, calls, .. } => {
                self.line(depth, "WindowAgg", node);
                let has_aggregate = calls.iter().any(|call| matches!(&call.function, WindowFunction::Aggregate(it) if it.kind != AggregateKind::CountRows));
                if has_aggregate {
                    self.more(depth, "Frame: kept while it grows".to_owned());
                }
                self.node(input, depth + 1);
            }
            _ => {}
        }
    }

    fn join(&mut self, node: &Node, depth: usize) {
        let Node::Join { left, right, on, kind, keys, .. } = node else { return };
        let side = match kind {
            JoinKind::Inner => "",
            JoinKind::Left => " Left",
            JoinKind::Full => " Full",
        };
        let names = [names_of(left), names_of(right)].concat();
        let is_hashed = keys.as_ref().is_some_and(|keys| !keys.is_empty());
        let name = match is_hashed {
            true if side.is_empty() => "Hash Join".to_owned(),
            true => format!("Hash{side} Join"),
            false if side.is_empty() => "Nested Loop".to_owned(),
            false => format!("Nested Loop{side} Join"),
        };
        self.line(depth, &name, node);
        if let Some(on) = on {
            self.more(
                depth,
                format!(
                    "{}: {}",
                    if is_hashed { "Hash Cond" } else { "Join Filter" },
                    in_words(on, self.names(&names))
                ),
            );
        }
        self.node(left, depth + 1);
        self.outer.push(names_of(left));
        self.node(right, depth + 1);
        self.outer.pop();
    }

    /// The names of these columns, and of those around.
    fn names<'n>(&'n self, own: &'n [String]) -> Names<'n> {
        Names { own, outer: &self.outer }
    }

    /// A scan, whose line counts what this operator has done.
    fn scan(&mut self, (scan, node): (&Scan, &Node), condition: Option<&Expr>, depth: usize) {
        let index = &scan.table.indexes[scan.path.index];
        let names = names_of(&Node::Scan(scan.clone()));
        let backward = if scan.path.is_backward { " Backward" } else { "" };
        if !scan.path.is_narrow() && scan.path.is_backward {
            self.line(depth, &format!("Index Scan Backward using {} on {}", index.name, scan.table.name), node);
        } else if !scan.path.is_narrow() {
            self.line(depth, &format!("Seq Scan on {}", scan.table.name), node);
        } else {
            self.line(depth, &format!("Index Scan{backward} using {} on {}", index.name, scan.table.name), node);
            let column = |position: usize| scan.table.key_name(index.columns[position]);
            // That a row is one of those that the index is about is no condition of its own.
            let first = index.columns.len() - scan.table.keys(index).len();
            let equal = scan.path.equal.iter().enumerate().skip(first);
            let mut parts: Vec<_> =
                equal.map(|(at, value)| format!("({} = {})", column(at), in_words(value, self.names(&[])))).collect();
            let behind = scan.path.equal.len();
            let (is_ascending, has_next) = (index.is_ascending(behind), behind < index.columns.len());
            for (bound, is_lower) in [(&scan.path.lower, true), (&scan.path.upper, false)] {
                let Some((value, is_included)) = bound.as_ref().filter(|_| has_next) else { continue };
                let sign = if is_lower == is_ascending { ">" } else { "<" };
                let sign = if *is_included { format!("{sign}=") } else { sign.to_owned() };
                parts.push(format!("({} {sign} {})", column(behind), in_words(value, self.names(&[]))));
            }
            let all = if let [one] = &parts[..] { one.clone() } else { format!("({})", parts.join(" AND ")) };
            if !parts.is_empty() {
                self.more(depth, format!("Index Cond: {all}"));
            }
        }
        if let Some(condition) = condition {
            self.more(depth, format!("Filter: {}", in_words(condition, self.names(&names))));
        }
    }
}

/// How many each time, rounded.
fn each(all: u64, loops: u64) -> u64 {
    (all + loops / 2) / loops
}

fn order(keys: &[SortKey], names: Names<'_>) -> String {
    let keys = keys.iter().map(|key| {
        let direction = if key.is_descending { " DESC" } else { "" };
        let nulls = match (key.is_descending, key.nulls_first) {
            (false, true) => " NULLS FIRST",
            (true, false) => " NULLS LAST",
            _ => "",
        };
        format!("{}{direction}{nulls}", in_words(&key.expr, names))
    });
    keys.collect::<Vec<_>>().join(", ")
}
