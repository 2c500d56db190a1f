//! Insertions, updates and deletions.

use std::sync::Arc;

use hashbrown::HashSet;
use polychron_base::{Error, IndexId};
use polychron_engine::Insertion;
use polychron_schema::{KeyScratch, Projection, RowBuffer, Value, build_row, set_value};

use super::foreign_keys::Notes;
use super::{Exec, Failure, Flow, Sink, projected, run};
use crate::catalog::Table;
use crate::codec::{ROOM, to_stored};
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{Condition, ForeignKeys, Node, OnConflict, OnConflictUpdate, Path, Returning, Scan};
use crate::text::{self, Zone};

/// All columns of a row.
pub(super) type Row = Vec<OwnedDatum>;

/// The rows of a plan, all of them before the first one is changed: a statement never meets rows that it has made itself.
pub(super) fn gathered(source: &Node, exec: &mut Exec<'_>, context: &Context<'_>) -> Result<Vec<Row>, Failure> {
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

/// The table that rows are written into, with what must hold of them and what is answered.
pub(super) struct Target<'p> {
    pub(super) table: &'p Arc<Table>,
    pub(super) checks: &'p [Condition],
    pub(super) returning: Option<&'p Returning>,
}

pub(super) fn insert(
    (target, keys): (&Target<'_>, &ForeignKeys),
    source: &Node,
    on_conflict: &OnConflict,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let (mut notes, rows) = (Notes::new(keys), gathered(source, exec, context)?);
    if keys.is_copy {
        // As PostgreSQL has it: no key is looked at before all rows of a batch are checked.
        for (at, row) in rows.iter().enumerate() {
            target.check(row, exec, context).map_err(|failure| failure.at_row(at))?;
        }
    }
    let mut at = 0;
    let inserted = insert_rows((target, &mut notes), (rows, &mut at), on_conflict, exec, context, out);
    let count = inserted.map_err(|failure| failure.at_row(at))?;
    notes.finish(exec, context)?;
    Ok(count)
}

/// Inserts rows; `at` is the one under way.
fn insert_rows(
    (target, notes): (&Target<'_>, &mut Notes<'_>),
    (rows, at): (Vec<Row>, &mut usize),
    on_conflict: &OnConflict,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let (mut count, table) = (0, target.table);
    // The keys that the statement has written, where it may meet them again.
    let mut written = HashSet::new();
    for (number, row) in rows.into_iter().enumerate() {
        *at = number;
        exec.tick()?;
        if !notes.is_copy() {
            target.check(&row, exec, context)?;
        }
        let (key, stored) = stored(table, &row)?;
        let row = match exec.access.insert(table.id, &key, stored.as_row())? {
            Insertion::Inserted => {
                notes.inserted(table, &row);
                row
            }
            Insertion::Duplicate(index) => {
                let taken = || duplicate(table, index, &row, context.zone);
                match on_conflict {
                    OnConflict::Fail => return Err(taken().into()),
                    OnConflict::Skip(None) => continue,
                    OnConflict::Skip(Some(at)) => match existing(table, *at, &row, exec, context)? {
                        Some(_) => continue,
                        None => return Err(taken().into()),
                    },
                    OnConflict::Update(update) => {
                        let old = existing(table, update.index, &row, exec, context)?.ok_or_else(taken)?;
                        let before = notes.needs_old(table).then(|| old.clone());
                        match update_existing(target, update, (old, row), &written, exec, context)? {
                            Some(new) => {
                                before.map_or(Ok(()), |old| notes.updated(table, (old, &new), exec))?;
                                new
                            }
                            None => continue,
                        }
                    }
                }
            }
        };
        if matches!(on_conflict, OnConflict::Update(_)) {
            written.insert(key_of(table, &row)?);
        }
        count += 1;
        answered(target.returning, &row, exec, context, out)?;
    }
    Ok(count)
}

/// The row that has the same key of an index.
fn existing(
    table: &Arc<Table>,
    index: usize,
    row: &[OwnedDatum],
    exec: &mut Exec<'_>,
    context: &Context<'_>,
) -> Result<Option<Row>, Failure> {
    let equal = table.indexes[index].columns.iter().map(|&column| Expr::Constant(row[column].clone())).collect();
    let columns = (0..table.columns.len()).collect();
    let scan = Scan { table: table.clone(), columns, path: Path { index, equal, ..Path::ALL } };
    Ok(gathered(&Node::Scan(scan), exec, context)?.pop())
}

/// Changes the row that is there as ON CONFLICT says. `None`: its condition does not hold.
fn update_existing(
    target: &Target<'_>,
    update: &OnConflictUpdate,
    (old, excluded): (Row, Row),
    written: &HashSet<Vec<u8>>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
) -> Result<Option<Row>, Failure> {
    let arena = exec.take_arena();
    let context = context.with_arena(&arena);
    let both: Vec<_> = old.iter().chain(&excluded).map(OwnedDatum::get).collect();
    if let Some(condition) = &update.condition
        && !condition.holds(&both, &context)?
    {
        return Ok(None);
    }
    if written.contains(&key_of(target.table, &old)?) {
        let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
        let hint =
            "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.";
        return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(hint).into());
    }
    let values = update.values.iter().map(|value| value.eval(&both, &context).map(Datum::owned));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let new = change(target, old, (&update.set, values), exec, &context)?;
    exec.give_arena(arena);
    Ok(Some(new))
}

