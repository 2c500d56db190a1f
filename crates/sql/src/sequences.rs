//! Sequences: numbers that are given out once each, whatever becomes of the transactions that ask for them.
//!
//! A sequence has its last number in memory. The database keeps up to where numbers may have been given out, which a transaction of its own moves on by a block of
//! them before the first number of the block is given out; so what a crash leaves out is a part of a block. The number of a row without a primary key comes
//! from a sequence, too, of which each connection takes blocks, so that their insertions do not meet.

mod drawing;
mod ending;
mod planned;
mod questions;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashMap;
use polychron_engine::mutations::left_out;
use polychron_sync::atomic::{AtomicBool, Ordering};
use serde::{Deserialize, Serialize};

use crate::advisory::Own;
use crate::catalog::{ForeignKey, Source};
use crate::error::{SqlError, SqlState};
use crate::exec::foreign_keys::Check;
use crate::names::{Name, Path};
use crate::notifications::{Outbox, SaidMark};
use crate::procedures::Unit;
use crate::roles::Access;
use crate::steps::Step;
use crate::types::Type;

pub(crate) use drawing::Drawing;
pub(crate) use questions::{Draw, Shown};

/// Numbers that the database is asked for at once.
pub(crate) const BLOCK: i128 = 4096;

/// Row numbers that the database is asked for at once, and that a connection takes of them.
pub(crate) const ROW_BLOCKS: (i128, i128) = (1 << 16, 256);

/// What a sequence is defined as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SequenceDefinition {
    /// By which the database knows its numbers: each sequence has another one, and one that begins again gets a new one.
    pub(crate) number: i64,
    pub(crate) of: Type,
    pub(crate) increment: i64,
    pub(crate) least: i64,
    pub(crate) greatest: i64,
    pub(crate) start: i64,
    /// Where it begins, which `RESTART WITH` can say.
    pub(crate) first: i64,
    pub(crate) cycles: bool,
    /// The table and the column with which it goes.
    pub(crate) owner: Option<(Name, String)>,
    /// It belongs to an identity column.
    pub(crate) is_internal: bool,
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub(crate) access: Access,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
}

/// A sequence.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) name: Name,
    pub(crate) definition: SequenceDefinition,
    state: Arc<Mutex<State>>,
}

/// Where a sequence is.
struct State {
    source: Option<Weak<dyn Source>>,
    /// Whether the database was asked where it is.
    is_known: bool,
    /// The last number that was given out.
    last: Option<i64>,
    /// Up to where numbers may be given out.
    granted: Option<i64>,
    /// The same as the database has it: another one where the sequence has begun again.
    stored: Option<i64>,
    /// The number behind the last one was set as the next one.
    is_set_to_next: bool,
    /// The database does not know it yet: the protocol runs no other transaction beside the one that was open.
    is_unsaved: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "State({:?}, {:?})", self.last, self.granted)
    }
}

impl SequenceDefinition {
    /// The numbers of rows without a primary key.
    pub(crate) fn of_rows(number: i64) -> Self {
        Self::rising(number, Type::Int8)
    }

    /// Numbers from 1 on.
    pub(crate) fn rising(number: i64, of: Type) -> Self {
        let greatest = greatest_of(of);
        let (owner, is_internal) = (None, false);
        let access = Access::default();
        Self {
            number,
            of,
            increment: 1,
            least: 1,
            greatest,
            start: 1,
            first: 1,
            cycles: false,
            owner,
            is_internal,
            access,
            comment: None,
        }
    }
}

/// The greatest number of an integer type.
pub(crate) fn greatest_of(of: Type) -> i64 {
    match of {
        Type::Int2 => i16::MAX.into(),
        Type::Int4 => i32::MAX.into(),
        _ => i64::MAX,
    }
}

impl Sequence {
    pub(crate) fn new(name: &Name, definition: SequenceDefinition, source: Option<Weak<dyn Source>>) -> Self {
        let state = State {
            source,
            is_known: false,
            last: None,
            granted: None,
            stored: None,
            is_set_to_next: false,
            is_unsaved: false,
        };
        Self { name: name.clone(), definition, state: Arc::new(Mutex::new(state)) }
    }

