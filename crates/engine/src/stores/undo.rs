//! The undo log: what a rollback puts back, and what a commit clears away. Neither needs memory, so neither can fail.

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_index::AnyIndex;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::Changes;

use super::record::{Record, is_too_roomy};
use super::rows::words_of;
use crate::redo::Change;

/// The indexes of a protocol whose rows are written in place, and what becomes of records that leave them.
pub trait Undoable {
    /// Identifies the index of an entry.
    type At: Copy;

    /// The index of an entry; it stays while the transaction runs.
    fn index(&self, at: Self::At) -> &AnyIndex;

    /// Gives a record back that no index still leads to: by default, when all guards of the present have gone.
    ///
    /// # Safety
    /// The transaction still holds the locks for writing it, and the index has forgotten it.
    unsafe fn give_back(&self, record: Record, guard: &Guard<'_>) {
        // A scan that has collected its handle finds it deleted, and looks the key up again.
        record.set_deleted(true);
        // SAFETY: the index has forgotten it, as the caller promises.
        unsafe { record.retire(guard) };
    }
}

/// A run of the log's keys or words.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
enum Undo<A> {
    /// The key was absent.
    Inserted { at: A, key: Span, record: Record },
    /// These words, from the given one on, were overwritten, and the row had this length.
    Overwritten { at: A, record: Record, first: usize, words: Span, length: usize },
    /// The index led to `old`.
    Replaced { at: A, key: Span, old: Record, new: Record },
    /// The record was marked as deleted.
    Deleted { at: A, key: Span, record: Record },
}

/// The changes of the running transaction, in order.
#[derive(Debug)]
pub struct UndoLog<A> {
    entries: Vec<Undo<A>>,
    keys: Vec<u8>,
    words: Vec<u64>,
}

impl<A> Default for UndoLog<A> {
    fn default() -> Self {
        Self { entries: Vec::new(), keys: Vec::new(), words: Vec::new() }
    }
}

impl<A: Copy> UndoLog<A> {
    /// The number of logged changes.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is noted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The indexes in which the changes were made.
    pub fn index_refs(&self) -> impl Iterator<Item = A> {
        self.entries.iter().map(|entry| match *entry {
            Undo::Inserted { at, .. }
            | Undo::Overwritten { at, .. }
            | Undo::Replaced { at, .. }
            | Undo::Deleted { at, .. } => at,
        })
    }

    #[inline]
    fn keep_key<K: EncodedKey>(&mut self, key: K) -> Span {
        let start = self.keys.len();
        self.keys.resize(start + key.len(), 0);
        key.write_to(&mut self.keys[start..]);
        Span { start, end: self.keys.len() }
    }

    /// A record was inserted under a key that was absent.
    #[inline]
    pub fn inserted<K: EncodedKey>(&mut self, at: A, key: K, record: Record) {
        let key = self.keep_key(key);
        self.entries.push(Undo::Inserted { at, key, record });
    }

    /// To be called before the words are overwritten.
    #[inline]
    fn overwritten(&mut self, at: A, record: Record, first: usize, old: &[u64], length: usize) {
        let start = self.words.len();
        self.words.extend_from_slice(old);
        let words = Span { start, end: self.words.len() };
        self.entries.push(Undo::Overwritten { at, record, first, words, length });
    }

    /// The index leads to `new` in the place of `old`.
    #[inline]
    pub fn replaced<K: EncodedKey>(&mut self, at: A, key: K, old: Record, new: Record) {
        let key = self.keep_key(key);
        self.entries.push(Undo::Replaced { at, key, old, new });
    }

    /// Makes `row` the row of a record, by the columns that change, or whole, on another record where it does not fit, or takes little of
    /// it.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing has changed then.
    ///
    /// # Safety
    /// The transaction holds the locks for writing the record, to which the index leads under the key.
    #[inline]
    pub unsafe fn overwrite<K: EncodedKey>(
        &mut self,
        at: A,
        (index, key): (&AnyIndex, K),
        record: Record,
        (row, changes): (&[u64], Changes),
        guard: &Guard<'_>,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller has the locks, and nothing is written before the slice is used up.
        let old = unsafe { record.words() };
        let length = old.len();
        if !changes.whole_row() {
            // Without variable columns changed, only words of the fixed part are written, which every row has.
            let words = words_of(&changes.bounding_range());
            self.overwritten(at, record, words.start, &old[words.clone()], length);
            record.write(words.start, &row[words], length);
            return Ok(());
        }
        let fits = row.len() <= record.capacity();
        if !fits || is_too_roomy(record.capacity(), row.len()) {
            match Record::new(row, guard) {
                Ok(other) => {
                    let replaced = index.replace(key, record.handle(), other.handle(), guard);
                    assert!(replaced, "the index leads to the record under the lock that is held");
                    self.replaced(at, key, record, other);
                    return Ok(());
                }
                Err(refused) if !fits => return Err(refused),
                Err(_) => {}
            }
        }
        self.overwritten(at, record, 0, old, length);
        record.write(0, row, row.len());
        Ok(())
    }

