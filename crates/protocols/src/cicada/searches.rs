//! The keys and ranges in which a transaction that stands aside has found nothing, or only some rows.
//!
//! What was not there is guarded by stamps of index nodes, which are good as long as the epoch in which they were taken. When that was left
//! (`aside.rs`), the searches made so far have *lost* their stamps, and the validation makes them again at the transaction's timestamp. A key must show
//! no row. A range must show as many rows as it did: those that were read there are validated one by one, so they are there still, and there is
//! no other one.
//!
//! The second look replaces the stamps in the order of validation: words of absent parts are raised, then the index is looked at; a transaction that makes a
//! key come into being enters it into the index, and then looks at the words.

use std::ops::{Bound, Range};

use polychron_base::key::EncodedKey;
use polychron_base::{Error, Reason};
use polychron_engine::Scan;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::IndexRef;
use polychron_sync::atomic::{Ordering, fence};

use super::kept::{Kept, Range as Entries, Ranges};
use super::steps::Step;
use super::table::Store;
use super::transaction::CicadaTransaction;

/// Memory for keys above this is given back at the end of a transaction.
const KEPT: usize = 1 << 16;

/// What a transaction has looked for.
#[derive(Clone, Debug)]
struct Search {
    place: IndexRef,
    sought: Sought,
}

/// Keys are spans of the list's bytes.
#[derive(Clone, Debug)]
enum Sought {
    /// A key, which had no row.
    Key(Range<usize>),
    /// A range, in which so many rows were seen under own writes.
    Range { lower: Bound<Range<usize>>, upper: Bound<Range<usize>>, rows: usize },
}

/// The searches of a transaction, if it may leave its epoch.
#[derive(Debug, Default)]
pub(super) struct Searches {
    list: Vec<Search>,
    keys: Vec<u8>,
    /// Whether they are kept.
    are_kept: bool,
    /// Those before this position have lost their stamps.
    lost: usize,
}

impl Searches {
    /// Keeps the searches of the transaction that begins.
    pub(super) fn begin(&mut self) {
        self.are_kept = true;
    }

    /// Whether searches are kept.
    #[inline]
    pub(super) fn are_kept(&self) -> bool {
        self.are_kept
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }

    /// A key had no row.
    #[inline]
    pub(super) fn add_key<K: EncodedKey>(&mut self, place: IndexRef, key: K) {
        if !self.are_kept {
            return;
        }
        let start = self.keys.len();
        self.keys.resize(start + key.len(), 0);
        key.write_to(&mut self.keys[start..]);
        self.list.push(Search { place, sought: Sought::Key(start..self.keys.len()) });
    }

    /// A range showed so many rows.
    pub(super) fn add_range(&mut self, place: IndexRef, lower: Bound<&[u8]>, upper: Bound<&[u8]>, rows: usize) {
        if !self.are_kept {
            return;
        }
        let mut keep = |key: &[u8]| {
            let start = self.keys.len();
            self.keys.extend_from_slice(key);
            start..self.keys.len()
        };
        let (lower, upper) = (lower.map(&mut keep), upper.map(&mut keep));
        self.list.push(Search { place, sought: Sought::Range { lower, upper, rows } });
    }

    /// The epoch in which stamps were taken so far was left.
    pub(super) fn lose(&mut self) {
        self.lost = self.list.len();
    }

    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.are_kept {
            self.list.clear();
            self.list.shrink_to(KEPT);
            self.keys.clear();
            self.keys.shrink_to(KEPT);
            (self.are_kept, self.lost) = (false, 0);
        }
    }
}

impl CicadaTransaction<'_> {
    /// Makes those searches again that have lost their stamps. The words of their parts were raised.
    #[inline]
    pub(super) fn search_again(&mut self) -> Result<(), Error> {
        if self.state.sets.searches.lost == 0 { Ok(()) } else { self.search_lost() }
    }

    #[cold]
    fn search_lost(&mut self) -> Result<(), Error> {
        // SeqCst: the barrier between the words and the looks at the indexes, whose latches are sequentially consistent, too.
        fence(Ordering::SeqCst);
        let mut batch = std::mem::take(&mut self.state.buffers.batch);
        let outcome = self.first_changed(&mut batch);
        self.state.buffers.batch = batch;
        outcome?.map_or(Ok(()), |place| Err(self.conflict(Reason::Phantom, place, None)))
    }

    /// The index of the first search that has lost its stamp and finds something else now.
    fn first_changed(&self, batch: &mut Entries) -> Result<Option<IndexRef>, Error> {
        let Searches { list, keys, lost, .. } = &self.state.sets.searches;
        for search in &list[..*lost] {
            let store = self.store(search.place)?;
            let stands = match &search.sought {
                Sought::Key(key) => left_out(Step::MissAgain) || !self.has_row(store, &keys[key.clone()]),
                Sought::Range { lower, upper, rows } => {
                    let [lower, upper] = [lower, upper].map(|bound| bound.clone().map(|key| &keys[key]));
                    left_out(Step::CountAgain) || self.count_rows(store, lower, upper, batch) == *rows
                }
            };
            if !stands {
                return Ok(Some(search.place));
            }
        }
        Ok(None)
    }

    /// Whether a record shows a row under own writes, which are pending.
    fn shows_row(&self, record: Kept) -> bool {
        self.search(record, true).is_row
    }

    /// Whether the index beside may have rows of this timestamp: asked behind the index itself, as in every lookup.
    fn looks_beside(&self, store: &Store) -> bool {
        store.displaced.concern(self.timestamp()) && !left_out(Step::LookBesideAgain)
    }

    fn has_row(&self, store: &Store, key: &[u8]) -> bool {
        if self.guard.find_anew(store, key).is_some_and(|record| self.shows_row(record)) {
            return true;
        }
        let record = if self.looks_beside(store) { self.guard.find_beside(store, key) } else { None };
        record.is_some_and(|record| self.shows_row(record))
    }

    fn count_rows(&self, store: &Store, lower: Bound<&[u8]>, upper: Bound<&[u8]>, batch: &mut Entries) -> usize {
        let IndexRef { table, index } = store.place();
        let scan = Scan { index, lower, upper, ..Scan::all(table) };
        let mut rows = 0;
        batch.begin(usize::MAX);
        while batch.fill(store, &scan, &self.guard) {
            let records = (0..batch.len()).filter_map(|position| batch.get(position, &self.guard));
            rows += records.filter(|&record| self.shows_row(record)).count();
        }
        if !self.looks_beside(store) {
            return rows;
        }
        let (mut both, mut rows) = (Ranges::default(), 0);
        loop {
            let more = both.fill(store, &scan, &self.guard);
            let records = std::iter::from_fn(|| both.next(scan.direction, &self.guard));
            rows += records.filter(|&record| self.shows_row(record)).count();
            if !more {
                return rows;
            }
        }
    }
}
