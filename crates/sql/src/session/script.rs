//! Definitions in a transaction.
//!
//! A transaction of the engine does not see tables that were made after it began. So one that defines a table is rolled back, and begun again with the table:
//! what it has done is done again, and must answer what it has answered. Until it commits, what it has defined is known to its session alone.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use polychron_base::TableId;
use polychron_engine::open::Open;
use polychron_engine::{Error, Interactive};

use super::{Block, HERE, Session};
use crate::catalog::{Changes, Object};
use crate::context::Now;
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::exec::foreign_keys::{Check, run_deferred};
use crate::exec::{self, Failure};
use crate::names::Name;
use crate::outcome::{Notice, Outcome};
use crate::plan::Plan;
use crate::rows::Rows;
use crate::sequences::{Drawn, Position};
use crate::settings::Saved;
use crate::steps::Step;
use crate::text::Zone;

/// The most statements that are done again.
const LONGEST: usize = 20_000;

/// The most bytes of values that are kept for them: those of COPY are many.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// What the transaction has done.
pub(super) enum Item {
    /// It has run a statement. `answer` stands for what that has answered.
    Statement {
        plan: Arc<Plan>,
        values: Vec<OwnedDatum>,
        answer: u64,
    },
    /// It has opened the cursor of the portal of this number.
    Open {
        portal: u64,
        plan: Arc<Plan>,
        values: Vec<OwnedDatum>,
    },
    /// The client has asked for so many rows of the cursor in all. `answer` stands for those that it has got.
    Fetch {
        portal: u64,
        asked: usize,
        answer: u64,
    },
    /// The cursor has read the rest of its rows, because a statement was about to change them.
    Gather {
        portal: u64,
    },
    Close {
        portal: u64,
    },
}

/// What a transaction has done, and defined.
#[derive(Default)]
pub(crate) struct Script {
    pub(super) items: Vec<Item>,
    /// What answers are hashed with.
    hashes: DefaultHashBuilder,
    /// What the values of their parameters take.
    bytes: usize,
    /// There were more statements or values than are kept.
    pub(super) is_cut: bool,
    /// The client has seen what was undone since, or has set what statements have gone by: it is not run again after a conflict.
    pub(crate) runs_once: bool,
    /// A statement was run that changes something.
    pub(super) has_written: bool,
    pub(crate) changes: Changes,
    /// What the names of all changes stood for before the transaction.
    pub(crate) before: Changes,
    /// Tables of the engine that it has made.
    pub(crate) made: Vec<TableId>,
}

/// Where a savepoint was set.
#[derive(Clone)]
pub(super) struct Mark {
    pub(super) items: usize,
    changes: Changes,
    /// How far it had come with numbers of sequences, deferred checks, notes and locks, and with values of volatile functions.
    drawn: Position,
    pub(super) taped: usize,
    /// How many portals the session had made.
    pub(super) portals: u64,
    pub(super) settings: Saved,
    /// The tables that it had closed, and whether it was read-only.
    pub(super) closed: Vec<TableId>,
    pub(super) is_read_only: bool,
}

/// Hashes a value: two that are shown differently differ, too.
fn hash(value: Datum<'_>, into: &mut impl Hasher) {
    std::mem::discriminant(&value).hash(into);
    match value {
        Datum::Null => {}
        Datum::Bool(it) => it.hash(into),
        Datum::Int(it) | Datum::Time(it) | Datum::Timestamp(it) => it.hash(into),
        Datum::Float(it) => it.to_bits().hash(into),
        Datum::Numeric(it) => (it.units(), it.scale()).hash(into),
        Datum::Text(it) | Datum::Json(it) => it.hash(into),
        Datum::Bytes(it) => it.hash(into),
        Datum::Date(it) => it.hash(into),
        Datum::Interval(it) => it.hash(into),
        Datum::Uuid(it) => it.hash(into),
        Datum::Array(it) => it.bytes().hash(into),
        Datum::Wide(it) => it.bytes().hash(into),
    }
}

/// The checksum of an answer under way: its values, then its notices, then how many rows it has.
#[derive(Clone)]
pub(crate) struct Sum(<DefaultHashBuilder as BuildHasher>::Hasher);