    /// The same sequence under another name or with other bounds.
    pub(crate) fn altered(&self, name: &Name, definition: SequenceDefinition) -> Self {
        Self { name: name.clone(), definition, state: self.state.clone() }
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, SqlError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.known(state)
    }

    fn known<'s>(&self, mut state: MutexGuard<'s, State>) -> Result<MutexGuard<'s, State>, SqlError> {
        if !state.is_known {
            let source = state.source.as_ref().and_then(Weak::upgrade);
            let granted = source.map_or(Ok(None), |source| source.granted(self.definition.number))?;
            (state.last, state.granted, state.stored, state.is_known) = (granted, granted, granted, true);
        }
        Ok(state)
    }

    /// The number behind `last`, if there is one without beginning again.
    fn behind(&self, last: Option<i64>, steps: i128) -> i128 {
        let of = &self.definition;
        last.map_or(i128::from(of.first) + i128::from(of.increment) * (steps - 1), |last| {
            i128::from(last) + i128::from(of.increment) * steps
        })
    }

    fn is_within(&self, number: i128) -> bool {
        (i128::from(self.definition.least)..=i128::from(self.definition.greatest)).contains(&number)
    }

    /// Finds out where it is, before a transaction asks.
    pub(crate) fn find(&self) -> Result<(), SqlError> {
        self.state().map(drop)
    }

    /// The last number that it has given out.
    pub(crate) fn last(&self) -> Result<Option<i64>, SqlError> {
        Ok(self.state()?.last)
    }

    /// Asks the database for numbers before they are needed, where fewer than half a block are left.
    pub(crate) fn prepare(&self, block: i128) -> Result<(), SqlError> {
        let mut state = self.state()?;
        let bounds = (self.definition.least.into(), self.definition.greatest.into());
        let half = self.behind(state.last, block / 2).clamp(bounds.0, bounds.1);
        if !self.is_granted(&state, half) {
            self.grant(&mut state, half, block / 2)?;
        }
        Ok(())
    }

    fn is_granted(&self, state: &State, number: i128) -> bool {
        let Some(granted) = state.granted.map(i128::from) else { return false };
        if self.definition.increment > 0 { number <= granted } else { number >= granted }
    }

    /// Has the database know that numbers up to a block behind this one may be given out. Where others have gone on meanwhile, it goes on behind them: then the
    /// answer is no.
    fn grant(&self, state: &mut State, number: i128, block: i128) -> Result<bool, SqlError> {
        let of = &self.definition;
        let last = number + i128::from(of.increment) * (block - 1);
        self.move_to(state, last.clamp(of.least.into(), of.greatest.into()) as i64)
    }

    fn move_to(&self, state: &mut State, last: i64) -> Result<bool, SqlError> {
        let granted = match state.source.as_ref().and_then(Weak::upgrade) {
            Some(source) => source.grant(self.definition.number, state.stored, last),
            None => Ok(Some(last)),
        };
        if granted.as_ref().is_err_and(SqlError::is_from_inside) {
            // Nobody else runs meanwhile, and the connection has it stored before it answers that its transaction has ended.
            (state.granted, state.is_unsaved) = (Some(last), true);
            return Ok(true);
        }
        let granted = granted?;
        state.is_unsaved = false;
        let is_ours = granted == Some(last);
        if !is_ours {
            state.last = granted;
        }
        (state.granted, state.stored) = (granted, granted);
        Ok(is_ours)
    }

    /// Stores what could not be stored while a transaction was open.
    pub(crate) fn save(&self) -> Result<(), SqlError> {
        let mut state = self.state()?;
        match state.granted.filter(|_| state.is_unsaved) {
            Some(granted) => self.move_to(&mut state, granted).map(drop),
            None => Ok(()),
        }
    }

    fn is_unsaved(&self) -> bool {
        self.state().is_ok_and(|state| state.is_unsaved)
    }

    #[cold]
    fn ended(&self) -> SqlError {
        let of = &self.definition;
        let (end, bound) = if of.increment > 0 { ("maximum", of.greatest) } else { ("minimum", of.least) };
        let message = format!("nextval: reached {end} value of sequence \"{}\" ({bound})", self.name);
        SqlError::new(SqlState::SEQUENCE_LIMIT, message)
    }

    /// The next number, and how many more come behind it, as many as `count` at most.
    fn take(&self, count: i128, block: i128) -> Result<(i64, i128), SqlError> {
        let (mut state, of) = (self.state()?, &self.definition);
        loop {
            let mut next = self.behind(state.last, 1);
            if !self.is_within(next) {
                if !of.cycles {
                    return Err(self.ended());
                }
                next = if of.increment > 0 { of.least } else { of.greatest }.into();
                state.granted = None;
            }
            let mut last = next + i128::from(of.increment) * (count - 1);
            if !self.is_within(last) {
                last = next;
            }
            if !self.is_granted(&state, last) && !self.grant(&mut state, last, block)? {
                continue;
            }
            state.last = Some(last as i64);
            state.is_set_to_next = false;
            return Ok((next as i64, (last - next) / i128::from(of.increment)));
        }
    }

    fn check_within(&self, number: i64) -> Result<(), SqlError> {
        if self.is_within(number.into()) {
            return Ok(());
        }
        let bounds = format!("({}..{})", self.definition.least, self.definition.greatest);
        let message = format!("setval: value {number} is out of bounds for sequence \"{}\" {bounds}", self.name);
        Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))
    }

    /// Goes on behind this number, or with it.
    fn set(&self, number: i64, is_called: bool) -> Result<(), SqlError> {
        let of = &self.definition;
        self.check_within(number)?;
        let mut state = self.state()?;
        // What comes before the first number may be outside of the type.
        let last = if is_called { Some(number) } else { number.checked_sub(of.increment) };
        let Some(last) = last else { return Err(SqlError::unsupported("setval to the end of bigint")) };
        while !self.move_to(&mut state, last)? {}
        state.last = Some(last);
        state.is_set_to_next = !is_called;
        Ok(())
    }

    /// A part of its row, as a number.
    fn shown(&self, part: Shown) -> Result<i64, SqlError> {
        let state = self.state()?;
        let called = state.last.filter(|_| !state.is_set_to_next);
        Ok(match part {
            Shown::LastValue => called.unwrap_or_else(|| self.behind(state.last, 1) as i64),
            Shown::IsCalled => called.is_some().into(),
        })
    }
}

