//! What a log's tail and a checkpoint have together, row by row.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::PoisonError;

use polychron_base::key::HashSeed;
use polychron_engine::mutations::left_out;
use polychron_schema::{IndexKind, KeyScratch, TableDefinition};
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::keys::Entry;
use super::part::{Below, Part};
use super::scatter::{hash_of, part_of};
use super::tables::{Table, Tables};
use crate::checkpoint::Range;
use crate::error::{Error, RowFault};
use crate::steps::RecoveryStep;

/// How many rows, and how many words, are handed over at once.
const ROWS: usize = 1 << 10;
const WORDS: usize = 8 << 10;
/// How many keys ahead their patches are asked for.
const AHEAD: usize = 8;

/// Receives rows, from several threads at a time.
pub trait Sink: Sync {
    /// Why it refuses rows.
    type Error: From<Error> + Send;

    /// Rows of one table, in no order. Each row comes once in all.
    ///
    /// # Errors
    /// What ends the recovery.
    fn rows(&self, batch: &Batch<'_>) -> Result<(), Self::Error>;
}

/// The rows of a checkpoint, in parts that threads read side by side.
pub trait Source: Sync {
    /// How many parts there are.
    fn parts(&self) -> usize;

    /// Hands out all rows of a part, each with the position of its table, until it is told to stop.
    ///
    /// # Errors
    /// What is wrong with the part.
    fn read(&self, part: usize, row: &mut dyn FnMut(u32, &[u64]) -> ControlFlow<()>) -> Result<(), Error>;
}

/// No checkpoint.
impl Source for () {
    fn parts(&self) -> usize {
        0
    }

    fn read(&self, _: usize, _: &mut dyn FnMut(u32, &[u64]) -> ControlFlow<()>) -> Result<(), Error> {
        Ok(())
    }
}

/// A row and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'b> {
    /// The encoded primary key.
    pub key: &'b [u8],
    /// All words; they are a row of the table's layout.
    pub words: &'b [u64],
}

/// Rows of one table.
#[derive(Debug)]
pub struct Batch<'t> {
    table: &'t Table,
    words: Vec<u64>,
    keys: Vec<u8>,
    /// Where key and words of each row end.
    ends: Vec<(usize, usize)>,
}

impl<'t> Batch<'t> {
    fn new(table: &'t Table) -> Self {
        Self { table, words: Vec::new(), keys: Vec::new(), ends: Vec::new() }
    }

    /// The position of the table in the catalog.
    pub fn table(&self) -> u32 {
        self.table.position
    }

    /// What defines the table.
    pub fn definition(&self) -> &'t TableDefinition {
        &self.table.definition
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The rows, as often as is wanted.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        let mut begin = (0, 0);
        self.ends.iter().map(move |&(key, words)| {
            let row = Row { key: &self.keys[begin.0..key], words: &self.words[begin.1..words] };
            begin = (key, words);
            row
        })
    }

    /// Where the row begins that is appended next.
    fn start(&self) -> usize {
        self.ends.last().map_or(0, |(_, words)| *words)
    }

    fn clear(&mut self) {
        self.words.clear();
        self.keys.clear();
        self.ends.clear();
    }
}

/// What was gathered of each row, before it is merged with a checkpoint.
#[derive(Debug)]
pub struct Newest {
    pub(super) tables: Tables,
    pub(super) range: Range,
    pub(super) touched: BTreeSet<u32>,
    pub(super) puts: u64,
    pub(super) seed: HashSeed,
    pub(super) parts: Vec<Part>,
}

impl Newest {
    /// The positions of tables of which something was logged, of any keys.
    pub fn touched(&self) -> &BTreeSet<u32> {
        &self.touched
    }

    /// How often rows were put: at most so many are there beside those of the checkpoint.
    pub fn puts(&self) -> u64 {
        self.puts
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.parts.iter().map(Part::memory_bytes).sum()
    }

