//! Transactions of a protocol that plans: they are never open, but are gathered, and run whole.
//!
//! What runs belongs to the execution, not to the thread of the session: it may be another thread's, and may come several times before it counts. Each run is given
//! the same time, the same numbers of sequences and the same volatile values. The session waits meanwhile, so that one thread at a time has what is the session's.

use std::cell::Cell;
use std::sync::Arc;

use bumpalo::Bump;
use polychron_engine::limits::{self, Carried};
use polychron_engine::{Declare, Error, Interactive, Procedure, Transaction};

use super::{AT_HOME, Ended, Kept, Session};
use crate::context::Now;
use crate::datum::{Datum, OwnedDatum};
use crate::declared::{Declaring, Keys};
use crate::error::SqlError;
use crate::exec::foreign_keys::run_deferred;
use crate::exec::{WORK_MEMORY, bytes_of};
use crate::explain::Conflicts;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::rows::Rows;
use crate::sequences::Drawn;
use crate::statement::{Planned, Scratch, answer, answer_into};
use crate::tape::{Tape, lend};
use crate::text::Zone;

/// What becomes of the answer of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// The client gets it.
    Answer,
    Nothing,
    /// The client gets how many rows a new table has got.
    Filled,
    /// An error is told otherwise.
    Told(fn(SqlError) -> SqlError),
    /// It must have no row, or this is the error.
    IsEmpty(SqlError),
    /// It must have a row, or this is the error.
    IsFound(SqlError),
    /// The text that it begins with must be this; otherwise others have been there.
    Finds(Expected),
}

/// What the text must be that an answer begins with.
#[derive(Clone)]
pub(crate) struct Expected(pub(crate) Arc<IsExpected>);

type IsExpected = dyn Fn(Option<&str>) -> bool + Send + Sync;

impl std::fmt::Debug for Expected {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Expected").finish_non_exhaustive()
    }
}

impl Then {
    pub(super) fn judge(&self, ran: Result<Outcome, SqlError>) -> Result<Outcome, SqlError> {
        match self {
            Self::Told(told) => ran.map_err(told),
            Self::Filled => ran.map(|outcome| Outcome {
                tag: format!("SELECT {}", outcome.count),
                count: outcome.count,
                notices: outcome.notices,
                ..Outcome::default()
            }),
            Self::Finds(expected) if ran.as_ref().is_ok_and(|outcome| !(expected.0)(found(outcome))) => {
                Err(SqlError::of_engine(Error::Conflict))
            }
            Self::IsFound(error) if ran.as_ref().is_ok_and(|outcome| outcome.count == 0) => Err(error.clone()),
            Self::IsEmpty(error) if ran.as_ref().is_ok_and(|outcome| outcome.count > 0) => Err(error.clone()),
            _ => ran,
        }
    }
}

/// The text that an answer begins with.
fn found(outcome: &Outcome) -> Option<&str> {
    match outcome.rows.first()?.first()?.get() {
        Datum::Text(text) => Some(text),
        _ => None,
    }
}

/// A statement that waits until its transaction runs.
pub(super) struct Part {
    plan: Arc<Plan>,
    values: Vec<OwnedDatum>,
    then: Then,
}

/// What a transaction has come to.
#[derive(Default)]
pub(crate) struct Ran {
    /// What its statements have answered, up to the one that has failed.
    pub(crate) outcomes: Vec<Outcome>,
    /// How many statements have run to their ends.
    pub(crate) done: usize,
}

/// Statements as a procedure.
struct Statements<'s> {
    parts: &'s [(Planned<'s>, &'s Then)],
    /// What they fail with when they have run.
    last: Option<&'s SqlError>,
    /// Where the answer of a single one goes.
    into: Option<(&'s mut Rows, &'s mut Scratch)>,
    drawn: &'s Drawn,
    zone: &'s Zone,
    now: Option<i64>,
    tape: Tape,
    limits: Carried,
    keys: Keys,
    ran: Ran,
}

