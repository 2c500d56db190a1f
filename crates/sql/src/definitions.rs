//! What SQL alone knows of the objects that it has made, as rows of tables of the database itself: so it is durable as they are.
//!
//! The rows of objects are written by the transaction that defines them. The rows that say how far sequences are have transactions of their own. A row without
//! its table, or one that does not fit it, is not the table's.

use std::sync::Arc;

use polychron_engine::definitions::Standing;
use polychron_engine::{Error, Procedure, Protocol, Transaction, Worker};
use polychron_schema::{ColumnType as Stored, MAX_ROW_BYTES, TableDefinition};

use serde::{Deserialize, Serialize};

use crate::bind::stored;
use crate::catalog::{Catalog, Description, Object, Schema, Table, View};
use crate::context::Now;
use crate::datum::{Datum, OwnedDatum};
use crate::enums::{self, Enum};
use crate::error::SqlError;
use crate::exec::Failure;
use crate::names::Name;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::procedures;
use crate::roles::{self, Role, SharedAccess};
use crate::sequences::SequenceDefinition;
use crate::statement::{Action, Planned, Statement, answer};
use crate::text::Zone;
use crate::types::Type;
use crate::write_rules;

/// The name of the table of objects.
pub(crate) const NAME: &str = polychron_engine::write_rules::RECORDS;

/// The name of the table that says how far sequences are.
const SEQUENCES: &str = "polychron_sql_sequences";

/// Whether a table of the engine is one of these, which SQL does not name.
pub(crate) fn is_own_name(name: &str) -> bool {
    name == NAME || name == SEQUENCES
}

/// What a row says of an object. The first kind has no name of its own there, as it was the only one once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Kept {
    Table(Description),
    Other(Other),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Other {
    Sequence(SequenceDefinition),
    View(View),
    Procedure(procedures::Procedure),
    Enum(Enum),
    Schema(Schema),
    Role(Role),
    Shared(SharedAccess),
}

impl Kept {
    pub(crate) fn of(object: &Object) -> Self {
        match object {
            Object::Table(table) => Self::Table(table.description.clone()),
            Object::Sequence(sequence) => Self::Other(Other::Sequence(sequence.definition.clone())),
            Object::View(view) => Self::Other(Other::View(View::clone(view))),
            Object::Enum(of) => Self::Other(Other::Enum(Enum::clone(of))),
            Object::Schema(schema) => Self::Other(Other::Schema(Schema::clone(schema))),
            Object::Role(role) => Self::Other(Other::Role(Role::clone(role))),
            Object::Shared(shared) => Self::Other(Other::Shared(SharedAccess::clone(shared))),
            Object::Procedure(procedure) => Self::Other(Other::Procedure(procedures::Procedure::clone(procedure))),
        }
    }

    pub(crate) fn text(&self) -> Result<String, SqlError> {
        serde_json::to_string(self).map_err(|error| SqlError::internal(error.to_string()))
    }
}

fn definition() -> TableDefinition {
    // A row has the name beside the definition.
    let max = MAX_ROW_BYTES as u32 - 4096;
    TableDefinition::new(NAME)
        .with_column("name", Stored::String { max: 255 })
        .with_column("definition", Stored::String { max })
        .with_key([0])
}

fn sequences() -> TableDefinition {
    TableDefinition::new(SEQUENCES).with_column("number", Stored::I64).with_column("last", Stored::I64).with_key([0])
}

/// Access to the rows.
pub(crate) struct Definitions<'d, P: Protocol> {
    protocol: &'d Arc<P>,
    catalog: Catalog,
}

/// Statements as one transaction; it answers with the last outcome.
struct Statements<'p>(&'p [Planned<'p>]);

impl Procedure for Statements<'_> {
    type Output = Outcome;
    type Error = Failure;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Outcome, Failure> {
        let mut last = Outcome::default();
        for planned in self.0 {
            last = answer(*planned, transaction, &Zone::utc(), Now::At(0))?;
        }
        Ok(last)
    }
}