    /// Hands out each row once: first those of the checkpoint, as they are now, and then those that were put since. So many threads do it; the caller's
    /// alone if it is one or none. Rows of tables that are not in the catalog are passed over. Answers how many rows there were.
    ///
    /// # Errors
    /// What sink or checkpoint say first, and [`Error::Row`].
    pub fn merge<C: Source, S: Sink>(mut self, threads: usize, checkpoint: &C, sink: &S) -> Result<u64, S::Error> {
        if self.tables.all().is_empty() {
            return Ok(0);
        }
        if checkpoint.parts() > 0 {
            self.take_in(threads);
        }
        let rows = Mutex::new(0);
        let count = |output: Output<'_, S>| -> Result<(), S::Error> {
            let count = output.finish()?;
            *rows.lock().unwrap_or_else(PoisonError::into_inner) += count;
            Ok(())
        };
        side_by_side(threads, checkpoint.parts(), |part| -> Result<(), S::Error> {
            let mut output = Output::new(&self.tables, sink);
            self.pass_all(checkpoint, part, &mut output)?;
            count(output)
        })?;
        let Self { tables, parts, seed, .. } = self;
        let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        side_by_side(threads, parts.len(), |number| -> Result<(), S::Error> {
            let part = parts[number].lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut output = Output::new(&tables, sink);
            // Its memory comes back with it.
            part.map_or(Ok(()), |part| rest(part, &tables, seed, &mut output))?;
            count(output)
        })?;
        Ok(rows.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds out what counts of each key, of all parts side by side.
    fn take_in(&mut self, threads: usize) {
        let (seed, parts) =
            (self.seed, std::mem::take(&mut self.parts).into_iter().map(Mutex::new).collect::<Vec<_>>());
        let done: Result<(), Infallible> = side_by_side(threads, parts.len(), |number| {
            let mut part = parts[number].lock().unwrap_or_else(PoisonError::into_inner);
            part.take_in(seed);
            part.shrink();
            Ok(())
        });
        let Ok(()) = done;
        self.parts = parts.into_iter().map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    }

    fn pass_all<'t, C: Source, S: Sink>(
        &'t self,
        checkpoint: &C,
        part: usize,
        output: &mut Output<'t, S>,
    ) -> Result<(), S::Error> {
        let (mut result, mut scratch) = (Ok(()), KeyScratch::new());
        checkpoint.read(part, &mut |table, row| {
            result = self.pass(table, row, &mut scratch, output);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }

    /// Passes a row of the checkpoint on, as it is now.
    fn pass<'t, S: Sink>(
        &'t self,
        position: u32,
        row: &[u64],
        scratch: &mut KeyScratch,
        output: &mut Output<'t, S>,
    ) -> Result<(), S::Error> {
        let Some(number) = self.tables.number(position) else { return Ok(()) };
        let table = self.tables.get(number);
        let key = table.key_of(row, scratch)?;
        if !self.range.has_key(key) {
            return Ok(());
        }
        let hash = hash_of(self.seed, key);
        let part = &self.parts[part_of(self.seed, key, self.parts.len())];
        let found = part.find(number, hash, key);
        if found.is_some_and(Entry::meet) && !left_out(RecoveryStep::RefuseTwice) {
            return Err(table.fault(key, RowFault::Twice).into());
        }
        let patched = match found {
            None => None,
            Some(entry) => match part.below(entry) {
                Below::Checkpoint => Some(entry),
                Below::Row(_) if left_out(RecoveryStep::ReplaceInCheckpoint) => None,
                Below::Nothing if left_out(RecoveryStep::DeleteFromCheckpoint) => None,
                Below::Row(_) | Below::Nothing => return Ok(()),
            },
        };
        let batch = output.batch(table)?;
        batch.words.extend_from_slice(row);
        if let Some(entry) = patched {
            output.patch(part, entry, key)?;
        }
        output.push(key)
    }
}

/// Hands out the rows that a part has, and that the checkpoint has not handed out.
fn rest<'t, S: Sink>(
    mut part: Part,
    tables: &'t Tables,
    seed: HashSeed,
    output: &mut Output<'t, S>,
) -> Result<(), S::Error> {
    part.take_in(seed);
    for (number, table) in tables.all().iter().enumerate() {
        let entries = part.take(number, table.definition.primary_kind == IndexKind::Ordered);
        for (at, entry) in entries.iter().enumerate() {
            part.fetch_patch(entries.get(at + 2 * AHEAD));
            part.fetch_bytes(entries.get(at + AHEAD));
            let key = part.key(entry);
            match part.below(entry) {
                Below::Row(words) => {
                    words.append_to(&mut output.batch(table)?.words);
                    if !left_out(RecoveryStep::ApplyPatches) {
                        output.patch(&part, entry, key)?;
                    }
                    output.push(key)?;
                }
                Below::Nothing => {
                    table.check_key(key)?;
                    if part.patches(entry, &mut output.patches) && !left_out(RecoveryStep::RefusePatchOfNothing) {
                        return Err(table.fault(key, RowFault::PatchOfNothing).into());
                    }
                }
                Below::Checkpoint if entry.was_met() || left_out(RecoveryStep::AwaitPatched) => {}
                Below::Checkpoint => return Err(table.fault(key, RowFault::PatchOfNothing).into()),
            }
        }
    }
    Ok(())
}

