//! CREATE TABLE and CREATE INDEX.

use std::collections::BTreeMap;

use polychron_schema::{ColumnType as Stored, IndexDefinition, MAX_ROW_BYTES, TableDefinition};
use sqlparser::ast::{self, ColumnOption, TableConstraint};

use super::changes::scope_of;
use super::foreign_keys::check_types;
use super::indexes::{DraftIndex, KeyColumns, check_key};
use super::{Binder, Recorded, Scope, folded};
use crate::casts::Place;
use crate::catalog::{Check, Column, Description, ForeignAction, ForeignKey, Identity, OnCommit, ROW_NUMBER, Table};
use crate::computed::is_own_name;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::names::Name;
use crate::plan::{Node, Scan};
use crate::statement::{Definition, NewObject, NewObjects};
use crate::types::{Bound, ColumnType, Type};

/// A table to be made: for the engine, and what SQL alone knows of it.
#[derive(Clone, Debug)]
pub(crate) struct NewTable {
    pub(crate) name: Name,
    pub(crate) definition: TableDefinition,
    pub(crate) description: Description,
    /// Its first rows.
    pub(crate) source: Option<Node>,
}

impl NewTable {
    /// The same table with one more index, and its rows.
    pub(crate) fn with_index(table: &std::sync::Arc<Table>, index: IndexDefinition) -> Self {
        let name = table.name.clone();
        let definition = table.definition.clone().with_name(name.key()).with_index(index);
        let source = Some(Node::Scan(Scan::whole(table)));
        Self { name, definition, description: table.description.clone(), source }
    }
}

/// A table as it is to be, while its definition is put together.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) name: Name,
    pub(super) description: Description,
    /// The primary key's columns by their names: none where rows have hidden numbers.
    pub(super) key: Option<Vec<String>>,
    pub(super) indexes: Vec<DraftIndex>,
    /// Columns that have got other names, in this order.
    pub(super) renames: Vec<(String, String)>,
    /// What becomes of other objects.
    pub(super) objects: NewObjects,
}

