//! The transactions of a connection.
//!
//! A text of statements alone runs as one transaction, again and again until it commits. Where the client holds a transaction open, between BEGIN and COMMIT, a conflict has
//! its statements run again (`replay`), and is the error `40001` where one of them answers something else. An open transaction has the worker for itself, which comes back when it has ended. It stays in the thread that has begun it
//! (`resident`): a connection may go to other threads, but answers nothing there until its transaction has ended, and where it is dropped the thread of the transaction
//! rolls that back.
//!
//! After an error, statements are refused until the transaction ends or returns to a savepoint. Without a savepoint it is rolled back with the error, and
//! then the rollback says whether what it had read was consistent: if not, the error came of reads that never were, and the conflict is answered in its place.
//! So a statement that fails leaves nothing of itself that another one could read: what comes next is ROLLBACK, or a savepoint from before it.

mod alone;
mod cursors;
mod ended;
mod modes;
mod parking;
mod replay;
mod script;
mod waiting;
mod whole;

use std::sync::{Arc, Mutex, PoisonError};

use polychron_base::TableId;
use polychron_base::clock::Duration;
use polychron_engine::mutations::left_out;
use polychron_engine::open::{Open, WorkerOwner};
use polychron_engine::redo::Answers;
use polychron_engine::{Error, Interactive, Mode, Operations, Savepoint, limits};

use crate::context::{Now, now};
use crate::control::Modes;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::exec::Failure;
use crate::gates::Slot;
use crate::outcome::Outcome;
use crate::parking::{Shortage, Workers};
use crate::plan::Plan;
use crate::portals::Portals;
use crate::resident::{self, Resident, now_ns};
use crate::rows::Rows;
use crate::sequences::Drawn;
use crate::settings::Saved;
use crate::statement::{Scratch, answer, answer_into};
use crate::steps::Step;
use crate::streams::Stream;
use crate::tape::{Tape, lend};
use crate::text::Zone;
use crate::versions::Versions;
use crate::watch::SessionState;

use ended::Ended;
use modes::View;
pub(crate) use parking::PARK_AFTER;
use parking::Parker;
pub use parking::{KeptBecause, Parking};
use script::Mark;
pub(crate) use script::Script;
pub(crate) use script::Sum;
pub(crate) use whole::{Expected, Then};

/// Where a transaction that ends leaves the worker.
struct Home<W> {
    worker: Mutex<Option<Box<W>>>,
    /// Where workers come from; dropped behind the worker.
    source: Box<dyn Workers<W>>,
}

struct Return<W>(Arc<Home<W>>);

impl<W> WorkerOwner<W> for Return<W> {
    fn take_back(self, worker: Box<W>) {
        *self.0.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
    }
}

type Held<W> = Open<'static, W, Return<W>>;

/// A transaction that is held open.
struct Block<W: Interactive + 'static> {
    /// `None`: it is rolled back, because of an error.
    transaction: Option<Resident<Held<W>>>,
    /// In the order in which they were set; a later one hides those of its name.
    savepoints: Vec<(String, Savepoint, Mark)>,
    /// Statements are refused.
    has_failed: bool,
    /// It began with BEGIN, and not with a statement of a text of several.
    is_explicit: bool,
    is_read_only: bool,
    /// It was begun at REPEATABLE READ.
    is_repeatable: bool,
    /// What the engine's transaction is to read.
    view: View,
    /// When it began.
    now: i64,
    script: Script,
    /// What volatile functions have given.
    tape: Tape,
    /// How often it was run again.
    replays: usize,
    /// What it has gathered, where transactions are planned, and what the values of that take.
    gathered: Vec<whole::Part>,
    gathered_bytes: usize,
    /// The latest statement has named what is newer than the engine's transaction, which was begun again.
    was_outdated: bool,
    /// When its latest statement has ended.
    rests_since: u64,
    /// When it is rolled back, if it hears nothing.
    ends_at: u64,
}

impl<W: Interactive + 'static> Block<W> {
    /// A statement has answered.
    fn note(&mut self, plan: &Arc<Plan>, values: &[Datum<'_>], answer: u64) {
        self.was_outdated = false;
        self.script.push(plan, values, answer);
    }
}

