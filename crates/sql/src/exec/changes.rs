//! Insertions, updates and deletions.

use std::sync::Arc;

use bumpalo::Bump;
use hashbrown::HashSet;
use polychron_base::{Error, IndexId};
use polychron_engine::Insertion;
use polychron_schema::{KeyScratch, Projection, RowBuffer, ValueRef, build_row_of, set_value_ref};

use super::foreign_keys::Notes;
use super::scans::{is_point, point_key, values as scan_values};
use super::{Exec, Failure, Flow, Sink, futures, projected, run};
use crate::catalog::{Column, Table};
use crate::codec::to_stored;
use crate::computed::Rule;
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{Condition, ForeignKeys, Node, OnConflict, OnConflictUpdate, Path, Plan, Returning, Scan};
use crate::text::{self, Zone};

/// All columns of a row, in the memory of the statement.
pub(super) type Row<'a> = &'a [Datum<'a>];

/// The rows of a plan, all of them before the first one is changed: a statement never meets rows that it has made itself.
pub(super) fn gathered<'a>(
    source: &Node,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    arena: &'a Bump,
) -> Result<bumpalo::collections::Vec<'a, Row<'a>>, Failure> {
    let mut rows = bumpalo::collections::Vec::new_in(arena);
    run(source, exec, context, &mut |exec, row| {
        exec.keep(row)?;
        let mut own = bumpalo::collections::Vec::with_capacity_in(row.len(), arena);
        own.extend(row.iter().map(|datum| datum.within(arena)));
        rows.push(own.into_bump_slice());
        Ok(Flow::More)
    })?;
    Ok(rows)
}