/// How the engine stores values of a type.
pub(crate) fn stored(of: ColumnType) -> Result<Stored, SqlError> {
    Ok(match (of.base, of.bound) {
        (Type::Bool, _) => Stored::Bool,
        (Type::Int2, _) => Stored::I16,
        (Type::Int4, _) => Stored::I32,
        (Type::Int8 | Type::Oid | Type::Time | Type::Enum(_), _) => Stored::I64,
        (Type::Float4, _) => Stored::F32,
        (Type::Float8, _) => Stored::F64,
        (Type::Numeric, Bound::Digits(precision, scale)) if precision <= 18 => Stored::Decimal { scale },
        (Type::Numeric, Bound::Digits(_, scale)) => Stored::Decimal128 { scale },
        (Type::Numeric, _) => Stored::FixedBytes { bytes: 20 },
        (Type::Text | Type::Varchar | Type::Bpchar, bound) => {
            let characters = if let Bound::Length(length) = bound { length } else { u32::MAX };
            Stored::String { max: characters.saturating_mul(4).min(MAX_ROW_BYTES as u32) }
        }
        (Type::Json | Type::Jsonb, _) => Stored::String { max: MAX_ROW_BYTES as u32 },
        (Type::Bytea | Type::Array(_), _) => Stored::Bytes { max: MAX_ROW_BYTES as u32 },
        (Type::Date, _) => Stored::Date,
        (Type::Timestamp | Type::Timestamptz, _) => Stored::Timestamp,
        (Type::Interval | Type::Uuid, _) => Stored::FixedBytes { bytes: 16 },
        (of, _) if of.is_object() || of.is_vector() || of == Type::Record => {
            return Err(SqlError::unsupported(format!("a column of type {of}")));
        }
        (_, _) => {
            let message = format!("column has pseudo-type {}", of.base);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
    })
}

/// A key, a unique constraint, a foreign key or a CHECK of a table that is being defined.
pub(super) enum Constraint {
    Primary(Option<String>, Vec<String>),
    Unique(Option<String>, Vec<String>),
    Foreign(Option<String>, (ForeignKey, ast::ObjectName)),
    Check(Option<String>, Box<ast::Expr>),
}

impl Draft {
    pub(super) fn new(name: &Name) -> Self {
        let description = Description { primary: format!("{name}_pkey"), ..Description::default() };
        let (indexes, renames, objects) = Default::default();
        Self { name: name.clone(), description, key: None, indexes, renames, objects }
    }

    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.description.columns.iter().position(|column| column.name == name && !column.is_hidden)
    }

    /// What INCLUDE of its indexes names.
    pub(super) fn includes(&self) -> BTreeMap<String, Vec<String>> {
        let with = self.indexes.iter().filter(|index| !index.include.is_empty());
        with.map(|index| (index.name.clone(), index.include.clone())).collect()
    }

    fn key_column(&self, name: &str) -> Result<usize, SqlError> {
        let missing = || {
            let message = format!("column \"{name}\" named in key does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        };
        self.column(name).ok_or_else(missing)
    }

    /// Whether an index or a constraint of the table has this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let of = &self.description;
        self.key.is_some() && of.primary == name
            || self.indexes.iter().any(|index| index.name == name)
            || of.checks.iter().any(|check| check.name == name)
            || of.foreign.iter().any(|key| key.name == name)
    }

    pub(super) fn add_key(&mut self, named: Option<String>, key: Vec<String>) -> Result<(), SqlError> {
        if self.key.is_some() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", self.name);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        for name in &key {
            let at = self.key_column(name)?;
            check_key(self.description.columns[at].of)?;
            self.description.columns[at].nullable = false;
        }
        self.description.primary = named.unwrap_or_else(|| format!("{}_pkey", self.name));
        self.key = Some(key);
        Ok(())
    }

    pub(super) fn add_unique(
        &mut self,
        catalog: &Recorded<'_>,
        named: Option<String>,
        columns: Vec<String>,
    ) -> Result<(), SqlError> {
        columns.iter().try_for_each(|name| check_key(self.description.columns[self.key_column(name)?].of))?;
        let named = match named {
            Some(named) => named,
            None => free_name(
                &|name| Ok(self.has_name(name) || catalog.is_taken(&self.name.beside(name))?),
                &format!("{}_{}_key", self.name, columns.join("_")),
            )?,
        };
        self.description.constraints.push(named.clone());
        self.indexes.push(DraftIndex::unique(named, columns));
        Ok(())
    }

    /// The table, as the engine is to make it.
    pub(super) fn table(mut self, catalog: &Recorded<'_>) -> Result<(NewTable, NewObjects), SqlError> {
        let columns = &mut self.description.columns;
        columns.retain(|column| !column.is_hidden);
        columns.iter_mut().for_each(|column| column.engine = None);
        match self.key {
            Some(_) => self.description.row_numbers = None,
            None => {
                self.description.primary.clear();
                let hidden = Column::new(ROW_NUMBER, Type::Int8.into());
                columns.push(Column { nullable: false, is_hidden: true, ..hidden });
                let numbers = self.description.row_numbers;
                self.description.row_numbers = Some(numbers.unwrap_or_else(|| catalog.new_number()));
            }
        }
        let number = columns.len() - 1;
        let mut keys = KeyColumns { catalog, table: self.name.plain(), columns: &mut *columns };
        let key = self.key.as_ref().map_or_else(|| vec![number], |key| keys.of_columns(key));
        let indexes = self.indexes.iter().map(|index| keys.index(index)).collect::<Result<Vec<_>, _>>()?;
        let mut definition = TableDefinition { key, indexes, ..TableDefinition::new(self.name.key()) };
        for column in columns.iter() {
            let of = stored(column.of)?;
            definition = match column.nullable {
                true => definition.with_nullable_column(column.name.clone(), of),
                false => definition.with_column(column.name.clone(), of),
            };
        }
        self.description.includes = self.includes();
        self.description.checks.sort_by(|one, other| one.name.cmp(&other.name));
        self.description.engine = None;
        definition.validate().map_err(|error| SqlError::new(SqlState::INVALID_TABLE_DEFINITION, error.to_string()))?;
        let (name, description) = (self.name, self.description);
        Ok((NewTable { name, definition, description, source: None }, self.objects))
    }
}

