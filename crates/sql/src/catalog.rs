//! The tables that statements are bound to.

mod enums;
mod foreign_key;
mod owners;
mod shared;
mod stored;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use hashbrown::HashMap;
use polychron_base::{IndexId, TableId};
use polychron_schema::{ColumnOrder, KeyExtractor, Layout, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::computed::{Computed, Rule};
use crate::configured::Configured;
use crate::enums::{Enum, Enums};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, Path};
use crate::procedures::Procedure;
use crate::roles::{Access, Grant, Role, SharedAccess};
use crate::sequences::{Sequence, SequenceDefinition};
pub(crate) use crate::temporary::OnCommit;
use crate::types::ColumnType;

pub(crate) use foreign_key::{ForeignAction, ForeignKey};
use stored::of_stored;

/// What SQL knows of a table, and the engine does not: `definitions` keeps it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) columns: Vec<Column>,
    /// The name of the primary key.
    pub(crate) primary: String,
    /// By their names, in which order they are evaluated.
    #[serde(default)]
    pub(crate) checks: Vec<Check>,
    /// The name of the engine's table, if it is another one.
    #[serde(default)]
    pub(crate) engine: Option<String>,
    /// The number of the sequence of its hidden row numbers, if it has no primary key.
    #[serde(default)]
    pub(crate) row_numbers: Option<i64>,
    /// The names of unique indexes that are constraints.
    #[serde(default)]
    pub(crate) constraints: Vec<String>,
    /// The foreign keys that lead from it.
    #[serde(default)]
    pub(crate) foreign: Vec<ForeignKey>,
    /// The names of the tables whose foreign keys lead to it.
    #[serde(default)]
    pub(crate) children: Vec<Name>,
    /// The names of the views that are about it.
    #[serde(default)]
    pub(crate) views: Vec<Name>,
    /// The columns that INCLUDE of an index names, by the index's name.
    #[serde(default)]
    pub(crate) includes: BTreeMap<String, Vec<String>>,
    /// The sequences that are said to be owned by columns of it.
    #[serde(default)]
    pub(crate) owned: Vec<Name>,
    /// What becomes of it when a transaction commits, if it is a temporary one.
    #[serde(default)]
    pub(crate) on_commit: OnCommit,
    /// What COMMENT has said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
    /// Whose it is, and who may do what with it.
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub(crate) access: Access,
}

/// Which values an identity column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Identity {
    Always,
    ByDefault,
}

/// A condition that holds for each row of a table, or is NULL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    /// Its text.
    pub(crate) condition: String,
}

/// A column as SQL has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) of: ColumnType,
    pub(crate) nullable: bool,
    /// The text of its default.
    pub(crate) default: Option<String>,
    #[serde(default)]
    pub(crate) identity: Option<Identity>,
    /// Its name in the engine's table, if it is another one.
    #[serde(default)]
    pub(crate) engine: Option<String>,
    /// It has the row's number, or is computed, and has no name that a statement says.
    #[serde(default)]
    pub(crate) is_hidden: bool,
    #[serde(default)]
    pub(crate) computed: Option<Computed>,
    /// Who may do what with it, beside those who may do so with the table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) grants: Vec<Grant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
}

/// The name of the column with the row's number.
pub(crate) const ROW_NUMBER: &str = "(row number)";

impl Column {
    /// One that may be NULL, and has no default.
    pub(crate) fn new(name: impl Into<String>, of: ColumnType) -> Self {
        let (name, default, identity, engine, computed) = (name.into(), None, None, None, None);
        let (grants, comment) = (Vec::new(), None);
        Self { name, of, nullable: true, default, identity, engine, is_hidden: false, computed, grants, comment }
    }

    /// Its name in the engine's table.
    pub(crate) fn engine_name(&self) -> &str {
        self.engine.as_ref().unwrap_or(&self.name)
    }
}

