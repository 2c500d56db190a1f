//! CREATE INDEX, and what indexes compute.

use std::sync::Arc;

use polychron_schema::{ColumnOrder, IndexDefinition};
use sqlparser::ast;

use super::changes::scope_of;
use super::definitions::{Draft, free_name};
use super::query::name_of;
use super::renames::{mentions, with_name};
use super::{Binder, Recorded, folded, plain_name};
use crate::casts::Cast;
use crate::catalog::{Column, Object, Table};
use crate::computed::{self, Computed};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions::{Function, Volatility};
use crate::plan::conjuncts;
use crate::sort_keys::{SORT_KEY, is_sorted_as_stored};
use crate::statement::{Action, Definition};
use crate::types::{Category, ColumnType, Type};

/// What a key of an index has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Column(String),
    Expression(String),
}

/// An index of a table that is being defined.
#[derive(Clone, Debug)]
pub(super) struct DraftIndex {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    /// How they are sorted: upwards, with NULL behind all values, where nothing else is said.
    pub(super) orders: Vec<ColumnOrder>,
    pub(super) is_unique: bool,
    /// The condition of the rows that it is about.
    pub(super) condition: Option<String>,
    /// The columns of INCLUDE.
    pub(super) include: Vec<String>,
}

impl DraftIndex {
    /// A unique one of these columns.
    pub(super) fn unique(name: String, columns: Vec<String>) -> Self {
        let parts = columns.into_iter().map(Part::Column).collect();
        Self { name, parts, orders: Vec::new(), is_unique: true, condition: None, include: Vec::new() }
    }

    /// The indexes of a table, without the primary one.
    pub(super) fn all_of(table: &Table) -> Vec<Self> {
        let indexes = table.indexes[1..].iter().map(|index| {
            let keys = table.keys(index);
            let first = index.columns.len() - keys.len();
            let orders = (first..index.columns.len()).map(|at| {
                let order = index.orders.get(at).copied().unwrap_or_default();
                // Of a column without NULL nothing says where that would be.
                let nulls_last =
                    if table.columns[index.columns[at]].nullable { order.nulls_last } else { !order.descending };
                order.with_nulls_last(nulls_last)
            });
            let part = |at: usize| match table.expression(at) {
                Some(text) => Part::Expression(text.to_owned()),
                None => Part::Column(table.columns[at].name.clone()),
            };
            Self {
                name: index.name.clone(),
                parts: table.sources(index).into_iter().map(part).collect(),
                orders: orders.collect(),
                is_unique: index.is_unique,
                condition: table.condition(index).map(str::to_owned),
                include: table.includes.get(&index.name).cloned().unwrap_or_default(),
            }
        });
        indexes.collect()
    }

    /// Its columns, if it is about all rows and computes nothing.
    pub(super) fn columns(&self) -> Option<Vec<String>> {
        let column = |part: &Part| if let Part::Column(name) = part { Some(name.clone()) } else { None };
        self.parts.iter().map(column).collect::<Option<Vec<_>>>().filter(|_| self.condition.is_none())
    }

    /// Whether it is about a column in any way.
    pub(super) fn names(&self, column: &str) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Column(own) => own == column,
            Part::Expression(text) => mentions(text, column),
        }) || self.include.iter().any(|own| own == column)
            || self.condition.as_ref().is_some_and(|text| mentions(text, column))
    }

    pub(super) fn rename_column(&mut self, old: &str, new: &str) {
        for part in &mut self.parts {
            match part {
                Part::Column(own) if own == old => new.clone_into(own),
                Part::Column(_) => {}
                Part::Expression(text) => *text = with_name(text, old, new),
            }
        }
        self.include.iter_mut().filter(|own| *own == old).for_each(|own| new.clone_into(own));
        self.condition.iter_mut().for_each(|text| *text = with_name(text, old, new));
    }
}