/// What a connection knows of sequences.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    inner: Mutex<DrawnInner>,
    /// Transactions are planned, and run elsewhere: once their numbers are drawn, each run is given the same.
    is_planned: bool,
    /// Procedures that are bound, each with the version of the catalog that it is bound to.
    units: Mutex<HashMap<Name, (u64, Arc<Unit>)>>,
    /// Where the session looks for names without a schema.
    path: Mutex<Arc<Path>>,
    /// What the session does, for its own questions.
    pub(crate) activity: std::sync::OnceLock<Arc<crate::watch::Activity>>,
    /// What its transaction tells other sessions.
    pub(crate) outbox: Outbox,
    /// What its statements ask of itself.
    pub(crate) questions: crate::own::Questions,
    /// What it locks by numbers.
    pub(crate) locks: Own,
    /// The transaction may only read, and asks no sequence for numbers.
    is_read_only: AtomicBool,
    /// Whether something was put there that belongs to a transaction. One thread at a time has the session, and looks at it without the lock.
    is_used: AtomicBool,
}

/// The most rows of a COPY that come before their parents.
const MOST_POSTPONED: usize = 1_000_000;

#[derive(Debug, Default)]
struct DrawnInner {
    /// The last numbers that it was given, by the sequences' own.
    last: HashMap<i64, i64>,
    /// The sequence that it was given one of last.
    latest: Option<(i64, i64)>,
    /// Row numbers that it has taken: the next one, and how many there are.
    rows: HashMap<i64, (i64, i128)>,
    /// The numbers that the transaction was given, each with the number of its sequence, and how many of them it was given again since it was begun anew.
    given: Vec<(i64, i64)>,
    again: usize,
    /// The same of row numbers in planned transactions, by the sequences' own.
    given_rows: HashMap<i64, (Vec<i64>, usize)>,
    /// What a planned transaction could not do.
    wanted: Option<planned::Wanted>,
    /// Sequences that are to be stored when the transaction has ended.
    unsaved: Vec<Arc<Sequence>>,
    /// What is to be looked at before the transaction commits.
    deferred: Vec<Check>,
    /// What is to be looked at when the COPY under way has all of its rows.
    postponed: Vec<Check>,
    modes: CheckModes,
}