/// A catalog with this table alone, if the database has it.
fn catalog_of<P: Protocol>(protocol: &P, definition: &TableDefinition) -> Result<Option<Catalog>, SqlError> {
    let Some(id) = protocol.storage().find_table(&definition.name) else { return Ok(None) };
    let table = Table::of_engine(id, definition, &[])?;
    Ok(Some(Catalog::default().with(&Name::of_key(definition.name.clone()), Object::Table(table.into()))))
}

/// The same, with the table made where it is missing.
fn made<P: Protocol>(protocol: &P, definition: &TableDefinition) -> Result<Catalog, SqlError> {
    if let Some(found) = catalog_of(protocol, definition)? {
        return Ok(found);
    }
    match protocol.storage().create_table(definition.clone(), Standing::Permanent) {
        Ok(_) | Err(Error::NameTaken(_)) => {}
        Err(error) => return Err(SqlError::of_engine(error)),
    }
    catalog_of(protocol, definition)?.ok_or_else(|| SqlError::internal("the definitions were dropped"))
}

/// The plan of a statement about the rows.
fn plan(catalog: &Catalog, text: &str, types: &[Type]) -> Result<Plan, SqlError> {
    let statements = crate::parse::statements(text)?;
    match Statement::bind(catalog, &statements[0], types, &Arc::default())?.action {
        Action::Run(plan) => Ok(plan),
        _ => unreachable!("they change rows, and read them"),
    }
}