impl Statements<'_> {
    fn run_within<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Ended> {
        let Self { parts, last, into, drawn, zone, now, ran, .. } = self;
        limits::check()?;
        let asked = Cell::new(*now);
        let mut run = || -> Result<(), Ended> {
            let now = Now::WhenAsked(&asked);
            for (planned, then) in *parts {
                if let Some((rows, scratch)) = into {
                    answer_into(*planned, transaction, zone, now, (&mut **rows, &mut **scratch, None))?;
                    continue;
                }
                let outcome = match answer(*planned, transaction, zone, now) {
                    Err(crate::exec::Failure::Engine(error)) => return Err(Ended::Engine(error)),
                    Err(crate::exec::Failure::Sql(error)) => then.judge(Err(error)),
                    Ok(outcome) => then.judge(Ok(outcome)),
                };
                let outcome = outcome.map_err(Ended::Sql)?;
                if matches!(then, Then::Answer | Then::Filled) {
                    ran.outcomes.push(outcome);
                }
                ran.done += 1;
            }
            if let Some(error) = last {
                return Err(Ended::Sql(error.clone()));
            }
            let checked = run_deferred(drawn.take_postponed(), transaction, (zone, now))
                .and_then(|()| run_deferred(drawn.take_deferred(), transaction, (zone, now)))
                .and_then(|()| Ok(drawn.reserve()?));
            // The last statement is not answered where the transaction fails behind it.
            checked.inspect_err(|_| {
                ran.outcomes.pop();
                ran.done -= 1;
            })?;
            Ok(())
        };
        let ended = run();
        *now = asked.get();
        ended
    }
}

impl Procedure for Statements<'_> {
    type Output = ();
    type Error = Ended;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Ended> {
        self.ran = Ran::default();
        self.drawn.repeat();
        self.tape.repeat();
        let mut tape = std::mem::take(&mut self.tape);
        let limits = self.limits.clone();
        let ended = limits.hold(|| lend(&mut tape, || self.run_within(transaction)));
        self.tape = tape;
        ended
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.keys.declare(declaration);
    }
}

