//! Queries that are left and gone on with.
//!
//! Operators push rows, and nobody can stop in the middle of a push. So a query that is gone on with runs anew from its root, and each operator on the way from there to the scans that
//! drive it finds what it knew when it was left: a scan the place behind its last row, a limit how many rows it still lets through, DISTINCT what it has seen. A scan looks behind each
//! row whether the client has enough; then everything above it returns.
//!
//! What must see all of its rows before it gives the first one (a sort, groups, windows) runs once, and what it gives is kept. So a query takes the memory of that, and of a piece of each scan.
//!
//! A query that is gone on with sees what its transaction has written meanwhile. So whoever is about to write has it read its rows before (`session::cursors`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};
use polychron_engine::limits;

use super::aggregates::group_key;
use super::profile::address;
use super::scans::{Position, is_point};
use super::{Exec, Failure, Flow, Left, Observer, Rows, Shared, Sink, bytes_of, joins, owned, sets};
use crate::access::Access;
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::plan::{JoinKind, Node};

/// A query that has given some of its rows, and that nobody runs.
pub(crate) struct Paused {
    shared: Shared,
    is_done: bool,
}

impl Paused {
    /// In front of its first row. The plan stays where it is.
    pub(crate) fn new(node: &Node) -> Self {
        let (shared, path) = (Shared::default(), Path::default());
        path.note(node);
        let _ = shared.observer.set(Observer::Path(path.into()));
        Self { shared, is_done: false }
    }

    /// Whether it has given all of its rows.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// How many bytes its operators keep.
    pub(crate) fn bytes(&self) -> usize {
        if self.is_done { 0 } else { super::WORK_MEMORY.saturating_sub(self.shared.memory.get()) }
    }

    /// Shows its next rows to `out`: as many as are wanted, if there are so many and `out` has not enough before, and those that come with the last one of these.
    pub(crate) fn go_on(
        &mut self,
        node: &Node,
        wanted: usize,
        (access, context): (&dyn Access, &Context<'_>),
        out: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        if self.is_done || wanted == 0 {
            return Ok(());
        }
        self.shared.is_limited = limits::are_set();
        let Some(Observer::Path(path)) = self.shared.observer.get() else {
            return Err(SqlError::internal("the way of a query that is left is known").into());
        };
        path.wanted.set(wanted);
        let mut exec = Exec::new(access, &self.shared);
        let context = Context { exec: Some(exec), ..*context };
        let done = super::run(node, &mut exec, &context, &mut |exec, row| {
            let flow = out(exec, row)?;
            path.wanted.set(if flow == Flow::More { path.wanted.get().saturating_sub(1) } else { 0 });
            Ok(Flow::More)
        });
        // An expression has no way to tell it.
        let flow = match self.shared.failure.take() {
            Some(error) if done.is_err() => return Err(Failure::Engine(error)),
            _ => done?,
        };
        self.is_done = flow == Flow::More;
        if self.is_done {
            // Nothing that was kept is looked at again.
            self.shared = Shared::default();
        }
        Ok(())
    }
}

/// What operators know that can be left, by their addresses, and the bytes that they took for it when they began.
#[derive(Default)]
pub(super) struct Path {
    states: RefCell<HashMap<usize, (State, usize)>>,
    /// How many rows the client still wants.
    wanted: Cell<usize>,
}

/// What an operator knows that was left.
enum State {
    /// It has not run.
    New,
    Scan(Position),
    /// The next integer.
    Series(Option<i128>),
    /// The rows that it has still to give: it has run.
    Gathered(VecDeque<Vec<OwnedDatum>>),
    Limit(Left),
    /// The position of the input that is read.
    Append(usize),
    /// What DISTINCT has seen.
    Distinct(HashSet<Vec<u8>>),
    Without(sets::Counts),
    /// A join's right side, by what is equal.
    Equal(joins::Table),
    /// The left row whose right side was left, and whether it had a row of that.
    Nested(Option<(Vec<OwnedDatum>, bool)>),
    Recursion(Recursion),
}

/// How far a recursive query has come.
#[derive(Default)]
struct Recursion {
    seen: HashSet<Vec<u8>>,
    has_begun: bool,
    /// The rows of the latest round, and how many of them were pushed.
    round: Rows,
    pushed: usize,
}

impl Path {
    /// Notes the operators that can be left, as ones that have not run.
    fn note(&self, node: &Node) {
        match node {
            Node::Filter { input, .. } | Node::Project { input, .. } | Node::Expand { input, .. } => {
                return self.note(input);
            }
            Node::Limit { input, .. } | Node::Distinct { input, .. } => self.note(input),
            Node::Without { left, .. } => self.note(left),
            Node::Join { left, right, kind: JoinKind::Inner | JoinKind::Left, keys, .. } => {
                self.note(left);
                if keys.is_none() {
                    self.note(right);
                }
            }
            Node::Append(inputs) => inputs.iter().for_each(|input| self.note(input)),
            Node::Scan(_) | Node::Series(_) | Node::Recursive { .. } => {}
            // They run once.
            Node::Nothing | Node::Rows(_) | Node::Given(_) | Node::Working { .. } => {}
            Node::Kept { .. } | Node::Sort { .. } | Node::Aggregate { .. } | Node::Window { .. } => {}
            Node::Join { kind: JoinKind::Full, .. } => {}
        }
        self.states.borrow_mut().insert(address(node), (State::New, 0));
    }