impl Default for Sum {
    fn default() -> Self {
        Self::of(&DefaultHashBuilder::default())
    }
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Sum").field(&self.now()).finish()
    }
}

impl Sum {
    pub(crate) fn of(hashes: &DefaultHashBuilder) -> Self {
        Self(hashes.build_hasher())
    }

    pub(crate) fn add(&mut self, value: Datum<'_>) {
        hash(value, &mut self.0);
    }

    /// What stands for the values so far.
    pub(crate) fn now(&self) -> u64 {
        self.0.finish()
    }

    pub(crate) fn finish(mut self, count: u64, notices: &[Notice]) -> u64 {
        notices.iter().for_each(|notice| notice.message.hash(&mut self.0));
        count.hash(&mut self.0);
        self.0.finish()
    }
}

impl Script {
    fn sum<'d>(&self, count: u64, values: impl Iterator<Item = Datum<'d>>, notices: &[Notice]) -> u64 {
        let mut sum = self.begin_sum();
        values.for_each(|value| sum.add(value));
        sum.finish(count, notices)
    }

    /// Begins what stands for an answer whose values come one after the other.
    pub(super) fn begin_sum(&self) -> Sum {
        Sum::of(&self.hashes)
    }

    /// What answers are hashed with.
    pub(super) fn hashes(&self) -> &DefaultHashBuilder {
        &self.hashes
    }

    /// What stands for an answer.
    pub(super) fn sum_of(&self, outcome: &Outcome) -> u64 {
        self.sum(outcome.count, outcome.rows.iter().flatten().map(OwnedDatum::get), &outcome.notices)
    }

    /// As [`Script::sum_of`], of the same answer as rows.
    pub(super) fn sum_of_rows(&self, rows: &Rows) -> u64 {
        self.sum(rows.count(), rows.values(), rows.notices())
    }

    pub(super) fn push(&mut self, plan: &Arc<Plan>, values: &[Datum<'_>], answer: u64) {
        self.has_written |= plan.changes().is_some();
        if self.may_note(exec::bytes_of(values)) {
            let values = values.iter().map(|value| value.owned()).collect();
            self.items.push(Item::Statement { plan: plan.clone(), values, answer });
        }
    }

    /// Whether one more item is kept, with so many bytes of values.
    fn may_note(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.items.len() == LONGEST || self.bytes > MOST_BYTES {
            self.cut();
        }
        !self.is_cut
    }

    /// The cursor of a portal was opened.
    pub(super) fn opened(&mut self, portal: u64, plan: &Arc<Plan>, values: &[Datum<'_>]) {
        if self.may_note(exec::bytes_of(values)) {
            let values = values.iter().map(|value| value.owned()).collect();
            self.items.push(Item::Open { portal, plan: plan.clone(), values });
        }
    }

    /// Rows of a cursor were asked for. Several times behind each other are one, unless a savepoint comes between them: it was set behind so many items.
    pub(super) fn fetched(&mut self, portal: u64, (asked, answer): (usize, u64), saved: usize) {
        let is_again = |item: &&mut Item| matches!(item, Item::Fetch { portal: own, .. } if *own == portal);
        let item = Item::Fetch { portal, asked, answer };
        let is_behind = self.items.len() > saved;
        match self.items.last_mut().filter(|_| is_behind).filter(is_again) {
            Some(last) => *last = item,
            None => self.note_of_cursor(item),
        }
    }

    pub(super) fn note_of_cursor(&mut self, item: Item) {
        if self.may_note(0) {
            self.items.push(item);
        }
    }

    /// Whether it has nearly as much as is kept.
    pub(super) fn is_long(&self) -> bool {
        self.items.len() + 1 >= LONGEST || self.bytes > MOST_BYTES / 2
    }

    /// Whether it has run a statement, or defined something.
    pub(crate) fn has_run(&self) -> bool {
        self.is_cut || !self.items.is_empty() || !self.before.is_empty()
    }

    /// What it has done cannot be done again.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
        self.items = Vec::new();
    }

    pub(super) fn mark(
        &self,
        (drawn, taped): (Position, usize),
        portals: u64,
        (settings, closed): (Saved, Vec<TableId>),
        is_read_only: bool,
    ) -> Mark {
        let (items, changes) = (self.items.len(), self.changes.clone());
        Mark { items, changes, drawn, taped, portals, settings, closed, is_read_only }
    }

    /// What came behind the mark was undone.
    pub(super) fn return_to(&mut self, mark: &Mark, drawn: &Drawn) {
        drawn.return_to(&mark.drawn);
        self.runs_once = true;
        self.items.truncate(mark.items);
        self.changes.clone_from(&mark.changes);
    }
}