/// Refuses a column that gets its values in two ways.
fn check_value_options(table: &Name, column: &ast::ColumnDef, is_serial: bool) -> Result<(), SqlError> {
    let count = |is_meant: fn(&ColumnOption) -> bool| column.options.iter().filter(|it| is_meant(&it.option)).count();
    let defaults = usize::from(is_serial) + count(|it| matches!(it, ColumnOption::Default(_)));
    let identities = count(|it| matches!(it, ColumnOption::Generated { generation_expr: None, .. }));
    let expressions = count(|it| matches!(it, ColumnOption::Generated { generation_expr: Some(_), .. }));
    let what = match (defaults, identities, expressions) {
        (0 | 1, 0, 0) | (0, 1, 0) | (0, 0, 1) => return Ok(()),
        (_, 0, 0) => "multiple default values",
        (0, _, 0) => "multiple identity specifications",
        (0, 0, _) => "multiple generation clauses",
        (0, ..) => "both identity and generation expression",
        (_, 0, _) => "both default and generation expression",
        _ => "both default and identity",
    };
    let message = format!("{what} specified for column \"{}\" of table \"{table}\"", folded(&column.name));
    let message = message.replace("specifications specified", "specifications");
    Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
}

impl Binder<'_> {
    pub(crate) fn create_table(&mut self, create: &ast::CreateTable, name: Name) -> Result<Definition, SqlError> {
        if let Some(query) = &create.query {
            return self.create_table_as(create, query, &name);
        }
        let unsupported = [
            (create.like.is_some(), "LIKE without parentheses"),
            (create.partition_by.is_some(), "PARTITION BY"),
            (create.inherits.is_some(), "INHERITS"),
        ];
        if let Some((_, what)) = unsupported.into_iter().find(|(is_there, _)| *is_there) {
            return Err(SqlError::unsupported(what));
        }
        let (mut draft, mut constraints) = (Draft::new(&name), Vec::new());
        draft.description.on_commit = Self::on_commit(&name, create)?;
        for column in &create.columns {
            match column.name.value.strip_prefix(crate::parse::LIKE) {
                Some(text) => self.like(text, &mut draft, &mut constraints)?,
                None => self.new_column(column, &mut draft, &mut constraints)?,
            }
        }
        self.check_generated(&draft)?;
        for constraint in &create.constraints {
            constraints.push(constraint_of(constraint)?);
        }
        // Keys are known before foreign keys of the same table lead to them.
        constraints.sort_by_key(|it| match it {
            Constraint::Primary(..) => 0,
            Constraint::Check(..) | Constraint::Unique(..) => 1,
            Constraint::Foreign(..) => 2,
        });
        let mut definition = Definition::new("CREATE TABLE");
        for constraint in constraints {
            self.add_constraint(&mut draft, constraint, &mut definition)?;
        }
        let (table, objects) = draft.table(&self.catalog)?;
        definition.tables.push(table);
        definition.objects.extend(objects);
        Ok(definition)
    }

    pub(super) fn add_constraint(
        &mut self,
        draft: &mut Draft,
        constraint: Constraint,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        match constraint {
            Constraint::Primary(named, key) => draft.add_key(named, key),
            Constraint::Unique(named, key) => draft.add_unique(&self.catalog, named, key),
            Constraint::Check(named, expr) => self.add_check(draft, named, &expr),
            Constraint::Foreign(named, (key, parent)) => self.add_foreign_key(draft, named, key, &parent, definition),
        }
    }

    pub(super) fn new_column(
        &mut self,
        column: &ast::ColumnDef,
        draft: &mut Draft,
        constraints: &mut Vec<Constraint>,
    ) -> Result<(), SqlError> {
        let name = folded(&column.name);
        check_name(&name)?;
        if draft.column(&name).is_some() {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let serial = super::sequences::serial(&column.data_type);
        let of = serial.map_or_else(|| self.catalog.usable_type(&column.data_type), |base| Ok(base.into()))?;
        let mut new = Column { nullable: serial.is_none(), ..Column::new(name.clone(), of) };
        if serial.is_some() {
            new.default = Some(self.own_sequence(draft, &new, &[], false)?);
        }
        check_value_options(&draft.name, column, serial.is_some())?;
        for option in &column.options {
            let named = || option.name.as_ref().map(folded);
            match &option.option {
                ColumnOption::Null => {}
                ColumnOption::NotNull => new.nullable = false,
                ColumnOption::Default(expr) => new.default = Some(self.new_default(expr, of)?),
                ColumnOption::PrimaryKey(key) => {
                    check_not_deferrable(key.characteristics, "PRIMARY KEY")?;
                    constraints.push(Constraint::Primary(named(), vec![name.clone()]));
                }
                // Texts are sorted by their bytes.
                ColumnOption::Collation(name) if matches!(&*super::plain_name(name)?, "C" | "POSIX" | "default") => {}
                ColumnOption::Unique(key) => {
                    check_unique(key)?;
                    constraints.push(Constraint::Unique(named(), vec![name.clone()]));
                }
                ColumnOption::ForeignKey(key) => {
                    let (of, parent) = foreign_of(key)?;
                    let of = ForeignKey { columns: vec![name.clone()], ..of };
                    constraints.push(Constraint::Foreign(named(), (of, parent)));
                }
                ColumnOption::Check(check) => {
                    let named = named().or_else(|| check.name.as_ref().map(folded));
                    constraints.push(Constraint::Check(named, check.expr.clone()));
                }
                ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
                    new.identity = Some(match generated_as {
                        ast::GeneratedAs::Always => Identity::Always,
                        _ => Identity::ByDefault,
                    });
                    let options = sequence_options.as_deref().unwrap_or_default();
                    new.default = Some(self.own_sequence(draft, &new, options, true)?);
                    new.nullable = false;
                }
                ColumnOption::Generated {
                    generated_as: ast::GeneratedAs::ExpStored,
                    generation_expr: Some(expr),
                    ..
                } => new.generated = Some(expr.to_string()),
                other => return Err(SqlError::unsupported(format!("the column's {other}"))),
            }
        }
        draft.description.columns.push(new);
        Ok(())
    }

    /// The text of a default, which must be one for the type.
    pub(super) fn new_default(&mut self, expr: &ast::Expr, of: ColumnType) -> Result<String, SqlError> {
        let text = expr.to_string();
        let of_sequence = self.default_of_sequence(&text)?;
        let bind = |binder: &mut Self| {
            binder.within(Scope::default(), |binder| {
                binder.place = "DEFAULT expressions";
                binder.expr(expr)
            })
        };
        let bound = if of_sequence.is_some() { bind(self)? } else { self.for_table(bind)? };
        self.cast(bound, of, Place::Assignment)?;
        Ok(of_sequence.unwrap_or(text))
    }

    /// Adds a CHECK. One without a name has that of the table and, where it is about one column, of the column.
    fn add_check(&mut self, draft: &mut Draft, named: Option<String>, expr: &ast::Expr) -> Result<(), SqlError> {
        let columns = &draft.description.columns;
        let condition = self.for_table(|binder| {
            binder.within(scope_of(draft.name.plain(), columns), |binder| {
                binder.place = "check constraints";
                binder.condition(expr, "CHECK")
            })
        })?;
        let is_taken = |name: &str| draft.description.checks.iter().any(|check| check.name == name);
        let name = match named {
            Some(name) if is_taken(&name) => return Err(constraint_taken("check constraint", &name)),
            Some(name) => name,
            None => {
                let mut about = std::collections::BTreeSet::new();
                condition.walk(&mut |part| about.extend(if let Expr::Column(at) = part { Some(*at) } else { None }));
                let first = match about.first() {
                    Some(&at) if about.len() == 1 => format!("{}_{}_check", draft.name, columns[at].name),
                    _ => format!("{}_check", draft.name),
                };
                free_name(&|name| Ok(is_taken(name)), &first)?
            }
        };
        draft.description.checks.push(Check { name, condition: expr.to_string() });
        Ok(())
    }

    /// Adds a foreign key, of which the parent is told.
    fn add_foreign_key(
        &mut self,
        draft: &mut Draft,
        named: Option<String>,
        mut key: ForeignKey,
        parent: &ast::ObjectName,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let parent = self.parent_of(&draft.name, parent)?;
        key.parent = parent.as_ref().map_or_else(|| draft.name.clone(), |parent| parent.name.clone());
        key.columns.iter().try_for_each(|name| {
            let missing = format!("column \"{name}\" referenced in foreign key constraint does not exist");
            draft.column(name).map(drop).ok_or_else(|| SqlError::new(SqlState::UNDEFINED_COLUMN, missing))
        })?;
        super::generated::check_foreign_key(&draft.description.columns, &key)?;
        let keys = match &parent {
            Some(parent) => Keys::of_table(parent),
            None => Keys::of_draft(draft),
        };
        let types = keys.resolve(&mut key)?;
        if let Some(parent) = &parent {
            self.catalog.check_references(parent, &key.parents)?;
        }
        let first = format!("{}_{}_fkey", draft.name, key.columns.join("_"));
        key.name = match named {
            Some(name) if draft.has_name(&name) => return Err(constraint_taken("constraint", &name)),
            Some(name) => name,
            None => free_name(&|name| Ok(draft.has_name(name)), &first)?,
        };
        check_types(&key, &draft.types_of(&key.columns), &types)?;
        if let Some(parent) = &parent {
            check_on_commit(parent, draft)?;
        }
        match parent {
            None if !draft.description.children.contains(&key.parent) => {
                draft.description.children.push(key.parent.clone());
            }
            None => {}
            Some(parent) => {
                definition.closes.push(parent.id);
                let mut description = definition.described(&parent);
                if !description.children.contains(&draft.name) {
                    description.children.push(draft.name.clone());
                }
                let object = NewObject::Table(parent, description);
                definition.set_object(&key.parent, Some(object));
            }
        }
        draft.description.foreign.push(key);
        Ok(())
    }
}