    /// Runs one operator, from where it was left.
    pub(super) fn operate(
        &self,
        node: &Node,
        most: usize,
        exec: &mut Exec<'_>,
        context: &Context<'_>,
        out: &mut Sink<'_>,
    ) -> Result<Flow, Failure> {
        let Some((mut state, mut taken)) = self.states.borrow_mut().remove(&address(node)) else {
            return super::operate(node, most, exec, context, out);
        };
        if let State::New = state {
            let before = exec.shared.memory.get();
            state = begun(node, most, exec, context)?;
            taken = before.saturating_sub(exec.shared.memory.get());
        }
        let flow = self.go_on(node, &mut state, exec, context, out)?;
        self.states.borrow_mut().insert(address(node), (state, taken));
        Ok(flow)
    }

    #[inline(never)]
    fn go_on(
        &self,
        node: &Node,
        state: &mut State,
        exec: &mut Exec<'_>,
        context: &Context<'_>,
        out: &mut Sink<'_>,
    ) -> Result<Flow, Failure> {
        match (node, state) {
            (Node::Limit { input, .. }, State::Limit(left)) => super::limited(input, left, exec, context, out),
            (Node::Append(inputs), State::Append(at)) => super::appended(inputs, at, exec, context, out),
            (Node::Distinct { input, keys }, State::Distinct(seen)) => {
                sets::distinct(input, keys.as_deref(), seen, exec, context, out)
            }
            (Node::Without { left, is_except, is_all, .. }, State::Without(counts)) => {
                sets::without(left, counts, (*is_except, *is_all), exec, context, out)
            }
            (Node::Join { .. }, State::Equal(table)) => joins::probe(node, table, &mut [], exec, context, out),
            (Node::Join { .. }, State::Nested(row)) => self.nested(node, row, exec, context, out),
            // The others are where rows come from: they stop when there are enough.
            (node, state) => {
                let out = &mut |exec: &mut Exec<'_>, row: &[Datum<'_>]| {
                    let flow = out(exec, row)?;
                    Ok(if self.wanted.get() == 0 { Flow::Enough } else { flow })
                };
                match (node, state) {
                    (Node::Scan(scan), State::Scan(position)) => position.go_on(scan, exec, out),
                    (Node::Series(parts), State::Series(at)) => super::series(parts, at, exec, context, out),
                    (Node::Recursive { id, first, step, is_all }, State::Recursion(recursion)) => {
                        recursion.go_on(*id, (first, step), *is_all, exec, context, out)
                    }
                    (_, State::Gathered(rows)) => given(rows, exec, out),
                    _ => Err(SqlError::internal("an operator knows what it has left").into()),
                }
            }
        }
    }

    /// A join whose right side runs for each left row, and can be left, too.
    fn nested(
        &self,
        node: &Node,
        left_row: &mut Option<(Vec<OwnedDatum>, bool)>,
        exec: &mut Exec<'_>,
        context: &Context<'_>,
        out: &mut Sink<'_>,
    ) -> Result<Flow, Failure> {
        let Node::Join { left, right, on, kind, right_width, .. } = node else {
            return Err(SqlError::internal("a join is one").into());
        };
        let of_right = (&**right, on.as_ref(), (*kind != JoinKind::Inner).then_some(*right_width));
        let mut arena = exec.take_arena();
        if let Some((row, mut is_matched)) = left_row.take() {
            let values: Vec<_> = row.iter().map(OwnedDatum::get).collect();
            let so_far = (&mut arena, &mut is_matched);
            if joins::matched(&values, of_right, so_far, exec, context, out)? == Flow::Enough {
                *left_row = Some((row, is_matched));
                return Ok(Flow::Enough);
            }
        }
        let flow = super::run(left, exec, context, &mut |exec, row| {
            self.begin_again(right, exec);
            let mut is_matched = false;
            let flow = joins::matched(row, of_right, (&mut arena, &mut is_matched), exec, context, out)?;
            if flow == Flow::Enough {
                *left_row = Some((owned(row), is_matched));
            }
            Ok(flow)
        });
        exec.give_arena(arena);
        flow
    }