fn answered(
    returning: Option<&Returning>,
    row: &[Datum<'_>],
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Failure> {
    let Some(returning) = returning else { return Ok(()) };
    let arena = exec.take_arena();
    projected(&returning.columns, row, exec, &context.with_arena(&arena), out)?;
    exec.give_arena(arena);
    Ok(())
}

/// The table that rows are written into, with what must hold of them and what is answered.
pub(super) struct Target<'p> {
    pub(super) table: &'p Arc<Table>,
    pub(super) checks: &'p [Condition],
    pub(super) returning: Option<&'p Returning>,
}

/// Runs a plan that changes rows, up to what foreign keys say of them.
pub(super) fn changed<'p, 'a>(
    plan: &'p Plan,
    exec: &mut Exec<'_>,
    context: &Context<'a>,
    out: &mut Sink<'_>,
) -> Result<(u64, Notes<'p, 'a>), Failure> {
    match plan {
        Plan::Insert { table, source, checks, keys, on_conflict, returning } => {
            let target = Target { table, checks, returning: returning.as_ref() };
            insert((&target, keys), source, on_conflict, exec, context, out)
        }
        Plan::Update { table, source, is_joined, set, checks, keys, returning } => {
            let target = Target { table, checks, returning: returning.as_ref() };
            update((&target, keys), (source, *is_joined), set, exec, context, out)
        }
        Plan::Delete { table, source, is_joined, keys, returning } => {
            delete((table, source, *is_joined), (keys, returning.as_ref()), exec, context, out)
        }
        Plan::Merge(merge) => super::changing::merge(merge, exec, context),
        other => Err(SqlError::internal(format!("{} changes no rows", other.verb())).into()),
    }
}

fn insert<'p, 'a>(
    (target, keys): (&Target<'_>, &'p ForeignKeys),
    source: &Node,
    on_conflict: &OnConflict,
    exec: &mut Exec<'_>,
    context: &Context<'a>,
    out: &mut Sink<'_>,
) -> Result<(u64, Notes<'p, 'a>), Failure> {
    let (mut notes, mut rows) = (Notes::new(keys), gathered(source, exec, context, context.arena)?);
    let generated = target.table.generated()?;
    if !generated.is_empty() {
        for (at, row) in rows.iter_mut().enumerate() {
            let whole = with_rules(generated, row, exec, context, context.arena);
            *row = whole.map_err(|failure| failure.at_row(at))?;
        }
    }
    if keys.is_copy {
        // As PostgreSQL has it: no key is looked at before all rows of a batch are checked.
        for (at, row) in rows.iter().enumerate() {
            target.check(row, exec, context).map_err(|failure| failure.at_row(at))?;
        }
    }
    let mut at = 0;
    let inserted = insert_rows((target, &mut notes), (&rows, &mut at), on_conflict, exec, context, out);
    let count = inserted.map_err(|failure| failure.at_row(at))?;
    Ok((count, notes))
}

/// Inserts rows; `at` is the one under way.
fn insert_rows<'a>(
    (target, notes): (&Target<'_>, &mut Notes<'_, 'a>),
    (rows, at): (&[Row<'a>], &mut usize),
    on_conflict: &OnConflict,
    exec: &mut Exec<'_>,
    context: &Context<'a>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let (mut count, table) = (0, target.table);
    // The keys that the statement has written, where it may meet them again.
    let mut written = HashSet::new();
    for (number, &row) in rows.iter().enumerate() {
        *at = number;
        exec.tick()?;
        if !notes.is_copy() {
            target.check(row, exec, context)?;
        }
        let passing = exec.take_arena();
        let whole = with_rules(table.rules()?, row, exec, context, &passing)?;
        let row = match insert_row(table, whole, exec)? {
            Insertion::Inserted => {
                notes.inserted(table, whole);
                whole
            }
            Insertion::Duplicate(index) => {
                let taken = || duplicate(table, index, whole, context.zone);
                match on_conflict {
                    OnConflict::Fail => return Err(taken().into()),
                    OnConflict::Skip(None) => continue,
                    OnConflict::Skip(Some(at)) => match existing(table, *at, whole, exec, context)? {
                        Some(_) => continue,
                        None => return Err(taken().into()),
                    },
                    OnConflict::Update(update) => {
                        let old = existing(table, update.index, whole, exec, context)?.ok_or_else(taken)?;
                        let row = with_rules(table.rules()?, row, exec, context, context.arena)?;
                        match update_existing(target, update, (old, row), &written, exec, context)? {
                            Some(new) => {
                                notes.updated(table, (old, new), exec)?;
                                new
                            }
                            None => continue,
                        }
                    }
                }
            }
        };
        if matches!(on_conflict, OnConflict::Update(_)) {
            written.insert(key_of(table, row, &mut KeyScratch::new(), context.arena)?.to_vec());
        }
        exec.note_written(table, row, context)?;
        count += 1;
        answered(target.returning, row, exec, context, out)?;
        exec.give_arena(passing);
    }
    Ok(count)
}

/// The row that has the same key of an index.
fn existing<'a>(
    table: &Arc<Table>,
    index: usize,
    row: &[Datum<'_>],
    exec: &mut Exec<'_>,
    context: &Context<'a>,
) -> Result<Option<Row<'a>>, Failure> {
    let equal = table.indexes[index].columns.iter().map(|&column| Expr::Constant(row[column].owned())).collect();
    let scan = Scan { path: Path { index, equal, ..Path::ALL }, is_in_place: true, ..Scan::whole(table) };
    Ok(gathered(&Node::Scan(scan), exec, context, context.arena)?.pop())
}

/// Changes the row that is there as ON CONFLICT says. `None`: its condition does not hold.
fn update_existing<'a>(
    target: &Target<'_>,
    update: &OnConflictUpdate,
    (old, excluded): (Row<'a>, Row<'a>),
    written: &HashSet<Vec<u8>>,
    exec: &mut Exec<'_>,
    context: &Context<'a>,
) -> Result<Option<Row<'a>>, Failure> {
    let arena = exec.take_arena();
    let inner = context.with_arena(&arena);
    let both = [old, excluded].concat();
    if let Some(condition) = &update.condition
        && !condition.holds(&both, &inner)?
    {
        return Ok(None);
    }
    let mut scratch = KeyScratch::new();
    let key = key_of(target.table, old, &mut scratch, &arena)?;
    if written.contains(key) || exec.has_written(target.table, key) {
        let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
        let hint =
            "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.";
        return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(hint).into());
    }
    let values = update.values.iter().map(|value| Ok(value.eval(&both, &inner)?.within(context.arena)));
    let values = values.collect::<Result<Vec<_>, SqlError>>()?;
    let new = change(target, old, (&update.set, &values), exec, context)?;
    exec.give_arena(arena);
    Ok(Some(new))
}