/// Where one thread gathers rows for the sink.
struct Output<'t, S> {
    sink: &'t S,
    batch: Batch<'t>,
    rows: u64,
    patches: Vec<u32>,
    key: KeyScratch,
}

impl<'t, S: Sink> Output<'t, S> {
    fn new(tables: &'t Tables, sink: &'t S) -> Self {
        let batch = Batch::new(tables.get(0));
        Self { sink, batch, rows: 0, patches: Vec::new(), key: KeyScratch::new() }
    }

    /// The batch that a row of this table is appended to.
    fn batch(&mut self, table: &'t Table) -> Result<&mut Batch<'t>, S::Error> {
        if self.batch.table.position != table.position {
            self.flush()?;
            self.batch.table = table;
        }
        Ok(&mut self.batch)
    }

    /// Applies its patches to the row that was appended.
    fn patch(&mut self, part: &Part, entry: &Entry, key: &[u8]) -> Result<(), Error> {
        if !part.patches(entry, &mut self.patches) {
            return Ok(());
        }
        let (start, table) = (self.batch.start(), self.batch.table);
        for number in &self.patches {
            for (first, words) in part.ranges(*number) {
                let end = start + first + words.len();
                if end > self.batch.words.len() && left_out(RecoveryStep::RefusePatchBeyondEnd) {
                    self.batch.words.resize(end, 0);
                }
                let Some(range) = self.batch.words.get_mut(start + first..end) else {
                    return Err(table.fault(key, RowFault::PatchBeyondEnd));
                };
                range.iter_mut().zip(words).for_each(|(to, from)| *to = from);
            }
        }
        table.check_same(key, &self.batch.words[start..], &mut self.key)
    }

    /// The row that was appended is whole.
    fn push(&mut self, key: &[u8]) -> Result<(), S::Error> {
        let batch = &mut self.batch;
        batch.table.check(key, &batch.words[batch.start()..])?;
        batch.keys.extend_from_slice(key);
        batch.ends.push((batch.keys.len(), batch.words.len()));
        if batch.len() >= ROWS || batch.words.len() >= WORDS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), S::Error> {
        if !self.batch.is_empty() {
            self.sink.rows(&self.batch)?;
            self.rows += self.batch.len() as u64;
            self.batch.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<u64, S::Error> {
        self.flush()?;
        Ok(self.rows)
    }
}

/// Does so many things on so many threads, until one fails.
fn side_by_side<E: Send>(threads: usize, count: usize, act: impl Fn(usize) -> Result<(), E> + Sync) -> Result<(), E> {
    if threads <= 1 || count <= 1 {
        return (0..count).try_for_each(act);
    }
    let (next, has_failed, failure) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(None));
    let work = || {
        while !has_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            if let Err(error) = act(number) {
                has_failed.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads.min(count)).for_each(|_| {
            // With fewer threads it takes longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        });
        work();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
