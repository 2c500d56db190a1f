//! Changes in WITH, and MERGE.

use sqlparser::ast::{self, SetExpr};

use super::changes::Targets;
use super::joins::{Source, kept_by_keys};
use super::{Binder, Scope, Written, folded};
use crate::catalog::{Object, Table};
use crate::changing::{Merge, MergeAction, MergeClause, With};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{Node, Plan};
use crate::roles::bits;

/// Whether the body of a query changes rows.
pub(super) fn is_change(query: &ast::Query) -> bool {
    matches!(*query.body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

/// Whether a query has changes in its WITH.
fn has_changes(query: &ast::Query) -> bool {
    query.with.as_ref().is_some_and(|with| with.cte_tables.iter().any(|cte| is_change(&cte.query)))
}

/// Refuses changes in the WITH of a query that is kept, or fetched in parts.
pub(crate) fn check_reads_only(query: &ast::Query, what: &str) -> Result<(), SqlError> {
    if is_change(query) {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{what} needs a query, and not a change of rows")));
    }
    if !has_changes(query) {
        return Ok(());
    }
    let message = format!("{what} must not contain data-modifying statements in WITH");
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
}

fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

impl Binder<'_> {
    /// The plan of a query, or of a change that has WITH in front of it.
    pub(super) fn query_or_change(&mut self, query: &ast::Query) -> Result<Plan, SqlError> {
        if !is_change(query) && !has_changes(query) {
            let bound = self.whole_query(query)?;
            return Ok(Plan::Query { node: bound.node, columns: bound.columns, is_explained: false });
        }
        let known = self.tables.len();
        self.changes = Some(Vec::new());
        let named = self.with(query.with.as_ref());
        let parts = self.changes.take().unwrap_or_default();
        let plan = named.and_then(|()| self.change_of(&ast::Query { with: None, ..query.clone() }));
        let asked: Vec<_> = self.tables.drain(known..).filter_map(|named| named.asked_for()).collect();
        let plan = plan?;
        let (parts, last): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(id, _)| asked.contains(id));
        let last = last.into_iter().map(|(_, plan)| plan).collect();
        Ok(With::plan(parts, plan, last, &mut || self.next_part()))
    }

    /// A change that nothing of WITH stands in front of.
    pub(super) fn change_alone(&mut self, plan: Plan) -> Plan {
        With::plan(Vec::new(), plan, Vec::new(), &mut || self.next_part())
    }

    fn change_of(&mut self, query: &ast::Query) -> Result<Plan, SqlError> {
        match &*query.body {
            SetExpr::Insert(ast::Statement::Insert(insert)) => self.insert(insert),
            SetExpr::Update(ast::Statement::Update(update)) => self.update(update),
            SetExpr::Delete(ast::Statement::Delete(delete)) => self.delete(delete),
            SetExpr::Merge(ast::Statement::Merge(merge)) => self.merge(merge),
            _ => {
                let bound = self.whole_query(query)?;
                Ok(Plan::Query { node: bound.node, columns: bound.columns, is_explained: false })
            }
        }
    }

    /// The plan of a change in WITH.
    pub(super) fn change_in_with(&mut self, query: &ast::Query) -> Result<Plan, SqlError> {
        if matches!(*query.body, SetExpr::Merge(_)) {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "MERGE not supported in WITH query"));
        }
        let known = self.tables.len();
        let bound = self.with(query.with.as_ref()).and_then(|()| self.change_of(query));
        self.tables.truncate(known);
        bound
    }

    pub(crate) fn merge(&mut self, merge: &ast::Merge) -> Result<Plan, SqlError> {
        let ast::TableFactor::Table { name, .. } = &merge.table else {
            return Err(SqlError::unsupported(format!("MERGE INTO {}", merge.table)));
        };
        if merge.output.is_some() {
            return Err(syntax("syntax error at or near \"RETURNING\""));
        }
        if self.names_query(name) {
            return Err(SqlError::unsupported("MERGE INTO a table that has the name of a query of WITH"));
        }
        self.check_clauses(&merge.clauses)?;
        check_names(&merge.table, &merge.source)?;
        let table = self.catalog.written_table(name)?;
        let need = self.catalog.need(Object::Table(table.clone()), 0);
        // Rows of the source that match nothing are wanted where a clause is about them.
        let keeps_all = merge.clauses.iter().any(|clause| clause.clause_kind != ast::MergeClauseKind::Matched);
        let on = ast::JoinConstraint::On((*merge.on).clone());
        let join = ast::Join {
            relation: merge.table.clone(),
            global: false,
            join_operator: if keeps_all { ast::JoinOperator::LeftOuter(on) } else { ast::JoinOperator::Inner(on) },
        };
        let Source { node, scope } =
            self.from(&[ast::TableWithJoins { relation: merge.source.clone(), joins: vec![join] }])?;
        let Some(behind) = scope.columns.len().checked_sub(table.columns.len()) else {
            return Err(SqlError::unsupported(format!("MERGE INTO {name}")));
        };
        let order = (behind..scope.columns.len()).chain(0..behind);
        let columns = order.clone().map(Expr::Column).collect();
        let source = Node::Project { input: Box::new(kept_by_keys(node)), columns };
        let whole = Scope::of(order.map(|at| scope.columns[at].clone()));
        let scopes = [whole, Scope::of(scope.columns[..behind].iter().cloned())];
        let target = (&*table, need);
        let clauses = merge.clauses.iter().map(|clause| self.merge_clause(target, &scopes, clause));
        let clauses = clauses.collect::<Result<_, SqlError>>()?;
        let (checks, keys) = (self.checks(&table)?, self.foreign_keys(&table)?);
        Ok(Plan::Merge(Merge { table, source, clauses, checks, keys }.into()))
    }

    /// Refuses clauses that are never reached, and those that PostgreSQL has not.
    fn check_clauses(&self, clauses: &[ast::MergeClause]) -> Result<(), SqlError> {
        let mut ended = [false; 2];
        for clause in clauses {
            let at = match clause.clause_kind {
                ast::MergeClauseKind::Matched => 0,
                ast::MergeClauseKind::NotMatched => 1,
                ast::MergeClauseKind::NotMatchedByTarget | ast::MergeClauseKind::NotMatchedBySource => {
                    return Err(syntax("syntax error at or near \"BY\""));
                }
            };
            if ended[at] {
                return Err(syntax("unreachable WHEN clause specified after unconditional WHEN clause"));
            }
            ended[at] = clause.predicate.is_none();
        }
        Ok(())
    }

    /// A clause over the whole row, or over that of the source.
    fn merge_clause(
        &mut self,
        (table, need): (&Table, usize),
        [whole, beside]: &[Scope; 2],
        clause: &ast::MergeClause,
    ) -> Result<MergeClause, SqlError> {
        let is_matched = clause.clause_kind == ast::MergeClauseKind::Matched;
        let scope = if is_matched { whole } else { beside };
        let condition = clause.predicate.as_ref().map(|condition| {
            let bind = |binder: &mut Self| {
                binder.place = "MERGE WHEN conditions";
                binder.condition(condition, "WHEN")
            };
            self.within_merge(whole, scope, is_matched, bind)
        });
        let condition = condition.transpose()?;
        let action = match &clause.action {
            ast::MergeAction::DoNothing { .. } => MergeAction::Nothing,
            ast::MergeAction::Delete { .. } if is_matched => {
                self.catalog.need_more(need, bits::DELETE);
                MergeAction::Delete
            }
            ast::MergeAction::Update(ast::MergeUpdateExpr {
                kind: ast::MergeUpdateKind::Set(assignments),
                update_predicate: None,
                delete_predicate: None,
                ..
            }) if is_matched => {
                let (set, values) = self.assignments(table, scope, assignments)?;
                self.catalog.updates(need, set.iter().copied());
                MergeAction::Update { set, values }
            }
            ast::MergeAction::Insert(insert) if !is_matched => {
                let values = self.merge_insert((table, need), [whole, beside], insert)?;
                MergeAction::Insert(values)
            }
            other => return Err(SqlError::unsupported(format!("MERGE with {other} here"))),
        };
        Ok(MergeClause { is_matched, condition, action })
    }

    /// Binds over a scope. Where that is of the source alone, names of the target are known, and may not be used.
    fn within_merge<O>(
        &mut self,
        whole: &Scope,
        scope: &Scope,
        is_matched: bool,
        bind: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        if is_matched {
            return self.within(scope.clone(), bind);
        }
        let aside = Scope { is_aside: true, ..whole.clone() };
        self.within(aside, |binder| binder.within(scope.clone(), bind))
    }

    fn merge_insert(
        &mut self,
        (table, need): (&Table, usize),
        [whole, beside]: [&Scope; 2],
        insert: &ast::MergeInsertExpr,
    ) -> Result<Vec<Expr>, SqlError> {
        let ast::MergeInsertKind::Values(values) = &insert.kind else {
            return Err(SqlError::unsupported("INSERT ROW, and INSERT *, in MERGE"));
        };
        let ([row], None) = (&values.rows[..], &insert.insert_predicate) else {
            return Err(SqlError::unsupported("INSERT of several rows in MERGE"));
        };
        let columns = self.insert_targets(table, &insert.columns)?;
        let counted = if insert.columns.is_empty() { row.len() } else { columns.len() };
        self.catalog.inserts(need, columns.iter().copied().take(counted));
        let given = row.iter().map(|expr| match expr {
            ast::Expr::Identifier(name) if super::changes::is_default(name) => Ok(None),
            expr => self.within_merge(whole, beside, false, |binder| {
                binder.place = "VALUES";
                binder.expr(expr).map(Some)
            }),
        });
        let given = given.collect::<Result<Vec<_>, SqlError>>()?;
        self.insert_row(&Targets { table, columns, are_named: !insert.columns.is_empty(), overriding: None }, given)
    }

    /// Whether a name is that of a query of WITH.
    fn names_query(&self, name: &ast::ObjectName) -> bool {
        let Ok(Written { name, schema: None, .. }) = Written::of(name) else { return false };
        self.tables.iter().any(|own| own.is_called(&name))
    }
}