/// A key of a table and how it is made.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) id: IndexId,
    pub(crate) name: String,
    /// Positions of its columns.
    pub(crate) columns: Vec<usize>,
    /// How they are sorted; empty where all of them rise.
    pub(crate) orders: Vec<ColumnOrder>,
    pub(crate) is_unique: bool,
    /// Whether it has an order, so that ranges of it can be scanned.
    pub(crate) is_ordered: bool,
    pub(crate) keys: KeyExtractor,
}

/// A table, with what is needed to read and write its rows.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) name: Name,
    pub(crate) layout: Layout,
    /// The primary one first.
    pub(crate) indexes: Vec<Index>,
    /// The columns, checks and names are those above.
    pub(crate) description: Description,
    /// The description is kept in a row of the definitions.
    pub(crate) is_kept: bool,
    /// Where the hidden numbers of its rows come from.
    pub(crate) row_numbers_from: Option<Arc<Sequence>>,
    /// As the engine has it.
    pub(crate) definition: TableDefinition,
    /// What its computed columns have, once that is bound.
    pub(crate) rules: OnceLock<Box<[Rule]>>,
}

impl Index {
    /// Whether the column at this position of the key rises.
    pub(crate) fn is_ascending(&self, position: usize) -> bool {
        !self.orders.get(position).copied().unwrap_or_default().descending
    }
}

/// Its columns and checks are those that are described.
impl std::ops::Deref for Table {
    type Target = Description;

    fn deref(&self) -> &Description {
        &self.description
    }
}

impl Table {
    /// A table of the engine, as its definition alone describes it.
    ///
    /// # Errors
    /// [`SqlState::FEATURE_NOT_SUPPORTED`] for columns of types that SQL has not.
    pub(crate) fn of_engine(id: TableId, definition: &TableDefinition, ids: &[IndexId]) -> Result<Self, SqlError> {
        let broken = |error: polychron_schema::SchemaError| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string());
        let columns = definition.columns.iter().map(|column| {
            let of = of_stored(column.column_type)
                .ok_or_else(|| SqlError::unsupported(format!("the type of {}.{}", definition.name, column.name)))?;
            Ok(Column { nullable: column.nullable, ..Column::new(column.name.clone(), of) })
        });
        let columns = columns.collect::<Result<_, SqlError>>()?;
        let is_ordered = |kind| kind == polychron_schema::IndexKind::Ordered;
        let mut indexes = vec![Index {
            id: IndexId::PRIMARY,
            name: format!("{}_pkey", definition.name),
            columns: definition.key.clone(),
            orders: Vec::new(),
            is_unique: true,
            is_ordered: is_ordered(definition.primary_kind),
            keys: KeyExtractor::primary(definition).map_err(broken)?,
        }];
        for (position, (index, id)) in definition.indexes.iter().zip(ids).enumerate() {
            indexes.push(Index {
                id: *id,
                name: index.name.clone(),
                columns: index.columns.clone(),
                orders: index.orders.clone(),
                is_unique: index.unique,
                is_ordered: is_ordered(index.kind),
                keys: KeyExtractor::secondary(definition, position).map_err(broken)?,
            });
        }
        let layout = definition.layout().map_err(broken)?;
        let primary = indexes[0].name.clone();
        let description = Description { columns, primary, ..Description::default() };
        let (name, definition) = (Name::of_key(definition.name.clone()), definition.clone());
        let (is_kept, row_numbers_from, rules) = (false, None, OnceLock::new());
        Ok(Self { id, name, layout, indexes, description, is_kept, row_numbers_from, definition, rules })
    }

    /// The same table, as SQL has described it under this name.
    #[must_use]
    pub(crate) fn described(
        mut self,
        name: &Name,
        description: Description,
        row_numbers: Option<Arc<Sequence>>,
    ) -> Self {
        name.clone_into(&mut self.name);
        self.indexes[0].name.clone_from(&description.primary);
        self.description = description;
        self.is_kept = true;
        self.row_numbers_from = row_numbers;
        self
    }

    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The same table of the engine, described in another way.
    pub(crate) fn redescribed(&self, name: &Name, description: Description) -> Self {
        let indexes = self.indexes.iter().map(Index::clone).collect();
        let (id, layout, definition) = (self.id, self.layout.clone(), self.definition.clone());
        let numbers = self.row_numbers_from.clone();
        let same = Self {
            id,
            name: Name::default(),
            layout,
            indexes,
            description: Description::default(),
            is_kept: true,
            row_numbers_from: None,
            definition,
            rules: OnceLock::new(),
        };
        same.described(name, description, numbers)
    }

    /// The columns that statements see, with their positions.
    pub(crate) fn visible(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| !column.is_hidden)
    }

    /// Whether it has a primary key, and no hidden numbers in its place.
    pub(crate) fn has_primary_key(&self) -> bool {
        self.description.row_numbers.is_none()
    }

    pub(crate) fn primary(&self) -> &Index {
        &self.indexes[0]
    }

    /// Its columns' values in words, for messages about a row.
    pub(crate) fn names(&self, columns: &[usize]) -> String {
        columns.iter().map(|&column| self.key_name(column)).collect::<Vec<_>>().join(", ")
    }
}