fn run<P: Protocol>(protocol: &Arc<P>, plans: &[Planned<'_>]) -> Result<Outcome, SqlError> {
    let mut worker = protocol.worker().map_err(SqlError::of_engine)?;
    worker.execute(&mut Statements(plans)).map_err(|failure| match failure {
        Failure::Sql(error) => error,
        Failure::Engine(error) => SqlError::of_engine(error),
    })
}

/// A plan with its parameters.
pub(crate) type Step = (Plan, Vec<OwnedDatum>);

impl<'d, P: Protocol> Definitions<'d, P> {
    /// The rows, if there is a table of them.
    pub(crate) fn find(protocol: &'d Arc<P>) -> Result<Option<Self>, SqlError> {
        Ok(catalog_of(&**protocol, &definition())?.map(|catalog| Self { protocol, catalog }))
    }

    /// The rows, with the table of them made where it is missing.
    pub(crate) fn make(protocol: &'d Arc<P>) -> Result<Self, SqlError> {
        Ok(Self { protocol, catalog: made(&**protocol, &definition())? })
    }

    fn query(&self, text: &str, parameters: &[Datum<'_>]) -> Result<Outcome, SqlError> {
        let plan = plan(&self.catalog, text, &vec![Type::Text; parameters.len()])?;
        run(self.protocol, &[(&plan, parameters)])
    }

    /// What is known of the object of this name.
    pub(crate) fn read(&self, name: &Name) -> Result<Option<Kept>, SqlError> {
        let outcome =
            self.query(&format!("SELECT definition FROM {NAME} WHERE name = $1"), &[Datum::Text(name.key())])?;
        let Some(Datum::Text(text)) = outcome.rows.first().map(|row| row[0].get()) else { return Ok(None) };
        parsed(name.plain(), text).map(Some)
    }

    /// What is known of all objects.
    pub(crate) fn all(&self) -> Result<Vec<(Name, Kept)>, SqlError> {
        let [from, to] = write_rules::bounds();
        let text = format!("SELECT name, definition FROM {NAME} WHERE name < $1 OR name >= $2");
        kept_of(&self.query(&text, &[Datum::Text(&from), Datum::Text(&to)])?)
    }

    /// The names of the tables that have rules of which the engine is told.
    pub(crate) fn with_rules(&self) -> Result<Vec<Name>, SqlError> {
        let [from, to] = write_rules::bounds();
        let text = format!("SELECT name FROM {NAME} WHERE name >= $1 AND name < $2");
        let outcome = self.query(&text, &[Datum::Text(&from), Datum::Text(&to)])?;
        let names = outcome.rows.iter().filter_map(|row| match row[0].get() {
            Datum::Text(name) => name.strip_prefix(write_rules::MARK).map(Name::of_key),
            _ => None,
        });
        Ok(names.collect())
    }

    /// The roles, and what all objects share.
    pub(crate) fn roles(&self) -> Result<Vec<(Name, Kept)>, SqlError> {
        self.between(&roles::bounds())
    }

    /// What is known of all enums.
    pub(crate) fn enums(&self) -> Result<Vec<(Name, Kept)>, SqlError> {
        self.between(&enums::bounds())
    }

    /// What is known of all schemas.
    pub(crate) fn schemas(&self) -> Result<Vec<(Name, Kept)>, SqlError> {
        let [from, to] = Name::bounds("");
        let rows = self.between(&[from.clone(), to])?;
        Ok(rows.into_iter().filter(|(name, _)| *name.key() != from).collect())
    }

    /// What is known of the objects whose keys lie from the first one up to the second one.
    fn between(&self, [from, to]: &[String; 2]) -> Result<Vec<(Name, Kept)>, SqlError> {
        let text = format!("SELECT name, definition FROM {NAME} WHERE name >= $1 AND name < $2");
        kept_of(&self.query(&text, &[Datum::Text(from), Datum::Text(to)])?)
    }

    /// What finds the row of an object.
    pub(crate) fn row_step(&self, name: &Name) -> Result<Step, SqlError> {
        let find = plan(&self.catalog, &format!("SELECT name FROM {NAME} WHERE name = $1"), &[Type::Text])?;
        Ok((find, vec![OwnedDatum::Text(name.key().into())]))
    }

    /// What finds the row of a schema.
    pub(crate) fn schema_step(&self, schema: &str) -> Result<Step, SqlError> {
        self.row_step(&Name::of_schema(schema))
    }

    /// What finds the rows of all objects in a schema.
    pub(crate) fn content_step(&self, schema: &str) -> Result<Step, SqlError> {
        let is_between = "name > $1 AND name < $2 OR name > $3 AND name < $4 OR name > $5 AND name < $6";
        let find = plan(&self.catalog, &format!("SELECT name FROM {NAME} WHERE {is_between}"), &[Type::Text; 6])?;
        let bounds = Name::bounds(schema);
        let of_procedures = Name::bounds(procedures::key(&Name::of_key(schema)).key());
        let of_enums = Name::bounds(enums::key(&Name::of_key(schema)).key());
        let bounds = bounds.into_iter().chain(of_procedures).chain(of_enums);
        Ok((find, bounds.map(|bound| OwnedDatum::Text(bound.into())).collect()))
    }

    /// What writes the row of an object, in the place of the one that there is, or removes it. The answers tell that row: a transaction that is run again compares them.
    pub(crate) fn steps(&self, name: &Name, kept: Option<&Kept>) -> Result<Vec<Step>, SqlError> {
        let named = || OwnedDatum::Text(name.key().into());
        let delete =
            plan(&self.catalog, &format!("DELETE FROM {NAME} WHERE name = $1 RETURNING definition"), &[Type::Text])?;
        let mut steps = vec![(delete, vec![named()])];
        if let Some(kept) = kept {
            let insert = plan(&self.catalog, &format!("INSERT INTO {NAME} VALUES ($1, $2)"), &[Type::Text; 2])?;
            steps.push((insert, vec![named(), OwnedDatum::Text(kept.text()?.into())]));
        }
        self.record_rules(name, kept, &mut steps)?;
        Ok(steps)
    }

    /// What records whether a table has rules that are more than the engine knows.
    fn record_rules(&self, name: &Name, kept: Option<&Kept>, steps: &mut Vec<Step>) -> Result<(), SqlError> {
        let record = || OwnedDatum::Text(write_rules::record(name).into());
        let delete = plan(&self.catalog, &format!("DELETE FROM {NAME} WHERE name = $1"), &[Type::Text])?;
        steps.push((delete, vec![record()]));
        if let Some(Kept::Table(description)) = kept
            && write_rules::has_rules(description)
        {
            let insert = plan(&self.catalog, &format!("INSERT INTO {NAME} VALUES ($1, $2)"), &[Type::Text; 2])?;
            let engine = description.engine.as_deref().unwrap_or(name.key());
            steps.push((insert, vec![record(), OwnedDatum::Text(engine.into())]));
        }
        Ok(())
    }

    /// Writes the row of an object in a transaction of its own.
    pub(crate) fn write(&self, name: &Name, kept: &Kept) -> Result<(), SqlError> {
        let steps = self.steps(name, Some(kept))?;
        let values: Vec<Vec<_>> =
            steps.iter().map(|(_, values)| values.iter().map(OwnedDatum::get).collect()).collect();
        let plans: Vec<_> = steps.iter().zip(&values).map(|((plan, _), values)| (plan, &values[..])).collect();
        run(self.protocol, &plans).map(drop)
    }
}

/// The objects in an answer of names and definitions.
fn kept_of(outcome: &Outcome) -> Result<Vec<(Name, Kept)>, SqlError> {
    let rows = outcome.rows.iter().map(|row| match (row[0].get(), row[1].get()) {
        (Datum::Text(name), Datum::Text(text)) => Ok((Name::of_key(name), parsed(name, text)?)),
        _ => Err(SqlError::internal("a definition that is no text")),
    });
    rows.collect()
}

pub(crate) fn parsed(name: &str, text: &str) -> Result<Kept, SqlError> {
    serde_json::from_str(text)
        .map_err(|error| SqlError::internal(format!("the definition of \"{name}\" cannot be read: {error}")))
}

/// Up to where numbers of a sequence may have been given out.
pub(crate) fn granted<P: Protocol>(protocol: &Arc<P>, sequence: i64) -> Result<Option<i64>, SqlError> {
    let Some(catalog) = catalog_of(&**protocol, &sequences())? else { return Ok(None) };
    let plan = plan(&catalog, &format!("SELECT last FROM {SEQUENCES} WHERE number = $1"), &[Type::Int8])?;
    let outcome = run(protocol, &[(&plan, &[Datum::Int(sequence)])])?;
    Ok(outcome.rows.first().and_then(|row| if let Datum::Int(last) = row[0].get() { Some(last) } else { None }))
}

/// Numbers of a sequence up to `last` may be given out from now on, if it was `from` before; the answer is up to where they may.
pub(crate) fn grant<P: Protocol>(
    protocol: &Arc<P>,
    sequence: i64,
    from: Option<i64>,
    last: i64,
) -> Result<Option<i64>, SqlError> {
    let catalog = made(&**protocol, &sequences())?;
    let numbers = [Datum::Int(sequence), Datum::Int(last), from.map_or(Datum::Null, Datum::Int)];
    let (change, count) = match from {
        None => (format!("INSERT INTO {SEQUENCES} VALUES ($1, $2) ON CONFLICT DO NOTHING"), 2),
        Some(_) => (format!("UPDATE {SEQUENCES} SET last = $2 WHERE number = $1 AND last = $3"), 3),
    };
    let change = plan(&catalog, &change, &vec![Type::Int8; count])?;
    if run(protocol, &[(&change, &numbers[..count])])?.count == 1 {
        return Ok(Some(last));
    }
    granted(protocol, sequence)
}

/// Whether a table of the engine can be the one that is described.
pub(crate) fn fits(description: &Description, table: &Table) -> bool {
    let held = table.layout.columns();
    description.columns.len() == held.len()
        && description.columns.iter().zip(&table.columns).zip(held).all(|((column, own), held)| {
            own.name == column.engine_name() && stored(column.of).is_ok_and(|of| of == held.column_type)
        })
}
