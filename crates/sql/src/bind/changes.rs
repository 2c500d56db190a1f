//! INSERT, UPDATE and DELETE.

use std::sync::Arc;

use sqlparser::ast;

use super::joins::{Source, filtered, kept_by_keys};
use super::query::null;
use super::{Binder, Scope, ScopeColumn, Written, folded, plain_name};
use crate::casts::Place;
use crate::catalog::{Catalog, Column, Identity, Object, Table};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::outcome::Notice;
use crate::plan::{Condition, Node, OnConflict, OnConflictUpdate, OutputColumn, Plan, Returning, Scan, conjuncts};
use crate::roles::{Privileges, bits};
use crate::sequences::{Draw, ROW_BLOCKS, SequenceDefinition};
use crate::statement::{Action, Definition, NewObject};
use crate::types::Type;

/// The CHECKs of a table, bound outside of a statement.
pub(crate) fn checks_of(catalog: &Catalog, table: &Table) -> Result<Vec<Condition>, SqlError> {
    Binder::new(catalog, &[], &Default::default()).checks(table)
}

impl Binder<'_> {
    pub(crate) fn insert(&mut self, insert: &ast::Insert) -> Result<Plan, SqlError> {
        let ast::TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::unsupported(format!("INSERT INTO {}", insert.table)));
        };
        let table = self.catalog.written_table(name)?;
        let need = self.catalog.need(Object::Table(table.clone()), 0);
        if insert.or.is_some() || insert.replace_into || !insert.assignments.is_empty() {
            return Err(SqlError::unsupported("this form of INSERT"));
        }
        let targets = Targets {
            table: &table,
            columns: self.insert_targets(&table, &insert.columns)?,
            are_named: !insert.columns.is_empty(),
            overriding: insert.overriding,
        };
        self.catalog.inserts(
            need,
            targets.columns.iter().copied().filter(|_| !insert.columns.is_empty() || insert.source.is_some()),
        );
        let source = match &insert.source {
            None => Node::Rows(vec![self.insert_row(&targets, Vec::new())?]),
            Some(query) => self.insert_source(&targets, query)?,
        };
        let alias = insert.table_alias.as_ref().map(|alias| folded(&alias.alias));
        let mut own = match &alias {
            Some(alias) => scope_of(alias, &table.columns),
            None => scope_of(table.name.plain(), &table.columns).in_schema(table.name.schema()),
        };
        Self::originate(&mut own, need);
        let on_conflict = match &insert.on {
            None => OnConflict::Fail,
            Some(ast::OnInsert::OnConflict(on)) => self.on_conflict((&table, need), own.clone(), on)?,
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
        };
        let returning = self.returning(&table, own, insert.returning.as_deref())?;
        let (checks, keys) = (self.checks(&table)?, self.foreign_keys(&table)?);
        Ok(Plan::Insert { table, source, checks, keys, on_conflict, returning })
    }

    /// The CHECKs of a table, over all of its columns.
    pub(super) fn checks(&mut self, table: &Table) -> Result<Vec<Condition>, SqlError> {
        let scope = scope_of(table.name.plain(), &table.columns);
        let bound = table.checks.iter().map(|check| {
            let expr = crate::parse::expression(&check.condition)?;
            let bind = |binder: &mut Self| binder.within(scope.clone(), |binder| binder.condition(&expr, "CHECK"));
            let holds = self.under_public(bind)?;
            Ok(Condition { name: check.name.clone(), holds })
        });
        bound.collect()
    }

    fn on_conflict(
        &mut self,
        (table, need): (&Table, usize),
        own: Scope,
        on: &ast::OnConflict,
    ) -> Result<OnConflict, SqlError> {
        let index = on.conflict_target.as_ref().map(|target| self.arbiter(table, target)).transpose()?;
        if let Some(index) = index.and_then(|at| table.indexes.get(at)) {
            table.sources(index).into_iter().for_each(|column| self.catalog.reads(Some((need, column))));
        }
        let update = match &on.action {
            ast::OnConflictAction::DoNothing => return Ok(OnConflict::Skip(index)),
            ast::OnConflictAction::DoUpdate(update) => update,
        };
        let Some(index) = index else {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        let scope = own.joined(scope_of("excluded", &table.columns))?;
        let (set, values) = self.assignments(table, &scope, &update.assignments)?;
        self.catalog.updates(need, set.iter().copied());
        let condition = update.selection.as_ref().map(|condition| {
            self.within(scope.clone(), |binder| {
                binder.place = "WHERE";
                binder.condition(condition, "WHERE")
            })
        });
        Ok(OnConflict::Update(OnConflictUpdate { index, set, values, condition: condition.transpose()? }))
    }

    /// Positions of the columns that are given.
    pub(super) fn insert_targets(&self, table: &Table, names: &[ast::ObjectName]) -> Result<Vec<usize>, SqlError> {
        if names.is_empty() {
            return Ok(table.visible().map(|(at, _)| at).collect());
        }
        let mut targets = Vec::new();
        for name in names {
            let position = target(table, &plain_name(name)?).map_err(|error| super::places::of_target(error, name))?;
            if targets.contains(&position) {
                let message = format!("column \"{}\" specified more than once", table.columns[position].name);
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            }
            targets.push(position);
        }
        Ok(targets)
    }

    fn insert_source(&mut self, targets: &Targets<'_>, query: &ast::Query) -> Result<Node, SqlError> {
        let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.with.is_none();
        if let (ast::SetExpr::Values(values), true) = (&*query.body, is_plain) {
            // Each value takes the type of its column, not one that it has in common with the others.
            let mut rows = Vec::new();
            for row in &values.rows {
                let mut given = Vec::new();
                for expr in row.iter() {
                    given.push(match expr {
                        ast::Expr::Identifier(name) if is_default(name) => None,
                        expr => Some(self.within(Scope::default(), |binder| binder.expr(expr))?),
                    });
                }
                rows.push(self.insert_row(targets, given)?);
            }
            return Ok(Node::Rows(rows));
        }
        let bound = self.query_to_insert(query)?;
        let listed = |at: usize| match &bound.node {
            Node::Project { columns, .. } => columns.get(at),
            _ => None,
        };
        let given = bound.columns.iter().enumerate().map(|(at, column)| {
            // A literal, or a parameter, takes the type of its column.
            let own = listed(at).filter(|expr| matches!(expr, Expr::Constant(_) | Expr::Parameter(_)));
            let expr = own.filter(|_| column.of.base == Type::Unknown).cloned();
            Some(Typed::new(expr.unwrap_or(Expr::Column(at)), column.of))
        });
        let given = given.collect();
        let columns = self.insert_row(targets, given)?;
        Ok(Node::Project { input: Box::new(bound.node), columns })
    }

    /// What inserts the rows of a COPY, which are the parameters, or what its rows come from.
    pub(crate) fn copy(
        &mut self,
        name: &ast::ObjectName,
        columns: &[ast::Ident],
        is_to: bool,
    ) -> Result<Plan, SqlError> {
        let written = Written::of(name)?;
        let kind = match self.catalog.find_written(&written)? {
            Some((_, Object::View(_))) => Some("view"),
            Some((_, Object::Sequence(_))) => Some("sequence"),
            _ => None,
        };
        if let Some(kind) = kind {
            let message = format!("cannot copy {} {kind} \"{}\"", if is_to { "from" } else { "to" }, written.name);
            let error = SqlError::new(SqlState::WRONG_OBJECT_TYPE, message);
            let has_rows = is_to && kind == "view";
            return Err(if has_rows { error.with_hint("Try the COPY (SELECT ...) TO variant.") } else { error });
        }
        let table = self.catalog.written_table(name)?;
        let names: Vec<_> = columns.iter().map(|column| ast::ObjectName::from(vec![column.clone()])).collect();
        let mut columns = self.insert_targets(&table, &names)?;
        super::generated::leave_out(&table, &mut columns, !names.is_empty())?;
        let need = self.catalog.need(Object::Table(table.clone()), 0);
        if is_to {
            columns.iter().for_each(|column| self.catalog.reads(Some((need, *column))));
            let named = columns.iter().map(|&at| &table.columns[at]);
            let named = named.map(|column| OutputColumn::new(&*column.name, column.of)).collect();
            let scan = Scan { columns, ..Scan::whole(&table) };
            return Ok(Plan::Query { node: Node::Scan(scan), columns: named, is_explained: false });
        }
        self.catalog.inserts(need, columns.iter().copied());
        // Columns with numbers of their own take what is given.
        let overriding = Some(ast::InsertOverriding::System);
        let given = columns.iter().enumerate();
        let given = given.map(|(number, &at)| Some(Typed::new(Expr::Column(number), table.columns[at].of))).collect();
        let targets = Targets { table: &table, columns, are_named: true, overriding };
        let row = self.insert_row(&targets, given)?;
        let source = Node::Project { input: Box::new(Node::Given(targets.columns)), columns: row };
        let (checks, mut keys) = (self.checks(&table)?, self.foreign_keys(&table)?);
        if let Some(keys) = Arc::get_mut(&mut keys) {
            keys.is_copy = true;
        }
        Ok(Plan::Insert { table, source, checks, keys, on_conflict: OnConflict::Fail, returning: None })
    }

    /// All columns of a row, of which some are given; `None` stands for the default.
    pub(super) fn insert_row(
        &mut self,
        targets: &Targets<'_>,
        given: Vec<Option<Typed>>,
    ) -> Result<Vec<Expr>, SqlError> {
        let table = targets.table;
        if given.len() > targets.columns.len() {
            let message = "INSERT has more expressions than target columns";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        if targets.are_named && given.len() < targets.columns.len() {
            let message = "INSERT has more target columns than expressions";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut row: Vec<Option<Typed>> = vec![None; table.columns.len()];
        for (position, value) in targets.columns.iter().zip(given) {
            row[*position] = value.filter(|_| targets.takes(*position));
            if row[*position].is_some() {
                targets.check(*position)?;
            }
        }
        let all = row.into_iter().enumerate().map(|(at, value)| {
            let value = value.map_or_else(|| self.default(table, at), Ok)?;
            self.assigned(table, at, value)
        });
        all.collect()
    }

    pub(super) fn default(&mut self, table: &Table, column: usize) -> Result<Typed, SqlError> {
        if let Some(numbers) = table
            .row_numbers_from
            .as_ref()
            .filter(|_| table.columns[column].computed.is_none() && table.columns[column].is_hidden)
        {
            numbers.prepare(ROW_BLOCKS.0)?;
            return Ok(Typed::new(self.drawing(Draw::Row(numbers.clone()), Box::new([])), Type::Int8));
        }
        match &table.columns[column].default {
            None => Ok(null()),
            Some(text) => {
                let expr = crate::parse::expression(text)?;
                self.under_public(|binder| binder.within(Scope::default(), |binder| binder.expr(&expr)))
            }
        }
    }

    /// A value as one of a column.
    pub(super) fn assigned(&mut self, table: &Table, column: usize, value: Typed) -> Result<Expr, SqlError> {
        let (name, of) = (&table.columns[column].name, table.columns[column].of);
        let from = value.base();
        let cast = self.cast(value, of, Place::Assignment).map_err(|error| {
            if error.state() != SqlState::DATATYPE_MISMATCH {
                return error;
            }
            let message = format!("column \"{name}\" is of type {} but expression is of type {from}", of.base);
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .with_hint("You will need to rewrite or cast the expression.")
        });
        Ok(cast?.expr)
    }

    pub(crate) fn update(&mut self, update: &ast::Update) -> Result<Plan, SqlError> {
        let from = match &update.from {
            None => None,
            Some(ast::UpdateTableFromKind::AfterSet(from)) => Some(&from[..]),
            Some(ast::UpdateTableFromKind::BeforeSet(_)) => return Err(SqlError::unsupported("FROM in front of SET")),
        };
        if !update.table.joins.is_empty() || update.limit.is_some() || !update.order_by.is_empty() {
            return Err(SqlError::unsupported("UPDATE of a join, or with LIMIT or ORDER BY,"));
        }
        let (table, target, need) = self.changed_table(&update.table.relation, bits::UPDATE)?;
        let Source { node, scope } = self.rows_to_change(&table, target, from, update.selection.as_ref())?;
        let (set, values) = self.assignments(&table, &scope, &update.assignments)?;
        self.catalog.updates(need, set.iter().copied());
        let width = table.columns.len();
        let beside = if update.returning.is_some() { width..scope.columns.len() } else { 0..0 };
        let columns = (0..width).map(Expr::Column).chain(values).chain(beside.map(Expr::Column)).collect();
        let returning = self.returning(&table, scope, update.returning.as_deref())?;
        let (checks, keys) = (self.checks(&table)?, self.foreign_keys(&table)?);
        let source = Node::Project { input: Box::new(node), columns };
        Ok(Plan::Update { table, source, is_joined: from.is_some(), set, checks, keys, returning })
    }

    /// Deletions of all rows.
    pub(crate) fn truncate(&mut self, truncate: &ast::Truncate) -> Result<Action, SqlError> {
        if truncate.partitions.is_some() {
            return Err(SqlError::unsupported(truncate));
        }
        let cascades = truncate.cascade == Some(ast::CascadeOption::Cascade);
        let named = truncate.table_names.iter().map(|it| Ok(self.catalog.table_within(&it.name)?.name.clone()));
        let mut names = named.collect::<Result<Vec<_>, SqlError>>()?;
        let (mut tables, mut at, mut notices) = (Vec::new(), 0, Vec::new());
        while let Some(name) = names.get(at).cloned() {
            let table = self.catalog.table(&name)?;
            self.catalog.need(Object::Table(table.clone()), bits::TRUNCATE);
            for child in table.children.iter().filter(|child| **child != name) {
                if names.contains(child) {
                    continue;
                }
                if cascades {
                    let message = format!("truncate cascades to table \"{child}\"");
                    notices.push(Notice::remark(SqlState::SUCCESS, message));
                    names.push(child.clone());
                    continue;
                }
                let key = self.catalog.table(child)?;
                let key = key.foreign.iter().find(|key| key.parent == name).map_or("", |key| &key.name);
                let message = "cannot truncate a table referenced in a foreign key constraint";
                let detail = format!("Table \"{child}\" references \"{name}\" (constraint \"{key}\").");
                let hint = format!("Truncate table \"{child}\" at the same time, or use TRUNCATE ... CASCADE.");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail(detail)
                    .with_hint(hint));
            }
            let node = Node::Scan(Scan::whole(&table));
            tables.push((table, node));
            at += 1;
        }
        let restarts = truncate.identity == Some(ast::TruncateIdentityOption::Restart);
        if !restarts && notices.is_empty() {
            return Ok(Action::Run(Plan::Truncate(tables)));
        }
        let mut definition = Definition { notices, ..Definition::new("TRUNCATE TABLE") };
        let all = tables.iter().flat_map(|(table, _)| table.columns.iter().map(|column| (&table.name, column)));
        for (table, column) in all.filter(|_| restarts) {
            let Some(name) = column.default.as_deref().and_then(super::drops::sequence_of) else { continue };
            let Ok(sequence) = self.catalog.sequence(&name) else { continue };
            let of = &sequence.definition;
            if of.owner.as_ref().is_some_and(|(owner, own)| owner == table && *own == column.name) {
                let number = self.catalog.new_number();
                let of = SequenceDefinition { number, first: of.start, ..of.clone() };
                definition.set_object(&name, Some(NewObject::Sequence(of, None)));
            }
        }
        definition.plans.push(Plan::Truncate(tables));
        Ok(Action::Define(definition.into()))
    }

    pub(crate) fn delete(&mut self, delete: &ast::Delete) -> Result<Plan, SqlError> {
        let from = match &delete.from {
            ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from) => from,
        };
        let ([item], true) = (&from[..], delete.tables.is_empty()) else {
            return Err(SqlError::unsupported("DELETE of several tables"));
        };
        if !item.joins.is_empty() || delete.limit.is_some() || !delete.order_by.is_empty() {
            return Err(SqlError::unsupported("DELETE of a join, or with LIMIT or ORDER BY,"));
        }
        let (table, target, _) = self.changed_table(&item.relation, bits::DELETE)?;
        let using = delete.using.as_deref();
        let Source { node, scope } = self.rows_to_change(&table, target, using, delete.selection.as_ref())?;
        let wanted = if delete.returning.is_some() { scope.columns.len() } else { table.columns.len() };
        let source = match using {
            Some(_) => Node::Project { input: Box::new(node), columns: (0..wanted).map(Expr::Column).collect() },
            None => node,
        };
        let returning = self.returning(&table, scope, delete.returning.as_deref())?;
        let keys = self.foreign_keys(&table)?;
        Ok(Plan::Delete { table, source, is_joined: using.is_some(), keys, returning })
    }

    /// The table that a statement changes, whose columns it may read; the last part is the number of what it needs of the table.
    fn changed_table(
        &mut self,
        factor: &ast::TableFactor,
        privilege: Privileges,
    ) -> Result<(Arc<Table>, Scope, usize), SqlError> {
        let ast::TableFactor::Table { name, alias, .. } = factor else {
            return Err(SqlError::unsupported(format!("a change of {factor}")));
        };
        let table = self.catalog.written_table(name)?;
        let alias = alias.as_ref().map(|alias| folded(&alias.name));
        let need = self.catalog.need(Object::Table(table.clone()), privilege);
        let mut scope = match alias {
            Some(alias) => scope_of(&alias, &table.columns),
            None => scope_of(table.name.plain(), &table.columns).in_schema(table.name.schema()),
        };
        Self::originate(&mut scope, need);
        Ok((table, scope, need))
    }

    /// The rows of a table of which the condition holds, each with the row of `beside` that it was found with.
    fn rows_to_change(
        &mut self,
        table: &Arc<Table>,
        scope: Scope,
        beside: Option<&[ast::TableWithJoins]>,
        condition: Option<&ast::Expr>,
    ) -> Result<Source, SqlError> {
        let mut source = Source { node: Node::Scan(Scan::whole(table)), scope };
        if let Some(from) = beside {
            source = self.crossed(source, from)?;
        }
        let Some(condition) = condition else { return Ok(source) };
        let (mut parts, Source { node, scope }) = (Vec::new(), source);
        self.place = "WHERE";
        conjuncts(self.within(scope.clone(), |binder| binder.condition(condition, "WHERE"))?, &mut parts);
        let node = filtered(node, parts);
        Ok(Source { node: if beside.is_some() { kept_by_keys(node) } else { node }, scope })
    }

    /// What is answered of the changed rows, whose columns come first in the scope.
    fn returning(
        &mut self,
        table: &Arc<Table>,
        mut scope: Scope,
        items: Option<&[ast::SelectItem]>,
    ) -> Result<Option<Returning>, SqlError> {
        let Some(items) = items else { return Ok(None) };
        let own = scope.columns.iter_mut().take(table.columns.len()).enumerate();
        own.for_each(|(at, column)| column.origin = Some((table.clone(), at)));
        self.place = "RETURNING";
        let mut list = Vec::new();
        let origins = self.within(scope, |binder| {
            items.iter().try_for_each(|item| binder.select_item(item, &mut list))?;
            Ok(binder.origins(&list))
        })?;
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for ((name, typed), origin) in list.into_iter().zip(origins) {
            let typed = self.known(typed)?;
            names.push(OutputColumn { name, of: typed.of, origin });
            columns.push(typed.expr);
        }
        Ok(Some(Returning { columns, names }))
    }
}

