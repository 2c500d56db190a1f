//! Execution: each operator pushes its rows into the next one.

mod aggregates;
mod changes;
mod changing;
mod children;
pub(crate) mod foreign_keys;
pub(crate) mod futures;
mod joins;
pub(crate) mod paused;
mod procedures;
pub(crate) mod profile;
mod scans;
mod sets;
mod sorts;
mod states;
mod subqueries;
mod windows;

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use bumpalo::Bump;
use hashbrown::{HashMap, HashSet};
use polychron_base::{Error, TableId};
use polychron_engine::limits;

use crate::access::Access;
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::outcome::Notice;
use crate::plan::{ForeignKeys, Node, Plan};

pub(crate) use changes::check_row;
use paused::Path;
use profile::Profile;

/// Why an execution has ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The statement is wrong, or its data are.
    Sql(SqlError),
    /// The transaction has failed, or conflicts.
    Engine(Error),
}

impl Failure {
    /// The same about one of the rows that a statement inserts.
    fn at_row(self, row: usize) -> Self {
        if let Self::Sql(error) = self { Self::Sql(error.at_row(row)) } else { self }
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// Whether more rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    Enough,
}

/// Takes rows.
pub(crate) type Sink<'s> = dyn FnMut(&mut Exec<'_>, &[Datum<'_>]) -> Result<Flow, Failure> + 's;

/// An execution under way, as an operator has it.
#[derive(Clone, Copy)]
pub(crate) struct Exec<'t> {
    pub(crate) access: &'t dyn Access,
    shared: &'t Shared,
}

/// What the operators of a statement share with its subqueries.
pub(crate) struct Shared {
    /// Arenas that nobody uses.
    arenas: RefCell<Vec<Bump>>,
    /// Bytes that sorts, groups and distinct rows may still take.
    memory: Cell<usize>,
    /// Bytes of these that are taken up to the end of the statement.
    lasting: Cell<usize>,
    /// Why the transaction has failed inside of an expression.
    failure: Cell<Option<Error>>,
    results: OnceCell<Box<Results>>,
    /// What the client is to know.
    notices: RefCell<Vec<Notice>>,
    /// Whether something can call the statement off, and how many steps it has taken.
    is_limited: bool,
    steps: Cell<u32>,
    /// Whether futures may stay open.
    may_defer: bool,
    /// What is wanted of operators besides their rows.
    observer: OnceCell<Observer>,
}

/// What is wanted of the operators of a statement besides their rows; of most statements nothing.
enum Observer {
    /// What they have done.
    Profile(Box<Profile>),
    /// That they can be left, and gone on with.
    Path(Box<Path>),
}

/// What parts of a statement have answered; most statements have none.
#[derive(Default)]
struct Results {
    /// What subqueries have answered that look at no row around them.
    answers: RefCell<subqueries::Answers>,
    /// The rows of queries that are computed once, by their numbers.
    kept: RefCell<HashMap<usize, Arc<Rows>>>,
    /// The rows that recursive queries go on with, and those of changes in WITH, by their numbers.
    working: RefCell<HashMap<usize, Arc<Rows>>>,
    /// The keys of rows that parts of the statement have changed, where it has several that do.
    changed: RefCell<Option<Changed>>,
}

/// Tables with keys of their rows.
type Changed = HashSet<(TableId, Vec<u8>)>;

/// Rows with memory of their own.
type Rows = Vec<Vec<OwnedDatum>>;

impl Default for Shared {
    fn default() -> Self {
        Self {
            arenas: RefCell::default(),
            memory: Cell::new(WORK_MEMORY),
            lasting: Cell::default(),
            failure: Cell::default(),
            results: OnceCell::new(),
            notices: RefCell::default(),
            is_limited: limits::are_set(),
            steps: Cell::default(),
            may_defer: futures::may_defer(),
            observer: OnceCell::new(),
        }
    }
}

impl Shared {
    /// That of a new statement, which uses the arenas of an earlier one.
    pub(crate) fn with_arenas(arenas: Vec<Bump>) -> Self {
        Self { arenas: RefCell::new(arenas), ..Self::default() }
    }

    fn results(&self) -> &Results {
        self.results.get_or_init(Box::default)
    }

    /// What the client is to know.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        self.notices.take()
    }

    /// The arenas, with another one, for the next statement: a few small ones.
    pub(crate) fn into_arenas(self, arena: Bump) -> Vec<Bump> {
        let mut arenas = self.arenas.into_inner();
        arenas.push(arena);
        arenas.retain(|arena| arena.allocated_bytes() <= KEPT_BYTES);
        arenas.truncate(KEPT_ARENAS);
        arenas
    }
}

