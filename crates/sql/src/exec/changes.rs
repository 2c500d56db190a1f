//! Insertions, updates and deletions.

use std::sync::Arc;

use polychron_base::{Error, IndexId};
use polychron_engine::Insertion;
use polychron_schema::{KeyScratch, Projection, RowBuffer, Value, build_row, set_value};

use super::{Exec, Failure, Flow, Sink, projected, run};
use crate::catalog::Table;
use crate::codec::to_stored;
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::plan::{Node, OnConflict, Returning};
use crate::text::{self, Zone};

/// All columns of a row.
type Row = Vec<OwnedDatum>;

/// The rows of a plan, all of them before the first one is changed: a statement never meets rows that it has made itself.
fn gathered(source: &Node, exec: &mut Exec<'_>, context: &Context<'_>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    run(source, exec, context, &mut |exec, row| {
        exec.keep(row)?;
        rows.push(row.iter().map(|datum| datum.owned()).collect());
        Ok(Flow::More)
    })?;
    Ok(rows)
}

fn answered(
    returning: Option<&Returning>,
    row: &[OwnedDatum],
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Failure> {
    let Some(returning) = returning else { return Ok(()) };
    let arena = exec.take_arena();
    let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
    projected(&returning.columns, &row, exec, &context.with_arena(&arena), out)?;
    exec.give_arena(arena);
    Ok(())
}

pub(super) fn insert(
    (table, source): (&Arc<Table>, &Node),
    on_conflict: OnConflict,
    returning: Option<&Returning>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let mut count = 0;
    for row in gathered(source, exec, context)? {
        let (key, stored) = stored(table, &row, context.zone)?;
        match exec.access.insert(table.id, &key, stored.as_row())? {
            Insertion::Inserted => {}
            Insertion::Duplicate(_) if on_conflict == OnConflict::Skip => continue,
            Insertion::Duplicate(index) => return Err(duplicate(table, index, &row, context.zone).into()),
        }
        count += 1;
        answered(returning, &row, exec, context, out)?;
    }
    Ok(count)
}

pub(super) fn update(
    (table, source): (&Arc<Table>, &Node),
    set: &[usize],
    returning: Option<&Returning>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let mut count = 0;
    let moves = set.iter().any(|column| table.primary().columns.contains(column));
    for mut row in gathered(source, exec, context)? {
        let values = row.split_off(table.columns.len());
        let old = key_of(table, &row)?;
        set.iter().zip(values).for_each(|(&column, value)| row[column] = value);
        check_nulls(table, &row, context.zone)?;
        if moves {
            // A row under another key is another row.
            let (key, stored) = stored(table, &row, context.zone)?;
            exec.access.delete(table.id, &old)?;
            if let Insertion::Duplicate(index) = exec.access.insert(table.id, &key, stored.as_row())? {
                return Err(duplicate(table, index, &row, context.zone).into());
            }
        } else {
            let values = set.iter().map(|&column| Ok((column, value_of(table, column, row[column].get())?)));
            let values: Vec<(usize, Value)> = values.collect::<Result<_, SqlError>>()?;
            let changed = exec.access.update(table.id, &old, &Projection::ALL, &mut |row| {
                values.iter().try_for_each(|(column, value)| set_value(row, &table.layout, *column, value))
            });
            if let Err(Error::Duplicate(taken)) = &changed {
                return Err(duplicate(table, taken.index, &row, context.zone).into());
            }
            changed?;
        }
        count += 1;
        answered(returning, &row, exec, context, out)?;
    }
    Ok(count)
}

pub(super) fn delete(
    (table, source): (&Arc<Table>, &Node),
    returning: Option<&Returning>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let mut count = 0;
    for row in gathered(source, exec, context)? {
        let key = key_of(table, &row)?;
        exec.access.delete(table.id, &key)?;
        count += 1;
        answered(returning, &row, exec, context, out)?;
    }
    Ok(count)
}

/// A row's key and bytes.
fn stored(table: &Table, row: &[OwnedDatum], zone: &Zone) -> Result<(Vec<u8>, RowBuffer), Failure> {
    check_nulls(table, row, zone)?;
    let values = row.iter().enumerate().map(|(column, datum)| value_of(table, column, datum.get()));
    let values: Vec<_> = values.collect::<Result<_, _>>()?;
    let mut buffer = RowBuffer::new();
    build_row(&table.layout, &values, &mut buffer).map_err(|error| limit(error.to_string()))?;
    let mut scratch = KeyScratch::new();
    let key = table.primary().keys.extract(buffer.as_row(), &mut scratch);
    let key = key.map_err(|error| limit(error.to_string()))?.to_vec();
    Ok((key, buffer))
}

fn limit(message: String) -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

fn key_of(table: &Table, row: &[OwnedDatum]) -> Result<Vec<u8>, Failure> {
    let primary = table.primary();
    let values = primary.columns.iter().map(|&column| value_of(table, column, row[column].get()));
    let values: Vec<_> = values.collect::<Result<_, _>>()?;
    let mut scratch = KeyScratch::new();
    let key = primary.keys.encode_key(&values, &mut scratch);
    Ok(key.map_err(|error| limit(error.to_string()))?.to_vec())
}

fn value_of(table: &Table, column: usize, datum: Datum<'_>) -> Result<Value, SqlError> {
    let mut room = [0; 16];
    let of = table.layout.columns()[column].column_type;
    let out_of_range = || {
        let base = table.columns[column].of.base;
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{base} out of range"))
    };
    to_stored(datum, of, &mut room).map(|value| value.to_value()).ok_or_else(out_of_range)
}

/// The row in words, as PostgreSQL shows one that fails.
fn shown(row: &[OwnedDatum], columns: impl Iterator<Item = usize>, table: &Table, zone: &Zone) -> String {
    let values = columns.map(|column| match row[column].get() {
        Datum::Null => "null".to_owned(),
        value => {
            let mut shown = String::new();
            text::write(table.columns[column].of.base, value, zone, &mut shown);
            shown
        }
    });
    values.collect::<Vec<_>>().join(", ")
}

fn check_nulls(table: &Table, row: &[OwnedDatum], zone: &Zone) -> Result<(), SqlError> {
    let mut columns = table.columns.iter().zip(row);
    let Some((column, _)) = columns.find(|(column, value)| !column.nullable && value.get().is_null()) else {
        return Ok(());
    };
    let message =
        format!("null value in column \"{}\" of relation \"{}\" violates not-null constraint", column.name, table.name);
    let row = shown(row, 0..table.columns.len(), table, zone);
    Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, message).with_detail(format!("Failing row contains ({row}).")))
}

fn duplicate(table: &Table, index: IndexId, row: &[OwnedDatum], zone: &Zone) -> SqlError {
    let index = table.indexes.iter().find(|it| it.id == index).unwrap_or_else(|| table.primary());
    let message = format!("duplicate key value violates unique constraint \"{}\"", index.name);
    let (names, values) = (table.names(&index.columns), shown(row, index.columns.iter().copied(), table, zone));
    SqlError::new(SqlState::UNIQUE_VIOLATION, message).with_detail(format!("Key ({names})=({values}) already exists."))
}
