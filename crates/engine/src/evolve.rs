//! Tables that become tables of rows with other columns: `docs/evolution.md`.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{
    Evolution, EvolutionError, IndexDefinition, KeyExtractor, KeyScratch, Layout, Row, RowBuffer, RowRef,
};

use crate::definitions::Standing;
use crate::mutations::left_out;
use crate::{
    Access, Declare, Direction, Insertion, Operations, Procedure, Projection, Protocol, Scan, Storage, Table,
    TableDefinition, Transaction, limits,
};

crate::named! {
    /// Steps of an evolution that can be left out.
    pub enum Step {
        /// Refuse writes into the old table while it is copied.
        HoldTable,
    }
}

/// Rows that one transaction copies.
const ROWS: usize = 256;

/// The table of the rows `R`, if there is one of this name: as it is, or made one of these rows by what they declare of their past.
/// `execute` executes a procedure in a transaction.
///
/// # Errors
/// [`Error::WaitsForItself`] where the calling thread has a transaction open; [`EvolutionError`], of the first column that does not fit; those of
/// [`Table::with_id`], and of writes into the new table, which may have unique indexes and foreign keys that the old one has not;
/// [`Error::TimedOut`], [`Error::Cancelled`] and [`Error::Conflicts`] where others have open for too long what stands in the way. The old table is
/// then as it was.
pub fn open<P: Protocol, R: Row>(
    database: &P,
    execute: &mut impl FnMut(&mut Copy) -> Result<bool, Error>,
) -> Result<Option<Table<R>>, Error> {
    let changing = |error: Error| error.making(|| format!("the change of {}", R::NAME));
    loop {
        let Some(id) = database.find_table(R::NAME) else { return Ok(None) };
        let (storage, time) = (database.storage(), database.storage().longest_wait());
        let present = match limits::patiently(time, || database.definition(id)) {
            Ok(present) => present,
            // Another one has come in its place, or it has gone.
            Err(_) if database.find_table(R::NAME) != Some(id) => continue,
            Err(error) => return Err(changing(error)),
        };
        let wanted = R::definition();
        let Some(evolution) = Evolution::between(&present, &wanted, &R::history())? else {
            match limits::patiently(time, || Table::with_id(database, id)) {
                Err(_) if database.find_table(R::NAME) != Some(id) => continue,
                other => return other.map(Some).map_err(changing),
            }
        };
        if storage.waits_for_itself() {
            // Whoever changes a table waits for the transaction that this thread has open.
            return Err(Error::waits_for_itself(id, None));
        }
        let _alone = limits::check().and_then(|()| limits::lock(storage.evolving())).map_err(changing)?;
        if database.find_table(R::NAME) == Some(id) {
            Change::new(storage, id, &present, wanted, evolution)?.run(execute).map_err(changing)?;
        }
    }
}

/// A table on its way. What was made of it goes again when this is dropped before its end.
struct Change<'d> {
    storage: &'d dyn Storage,
    old: TableId,
    why: Arc<EvolutionError>,
    evolution: Evolution,
    older: Layout,
    wanted: TableDefinition,
    barrier: IndexDefinition,
    /// The index by which the old rows are read, and the new table, as soon as they are there.
    made: (Option<IndexId>, Option<TableId>),
    is_held: bool,
    is_done: bool,
}

impl<'d> Change<'d> {
    fn new(
        storage: &'d dyn Storage,
        old: TableId,
        present: &TableDefinition,
        wanted: TableDefinition,
        evolution: Evolution,
    ) -> Result<Self, Error> {
        let table = present.name.clone();
        if let Some(reference) = wanted.foreign_keys.iter().find(|reference| reference.parent == table) {
            let child = reference.parent.clone();
            return Err(EvolutionError::Referenced { table, child }.into());
        }
        let mut wanted = TableDefinition { name: format!("{table} (with other columns)"), ..wanted };
        // Who made the other indexes is not known: they stay, over the same columns.
        for index in &present.indexes {
            if !wanted.indexes.iter().any(|declared| declared.name == index.name) {
                wanted.indexes.push(evolution.index(index));
            }
        }
        let why = EvolutionError::Superseded { table, difference: evolution.difference().to_owned() };
        // In the order of the primary key, whatever kind of index that has.
        let barrier = IndexDefinition::new("(while its columns change)", present.key.clone()).with_unique(true);
        let (why, older) = (Arc::new(why), present.layout()?);
        Ok(Self {
            storage,
            old,
            why,
            evolution,
            older,
            wanted,
            barrier,
            made: (None, None),
            is_held: false,
            is_done: false,
        })
    }

