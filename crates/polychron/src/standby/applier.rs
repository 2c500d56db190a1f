//! How what a consistent point closes becomes visible in a standby: tables are changed around one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use polychron_base::clock::calendar_time;
use polychron_base::error::table_name;
use polychron_engine::definitions::{Standing, StoredCatalog, StoredTable};
use polychron_engine::mutations::left_out;
use polychron_engine::{
    Error, Insertion, Interactive, Mode, Projection, Protocol, RowRef, TableDefinition, TableId, Transaction, Worker,
    drive,
};
use polychron_log::frame;
use polychron_log::ship::{Apply, Changes, Point};
use polychron_log::steps::StandbyStep;
use polychron_schema::EvolutionError;

use super::status::Shared;
use crate::TransactionOf;
use crate::refusing::Refusing;

/// How long it waits before it applies again what readers have kept it from.
const PAUSE: Duration = Duration::from_millis(1);
/// The same of what there is no memory for.
const OUT_OF_MEMORY_PAUSE: Duration = Duration::from_millis(50);

/// Applies a standby's changes to its database: tables by their positions at the primary, and what is known of each.
pub(crate) struct Applier<P: Protocol> {
    protocol: Arc<P>,
    guard: Arc<Refusing>,
    pub(super) shared: Arc<Shared>,
    tables: BTreeMap<u32, (TableId, StoredTable)>,
    /// Tables that take the place of others when their rows are there.
    superseding: Vec<(u32, TableId)>,
    worker: P::Worker,
}

impl<P: Protocol<Worker: Interactive>> Applier<P> {
    pub(super) fn new(
        protocol: &Arc<P>,
        guard: &Arc<Refusing>,
        shared: &Arc<Shared>,
        tables: &StoredCatalog,
    ) -> Result<Self, Error> {
        let found = tables.tables().iter().filter_map(|(position, table)| {
            let id = protocol.storage().find_table(&table.definition.name)?;
            Some((*position, (id, table.clone())))
        });
        let (protocol, guard, shared) = (Arc::clone(protocol), Arc::clone(guard), Arc::clone(shared));
        let worker = protocol.worker()?;
        Ok(Self { tables: found.collect(), superseding: Vec::new(), worker, protocol, guard, shared })
    }

    /// Removes tables and indexes that are gone, and makes new tables. What was done when it fails is not done again the next time.
    fn prepare(&mut self, wanted: &StoredCatalog) -> Result<(), Error> {
        let storage = self.protocol.storage();
        // Children before their parents.
        for position in self.tables.keys().rev().copied().collect::<Vec<_>>() {
            let Some((id, table)) = self.tables.get(&position) else { continue };
            let Some(new) = wanted.tables().get(&position) else {
                let name = &table.definition.name;
                let other = wanted.tables().iter().find(|(_, other)| other.definition.name == *name);
                match other {
                    Some((other, _)) => self.superseding.push((*other, *id)),
                    None => storage.drop_table(*id)?,
                }
                self.tables.remove(&position);
                continue;
            };
            let gone = table.definition.indexes.iter().zip(&table.indexes);
            for (index, _) in gone.filter(|(_, id)| !new.indexes.contains(id)) {
                if let Some(index) = storage.find_index(*id, &index.name)? {
                    storage.drop_index(*id, index)?;
                }
            }
        }
        for (position, table) in wanted.tables() {
            if !self.tables.contains_key(position) {
                let mut definition = TableDefinition::clone(&table.definition);
                let is_superseding = self.superseding.iter().any(|(other, _)| other == position);
                if is_superseding {
                    definition.name = format!("{} (on its way)", definition.name);
                }
                let standing = if is_superseding { Standing::Provisional } else { Standing::Permanent };
                let id = storage.create_table(definition, standing)?;
                self.tables.insert(*position, (id, table.clone()));
            }
        }
        Ok(())
    }

    /// Tables take the place of others, and indexes are made.
    fn complete(&mut self, wanted: &StoredCatalog) -> Result<(), Error> {
        let storage = self.protocol.storage();
        while let Some((position, old)) = self.superseding.first().copied() {
            if let Some((id, table)) = self.tables.get(&position) {
                let name = table.definition.name.clone();
                let why = EvolutionError::Superseded { table: name, difference: "it has other columns".to_owned() };
                storage.supersede_table((old, Arc::new(why)), *id)?;
            }
            self.superseding.remove(0);
        }
        for (position, table) in wanted.tables() {
            let Some((id, present)) = self.tables.get_mut(position) else { continue };
            for (index, _) in table.definition.indexes.iter().zip(&table.indexes) {
                if storage.find_index(*id, &index.name)?.is_none() {
                    storage.create_index(*id, index.clone(), Standing::Permanent)?;
                }
            }
            *present = table.clone();
        }
        Ok(())
    }