impl<W: Interactive + 'static> Session<W> {
    /// Whether transactions are planned, so that none can be held open.
    pub(crate) fn is_planned(&self) -> bool {
        self.drawn.is_planned()
    }

    /// Runs a plan in the open transaction, now or, where transactions are planned, when that runs: then there is no answer yet.
    pub(crate) fn put(
        &mut self,
        (plan, values): Kept<'_>,
        then: Then,
        zone: &Zone,
    ) -> Result<Option<Outcome>, SqlError> {
        if !self.is_planned() {
            let ran = self.run((plan, values), zone);
            return then.judge(ran).map(Some);
        }
        let Some(block) = &mut self.block else { return Err(SqlError::internal("no transaction is gathered")) };
        block.gathered_bytes += bytes_of(values) + size_of::<Part>();
        if block.gathered_bytes > WORK_MEMORY {
            let detail = format!("The values of a planned transaction take at most {WORK_MEMORY} bytes.");
            return Err(SqlError::out_of_memory(detail));
        }
        let values = values.iter().map(|value| value.owned()).collect();
        block.gathered.push(Part { plan: plan.clone(), values, then });
        Ok(None)
    }

    /// How many statements are gathered.
    pub(crate) fn gathered(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.gathered.len())
    }

    /// Runs what was gathered as one transaction. It fails with `last` at its end, if there is one.
    pub(crate) fn commit_gathered(&mut self, last: Option<&SqlError>, zone: &Zone) -> (Result<(), SqlError>, Ran) {
        let Some(block) = self.block.take() else {
            return (last.map_or(Ok(()), |error| Err(error.clone())), Ran::default());
        };
        let values: Vec<Vec<_>> =
            block.gathered.iter().map(|part| part.values.iter().map(OwnedDatum::get).collect()).collect();
        let parts = block.gathered.iter().zip(&values);
        let parts: Vec<_> = parts.map(|(part, values)| ((&*part.plan, &values[..]), &part.then)).collect();
        let (ended, ran) = self.run_statements((&parts, last), None, Some(block.now), zone);
        self.ended = Some((block.script, ended.is_ok()));
        (ended, ran)
    }

    /// Runs plans as one transaction, and tells what they have answered. It fails with `last` at its end, if there is one.
    pub(super) fn run_all_whole(
        &mut self,
        plans: &[Planned<'_>],
        last: Option<&SqlError>,
        zone: &Zone,
        answered: &mut dyn FnMut(Outcome),
    ) -> Result<(), SqlError> {
        let parts: Vec<_> = plans.iter().map(|planned| (*planned, &Then::Answer)).collect();
        let (ended, mut ran) = self.run_statements((&parts, last), None, None, zone);
        if ended.is_ok() {
            let plans = || plans.iter().map(|(plan, _)| *plan);
            Conflicts::of(plans()).tell(plans(), &mut ran.outcomes);
        }
        ran.outcomes.into_iter().for_each(answered);
        ended
    }

    /// Runs a plan as a transaction, and puts its answer into `rows`.
    pub(super) fn run_into_whole(
        &mut self,
        (plan, values): Kept<'_>,
        zone: &Zone,
        rows: &mut Rows,
    ) -> Result<(), SqlError> {
        let (ended, _) = self.run_statements((&[((&**plan, values), &Then::Answer)], None), Some(rows), None, zone);
        ended?;
        Conflicts::of(std::iter::once(&**plan)).lines(plan).iter().for_each(|line| rows.push(&[Datum::Text(line)]));
        Ok(())
    }

    fn run_statements(
        &mut self,
        (parts, last): (&[(Planned<'_>, &Then)], Option<&SqlError>),
        mut rows: Option<&mut Rows>,
        mut now: Option<i64>,
        zone: &Zone,
    ) -> (Result<(), SqlError>, Ran) {
        let mut tape = Tape::default();
        self.drawn.begin();
        loop {
            if let Err(error) = limits::check() {
                return (Err(SqlError::of_engine(error)), Ran::default());
            }
            self.drawn.repeat();
            let keys = self.declared(parts, &mut now, zone);
            if let Err(error) = self.worker() {
                return (Err(error), Ran::default());
            }
            let Self { worker, drawn, scratch, answers, .. } = self;
            let worker = worker.as_deref_mut().expect(AT_HOME);
            let mut procedure = Statements {
                parts,
                last,
                into: rows.as_deref_mut().map(|rows| (rows, scratch)),
                drawn,
                zone,
                now,
                tape,
                limits: limits::carried(),
                keys,
                ran: Ran::default(),
            };
            let ended = worker.execute(&mut procedure);
            let ticket = worker.take_ticket();
            let ended = answers.give(ticket, ended);
            now = procedure.now;
            tape = procedure.tape;
            let ran = procedure.ran;
            match ended {
                Ok(()) => {
                    drawn.outbox.publish();
                    return (Ok(()), ran);
                }
                Err(Ended::Engine(error)) => return (Err(SqlError::of_engine(error)), Ran::default()),
                // It ends: each time something is done that the transaction then finds done, or that fails.
                Err(Ended::Sql(error)) => match drawn.provide() {
                    Ok(true) => {}
                    Ok(false) => return (Err(error), ran),
                    Err(error) => return (Err(error), ran),
                },
            }
        }
    }

    /// What statements declare.
    fn declared(&self, parts: &[(Planned<'_>, &Then)], now: &mut Option<i64>, zone: &Zone) -> Keys {
        let (arena, asked) = (Bump::new(), Cell::new(*now));
        let mut declaring = Declaring::new(&arena, zone, Now::WhenAsked(&asked), &self.drawn);
        parts.iter().for_each(|((plan, values), _)| declaring.add(plan, values));
        let keys = declaring.finish();
        *now = asked.get();
        keys
    }
}
