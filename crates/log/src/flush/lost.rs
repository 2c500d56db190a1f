//! The loss of a log that has stopped: all else can still be read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::PoisonError;

use polychron_engine::mutations::left_out;
use polychron_engine::redo::KeyRange;
use polychron_schema::{KeyExtractor, KeyScratch, RowRef};
use polychron_sync::atomic::Ordering;

use super::Log;
use super::flusher::Taken;
use crate::disk::Disk;
use crate::frame::{Change, Changes, Order, Records, changes_of};
use crate::ring::Rings;
use crate::steps::Step;

/// How many bytes keys may take that are looked up. Of a table whose keys take more, all is lost.
const MOST_BYTES: usize = 16 << 20;

/// What an entry of a set takes beside its key, or more.
const ENTRY_BYTES: usize = 48;

/// Of a log that has stopped: what was sealed and is not durable.
pub(super) enum Lost {
    /// It is not known, or the log has not stopped.
    Unknown,
    Known(Loss),
}

/// What is lost: what the flush had taken that has failed, and all that lies in the rings.
pub(super) struct Loss {
    /// All of it has this order or a higher one.
    lowest: Option<Order>,
    taken: Taken,
    /// The keys of the tables that were asked for, by the tables' positions. They are gathered again when something is sealed late.
    tables: BTreeMap<u32, Keys>,
    /// How many bytes these take.
    bytes: usize,
}

/// The lost keys of a table.
enum Keys {
    All,
    These(BTreeSet<Box<[u8]>>),
}

impl<D: Disk> Log<D> {
    /// The log stops: what was sealed by now is lost, and so is what is sealed from now on by transactions that had staged before.
    pub(super) fn note_lost(&self, lowest: Option<Order>, taken: Taken) {
        // Release: pairs with the acquire of a seal whose ring is looked at below before it seals.
        self.is_stopped.store(true, Ordering::Release);
        let lost = &mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let lowest = lowest.into_iter().chain(self.rings.lowest()).min();
        *lost = Lost::Known(Loss { lowest, taken, tables: BTreeMap::new(), bytes: 0 });
    }

    /// Something is sealed in a log that has stopped, and no other thread has read it yet.
    #[cold]
    pub(super) fn lose(&self, order: Order) {
        if let Lost::Known(loss) = &mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
            && !left_out(Step::LoseLate)
        {
            loss.lowest = Some(loss.lowest.map_or(order, |lowest| lowest.min(order)));
            loss.tables.clear();
            loss.bytes = 0;
        }
    }

    /// Whether the log has stopped, and all up to this order is durable all the same.
    #[cold]
    pub(super) fn is_kept(&self, read: Order) -> bool {
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            Lost::Unknown => false,
            Lost::Known(loss) => loss.lowest.is_none_or(|lowest| read < lowest),
        }
    }

    /// Whether the log has stopped, and what is lost has nothing of a range of a table.
    #[cold]
    pub(super) fn keeps_range(&self, table: u32, range: KeyRange<'_>, extractor: &KeyExtractor) -> bool {
        match &mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            Lost::Unknown => false,
            Lost::Known(loss) => match loss.keys(&self.rings, table, extractor) {
                Keys::All => false,
                Keys::These(keys) => is_empty(range) || keys.range::<[u8], _>(range).next().is_none(),
            },
        }
    }
}

impl Loss {
    fn keys(&mut self, rings: &Rings, table: u32, extractor: &KeyExtractor) -> &Keys {
        let Self { taken, tables, bytes, .. } = self;
        tables.entry(table).or_insert_with(|| {
            let most = MOST_BYTES - (*bytes).min(MOST_BYTES);
            let mut gathered =
                Gathered { table, extractor, keys: Some(BTreeSet::new()), bytes: 0, most, row: Vec::new() };
            let Taken::Known(writers) = taken else { return Keys::All };
            for writer in writers.iter().filter(|_| !left_out(Step::LoseTaken)) {
                Records::new(writer.content(), writer.count()).for_each(|record| match record {
                    Ok(record) => gathered.add(record.changes()),
                    Err(_) => gathered.keys = None,
                });
            }
            rings.each_sealed(&mut |body| gathered.add(changes_of(body)));
            *bytes += gathered.bytes;
            gathered.keys.map_or(Keys::All, Keys::These)
        })
    }
}

/// The keys of one table in changes.
struct Gathered<'e> {
    table: u32,
    extractor: &'e KeyExtractor,
    /// `None`: there are too many, or one cannot be told.
    keys: Option<BTreeSet<Box<[u8]>>>,
    bytes: usize,
    most: usize,
    row: Vec<u64>,
}

impl Gathered<'_> {
    fn add(&mut self, changes: Changes<'_>) {
        for change in changes {
            let Some(keys) = &mut self.keys else { return };
            let mut scratch = KeyScratch::new();
            let key = match change {
                Ok(Change::Put { table, row }) if table == self.table => {
                    self.row.clear();
                    row.append_to(&mut self.row);
                    self.extractor.extract(RowRef::from_words(&self.row), &mut scratch).ok()
                }
                Ok(Change::Patch { table, key, .. } | Change::Delete { table, key }) if table == self.table => {
                    Some(key)
                }
                Ok(_) => continue,
                Err(_) => None,
            };
            match key {
                Some(key) if self.bytes + key.len() + ENTRY_BYTES <= self.most => {
                    if keys.insert(key.into()) {
                        self.bytes += key.len() + ENTRY_BYTES;
                    }
                }
                _ => (self.keys, self.bytes) = (None, 0),
            }
        }
    }
}

/// Whether no key can be in a range.
fn is_empty(range: KeyRange<'_>) -> bool {
    match range {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
            lower >= upper
        }
        _ => false,
    }
}