/// Something with a name.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    Table(Arc<Table>),
    Sequence(Arc<Sequence>),
    View(Arc<View>),
    Procedure(Arc<Procedure>),
    Enum(Arc<Enum>),
    Schema(Arc<Schema>),
    Role(Arc<Role>),
    Shared(Arc<SharedAccess>),
}

/// A schema.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Schema {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub(crate) access: Access,
}

/// A query with a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct View {
    pub(crate) name: Name,
    pub(crate) columns: Vec<String>,
    /// The types of the columns.
    #[serde(default)]
    pub(crate) types: Vec<ColumnType>,
    pub(crate) query: String,
    /// The names of tables and views that it is about.
    pub(crate) about: Vec<Name>,
    /// The names of the views that are about it.
    #[serde(default)]
    pub(crate) views: Vec<Name>,
    /// The schemas in which it looks for names.
    #[serde(default = "Path::initial")]
    pub(crate) path: Vec<String>,
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub(crate) access: Access,
    /// Who may do what with its columns, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) column_grants: BTreeMap<String, Vec<Grant>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
    /// What COMMENT has said of its columns, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) column_comments: BTreeMap<String, String>,
}

impl Object {
    pub(crate) fn table(&self) -> Option<&Arc<Table>> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }
}

/// What a transaction has defined: names with what they stand for, or that they stand for nothing.
pub(crate) type Changes = std::collections::BTreeMap<Name, Option<Object>>;

/// The database, as those see it who find what a catalog does not have yet.
pub(crate) trait Source: crate::watch::Live + Send + Sync {
    /// The names of the objects that SQL has made and the catalog may not have, and of the tables that programs have made.
    fn names(&self) -> Result<Vec<Name>, SqlError>;

    /// Finds all objects that SQL has made. The answer is the catalog, which has them all from now on, so that a listing reads no definitions: a transaction that
    /// has changed some would conflict for ever with such a reading, which comes later in the order and is of its own thread.
    fn know_all(&self) -> Result<Arc<Catalog>, SqlError>;

    /// The names of the schemas that SQL has made. From now on the catalog has them all.
    fn schemas(&self) -> Result<Vec<Name>, SqlError>;

    /// The roles that SQL has made, and what all objects share. From now on the catalog has them all.
    fn roles(&self) -> Result<Vec<(Name, Object)>, SqlError>;

    /// The enums that SQL has made. From now on the catalog has them all.
    fn enums(&self) -> Result<Vec<(Name, Object)>, SqlError>;

    fn find(&self, name: &Name) -> Result<Option<Object>, SqlError>;

    /// Values of a sequence up to `last` may be given out from now on, whatever becomes of the process, if it was `from` up to now. The answer is up to where
    /// they may be given out.
    fn grant(&self, sequence: i64, from: Option<i64>, last: i64) -> Result<Option<i64>, SqlError>;

