//! Rows on their way out: where each thread gathers them for the sink.

use polychron_engine::mutations::left_out;
use polychron_schema::{KeyScratch, TableDefinition};

use super::groups::Neighbours;
use super::keys::Entry;
use super::merge::Sink;
use super::part::Part;
use super::tables::{Table, Tables};
use crate::error::{Error, RowFault};
use crate::frame::{Edit, Words};
use crate::steps::{CheckpointStep, RecoveryStep};

/// How many rows, and how many words, are handed over at once.
const ROWS: usize = 1 << 10;
pub(super) const WORDS: usize = 8 << 10;

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
    pub(super) words: Vec<u64>,
    keys: Vec<u8>,
    /// Where key and words of each row end.
    ends: Vec<(usize, usize)>,
    /// Rows that are encoded instead, and where each ends.
    encoded: Vec<u8>,
    encoded_ends: Vec<usize>,
    /// The groups of the keys of these, as far as the sink wants to know them.
    groups: Vec<u64>,
}

impl<'t> Batch<'t> {
    fn new(table: &'t Table) -> Self {
        Self {
            table,
            words: Vec::new(),
            keys: Vec::new(),
            ends: Vec::new(),
            encoded: Vec::new(),
            encoded_ends: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// The position of the table in the catalog.
    pub fn table(&self) -> u32 {
        self.table.position
    }

    /// The table's definition.
    pub fn definition(&self) -> &'t TableDefinition {
        &self.table.definition
    }

    /// The key of an encoded row of the table, of which no more is decoded into `words` than that takes.
    pub(crate) fn key_of_encoded<'s>(
        &self,
        row: Words<'_>,
        words: &mut Vec<u64>,
        scratch: &'s mut KeyScratch,
    ) -> Result<&'s [u8], Error> {
        self.table.key_of_encoded(row, words, scratch)
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len() + self.encoded_ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows, as often as is wanted, if the sink does not want them encoded.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        let mut begin = (0, 0);
        self.ends.iter().map(move |&(key, words)| {
            let row = Row { key: &self.keys[begin.0..key], words: &self.words[begin.1..words] };
            begin = (key, words);
            row
        })
    }

    /// The rows as a checkpoint has them, if the sink wants them so, and where each of them ends.
    pub(crate) fn encoded(&self) -> (&[u8], &[usize]) {
        (&self.encoded, &self.encoded_ends)
    }

    /// The groups of the rows' keys, if the sink wants to know them.
    pub(crate) fn groups(&self) -> &[u64] {
        &self.groups
    }

    /// Where the row begins that is appended next.
    pub(super) fn start(&self) -> usize {
        self.ends.last().map_or(0, |(_, words)| *words)
    }

    fn clear(&mut self) {
        self.words.clear();
        self.keys.clear();
        self.ends.clear();
        self.encoded.clear();
        self.encoded_ends.clear();
        self.groups.clear();
    }
}

/// Where one thread gathers rows for the sink.
pub(super) struct Output<'t, S> {
    sink: &'t S,
    batch: Batch<'t>,
    rows: u64,
    pub(super) patches: Vec<u32>,
    key: KeyScratch,
    /// The keys of encoded rows, if the sink wants to know their groups.
    neighbours: Option<Neighbours>,
}

impl<'t, S: Sink> Output<'t, S> {
    pub(super) fn new(tables: &'t Tables, sink: &'t S) -> Self {
        let batch = Batch::new(tables.get(0));
        let neighbours = sink.grouping().map(Neighbours::new);
        Self { sink, batch, rows: 0, patches: Vec::new(), key: KeyScratch::new(), neighbours }
    }

    /// The batch that a row of this table is appended to.
    pub(super) fn batch(&mut self, table: &'t Table) -> Result<&mut Batch<'t>, S::Error> {
        if self.batch.table.position != table.position {
            self.flush()?;
            self.batch.table = table;
        }
        Ok(&mut self.batch)
    }

    /// Applies its patches to the row that was appended.
    pub(super) fn patch(&mut self, part: &Part, entry: &Entry, key: &[u8]) -> Result<(), Error> {
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

    /// A row of the checkpoint that has not changed. One that a checkpoint takes on was checked when it was first written to one, and its block's
    /// checksum says that it is still that.
    pub(super) fn unchanged(&mut self, table: &'t Table, row: Row<'_>, encoded: &[u8]) -> Result<(), S::Error> {
        let batch = self.batch(table)?;
        if !S::ENCODED {
            batch.words.extend_from_slice(row.words);
            return self.push(row.key);
        }
        batch.encoded.extend_from_slice(encoded);
        batch.encoded_ends.push(batch.encoded.len());
        if !left_out(CheckpointStep::NotePassed) {
            self.note(row.key);
        }
        self.flush_full()
    }

    /// Notes the group of a row that was appended.
    #[inline]
    fn note(&mut self, key: &[u8]) {
        let group = self.neighbours.as_mut().and_then(|neighbours| neighbours.next(key));
        self.batch.groups.extend(group);
    }

    /// All patches of a row that is not known, as one.
    pub(super) fn patch_checkpoint_row(
        &mut self,
        table: &'t Table,
        part: &Part,
        entry: &Entry,
    ) -> Result<(), S::Error> {
        part.patches(entry, &mut self.patches);
        let patched = part.newest(&self.patches);
        let words: Vec<u64> = patched.iter().map(|(_, word)| *word).collect();
        let (mut ranges, mut rest) = (Vec::new(), words.as_slice());
        for range in patched.chunk_by(|(at, _), (next, _)| at + 1 == *next) {
            let (words, behind) = rest.split_at(range.len());
            ranges.push((range[0].0, words));
            rest = behind;
        }
        self.change(table, &Edit::Patch(part.key(entry), &ranges))
    }

    /// A change that is not a row.
    pub(super) fn change(&mut self, table: &'t Table, edit: &Edit<'_>) -> Result<(), S::Error> {
        let batch = self.batch(table)?;
        edit.write(table.position, &mut batch.encoded);
        batch.encoded_ends.push(batch.encoded.len());
        self.flush_full()
    }

    /// The row that was appended is whole.
    pub(super) fn push(&mut self, key: &[u8]) -> Result<(), S::Error> {
        let batch = &mut self.batch;
        batch.table.check(key, &batch.words[batch.start()..])?;
        if S::ENCODED {
            Edit::Put(&batch.words).write(batch.table.position, &mut batch.encoded);
            batch.encoded_ends.push(batch.encoded.len());
            batch.words.clear();
            self.note(key);
        } else {
            batch.keys.extend_from_slice(key);
            batch.ends.push((batch.keys.len(), batch.words.len()));
        }
        self.flush_full()
    }

    /// Hands over what has come if it is much.
    fn flush_full(&mut self) -> Result<(), S::Error> {
        let Batch { words, encoded, .. } = &self.batch;
        let is_full = self.batch.len() >= ROWS || words.len() >= WORDS || encoded.len() >= 8 * WORDS;
        if is_full { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), S::Error> {
        if !self.batch.is_empty() {
            self.sink.rows(&self.batch)?;
            self.rows += self.batch.len() as u64;
            self.batch.clear();
            // The next rows may be another file's.
            self.neighbours.iter_mut().for_each(Neighbours::forget);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<u64, S::Error> {
        self.flush()?;
        Ok(self.rows)
    }
}