/// The columns that an insertion gives values for.
pub(super) struct Targets<'t> {
    pub(super) table: &'t Table,
    pub(super) columns: Vec<usize>,
    /// Whether the statement names them, so that each has a value.
    pub(super) are_named: bool,
    pub(super) overriding: Option<ast::InsertOverriding>,
}

impl Targets<'_> {
    /// Whether the column takes what is given, and not its own number.
    fn takes(&self, column: usize) -> bool {
        self.table.columns[column].identity.is_none() || self.overriding != Some(ast::InsertOverriding::User)
    }

    /// Whether a value may be given for the column.
    fn check(&self, column: usize) -> Result<(), SqlError> {
        let of = &self.table.columns[column];
        if of.generated.is_some() {
            let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", of.name);
            return Err(SqlError::new(SqlState::GENERATED_ALWAYS, message).with_detail(super::generated::detail(of)));
        }
        if of.identity != Some(Identity::Always) || self.overriding == Some(ast::InsertOverriding::System) {
            return Ok(());
        }
        let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", of.name);
        let detail = format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", of.name);
        let hint = "Use OVERRIDING SYSTEM VALUE to override.";
        Err(SqlError::new(SqlState::GENERATED_ALWAYS, message).with_detail(detail).with_hint(hint))
    }
}

/// Columns of a table, which goes by a name.
pub(super) fn scope_of(named: &str, columns: &[Column]) -> Scope {
    let column = |column: &Column| {
        let is_hidden = column.is_hidden;
        ScopeColumn { is_hidden, ..ScopeColumn::new(Some(named), &column.name, column.of) }
    };
    Scope::of(columns.iter().map(column))
}

pub(super) fn target(table: &Table, name: &str) -> Result<usize, SqlError> {
    let missing = || {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    };
    table.column(name).ok_or_else(missing)
}

/// The parser takes the keyword to be a name.
pub(super) fn is_default(name: &ast::Ident) -> bool {
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default")
}
