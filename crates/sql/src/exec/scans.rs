//! Rows of tables, in pieces: while one is worked on, the transaction is free for others.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use bumpalo::Bump;
use polychron_engine::{Direction, Scan as EngineScan};
use polychron_schema::{KeyScratch, RowRef, ValueRef};

use super::{Exec, Failure, Flow, Sink, bytes_of, owned};
use crate::catalog::{Index, Table};
use crate::codec::{from_stored, to_stored};
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::expr::Expr;
use crate::plan::Scan;
use crate::types::Type;

/// Rows of the first piece, so that a few are cheap, and of the largest one.
const PIECES: (usize, usize) = (16, 1024);
/// About how many bytes of rows are read ahead where they are kept.
const PIECE_BYTES: usize = 1 << 20;

/// The most columns of a primary key whose row is looked for without memory of its own.
const POINT_COLUMNS: usize = 4;
/// The most values of a row that is handed on from the stack.
const STACK_VALUES: usize = 8;

/// The encoded bounds of a range, or that no row can be in it.
enum Range {
    Empty,
    Of(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// One key of a unique index.
    Key(Vec<u8>),
}

/// One end of a range.
enum End {
    Open,
    /// A comparison with NULL: no row is in the range.
    Nowhere,
    /// At keys that begin so, which are in the range or not.
    At(Vec<u8>, bool),
}

#[inline(never)]
pub(super) fn scan(
    scan: &Scan,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let index = &scan.table.indexes[scan.path.index];
    if is_point(scan) {
        return point(scan, exec, context, out);
    }
    let mut arena = exec.take_arena();
    let range = range_of(scan, index, &context.with_arena(&arena))?;
    arena.reset();
    let (mut lower, mut upper) = match range {
        Range::Empty => return Ok(Flow::More),
        Range::Key(key) if scan.path.index == 0 => {
            let flow = row_of(scan, &key, &arena, exec, out)?;
            exec.give_arena(arena);
            return Ok(flow);
        }
        Range::Key(key) => (Bound::Included(key.clone()), Bound::Included(key)),
        Range::Of(lower, upper) => (lower, upper),
    };
    let mut limit = PIECES.0;
    loop {
        exec.check()?;
        let Some(last) = piece(scan, (&lower, &upper), limit, &arena, exec, out)? else { return Ok(Flow::Enough) };
        arena.reset();
        match last {
            Bound::Unbounded => break,
            last if scan.path.is_backward => upper = last,
            last => lower = last,
        }
        limit = (limit * 4).min(PIECES.1);
    }
    exec.give_arena(arena);
    Ok(Flow::More)
}

/// How far a scan has come that is left and gone on with.
pub(super) struct Position {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    limit: usize,
    /// Rows that were read, and not pushed yet.
    read: VecDeque<Vec<OwnedDatum>>,
    /// There are no more than these.
    is_last: bool,
}

impl Position {
    /// In front of the first row.
    pub(super) fn first(scan: &Scan, exec: &Exec<'_>, context: &Context<'_>) -> Result<Self, Failure> {
        let arena = exec.take_arena();
        let range = range_of(scan, &scan.table.indexes[scan.path.index], &context.with_arena(&arena))?;
        exec.give_arena(arena);
        let is_last = matches!(range, Range::Empty);
        let (lower, upper) = match range {
            Range::Empty => (Bound::Unbounded, Bound::Unbounded),
            Range::Key(key) => (Bound::Included(key.clone()), Bound::Included(key)),
            Range::Of(lower, upper) => (lower, upper),
        };
        Ok(Self { lower, upper, limit: PIECES.0, read: VecDeque::new(), is_last })
    }

