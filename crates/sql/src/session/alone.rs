//! Transactions of statements that the client does not hold: they are run again until they commit.
//!
//! Queries read the present first, and are validated. Where that conflicts, or the answer is so long that its rows are given while the query runs, they are run again on a snapshot
//! that is as new as their beginning: it never conflicts, however many others write and however slowly the client reads.

use std::cell::Cell;

use polychron_engine::{Error, Interactive, Mode, drive};

use super::modes::View;
use super::{AT_HOME, Ended, Kept, Session};
use crate::context::{Now, now};
use crate::datum::Datum;
use crate::error::SqlError;
use crate::exec::foreign_keys::run_deferred;
use crate::exec::futures;
use crate::explain::Conflicts;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::resident;
use crate::rows::Rows;
use crate::statement::{Planned, answer, answer_into};
use crate::streams::Stream;
use crate::text::Zone;

/// Whether a transaction goes on with a snapshot.
#[derive(Debug)]
struct Moves {
    /// It reads the present, and a snapshot would do.
    may: bool,
    /// It is to go on with one.
    is_due: Cell<bool>,
}

impl Moves {
    fn of<W: Interactive>(may: bool, worker: &W) -> Self {
        Self { may: may && worker.keeps_readers(Mode::Snapshot), is_due: Cell::new(false) }
    }

    /// Whether an attempt is not worth its while.
    fn ends_attempt(&self) -> bool {
        self.may && self.is_due.get()
    }
}

