//! A database as SQL has it, and connections to it.

use std::sync::{Arc, PoisonError, RwLock};

use polychron_base::Error;
use polychron_base::clock::{SystemTime, calendar_time};
use polychron_engine::definitions::Standing;
use polychron_engine::{Interactive, Mode, Protocol, drive};

use crate::bind::NewTable;
use crate::catalog::{Catalog, Column, Table};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::exec::Failure;
use crate::plan::{OutputColumn, Plan};
use crate::statement::{Action, Statement, run};
use crate::text::{self, Zone};
use crate::types::Type;

/// The tables of a database, seen through SQL.
///
/// Tables that exist are there under their names, with columns of the types that hold their values. What SQL alone knows of the tables it has made (lengths of
/// texts, defaults) is kept in memory.
pub struct SqlDatabase<P: Protocol> {
    protocol: Arc<P>,
    catalog: RwLock<Arc<Catalog>>,
}

impl<P: Protocol> std::fmt::Debug for SqlDatabase<P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SqlDatabase").finish_non_exhaustive()
    }
}

impl<P: Protocol> SqlDatabase<P> {
    /// The database of this protocol.
    pub fn new(protocol: Arc<P>) -> Arc<Self> {
        Arc::new(Self { protocol, catalog: RwLock::default() })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the catalog, once `change` has changed the tables; two definitions at a time wait for each other.
    fn define(
        &self,
        change: impl FnOnce(&P, &Catalog) -> Result<Option<Table>, SqlError>,
        gone: &[Arc<Table>],
    ) -> Result<(), SqlError> {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        let new = change(&self.protocol, &catalog)?;
        *catalog = Arc::new(catalog.with(new, gone));
        Ok(())
    }

    /// A table of the engine, with the columns as SQL has them where it knows more.
    fn describe(protocol: &P, name: &str, columns: Option<Vec<Column>>) -> Result<Table, SqlError> {
        let storage = protocol.storage();
        let missing = || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        let id = storage.find_table(name).ok_or_else(missing)?;
        let definition = storage.definition(id).map_err(SqlError::of_engine)?;
        let ids = definition.indexes.iter().map(|it| {
            let found = storage.find_index(id, &it.name).map_err(SqlError::of_engine)?;
            found.ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_OBJECT, format!("index \"{}\" does not exist", it.name))
            })
        });
        let ids = ids.collect::<Result<Vec<_>, SqlError>>()?;
        let mut table = Table::of_engine(id, &definition, &ids)?;
        if let Some(columns) = columns {
            table.columns = columns;
        }
        Ok(table)
    }

    /// Makes a table of the engine known to SQL under its own name.
    ///
    /// # Errors
    /// There is no such table, or one of its columns is of a type that SQL has not.
    pub fn import(&self, name: &str) -> Result<(), SqlError> {
        self.define(|protocol, _| Self::describe(protocol, name, None).map(Some), &[])
    }
}

/// What a statement has done.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Rows that were changed, or answered.
    pub count: u64,
    /// Names and types of the columns of its rows.
    pub columns: Vec<(String, Type)>,
    /// The rows.
    pub rows: Vec<Vec<OwnedDatum>>,
}

impl Outcome {
    /// The rows as text, as PostgreSQL shows values; NULL is `None`.
    pub fn texts(&self) -> impl Iterator<Item = Vec<Option<String>>> {
        let zone = Zone::utc();
        self.rows.iter().map(move |row| {
            let shown = row.iter().zip(&self.columns).map(|(value, (_, of))| {
                let value = value.get();
                (!value.is_null()).then(|| {
                    let mut shown = String::new();
                    text::write(*of, value, &zone, &mut shown);
                    shown
                })
            });
            shown.collect()
        })
    }
}

/// A session: runs one statement after the other, each in a transaction of its own, which is run again when it conflicts.
pub struct Connection<P: Protocol<Worker: Interactive>> {
    database: Arc<SqlDatabase<P>>,
    worker: P::Worker,
    zone: Zone,
}