    /// The right side of a join runs for another row: what its operators know is forgotten.
    fn begin_again(&self, right: &Node, exec: &Exec<'_>) {
        self.forget(right, exec);
        self.note(right);
    }

    fn forget(&self, node: &Node, exec: &Exec<'_>) {
        match self.states.borrow().get(&address(node)) {
            Some((State::Gathered(rows), _)) => exec.forget(rows.iter().map(|row| bytes_of_owned(row)).sum()),
            Some((State::Scan(position), _)) => exec.forget(position.bytes()),
            Some((State::Equal(_) | State::Without(_), taken)) => exec.forget(*taken),
            _ => {}
        }
        match node {
            Node::Filter { input, .. }
            | Node::Project { input, .. }
            | Node::Expand { input, .. }
            | Node::Limit { input, .. }
            | Node::Distinct { input, .. } => self.forget(input, exec),
            Node::Without { left, .. } => self.forget(left, exec),
            Node::Append(inputs) => inputs.iter().for_each(|input| self.forget(input, exec)),
            Node::Join { left, right, .. } => {
                self.forget(left, exec);
                self.forget(right, exec);
            }
            _ => {}
        }
    }
}

/// What an operator knows when it begins.
fn begun(node: &Node, most: usize, exec: &mut Exec<'_>, context: &Context<'_>) -> Result<State, Failure> {
    Ok(match node {
        // One row is given at once.
        Node::Scan(scan) if !is_point(scan) => State::Scan(Position::first(scan, exec, context)?),
        Node::Series(_) => State::Series(None),
        Node::Recursive { .. } => State::Recursion(Recursion::default()),
        Node::Limit { limit, offset, .. } => State::Limit(Left::of((limit.as_ref(), offset.as_ref()), exec, context)?),
        Node::Append(_) => State::Append(0),
        Node::Distinct { .. } => State::Distinct(HashSet::new()),
        Node::Without { right, .. } => State::Without(sets::counted(right, exec, context)?),
        Node::Join { right, kind: kind @ (JoinKind::Inner | JoinKind::Left), keys: Some(keys), .. } => {
            State::Equal(joins::Table::of(right, keys, *kind, exec, context)?)
        }
        Node::Join { kind: JoinKind::Inner | JoinKind::Left, .. } => State::Nested(None),
        _ => State::Gathered(gathered(node, most, exec, context)?),
    })
}

fn bytes_of_owned(row: &[OwnedDatum]) -> usize {
    bytes_of(&row.iter().map(OwnedDatum::get).collect::<Vec<_>>())
}

/// The rows of an operator that gives none before it has seen all of its own. What it has kept for them is gone then.
fn gathered(
    node: &Node,
    most: usize,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
) -> Result<VecDeque<Vec<OwnedDatum>>, Failure> {
    let (before, lasting) = (exec.shared.memory.get(), exec.shared.lasting.get());
    let (mut rows, mut bytes) = (VecDeque::new(), 0);
    super::operate(node, most, exec, context, &mut |exec, row| {
        exec.tick()?;
        bytes += bytes_of(row);
        rows.push_back(owned(row));
        Ok(Flow::More)
    })?;
    exec.shared.memory.set(before.saturating_sub(exec.shared.lasting.get() - lasting));
    exec.take(bytes)?;
    Ok(rows)
}

/// Pushes rows that were gathered, and forgets them.
fn given(rows: &mut VecDeque<Vec<OwnedDatum>>, exec: &mut Exec<'_>, out: &mut Sink<'_>) -> Result<Flow, Failure> {
    while let Some(row) = rows.pop_front() {
        exec.tick()?;
        let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
        exec.forget(bytes_of(&row));
        if out(exec, &row)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}

impl Recursion {
    fn go_on(
        &mut self,
        id: usize,
        (first, step): (&Node, &Node),
        is_all: bool,
        exec: &mut Exec<'_>,
        context: &Context<'_>,
        out: &mut Sink<'_>,
    ) -> Result<Flow, Failure> {
        loop {
            while let Some(row) = self.round.get(self.pushed) {
                self.pushed += 1;
                let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
                if out(exec, &row)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
            let node = if self.has_begun { step } else { first };
            if self.has_begun && self.round.is_empty() {
                return Ok(Flow::More);
            }
            let round = std::mem::take(&mut self.round);
            exec.shared.results().working.borrow_mut().insert(id, round.into());
            let Self { seen, round, .. } = self;
            super::run(node, exec, context, &mut |exec, row| {
                if is_all || seen.insert(group_key(row)) {
                    exec.keep(row)?;
                    round.push(owned(row));
                }
                Ok(Flow::More)
            })?;
            (self.has_begun, self.pushed) = (true, 0);
        }
    }
}
