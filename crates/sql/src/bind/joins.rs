//! FROM: tables, subqueries and joins, and which index answers their conditions.

use sqlparser::ast::{self, TableFactor};

use super::system::Relation;
use super::{Binder, Scope, ScopeColumn, Written, folded};
use crate::catalog::Object;
use crate::computed::TABLE_ID;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::paths;
use crate::plan::{JoinKind, Node, Scan, all_of, conjuncts};
use crate::roles::bits;
use crate::types::Type;

/// How many tables a FROM may have.
const MOST_TABLES: usize = 100;

/// What a FROM gives.
pub(super) struct Source {
    pub(super) node: Node,
    pub(super) scope: Scope,
}

impl Binder<'_> {
    pub(super) fn from(&mut self, from: &[ast::TableWithJoins]) -> Result<Source, SqlError> {
        // Plans lean to the left as joins do, and are walked down to their ends.
        let count = from.iter().map(|item| 1 + item.joins.len()).sum::<usize>();
        if count > MOST_TABLES {
            let message = format!("a FROM has at most {MOST_TABLES} tables");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        let start = std::mem::replace(&mut self.from_start, self.scopes.len());
        let all = from.iter().try_fold(None, |all: Option<Source>, item| {
            let Some(left) = all else { return self.joins(item).map(Some) };
            let right = self.beside(&left, |binder| binder.joins(item))?;
            joined(left, right, None, Form::Kind(JoinKind::Inner)).map(Some)
        });
        self.from_start = start;
        Ok(all?.unwrap_or(Source { node: Node::Nothing, scope: Scope::default() }))
    }

    /// The rows of `left`, each with all rows of a FROM that does not see it.
    pub(super) fn crossed(&mut self, left: Source, from: &[ast::TableWithJoins]) -> Result<Source, SqlError> {
        let right = self.beside(&left, |binder| binder.from(from))?;
        joined(left, right, None, Form::Kind(JoinKind::Inner))
    }

    fn joins(&mut self, item: &ast::TableWithJoins) -> Result<Source, SqlError> {
        let mut source = self.factor(&item.relation)?;
        for join in &item.joins {
            source = self.join(source, join)?;
        }
        Ok(source)
    }

    /// Binds the right side of a join: to it the left row is the next outer one, which is seen by what is `LATERAL`.
    fn beside<O>(&mut self, left: &Source, bind: impl FnOnce(&mut Self) -> Result<O, SqlError>) -> Result<O, SqlError> {
        self.within(Scope { is_aside: true, ..left.scope.clone() }, bind)
    }

    /// Binds what stands in FROM, which sees what is to its left if it is `LATERAL`.
    pub(super) fn seeing<O>(
        &mut self,
        is_lateral: bool,
        bind: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        let start = self.from_start;
        let aside: Vec<_> = (start..self.scopes.len()).filter(|&at| is_lateral && self.scopes[at].is_aside).collect();
        aside.iter().for_each(|&at| self.scopes[at].is_aside = false);
        let bound = bind(self);
        aside.iter().for_each(|&at| self.scopes[at].is_aside = true);
        bound
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<Source, SqlError> {
        match factor {
            TableFactor::Table {
                name, alias, args: None, version: None, sample: None, with_ordinality: false, ..
            } => self.relation(name, alias.as_ref()),
            TableFactor::Table { name, alias, args: Some(arguments), with_ordinality, .. } => {
                let name = super::calls::function_name(name)?;
                let parts = arguments_of(&name, &arguments.args)?;
                self.function_in_from(&[(name, parts)], *with_ordinality, alias.as_ref())
            }
            TableFactor::Function { name, alias, args, with_ordinality, .. } => {
                let name = super::calls::function_name(name)?;
                let parts = arguments_of(&name, args)?;
                self.function_in_from(&[(name, parts)], *with_ordinality, alias.as_ref())
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality, .. } => {
                let calls: Vec<_> = array_exprs.iter().map(|expr| ("unnest".to_owned(), vec![expr])).collect();
                self.function_in_from(&calls, *with_ordinality, alias.as_ref())
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let Some(alias) = alias else {
                    let message = "subquery in FROM must have an alias";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                };
                let bound = self.seeing(*lateral, |binder| binder.query(subquery))?;
                let columns = bound.columns.into_iter().map(|column| (column.name, column.of)).collect();
                Ok(Source { node: bound.node, scope: scope_of(&folded(&alias.name), columns, Some(alias))? })
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joins(table_with_joins),
            other => Err(SqlError::unsupported(format!("{other} in FROM"))),
        }
    }

    /// A table, a view, a sequence, a relation of the system, or a query of `WITH`.
    fn relation(&mut self, name: &ast::ObjectName, alias: Option<&ast::TableAlias>) -> Result<Source, SqlError> {
        let is_plain = name.0.len() == 1;
        self.count_relations(1)?;
        if is_plain && let Some(bound) = self.named_query(name)? {
            let own = super::plain_name(name)?;
            let named = alias.map_or(own, |alias| folded(&alias.name));
            let columns = bound.columns.into_iter().map(|column| (column.name, column.of)).collect();
            return Ok(Source { node: bound.node, scope: scope_of(&named, columns, alias)? });
        }
        if let Some(Relation { schema, name: own, node, columns }) = self.system_relation(name)? {
            let named = alias.map_or(own, |alias| folded(&alias.name));
            let mut scope = scope_of(&named, columns, alias)?;
            scope.columns.iter_mut().for_each(|column| column.is_hidden = column.name == TABLE_ID);
            let scope = if alias.is_none() { scope.in_schema(schema) } else { scope };
            return Ok(Source { node, scope });
        }
        let found = self.catalog.find_written(&Written::of(name)?)?;
        if let Some((_, Object::Sequence(sequence))) = &found {
            return self.sequence_row(sequence, alias);
        }
        if let Some((own, Object::Table(_) | Object::View(_))) = &found {
            self.catalog.trace_table(name, own, alias.is_some());
        }
        if let Some((_, Object::View(view))) = found {
            let need = self.catalog.need(Object::View(view.clone()), bits::SELECT);
            let bound = self.view(&view)?;
            self.catalog.named.borrow_mut().retain(|name| !view.about.contains(name));
            self.catalog.named.borrow_mut().push(view.name.clone());
            let named = alias.map_or_else(|| view.name.plain().to_owned(), |alias| folded(&alias.name));
            let columns = bound.columns.into_iter().map(|column| (column.name, column.of)).collect();
            let mut scope = scope_of(&named, columns, alias)?;
            if alias.is_none() {
                scope = scope.in_schema(view.name.schema());
            }
            Self::originate(&mut scope, need);
            return Ok(Source { node: bound.node, scope });
        }
        let table = self.catalog.written_table(name)?;
        let named = alias.map_or_else(|| table.name.plain().to_owned(), |alias| folded(&alias.name));
        let columns = table.columns.iter().map(|column| (column.name.clone(), column.of));
        let mut scope = scope_of(&named, columns.collect(), alias)?;
        if alias.is_none() {
            scope = scope.in_schema(table.name.schema());
        }
        Self::originate(&mut scope, self.catalog.need(Object::Table(table.clone()), bits::SELECT));
        let origins = scope.columns.iter_mut().enumerate();
        origins.for_each(|(at, column)| {
            column.origin = Some((table.clone(), at));
            column.is_hidden = table.columns[at].is_hidden;
        });
        let node = Node::Scan(Scan::whole(&table));
        Ok(Source { node, scope })
    }

    /// Functions, whose rows stand side by side.
    fn function_in_from(
        &mut self,
        functions: &[(String, Vec<&ast::Expr>)],
        has_numbers: bool,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Source, SqlError> {
        if let ([(name, arguments)], false) = (functions, has_numbers)
            && let Some(form) = super::json_records::form(name)
        {
            return self.rows_of_json(name, form, arguments, alias);
        }
        super::json_records::check_untyped(alias)?;
        let (mut calls, mut columns) = (Vec::new(), Vec::new());
        let named = match (alias, functions) {
            (Some(alias), _) => folded(&alias.name),
            (None, [(name, _), ..]) => name.clone(),
            _ => String::new(),
        };
        let is_one = functions.len() == 1;
        for (name, arguments) in functions {
            let arguments = arguments
                .iter()
                .map(|expr| self.seeing(true, |binder| binder.within(Scope::default(), |binder| binder.expr(expr))));
            let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
            let is_of_integers = arguments.iter().all(|it| matches!(it.base(), Type::Int2 | Type::Int4 | Type::Int8));
            if name == "generate_series"
                && is_one
                && is_of_integers
                && (2..=3).contains(&arguments.len())
                && !has_numbers
            {
                return self.series(arguments, &named, alias);
            }
            let call = self.plain_call(name, arguments)?;
            match functions::columns_of(name) {
                Some(of) => {
                    for (column, own) in of {
                        // A function of one column that is not a parameter gives it the name of the table.
                        let name = if is_one && column == name { named.clone() } else { (*column).to_owned() };
                        columns.push((name, own.map_or(call.of, Into::into)));
                    }
                    calls.push((call.expr, of.len()));
                }
                None if is_one && !has_numbers => {
                    let node = Node::Project { input: Box::new(Node::Nothing), columns: vec![call.expr] };
                    return Ok(Source {
                        node,
                        scope: scalar(scope_of(&named, vec![(named.clone(), call.of)], alias)?),
                    });
                }
                None => return Err(SqlError::unsupported(format!("the function {name} in FROM"))),
            }
        }
        if has_numbers {
            columns.push(("ordinality".to_owned(), Type::Int8.into()));
        }
        let is_scalar = columns.len() == 1;
        let scope = scope_of(&named, columns, alias)?;
        let scope = if is_scalar { scalar(scope) } else { scope };
        Ok(Source { node: Node::Expand { input: Box::new(Node::Nothing), calls, has_numbers }, scope })
    }

    /// `generate_series` of integers, which are not kept.
    fn series(
        &mut self,
        mut bound: Vec<Typed>,
        named: &str,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Source, SqlError> {
        if bound.len() < 3 {
            bound.push(super::literals::constant(Datum::Int(1), Type::Int4));
        }
        let (parts, of) = self.alike("generate_series", bound)?;
        let of = if of.base == Type::Int2 { Type::Int4 } else { of.base };
        let Ok(parts) = <[Expr; 3]>::try_from(parts) else { return Err(SqlError::unsupported("generate_series")) };
        let scope = scalar(scope_of(named, vec![(named.to_owned(), of.into())], alias)?);
        Ok(Source { node: Node::Series(Box::new(parts)), scope })
    }

    fn join(&mut self, left: Source, join: &ast::Join) -> Result<Source, SqlError> {
        use ast::JoinOperator::{CrossJoin, FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
        let (constraint, form) = match &join.join_operator {
            Join(constraint) | Inner(constraint) | CrossJoin(constraint) => (constraint, Form::Kind(JoinKind::Inner)),
            Left(constraint) | LeftOuter(constraint) => (constraint, Form::Kind(JoinKind::Left)),
            Right(constraint) | RightOuter(constraint) => (constraint, Form::Right),
            FullOuter(constraint) => (constraint, Form::Kind(JoinKind::Full)),
            _ => return Err(SqlError::unsupported(format!("{join}"))),
        };
        let mut right = self.beside(&left, |binder| binder.factor(&join.relation))?;
        if !matches!(form, Form::Kind(JoinKind::Inner | JoinKind::Left)) && right.node.looks_at(Some(1)) {
            return Err(SqlError::unsupported(format!("LATERAL in {join}")));
        }
        match constraint {
            ast::JoinConstraint::None => joined(left, right, None, form),
            ast::JoinConstraint::On(condition) => {
                let scope = left.scope.clone().joined(right.scope.clone())?;
                let on = self.within(scope, |binder| {
                    binder.place = "JOIN conditions";
                    binder.condition(condition, "JOIN/ON")
                })?;
                joined(left, right, Some(on), form)
            }
            ast::JoinConstraint::Using(names) => {
                let names = names.iter().map(super::plain_name).collect::<Result<Vec<_>, _>>()?;
                self.join_using(left, right, &names, form)
            }
            ast::JoinConstraint::UsingAlias(..) => Err(SqlError::unsupported("an alias behind USING")),
            ast::JoinConstraint::Natural => {
                let is_of_right =
                    |name: &String| right.scope.columns.iter().any(|it| !it.is_hidden && it.name == *name);
                let names = left.scope.columns.iter().filter(|it| !it.is_hidden).map(|it| it.name.clone());
                let names: Vec<_> = names.filter(is_of_right).collect();
                self.join_using(left, right, &names, form)
            }
        }
    }

    /// Columns of the same names are equal, and stand in front as one.
    fn join_using(&mut self, left: Source, right: Source, names: &[String], form: Form) -> Result<Source, SqlError> {
        let width = left.scope.columns.len();
        let (mut parts, mut columns, mut merged) = (Vec::new(), Vec::new(), Vec::new());
        let mut hidden = Vec::new();
        for name in names {
            let (one, other) = (in_using(&left.scope, name, "left")?, in_using(&right.scope, name, "right")?);
            let sides = vec![
                Typed::new(Expr::Column(one), left.scope.columns[one].of),
                Typed::new(Expr::Column(width + other), right.scope.columns[other].of),
            ];
            self.catalog.reads(left.scope.columns[one].need);
            self.catalog.reads(right.scope.columns[other].need);
            parts.push(self.equality(sides.clone())?);
            let (values, of) = self.alike("JOIN/USING", sides)?;
            let [of_left, of_right] = &values[..] else { continue };
            columns.push(match form {
                Form::Right => of_right.clone(),
                Form::Kind(JoinKind::Full) => Expr::Coalesce(values.into()),
                Form::Kind(_) => of_left.clone(),
            });
            let own = &left.scope.columns[one];
            let origin = match (form, &own.table) {
                (Form::Kind(JoinKind::Inner | JoinKind::Left), Some(_)) => own.origin.clone(),
                _ => None,
            };
            merged.push(ScopeColumn { origin, ..ScopeColumn::new(None, name, of) });
            hidden.extend([one, width + other]);
        }
        let Source { node, scope } = joined(left, right, all_of(parts), form)?;
        columns.extend((0..scope.columns.len()).map(Expr::Column));
        let all = scope.columns.into_iter().enumerate();
        merged.extend(all.map(|(at, it)| ScopeColumn { is_hidden: it.is_hidden || hidden.contains(&at), ..it }));
        Ok(Source { node: Node::Project { input: Box::new(node), columns }, scope: Scope::of(merged) })
    }
}

fn arguments_of<'e>(name: &str, arguments: &'e [ast::FunctionArg]) -> Result<Vec<&'e ast::Expr>, SqlError> {
    let exprs = arguments.iter().map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Ok(expr),
        other => Err(SqlError::unsupported(format!("the argument {other} of {name} in FROM"))),
    });
    exprs.collect()
}

/// How two sides are joined.
#[derive(Clone, Copy)]
enum Form {
    Kind(JoinKind),
    Right,
}

/// The only column of this name.
fn in_using(scope: &Scope, name: &str, side: &str) -> Result<usize, SqlError> {
    let mut found = scope.columns.iter().enumerate().filter(|(_, column)| column.name == name && !column.is_hidden);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at),
        (None, _) => {
            let message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
        }
        _ => {
            let message = format!("common column name \"{name}\" appears more than once in {side} table");
            Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message))
        }
    }
}