/// The worker of a connection, and its transaction.
pub(crate) struct Session<W: Interactive + 'static> {
    /// It is here, at home, or with the transaction.
    worker: Option<Box<W>>,
    /// Behind the worker.
    home: Arc<Home<W>>,
    parker: Arc<Parker<W>>,
    /// How long it waits for a worker.
    pub(crate) worker_wait: Duration,
    shortage: Arc<Shortage>,
    answers: Answers,
    versions: Arc<Versions>,
    /// The version of the catalog when the held transaction of the engine began, or before.
    began: u64,
    /// What the held transaction of the engine began as, and whether it may stay open where it has only read.
    mode: Mode,
    keeps_readers: bool,
    /// Whether the protocol has snapshots that hold nobody up.
    has_snapshots: bool,
    block: Option<Block<W>>,
    scratch: Scratch,
    /// What the latest transaction has defined that has ended, and whether it has committed.
    ended: Option<(Script, bool)>,
    drawn: Arc<Drawn>,
    /// Whether a transaction that conflicts is run again.
    pub(crate) is_replayed: bool,
    /// Whether transactions are read-only where nothing else is said.
    pub(crate) reads_only: bool,
    /// Whether read-only transactions read a snapshot, which may be a little older than they are.
    pub(crate) reads_recent: bool,
    /// How long its transactions hear nothing before they are parked; `None`: they are not.
    pub(crate) park_after: Option<Duration>,
    /// How long they hear nothing before they are rolled back.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) portals: Portals,
    /// How many cursors were declared, and portals bound.
    portal_count: u64,
    /// Portals with greater numbers have ended since this was forgotten last, with a transaction or by a return to a savepoint.
    undone_behind: Option<u64>,
    slot: Arc<Slot>,
}

/// A plan that may have to run again, and the values of its parameters.
pub(crate) type Kept<'p> = (&'p Arc<Plan>, &'p [Datum<'p>]);

/// Where the worker is while no transaction has it.
const AT_HOME: &str = "a transaction gives the worker back when it ends";

/// Where an open transaction is when a statement runs in it.
const HERE: &str = "`check_thread` has found the transaction here";