    fn write(&mut self, changes: &Changes) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let parts = if left_out(StandbyStep::ApplyAtOnce) { 2 } else { 1 };
        for part in 0..parts {
            let mut run = Run { tables: &self.tables, changes, part, parts };
            let applied =
                drive::transact(&mut self.worker, Mode::ReadWrite, &mut |transaction: &mut TransactionOf<'_, P>| {
                    run.run(transaction)
                });
            // What it waits for is nothing.
            let _ = Worker::take_ticket(&mut self.worker);
            applied?;
        }
        Ok(())
    }

    fn try_apply(&mut self, tables: &StoredCatalog, changes: &Changes) -> Result<(), Error> {
        let is_other = {
            let stored = tables.tables().iter();
            self.tables.len() != tables.tables().len()
                || stored.zip(&self.tables).any(|((at, wanted), (other, (_, table)))| (at, wanted) != (other, table))
        };
        if !is_other && self.superseding.is_empty() {
            return self.write(changes);
        }
        self.prepare(tables)?;
        // All words are absolute: what was written and is written again when something behind it has failed stays as it is.
        self.write(changes)?;
        self.complete(tables)
    }
}

impl<P: Protocol<Worker: Interactive>> Apply for Applier<P> {
    fn apply(&mut self, tables: &StoredCatalog, changes: &Changes, point: &Point) -> Result<(), Error> {
        let guard = Arc::clone(&self.guard);
        while let Err(error) = guard.admit(|| self.try_apply(tables, changes)) {
            let pause = match error {
                _ if self.shared.is_over() => return Err(error),
                // Under a protocol whose readers lock, one of them may be in the way for as long as it likes.
                Error::Conflicts(_) | Error::TimedOut(_) => PAUSE,
                // Readers hold old versions, and what they have written and may not commit.
                Error::OutOfMemory(_) => {
                    self.shared.change(|status| status.unshown = Some(error.to_string()));
                    OUT_OF_MEMORY_PAUSE
                }
                _ => return Err(error),
            };
            self.shared.pause(pause);
        }
        let now_ns = calendar_time().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let lag = Duration::from_nanos(now_ns.saturating_sub(point.written_ns));
        self.shared.change(|status| {
            (status.seen, status.lag, status.points) = (*point, lag, status.points + 1);
        });
        Ok(())
    }
}

/// All that has changed from one point to the next, as one transaction.
struct Run<'c> {
    tables: &'c BTreeMap<u32, (TableId, StoredTable)>,
    changes: &'c Changes,
    /// Which one of how many parts it is.
    part: usize,
    parts: usize,
}

impl<'c> Run<'c> {
    fn changes(&self) -> impl Iterator<Item = (&'c [u8], frame::Change<'c>)> + use<'c> {
        self.changes.iter().skip(self.part).step_by(self.parts)
    }

    /// Of tables with unique indexes rows go before others come: such an index may get a key that another row has given up.
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let (mut later, mut words, mut last) = (Vec::new(), Vec::new(), None);
        for (key, change) in self.changes() {
            let (frame::Change::Put { table, .. }
            | frame::Change::Patch { table, .. }
            | frame::Change::Delete { table, .. }) = &change;
            // Those of one table come together.
            if last.is_none_or(|(position, _)| position != *table) {
                last = Some((*table, self.find(*table)));
            }
            let Some((table, has_unique)) = last.and_then(|(_, found)| found) else { continue };
            if let frame::Change::Delete { .. } = change {
                transaction.delete_unchecked(table, key)?;
                continue;
            }
            words.clear();
            after(transaction, (table, key), change, &mut words)?;
            if has_unique {
                transaction.delete_unchecked(table, key)?;
                later.push((table, key, std::mem::take(&mut words)));
            } else {
                put(transaction, table, key, &words)?;
            }
        }
        later.into_iter().try_for_each(|(table, key, words)| put(transaction, table, key, &words))
    }

    /// The table at a position, and whether it has a unique index beside its key.
    fn find(&self, position: u32) -> Option<(TableId, bool)> {
        let (id, stored) = self.tables.get(&position)?;
        Some((*id, stored.definition.indexes.iter().any(|index| index.unique)))
    }
}

/// The row that a change makes.
fn after<T: Transaction>(
    transaction: &mut T,
    (table, key): (TableId, &[u8]),
    change: frame::Change<'_>,
    words: &mut Vec<u64>,
) -> Result<(), Error> {
    match change {
        frame::Change::Put { row, .. } => words.extend(row),
        frame::Change::Patch { ranges, .. } => {
            let row = transaction.read_row(table, key, &Projection::ALL)?;
            words.extend_from_slice(row.ok_or_else(|| unknown(table))?.as_words());
            for (first, range) in ranges {
                let target = words.get_mut(first..first + range.len()).ok_or_else(|| unknown(table))?;
                target.iter_mut().zip(range).for_each(|(to, from)| *to = from);
            }
        }
        frame::Change::Delete { .. } => {}
    }
    Ok(())
}

fn put<T: Transaction>(transaction: &mut T, table: TableId, key: &[u8], words: &[u64]) -> Result<(), Error> {
    let row = RowRef::from_words(words);
    match transaction.put_unchecked(table, key, row)? {
        Insertion::Inserted => Ok(()),
        Insertion::Duplicate(index) => Err(transaction.constraints(table)?.duplicate(table, index, row)),
    }
}

#[cold]
fn unknown(table: TableId) -> Error {
    Error::corrupt(table_name(table), "a row was patched that the standby does not have".to_owned())
}