fn update<'p, 'a>(
    (target, keys): (&Target<'_>, &'p ForeignKeys),
    (source, is_joined): (&Node, bool),
    set: &[usize],
    exec: &mut Exec<'_>,
    context: &Context<'a>,
    out: &mut Sink<'_>,
) -> Result<(u64, Notes<'p, 'a>), Failure> {
    let (width, is_only) = (target.table.columns.len(), !exec.makes_several_changes());
    if exec.shared.may_defer
        && is_only
        && target.checks.is_empty()
        && !is_joined
        && let Some(step) = futures::of_update(source, set, keys, target.returning)
        && exec.access.leaves_futures_open()
        && let Some(count) = step.run(exec, context)?
    {
        return Ok((count, Notes::new(keys)));
    }
    if let Some((scan, columns)) = alone(source, keys, exec)
        && is_only
        && let Some(values) = columns.get(width..).filter(|values| values.len() == set.len())
        && !is_of_key(target.table, set)
        && target.table.primary().columns.iter().all(|&at| !target.table.columns[at].is_derived())
    {
        return Ok((update_alone(target, (scan, values), set, exec, context, out)?, Notes::new(keys)));
    }
    let (mut count, mut notes, mut met) = (0, Notes::new(keys), is_joined.then(HashSet::new));
    for row in gathered(source, exec, context, context.arena)? {
        exec.tick()?;
        let (old, values) = row.split_at(width);
        if !is_first(&mut met, target.table, old, exec, context)? || !exec.is_unchanged(target.table, old, context)? {
            continue;
        }
        let (values, beside) = values.split_at(set.len());
        let new = change(target, old, (set, values), exec, context)?;
        if is_of_key(target.table, set) {
            exec.note_written(target.table, new, context)?;
        }
        notes.updated(target.table, (old, new), exec)?;
        count += 1;
        if beside.is_empty() {
            answered(target.returning, new, exec, context, out)?;
        } else {
            answered(target.returning, &[new, beside].concat(), exec, context, out)?;
        }
    }
    Ok((count, notes))
}

/// Whether a row of a join was not met before. `None`: each row comes once.
fn is_first<'a>(
    met: &mut Option<HashSet<&'a [u8]>>,
    table: &Table,
    row: &[Datum<'_>],
    exec: &Exec<'_>,
    context: &Context<'a>,
) -> Result<bool, Failure> {
    let Some(met) = met else { return Ok(true) };
    let mut scratch = KeyScratch::new();
    let key = key_of(table, row, &mut scratch, context.arena)?;
    exec.take(key.len() + size_of::<&[u8]>())?;
    Ok(!met.contains(key) && met.insert(context.arena.alloc_slice_copy(key)))
}

/// A row that is found by its key and of which foreign keys want to know nothing: it is changed where it is found. With the expressions over it.
fn alone<'p>(source: &'p Node, keys: &ForeignKeys, exec: &Exec<'_>) -> Option<(&'p Scan, &'p [Expr])> {
    let (scan, columns) = match source {
        Node::Scan(scan) => (scan, &[][..]),
        Node::Project { input, columns } => match &**input {
            Node::Scan(scan) => (scan, &columns[..]),
            _ => return None,
        },
        _ => return None,
    };
    let is_known = keys.tables.contains_key(&scan.table.id);
    // Operators tell what they have done only where they run.
    let is_alone = is_point(scan) && scan.is_in_place && !is_known && !exec.is_observed();
    is_alone.then_some((scan, columns))
}

fn is_of_key(table: &Table, set: &[usize]) -> bool {
    set.iter().any(|column| table.primary().columns.contains(column))
}

