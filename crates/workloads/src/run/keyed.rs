//! Loading and scanning of tables with the keys 0, 1, 2, …, which several workloads share.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use polychron_base::Error;
use polychron_base::key::Key8;
use polychron_engine::{Access, Declare, Insertion, Procedure, Protocol, TableId, Transaction, Worker};
use polychron_schema::{ColumnSpan, IndexKind, Layout, Projection, RowBuffer, RowRef};

/// The kind of index on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IndexChoice {
    /// Points only, one cache line a lookup
    #[default]
    Hash,
    /// Points and ranges
    Ordered,
}

impl From<IndexChoice> for IndexKind {
    fn from(choice: IndexChoice) -> Self {
        match choice {
            IndexChoice::Hash => Self::Hash,
            IndexChoice::Ordered => Self::Ordered,
        }
    }
}

/// Rows that one transaction of a load inserts, or of a check reads.
const CHUNK: u64 = 100;

/// Position and place of a column.
pub fn span(layout: &Layout, column: usize) -> ColumnSpan {
    ColumnSpan { index: column as u16, slot: layout.columns()[column].slot }
}

/// One of the equal parts of the rows, which a thread of several loads.
#[derive(Clone, Copy)]
pub struct Share<'l> {
    /// Its number, from 0.
    pub part: usize,
    /// The number of parts.
    pub parts: usize,
    /// The seed of all that is drawn.
    pub seed: u64,
    /// Told how many rows were inserted, from time to time.
    pub progress: &'l (dyn Fn(u64) + Sync),
}

impl Share<'_> {
    /// The share in `0..count`, which is nearly as long as all others.
    pub fn of(&self, count: u64) -> Range<u64> {
        let at = |part: usize| (u128::from(count) * part as u128 / self.parts as u128) as u64;
        at(self.part)..at(self.part + 1)
    }
}

impl fmt::Debug for Share<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, parts, seed, .. } = self;
        write!(formatter, "part {part} of {parts}, seed {seed}")
    }
}

/// Inserts one part of the rows with the keys `0..count`, each as `build` makes it.
///
/// # Errors
/// The errors of the database.
pub fn load_rows<W: Worker>(
    worker: &mut W,
    table: TableId,
    count: u64,
    share: &Share<'_>,
    build: impl FnMut(u64, &mut RowBuffer) + Send,
) -> Result<(), Error> {
    let mut chunk = LoadChunk { table, keys: 0..0, buffer: RowBuffer::new(), build };
    let keys = share.of(count);
    for start in keys.clone().step_by(CHUNK as usize) {
        chunk.keys = start..keys.end.min(start + CHUNK);
        worker.execute(&mut chunk)?;
        (share.progress)(chunk.keys.end - start);
    }
    Ok(())
}

struct LoadChunk<B> {
    table: TableId,
    keys: Range<u64>,
    buffer: RowBuffer,
    build: B,
}

impl<B: FnMut(u64, &mut RowBuffer) + Send> Procedure for LoadChunk<B> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        for key in self.keys.clone() {
            (self.build)(key, &mut self.buffer);
            match transaction.insert_unchecked(self.table, Key8::new(key, 8), self.buffer.as_row())? {
                Insertion::Inserted => {}
                Insertion::Duplicate(index) => return Err(Error::duplicate(self.table, index)),
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.keys.clone().for_each(|key| declaration.key(self.table, Key8::new(key, 8), Access::Insert));
    }
}

/// Shows `visit` the rows with the keys `0..count` of a database at rest, by point reads, so that any index will do; keys
/// without a row are left out.
///
/// # Errors
/// The errors of the database.
pub fn for_each_row<P: Protocol>(
    database: &Arc<P>,
    table: TableId,
    count: u64,
    visit: impl FnMut(u64, RowRef<'_>) + Send,
) -> Result<(), Error> {
    let mut worker = database.worker()?;
    let mut chunk = ReadChunk { table, keys: 0..0, visit };
    for start in (0..count).step_by(CHUNK as usize) {
        chunk.keys = start..count.min(start + CHUNK);
        worker.execute(&mut chunk)?;
    }
    Ok(())
}

struct ReadChunk<V> {
    table: TableId,
    keys: Range<u64>,
    visit: V,
}

impl<V: FnMut(u64, RowRef<'_>) + Send> Procedure for ReadChunk<V> {
    type Output = ();
    type Error = Error;

    /// Runs once: a database at rest has no conflicts.
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        for key in self.keys.clone() {
            if let Some(row) = transaction.read_row(self.table, Key8::new(key, 8), &Projection::ALL)? {
                (self.visit)(key, row);
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.keys.clone().for_each(|key| declaration.key(self.table, Key8::new(key, 8), Access::Read));
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn parts_cover_all() {
        for (count, parts) in [(0, 3), (2, 3), (10, 3), (10, 1)] {
            let all: Vec<u64> =
                (0..parts).flat_map(|part| Share { part, parts, seed: 0, progress: &|_| () }.of(count)).collect();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }
}