impl Draft {
    /// The types of columns that it has.
    pub(super) fn types_of(&self, columns: &[String]) -> Vec<Type> {
        columns.iter().filter_map(|name| Some(self.description.columns[self.column(name)?].of.base)).collect()
    }
}

/// Refuses a key to rows that go at each commit, from rows that stay.
fn check_on_commit(parent: &Table, child: &Draft) -> Result<(), SqlError> {
    let (own, other) = (child.description.on_commit, parent.on_commit);
    if other != OnCommit::DeleteRows || own == OnCommit::DeleteRows {
        return Ok(());
    }
    let message = "unsupported ON COMMIT and foreign key combination";
    let (child, parent) = (child.name.plain(), parent.name.plain());
    let detail = format!("Table \"{child}\" references \"{parent}\", but they do not have the same ON COMMIT setting.");
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
}

/// The unique keys of a table to which a foreign key may lead.
struct Keys<'t> {
    name: &'t Name,
    columns: &'t [Column],
    primary: Option<Vec<String>>,
    unique: Vec<Vec<String>>,
}

impl<'t> Keys<'t> {
    fn of_table(table: &'t Table) -> Self {
        let named = |index: &crate::catalog::Index| {
            table.sources(index).into_iter().map(|at| table.columns[at].name.clone()).collect::<Vec<_>>()
        };
        let primary = table.has_primary_key().then(|| named(table.primary()));
        let unique = table.indexes[1..].iter().filter(|index| index.is_unique && table.is_plain(index));
        let unique = unique.map(named).collect();
        Self { name: &table.name, columns: &table.columns, primary, unique }
    }