/// Changes the row of a key, if there is one.
fn update_alone(
    target: &Target<'_>,
    (scan, exprs): (&Scan, &[Expr]),
    set: &[usize],
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let (table, arena, mut scratch, mut new) = (target.table, context.arena, KeyScratch::new(), None);
    let Some(key) = point_key(scan, context, &mut scratch)? else { return Ok(0) };
    let keeps_row = target.returning.is_some() || table.indexes.len() > 1;
    let access = exec.access;
    let changed = access.update(table.id, key, &Projection::ALL, &mut |row| {
        let mut own = bumpalo::collections::Vec::with_capacity_in(table.columns.len(), arena);
        own.extend(scan_values(scan, row.as_row()));
        let mut values = bumpalo::collections::Vec::with_capacity_in(set.len(), arena);
        for value in exprs {
            values.push(value.eval(&own, context)?.within(arena));
        }
        set.iter().zip(&values).for_each(|(&column, value)| own[column] = *value);
        let mut derived = bumpalo::collections::Vec::new_in(arena);
        derive(table.generated()?, &mut own, &mut derived, (context, arena))?;
        target.check(&own, exec, context)?;
        derive(table.rules()?, &mut own, &mut derived, (context, arena))?;
        if keeps_row {
            let mut kept = bumpalo::collections::Vec::with_capacity_in(own.len(), arena);
            kept.extend(own.iter().map(|value| value.within(arena)));
            new = Some(kept.into_bump_slice());
        }
        drop(own);
        for (column, value) in set.iter().copied().zip(values).chain(derived) {
            let value = value_of(table, column, value, arena)?;
            set_value_ref(row, &table.layout, column, value).map_err(Error::from)?;
        }
        Ok(())
    });
    let row = new.unwrap_or_default();
    let found = changed.map_err(|failure| taken(failure, table, row, context))?;
    if found {
        answered(target.returning, row, exec, context, out)?;
    }
    Ok(found.into())
}

/// Sets columns of a row that follow from others, and notes what they are.
fn derive<'r, 'a: 'r>(
    rules: &[Rule],
    row: &mut [Datum<'r>],
    derived: &mut bumpalo::collections::Vec<'a, (usize, Datum<'a>)>,
    (context, arena): (&Context<'_>, &'a Bump),
) -> Result<(), Failure> {
    for rule in rules {
        let value = rule.value.eval(row, context)?.within(arena);
        row[rule.column] = value;
        derived.push((rule.column, value));
    }
    Ok(())
}