impl<P: Protocol<Worker: Interactive>> std::fmt::Debug for Connection<P> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// What a transaction of a statement ends with.
enum Ended {
    Sql(SqlError),
    Engine(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sql(error) => Self::Sql(error),
            Failure::Engine(error) => Self::Engine(error),
        }
    }
}

impl<P: Protocol<Worker: Interactive>> Connection<P> {
    /// Connects to the database.
    ///
    /// # Errors
    /// All of the protocol's workers are in use.
    pub fn open(database: &Arc<SqlDatabase<P>>) -> Result<Self, SqlError> {
        let worker = database.protocol.worker().map_err(SqlError::of_engine)?;
        Ok(Self { database: database.clone(), worker, zone: Zone::utc() })
    }

    /// Runs the statements of a text and answers with what the last one has done. `parameters` are those of each of them, with their types.
    ///
    /// # Errors
    /// The first statement that fails; what those before it have done stays.
    pub fn execute(&mut self, text: &str, parameters: &[(Type, Datum<'_>)]) -> Result<Outcome, SqlError> {
        let mut outcome = Outcome::default();
        let (types, values): (Vec<_>, Vec<_>) = parameters.iter().copied().unzip();
        for statement in crate::parse::statements(text)? {
            let statement = Statement::bind(&self.database.catalog(), &statement, &types)?;
            if statement.parameters.len() > values.len() {
                let message = format!("there is no parameter ${}", values.len() + 1);
                return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
            }
            outcome = self.run(statement, &values)?;
        }
        Ok(outcome)
    }

    fn run(&mut self, statement: Statement, parameters: &[Datum<'_>]) -> Result<Outcome, SqlError> {
        match statement.action {
            Action::Run(plan) => return self.run_plan(&plan, parameters),
            Action::CreateTable(NewTable { definition, columns }) => self.database.define(
                |protocol, catalog| {
                    let name = definition.name.clone();
                    catalog.check_free(&name)?;
                    let storage = protocol.storage();
                    storage.create_table(definition, Standing::Permanent).map_err(SqlError::of_engine)?;
                    SqlDatabase::describe(protocol, &name, Some(columns)).map(Some)
                },
                &[],
            )?,
            Action::CreateIndex(table, index) => self.database.define(
                |protocol, _| {
                    protocol.create_index(table.id, index).map_err(SqlError::of_engine)?;
                    SqlDatabase::describe(protocol, &table.name, Some(table.columns.clone())).map(Some)
                },
                &[],
            )?,
            Action::DropTables { tables } => self.database.define(
                |protocol, _| {
                    let dropped = tables.iter().try_for_each(|table| protocol.drop_table(table.id));
                    dropped.map_err(SqlError::of_engine)?;
                    Ok(None)
                },
                &tables,
            )?,
        }
        Ok(Outcome::default())
    }

    fn run_plan(&mut self, plan: &Plan, parameters: &[Datum<'_>]) -> Result<Outcome, SqlError> {
        let named = |column: &OutputColumn| (column.name.clone(), column.of.base);
        let columns: Vec<_> = plan.columns().iter().map(named).collect();
        let now = calendar_time().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        let zone = &self.zone;
        let ended = drive::transact(&mut self.worker, Mode::ReadWrite, &mut |transaction| {
            let mut rows = Vec::new();
            let count = run(plan, transaction, (parameters, zone, now), &mut |row| {
                rows.push(row.iter().map(|value| value.owned()).collect());
                Ok(())
            })?;
            Ok((count, rows))
        });
        match ended {
            Ok((count, rows)) => Ok(Outcome { count, columns, rows }),
            Err(Ended::Sql(error)) => Err(error),
            Err(Ended::Engine(error)) => Err(SqlError::of_engine(error)),
        }
    }
}