/// The same computed column, where a column has another name.
pub(super) fn renamed(of: Computed, old: &str, new: &str) -> Computed {
    match of {
        Computed::Expression(text) => Computed::Expression(with_name(&text, old, new)),
        Computed::Member(text) => Computed::Member(with_name(&text, old, new)),
        Computed::Sorted(name) if name == old => Computed::Sorted(new.to_owned()),
        Computed::Sorted(name) => Computed::Sorted(name),
    }
}

/// The columns of a table that is being defined, to which those are added that its indexes need.
pub(super) struct KeyColumns<'d> {
    pub(super) catalog: &'d Recorded<'d>,
    pub(super) table: &'d str,
    pub(super) columns: &'d mut Vec<Column>,
}

impl KeyColumns<'_> {
    fn add(&mut self, computed: Computed, of: ColumnType, nullable: bool) -> usize {
        let found = self.columns.iter().position(|column| column.computed.as_ref() == Some(&computed));
        found.unwrap_or_else(|| {
            let number = 1 + self.columns.iter().filter(|column| column.computed.is_some()).count();
            self.columns.push(computed::column(number, of, nullable, computed));
            self.columns.len() - 1
        })
    }

    /// The column whose keys are sorted as the values of this one.
    fn sorted(&mut self, column: usize) -> usize {
        let Column { name, of, nullable, .. } = self.columns[column].clone();
        if is_sorted_as_stored(of) { column } else { self.add(Computed::Sorted(name), Type::Bytea.into(), nullable) }
    }

    /// The columns of a key of columns that are all there.
    pub(super) fn of_columns(&mut self, names: &[String]) -> Vec<usize> {
        let at = names.iter().filter_map(|name| self.columns.iter().position(|column| column.name == *name));
        at.collect::<Vec<_>>().into_iter().map(|at| self.sorted(at)).collect()
    }

    /// An index, as the engine is to have it.
    pub(super) fn index(&mut self, index: &DraftIndex) -> Result<IndexDefinition, SqlError> {
        let (mut at, mut orders) = (Vec::new(), Vec::new());
        let member = ColumnOrder::ASCENDING.with_nulls_last(true);
        if let Some(condition) = &index.condition {
            at.push(self.add(Computed::Member(condition.clone()), Type::Bool.into(), true));
            orders.push(member);
        }
        for (number, part) in index.parts.iter().enumerate() {
            let column = match part {
                Part::Column(name) => self.of_columns(std::slice::from_ref(name)),
                Part::Expression(text) => {
                    let expr = crate::parse::expression(text)?;
                    let scope = scope_of(self.table, self.columns);
                    let of = Binder::new(self.catalog, &[], &Arc::default())
                        .within(scope, |binder| binder.known_expr(&expr))?
                        .of;
                    let value = self.add(Computed::Expression(text.clone()), of, true);
                    vec![self.sorted(value)]
                }
            };
            let order = index.orders.get(number).copied().unwrap_or(member);
            for column in column {
                orders.push(order.with_nulls_last(order.nulls_last && self.columns[column].nullable));
                at.push(column);
            }
        }
        Ok(IndexDefinition::new(index.name.clone(), at).with_orders(orders).with_unique(index.is_unique))
    }
}

/// Bytes of a key have the order of the column's values, and are the same for equal ones.
pub(super) fn check_key(of: ColumnType) -> Result<(), SqlError> {
    let base = match of.base {
        Type::Array(element) => element.get(),
        base => base,
    };
    if base != Type::Json {
        return Ok(());
    }
    let message = match of.base {
        Type::Json => "data type json has no default operator class for access method \"btree\"",
        _ => "could not identify a comparison function for type json",
    };
    Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
}