pub(super) fn update(
    (target, keys): (&Target<'_>, &ForeignKeys),
    source: &Node,
    set: &[usize],
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let (mut count, mut notes) = (0, Notes::new(keys));
    for mut row in gathered(source, exec, context)? {
        exec.tick()?;
        let values = row.split_off(target.table.columns.len());
        let old = notes.needs_old(target.table).then(|| row.clone());
        let row = change(target, row, (set, values), exec, context)?;
        old.map_or(Ok(()), |old| notes.updated(target.table, (old, &row), exec))?;
        count += 1;
        answered(target.returning, &row, exec, context, out)?;
    }
    notes.finish(exec, context)?;
    Ok(count)
}

/// Sets columns of a row, and answers the new row.
pub(super) fn change(
    target: &Target<'_>,
    mut row: Row,
    (set, values): (&[usize], Vec<OwnedDatum>),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
) -> Result<Row, Failure> {
    let table = target.table;
    let old = key_of(table, &row)?;
    set.iter().zip(values).for_each(|(&column, value)| row[column] = value);
    target.check(&row, exec, context)?;
    if set.iter().any(|column| table.primary().columns.contains(column)) {
        // A row under another key is another row.
        let (key, stored) = stored(table, &row)?;
        exec.access.delete(table.id, &old)?;
        if let Insertion::Duplicate(index) = exec.access.insert(table.id, &key, stored.as_row())? {
            return Err(duplicate(table, index, &row, context.zone).into());
        }
        return Ok(row);
    }
    let values = set.iter().map(|&column| Ok((column, value_of(table, column, row[column].get())?)));
    let values: Vec<(usize, Value)> = values.collect::<Result<_, SqlError>>()?;
    let changed = exec.access.update(table.id, &old, &Projection::ALL, &mut |row| {
        values.iter().try_for_each(|(column, value)| set_value(row, &table.layout, *column, value))
    });
    if let Err(Error::Duplicate(taken)) = &changed {
        return Err(duplicate(table, taken.index, &row, context.zone).into());
    }
    changed?;
    Ok(row)
}

impl Target<'_> {
    /// Whether a row may be written: first what is NULL, then what the CHECKs say.
    fn check(&self, row: &[OwnedDatum], exec: &mut Exec<'_>, context: &Context<'_>) -> Result<(), Failure> {
        check_nulls(self.table, row, context.zone)?;
        if self.checks.is_empty() {
            return Ok(());
        }
        let arena = exec.take_arena();
        let values: Vec<_> = row.iter().map(OwnedDatum::get).collect();
        for check in self.checks {
            if let Datum::Bool(false) = check.holds.eval(&values, &context.with_arena(&arena))? {
                let (table, name) = (&self.table.name, &check.name);
                let message = format!("new row for relation \"{table}\" violates check constraint \"{name}\"");
                let error = SqlError::new(SqlState::CHECK_VIOLATION, message);
                return Err(error.with_detail(failing(self.table, row, context.zone)).into());
            }
        }
        exec.give_arena(arena);
        Ok(())
    }
}

pub(super) fn delete(
    (table, source): (&Arc<Table>, &Node),
    (keys, returning): (&ForeignKeys, Option<&Returning>),
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let (mut count, mut notes) = (0, Notes::new(keys));
    for row in gathered(source, exec, context)? {
        exec.tick()?;
        let key = key_of(table, &row)?;
        exec.access.delete(table.id, &key)?;
        count += 1;
        answered(returning, &row, exec, context, out)?;
        notes.deleted(table, row, exec)?;
    }
    notes.finish(exec, context)?;
    Ok(count)
}

/// A row's key and bytes.
fn stored(table: &Table, row: &[OwnedDatum]) -> Result<(Vec<u8>, RowBuffer), Failure> {
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

pub(super) fn key_of(table: &Table, row: &[OwnedDatum]) -> Result<Vec<u8>, Failure> {
    let primary = table.primary();
    let values = primary.columns.iter().map(|&column| value_of(table, column, row[column].get()));
    let values: Vec<_> = values.collect::<Result<_, _>>()?;
    let mut scratch = KeyScratch::new();
    let key = primary.keys.encode_key(&values, &mut scratch);
    Ok(key.map_err(|error| limit(error.to_string()))?.to_vec())
}

fn value_of(table: &Table, column: usize, datum: Datum<'_>) -> Result<Value, SqlError> {
    let mut room = [0; ROOM];
    let of = table.layout.columns()[column].column_type;
    let out_of_range = || {
        let base = table.columns[column].of.base;
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{base} out of range"))
    };
    to_stored(datum, of, &mut room).map(|value| value.to_value()).ok_or_else(out_of_range)
}

/// The row in words, as PostgreSQL shows one that fails.
pub(super) fn shown(row: &[OwnedDatum], columns: impl Iterator<Item = usize>, table: &Table, zone: &Zone) -> String {
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
    Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, message).with_detail(failing(table, row, zone)))
}

fn failing(table: &Table, row: &[OwnedDatum], zone: &Zone) -> String {
    format!("Failing row contains ({}).", shown(row, table.visible().map(|(at, _)| at), table, zone))
}

fn duplicate(table: &Table, index: IndexId, row: &[OwnedDatum], zone: &Zone) -> SqlError {
    let index = table.indexes.iter().find(|it| it.id == index).unwrap_or_else(|| table.primary());
    let message = format!("duplicate key value violates unique constraint \"{}\"", index.name);
    let (names, values) = (table.names(&index.columns), shown(row, index.columns.iter().copied(), table, zone));
    SqlError::new(SqlState::UNIQUE_VIOLATION, message).with_detail(format!("Key ({names})=({values}) already exists."))
}
