//! A cursor: the rows of a query as far as they were wanted, and where the client is among them.
//!
//! The query is read on when more rows are wanted ([`Query`]). Rows that the client has passed are forgotten, unless it may go back to them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use polychron_engine::Transaction;

use super::{Direction, Way};
use crate::context::Now;
use crate::datum::OwnedDatum;
use crate::error::{SqlError, SqlState};
use crate::exec::paused::Paused;
use crate::exec::{Failure, Flow, WORK_MEMORY};
use crate::plan::{Node, Plan};
use crate::session::Sum;
use crate::statement::go_on;
use crate::text::Zone;

/// What rows may take that a client has passed, where it has not said that it goes back to them.
const HISTORY: usize = 16 << 20;

/// How many rows are read before passed ones are forgotten, and how many bytes of them.
pub(crate) const AT_ONCE: usize = 1024;
const MUCH: usize = 1 << 20;

/// Where the rows of a cursor come from.
pub(crate) struct Query {
    pub(crate) plan: Arc<Plan>,
    pub(crate) values: Vec<OwnedDatum>,
    /// `None`: all of them were read.
    paused: Option<Paused>,
}

impl std::fmt::Debug for Query {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Query").field("values", &self.values).finish_non_exhaustive()
    }
}

/// The rows of a query, and where the client is.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// `None`: it is a query no longer, and has all rows that it will have.
    query: Option<Query>,
    /// The rows that are kept, behind so many that are forgotten.
    rows: VecDeque<Vec<OwnedDatum>>,
    forgotten: usize,
    /// What the rows take.
    bytes: usize,
    /// How many rows the client has asked for in all, and what stands for those of them that there are.
    asked: usize,
    seen: usize,
    sum: Sum,
    /// What those of them take that are kept.
    seen_bytes: usize,
    /// 0 is in front of the first row, and one more than there are rows behind the last one.
    position: usize,
    way: Way,
    /// A FETCH has failed: it answers no more.
    has_failed: bool,
}

fn bytes(row: &[OwnedDatum]) -> usize {
    size_of_val(row) + row.iter().map(OwnedDatum::bytes).sum::<usize>() + size_of::<Vec<OwnedDatum>>()
}

/// The error of rows for which there is no room.
pub(crate) fn too_much() -> SqlError {
    SqlError::out_of_memory(format!("The cursors and portals of a session take at most {WORK_MEMORY} bytes."))
}

fn node(plan: &Plan) -> Result<&Node, SqlError> {
    if let Plan::Query { node, .. } = plan { Ok(node) } else { Err(SqlError::internal("a cursor is of a query")) }
}

impl Cursor {
    /// In front of the first row of a query. `sum` has nothing yet.
    pub(crate) fn of_query(
        (plan, values): (&Arc<Plan>, Vec<OwnedDatum>),
        way: Way,
        sum: Sum,
    ) -> Result<Self, SqlError> {
        let paused = Some(Paused::new(node(plan)?));
        let query = Query { plan: plan.clone(), values, paused };
        Ok(Self { query: Some(query), ..Self::of_rows(Vec::new(), way, sum) })
    }

    /// In front of the first one of these rows.
    pub(crate) fn of_rows(rows: Vec<Vec<OwnedDatum>>, way: Way, sum: Sum) -> Self {
        let taken = rows.iter().map(|row| bytes(row)).sum();
        Self {
            query: None,
            rows: rows.into(),
            forgotten: 0,
            bytes: taken,
            asked: 0,
            seen: 0,
            sum,
            seen_bytes: 0,
            position: 0,
            way,
            has_failed: false,
        }
    }

    /// The same query from its beginning, for a transaction that is run again.
    pub(crate) fn again(&self, sum: Sum) -> Result<Option<Self>, SqlError> {
        let Some(query) = &self.query else { return Ok(None) };
        Self::of_query((&query.plan, query.values.clone()), Way::Forward, sum).map(Some)
    }

    /// What it keeps, and what its query does.
    pub(crate) fn bytes(&self) -> usize {
        let paused = self.query.as_ref().and_then(|query| query.paused.as_ref());
        self.bytes + paused.map_or(0, Paused::bytes)
    }

    /// How many of its rows are known, and whether these are all.
    pub(crate) fn known(&self) -> usize {
        self.forgotten + self.rows.len()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.query.as_ref().is_none_or(|query| query.paused.is_none())
    }