    fn of_draft(draft: &'t Draft) -> Self {
        let unique = draft.indexes.iter().filter(|index| index.is_unique).filter_map(DraftIndex::columns).collect();
        Self { name: &draft.name, columns: &draft.description.columns, primary: draft.key.clone(), unique }
    }

    /// The types of the columns to which a key leads, which it names from now on.
    fn resolve(self, key: &mut ForeignKey) -> Result<Vec<Type>, SqlError> {
        let table = self.name;
        if key.parents.is_empty() {
            let missing = format!("there is no primary key for referenced table \"{table}\"");
            let missing = || SqlError::new(SqlState::UNDEFINED_OBJECT, missing.clone());
            key.parents = self.primary.clone().ok_or_else(missing)?;
        }
        if key.parents.len() != key.columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        let types = key.parents.iter().map(|name| {
            let missing = format!("column \"{name}\" referenced in foreign key constraint does not exist");
            let found = self.columns.iter().find(|column| column.name == *name && !column.is_hidden);
            found.map(|column| column.of.base).ok_or_else(|| SqlError::new(SqlState::UNDEFINED_COLUMN, missing))
        });
        let types = types.collect::<Result<Vec<_>, _>>()?;
        let is_same =
            |own: &Vec<String>| own.len() == key.parents.len() && own.iter().all(|it| key.parents.contains(it));
        if !self.primary.iter().chain(&self.unique).any(is_same) {
            let message = format!("there is no unique constraint matching given keys for referenced table \"{table}\"");
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        Ok(types)
    }
}

pub(super) fn constraint_taken(kind: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_OBJECT, format!("{kind} \"{name}\" already exists"))
}