/// The error of an update that a unique index may have refused.
fn taken(failure: Failure, table: &Table, row: &[Datum<'_>], context: &Context<'_>) -> Failure {
    match failure {
        Failure::Engine(Error::Duplicate(taken)) => duplicate(table, taken.index, row, context.zone).into(),
        other => other,
    }
}

/// Sets columns of a row, and answers the new row.
pub(super) fn change<'a>(
    target: &Target<'_>,
    old: Row<'a>,
    (set, values): (&[usize], &[Datum<'a>]),
    exec: &mut Exec<'_>,
    context: &Context<'a>,
) -> Result<Row<'a>, Failure> {
    let (table, mut scratch) = (target.table, KeyScratch::new());
    let key = key_of(table, old, &mut scratch, context.arena)?;
    let row = context.arena.alloc_slice_copy(old);
    set.iter().zip(values).for_each(|(&column, value)| row[column] = *value);
    let row = with_rules(table.generated()?, row, exec, context, context.arena)?;
    target.check(row, exec, context)?;
    let row = with_rules(table.rules()?, row, exec, context, context.arena)?;
    let mut changed = bumpalo::collections::Vec::from_iter_in(set.iter().copied(), context.arena);
    for rule in table.generated()?.iter().chain(table.rules()?) {
        let is_same = old[rule.column].compare(row[rule.column]).is_eq();
        changed.extend((!is_same).then_some(rule.column));
    }
    let set = &changed[..];
    if is_of_key(table, set) {
        // A row under another key is another row.
        exec.access.delete(table.id, key)?;
        if let Insertion::Duplicate(index) = insert_row(table, row, exec)? {
            return Err(duplicate(table, index, row, context.zone).into());
        }
        return Ok(row);
    }
    let mut values = bumpalo::collections::Vec::with_capacity_in(set.len(), context.arena);
    for &column in set {
        values.push((column, value_of(table, column, row[column], context.arena)?));
    }
    let changed = exec.access.update(table.id, key, &Projection::ALL, &mut |row| {
        let mut values = values.iter();
        Ok(values
            .try_for_each(|(column, value)| set_value_ref(row, &table.layout, *column, *value))
            .map_err(Error::from)?)
    });
    changed.map_err(|failure| taken(failure, table, row, context))?;
    Ok(row)
}

impl Target<'_> {
    /// Whether a row may be written: first what is NULL, then what the CHECKs say.
    pub(super) fn check(&self, row: &[Datum<'_>], exec: &mut Exec<'_>, context: &Context<'_>) -> Result<(), Failure> {
        if self.checks.is_empty() {
            return Ok(check_nulls(self.table, row, context.zone)?);
        }
        let arena = exec.take_arena();
        check_row(self.table, self.checks, row, &context.with_arena(&arena))?;
        exec.give_arena(arena);
        Ok(())
    }
}

/// Whether a row may be in a table, by these CHECKs of it.
pub(crate) fn check_row(
    table: &Table,
    checks: &[Condition],
    row: &[Datum<'_>],
    context: &Context<'_>,
) -> Result<(), SqlError> {
    check_nulls(table, row, context.zone)?;
    for check in checks {
        if let Datum::Bool(false) = check.holds.eval(row, context)? {
            let name = &check.name;
            let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
            let error = SqlError::new(SqlState::CHECK_VIOLATION, message).about(&table.name, None, Some(name));
            return Err(error.with_detail(failing(table, row, context.zone)));
        }
    }
    Ok(())
}

pub(super) fn delete<'p, 'a>(
    (table, source, is_joined): (&Arc<Table>, &Node, bool),
    (keys, returning): (&'p ForeignKeys, Option<&Returning>),
    exec: &mut Exec<'_>,
    context: &Context<'a>,
    out: &mut Sink<'_>,
) -> Result<(u64, Notes<'p, 'a>), Failure> {
    let is_alone = returning.is_none() && !exec.makes_several_changes();
    if let Some((scan, _)) = alone(source, keys, exec).filter(|_| is_alone) {
        let mut scratch = KeyScratch::new();
        let key = point_key(scan, context, &mut scratch)?;
        let is_gone = key.map_or(Ok(false), |key| exec.access.delete(table.id, key))?;
        return Ok((is_gone.into(), Notes::new(keys)));
    }
    let (mut count, mut notes, mut met) = (0, Notes::new(keys), is_joined.then(HashSet::new));
    for row in gathered(source, exec, context, context.arena)? {
        exec.tick()?;
        if !is_first(&mut met, table, row, exec, context)? || !exec.is_unchanged(table, row, context)? {
            continue;
        }
        let mut scratch = KeyScratch::new();
        exec.access.delete(table.id, key_of(table, row, &mut scratch, context.arena)?)?;
        count += 1;
        answered(returning, row, exec, context, out)?;
        notes.deleted(table, &row[..table.columns.len()], exec)?;
    }
    Ok((count, notes))
}

/// The row with the values of columns that follow from others by these rules, in this arena. Generated columns come first: CHECKs look at them.
pub(super) fn with_rules<'a>(
    rules: &[Rule],
    row: Row<'a>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    arena: &'a Bump,
) -> Result<Row<'a>, Failure> {
    if rules.is_empty() {
        return Ok(row);
    }
    let whole = arena.alloc_slice_copy(row);
    for rule in rules {
        let passing = exec.take_arena();
        whole[rule.column] = rule.value.eval(whole, &context.with_arena(&passing))?.within(arena);
        exec.give_arena(passing);
    }
    Ok(whole)
}

/// Inserts a row.
pub(super) fn insert_row(table: &Table, row: &[Datum<'_>], exec: &mut Exec<'_>) -> Result<Insertion, Failure> {
    let (arena, mut buffer, mut scratch) = (exec.take_arena(), RowBuffer::new(), KeyScratch::new());
    let mut values = bumpalo::collections::Vec::with_capacity_in(row.len(), &arena);
    for (column, datum) in row.iter().enumerate() {
        values.push(value_of(table, column, *datum, &arena)?);
    }
    build_row_of(&table.layout, &values, &mut buffer).map_err(|error| limit(error.to_string()))?;
    drop(values);
    exec.give_arena(arena);
    let key = table.primary().keys.extract(buffer.as_row(), &mut scratch);
    let key = key.map_err(|error| limit(error.to_string()))?;
    Ok(exec.access.insert(table.id, key, buffer.as_row())?)
}

fn limit(message: String) -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

/// The primary key of a row.
pub(super) fn key_of<'s>(
    table: &Table,
    row: &[Datum<'_>],
    scratch: &'s mut KeyScratch,
    arena: &Bump,
) -> Result<&'s [u8], Failure> {
    let primary = table.primary();
    let mut values = bumpalo::collections::Vec::with_capacity_in(primary.columns.len(), arena);
    for &column in &primary.columns {
        values.push(value_of(table, column, row[column], arena)?);
    }
    let key = primary.keys.encode_values(values.iter().copied(), scratch);
    Ok(key.map_err(|error| limit(error.to_string()))?)
}

fn value_of<'a>(table: &Table, column: usize, datum: Datum<'a>, arena: &'a Bump) -> Result<ValueRef<'a>, SqlError> {
    to_stored(datum, table.layout.columns()[column].column_type, arena).ok_or_else(|| {
        let base = table.columns[column].of.base;
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{base} out of range"))
    })
}

/// The row in words, as PostgreSQL shows one that fails.
pub(super) fn shown(row: &[Datum<'_>], columns: impl Iterator<Item = usize>, table: &Table, zone: &Zone) -> String {
    let values = columns.map(|column| match row[column] {
        Datum::Null => "null".to_owned(),
        value => {
            let mut shown = String::new();
            text::write(table.columns[column].of.base, value, zone, &mut shown);
            shown
        }
    });
    values.collect::<Vec<_>>().join(", ")
}

fn check_nulls(table: &Table, row: &[Datum<'_>], zone: &Zone) -> Result<(), SqlError> {
    let mut columns = table.columns.iter().zip(row);
    let is_missing =
        |(column, value): &(&Column, &Datum<'_>)| !column.nullable && column.computed.is_none() && value.is_null();
    let Some((column, _)) = columns.find(is_missing) else {
        return Ok(());
    };
    let message =
        format!("null value in column \"{}\" of relation \"{}\" violates not-null constraint", column.name, table.name);
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message).about(&table.name, Some(&column.name), None);
    Err(error.with_detail(failing(table, row, zone)))
}

fn failing(table: &Table, row: &[Datum<'_>], zone: &Zone) -> String {
    format!("Failing row contains ({}).", shown(row, table.visible().map(|(at, _)| at), table, zone))
}

/// A unique index has the key of a row already. A transaction that is run again may meet an index that was made since the statement was bound: that is a conflict.
pub(super) fn duplicate(table: &Table, index: IndexId, row: &[Datum<'_>], zone: &Zone) -> SqlError {
    let Some(index) = table.indexes.iter().find(|it| it.id == index) else {
        let detail = format!("A unique index of \"{}\" was made since the statement ran first.", table.name);
        return SqlError::of_engine(Error::Conflict).with_detail(detail);
    };
    let message = format!("duplicate key value violates unique constraint \"{}\"", index.name);
    let keys = table.sources(index);
    let (names, values) = (table.names(&keys), shown(row, keys.iter().copied(), table, zone));
    SqlError::new(SqlState::UNIQUE_VIOLATION, message)
        .with_detail(format!("Key ({names})=({values}) already exists."))
        .about(&table.name, None, Some(&index.name))
}
