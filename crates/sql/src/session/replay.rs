//! A held transaction that conflicts is run again.
//!
//! The session has kept the statements, and a checksum of each answer. After a conflict it runs them in a new transaction of the engine. Where each answers
//! what it has answered, the client cannot tell the two transactions apart, and goes on with the new one; otherwise the conflict is told. Sequences and volatile functions give
//! again what they gave. A cursor goes as far as it had come.

use polychron_base::TableId;
use polychron_engine::mutations::left_out;
use polychron_engine::open::Open;
use polychron_engine::{Error, Interactive, Operations, limits};
use polychron_sync::Backoff;

use super::cursors::Cursors;
use super::script::{Item, Script};
use super::{HERE, Held, Session};
use crate::context::Now;
use crate::datum::OwnedDatum;
use crate::error::SqlError;
use crate::exec::Failure;
use crate::resident::Resident;
use crate::statement::answer_sum;
use crate::steps::Step;
use crate::tape::lend;
use crate::text::Zone;

/// How often a transaction is run again.
const REPLAYS: usize = 20;

/// Whether the statement names a table or an index that the engine's transaction does not see: others have made it since that began.
fn is_outdated(failure: &Failure) -> bool {
    let is_unknown = matches!(failure, Failure::Engine(Error::NoSuchTable(_) | Error::NoSuchIndex(_)));
    is_unknown && !left_out(Step::RenewOutdated)
}

impl<W: Interactive + 'static> Session<W> {
    /// A statement of the open transaction has failed. Where that came of a conflict and the transaction can be run again without the client's notice, it was, up to this
    /// statement.
    ///
    /// # Errors
    /// What the statement fails with.
    #[cold]
    pub(super) fn recover(&mut self, failure: Failure, zone: &Zone) -> Result<(), Failure> {
        let Some(block) = &mut self.block else { return Err(failure) };
        if matches!(failure, Failure::Engine(_)) && limits::check().is_err() {
            return Err(failure);
        }
        // Where a transaction that began just now does not have them either, they are gone.
        let is_outdated = is_outdated(&failure) && !std::mem::replace(&mut block.was_outdated, true);
        let is_lost = is_outdated || matches!(&failure, Failure::Engine(error) if error.is_conflict());
        if !is_lost && block.is_explicit && !block.savepoints.is_empty() {
            return Err(failure);
        }
        // The rollback says whether the error came of reads that never were.
        let ended = block.transaction.take().and_then(|transaction| transaction.take().ok());
        if (ended.is_none_or(Open::rollback) || left_out(Step::DoubtErrors)) && !is_lost {
            return Err(failure);
        }
        let conflict = if is_outdated { Error::Conflict } else { self.conflict() };
        if self.begin_again(zone) { Ok(()) } else { Err(limits::check().err().unwrap_or(conflict).into()) }
    }

    /// Runs the open transaction again, whose transaction of the engine has conflicted and ended: whether it has answered the same.
    pub(super) fn begin_again(&mut self, zone: &Zone) -> bool {
        self.note_conflict();
        let has_helped = self.run_again(zone);
        self.slot.activity.note_replay(has_helped);
        has_helped
    }

    fn note_conflict(&mut self) {
        let attempt = self.block.as_ref().map_or(1, |block| block.replays as u64 + 1);
        if let Some(abort) = self.worker_at_home().and_then(|worker| worker.last_abort()) {
            self.slot.activity.note_conflict(&abort, attempt);
        }
    }

    fn run_again(&mut self, zone: &Zone) -> bool {
        if self.block.as_ref().is_none_or(|block| !block.can_run_again(self.is_replayed)) {
            return false;
        }
        let mut backoff = Backoff::new();
        loop {
            let waits_for_itself = self.worker_at_home().is_none_or(|worker| worker.waits_for_itself().is_some());
            match &mut self.block {
                // What this thread itself has committed between two attempts, it may commit between the next two.
                Some(block) if block.replays > 0 && waits_for_itself => return false,
                Some(block) if block.replays < REPLAYS && limits::check().is_ok() => block.replays += 1,
                _ => return false,
            }
            backoff.wait();
            match self.do_again(zone, Step::CompareAnswers) {
                Ok(()) => return true,
                Err(Some(Failure::Engine(error))) if error.is_conflict() => self.note_conflict(),
                Err(_) => return false,
            }
        }
    }

    /// Begins the open transaction again where one of these tables was shown since the engine's transaction began: it would not see the rows that the definition has put there.
    ///
    /// # Errors
    /// It cannot be run again, or would answer something else.
    pub(crate) fn renew(&mut self, tables: &[TableId], zone: &Zone) -> Result<(), SqlError> {
        if self.block.as_ref().is_none_or(|block| block.transaction.is_none()) {
            return Ok(());
        }
        let is_behind = self.versions.get() != self.began && self.versions.are_newer(tables, self.began);
        if !is_behind || left_out(Step::RenewBehind) {
            return Ok(());
        }
        if let Some(block) = &mut self.block
            && let Some(Ok(transaction)) = block.transaction.take().map(Resident::take)
        {
            transaction.rollback();
        }
        if self.begin_again(zone) {
            return Ok(());
        }
        let detail = "A table of the statement was defined or altered since the transaction began.";
        Err(self.lose(SqlError::of_engine(Error::Conflict).with_detail(detail)))
    }

    /// Begins the engine's transaction, and does again what the open transaction has done. `compare` is the step that tests leave out.
    ///
    /// # Errors
    /// `None`: an answer differs. Otherwise what has failed. The engine's transaction has ended then.
    pub(super) fn do_again(&mut self, zone: &Zone, compare: Step) -> Result<(), Option<Failure>> {
        let Some(view) = self.block.as_ref().map(|block| block.view) else { return Ok(()) };
        let mut held = self.begin_held(view).map_err(Some)?;
        let Some(block) = &mut self.block else { return Ok(()) };
        self.drawn.repeat();
        block.tape.repeat();
        let now = Now::At(block.now);
        let mut savepoints = block.savepoints.iter_mut().peekable();
        let mut cursors = Cursors::default();
        for (number, item) in block.script.items.iter().enumerate() {
            while let Some((_, savepoint, _)) = savepoints.next_if(|(_, _, mark)| mark.items <= number) {
                *savepoint = held.with(|transaction| transaction.savepoint()).expect(HERE);
            }
            let again = Again { script: &block.script, zone, now, cursors: &mut cursors };
            match lend(&mut block.tape, || again.run(item, &mut held)) {
                Ok(is_same) if is_same || left_out(compare) => {}
                ended => return Err(differs(held, ended)),
            }
        }
        for (_, savepoint, _) in savepoints {
            *savepoint = held.with(|transaction| transaction.savepoint()).expect(HERE);
        }
        let go_on = || cursors.put_back(&mut self.portals, &block.script, &mut held, (zone, now));
        match lend(&mut block.tape, go_on) {
            Ok(is_same) if is_same || left_out(compare) => {}
            ended => return Err(differs(held, ended)),
        }
        block.transaction = Some(held);
        Ok(())
    }
}

