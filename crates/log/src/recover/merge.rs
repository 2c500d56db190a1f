//! The rows of a log's tail and a checkpoint together, one by one.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::PoisonError;

use polychron_base::key::HashSeed;
use polychron_engine::mutations::left_out;
use polychron_schema::{IndexKind, KeyScratch};
use polychron_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use polychron_sync::{Mutex, prefetch_read};

use super::groups::{Grouping, Neighbours, Touched};
use super::keys::Entry;
pub use super::output::{Batch, Row};
use super::output::{Output, WORDS};
use super::part::{Below, Part};
use super::scatter::{hash_of, part_of};
use super::tables::Tables;
use crate::checkpoint::Range;
use crate::checkpoint::block::Rows;
use crate::error::{Error, RowFault};
use crate::frame::{Edit, Malformed};
use crate::steps::RecoveryStep;

/// How many keys ahead their patches are asked for.
const AHEAD: usize = 8;
/// How many rows of a checkpoint are looked up side by side.
const GROUP: usize = 32;

/// Receives rows, from several threads at a time.
pub trait Sink: Sync {
    /// Why it refuses rows.
    type Error: From<Error> + Send;

    /// Whether rows come as a checkpoint has them, encoded, and not as [`Batch::rows`]. Those that have not changed are not decoded, checked
    /// and encoded again then.
    const ENCODED: bool = false;

    /// How keys are grouped, if the groups of encoded rows are wanted, too.
    fn grouping(&self) -> Option<Grouping> {
        None
    }

    /// Rows of one table, in no order. Each row comes once in all.
    ///
    /// # Errors
    /// The error that ends the recovery.
    fn rows(&self, batch: &Batch<'_>) -> Result<(), Self::Error>;
}

/// The rows of a checkpoint, in parts that threads read side by side.
pub trait Source: Sync {
    /// How many parts there are.
    fn parts(&self) -> usize;

    /// Hands out all rows of a part, some of one table at a time, until it is told to stop.
    ///
    /// # Errors
    /// Faults of the part, and rows that are malformed.
    fn read(&self, part: usize, visit: &mut Visit<'_>) -> Result<(), Error>;
}

/// Receives rows of a checkpoint, and tells whether it wants others.
pub type Visit<'v> = dyn FnMut(Rows<'_>) -> Result<ControlFlow<()>, Malformed> + 'v;

/// No checkpoint.
impl Source for () {
    fn parts(&self) -> usize {
        0
    }