    /// Pushes rows from here on, until no more are wanted.
    pub(super) fn go_on(&mut self, scan: &Scan, exec: &mut Exec<'_>, out: &mut Sink<'_>) -> Result<Flow, Failure> {
        loop {
            while let Some(row) = self.read.pop_front() {
                let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
                exec.forget(bytes_of(&row));
                if out(exec, &row)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
            if self.is_last {
                return Ok(Flow::More);
            }
            exec.check()?;
            let (arena, read, mut bytes) = (exec.take_arena(), &mut self.read, 0);
            let last = piece(scan, (&self.lower, &self.upper), self.limit, &arena, exec, &mut |exec, row| {
                bytes += exec.keep(row)?;
                read.push_back(owned(row));
                Ok(Flow::More)
            })?;
            // Of long rows only a few are read ahead.
            let fitting = PIECE_BYTES / (bytes / self.read.len().max(1)).max(1);
            exec.give_arena(arena);
            match last {
                None | Some(Bound::Unbounded) => self.is_last = true,
                Some(last) if scan.path.is_backward => self.upper = last,
                Some(last) => self.lower = last,
            }
            self.limit = (self.limit * 4).min(PIECES.1).min(fitting.max(1));
        }
    }

    /// What the rows take that were read ahead.
    pub(super) fn bytes(&self) -> usize {
        self.read.iter().map(|row| bytes_of(&row.iter().map(OwnedDatum::get).collect::<Vec<_>>())).sum()
    }
}

/// Whether a scan is for one row, by a primary key of few columns.
pub(super) fn is_point(scan: &Scan) -> bool {
    let columns = scan.table.primary().columns.len();
    scan.path.index == 0 && scan.path.equal.len() == columns && columns <= POINT_COLUMNS
}

/// Pushes the row that has a primary key, if there is one. Nothing is allocated for the key.
fn point(scan: &Scan, exec: &mut Exec<'_>, context: &Context<'_>, out: &mut Sink<'_>) -> Result<Flow, Failure> {
    let (arena, mut scratch) = (exec.take_arena(), KeyScratch::new());
    let key = point_key(scan, &context.with_arena(&arena), &mut scratch)?;
    let flow = key.map_or(Ok(Flow::More), |key| row_of(scan, key, &arena, exec, out))?;
    exec.give_arena(arena);
    Ok(flow)
}

/// Pushes the row of a primary key, if there is one.
fn row_of(scan: &Scan, key: &[u8], arena: &Bump, exec: &mut Exec<'_>, out: &mut Sink<'_>) -> Result<Flow, Failure> {
    let (access, mut row, mut flow) = (exec.access, None, Ok(Flow::More));
    access.get(scan.table.id, key, scan.projection(false), &mut |found| {
        if scan.is_in_place {
            flow = shown(scan, found, arena, exec, out);
        } else {
            row = Some(kept(scan, found, arena));
        }
    })?;
    row.map_or(flow, |row| out(exec, &row))
}

/// The primary key that a path names; `None`: no row has it.
pub(super) fn point_key<'s>(
    scan: &Scan,
    context: &Context<'_>,
    scratch: &'s mut KeyScratch,
) -> Result<Option<&'s [u8]>, Failure> {
    let index = scan.table.primary();
    let mut values = [ValueRef::Null; POINT_COLUMNS];
    for ((part, column), value) in scan.path.equal.iter().zip(&index.columns).zip(&mut values) {
        let wanted = part.eval(&[], context)?;
        match to_stored(wanted, scan.table.layout.columns()[*column].column_type, context.arena) {
            Some(stored) if !wanted.is_null() => *value = stored,
            _ => return Ok(None),
        }
    }
    Ok(index.keys.encode_values(values[..scan.path.equal.len()].iter().copied(), scratch).ok())
}

/// Pushes the next rows of a range. The answer is where to go on, nowhere if there are no more, and none if no more are wanted.
fn piece(
    scan: &Scan,
    (lower, upper): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    limit: usize,
    arena: &Bump,
    exec: &mut Exec<'_>,
    out: &mut Sink<'_>,
) -> Result<Option<Bound<Vec<u8>>>, Failure> {
    let index = &scan.table.indexes[scan.path.index];
    let (access, mut rows, mut count) = (exec.access, bumpalo::collections::Vec::new_in(arena), 0);
    let (mut last, mut flow) = (Ok(Bound::Unbounded), Ok(Flow::More));
    let bounds = EngineScan {
        index: index.id,
        lower: lower.as_ref().map(Vec::as_slice),
        upper: upper.as_ref().map(Vec::as_slice),
        limit,
        direction: if scan.path.is_backward { Direction::Backward } else { Direction::Forward },
        // The last row's key is made of it.
        projection: *scan.projection(true),
        ..EngineScan::all(scan.table.id)
    };
    access.scan(&bounds, &mut |row| {
        count += 1;
        if count == limit {
            let mut scratch = KeyScratch::new();
            last = index.keys.extract(row, &mut scratch).map(|key| Bound::Excluded(key.to_vec()));
        }
        if scan.is_in_place {
            flow = shown(scan, row, arena, exec, out);
            return if matches!(flow, Ok(Flow::More)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        }
        rows.push(kept(scan, row, arena));
        ControlFlow::Continue(())
    })?;
    if flow? == Flow::Enough {
        return Ok(None);
    }
    for row in &rows {
        if out(exec, row)? == Flow::Enough {
            return Ok(None);
        }
    }
    Ok(Some(last.map_err(polychron_base::Error::from)?))
}

/// The wanted columns of a row.
pub(super) fn values<'r>(scan: &Scan, row: RowRef<'r>) -> impl Iterator<Item = Datum<'r>> {
    let value = move |&column: &usize| {
        from_stored(row.value_ref(&scan.table.layout, column), scan.table.columns[column].of.base)
    };
    scan.columns.iter().map(value)
}