    /// A number that no sequence has had.
    fn new_number(&self) -> i64;

    /// A sequence of this definition, which has given out nothing that the database does not know of.
    fn new_sequence(&self, name: &Name, definition: SequenceDefinition) -> Arc<Sequence>;

    /// What is configured.
    fn configured(&self) -> Arc<Configured>;

    /// Up to where values of a sequence may have been given out.
    fn granted(&self, sequence: i64) -> Result<Option<i64>, SqlError>;
}

/// The objects that were named so far, as a statement sees them; never changed, but replaced.
#[derive(Default)]
pub(crate) struct Catalog {
    objects: HashMap<Name, Object>,
    /// Names that stand for nothing, whatever the source says.
    gone: hashbrown::HashSet<Name>,
    pub(crate) source: Option<Weak<dyn Source>>,
    /// Tables that a transaction of this session alone may use, until it ends.
    pub(crate) closed: HashMap<TableId, u64>,
    /// Each catalog of a database has another number.
    pub(crate) version: u64,
    /// How often definitions were committed or forgotten: what was read of them before the last of these may be over.
    pub(crate) definitions: u64,
    /// It has what a transaction has changed, so that others of its number are not the same.
    pub(crate) is_changed: bool,
    /// All schemas are among the objects.
    knows_schemas: bool,
    /// All objects are there, but for those that another object has made for the same database.
    knows_all: bool,
    /// All roles are, and what all objects share.
    knows_roles: bool,
    /// All enums are.
    knows_enums: bool,
    /// The types of those that are here.
    enums: Arc<Enums>,
}

impl Catalog {
    /// One without objects, but for those that the source finds.
    pub(crate) fn of(source: Weak<dyn Source>, version: u64) -> Self {
        Self { source: Some(source), version, ..Self::default() }
    }

    /// The same with another number.
    fn next(&self) -> Self {
        let (objects, gone) = (self.objects.clone(), self.gone.clone());
        let (source, closed) = (self.source.clone(), self.closed.clone());
        let (version, knows_schemas, knows_all) = (self.version + 1, self.knows_schemas, self.knows_all);
        let (definitions, knows_roles, knows_enums) = (self.definitions, self.knows_roles, self.knows_enums);
        let (is_changed, enums) = (false, self.enums.clone());
        Self {
            objects,
            gone,
            source,
            closed,
            version,
            definitions,
            is_changed,
            knows_schemas,
            knows_all,
            knows_roles,
            knows_enums,
            enums,
        }
    }

    /// The same objects with a new one, in the place of one of its name.
    #[must_use]
    pub(crate) fn with(&self, name: &Name, new: Object) -> Self {
        let mut next = self.next();
        next.objects.insert(name.clone(), new);
        next.settle([name].into_iter());
        next
    }

    /// The same objects as a session sees them that has changed some.
    #[must_use]
    pub(crate) fn changed(&self, changes: &Changes) -> Self {
        let mut next = Self { version: self.version, is_changed: true, ..self.next() };
        for (name, object) in changes {
            match object {
                Some(object) => drop(next.objects.insert(name.clone(), object.clone())),
                None => {
                    next.objects.remove(name);
                    next.gone.insert(name.clone());
                }
            }
        }
        next.settle(changes.keys());
        next
    }

    /// The same objects behind a transaction that has changed some.
    #[must_use]
    pub(crate) fn committed(&self, changes: &Changes) -> Self {
        let mut next = Self { definitions: self.definitions + 1, ..self.next() };
        for (name, object) in changes {
            match object {
                Some(object) => drop(next.objects.insert(name.clone(), object.clone())),
                None => drop(next.objects.remove(name)),
            }
        }
        next.settle(changes.keys());
        next
    }

    /// Those of the objects for which this holds.
    #[must_use]
    pub(crate) fn retaining(&self, stays: impl Fn(&Object) -> bool) -> Self {
        let mut next = Self { definitions: self.definitions + 1, ..self.next() };
        next.objects.retain(|_, object| stays(object));
        next
    }