impl<W: Interactive + 'static> Session<W> {
    pub(crate) fn new(
        answers: Answers,
        source: Box<dyn Workers<W>>,
        slot: &Arc<Slot>,
        versions: Arc<Versions>,
        (shortage, worker_wait): (&Arc<Shortage>, Duration),
    ) -> Result<Self, SqlError> {
        let worker = shortage.take(worker_wait, &*source).map_err(SqlError::of_engine)?;
        let drawn = if worker.holds_transactions() { Drawn::default() } else { Drawn::planned() };
        let home = Arc::new(Home { worker: Mutex::default(), source });
        let parker = Parker::new(&home, slot, shortage);
        let (ended, drawn, scratch) = (None, Arc::new(drawn), Scratch::default());
        let (worker, is_replayed) = (Some(Box::new(worker)), true);
        let (portals, portal_count) = (Portals::default(), 0);
        let (park_after, idle_timeout) = (Some(PARK_AFTER), None);
        let (reads_only, reads_recent) = (false, false);
        Ok(Self {
            worker,
            home,
            parker,
            worker_wait,
            shortage: shortage.clone(),
            answers,
            versions,
            began: 0,
            mode: Mode::ReadWrite,
            keeps_readers: false,
            has_snapshots: false,
            block: None,
            scratch,
            ended,
            drawn,
            is_replayed,
            reads_only,
            reads_recent,
            park_after,
            idle_timeout,
            portals,
            portal_count,
            undone_behind: None,
            slot: slot.clone(),
        })
    }

    /// The worker, which no transaction has, if it was not given back.
    fn worker_at_home(&mut self) -> Option<&mut Box<W>> {
        if self.worker.is_none() {
            self.worker = self.home.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        self.worker.as_mut()
    }

    /// The worker, which no transaction has. One that was given back is replaced.
    fn worker(&mut self) -> Result<&mut Box<W>, SqlError> {
        if self.worker_at_home().is_none() {
            let taken = self.shortage.take(self.worker_wait, &*self.home.source);
            self.worker = Some(Box::new(taken.map_err(SqlError::of_engine)?));
        }
        Ok(self.worker.as_mut().expect(AT_HOME))
    }

    /// Whether statements can be answered in this thread.
    ///
    /// # Errors
    /// The open transaction is in another one.
    pub(crate) fn check_thread(&self) -> Result<(), SqlError> {
        let transaction = self.block.as_ref().and_then(|block| block.transaction.as_ref());
        if transaction.is_none_or(|transaction| transaction.is_here() || transaction.is_parked()) {
            return Ok(());
        }
        Err(SqlError::unsupported("a statement in another thread than that of its transaction"))
    }

    /// When the open transaction has begun.
    pub(crate) fn now(&self) -> Option<i64> {
        self.block.as_ref().map(|block| block.now)
    }

    /// What the connection knows of sequences.
    pub(crate) fn drawn(&self) -> &Arc<Drawn> {
        &self.drawn
    }

    /// Begins a transaction of the engine, which stays in this thread.
    fn begin_held(&mut self, view: View) -> Result<Resident<Held<W>>, Failure> {
        self.began = self.versions.get();
        let mode = self.mode_for(view)?;
        let worker = self.worker.take().expect(AT_HOME);
        (self.mode, self.keeps_readers) = (mode, worker.keeps_readers(mode));
        self.has_snapshots = worker.keeps_readers(Mode::Snapshot);
        let begun = Open::own(worker, Return(self.home.clone()), &self.answers, mode)?;
        Resident::new(begun, self.parker.clone())
            .map_err(|_| SqlError::unsupported("a transaction at the end of a thread").into())
    }

    /// Whether a transaction is open, or has failed and was not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.block.is_some()
    }

    /// What it does when no statement runs.
    #[inline]
    pub(crate) fn state(&self) -> SessionState {
        match &self.block {
            None => SessionState::Idle,
            Some(block) if block.has_failed => SessionState::InFailedTransaction,
            Some(_) => SessionState::InTransaction,
        }
    }

    /// Whether a transaction that spans statements has ended, and was not looked at.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether it began with BEGIN.
    pub(crate) fn is_explicit(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.is_explicit)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.has_failed)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.block.as_ref().map_or(self.reads_only, |block| block.is_read_only)
    }

    /// Begins a transaction. One that a text of statements has begun becomes an explicit one.
    pub(crate) fn begin(&mut self, modes: Modes, is_explicit: bool) -> Result<(), SqlError> {
        if let Some(block) = &mut self.block {
            block.is_explicit |= is_explicit;
            self.set(modes)?;
        } else {
            resident::maintain();
            let is_read_only = modes.is_read_only.unwrap_or(self.reads_only);
            let is_repeatable = modes.is_repeatable.unwrap_or(false);
            let view = self.view_of(is_read_only, is_repeatable);
            let transaction = if self.is_planned() { None } else { Some(self.begin_held(view).map_err(error_of)?) };
            self.block = Some(Block {
                transaction,
                is_repeatable,
                view,
                savepoints: Vec::new(),
                has_failed: false,
                is_explicit,
                is_read_only,
                now: now(),
                script: Script::default(),
                tape: Tape::default(),
                replays: 0,
                gathered: Vec::new(),
                gathered_bytes: 0,
                was_outdated: false,
                rests_since: now_ns(),
                ends_at: u64::MAX,
            });
            self.drawn.begin();
        }
        Ok(())
    }

    /// Commits the transaction, and tells whether it has: one that has failed is rolled back.
    pub(crate) fn commit(&mut self, zone: &Zone) -> Result<bool, SqlError> {
        if self.is_planned() {
            return self.commit_gathered(None, zone).0.map(|()| true);
        }
        let ended = loop {
            let Some(block) = &mut self.block else { return Ok(true) };
            let Some(transaction) = block.transaction.take().filter(|_| !block.has_failed) else { break Ok(false) };
            if let Err(error) = self.drawn.reserve() {
                drop(transaction);
                break Err(error);
            }
            let error = match transaction.take().map_err(|_| SqlError::internal(HERE))?.commit() {
                Ok(()) => break Ok(true),
                Err(error) => error,
            };
            if !error.is_conflict() || !self.begin_again(zone) {
                break Err(SqlError::of_engine(limits::check().err().unwrap_or(error)));
            }
            if let Err(error) = self.check_deferred(zone) {
                break Err(error);
            }
        };
        if matches!(ended, Ok(true)) {
            self.drawn.outbox.publish();
        }
        self.end_portals(matches!(ended, Ok(true)));
        self.ended = self.block.take().map(|block| (block.script, matches!(ended, Ok(true)))).or(self.ended.take());
        ended
    }

    /// Rolls the transaction back.
    pub(crate) fn roll_back(&mut self) {
        let Some(block) = self.block.take() else { return };
        self.end_portals(false);
        if let Some(Ok(transaction)) = block.transaction.map(Resident::take) {
            transaction.rollback();
        }
        self.ended = Some((block.script, false));
    }

    /// Runs a plan in the open transaction.
    pub(crate) fn run(&mut self, (plan, values): Kept<'_>, zone: &Zone) -> Result<Outcome, SqlError> {
        self.make_way_for(plan, zone)?;
        self.begin_statement();
        loop {
            let block = self.block.as_mut().expect("a transaction is open");
            let transaction = block.transaction.as_mut().expect("one that has failed runs nothing");
            let now = Now::At(block.now);
            let run = || transaction.with(|transaction| answer((plan, values), transaction, zone, now)).expect(HERE);
            match lend(&mut block.tape, run) {
                Ok(outcome) => {
                    let sum = block.script.sum_of(&outcome);
                    block.note(plan, values, sum);
                    return Ok(outcome);
                }
                Err(failure) => self.recover_or_wait(failure, zone).map_err(|failure| self.fail(failure))?,
            }
        }
    }

    /// Runs a plan in the open transaction, or else in one of its own, until that commits. Its answer is put into `rows`.
    /// Of a long one the rows go to `stream` while the plan runs.
    pub(crate) fn run_into(
        &mut self,
        (plan, values): Kept<'_>,
        zone: &Zone,
        rows: &mut Rows,
        mut stream: Option<&mut Stream<'_>>,
    ) -> Result<(), SqlError> {
        if self.is_planned() {
            return self.run_into_whole((plan, values), zone, rows);
        }
        if self.block.is_some() {
            self.make_way_for(plan, zone)?;
        }
        self.begin_statement();
        if let Some(stream) = &mut stream {
            stream.gives(!self.may_move_to_snapshot());
        }
        while let Some(block) = &mut self.block {
            let (now, scratch) = (Now::At(block.now), &mut self.scratch);
            let transaction = block.transaction.as_mut().expect("one that has failed runs nothing");
            if let Some(stream) = &mut stream {
                stream.hash_with(block.script.hashes());
            }
            let into = (&mut *rows, scratch, stream.as_deref_mut());
            let run = || {
                transaction.with(|transaction| answer_into((plan, values), transaction, zone, now, into)).expect(HERE)
            };
            match lend(&mut block.tape, run) {
                Ok(()) => {
                    let streamed = stream.as_ref().and_then(|stream| stream.whole_sum(rows.notices()));
                    let sum = streamed.unwrap_or_else(|| block.script.sum_of_rows(rows));
                    block.note(plan, values, sum);
                    return Ok(());
                }
                Err(_) if stream.as_mut().is_some_and(|stream| stream.is_refused()) => {
                    self.begin_anew(View::Fresh)?;
                    stream.iter_mut().for_each(|stream| stream.gives(true));
                }
                Err(failure) => self.recover_or_wait(failure, zone).map_err(|failure| self.fail(failure))?,
            }
        }
        self.run_alone((plan, values), zone, rows, stream)
    }

    /// A statement has failed: what the transaction answers with, and is from now on.
    pub(crate) fn fail(&mut self, failure: Failure) -> SqlError {
        let is_planned = self.is_planned();
        let Some(block) = self.block.as_mut().filter(|_| !is_planned) else { return error_of(failure) };
        block.has_failed = true;
        let is_lost = matches!(&failure, Failure::Engine(error) if error.is_conflict());
        let keeps = block.is_explicit && !block.savepoints.is_empty() && !is_lost;
        let ended = if keeps { None } else { block.transaction.take() };
        if !self.is_explicit() {
            self.end_portals(false);
            self.ended = self.block.take().map(|block| (block.script, false));
        }
        let ended = ended.and_then(|transaction| transaction.take().ok());
        let is_consistent = ended.is_none_or(Open::rollback) || left_out(Step::DoubtErrors);
        match (is_consistent, limits::check()) {
            (true, _) => error_of(failure),
            // What it has read does not tell why a statement fails that is called off.
            (false, Err(error)) => SqlError::of_engine(error),
            (false, Ok(())) => SqlError::of_engine(self.conflict()),
        }
    }

    /// The latest transaction has ended in a conflict.
    #[cold]
    fn conflict(&mut self) -> Error {
        let Some(worker) = self.worker_at_home() else { return Error::Conflict };
        let aborted = || worker.last_abort().map_or(Error::Conflict, |abort| Error::conflicts(1, abort));
        worker.waits_for_itself().unwrap_or_else(aborted)
    }

    /// Sets a savepoint in an explicit transaction that has not failed.
    /// `saved`: the settings, and the tables that it has closed.
    pub(crate) fn set_savepoint(
        &mut self,
        name: String,
        saved: (Saved, Vec<TableId>),
        zone: &Zone,
    ) -> Result<(), SqlError> {
        self.leave_undeclared(false, zone)?;
        let Some(block) = &mut self.block else { return Ok(()) };
        let Some(transaction) = &mut block.transaction else { return Ok(()) };
        let savepoint = transaction.with(|transaction| transaction.savepoint()).expect(HERE);
        let position = (self.drawn.position(), block.tape.position());
        let mark = block.script.mark(position, self.portal_count, saved, block.is_read_only);
        block.savepoints.push((name, savepoint, mark));
        Ok(())
    }

    /// Forgets a savepoint, and those that were set later.
    pub(crate) fn release(&mut self, name: &str) -> Result<(), SqlError> {
        let position = self.find_savepoint(name)?;
        if let Some(block) = &mut self.block {
            // What was said of the transaction behind it is undone, as in PostgreSQL.
            block.is_read_only = block.savepoints[position].2.is_read_only;
            block.savepoints.truncate(position);
        }
        Ok(())
    }

    /// Undoes what came behind a savepoint, and tells the settings there, and the tables that were closed; statements are run again. After a conflict nothing can be undone in part: that is the error again.
    pub(crate) fn roll_back_to(&mut self, name: &str) -> Result<(Saved, Vec<TableId>), SqlError> {
        let position = self.find_savepoint(name)?;
        let block = self.block.as_mut().expect("it has a savepoint");
        let Some(transaction) = &mut block.transaction else {
            return Err(SqlError::of_engine(self.conflict()));
        };
        block.savepoints.truncate(position + 1);
        let savepoint = block.savepoints[position].1;
        match transaction.with(|transaction| transaction.roll_back_to(savepoint)).expect(HERE) {
            Ok(()) => {
                block.has_failed = false;
                let mark = block.savepoints[position].2.clone();
                block.is_read_only = mark.is_read_only;
                block.script.return_to(&mark, &self.drawn);
                block.tape.return_to(mark.taped);
                self.portals.retain(|portal| portal.has_survived || portal.number <= mark.portals);
                self.note_undone(mark.portals);
                Ok((mark.settings, mark.closed))
            }
            Err(error) => {
                // Without the transaction no savepoint is any good.
                block.savepoints.clear();
                Err(self.fail(error.into()))
            }
        }
    }

    fn find_savepoint(&mut self, name: &str) -> Result<usize, SqlError> {
        let found = self.block.as_ref().and_then(|block| block.savepoints.iter().rposition(|(it, ..)| it == name));
        found.ok_or_else(|| {
            let message = format!("savepoint \"{name}\" does not exist");
            self.fail(SqlError::new(SqlState::INVALID_SAVEPOINT, message).into())
        })
    }
}

fn error_of(failure: Failure) -> SqlError {
    match failure {
        Failure::Sql(error) => error,
        Failure::Engine(error) => SqlError::of_engine(error),
    }
}
