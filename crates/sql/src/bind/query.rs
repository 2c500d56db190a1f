//! Queries.

use polychron_engine::mutations::left_out;
use sqlparser::ast::{self, SetExpr};

use super::comparable::{check_equal, check_ordered};
use super::groups::{Groups, above_groups, determined, grouping, over_groups};
use super::joins::{filtered, kept_by_keys};
use super::literals::constant;
use super::scope::{Qualifier, no_table};
use super::windows::{WindowCall, over_windows};
use super::{Behind, Binder, Scope, ScopeColumn, Written, folded};
use crate::casts::Place;
use crate::computed::is_own_name;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::parse::is_row_of_all;
use crate::plan::{Node, OutputColumn, SortKey, conjuncts};
use crate::steps::Step;
use crate::types::Type;

/// A query and the columns of its rows.
pub(crate) struct Query {
    pub(crate) node: Node,
    pub(crate) columns: Vec<OutputColumn>,
}

/// What a SELECT has behind its rows.
struct ListParts<'o> {
    list: Vec<(String, Typed)>,
    having: Option<Expr>,
    keys: Vec<(Expr, &'o ast::OrderByExpr)>,
    distinct_on: Vec<Expr>,
}

fn is_ungrouped(of: &ast::GroupByExpr) -> bool {
    matches!(of, ast::GroupByExpr::Expressions(groups, _) if groups.is_empty())
}