/// What `SET CONSTRAINTS` has said of all foreign keys, and of those that it has named.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckModes {
    all: Option<bool>,
    named: HashMap<String, bool>,
}

impl CheckModes {
    fn are_deferred(&self, key: &ForeignKey) -> bool {
        let said = self.named.get(&key.name).copied().or(self.all);
        key.deferrable && said.unwrap_or(key.deferred)
    }
}

impl DrawnInner {
    /// What is given again now.
    fn next_given(&mut self, sequence: i64) -> Option<i64> {
        let (of, number) = self.given.get(self.again).copied()?;
        if of != sequence {
            // It has come another way, where it has read something else.
            self.given.truncate(self.again);
            return None;
        }
        self.again += 1;
        Some(number)
    }

    /// A number of a row, of the block that the connection has, or of another one.
    fn row_number(
        &mut self,
        sequence: &Sequence,
        take: impl FnOnce(i128) -> Result<(i64, i128), SqlError>,
    ) -> Result<i64, SqlError> {
        let rows = self.rows.entry(sequence.definition.number).or_default();
        if rows.1 == 0 {
            let (first, more) = take(ROW_BLOCKS.1)?;
            *rows = (first, more + 1);
        }
        let number = rows.0;
        *rows = (number.wrapping_add(1), rows.1 - 1);
        Ok(number)
    }

    /// A sequence has given this, or was set to it.
    fn note_given(&mut self, sequence: i64, number: i64) {
        self.given.push((sequence, number));
        self.again += 1;
    }
}

/// How far a transaction has come with its numbers and checks.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// How many numbers it was given.
    given: usize,
    /// How many checks are deferred, and what `SET CONSTRAINTS` has said.
    deferred: usize,
    modes: CheckModes,
    /// What it has told others, and which locks it has.
    said: SaidMark,
    locks: usize,
}

/// The most procedures that a connection keeps bound.
const UNITS: usize = 256;

impl Drawn {
    /// A procedure that is bound to the catalog of this version.
    pub(crate) fn unit(&self, name: &Name, version: u64) -> Option<Arc<Unit>> {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.get(name).filter(|(own, _)| *own == version).map(|(_, unit)| unit.clone())
    }

    /// Keeps a procedure that is bound. Its statements lead back here, so it is forgotten with the connection.
    pub(crate) fn keep_unit(&self, name: &Name, version: u64, unit: &Arc<Unit>) {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.retain(|_, (own, _)| *own == version);
        if units.len() < UNITS {
            units.insert(name.clone(), (version, unit.clone()));
        }
    }