/// How many arenas are kept from one statement to the next, and how large they are at most.
const KEPT_ARENAS: usize = 8;
const KEPT_BYTES: usize = 16 << 10;

/// What sorts, groups and distinct rows of a statement may take, in bytes (`work_mem`).
pub(crate) const WORK_MEMORY: usize = 256 << 20;

/// What a row takes that is kept.
pub(crate) fn bytes_of(row: &[Datum<'_>]) -> usize {
    let of = |datum: &Datum<'_>| match datum {
        Datum::Text(text) | Datum::Json(text) => text.len(),
        Datum::Array(array) => array.bytes().len(),
        Datum::Bytes(bytes) => bytes.len(),
        Datum::Wide(wide) => wide.bytes().len(),
        _ => 0,
    };
    size_of_val(row) + row.iter().map(of).sum::<usize>() + 32
}

/// How many steps are taken before it is looked whether the statement may go on.
const STEPS: u32 = 256;

impl<'t> Exec<'t> {
    pub(crate) fn new(access: &'t dyn Access, shared: &'t Shared) -> Self {
        Self { access, shared }
    }

    /// Notes something for the client.
    pub(crate) fn note(&self, notice: Notice) {
        self.shared.notices.borrow_mut().push(notice);
    }

    pub(crate) fn take_arena(&self) -> Bump {
        self.shared.arenas.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_arena(&self, mut arena: Bump) {
        arena.reset();
        self.shared.arenas.borrow_mut().push(arena);
    }

    /// Counts memory of a row that is kept, and tells how much it is.
    fn keep(&self, row: &[Datum<'_>]) -> Result<usize, Failure> {
        self.tick()?;
        self.take(bytes_of(row))
    }

    /// Counts memory that is kept, and tells how much it is.
    fn take(&self, bytes: usize) -> Result<usize, Failure> {
        let full = || {
            let detail = format!("Sorting and grouping of a statement take at most {WORK_MEMORY} bytes.");
            SqlError::out_of_memory(detail)
        };
        self.shared.memory.set(self.shared.memory.get().checked_sub(bytes).ok_or_else(full)?);
        Ok(bytes)
    }

    fn is_limited(&self) -> bool {
        self.shared.is_limited
    }

    /// Whether more is wanted of operators than their rows.
    fn is_observed(&self) -> bool {
        self.shared.observer.get().is_some()
    }

    /// Whether the statement may go on: asked between pieces of work.
    fn check(&self) -> Result<(), Failure> {
        if self.shared.is_limited { Ok(limits::check()?) } else { Ok(()) }
    }

    /// As [`Exec::check`], of the step of a loop: most of them look at nothing.
    #[inline]
    fn tick(&self) -> Result<(), Failure> {
        if !self.shared.is_limited {
            return Ok(());
        }
        let steps = self.shared.steps.get().wrapping_add(1);
        self.shared.steps.set(steps);
        if steps.is_multiple_of(STEPS) { self.check() } else { Ok(()) }
    }

    /// Notes that what was taken since there were `before` bytes is kept up to the end of the statement.
    fn lasts(&self, before: usize) {
        let taken = before.saturating_sub(self.shared.memory.get());
        self.shared.lasting.set(self.shared.lasting.get() + taken);
    }

    /// Gives memory of rows back that are kept no longer.
    fn forget(&self, bytes: usize) {
        self.shared.memory.set(self.shared.memory.get() + bytes);
    }
}

/// Executes a plan, gives the rows that it answers with to `out`, and tells how many rows were changed or answered.
pub(crate) fn execute(
    plan: &Plan,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let done = executed(plan, exec, context, out);
    // An expression has no way to tell it.
    match exec.shared.failure.take() {
        Some(error) if done.is_err() => Err(Failure::Engine(error)),
        _ => done,
    }
}

fn executed(plan: &Plan, exec: &mut Exec<'_>, context: &Context<'_>, out: &mut Sink<'_>) -> Result<u64, Failure> {
    match plan {
        Plan::Query { node, .. } => {
            let mut count = 0;
            run(node, exec, context, &mut |exec, row| {
                count += 1;
                out(exec, row)
            })?;
            Ok(count)
        }
        Plan::Insert { .. } | Plan::Update { .. } | Plan::Delete { .. } | Plan::Merge(_) => {
            let (count, notes) = changes::changed(plan, exec, context, out)?;
            notes.finish(exec, context)?;
            Ok(count)
        }
        Plan::With(with) => changing::with(with, exec, context, out),
        Plan::Analyze(analyzed) => {
            let observer = exec.shared.observer.get_or_init(|| Observer::Profile(Box::default()));
            let (Observer::Profile(profile), mut answered) = (observer, 0) else {
                return Err(SqlError::internal("what is analyzed is not left").into());
            };
            executed(&analyzed.plan, exec, context, &mut |_, _| {
                answered += 1;
                Ok(Flow::More)
            })?;
            let lines = crate::explain::analyzed(analyzed, profile, answered);
            for line in &lines {
                out(exec, &[Datum::Text(line)])?;
            }
            Ok(lines.len() as u64)
        }
        Plan::Truncate(tables) => tables.iter().try_fold(0, |count, (table, source)| {
            let keys = &ForeignKeys::default();
            Ok(count + changes::delete((table, source, false), (keys, None), exec, context, out)?.0)
        }),
        Plan::Lock => Ok(0),
        Plan::Call(call) => procedures::call(call, exec, context, out),
    }
}

/// Pushes the rows of an operator into `out`.
fn run(node: &Node, exec: &mut Exec<'_>, context: &Context<'_>, out: &mut Sink<'_>) -> Result<Flow, Failure> {
    first_of(node, usize::MAX, exec, context, out)
}

/// The same where no more than the first `most` rows are wanted, so that a sort can forget the others.
fn first_of(
    node: &Node,
    most: usize,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    exec.tick()?;
    match exec.shared.observer.get() {
        None => operate(node, most, exec, context, out),
        Some(observer) => observed(observer, node, most, exec, context, out),
    }
}

/// The same of an operator of which more is wanted than its rows.
#[inline(never)]
fn observed(
    observer: &Observer,
    node: &Node,
    most: usize,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    match observer {
        Observer::Path(path) => path.operate(node, most, exec, context, out),
        Observer::Profile(profile) => {
            let mut rows = 0;
            let ended = operate(node, most, exec, context, &mut |exec, row| {
                rows += 1;
                out(exec, row)
            });
            profile.note(node, rows);
            ended
        }
    }
}

/// Runs one operator. The operators themselves are not inlined here: nested queries recurse through this frame, which has to be small.
fn operate(
    node: &Node,
    most: usize,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    match node {
        Node::Nothing => out(exec, &[]),
        Node::Rows(rows) => written(rows, exec, context, out),
        Node::Given(columns) => {
            for row in context.parameters.chunks(columns.len().max(1)) {
                if out(exec, row)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
            Ok(Flow::More)
        }
        Node::Scan(scan) => scans::scan(scan, exec, context, out),
        Node::Series(parts) => series(parts, &mut None, exec, context, out),
        Node::Filter { input, condition } => {
            let mut arena = exec.take_arena();
            let flow = run(input, exec, context, &mut |exec, row| {
                arena.reset();
                if condition.holds(row, &context.with_arena(&arena))? { out(exec, row) } else { Ok(Flow::More) }
            });
            exec.give_arena(arena);
            flow
        }
        Node::Project { input, columns } => {
            let mut arena = exec.take_arena();
            let flow = first_of(input, most, exec, context, &mut |exec, row| {
                arena.reset();
                projected(columns, row, exec, &context.with_arena(&arena), out)
            });
            exec.give_arena(arena);
            flow
        }
        Node::Join { .. } => joins::join(node, exec, context, out),
        Node::Aggregate { input, groups, sets, aggregates } => {
            aggregates::aggregate(input, (groups, sets, aggregates), exec, context, out)
        }
        Node::Expand { input, calls, has_numbers } => sets::expand(input, (calls, *has_numbers), exec, context, out),
        Node::Window { input, window, calls } => windows::windows(input, (window, calls), exec, context, out),
        Node::Sort { input, keys } => sorts::sort(input, keys, most, exec, context, out),
        Node::Distinct { input, keys } => {
            sets::distinct(input, keys.as_deref(), &mut HashSet::new(), exec, context, out)
        }
        Node::Without { left, right, is_except, is_all } => {
            let mut counts = sets::counted(right, exec, context)?;
            sets::without(left, &mut counts, (*is_except, *is_all), exec, context, out)
        }
        Node::Kept { id, input, .. } => sets::kept(*id, input, exec, context, out),
        Node::Recursive { id, first, step, is_all } => sets::recursive(*id, (first, step), *is_all, exec, context, out),
        Node::Working { id, .. } => {
            let rows = exec.shared.results().working.borrow().get(id).cloned().unwrap_or_default();
            pushed(&*rows, exec, out)
        }
        Node::Limit { input, limit, offset } => {
            let mut left = Left::of((limit.as_ref(), offset.as_ref()), exec, context)?;
            limited(input, &mut left, exec, context, out)
        }
        Node::Append(inputs) => appended(inputs, &mut 0, exec, context, out),
    }
}

/// Pushes rows of expressions over no row.
#[inline(never)]
fn written(
    rows: &[Vec<Expr>],
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut arena = exec.take_arena();
    for row in rows {
        if projected(row, &[], exec, &context.with_arena(&arena), out)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
        arena.reset();
    }
    exec.give_arena(arena);
    Ok(Flow::More)
}

/// Pushes the rows of the inputs, one after the other, from the one at this position on.
fn appended(
    inputs: &[Node],
    at: &mut usize,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    while let Some(input) = inputs.get(*at) {
        if run(input, exec, context, out)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
        *at += 1;
    }
    Ok(Flow::More)
}

/// Pushes the integers of a series, from the one on that it has come to, which is noted.
#[inline(never)]
fn series(
    parts: &[Expr; 3],
    come_to: &mut Option<i128>,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut values = [0; 3];
    for (value, part) in values.iter_mut().zip(parts) {
        let Datum::Int(known) = part.eval(&[], context)? else { return Ok(Flow::More) };
        *value = known;
    }
    let [first, last, step] = values;
    let Ok(mut at) = i64::try_from(come_to.unwrap_or(first.into())) else { return Ok(Flow::More) };
    if step == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero").into());
    }
    while if step > 0 { at <= last } else { at >= last } {
        exec.tick()?;
        if out(exec, &[Datum::Int(at)])? == Flow::Enough {
            *come_to = Some(i128::from(at) + i128::from(step));
            return Ok(Flow::Enough);
        }
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(Flow::More)
}

/// Pushes rows that are kept.
fn pushed<'r>(
    rows: impl IntoIterator<Item = &'r Vec<OwnedDatum>>,
    exec: &mut Exec<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    for row in rows {
        exec.tick()?;
        let row: Vec<_> = row.iter().map(OwnedDatum::get).collect();
        if out(exec, &row)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}

fn owned(row: &[Datum<'_>]) -> Vec<OwnedDatum> {
    row.iter().map(|datum| datum.owned()).collect()
}

/// Pushes a row of expressions over another row.
fn projected<'a>(
    columns: &'a [Expr],
    row: &[Datum<'a>],
    exec: &mut Exec<'_>,
    context: &Context<'a>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    let mut values = bumpalo::collections::Vec::with_capacity_in(columns.len(), context.arena);
    for column in columns {
        values.push(column.eval(row, context)?);
    }
    out(exec, &values)
}

/// How many rows a limit still lets through, and how many it leaves out before.
struct Left {
    wanted: u64,
    skipped: u64,
}

impl Left {
    fn of(
        (limit, offset): (Option<&Expr>, Option<&Expr>),
        exec: &Exec<'_>,
        context: &Context<'_>,
    ) -> Result<Self, Failure> {
        let arena = exec.take_arena();
        let inner = context.with_arena(&arena);
        let count = |expr: Option<&Expr>, state, name: &str| {
            let Some(Datum::Int(count)) = expr.map(|expr| expr.eval(&[], &inner)).transpose()? else { return Ok(None) };
            let negative = || SqlError::new(state, format!("{name} must not be negative"));
            u64::try_from(count).map(Some).map_err(|_| negative())
        };
        let wanted = count(limit, SqlState::INVALID_ROW_COUNT_IN_LIMIT, "LIMIT")?.unwrap_or(u64::MAX);
        let skipped = count(offset, SqlState::INVALID_ROW_COUNT_IN_OFFSET, "OFFSET")?.unwrap_or(0);
        exec.give_arena(arena);
        Ok(Self { wanted, skipped })
    }
}

#[inline(never)]
fn limited(
    input: &Node,
    left: &mut Left,
    exec: &mut Exec<'_>,
    context: &Context<'_>,
    out: &mut Sink<'_>,
) -> Result<Flow, Failure> {
    if left.wanted == 0 {
        return Ok(Flow::More);
    }
    let most = usize::try_from(left.wanted.saturating_add(left.skipped)).unwrap_or(usize::MAX);
    let mut outer_flow = Flow::More;
    let flow = first_of(input, most, exec, context, &mut |exec, row| {
        if left.skipped > 0 {
            left.skipped -= 1;
            return Ok(Flow::More);
        }
        left.wanted -= 1;
        outer_flow = out(exec, row)?;
        Ok(if left.wanted == 0 { Flow::Enough } else { outer_flow })
    })?;
    Ok(if left.wanted == 0 { outer_flow } else { flow })
}