/// What a transaction fails with that is run again: `None` where it answers something else.
fn differs<W: Interactive>(held: Resident<Held<W>>, ended: Result<bool, Failure>) -> Option<Failure> {
    let failure = match ended {
        Ok(_) | Err(Failure::Sql(_)) => None,
        Err(failure) => Some(failure),
    };
    // An answer that comes of reads that never were tells nothing.
    let is_consistent = held.take().is_ok_and(Open::rollback);
    if failure.is_none() && !is_consistent { Some(Error::Conflict.into()) } else { failure }
}

/// What items of a script are run again with.
struct Again<'a> {
    script: &'a Script,
    zone: &'a Zone,
    now: Now<'a>,
    cursors: &'a mut Cursors,
}

impl Again<'_> {
    /// Whether it answers what it has answered.
    fn run<W: Interactive>(self, item: &Item, held: &mut Resident<Held<W>>) -> Result<bool, Failure> {
        let Self { script, zone, now, cursors } = self;
        let sum = script.begin_sum();
        match item {
            Item::Statement { plan, values, answer } => {
                let values: Vec<_> = values.iter().map(OwnedDatum::get).collect();
                let run = |transaction: &mut _| answer_sum((plan, &values), transaction, zone, now, sum);
                Ok(held.with(run).expect(HERE)? == *answer)
            }
            Item::Open { portal, plan, values } => {
                cursors.open(*portal, (plan, values), sum)?;
                Ok(true)
            }
            Item::Fetch { portal, asked, answer } => {
                Ok(cursors.fetch(*portal, *asked, held, (zone, now))? == Some(*answer))
            }
            Item::Gather { portal } => cursors.gather(*portal, held, (zone, now)).map(|()| true),
            Item::Close { portal } => {
                cursors.close(*portal);
                Ok(true)
            }
        }
    }
}