impl Binder<'_> {
    pub(crate) fn query(&mut self, query: &ast::Query) -> Result<Query, SqlError> {
        let known = self.tables.len();
        let noted = self.catalog.needs.borrow().len();
        let bound = self.with(query.with.as_ref()).and_then(|()| self.query_body(query));
        self.tables.truncate(known);
        if !query.locks.is_empty() {
            super::locks::check(query)?;
            self.catalog.locks(noted);
        }
        bound
    }

    /// A query whose rows are inserted: its columns may be of unknown type.
    pub(super) fn query_to_insert(&mut self, query: &ast::Query) -> Result<Query, SqlError> {
        let known = self.tables.len();
        let bound = self.with(query.with.as_ref()).and_then(|()| {
            let is_plain = query.order_by.is_none() && query.limit_clause.is_none();
            match &*query.body {
                SetExpr::Query(inner) if is_plain => return self.query_to_insert(inner),
                SetExpr::Select(select) => self.keeps_unknown = select.distinct.is_none(),
                _ => {}
            }
            self.query_body(query)
        });
        self.keeps_unknown = false;
        self.tables.truncate(known);
        bound
    }

    /// A query whose rows are answered: object ids are shown as names.
    pub(crate) fn whole_query(&mut self, query: &ast::Query) -> Result<Query, SqlError> {
        let Query { node, mut columns } = self.query(query)?;
        if !columns.iter().any(|column| column.of.base.is_object()) {
            return Ok(Query { node, columns });
        }
        let mut exprs = Vec::new();
        for (at, column) in columns.iter_mut().enumerate() {
            let typed = Typed::new(Expr::Column(at), column.of);
            if column.of.base.is_object() {
                column.of = Type::Text.into();
                exprs.push(self.cast(typed, Type::Text.into(), Place::Explicit)?.expr);
            } else {
                exprs.push(typed.expr);
            }
        }
        Ok(Query { node: Node::Project { input: Box::new(node), columns: exprs }, columns })
    }

    fn query_body(&mut self, query: &ast::Query) -> Result<Query, SqlError> {
        let order: &[_] = match &query.order_by {
            None => &[],
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(keys), interpolate: None }) => keys,
            Some(_) => return Err(SqlError::unsupported("ORDER BY ALL")),
        };
        let bound = match &*query.body {
            SetExpr::Select(select) => self.select(select, order)?,
            SetExpr::Values(values) => {
                let bound = self.values(values)?;
                self.sorted_by_output(bound, order)?
            }
            SetExpr::Query(inner) => {
                let bound = self.query(inner)?;
                self.sorted_by_output(bound, order)?
            }
            SetExpr::Table(table) => {
                let bound = self.query(&super::changing::table_query(table)?)?;
                self.sorted_by_output(bound, order)?
            }
            body => {
                let bound = self.set_operation(body)?;
                let is_name =
                    |key: &ast::OrderByExpr| matches!(key.expr, ast::Expr::Identifier(_) | ast::Expr::Value(_));
                if !order.iter().all(is_name) {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    ));
                }
                self.sorted_by_output(bound, order)?
            }
        };
        self.limited(bound, query.limit_clause.as_ref(), query.fetch.as_ref())
    }

    fn limited(
        &mut self,
        bound: Query,
        clause: Option<&ast::LimitClause>,
        fetch: Option<&ast::Fetch>,
    ) -> Result<Query, SqlError> {
        let one = ast::Expr::value(ast::Value::Number("1".to_owned(), false));
        let (limit, offset) = match clause {
            None if fetch.is_none() => return Ok(bound),
            None => (None, None),
            Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(other) => return Err(SqlError::unsupported(format!("{other}"))),
        };
        let limit = match fetch {
            None => limit,
            Some(ast::Fetch { with_ties: false, percent: false, quantity }) => Some(quantity.as_ref().unwrap_or(&one)),
            Some(other) => return Err(SqlError::unsupported(format!("{other}"))),
        };
        let mut count = |expr: Option<&ast::Expr>| {
            let bound = expr.map(|expr| {
                let typed = self.within(Scope::default(), |binder| binder.expr(expr))?;
                Ok::<_, SqlError>(self.cast(typed, Type::Int8.into(), Place::Assignment)?.expr)
            });
            bound.transpose()
        };
        let (limit, offset) = (count(limit)?, count(offset)?);
        let node = Node::Limit { input: Box::new(bound.node), limit, offset };
        Ok(Query { node, columns: bound.columns })
    }

    /// `VALUES`: rows of the columns' common types.
    pub(crate) fn values(&mut self, values: &ast::Values) -> Result<Query, SqlError> {
        let mut rows = Vec::new();
        for row in &values.rows {
            let bound = row.iter().map(|expr| self.within(Scope::default(), |binder| binder.expr(expr)));
            rows.push(bound.collect::<Result<Vec<_>, _>>()?);
        }
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != width) {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        let mut columns = Vec::new();
        let mut made = vec![Vec::with_capacity(width); rows.len()];
        for column in (0..width).rev() {
            let values = rows.iter_mut().map(|row| row.remove(column)).collect();
            let (values, of) = self.alike("VALUES", values)?;
            made.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
            columns.push(OutputColumn::new(format!("column{}", column + 1), of));
        }
        made.iter_mut().for_each(|row| row.reverse());
        columns.reverse();
        Ok(Query { node: Node::Rows(made), columns })
    }

    /// Sorts rows by their own columns, which keys name or count.
    pub(super) fn sorted_by_output(&mut self, bound: Query, order: &[ast::OrderByExpr]) -> Result<Query, SqlError> {
        if order.is_empty() {
            return Ok(bound);
        }
        let Query { node, columns } = bound;
        let named = columns.iter().map(|column| ScopeColumn::new(None, &column.name, column.of));
        let scope = Scope::of(named);
        let keys = order.iter().map(|key| {
            let expr = match position(&key.expr, columns.len(), "ORDER BY")? {
                Some(at) => Typed::new(Expr::Column(at), columns[at].of),
                None => self.within(scope.clone(), |binder| binder.expr(&key.expr))?,
            };
            check_ordered(expr.base())?;
            sort_key(expr.expr, key)
        });
        let keys = keys.collect::<Result<_, SqlError>>()?;
        Ok(Query { node: Node::Sort { input: Box::new(node), keys }, columns })
    }

    pub(super) fn select(&mut self, select: &ast::Select, order: &[ast::OrderByExpr]) -> Result<Query, SqlError> {
        check_select(select)?;
        let keeps_unknown = std::mem::replace(&mut self.keeps_unknown, false);
        let source = self.from(&select.from)?;
        let scope = source.scope.clone();
        let parts = match &select.selection {
            Some(condition) => self.within(scope.clone(), |binder| {
                binder.place = "WHERE";
                let mut parts = Vec::new();
                conjuncts(binder.condition(condition, "WHERE")?, &mut parts);
                Ok(parts)
            })?,
            None => Vec::new(),
        };
        let node = kept_by_keys(filtered(source.node, parts));
        self.keeps_unknown = keeps_unknown;
        let bound = self.within(scope, |binder| binder.select_list(select, node, order));
        self.keeps_unknown = false;
        bound
    }

    /// What stands behind the rows of a FROM: groups, the list, the order.
    fn select_list(
        &mut self,
        select: &ast::Select,
        input: Node,
        order: &[ast::OrderByExpr],
    ) -> Result<Query, SqlError> {
        let keeps_unknown = self.keeps_unknown;
        let around = (self.aggregates.replace(Vec::new()), self.behind.replace(Behind::default()));
        let named_windows = std::mem::take(&mut self.named_windows);
        let parts = self.list_parts(select, order);
        let (aggregates, windows) = (self.aggregates.take(), self.behind.take());
        (self.aggregates, self.behind) = around;
        self.named_windows = named_windows;
        let (mut aggregates, behind) = (aggregates.unwrap_or_default(), windows.unwrap_or_default());
        let Behind { mut windows, sets } = behind;
        let ListParts { mut list, mut having, mut keys, mut distinct_on } = parts?;
        self.place = "GROUP BY";
        let origins = self.origins(&list);
        let around = (self.aggregates.take(), self.behind.replace(Behind { sets, ..Behind::default() }));
        let groups = self.groups(&select.group_by, &list);
        let mut sets = self.behind.take().unwrap_or_default().sets;
        (self.aggregates, self.behind) = around;
        let mut groups = groups?;
        let is_grouped = !is_ungrouped(&select.group_by) || !aggregates.is_empty() || having.is_some();
        let mut node = input;
        if is_grouped {
            let scope = self.scopes.last().cloned().unwrap_or_default();
            let mut exprs: Vec<&mut Expr> = list.iter_mut().map(|(_, typed)| &mut typed.expr).collect();
            exprs.extend(having.iter_mut().chain(keys.iter_mut().map(|(expr, _)| expr)).chain(&mut distinct_on));
            exprs.extend(windows.iter_mut().flat_map(WindowCall::parts_mut));
            let determined = determined(exprs.iter().map(|expr| &**expr).chain(&sets), &groups.common(), &scope);
            self.catalog.note_grouped(&determined, &scope);
            groups.extend(determined);
            exprs.iter_mut().try_for_each(|expr| over_groups(expr, &groups.keys, &scope))?;
            let below = std::mem::take(&mut sets);
            sets = above_groups(&mut exprs, &below)?;
            sets.iter_mut().try_for_each(|expr| over_groups(expr, &groups.keys, &scope))?;
            aggregates.iter_mut().try_for_each(|aggregate| grouping(aggregate, &groups.keys))?;
            node = groups.expanded(node, below)?;
            let Groups { keys: groups, sets } = groups;
            node = Node::Aggregate { input: Box::new(node), groups, sets, aggregates };
        }
        if let Some(condition) = having {
            node = Node::Filter { input: Box::new(node), condition };
        }
        let exprs = list.iter_mut().map(|(_, typed)| &mut typed.expr).chain(keys.iter_mut().map(|(expr, _)| expr));
        let node = behind_groups(node, Behind { windows, sets }, exprs.chain(&mut distinct_on))?;
        let mut columns = Vec::new();
        let mut exprs = Vec::new();
        for ((name, typed), origin) in list.into_iter().zip(origins) {
            let typed = if keeps_unknown { typed } else { self.known(typed)? };
            columns.push(OutputColumn { name, of: typed.of, origin });
            exprs.push(typed.expr);
        }
        let once = match &select.distinct {
            None | Some(ast::Distinct::All) => Once::No,
            Some(ast::Distinct::Distinct) => {
                columns.iter().try_for_each(|column| check_equal(column.of.base))?;
                Once::Rows
            }
            Some(ast::Distinct::On(_)) => Once::Keys(distinct_on),
        };
        Ok(Query { node: ordered(node, exprs, keys, once)?, columns })
    }

    /// The list and what is bound beside it, where aggregates and window functions may stand.
    fn list_parts<'o>(
        &mut self,
        select: &ast::Select,
        order: &'o [ast::OrderByExpr],
    ) -> Result<ListParts<'o>, SqlError> {
        self.name_windows(&select.named_window)?;
        let mut list = Vec::new();
        for item in &select.projection {
            self.select_item(item, &mut list)?;
        }
        let having = match &select.having {
            Some(having) => {
                let windows = self.behind.take();
                let place = std::mem::replace(&mut self.place, "HAVING");
                let bound = self.condition(having, "HAVING");
                (self.behind, self.place) = (windows, place);
                Some(bound?)
            }
            None => None,
        };
        let mut keys = Vec::new();
        for key in order {
            keys.push((self.order_key(&key.expr, "ORDER BY", &list)?, key));
        }
        let mut distinct_on = Vec::new();
        if let Some(ast::Distinct::On(exprs)) = &select.distinct {
            for expr in exprs {
                distinct_on.push(self.order_key(expr, "SELECT DISTINCT ON", &list)?);
            }
        }
        Ok(ListParts { list, having, keys, distinct_on })
    }

    pub(super) fn select_item(
        &mut self,
        item: &ast::SelectItem,
        list: &mut Vec<(String, Typed)>,
    ) -> Result<(), SqlError> {
        match item {
            ast::SelectItem::UnnamedExpr(expr) if is_row_of_all(expr) => list.extend(self.all_fields(expr)?),
            ast::SelectItem::UnnamedExpr(expr) => {
                self.catalog.trace_item(expr);
                let typed = self.expr(expr)?;
                list.push((name_of(expr), typed));
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                let typed = self.expr(expr)?;
                list.push((folded(alias), typed));
            }
            ast::SelectItem::Wildcard(_) => self.all_columns(None, list)?,
            ast::SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let Written { schema, name } = Written::of(name)?;
                let schema = match schema {
                    Some(schema) => Some(self.catalog.schema(&schema)?.unwrap_or(schema)),
                    None => None,
                };
                self.all_columns(Some(Qualifier { schema: schema.as_deref(), table: &name }), list)?;
            }
            other => return Err(SqlError::unsupported(format!("{other}"))),
        }
        Ok(())
    }

    fn all_columns(&mut self, table: Option<Qualifier<'_>>, list: &mut Vec<(String, Typed)>) -> Result<(), SqlError> {
        let scope = self.scopes.last().cloned().unwrap_or_default();
        let all = match table {
            None if scope.columns.is_empty() => {
                let message = "SELECT * with no tables specified is not valid";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            None => scope.columns.iter().enumerate().filter(|(_, column)| !column.is_hidden).collect(),
            Some(table) => {
                let mut all = scope.of_table(table)?;
                if all.is_empty() {
                    return Err(no_table(&self.scopes, table));
                }
                // What USING hides is named so, and what SQL keeps for itself is not.
                all.retain(|(_, column)| !(column.is_hidden && is_own_name(&column.name)));
                all
            }
        };
        for (at, column) in all {
            self.catalog.reads(column.need);
            list.push((column.name.clone(), Typed::new(Expr::Column(at), column.of)));
        }
        Ok(())
    }

    /// What a key of ORDER BY stands for: a column of the list by name or position, or an expression over the rows.
    fn order_key(&mut self, key: &ast::Expr, place: &str, list: &[(String, Typed)]) -> Result<Expr, SqlError> {
        let bound = self.order_value(key, place, list)?;
        if place == "ORDER BY" {
            check_ordered(bound.base())?
        } else {
            check_equal(bound.base())?
        }
        Ok(bound.expr)
    }

    fn order_value(&mut self, key: &ast::Expr, place: &str, list: &[(String, Typed)]) -> Result<Typed, SqlError> {
        if let Some(at) = position(key, list.len(), place)? {
            return Ok(list[at].1.clone());
        }
        if let ast::Expr::Identifier(name) = key {
            let mut named = list.iter().filter(|(own, _)| *own == folded(name)).map(|(_, typed)| typed);
            if let Some(first) = named.next() {
                if named.all(|other| other.expr.is_same(&first.expr)) {
                    return Ok(first.clone());
                }
                let message = format!("{place} \"{}\" is ambiguous", folded(name));
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
            }
        }
        self.expr(key)
    }
}