/// Refuses one name for the table and for the source.
fn check_names(table: &ast::TableFactor, source: &ast::TableFactor) -> Result<(), SqlError> {
    let name = |factor: &ast::TableFactor| match factor {
        ast::TableFactor::Table { alias: Some(alias), .. } | ast::TableFactor::Derived { alias: Some(alias), .. } => {
            Some(folded(&alias.name))
        }
        ast::TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident()).map(folded),
        _ => None,
    };
    match (name(table), name(source)) {
        (Some(own), Some(other)) if own == other => {
            let message = format!("name \"{own}\" specified more than once");
            let detail = "The name is used both as MERGE target table and data source.";
            Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message).with_detail(detail))
        }
        _ => Ok(()),
    }
}

/// The query that TABLE stands for.
pub(super) fn table_query(table: &ast::Table) -> Result<ast::Query, SqlError> {
    let names = [&table.schema_name, &table.table_name].into_iter().flatten();
    let names: Vec<_> = names.map(|name| format!("\"{}\"", folded(name).replace('"', "\"\""))).collect();
    match crate::parse::expression(&format!("(SELECT * FROM {})", names.join(".")))? {
        ast::Expr::Subquery(query) => Ok(*query),
        _ => Err(SqlError::internal("TABLE is no query")),
    }
}