/// The columns of a table or a subquery in FROM, renamed where the alias says so.
pub(super) fn scope_of(
    table: &str,
    columns: Vec<(String, crate::types::ColumnType)>,
    alias: Option<&ast::TableAlias>,
) -> Result<Scope, SqlError> {
    let renamed = alias.map_or(&[][..], |alias| &alias.columns);
    if renamed.len() > columns.len() {
        let message = format!(
            "table \"{table}\" has {} columns available but {} columns specified",
            columns.len(),
            renamed.len()
        );
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    let columns = columns.into_iter().enumerate().map(|(at, (name, of))| {
        let name = renamed.get(at).map_or(name, |column| folded(&column.name));
        ScopeColumn::new(Some(table), &name, of)
    });
    Ok(Scope::of(columns))
}

/// The column of a function of one value.
fn scalar(mut scope: Scope) -> Scope {
    scope.columns.iter_mut().for_each(|column| column.is_scalar = true);
    scope
}

fn joined(left: Source, right: Source, on: Option<Expr>, form: Form) -> Result<Source, SqlError> {
    let (left_width, right_width) = (left.scope.columns.len(), right.scope.columns.len());
    let scope = left.scope.joined(right.scope)?;
    let mut parts = Vec::new();
    on.into_iter().for_each(|on| conjuncts(on, &mut parts));
    let (mut left, mut right) = (left.node, right.node);
    let node = match form {
        Form::Kind(kind) => join_of(left, right, parts, (kind, left_width, right_width)),
        Form::Right => {
            // The sides change places, and so do their columns.
            left.shift(1);
            right.shift(-1);
            let moved = |at: usize| if at < left_width { at + right_width } else { at - left_width };
            for part in &mut parts {
                moved_columns(part, &moved);
            }
            let input = Box::new(join_of(right, left, parts, (JoinKind::Left, right_width, left_width)));
            let columns = (0..left_width + right_width).map(|at| Expr::Column(moved(at))).collect();
            Node::Project { input, columns }
        }
    };
    Ok(Source { node, scope })
}

fn moved_columns(expr: &mut Expr, moved: &dyn Fn(usize) -> usize) {
    // Nothing in here fails.
    let _ = expr.replace(&mut |it| {
        if let Expr::Column(at) = it {
            *at = moved(*at);
        }
        Ok(false)
    });
}

fn join_of(
    left: Node,
    right: Node,
    parts: Vec<Expr>,
    (kind, left_width, right_width): (JoinKind, usize, usize),
) -> Node {
    let right = if kind == JoinKind::Full { right } else { looked_up(right, left_width, &parts) };
    Node::Join { left: Box::new(left), right: Box::new(right), on: all_of(parts), kind, right_width, keys: None }
}

/// Whether an expression looks at columns in this range alone.
fn is_within(expr: &Expr, range: std::ops::Range<usize>) -> bool {
    let mut is_within = true;
    expr.walk(&mut |it| is_within &= !matches!(it, Expr::Column(at) if !range.contains(at)));
    is_within
}

/// Decides of each join how the right side is found: by an index, else by values that are equal, of which its rows are kept.
pub(super) fn kept_by_keys(node: Node) -> Node {
    let within = |node: Box<Node>| Box::new(kept_by_keys(*node));
    match node {
        Node::Filter { input, condition } => Node::Filter { input: within(input), condition },
        Node::Project { input, columns } => Node::Project { input: within(input), columns },
        Node::Join { left, right, on, kind, right_width, keys: None } => {
            let (left, mut right) = (within(left), within(right));
            let is_found = matches!(&*right, Node::Scan(scan) if scan.path.is_narrow());
            if is_found || right.looks_at(Some(1)) {
                return Node::Join { left, right, on, kind, right_width, keys: None };
            }
            let width = left.width();
            let mut parts = Vec::new();
            on.into_iter().for_each(|on| conjuncts(on, &mut parts));
            let of_right = width..width + right_width;
            let mut keys = Vec::new();
            for part in &parts {
                let Expr::Call(function, sides) = part else { continue };
                let ("=", [one, other]) = (function.name, &**sides) else { continue };
                let is_pair =
                    |left: &Expr, right: &Expr| is_within(left, 0..width) && is_within(right, of_right.clone());
                if is_pair(one, other) {
                    keys.push((one.clone(), beyond(other.clone(), width)));
                } else if is_pair(other, one) {
                    keys.push((other.clone(), beyond(one.clone(), width)));
                }
            }
            if kind != JoinKind::Full {
                let looks = |part: &Expr| !part.is_known() && is_within(part, of_right.clone());
                let (own, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(looks);
                let own: Vec<_> = own.into_iter().map(|part| beyond(part, width)).collect();
                right = Box::new(if own.is_empty() { *right } else { filtered(*right, own) });
                parts = others;
            }
            let is_kept = kind == JoinKind::Full || !keys.is_empty();
            Node::Join { left, right, on: all_of(parts), kind, right_width, keys: is_kept.then_some(keys) }
        }
        other => other,
    }
}

/// An expression over both sides as one over the right side, which sees the left row as the next outer one.
pub(crate) fn beyond(mut expr: Expr, left_width: usize) -> Expr {
    let _ = expr.replace(&mut |it| {
        match it {
            Expr::Column(at) if *at < left_width => *it = Expr::Outer { level: 1, column: *at },
            Expr::Column(at) => *at -= left_width,
            Expr::Outer { level, .. } => *level += 1,
            _ => {}
        }
        Ok(false)
    });
    expr
}

/// Finds the rows of the right side by key, where the condition says what its columns are equal to.
fn looked_up(right: Node, left_width: usize, parts: &[Expr]) -> Node {
    let Node::Scan(scan) = right else { return right };
    if scan.path.is_narrow() {
        return Node::Scan(scan);
    }
    let column_of = |at: usize| at.checked_sub(left_width).and_then(|at| scan.columns.get(at).copied());
    let is_of_left = |expr: &Expr| is_within(expr, 0..left_width);
    let mut path = paths::choose(&scan.table, parts, &column_of, &is_of_left);
    let values = path.equal.iter_mut().chain(path.lower.iter_mut().chain(&mut path.upper).map(|(value, _)| value));
    values.for_each(|value| *value = beyond(std::mem::replace(value, Expr::NULL), left_width));
    Node::Scan(Scan { path, ..scan })
}

/// The rows of which all parts hold. A scan of one table takes the index that fits; in a join the parts of the left side go there.
pub(crate) fn filtered(node: Node, parts: Vec<Expr>) -> Node {
    match node {
        Node::Scan(mut scan) => {
            let column_of = |at: usize| scan.columns.get(at).copied();
            scan.path = paths::choose(&scan.table, &parts, &column_of, &Expr::is_known);
            with_filter(Node::Scan(scan), parts)
        }
        Node::Join { left, right, on, kind: JoinKind::Inner, right_width, keys: None } => {
            let width = left.width();
            let mut both: Vec<Expr> = parts;
            on.into_iter().for_each(|on| conjuncts(on, &mut both));
            let (of_left, others): (Vec<_>, Vec<_>) = both.into_iter().partition(|part| is_within(part, 0..width));
            join_of(filtered(*left, of_left), *right, others, (JoinKind::Inner, width, right_width))
        }
        Node::Join { left, right, on, kind: JoinKind::Left, right_width, keys } => {
            let width = left.width();
            let (of_left, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| is_within(part, 0..width));
            let left = Box::new(filtered(*left, of_left));
            with_filter(Node::Join { left, right, on, kind: JoinKind::Left, right_width, keys }, others)
        }
        Node::Project { input, columns } => {
            // Over columns as they are, a condition is one over the rows below.
            let is_plain = |part: &Expr| {
                let mut is_plain = true;
                part.walk(&mut |it| {
                    is_plain &= !matches!(it, Expr::Column(at) if !matches!(columns[*at], Expr::Column(_)));
                });
                is_plain
            };
            let (mut below, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_plain);
            let moved = |at: usize| if let Expr::Column(below) = columns[at] { below } else { at };
            below.iter_mut().for_each(|part| moved_columns(part, &moved));
            with_filter(Node::Project { input: Box::new(filtered(*input, below)), columns }, others)
        }
        other => with_filter(other, parts),
    }
}

fn with_filter(node: Node, parts: Vec<Expr>) -> Node {
    match all_of(parts) {
        Some(condition) => Node::Filter { input: Box::new(node), condition },
        None => node,
    }
}