/// The rows with windows and functions of several rows behind them, and expressions over these.
fn behind_groups<'e>(
    mut node: Node,
    Behind { windows, mut sets }: Behind,
    exprs: impl Iterator<Item = &'e mut Expr>,
) -> Result<Node, SqlError> {
    let mut columns = Vec::new();
    if !windows.is_empty() {
        (node, columns) = over_windows(node, windows);
    }
    let width = node.width();
    let replace = |expr: &mut Expr| {
        expr.replace(&mut |it| {
            match it {
                Expr::Window(at) => *it = Expr::Column(columns[*at]),
                Expr::Set(at) => *it = Expr::Column(width + *at),
                _ => return Ok(false),
            }
            Ok(true)
        })
    };
    sets.iter_mut().try_for_each(replace)?;
    for expr in exprs {
        replace(expr)?;
    }
    if sets.is_empty() {
        return Ok(node);
    }
    let calls = sets.into_iter().map(|call| (call, 1)).collect();
    Ok(Node::Expand { input: Box::new(node), calls, has_numbers: false })
}

/// Which clauses are not known yet.
fn check_select(select: &ast::Select) -> Result<(), SqlError> {
    let clauses = [
        (select.top.is_some(), "TOP"),
        (select.into.is_some(), "SELECT INTO"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.cluster_by.is_empty() || !select.distribute_by.is_empty() || !select.sort_by.is_empty(), "SORT BY"),
        (select.qualify.is_some(), "QUALIFY"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (select.exclude.is_some(), "EXCLUDE"),
    ];
    let found = clauses.into_iter().find(|(is_there, _)| *is_there);
    found.map_or(Ok(()), |(_, clause)| Err(SqlError::unsupported(clause)))
}

/// Which rows of a list are left out.
enum Once {
    No,
    /// Each row is there once.
    Rows,
    /// The first row of those in which these are equal.
    Keys(Vec<Expr>),
}

/// The list, sorted and each row once where that is asked for.
fn ordered(node: Node, exprs: Vec<Expr>, keys: Vec<(Expr, &ast::OrderByExpr)>, once: Once) -> Result<Node, SqlError> {
    if keys.is_empty() && matches!(once, Once::No) {
        return Ok(Node::Project { input: Box::new(node), columns: exprs });
    }
    // The keys stand behind the list, and go when the rows are sorted.
    let width = exprs.len();
    let mut columns = exprs;
    let mut add = |expr: Expr| {
        columns.iter().position(|own| own.is_same(&expr)).unwrap_or_else(|| {
            columns.push(expr);
            columns.len() - 1
        })
    };
    let mut sort = Vec::new();
    for (expr, key) in keys {
        sort.push(sort_key(Expr::Column(add(expr)), key)?);
    }
    let mut once_by: Vec<usize> = Vec::new();
    if let Once::Keys(keys) = &once {
        once_by.extend(keys.iter().cloned().map(add));
        check_distinct_on(&once_by, &mut sort)?;
    } else if matches!(once, Once::Rows) && columns.len() > width {
        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    let has_more = columns.len() > width;
    let mut node = Node::Project { input: Box::new(node), columns };
    if matches!(once, Once::Rows) {
        node = Node::Distinct { input: Box::new(node), keys: None };
    }
    if !node.is_sorted(&sort) {
        node = Node::Sort { input: Box::new(node), keys: sort };
    }
    if !once_by.is_empty() {
        let keys = once_by.into_iter().map(Expr::Column).collect();
        node = Node::Distinct { input: Box::new(node), keys: Some(keys) };
    }
    if has_more {
        node = Node::Project { input: Box::new(node), columns: (0..width).map(Expr::Column).collect() };
    }
    Ok(node)
}

/// `DISTINCT ON` needs its keys to be the first ones of the order, in any order among themselves; those that are not there come behind.
fn check_distinct_on(keys: &[usize], sort: &mut Vec<SortKey>) -> Result<(), SqlError> {
    let is_of = |key: &SortKey, at: usize| matches!(key.expr, Expr::Column(own) if own == at);
    let first = sort.iter().take_while(|key| keys.iter().any(|at| is_of(key, *at))).count();
    let missing: Vec<_> = keys.iter().filter(|at| !sort[..first].iter().any(|key| is_of(key, **at))).collect();
    if first < sort.len() && !missing.is_empty() {
        let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    let plain = |at: &usize| SortKey { expr: Expr::Column(*at), is_descending: false, nulls_first: false };
    sort.extend(missing.into_iter().map(plain));
    Ok(())
}

pub(super) fn sort_key(expr: Expr, key: &ast::OrderByExpr) -> Result<SortKey, SqlError> {
    let is_descending = match &key.options.sort {
        None | Some(ast::OrderBySort::Asc) => false,
        Some(ast::OrderBySort::Desc) => true,
        Some(ast::OrderBySort::Using(sign)) => match &*sign.to_string() {
            "<" => false,
            ">" => true,
            other => return Err(SqlError::unsupported(format!("ORDER BY USING {other}"))),
        },
    };
    let nulls_first = key.options.nulls_first.unwrap_or(is_descending != left_out(Step::NullsLast));
    Ok(SortKey { expr, is_descending, nulls_first })
}

/// The position that a number in ORDER BY or GROUP BY names, from 0 on.
pub(super) fn position(expr: &ast::Expr, width: usize, place: &str) -> Result<Option<usize>, SqlError> {
    let ast::Expr::Value(value) = expr else { return Ok(None) };
    let ast::Value::Number(digits, _) = &value.value else { return Ok(None) };
    let at = digits.parse::<usize>().ok().filter(|at| (1..=width).contains(at));
    let missing = || {
        let message = format!("{place} position {digits} is not in select list");
        SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
    };
    at.map(|at| Some(at - 1)).ok_or_else(missing)
}

/// The name that PostgreSQL gives a column of the list.
pub(super) fn name_of(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Identifier(name) => folded(name),
        ast::Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, folded),
        ast::Expr::Function(function) => Written::of(&function.name).map_or_else(|_| String::new(), |it| it.name),
        ast::Expr::Cast { expr, data_type, .. } => match name_of(expr) {
            name if name == "?column?" => super::types::name_of(data_type).unwrap_or(name),
            name => name,
        },
        ast::Expr::Nested(inner) => name_of(inner),
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().map(name_of) {
            Some(name) if name != "?column?" => name,
            _ => "case".to_owned(),
        },
        ast::Expr::Array(_) => "array".to_owned(),
        ast::Expr::CompoundFieldAccess { root, access_chain } => {
            let mut names = access_chain.iter().filter_map(|it| match it {
                ast::AccessExpr::Dot(ast::Expr::Identifier(name)) => Some(folded(name)),
                _ => None,
            });
            names.next_back().unwrap_or_else(|| name_of(root))
        }
        ast::Expr::Extract { .. } => "extract".to_owned(),
        ast::Expr::Overlay { .. } => "overlay".to_owned(),
        ast::Expr::AtTimeZone { .. } => "timezone".to_owned(),
        ast::Expr::Position { .. } => "position".to_owned(),
        ast::Expr::Substring { .. } => "substring".to_owned(),
        ast::Expr::Trim { .. } => "btrim".to_owned(),
        ast::Expr::Ceil { .. } => "ceil".to_owned(),
        ast::Expr::Floor { .. } => "floor".to_owned(),
        ast::Expr::TypedString(typed) => {
            super::types::name_of(&typed.data_type).unwrap_or_else(|| "?column?".to_owned())
        }
        ast::Expr::Interval(_) => "interval".to_owned(),
        ast::Expr::Exists { negated: false, .. } => "exists".to_owned(),
        ast::Expr::Subquery(query) => match &*query.body {
            SetExpr::Select(select) => match &select.projection[..] {
                [ast::SelectItem::ExprWithAlias { alias, .. }] => folded(alias),
                [ast::SelectItem::UnnamedExpr(expr)] => name_of(expr),
                _ => "?column?".to_owned(),
            },
            _ => "?column?".to_owned(),
        },
        ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)) => "bool".to_owned(),
        _ => "?column?".to_owned(),
    }
}

/// NULL of a type, for what has none.
pub(crate) fn null() -> Typed {
    constant(Datum::Null, Type::Unknown)
}