impl<W: Interactive + 'static> Session<W> {
    /// What a transaction of these plans is to read that the client does not hold.
    fn view_alone(&self, mut plans: impl Iterator<Item = impl std::ops::Deref<Target = Plan>>) -> View {
        match self.view_of(self.reads_only, false) {
            View::Recent if plans.all(|plan| plan.changes().is_none()) => View::Recent,
            _ => View::Present,
        }
    }

    /// Runs plans in a transaction of their own, until it commits. What they have answered is told also where a later one of them has failed: `last` is the
    /// error of a statement behind them that cannot be run.
    pub(crate) fn run_all(
        &mut self,
        plans: &[Planned<'_>],
        last: Option<&SqlError>,
        zone: &Zone,
        answered: &mut dyn FnMut(Outcome),
    ) -> Result<(), SqlError> {
        if self.is_planned() {
            return self.run_all_whole(plans, last, zone, answered);
        }
        resident::maintain();
        let (now, mut outcomes) = (Now::At(now()), Vec::new());
        let drawn = self.drawn.clone();
        let mut view = self.view_alone(plans.iter().map(|(plan, _)| *plan));
        let reads = plans.iter().all(|(plan, _)| matches!(plan, Plan::Query { .. }));
        let mut conflicts = Conflicts::of(plans.iter().map(|(plan, _)| *plan));
        let ended = loop {
            let mode = self.mode_for(view)?;
            let Self { worker, slot, .. } = self;
            let (worker, activity) = (worker.as_deref_mut().expect(AT_HOME), &slot.activity);
            let moves = Moves::of(reads && view == View::Present, &*worker);
            let mut run = |transaction: &mut W::Transaction<'_>| {
                if moves.ends_attempt() {
                    return Err(Ended::Engine(Error::Conflict));
                }
                outcomes.clear();
                drawn.begin();
                for planned in plans {
                    outcomes.push(answer(*planned, transaction, zone, now)?);
                }
                if last.is_none() {
                    let ran = run_deferred(drawn.take_deferred(), transaction, (zone, now));
                    // The last statement is not answered where the transaction fails behind it.
                    ran.and_then(|()| Ok(drawn.reserve()?)).inspect_err(|_| drop(outcomes.pop()))?;
                }
                last.map_or(Ok(()), |error| Err(Ended::Sql(error.clone())))
            };
            let defers = matches!(plans, [(plan, _)] if last.is_none() && futures::of_plan(plan).is_some());
            let mut note = |abort: &_| {
                conflicts.note(abort, activity);
                moves.is_due.set(true);
            };
            drawn.locks.set_leaving(true);
            let attempt = || drive::transact_watched(worker, mode, &mut run, &mut note);
            let ended = futures::deferring(defers, attempt, Ended::engine);
            match Self::has_waited(&drawn) {
                Ok(false) => {}
                Ok(true) => continue,
                Err(error) => break Err(Ended::Sql(error)),
            }
            if ended.is_err() && moves.ends_attempt() {
                view = View::Fresh;
                continue;
            }
            break ended;
        };
        let ticket = self.worker()?.take_ticket();
        match self.answers.give(ticket, ended) {
            Ok(()) => drawn.outbox.publish(),
            Err(Ended::Sql(error)) => {
                outcomes.into_iter().for_each(answered);
                return Err(error);
            }
            Err(Ended::Engine(error)) => return Err(SqlError::of_engine(error)),
        }
        conflicts.tell(plans.iter().map(|(plan, _)| *plan), &mut outcomes);
        outcomes.into_iter().for_each(answered);
        Ok(())
    }

    /// Runs a plan in a transaction of its own, until that commits, and puts its answer into `rows`. Of a long one the rows go to `stream`.
    pub(super) fn run_alone(
        &mut self,
        (plan, values): Kept<'_>,
        zone: &Zone,
        rows: &mut Rows,
        mut stream: Option<&mut Stream<'_>>,
    ) -> Result<(), SqlError> {
        resident::maintain();
        let asked = Cell::new(None);
        let now = Now::WhenAsked(&asked);
        let mut view = self.view_alone(std::iter::once(&**plan));
        let mut conflicts = Conflicts::of(std::iter::once(&**plan));
        let ended = loop {
            let mode = self.mode_for(view)?;
            let Self { worker, drawn, scratch, slot, .. } = self;
            let (worker, activity) = (worker.as_deref_mut().expect(AT_HOME), &slot.activity);
            let moves = Moves::of(view == View::Present && matches!(**plan, Plan::Query { .. }), &*worker);
            if let Some(stream) = &mut stream {
                stream.gives(!moves.may);
            }
            let mut run = |transaction: &mut W::Transaction<'_>| {
                if moves.ends_attempt() {
                    return Err(Ended::Engine(Error::Conflict));
                }
                drawn.begin();
                answer_into(
                    (plan, values),
                    transaction,
                    zone,
                    now,
                    (&mut *rows, &mut *scratch, stream.as_deref_mut()),
                )?;
                run_deferred(drawn.take_deferred(), transaction, (zone, now))?;
                drawn.reserve().map_err(Ended::Sql)
            };
            let mut note = |abort: &_| {
                conflicts.note(abort, activity);
                moves.is_due.set(true);
            };
            drawn.locks.set_leaving(true);
            let attempt = || drive::transact_watched(worker, mode, &mut run, &mut note);
            let ended = futures::deferring(futures::of_plan(plan).is_some(), attempt, Ended::engine);
            match Self::has_waited(drawn) {
                Ok(false) => {}
                Ok(true) => continue,
                Err(error) => break Err(Ended::Sql(error)),
            }
            let is_long = stream.as_ref().is_some_and(|stream| stream.is_refused());
            if ended.is_err() && moves.may && (moves.is_due.get() || is_long) {
                view = View::Fresh;
                continue;
            }
            break ended;
        };
        let Self { answers, .. } = self;
        let worker = self.worker.as_deref_mut().expect(AT_HOME);
        let ended = if answers.is_empty() { ended } else { answers.give(worker.take_ticket(), ended) };
        ended.map_err(|ended| match ended {
            Ended::Sql(error) => error,
            Ended::Engine(error) => SqlError::of_engine(error),
        })?;
        self.drawn.outbox.publish();
        conflicts.lines(plan).iter().for_each(|line| rows.push(&[Datum::Text(line)]));
        Ok(())
    }
}