/// Whether PostgreSQL takes a function to answer the same whatever is set.
fn is_immutable(function: &Function) -> bool {
    const STABLE: [&str; 12] = [
        "array_to_string",
        "concat",
        "concat_ws",
        "convert_from",
        "convert_to",
        "format",
        "to_char",
        "to_date",
        "make_timestamptz",
        "to_json",
        "to_jsonb",
        "version",
    ];
    const SIGNS: [&str; 7] = ["=", "<>", "<", "<=", ">", ">=", "timezone"];
    let (name, count) = (function.name, function.arguments.len());
    let is_system = name.starts_with("pg_") || name.starts_with("current_") || name.ends_with("_description");
    let is_built = name.starts_with("json_build") || name.starts_with("jsonb_build");
    let is_of_instants = SIGNS.contains(&name)
        || matches!(name, "-" | "age") && function.arguments == [Type::Timestamptz, Type::Timestamptz];
    let is_fixed = is_of_instants
        || name == "age" && count == 2
        || name == "to_timestamp" && count == 1
        || function.volatility() == Volatility::Immutable;
    is_fixed && !is_system && !is_built && !STABLE.contains(&name)
}

/// Whether a cast answers the same whatever is set. A text that is known is read when the index is defined, and always the same.
fn is_fixed(cast: Cast, inner: &Expr, (from, to): (Type, Type)) -> bool {
    let is_clock = |of: Type| matches!(of, Type::Date | Type::Timestamp | Type::Timestamptz);
    match (cast, inner) {
        (Cast::Same, _) => true,
        (Cast::Read(of), Expr::Constant(OwnedDatum::Text(text))) => {
            let words = ["now", "today", "tomorrow", "yesterday"];
            let text = text.trim().to_lowercase();
            let is_named = words.iter().any(|word| text.contains(word));
            // Without a zone of its own the session's counts.
            let has_zone =
                text.ends_with('z') || text.rfind(['+', '-']).is_some_and(|at| at > 10) || text.ends_with("infinity");
            !is_named && (of != Type::Timestamptz || has_zone)
        }
        (Cast::Json(..), _) => false,
        // Labels get other names.
        (Cast::Read(of) | Cast::Write(of) | Cast::Show(of), _) => !is_clock(of) && of.category() != Category::Enum,
        _ => from != Type::Timestamptz && to != Type::Timestamptz,
    }
}