    /// Whether it can read more.
    pub(crate) fn reads(&self) -> bool {
        !self.is_whole() && !self.has_failed
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// How many rows the client has asked for, and what stands for those that it has got.
    pub(crate) fn seen(&self) -> (usize, u64) {
        (self.asked, self.sum.clone().finish(self.seen as u64, &[]))
    }

    /// Its transaction ends, and it does not: its rows are known.
    pub(crate) fn outlive(&mut self) {
        self.query = None;
    }

    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Reads more rows, about so many unless they are long.
    pub(crate) fn read<T: Transaction>(
        &mut self,
        wanted: usize,
        room: usize,
        transaction: &mut T,
        zone: &Zone,
        now: Now<'_>,
    ) -> Result<(), Failure> {
        let Some(Query { plan, values, paused: Some(paused) }) = &mut self.query else { return Ok(()) };
        let values: Vec<_> = values.iter().map(OwnedDatum::get).collect();
        let before = self.bytes;
        let (rows, taken) = (&mut self.rows, &mut self.bytes);
        go_on((plan, node(plan)?, &values), paused, wanted, (transaction, zone, now), &mut |row| {
            let row: Vec<_> = row.iter().map(|value| value.owned()).collect();
            *taken += bytes(&row);
            rows.push_back(row);
            match *taken {
                taken if taken > room => Err(too_much()),
                taken if taken - before > MUCH => Ok(Flow::Enough),
                _ => Ok(Flow::More),
            }
        })?;
        let (is_done, kept) = (paused.is_done(), paused.bytes());
        if is_done {
            self.query.iter_mut().for_each(|query| query.paused = None);
        }
        if self.bytes.saturating_add(kept) > room { Err(too_much().into()) } else { Ok(()) }
    }

    /// The client has asked for so many rows in all, as far as they are known.
    pub(crate) fn see(&mut self, asked: usize) {
        self.asked = self.asked.max(asked);
        let end = self.asked.min(self.known());
        for number in self.seen..end {
            let row = &self.rows[number - self.forgotten];
            row.iter().for_each(|value| self.sum.add(value.get()));
            self.seen_bytes += bytes(row);
        }
        self.seen = self.seen.max(end);
    }

    /// Forgets the first so many rows, which the client has seen, if it does not go back to them.
    pub(crate) fn forget(&mut self, first: usize) {
        match self.way {
            Way::Both => return,
            Way::Forward => {}
            Way::BackWhileKept if self.seen_bytes <= HISTORY => return,
            Way::BackWhileKept => self.way = Way::Forward,
        }
        let count = first.min(self.seen).saturating_sub(self.forgotten);
        for row in self.rows.drain(..count) {
            let taken = bytes(&row);
            self.bytes = self.bytes.saturating_sub(taken);
            self.seen_bytes = self.seen_bytes.saturating_sub(taken);
        }
        self.forgotten += count;
    }

    /// The transaction was run again: rows that the client has not seen are those of the new one.
    pub(crate) fn go_on_as(&mut self, mut new: Self) {
        self.rows.truncate(self.seen.saturating_sub(self.forgotten));
        new.way = Way::Forward;
        new.forget(self.seen);
        self.rows.append(&mut new.rows);
        self.query = new.query;
        self.bytes = self.rows.iter().map(|row| bytes(row)).sum();
    }

    /// How many rows must be known to go there, and how many of the first ones are passed and need not be kept.
    pub(crate) fn needs(&self, direction: Direction, is_move: bool) -> (usize, usize) {
        let all = usize::MAX;
        let far = |count: i64| usize::try_from(count).unwrap_or(if count < 0 { 0 } else { all });
        let until = match direction {
            Direction::Forward(count) | Direction::Relative(count) => self.position.saturating_add(far(count)),
            Direction::ForwardAll => all,
            Direction::BackwardAll => 0,
            Direction::Absolute(number) if number < 0 => all,
            Direction::Absolute(number) => far(number),
        };
        let is_kept = !is_move && matches!(direction, Direction::Forward(_) | Direction::ForwardAll);
        // Behind the end lies the last row.
        let passed = if is_kept { self.position } else { until.saturating_sub(1) };
        (until, passed)
    }

    /// That it may go there.
    pub(crate) fn check(&self, direction: Direction, is_move: bool, name: &str) -> Result<(), SqlError> {
        if self.has_failed {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
        }
        let is_backward = match direction {
            // The row is gone back to, unless nobody wants to see it.
            Direction::Forward(0) | Direction::Relative(0) => self.is_on_row() && !is_move,
            Direction::Forward(count) | Direction::Relative(count) => count < 0,
            Direction::ForwardAll => false,
            Direction::BackwardAll => true,
            // The end is gone to first.
            Direction::Absolute(number) if number < 0 => true,
            Direction::Absolute(number) => {
                let wanted = usize::try_from(number).unwrap_or(usize::MAX);
                wanted < self.position || wanted == self.position && self.is_on_row()
            }
        };
        if !is_backward || self.way != Way::Forward {
            return Ok(());
        }
        let error = SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward");
        Err(error.with_hint("Declare it with SCROLL option to enable backward scan."))
    }

    fn is_on_row(&self) -> bool {
        (1..=self.known()).contains(&self.position)
    }

    /// Moves, and answers with the numbers of the rows that were passed, from 1, and whether the last one comes first. What it needs is known.
    pub(crate) fn go(&mut self, direction: Direction) -> (Range<usize>, bool) {
        let (last, here) = (self.known(), self.position);
        let at = |position: usize| if (1..=last).contains(&position) { position..position + 1 } else { 0..0 };
        let moved = |distance: i64| {
            let by = usize::try_from(distance.unsigned_abs()).unwrap_or(usize::MAX);
            if distance < 0 { here.saturating_sub(by) } else { here.saturating_add(by).min(last + 1) }
        };
        let (to, passed, is_backward) = match direction {
            Direction::Forward(0) | Direction::Relative(0) => (here, at(here), false),
            Direction::Forward(count) if count < 0 => {
                let to = moved(count);
                (to, to.max(1)..here.min(last + 1).max(to.max(1)), true)
            }
            Direction::BackwardAll => (0, 1..here.min(last + 1).max(1), true),
            Direction::Forward(count) => {
                let to = moved(count);
                (to, here + 1..(to.min(last) + 1).max(here + 1), false)
            }
            Direction::ForwardAll => (last + 1, here + 1..(last + 1).max(here + 1), false),
            Direction::Absolute(number) => {
                let by = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
                let to = if number < 0 { (last + 1).saturating_sub(by) } else { by.min(last + 1) };
                (to, at(to), false)
            }
            Direction::Relative(count) => {
                let to = moved(count);
                (to, at(to), false)
            }
        };
        self.position = to;
        (passed, is_backward)
    }

    /// The row of this number, from 1.
    pub(crate) fn row(&self, number: usize) -> &[OwnedDatum] {
        number.checked_sub(self.forgotten + 1).and_then(|at| self.rows.get(at)).map_or(&[], Vec::as_slice)
    }
}