impl<W: Interactive + 'static> Session<W> {
    /// What the open transaction has done, and defined.
    pub(crate) fn script(&mut self) -> Option<&mut Script> {
        self.block.as_mut().map(|block| &mut block.script)
    }

    /// What the open transaction has defined.
    pub(crate) fn changes(&self) -> Option<&Changes> {
        self.block.as_ref().map(|block| &block.script.changes)
    }

    /// What a transaction has defined that has ended, and whether it has committed.
    pub(crate) fn take_ended(&mut self) -> Option<(Script, bool)> {
        self.ended.take()
    }

    /// Ends the engine's transaction, for [`Session::resume`].
    pub(crate) fn pause(&mut self) -> Result<(), SqlError> {
        let Some(block) = &mut self.block else { return Ok(()) };
        if block.script.is_cut {
            let what =
                format!("a definition behind {LONGEST} statements, or {MOST_BYTES} bytes of values, of a transaction");
            return Err(self.fail(SqlError::unsupported(what).into()));
        }
        let is_consistent = block.transaction.take().and_then(|it| it.take().ok()).is_none_or(Open::rollback);
        // What it has answered is compared when it is done again, but for what was undone.
        if is_consistent || !block.script.runs_once { Ok(()) } else { Err(self.fail(Error::Conflict.into())) }
    }

    /// Begins the engine's transaction again, and does again what it had done.
    pub(crate) fn resume(&mut self, zone: &Zone) -> Result<(), SqlError> {
        if self.is_planned() || self.block.as_ref().is_none_or(|block| block.transaction.is_some()) {
            return Ok(());
        }
        match self.do_again(zone, Step::CompareAnswers) {
            Ok(()) => Ok(()),
            Err(Some(Failure::Engine(error))) if error.is_conflict() && self.begin_again(zone) => Ok(()),
            // Others have changed meanwhile what the client knows.
            Err(failure) => Err(self.fail(failure.unwrap_or(Error::Conflict.into()))),
        }
    }

    /// Runs the checks that were deferred.
    pub(crate) fn check_deferred(&mut self, zone: &Zone) -> Result<(), SqlError> {
        self.check(Drawn::take_deferred, zone)
    }

    /// Runs the checks that have waited for the last row of a COPY.
    pub(crate) fn check_postponed(&mut self, zone: &Zone) -> Result<(), SqlError> {
        self.check(Drawn::take_postponed, zone)
    }

    fn check(&mut self, take: fn(&Drawn) -> Vec<Check>, zone: &Zone) -> Result<(), SqlError> {
        let Err(failure) = self.run_checks(take(&self.drawn), zone) else { return Ok(()) };
        self.recover(failure, zone).map_err(|failure| self.fail(failure))?;
        // The statements have left their checks again. It ends, because a transaction is run again only so often.
        self.check(take, zone)
    }

    /// Runs the checks of keys that `SET CONSTRAINTS` has just said to be immediate.
    pub(crate) fn check_due(&mut self, zone: &Zone) -> Result<(), SqlError> {
        self.run_checks(self.drawn.due(), zone).map_err(|failure| self.fail(failure))
    }

    fn run_checks(&mut self, checks: Vec<Check>, zone: &Zone) -> Result<(), Failure> {
        let Some(Block { transaction: Some(transaction), has_failed: false, now, .. }) = &mut self.block else {
            return Ok(());
        };
        let now = Now::At(*now);
        transaction.with(|transaction| run_deferred(checks, transaction, (zone, now))).expect(HERE)
    }

    /// Notes what a name stands for from now on, and what it stood for before the transaction.
    pub(crate) fn change(&mut self, name: &Name, before: Option<Object>, object: Option<Object>) {
        if let Some(script) = self.script() {
            script.before.entry(name.clone()).or_insert(before);
            script.changes.insert(name.clone(), object);
        }
    }
}
