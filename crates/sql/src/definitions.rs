//! What SQL alone knows of the tables that it has made, as rows of a table of the database itself: so it is durable as they are.
//!
//! The row of a table is written before the table is made, and removed after the table is dropped. A row without its table, which a crash between the two
//! leaves, is replaced by the next one of its name; until then it does not fit a table that was made without SQL, which is noticed.

use polychron_engine::definitions::Standing;
use polychron_engine::{Error, Procedure, Protocol, Transaction, Worker};
use polychron_schema::{ColumnType as Stored, MAX_ROW_BYTES, TableDefinition};

use crate::bind::stored;
use crate::catalog::{Catalog, Description, Table};
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::exec::Failure;
use crate::outcome::Outcome;
use crate::statement::{Action, Planned, Statement, answer};
use crate::text::Zone;
use crate::types::Type;

/// The name of the table.
pub(crate) const NAME: &str = "polychron_sql_definitions";

fn definition() -> TableDefinition {
    // A row has the name beside the definition.
    let max = MAX_ROW_BYTES as u32 - 4096;
    TableDefinition::new(NAME)
        .with_column("name", Stored::String { max: 255 })
        .with_column("definition", Stored::String { max })
        .with_key([0])
}

/// Access to the rows.
pub(crate) struct Definitions<'d, P: Protocol> {
    protocol: &'d std::sync::Arc<P>,
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
            last = answer(*planned, transaction, &Zone::utc(), 0)?;
        }
        Ok(last)
    }
}

impl<'d, P: Protocol> Definitions<'d, P> {
    /// The rows, if there is a table of them.
    pub(crate) fn find(protocol: &'d std::sync::Arc<P>) -> Result<Option<Self>, SqlError> {
        let Some(id) = protocol.storage().find_table(NAME) else { return Ok(None) };
        let table = Table::of_engine(id, &definition(), &[])?;
        Ok(Some(Self { protocol, catalog: Catalog::default().with(table.into()) }))
    }

    /// The rows, with the table of them made where it is missing.
    pub(crate) fn make(protocol: &'d std::sync::Arc<P>) -> Result<Self, SqlError> {
        if let Some(found) = Self::find(protocol)? {
            return Ok(found);
        }
        match protocol.storage().create_table(definition(), Standing::Permanent) {
            Ok(_) | Err(Error::NameTaken(_)) => {}
            Err(error) => return Err(SqlError::of_engine(error)),
        }
        Self::find(protocol)?.ok_or_else(|| SqlError::new(SqlState::UNDEFINED_TABLE, "the definitions were dropped"))
    }

    fn run(&self, texts: &[&str], parameters: &[&str]) -> Result<Outcome, SqlError> {
        let types = vec![Type::Text; parameters.len()];
        let values: Vec<_> = parameters.iter().map(|text| Datum::Text(text)).collect();
        let mut plans = Vec::new();
        for text in texts {
            for statement in crate::parse::statements(text)? {
                let bound = Statement::bind(&self.catalog, &statement, &types)?;
                let Action::Run(plan) = bound.action else { unreachable!("they change rows, and read them") };
                plans.push(plan);
            }
        }
        let plans: Vec<Planned<'_>> = plans.iter().map(|plan| (plan, &values[..])).collect();
        let mut worker = self.protocol.worker().map_err(SqlError::of_engine)?;
        worker.execute(&mut Statements(&plans)).map_err(|failure| match failure {
            Failure::Sql(error) => error,
            Failure::Engine(error) => SqlError::of_engine(error),
        })
    }

    /// What is known of the table of this name, if it is known and fits the table.
    pub(crate) fn read(&self, table: &Table) -> Result<Option<Description>, SqlError> {
        let text = format!("SELECT definition FROM {NAME} WHERE name = $1");
        let outcome = self.run(&[&text], &[&table.name])?;
        let Some(Datum::Text(text)) = outcome.rows.first().map(|row| row[0].get()) else { return Ok(None) };
        let description: Description = serde_json::from_str(text).map_err(|error| {
            let message = format!("the definition of \"{}\" cannot be read: {error}", table.name);
            SqlError::new(SqlState::INTERNAL_ERROR, message)
        })?;
        Ok(fits(&description, table).then_some(description))
    }

    /// The names of the tables of which something is known.
    pub(crate) fn names(&self) -> Result<Vec<String>, SqlError> {
        let outcome = self.run(&[&format!("SELECT name FROM {NAME}")], &[])?;
        let name = |row: &Vec<crate::datum::OwnedDatum>| {
            if let Datum::Text(name) = row[0].get() { Some(name.to_owned()) } else { None }
        };
        Ok(outcome.rows.iter().filter_map(name).collect())
    }

    /// Writes what is known of a table, in the place of what was known of one of its name.
    pub(crate) fn write(&self, name: &str, description: &Description) -> Result<(), SqlError> {
        let text = serde_json::to_string(description)
            .map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?;
        let delete = format!("DELETE FROM {NAME} WHERE name = $1");
        let insert = format!("INSERT INTO {NAME} VALUES ($1, $2)");
        self.run(&[&delete, &insert], &[name, &text]).map(drop)
    }

    /// Removes what was known of a table.
    pub(crate) fn remove(&self, name: &str) -> Result<(), SqlError> {
        self.run(&[&format!("DELETE FROM {NAME} WHERE name = $1")], &[name]).map(drop)
    }
}

/// Whether a table of the engine can be the one that is described.
fn fits(description: &Description, table: &Table) -> bool {
    let held = table.layout.columns();
    description.columns.len() == held.len()
        && description.columns.iter().zip(&table.columns).zip(held).all(|((column, own), held)| {
            column.name == own.name && stored(column.of).is_ok_and(|of| of == held.column_type)
        })
}