    /// Says whether the transaction may only read. Relaxed: one thread at a time has the session.
    pub(crate) fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only.store(is_read_only, Ordering::Relaxed);
    }

    /// Refuses a change of a sequence in a transaction that only reads.
    fn check_writable(&self, sequence: &Sequence, function: &str) -> Result<(), SqlError> {
        if !self.is_read_only.load(Ordering::Relaxed) || sequence.name.is_temporary() {
            return Ok(());
        }
        let message = format!("cannot execute {function}() in a read-only transaction");
        Err(SqlError::new(SqlState::READ_ONLY_TRANSACTION, message))
    }

    pub(crate) fn path(&self) -> Arc<Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets where names are looked for. What is bound to the old path is forgotten.
    pub(crate) fn set_path(&self, path: Arc<Path>) {
        *self.path.lock().unwrap_or_else(PoisonError::into_inner) = path;
        self.forget_units();
    }

    pub(crate) fn forget_units(&self) {
        self.units.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Forgets which numbers the session has got last.
    pub(crate) fn forget_last(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.last.clear();
        inner.latest = None;
    }

    /// What transactions put there.
    fn inner(&self) -> MutexGuard<'_, DrawnInner> {
        self.is_used.store(true, Ordering::Relaxed);
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction begins.
    pub(crate) fn begin(&self) {
        self.outbox.repeat();
        self.locks.repeat();
        if !self.is_used() {
            return;
        }
        let mut inner = self.inner();
        inner.given.clear();
        inner.given_rows.clear();
        inner.wanted = None;
        inner.again = 0;
        inner.deferred.clear();
        inner.postponed.clear();
        inner.modes = CheckModes::default();
        self.is_used.store(!inner.unsaved.is_empty(), Ordering::Relaxed);
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Whether a foreign key is looked at when the transaction commits.
    pub(crate) fn is_deferred(&self, key: &ForeignKey) -> bool {
        self.inner().modes.are_deferred(key)
    }

    /// Sequences that are to be stored now.
    pub(crate) fn take_unsaved(&self) -> Vec<Arc<Sequence>> {
        if self.is_used() { std::mem::take(&mut self.inner().unsaved) } else { Vec::new() }
    }

    fn note_unsaved(&self, sequence: &Arc<Sequence>) {
        if sequence.is_unsaved() {
            self.inner().unsaved.push(sequence.clone());
        }
    }

    pub(crate) fn defer(&self, check: Check) {
        self.inner().deferred.push(check);
    }

    /// A key of a COPY does not hold yet.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn postpone(&self, check: Check) -> Result<(), SqlError> {
        let postponed = &mut self.inner().postponed;
        if postponed.len() == MOST_POSTPONED {
            let detail = format!("Of a COPY, at most {MOST_POSTPONED} rows may come before their parents.");
            return Err(SqlError::out_of_memory(detail));
        }
        postponed.push(check);
        Ok(())
    }

    /// What is to be looked at behind the rows of a COPY.
    pub(crate) fn take_postponed(&self) -> Vec<Check> {
        if self.is_used() { std::mem::take(&mut self.inner().postponed) } else { Vec::new() }
    }

    /// What comes behind this may be undone.
    pub(crate) fn position(&self) -> Position {
        let inner = self.inner();
        let (given, deferred, modes) = (inner.again, inner.deferred.len(), inner.modes.clone());
        Position { given, deferred, modes, said: self.outbox.mark(), locks: self.locks.mark() }
    }

    /// Undoes what came behind. Numbers that were given there are not given again: the statements that got them are not run again.
    pub(crate) fn return_to(&self, position: &Position) {
        self.outbox.return_to(position.said);
        self.locks.return_to(position.locks);
        let mut inner = self.inner();
        inner.given.truncate(position.given);
        inner.again = inner.given.len();
        inner.deferred.truncate(position.deferred);
        inner.modes.clone_from(&position.modes);
    }

    /// What is deferred of keys that no longer are. It stays, since a return to a savepoint may defer them again.
    pub(crate) fn due(&self) -> Vec<Check> {
        let mut inner = self.inner();
        if left_out(Step::KeepChecks) {
            return std::mem::take(&mut inner.deferred);
        }
        inner.deferred.iter().filter(|check| !inner.modes.are_deferred(check.key())).cloned().collect()
    }

    /// What is to be looked at now.
    pub(crate) fn take_deferred(&self) -> Vec<Check> {
        if self.is_used() { std::mem::take(&mut self.inner().deferred) } else { Vec::new() }
    }

    /// What `SET CONSTRAINTS` says: of all foreign keys, or of those that it names.
    pub(crate) fn set_deferred(&self, names: &[String], deferred: bool) {
        let mut inner = self.inner();
        if names.is_empty() {
            inner.modes = CheckModes { all: Some(deferred), named: HashMap::new() };
        }
        inner.modes.named.extend(names.iter().map(|name| (name.clone(), deferred)));
    }

    /// The statements of a transaction run again: they are given what they were given.
    pub(crate) fn repeat(&self) {
        self.outbox.repeat();
        self.locks.repeat();
        if !self.is_used() {
            return;
        }
        let mut inner = self.inner();
        inner.again = 0;
        inner.given_rows.values_mut().for_each(|(_, again)| *again = 0);
        inner.postponed.clear();
        inner.deferred.clear();
    }
}
