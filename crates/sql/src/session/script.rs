//! Definitions in a transaction.
//!
//! A transaction of the engine does not see tables that were made after it began. So one that defines a table is rolled back, and begun again with the table:
//! what it has done is done again, and must answer what it has answered. Until it commits, what it has defined is known to its session alone.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use polychron_base::TableId;
use polychron_engine::open::Open;
use polychron_engine::{Error, Interactive, Operations};

use super::{Block, HERE, Session};
use crate::catalog::{Changes, Object};
use crate::datum::{Datum, OwnedDatum};
use crate::error::SqlError;
use crate::exec::foreign_keys::run_deferred;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::rows::Rows;
use crate::statement::answer;
use crate::text::Zone;

/// The most statements that are done again.
const LONGEST: usize = 20_000;

/// A statement that the transaction has run.
struct Item {
    plan: Arc<Plan>,
    values: Vec<OwnedDatum>,
    /// What stands for its answer.
    answer: u64,
}

/// What a transaction has done, and defined.
#[derive(Default)]
pub(crate) struct Script {
    items: Vec<Item>,
    /// There were more statements than are kept.
    is_cut: bool,
    pub(crate) changes: Changes,
    /// What the names of all changes stood for before the transaction.
    pub(crate) before: Changes,
    /// Tables of the engine that it has made.
    pub(crate) made: Vec<TableId>,
}

/// Where a savepoint was set.
#[derive(Clone)]
pub(super) struct Mark {
    items: usize,
    changes: Changes,
    /// How many checks were deferred.
    deferred: usize,
}

/// Hashes what is written.
struct Words(DefaultHasher);

impl Write for Words {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn sum<'d>(count: u64, values: impl Iterator<Item = Datum<'d>>) -> u64 {
    let mut words = Words(DefaultHasher::new());
    count.hash(&mut words.0);
    values.for_each(|value| {
        let _ = write!(words, "{value:?};");
    });
    words.0.finish()
}

/// What stands for an answer.
pub(super) fn sum_of(outcome: &Outcome) -> u64 {
    sum(outcome.count, outcome.rows.iter().flatten().map(OwnedDatum::get))
}

/// As [`sum_of`], of the same answer as rows.
pub(super) fn sum_of_rows(rows: &Rows) -> u64 {
    sum(rows.count(), rows.values())
}

impl Script {
    pub(super) fn push(&mut self, plan: &Arc<Plan>, values: &[Datum<'_>], answer: u64) {
        if self.items.len() == LONGEST {
            self.is_cut = true;
            return;
        }
        let values = values.iter().map(|value| value.owned()).collect();
        self.items.push(Item { plan: plan.clone(), values, answer });
    }

    pub(super) fn mark(&self, deferred: usize) -> Mark {
        Mark { items: self.items.len(), changes: self.changes.clone(), deferred }
    }

    /// What came behind the mark was undone.
    pub(super) fn return_to(&mut self, mark: &Mark, drawn: &Drawn) {
        drawn.forget_deferred(mark.deferred);
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
            let what = format!("a definition behind {LONGEST} statements of a transaction");
            return Err(self.fail(SqlError::unsupported(what).into()));
        }
        let is_consistent = block.transaction.take().and_then(|it| it.take().ok()).is_none_or(Open::rollback);
        if is_consistent { Ok(()) } else { Err(self.fail(Error::Conflict.into())) }
    }

    /// Begins the engine's transaction again, and does again what it had done.
    pub(crate) fn resume(&mut self, zone: &Zone) -> Result<(), SqlError> {
        if self.block.as_ref().is_none_or(|block| block.transaction.is_some()) {
            return Ok(());
        }
        let mut held = match self.begin_held() {
            Ok(begun) => begun,
            Err(failure) => return Err(self.fail(failure)),
        };
        let Some(block) = &mut self.block else { return Ok(()) };
        self.drawn.repeat();
        let mut savepoints = block.savepoints.iter_mut().peekable();
        let mut failure = None;
        for (number, item) in block.script.items.iter().enumerate() {
            while let Some((_, savepoint, _)) = savepoints.next_if(|(_, _, mark)| mark.items <= number) {
                *savepoint = held.with(|transaction| transaction.savepoint()).expect(HERE);
            }
            let values: Vec<_> = item.values.iter().map(OwnedDatum::get).collect();
            let now = block.now;
            match held.with(|transaction| answer((&item.plan, &values), transaction, zone, now)).expect(HERE) {
                Ok(outcome) if sum_of(&outcome) == item.answer => {}
                // Others have changed meanwhile what the client knows.
                Ok(_) => failure = Some(Error::Conflict.into()),
                Err(failed) => failure = Some(failed),
            }
            if failure.is_some() {
                break;
            }
        }
        for (_, savepoint, _) in savepoints {
            *savepoint = held.with(|transaction| transaction.savepoint()).expect(HERE);
        }
        block.transaction = Some(held);
        failure.map_or(Ok(()), |failure| Err(self.fail(failure)))
    }

    /// Runs the checks that were deferred.
    pub(crate) fn check_deferred(&mut self, zone: &Zone) -> Result<(), SqlError> {
        let Some(Block { transaction: Some(transaction), has_failed: false, now, .. }) = &mut self.block else {
            return Ok(());
        };
        let (deferred, now) = (self.drawn.take_deferred(), *now);
        let ran = transaction.with(|transaction| run_deferred(deferred, transaction, (zone, now))).expect(HERE);
        ran.map_err(|failure| self.fail(failure))
    }

    /// Notes what a name stands for from now on, and what it stood for before the transaction.
    pub(crate) fn change(&mut self, name: &str, before: Option<Object>, object: Option<Object>) {
        if let Some(script) = self.script() {
            script.before.entry(name.to_owned()).or_insert(before);
            script.changes.insert(name.to_owned(), object);
        }
    }
}

/// Shared with who draws numbers of sequences.
pub(super) type Drawn = Arc<crate::sequences::Drawn>;