/// The wanted columns of a row, with texts in the arena.
fn kept<'a>(scan: &Scan, row: RowRef<'_>, arena: &'a Bump) -> bumpalo::collections::Vec<'a, Datum<'a>> {
    let mut own = bumpalo::collections::Vec::with_capacity_in(scan.columns.len(), arena);
    own.extend(values(scan, row).map(|value| value.within(arena)));
    own
}

/// Pushes the wanted columns of a row, which stays where it is.
fn shown(scan: &Scan, row: RowRef<'_>, arena: &Bump, exec: &mut Exec<'_>, out: &mut Sink<'_>) -> Result<Flow, Failure> {
    if scan.columns.len() <= STACK_VALUES {
        let mut own = [Datum::Null; STACK_VALUES];
        own.iter_mut().zip(values(scan, row)).for_each(|(own, value)| *own = value);
        return out(exec, &own[..scan.columns.len()]);
    }
    let mut own = bumpalo::collections::Vec::with_capacity_in(scan.columns.len(), arena);
    own.extend(values(scan, row));
    out(exec, &own)
}

/// The bounds of a path. A comparison with NULL holds for no row, and a value that a column cannot hold is in none.
fn range_of<'a>(scan: &'a Scan, index: &Index, context: &Context<'a>) -> Result<Range, Failure> {
    let mut prefix = bumpalo::collections::Vec::with_capacity_in(scan.path.equal.len() + 1, context.arena);
    for value in &scan.path.equal {
        match value.eval(&[], context)? {
            Datum::Null => return Ok(Range::Empty),
            value => prefix.push(value),
        }
    }
    let is_whole = prefix.len() == index.columns.len();
    let Some(key) = encoded(&scan.table, index, &prefix, context.arena) else { return Ok(Range::Empty) };
    if is_whole && index.is_unique {
        return Ok(Range::Key(key));
    }
    let mut bound = |of: Option<&'a (Expr, bool)>| -> Result<End, Failure> {
        let Some((value, is_included)) = of else { return Ok(End::Open) };
        let value = value.eval(&[], context)?;
        if value.is_null() {
            return Ok(End::Nowhere);
        }
        prefix.push(value);
        // Beyond what the column holds no bound is needed: the condition is tested again.
        let key = encoded(&scan.table, index, &prefix, context.arena);
        prefix.pop();
        Ok(key.map_or(End::Open, |key| End::At(key, *is_included)))
    };
    let (lower, upper) = (bound(scan.path.lower.as_ref())?, bound(scan.path.upper.as_ref())?);
    let next = index.columns.get(prefix.len()).map(|column| scan.table.columns[*column].of.base);
    let has_texts = matches!(next, Some(Type::Text | Type::Varchar | Type::Bpchar | Type::Bytea));
    // NULL comes before the values or behind them, and the condition is tested again.
    let lower = match lower {
        End::Nowhere => return Ok(Range::Empty),
        End::At(key, true) => Bound::Included(key),
        // The keys of longer texts may begin with this one's.
        End::At(key, false) if has_texts => Bound::Included(key),
        End::At(key, false) => behind(key),
        End::Open if prefix.is_empty() => Bound::Unbounded,
        End::Open => Bound::Included(key.clone()),
    };
    let upper = match upper {
        End::Nowhere => return Ok(Range::Empty),
        End::At(key, true) => behind(key),
        End::At(key, false) => Bound::Excluded(key),
        End::Open if prefix.is_empty() => Bound::Unbounded,
        End::Open => behind(key),
    };
    let lower = if let Bound::Excluded(key) = lower { Bound::Included(key) } else { lower };
    Ok(Range::Of(lower, upper))
}

/// The least key behind all that begin with these bytes, as a bound that leaves it out.
fn behind(mut key: Vec<u8>) -> Bound<Vec<u8>> {
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return Bound::Excluded(key);
        }
    }
    Bound::Unbounded
}

/// The front of a key with these values, unless a column cannot hold one of them.
fn encoded(table: &Table, index: &Index, values: &[Datum<'_>], arena: &Bump) -> Option<Vec<u8>> {
    let mut scratch = KeyScratch::new();
    let mut stored = bumpalo::collections::Vec::with_capacity_in(values.len(), arena);
    for (value, column) in values.iter().zip(&index.columns) {
        stored.push(to_stored(*value, table.layout.columns()[*column].column_type, arena)?);
    }
    index.keys.encode_values(stored.iter().copied(), &mut scratch).ok().map(<[u8]>::to_vec)
}