impl Binder<'_> {
    /// Notes a function that an expression calls.
    pub(super) fn note_call(&mut self, function: &Function) {
        self.is_mutable |= !is_immutable(function);
    }

    /// Notes a cast that an expression has.
    pub(super) fn note_cast(&mut self, cast: Cast, inner: &Expr, types: (Type, Type)) {
        self.is_mutable |= !is_fixed(cast, inner, types);
    }

    /// An expression whose type is decided.
    fn known_expr(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        let bound = self.expr(expr)?;
        self.known(bound)
    }

    /// The value of a computed column over the columns of its table.
    pub(crate) fn computed(mut self, table: &Table, computed: &Computed) -> Result<Expr, SqlError> {
        let (Computed::Expression(text) | Computed::Member(text)) = computed else {
            let Computed::Sorted(name) = computed else { return Ok(Expr::NULL) };
            let missing = || SqlError::internal(format!("the column {name} of a key is not there"));
            let column = table.columns.iter().position(|column| column.name == *name).ok_or_else(missing)?;
            return Ok(sort_key(Expr::Column(column)));
        };
        let expr = crate::parse::expression(text)?;
        let is_condition = matches!(computed, Computed::Member(_));
        self.within(scope_of(table.name.plain(), &table.columns), |binder| {
            if !is_condition {
                return Ok(binder.known_expr(&expr)?.expr);
            }
            let holds = binder.condition(&expr, "WHERE")?;
            let truth = Expr::Constant(OwnedDatum::Plain(Datum::Bool(true)));
            Ok(Expr::Case { branches: [(holds, truth)].into(), otherwise: Expr::NULL.into() })
        })
    }

    /// Binds an expression, or the condition, of an index.
    fn of_index(&mut self, table: &Table, expr: &ast::Expr, is_condition: bool) -> Result<Typed, SqlError> {
        let what = if is_condition { "predicate" } else { "expression" };
        self.is_mutable = false;
        let bound = self.within(scope_of(table.name.plain(), &table.columns), |binder| {
            binder.place = if is_condition { "index predicates" } else { "index expressions" };
            match is_condition {
                true => Ok(Typed::new(binder.condition(expr, "WHERE")?, Type::Bool)),
                false => binder.known_expr(expr),
            }
        })?;
        let (mut is_mutable, mut has_query) = (self.is_mutable, false);
        bound.expr.walk(&mut |it| {
            has_query |= matches!(it, Expr::Subquery(_));
            is_mutable |= matches!(it, Expr::Drawn(..) | Expr::Lookup { .. });
        });
        if has_query {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot use subquery in index {what}")));
        }
        if is_mutable {
            let message = format!("functions in index {what} must be marked IMMUTABLE");
            return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
        }
        Ok(bound)
    }

    pub(crate) fn create_index(&mut self, create: &ast::CreateIndex) -> Result<Action, SqlError> {
        let table = self.catalog.table_within(&create.table_name)?;
        self.catalog.check_owner(&Object::Table(table.clone()))?;
        let method = create.using.as_ref().map(ast::IndexType::to_string);
        if let Some(method) = method.filter(|it| !matches!(it.to_lowercase().as_str(), "btree" | "hash")) {
            return Err(SqlError::unsupported(format!("an index of the method {method}")));
        }
        if create.nulls_distinct == Some(false) {
            return Err(SqlError::unsupported("an index with NULLS NOT DISTINCT"));
        }
        let named = create.name.as_ref().map(plain_name).transpose()?;
        let mut index = DraftIndex { is_unique: create.unique, ..DraftIndex::unique(String::new(), Vec::new()) };
        let mut names: Vec<String> = Vec::new();
        let mut is_stored = true;
        for column in &create.columns {
            let (part, of, name) = self.index_part(&table, column)?;
            check_key(of)?;
            is_stored &= is_sorted_as_stored(of) && matches!(part, Part::Column(_));
            names.push(free_name(&|name| Ok(names.iter().any(|own| own == name)), &name)?);
            let descending = matches!(column.column.options.sort, Some(ast::OrderBySort::Desc));
            let nulls_last = !column.column.options.nulls_first.unwrap_or(descending);
            index.orders.push(ColumnOrder { descending, nulls_last });
            index.parts.push(part);
        }
        for column in &create.include {
            let name = folded(column);
            column_of(&table, &name)?;
            names.push(name.clone());
            index.include.push(name);
        }
        if let Some(condition) = &create.predicate {
            self.of_index(&table, condition, true)?;
            index.condition = Some(condition.to_string());
        }
        index.name = match named {
            Some(name) => name,
            None => {
                let first = format!("{}_{}_idx", table.name, names.join("_"));
                free_name(&|name| self.catalog.is_taken(&table.name.beside(name)), &first)?
            }
        };
        let own = table.name.beside(&index.name);
        if let Some(skipped) = crate::statement::skip("CREATE INDEX", &self.catalog, &own, create.if_not_exists)? {
            return Ok(skipped);
        }
        let mut definition = Definition::new("CREATE INDEX");
        if is_stored && index.condition.is_none() && index.include.is_empty() {
            let mut columns = table.columns.clone();
            let mut keys = KeyColumns { catalog: &self.catalog, table: table.name.plain(), columns: &mut columns };
            definition.index = Some((table.clone(), keys.index(&index)?));
        } else {
            let mut draft = Draft::of(&table);
            draft.indexes.push(index);
            definition.closes.push(table.id);
            let values = table.visible().map(|(at, _)| Expr::Column(at)).collect();
            self.rewrite(&table, draft, values, &mut definition)?;
        }
        Ok(Action::Define(definition.into()))
    }

    /// What a key of an index has, its type, and what its column is called.
    fn index_part(&mut self, table: &Table, column: &ast::IndexColumn) -> Result<(Part, ColumnType, String), SqlError> {
        if let Some(class) = &column.operator_class {
            let name = plain_name(class)?;
            // Texts are sorted by their bytes.
            if !["text_pattern_ops", "varchar_pattern_ops", "bpchar_pattern_ops", "text_ops"].contains(&name.as_str()) {
                return Err(SqlError::unsupported(format!("the operator class {name}")));
            }
        }
        let mut expr = &column.column.expr;
        while let ast::Expr::Nested(inner) = expr {
            expr = inner;
        }
        if let ast::Expr::Identifier(name) = expr {
            let name = folded(name);
            let at = column_of(table, &name)?;
            return Ok((Part::Column(name.clone()), table.columns[at].of, name));
        }
        let bound = self.of_index(table, expr, false)?;
        let name = Some(name_of(expr)).filter(|name| name != "?column?").unwrap_or_else(|| "expr".to_owned());
        Ok((Part::Expression(expr.to_string()), bound.of, name))
    }

    /// The position of the unique index that ON CONFLICT is about.
    pub(super) fn arbiter(&mut self, table: &Table, target: &ast::ConflictTarget) -> Result<usize, SqlError> {
        let (columns, predicate) = match target {
            ast::ConflictTarget::Columns { columns, predicate } => (columns, predicate),
            ast::ConflictTarget::OnConstraint(name) => {
                let name = plain_name(name)?;
                let is_meant =
                    |index: &crate::catalog::Index| index.is_unique && table.is_plain(index) && index.name == name;
                return table.indexes.iter().position(is_meant).ok_or_else(|| {
                    let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
                });
            }
        };
        let mut wanted = Vec::new();
        for column in columns {
            wanted.push(match column.value.strip_prefix(crate::parse::TARGET) {
                Some(text) => {
                    let expr = crate::parse::expression(text)?;
                    self.of_target(table, &expr)?
                }
                None => Expr::Column(column_of(table, &folded(column))?),
            });
        }
        let mut given = Vec::new();
        if let Some(condition) = predicate {
            let scope = scope_of(table.name.plain(), &table.columns);
            conjuncts(self.within(scope, |binder| binder.condition(condition, "WHERE"))?, &mut given);
        }
        let rules = table.rules()?;
        let value = |at: usize| rules.iter().find(|rule| rule.column == at).map(|rule| &rule.value);
        let is_meant = |index: &crate::catalog::Index| {
            let keys: Vec<_> =
                table.sources(index).into_iter().map(|at| value(at).cloned().unwrap_or(Expr::Column(at))).collect();
            let holds = match table.condition(index) {
                Some(_) => value(index.columns[0]).is_some_and(|rule| crate::paths::is_implied(rule, &given)),
                None => true,
            };
            index.is_unique
                && holds
                && wanted.iter().all(|it| keys.iter().any(|key| key.is_same(it)))
                && keys.iter().all(|key| wanted.iter().any(|it| it.is_same(key)))
        };
        // One about all rows stands for those about some of them.
        let all = |index: &&crate::catalog::Index| table.condition(index).is_none();
        let found = table.indexes.iter().position(|index| all(&index) && is_meant(index));
        found.or_else(|| table.indexes.iter().position(is_meant)).ok_or_else(|| {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
        })
    }

    fn of_target(&mut self, table: &Table, expr: &ast::Expr) -> Result<Expr, SqlError> {
        let bound = self.within(scope_of(table.name.plain(), &table.columns), |binder| {
            binder.place = "index expressions";
            binder.known_expr(expr)
        })?;
        Ok(bound.expr)
    }
}

/// The bytes that are sorted as a value.
pub(crate) fn sort_key(value: Expr) -> Expr {
    Expr::Call(&SORT_KEY, [value].into())
}

fn column_of(table: &Table, name: &str) -> Result<usize, SqlError> {
    let missing = || SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
    table.visible().find(|(_, column)| column.name == name).map(|(at, _)| at).ok_or_else(missing)
}