    fn read(&self, _: usize, _: &mut Visit<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// The changes that were gathered of each row, before they are merged with a checkpoint.
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
    /// The first error of sink or checkpoint, and [`Error::Row`].
    pub fn merge<C: Source, S: Sink>(self, threads: usize, checkpoint: &C, sink: &S) -> Result<u64, S::Error> {
        self.merge_apart(threads, checkpoint, sink, None)
    }

    /// The same. Rows of the checkpoint that are in no group of which something was gathered go to a sink of their own, if there is one.
    ///
    /// # Errors
    /// As of [`merge`](Self::merge).
    pub(crate) fn merge_apart<C: Source, S: Sink>(
        mut self,
        threads: usize,
        checkpoint: &C,
        sink: &S,
        apart: Option<(&Touched, &S)>,
    ) -> Result<u64, S::Error> {
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
            let mut outputs = Outputs {
                usual: Output::new(&self.tables, sink),
                apart: apart.map(|(touched, sink)| Apart::new(touched, Output::new(&self.tables, sink))),
            };
            self.pass_all(checkpoint, part, &mut outputs)?;
            outputs.apart.map_or(Ok(()), |apart| count(apart.output))?;
            count(outputs.usual)
        })?;
        let Self { tables, parts, seed, .. } = self;
        let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        side_by_side(threads, parts.len(), |number| -> Result<(), S::Error> {
            let part = parts[number].lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut output = Output::new(&tables, sink);
            // Its memory comes back with it.
            part.map_or(Ok(()), |part| rest(part, &tables, seed, CheckpointRows::Passed, &mut output))?;
            count(output)
        })?;
        Ok(rows.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds out what counts of each key, of all parts side by side.
    pub(crate) fn take_in(&mut self, threads: usize) {
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

    /// Hands out what was gathered, without the rows of a checkpoint: one change of each key, encoded, which has the same result over these rows as all
    /// that was gathered. Answers how many there were.
    ///
    /// # Errors
    /// Errors of the sink, and [`Error::Row`].
    pub(crate) fn changes<S: Sink>(self, sink: &S) -> Result<u64, S::Error> {
        const { assert!(S::ENCODED, "changes are not rows") };
        if self.tables.all().is_empty() {
            return Ok(0);
        }
        let mut output = Output::new(&self.tables, sink);
        // Their memory comes back part by part.
        self.parts
            .into_iter()
            .try_for_each(|part| rest(part, &self.tables, self.seed, CheckpointRows::Kept, &mut output))?;
        output.finish()
    }

    fn pass_all<'t, C: Source, S: Sink>(
        &'t self,
        checkpoint: &C,
        part: usize,
        outputs: &mut Outputs<'t, S>,
    ) -> Result<(), S::Error> {
        let mut result = Ok(());
        checkpoint.read(part, &mut |mut rows| {
            let Some(number) = self.tables.number(rows.table()) else { return Ok(ControlFlow::Continue(())) };
            let mut group = Group::default();
            while group.fill(&mut rows)? {
                let looked_up = group.look_up(self, number).map_err(S::Error::from);
                result = looked_up.and_then(|()| self.pass(number, &group, outputs));
                if result.is_err() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        result
    }

    /// Passes rows of the checkpoint on, as they are now.
    fn pass<'t, S: Sink>(
        &'t self,
        number: usize,
        group: &Group<'_, '_>,
        outputs: &mut Outputs<'t, S>,
    ) -> Result<(), S::Error> {
        let table = self.tables.get(number);
        for (looked, row) in group.rows() {
            let part = &self.parts[looked.part];
            let found = looked.likely.and_then(|likely| part.find(number, likely, looked.hash, row.key));
            if found.is_some_and(Entry::meet) && !left_out(RecoveryStep::RefuseTwice) {
                return Err(table.fault(row.key, RowFault::Twice).into());
            }
            let patched = match found.map(|entry| (entry, part.below(entry))) {
                None => None,
                Some((entry, Below::Checkpoint)) => Some(entry),
                Some((_, Below::Row(_))) if left_out(RecoveryStep::ReplaceInCheckpoint) => None,
                Some((_, Below::Nothing)) if left_out(RecoveryStep::DeleteFromCheckpoint) => None,
                Some((_, Below::Row(_) | Below::Nothing)) => continue,
            };
            let Some(entry) = patched else {
                outputs.of_unchanged(table.position, row.key).unchanged(table, row, looked.encoded)?;
                continue;
            };
            let output = &mut outputs.usual;
            output.batch(table)?.words.extend_from_slice(row.words);
            output.patch(part, entry, row.key)?;
            output.push(row.key)?;
        }
        Ok(())
    }
}

/// Where one thread gathers rows of a checkpoint.
struct Outputs<'t, S> {
    usual: Output<'t, S>,
    apart: Option<Apart<'t, S>>,
}

/// Rows near which nothing has changed.
struct Apart<'t, S> {
    touched: &'t Touched,
    neighbours: Neighbours,
    /// Whether the last row was near something that has changed.
    is_near: bool,
    output: Output<'t, S>,
}

impl<'t, S> Apart<'t, S> {
    fn new(touched: &'t Touched, output: Output<'t, S>) -> Self {
        Self { touched, neighbours: touched.neighbours(), is_near: true, output }
    }
}

impl<'t, S: Sink> Outputs<'t, S> {
    /// Where a row goes that has not changed. All rows that one thread passes at once are of one table.
    #[inline]
    fn of_unchanged(&mut self, table: u32, key: &[u8]) -> &mut Output<'t, S> {
        let Some(apart) = &mut self.apart else { return &mut self.usual };
        if let Some(group) = apart.neighbours.next(key) {
            apart.is_near = apart.touched.of_table(table).binary_search(&group).is_ok();
        }
        if apart.is_near { &mut self.usual } else { &mut apart.output }
    }
}

/// Rows of a checkpoint that are looked up side by side: what one of them needs of memory is asked for while others are looked at.
#[derive(Default)]
struct Group<'n, 'b> {
    words: Vec<u64>,
    keys: Vec<u8>,
    looked: Vec<Looked<'n, 'b>>,
    key: KeyScratch,
}

/// A row that is looked up.
struct Looked<'n, 'b> {
    encoded: &'b [u8],
    words_end: usize,
    key_end: usize,
    hash: u64,
    /// Which part its key belongs to.
    part: usize,
    /// Most likely what was gathered of its key; if there is none, nothing was.
    likely: Option<&'n Entry>,
    is_in_range: bool,
}

impl<'n, 'b> Group<'n, 'b> {
    /// Takes the next rows. Whether there were any.
    fn fill(&mut self, rows: &mut Rows<'b>) -> Result<bool, Malformed> {
        self.words.clear();
        self.keys.clear();
        self.looked.clear();
        while self.looked.len() < GROUP && self.words.len() < WORDS {
            let Some(read) = rows.next_into(&mut self.words) else { break };
            let (encoded, words_end) = (read?, self.words.len());
            self.looked.push(Looked {
                encoded,
                words_end,
                key_end: 0,
                hash: 0,
                part: 0,
                likely: None,
                is_in_range: false,
            });
        }
        Ok(!self.looked.is_empty())
    }

