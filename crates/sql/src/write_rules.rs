//! What the engine asks of rows that are written without SQL, of tables that SQL has rules for.
//!
//! CHECKs and the bounds of types need the row alone, so that they are asked of such a row, too. What needs other rows or changes the row, such as foreign
//! keys and generated columns, is done by statements alone: such a table is not written otherwise.

use std::cell::Cell;
use std::sync::Arc;

use bumpalo::Bump;
pub(crate) use polychron_engine::write_rules::MARK;
use polychron_engine::{Error, Protocol, RowRef, Storage, WriteRules};

use crate::bind;
use crate::casts::{Place, bound};
use crate::catalog::{Catalog, Changes, Column, Description, Object, Source, Table};
use crate::codec::{from_stored, to_stored};
use crate::context::{Context, Now};
use crate::database::SqlDatabase;
use crate::datum::Datum;
use crate::definitions::Definitions;
use crate::error::{SqlError, SqlState};
use crate::exec;
use crate::names::Name;
use crate::plan::Condition;
use crate::text::Zone;
use crate::types::{Bound, Type};

/// The rules of a table.
#[derive(Debug)]
struct TableRules {
    table: Arc<Table>,
    /// Its CHECKs; or why it is written by statements alone.
    checks: Result<Vec<Condition>, SqlError>,
}

impl TableRules {
    fn new(table: &Arc<Table>, catalog: &Catalog) -> Self {
        let checks = match reason(&table.description) {
            Some(reason) => {
                let message = format!("\"{}\" has {reason}, so that its rows are changed by SQL alone", table.name);
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
            None => bind::checks_of(catalog, table),
        };
        Self { table: Arc::clone(table), checks }
    }

    fn check(&self, row: RowRef<'_>) -> Result<(), SqlError> {
        let checks = self.checks.as_ref().map_err(SqlError::clone)?;
        let (arena, zone, clock) = (Bump::new(), Zone::utc(), Cell::new(None));
        let (table, layout) = (&self.table, &self.table.layout);
        let mut values = Vec::with_capacity(table.columns.len());
        for (position, (column, stored)) in table.columns.iter().zip(layout.columns()).enumerate() {
            let written = row.value_ref(layout, position);
            let value = from_stored(written, column.of.base);
            let bounded = bound(value, column.of, Place::Assignment, &arena)?;
            let again = to_stored(bounded, stored.column_type, &arena);
            if again != Some(written) && !matches!(value, Datum::Float(_)) || !is_canonical(value, column.of.base) {
                let message = format!("\"{}\" holds no such value: {written:?}", column.name);
                let error = SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message);
                return Err(error.about(&table.name, Some(&column.name), None));
            }
            values.push(value);
        }
        let context = Context { now: Now::WhenAsked(&clock), ..Context::of(&arena, &zone) };
        exec::check_row(table, checks, &values, &context)
    }
}

impl WriteRules for TableRules {
    fn check_row(&self, row: RowRef<'_>) -> Result<(), Error> {
        self.check(row).map_err(Error::other)
    }

    fn check_deletion(&self) -> Result<(), Error> {
        self.checks.as_ref().map(drop).map_err(|error| Error::other(error.clone()))
    }
}

/// Whether SQL would store the value so.
fn is_canonical(value: Datum<'_>, of: Type) -> bool {
    match value {
        Datum::Text(text) => of != Type::Bpchar || !text.ends_with(' '),
        Datum::Time(micros) => (0..=24 * 60 * 60 * 1_000_000).contains(&micros),
        _ => true,
    }
}

/// Whether the engine knows all that SQL asks of a column's values, as types and NOT NULL.
fn is_plain(column: &Column) -> bool {
    use Type as T;
    let is_plain = matches!(
        column.of.base,
        T::Bool
            | T::Int2
            | T::Int4
            | T::Int8
            | T::Oid
            | T::Float4
            | T::Float8
            | T::Text
            | T::Varchar
            | T::Bytea
            | T::Uuid
            | T::Date
            | T::Timestamp
            | T::Timestamptz
    );
    is_plain && column.of.bound == Bound::None
}

/// Why rows of the table are changed by statements alone, if they are.
fn reason(of: &Description) -> Option<&'static str> {
    let is_encoded = |column: &Column| {
        matches!(column.of.base, Type::Enum(_) | Type::Array(_) | Type::Json | Type::Jsonb | Type::Interval)
            || column.of.base == Type::Numeric && column.of.bound == Bound::None
    };
    if !of.foreign.is_empty() || !of.children.is_empty() {
        Some("foreign keys")
    } else if of.columns.iter().any(|column| column.generated.is_some()) {
        Some("generated columns")
    } else if of.columns.iter().any(|column| column.computed.is_some()) {
        Some("indexes of expressions or of some rows")
    } else {
        of.columns.iter().any(is_encoded).then_some("columns of types that SQL alone writes")
    }
}

/// Whether SQL has rules for the table's rows.
pub(crate) fn has_rules(of: &Description) -> bool {
    !of.checks.is_empty() || reason(of).is_some() || of.columns.iter().any(|column| !is_plain(column))
}

impl<P: Protocol> SqlDatabase<P> {
    /// Holds writes of others to what these changes ask of tables, which have been published.
    pub(crate) fn rule(&self, changes: &Changes, before: &Changes) {
        let catalog = self.catalog();
        for (name, object) in changes.iter().filter(|(name, _)| !name.is_temporary()) {
            let Some(table) = object.as_ref().and_then(Object::table).filter(|table| table.is_kept) else { continue };
            let had_rules = before.get(name).and_then(|before| before.as_ref()?.table().map(|it| has_rules(it)));
            if has_rules(table) || had_rules == Some(true) {
                set_rules(self.protocol().storage(), table, &catalog);
            }
        }
    }

    /// Loads the rules of all tables, once.
    ///
    /// # Errors
    /// The definitions cannot be read. The next call tries again.
    pub fn load_rules(&self) -> Result<(), SqlError> {
        if self.rules_loaded.get().is_some() {
            return Ok(());
        }
        let definitions = Definitions::find(self.protocol())?;
        for name in definitions.map_or(Ok(Vec::new()), |definitions| definitions.with_rules())? {
            if let Some(Object::Table(table)) = Source::find(self, &name)? {
                set_rules(self.protocol().storage(), &table, &self.catalog());
            }
        }
        let _ = self.rules_loaded.set(());
        Ok(())
    }
}

fn set_rules(storage: &dyn Storage, table: &Arc<Table>, catalog: &Catalog) {
    let rules = has_rules(table).then(|| Arc::new(TableRules::new(table, catalog)) as _);
    // A table that is gone is written by nobody.
    let _ = storage.set_write_rules(table.id, rules);
}

/// Under which name it is recorded that a table has rules.
pub(crate) fn record(name: &Name) -> String {
    format!("{MARK}{}", name.key())
}

/// Such names lie between these.
pub(crate) fn bounds() -> [String; 2] {
    [MARK, '\u{7}'].map(String::from)
}