    fn run(mut self, execute: &mut impl FnMut(&mut Copy) -> Result<bool, Error>) -> Result<(), Error> {
        let time = self.storage.longest_wait();
        if !left_out(Step::HoldTable) {
            limits::patiently(time, || self.storage.hold_table(self.old, Some(Arc::clone(&self.why))))?;
            self.is_held = true;
        }
        // Whoever began before the table was held knows nothing of the index, and can no longer commit a write once that is made.
        let index = self.storage.create_index(self.old, self.barrier.clone(), Standing::Provisional)?;
        self.made.0 = Some(index);
        let new = limits::patiently(time, || self.storage.create_table(self.wanted.clone(), Standing::Provisional))?;
        self.made.1 = Some(new);
        let mut copy = Copy {
            old: (self.old, index, self.older.clone()),
            new: (new, self.wanted.layout()?),
            evolution: self.evolution.clone(),
            keys: KeyExtractor::primary(&self.wanted)?,
            behind: None,
            last: None,
        };
        while limits::patiently(time, || execute(&mut copy))? {
            copy.behind = copy.last.take();
        }
        limits::patiently(time, || self.storage.supersede_table((self.old, Arc::clone(&self.why)), new))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // What ended the change is not to end this.
        limits::lifted(|| {
            let time = self.storage.longest_wait();
            // What cannot be undone stays; nothing of it is seen under the table's name.
            if let Some(new) = self.made.1 {
                let _ = limits::patiently(time, || self.storage.drop_table(new));
            }
            if let Some(index) = self.made.0 {
                let _ = limits::patiently(time, || self.storage.drop_index(self.old, index));
            }
            if self.is_held {
                let _ = self.storage.hold_table(self.old, None);
            }
        });
    }
}

/// The key of a new row, and the row.
type NewRow = (Box<[u8]>, RowBuffer);

/// Copies some rows of an old table, as rows of the new one; whether there may be more.
#[derive(Debug)]
pub struct Copy {
    old: (TableId, IndexId, Layout),
    new: (TableId, Layout),
    evolution: Evolution,
    keys: KeyExtractor,
    /// The key of the last row that was copied by earlier transactions.
    behind: Option<Box<[u8]>>,
    /// The key of the last row that this transaction has changed; the transaction may be run again.
    last: Option<Box<[u8]>>,
}

impl Copy {
    fn read<T: Transaction>(&self, transaction: &mut T) -> Result<Vec<NewRow>, Error> {
        let (old, index, older) = &self.old;
        let mut rows = Vec::with_capacity(ROWS);
        let mut failed = None;
        let scan = Scan {
            index: *index,
            lower: self.behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            direction: Direction::Forward,
            limit: ROWS,
            projection: Projection::ALL,
            ..Scan::all(*old)
        };
        transaction.scan_unchecked(&scan, &mut |row| match self.convert(older, row) {
            Ok(row) => {
                rows.push(row);
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(rows), Err)
    }

    fn convert(&self, older: &Layout, row: RowRef<'_>) -> Result<NewRow, Error> {
        let (mut buffer, mut scratch) = (RowBuffer::new(), KeyScratch::new());
        self.evolution.convert((older, row), &self.new.1, &mut buffer)?;
        let key = self.keys.extract(buffer.as_row(), &mut scratch)?.into();
        Ok((key, buffer))
    }
}

impl Procedure for Copy {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
        let rows = self.read(transaction)?;
        for (key, row) in &rows {
            match transaction.insert_row(self.new.0, &key[..], row.as_row())? {
                Insertion::Inserted => {}
                Insertion::Duplicate(index) => {
                    let constraints = transaction.constraints(self.new.0)?;
                    return Err(constraints.duplicate(self.new.0, index, row.as_row()));
                }
            }
        }
        let is_full = rows.len() == ROWS;
        self.last = rows.into_iter().next_back().map(|(key, _)| key);
        Ok(is_full)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.new.0, all, Access::Write);
    }
}