    /// A record was marked as deleted.
    #[inline]
    pub fn deleted<K: EncodedKey>(&mut self, at: A, key: K, record: Record) {
        let key = self.keep_key(key);
        self.entries.push(Undo::Deleted { at, key, record });
    }

    /// Visits each change: where it was made, its key if that was kept, and how the row is now, of which `words` has the words although it was deleted.
    /// Of what was overwritten in a part, these words.
    ///
    /// # Errors
    /// The errors of `visit`.
    pub fn visit<'r>(
        &self,
        words: impl Fn(Record) -> &'r [u64],
        mut visit: impl FnMut(A, Option<&[u8]>, &[u64], Change<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let kept = |key: Span| Some(&self.keys[key.start..key.end]);
        self.entries.iter().try_for_each(|entry| match *entry {
            Undo::Inserted { at, key, record } | Undo::Replaced { at, key, new: record, .. } => {
                let row = words(record);
                visit(at, kept(key), row, Change::Put(row))
            }
            Undo::Deleted { at, key, record } => visit(at, kept(key), words(record), Change::Delete),
            Undo::Overwritten { at, record, first, words: old, length } => {
                let (row, changed) = (words(record), first..first + old.end - old.start);
                let is_part = changed.len() < length;
                let change =
                    if is_part { Change::Patch { word: first, words: &row[changed] } } else { Change::Put(row) };
                visit(at, None, row, change)
            }
        })
    }

    /// Puts back, latest first, what was changed since the log had `length` entries.
    pub fn undo_to(&mut self, length: usize, tables: &impl Undoable<At = A>, guard: &Guard<'_>) {
        while self.entries.len() > length {
            match self.entries.pop().expect("there are more entries") {
                Undo::Inserted { at, key, record } => {
                    let removed = tables.index(at).remove(&self.keys[key.start..key.end], record.handle(), guard);
                    assert!(removed, "what was inserted is there until it is undone");
                    // SAFETY: the index has just forgotten it, and the locks are still held.
                    unsafe { tables.give_back(record, guard) };
                    self.keys.truncate(key.start);
                }
                Undo::Overwritten { record, first, words, length, .. } => {
                    record.write(first, &self.words[words.start..words.end], length);
                    self.words.truncate(words.start);
                }
                Undo::Replaced { at, key, old, new } => {
                    let bytes = &self.keys[key.start..key.end];
                    let replaced = tables.index(at).replace(bytes, new.handle(), old.handle(), guard);
                    assert!(replaced, "what was replaced stays so until it is undone");
                    // SAFETY: the index leads to the old record again, and the locks are still held.
                    unsafe { tables.give_back(new, guard) };
                    self.keys.truncate(key.start);
                }
                Undo::Deleted { key, record, .. } => {
                    record.set_deleted(false);
                    self.keys.truncate(key.start);
                }
            }
        }
    }

    /// Clears away what the transaction deleted and replaced.
    #[inline]
    pub fn commit(&mut self, tables: &impl Undoable<At = A>, guard: &Guard<'_>) {
        for entry in &self.entries {
            match *entry {
                Undo::Deleted { at, key, record } => {
                    // A record over which another was inserted has left the index already, and goes with `Replaced`.
                    let bytes = &self.keys[key.start..key.end];
                    if tables.index(at).remove(bytes, record.handle(), guard) {
                        // SAFETY: the index has just forgotten it, and the locks are still held.
                        unsafe { tables.give_back(record, guard) };
                    }
                }
                // SAFETY: the index leads to the new record, or to a later one, and the locks are still held.
                Undo::Replaced { old, .. } => unsafe { tables.give_back(old, guard) },
                Undo::Inserted { .. } | Undo::Overwritten { .. } => {}
            }
        }
        self.entries.clear();
        self.keys.clear();
        self.words.clear();
    }
}
