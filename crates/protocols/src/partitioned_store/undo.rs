//! The undo log: what a roll-back puts back, and what a commit clears away. Neither needs memory, so neither can fail.

use polychron_base::key::EncodedKey;
use polychron_engine::stores::Place;
use polychron_memory::Guard;

use super::record::Record;
use super::table::{Entries, Table};

/// Where an entry stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) place: Place,
    pub(super) partition: usize,
}

/// A piece of the log's keys or words.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
enum Undo {
    /// The key was absent.
    Inserted { at: At, key: Span, record: Record },
    /// These words, from the given one on, were overwritten, and the row had this length.
    Overwritten { record: Record, first: usize, words: Span, length: usize },
    /// The index led to `old`.
    Replaced { at: At, key: Span, old: Record, new: Record },
    /// The record was marked as deleted.
    Deleted { at: At, key: Span, record: Record },
}

/// What the running transaction changed, in order.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: Vec<Undo>,
    keys: Vec<u8>,
    words: Vec<u64>,
}

/// The store of an entry.
#[inline]
pub(super) fn store_at(tables: &[Option<std::sync::Arc<Table>>], at: At) -> &Entries {
    let table = tables[at.place.table.position()].as_deref().expect("tables stay while a transaction runs");
    let index = table.store(at.place.index).expect("indexes stay while a transaction runs");
    &index.stores[at.partition]
}

impl Log {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn keep_key<K: EncodedKey>(&mut self, key: K) -> Span {
        let start = self.keys.len();
        self.keys.resize(start + key.len(), 0);
        key.write_to(&mut self.keys[start..]);
        Span { start, end: self.keys.len() }
    }

    #[inline]
    pub(super) fn inserted<K: EncodedKey>(&mut self, at: At, key: K, record: Record) {
        let key = self.keep_key(key);
        self.entries.push(Undo::Inserted { at, key, record });
    }

    /// To be called before the words are overwritten.
    #[inline]
    pub(super) fn overwritten(&mut self, record: Record, first: usize, old: &[u64], length: usize) {
        let start = self.words.len();
        self.words.extend_from_slice(old);
        let words = Span { start, end: self.words.len() };
        self.entries.push(Undo::Overwritten { record, first, words, length });
    }

    #[inline]
    pub(super) fn replaced<K: EncodedKey>(&mut self, at: At, key: K, old: Record, new: Record) {
        let key = self.keep_key(key);
        self.entries.push(Undo::Replaced { at, key, old, new });
    }

    #[inline]
    pub(super) fn deleted<K: EncodedKey>(&mut self, at: At, key: K, record: Record) {
        let key = self.keep_key(key);
        self.entries.push(Undo::Deleted { at, key, record });
    }

    /// Puts back, latest first, what was changed since the log had `length` entries.
    pub(super) fn undo_to(&mut self, length: usize, tables: &[Option<std::sync::Arc<Table>>], guard: &Guard<'_>) {
        while self.entries.len() > length {
            match self.entries.pop().expect("there are more entries") {
                Undo::Inserted { at, key, record } => {
                    let removed =
                        store_at(tables, at).index().remove(&self.keys[key.start..key.end], record.handle(), guard);
                    assert!(removed, "what was inserted is there until it is undone");
                    // SAFETY: the index has just forgotten it, and the locks are still held.
                    unsafe { record.free(guard) };
                    self.keys.truncate(key.start);
                }
                Undo::Overwritten { record, first, words, length } => {
                    record.write(first, &self.words[words.start..words.end], length);
                    self.words.truncate(words.start);
                }
                Undo::Replaced { at, key, old, new } => {
                    let bytes = &self.keys[key.start..key.end];
                    let replaced = store_at(tables, at).index().replace(bytes, new.handle(), old.handle(), guard);
                    assert!(replaced, "what was replaced stays so until it is undone");
                    // SAFETY: the index leads to the old record again, and the locks are still held.
                    unsafe { new.free(guard) };
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
    pub(super) fn commit(&mut self, tables: &[Option<std::sync::Arc<Table>>], guard: &Guard<'_>) {
        for entry in &self.entries {
            match *entry {
                Undo::Deleted { at, key, record } => {
                    // A record over which another was inserted has left the index already, and goes with `Replaced`.
                    let bytes = &self.keys[key.start..key.end];
                    if store_at(tables, at).index().remove(bytes, record.handle(), guard) {
                        // SAFETY: the index has just forgotten it, and the locks are still held.
                        unsafe { record.free(guard) };
                    }
                }
                // SAFETY: the index leads to the new record, or to a later one, and the locks are still held.
                Undo::Replaced { old, .. } => unsafe { old.free(guard) },
                Undo::Inserted { .. } | Undo::Overwritten { .. } => {}
            }
        }
        self.entries.clear();
        self.keys.clear();
        self.words.clear();
    }
}