    fn look_up(&mut self, newest: &'n Newest, number: usize) -> Result<(), Error> {
        let (table, mut start) = (newest.tables.get(number), 0);
        for looked in &mut self.looked {
            let key = table.key_of(&self.words[start..looked.words_end], &mut self.key)?;
            looked.is_in_range = newest.range.has_key(key);
            looked.hash = hash_of(newest.seed, key);
            looked.part = part_of(newest.seed, key, newest.parts.len());
            newest.parts[looked.part].fetch_slot(number, looked.hash);
            self.keys.extend_from_slice(key);
            (start, looked.key_end) = (looked.words_end, self.keys.len());
        }
        for looked in &mut self.looked {
            looked.likely = newest.parts[looked.part].candidate(number, looked.hash);
            looked.likely.into_iter().for_each(|entry| prefetch_read(entry));
        }
        self.looked.iter().for_each(|looked| newest.parts[looked.part].fetch_patch(looked.likely));
        self.looked.iter().for_each(|looked| newest.parts[looked.part].fetch_bytes(looked.likely));
        Ok(())
    }

    /// The rows that are in the range.
    fn rows(&self) -> impl Iterator<Item = (&Looked<'n, 'b>, Row<'_>)> {
        let mut begin = (0, 0);
        let rows = self.looked.iter().map(move |looked| {
            let row = Row { key: &self.keys[begin.0..looked.key_end], words: &self.words[begin.1..looked.words_end] };
            begin = (looked.key_end, looked.words_end);
            (looked, row)
        });
        rows.filter(|(looked, _)| looked.is_in_range)
    }
}

/// Whether the checkpoint's rows are handed out, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckpointRows {
    /// They were passed on, as they are now.
    Passed,
    /// They stay as they are, and what has changed comes over them.
    Kept,
}

/// Hands out what a part has, and what was not passed on with the checkpoint's rows.
fn rest<'t, S: Sink>(
    mut part: Part,
    tables: &'t Tables,
    seed: HashSeed,
    checkpoint: CheckpointRows,
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
                    if checkpoint == CheckpointRows::Kept {
                        output.change(table, &Edit::Delete(key))?;
                    }
                }
                Below::Checkpoint if checkpoint == CheckpointRows::Kept => {
                    output.patch_checkpoint_row(table, &part, entry)?
                }
                Below::Checkpoint if entry.was_met() || left_out(RecoveryStep::AwaitPatched) => {}
                Below::Checkpoint => return Err(table.fault(key, RowFault::PatchOfNothing).into()),
            }
        }
    }
    Ok(())
}

/// Does so many things on so many threads, until one fails.
pub(super) fn side_by_side<E: Send>(
    threads: usize,
    count: usize,
    act: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
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