fn check_unique(key: &ast::UniqueConstraint) -> Result<(), SqlError> {
    if key.nulls_distinct == ast::NullsDistinctOption::NotDistinct {
        return Err(SqlError::unsupported("UNIQUE NULLS NOT DISTINCT"));
    }
    check_not_deferrable(key.characteristics, "UNIQUE")
}

/// Keys are checked as rows are written: one that is to be checked later is refused.
fn check_not_deferrable(said: Option<ast::ConstraintCharacteristics>, kind: &str) -> Result<(), SqlError> {
    let is_deferrable =
        said.is_some_and(|it| it.deferrable == Some(true) || it.initially == Some(ast::DeferrableInitial::Deferred));
    if is_deferrable { Err(SqlError::unsupported(format!("{kind} DEFERRABLE"))) } else { Ok(()) }
}

pub(super) fn constraint_of(constraint: &TableConstraint) -> Result<Constraint, SqlError> {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            check_not_deferrable(key.characteristics, "PRIMARY KEY")?;
            Ok(Constraint::Primary(key.name.as_ref().map(folded), names_of(&key.columns)?))
        }
        TableConstraint::Unique(key) => {
            check_unique(key)?;
            Ok(Constraint::Unique(key.name.as_ref().map(folded), names_of(&key.columns)?))
        }
        TableConstraint::ForeignKey(key) => Ok(Constraint::Foreign(key.name.as_ref().map(folded), foreign_of(key)?)),
        TableConstraint::Check(check) => Ok(Constraint::Check(check.name.as_ref().map(folded), check.expr.clone())),
        other => Err(SqlError::unsupported(format!("the constraint {other}"))),
    }
}

fn foreign_of(key: &ast::ForeignKeyConstraint) -> Result<(ForeignKey, ast::ObjectName), SqlError> {
    use ast::ReferentialAction as Action;
    let action = |action: &Option<Action>| match action {
        None | Some(Action::NoAction) => ForeignAction::NoAction,
        Some(Action::Restrict) => ForeignAction::Restrict,
        Some(Action::Cascade) => ForeignAction::Cascade,
        Some(Action::SetNull) => ForeignAction::SetNull,
        Some(Action::SetDefault) => ForeignAction::SetDefault,
    };
    if matches!(
        key.match_kind,
        Some(ast::ConstraintReferenceMatchKind::Full | ast::ConstraintReferenceMatchKind::Partial)
    ) {
        return Err(SqlError::unsupported(format!("the constraint {key}")));
    }
    let deferred = key.characteristics.is_some_and(|it| it.initially == Some(ast::DeferrableInitial::Deferred));
    let of = ForeignKey {
        name: String::new(),
        columns: key.columns.iter().map(folded).collect(),
        parent: Name::default(),
        parents: key.referred_columns.iter().map(folded).collect(),
        on_delete: action(&key.on_delete),
        on_update: action(&key.on_update),
        deferrable: deferred || key.characteristics.is_some_and(|it| it.deferrable == Some(true)),
        deferred,
    };
    Ok((of, key.foreign_table.clone()))
}

fn names_of(columns: &[ast::IndexColumn]) -> Result<Vec<String>, SqlError> {
    let name = |column: &ast::IndexColumn| match &column.column.expr {
        ast::Expr::Identifier(name) => Ok(folded(name)),
        other => Err(SqlError::unsupported(format!("the key {other}"))),
    };
    columns.iter().map(name).collect()
}

/// Refuses a name that SQL keeps for itself.
pub(super) fn check_name(name: &str) -> Result<(), SqlError> {
    let message = || format!("the column name \"{name}\" is reserved");
    if is_own_name(name) { Err(SqlError::new(SqlState::RESERVED_NAME, message())) } else { Ok(()) }
}

/// The name, with the first number that makes it free.
pub(super) fn free_name(is_taken: &dyn Fn(&str) -> Result<bool, SqlError>, name: &str) -> Result<String, SqlError> {
    let mut free = name.to_owned();
    for number in 1_u64.. {
        if !is_taken(&free)? {
            break;
        }
        free = format!("{name}{number}");
    }
    Ok(free)
}