    /// Whether the session has closed a table.
    pub(crate) fn has_closed(&self, session: u64) -> bool {
        self.closed.values().any(|by| *by == session)
    }

    /// The same with these tables closed to all sessions but one, or with those open that it had closed.
    #[must_use]
    pub(crate) fn closing(&self, tables: &[TableId], session: u64) -> Self {
        let mut next = self.next();
        if tables.is_empty() {
            next.closed.retain(|_, by| *by != session);
        }
        next.closed.extend(tables.iter().map(|table| (*table, session)));
        next
    }

    /// Whether one of the tables is closed to a session.
    pub(crate) fn is_closed(&self, tables: &[TableId], session: u64) -> bool {
        tables.iter().any(|table| self.closed.get(table).is_some_and(|by| *by != session))
    }

    /// What this name stands for, if it stands for anything.
    pub(crate) fn object(&self, name: &Name) -> Result<Option<Object>, SqlError> {
        if let Some(object) = self.objects.get(name) {
            return Ok(Some(object.clone()));
        }
        let may_be = !self.gone.contains(name) && !name.is_temporary();
        let source = self.source.as_ref().and_then(Weak::upgrade).filter(|_| may_be);
        source.map_or(Ok(None), |source| source.find(name))
    }

    /// The objects in a schema that were named.
    pub(crate) fn in_schema(&self, schema: &str) -> Vec<(Name, Object)> {
        let is_in = |name: &Name| name.as_schema().is_none() && name.schema() == schema;
        self.objects
            .iter()
            .filter(|(name, _)| is_in(name))
            .map(|(name, object)| (name.clone(), object.clone()))
            .collect()
    }

    /// What this name is known to stand for: nothing where it was not named yet.
    pub(crate) fn known(&self, name: &Name) -> Option<Object> {
        self.objects.get(name).cloned()
    }

    /// All objects, in the order of their names.
    pub(crate) fn objects(&self) -> Result<Vec<Object>, SqlError> {
        let mut names: std::collections::BTreeSet<Name> = self.objects.keys().cloned().collect();
        if let Some(source) = self.source.as_ref().and_then(Weak::upgrade) {
            names.extend(source.names()?);
        }
        names.iter().filter_map(|name| self.object(name).transpose()).collect()
    }

    /// The table of this name, if there is one.
    pub(crate) fn find(&self, name: &Name) -> Result<Option<Arc<Table>>, SqlError> {
        Ok(self.object(name)?.and_then(|object| object.table().cloned()))
    }

    pub(crate) fn table(&self, name: &Name) -> Result<Arc<Table>, SqlError> {
        let missing = || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        self.find(name)?.ok_or_else(missing)
    }

    /// The sequence of this name.
    pub(crate) fn sequence(&self, name: &Name) -> Result<Arc<Sequence>, SqlError> {
        match self.object(name)? {
            Some(Object::Sequence(sequence)) => Ok(sequence),
            Some(_) => Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence"))),
            None => Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
        }
    }

    /// The tables that were named.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.objects.values().filter_map(Object::table)
    }

    /// A sequence of this definition.
    pub(crate) fn new_sequence(&self, name: &Name, definition: SequenceDefinition) -> Arc<Sequence> {
        match self.source.as_ref().and_then(Weak::upgrade) {
            Some(source) => source.new_sequence(name, definition),
            None => Arc::new(Sequence::new(name, definition, None)),
        }
    }

    /// The sequence of a table's row numbers.
    pub(crate) fn sequence_of_rows(&self, table: &Name, number: i64) -> Arc<Sequence> {
        self.new_sequence(table, SequenceDefinition::of_rows(number))
    }

    /// A number that no sequence of the database has had.
    pub(crate) fn new_number(&self) -> i64 {
        self.source.as_ref().and_then(Weak::upgrade).map_or(0, |source| source.new_number())
    }
}

/// That a table or an index of this name is there already.
pub(crate) fn taken(name: &Name) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}
