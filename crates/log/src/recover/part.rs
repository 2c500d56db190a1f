//! What is known of the keys whose hashes belong to one part.

use hashbrown::HashTable;
use polychron_base::key::{EncodedKey as _, HashSeed};
use polychron_engine::mutations::left_out;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::arena::{Arena, Span};
use crate::frame::{Order, Ranges, Words};
use crate::steps::RecoveryStep;

/// How many of a key's patches are looked at for one that a newer one covers.
const LOOKED_AT: usize = 8;
const NONE: u32 = u32::MAX;
const SHORT: usize = 16;

/// Which of two changes of a key is newer: that of the later incarnation, of the higher order, and within a transaction the one that was staged later,
/// which comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    incarnation: u64,
    order: Order,
    arrival: u64,
}

impl Version {
    pub(super) fn new(incarnation: u64, order: Order) -> Self {
        Self { incarnation, order, arrival: 0 }
    }

    fn arriving(self, arrival: u64) -> Self {
        let incarnation = if left_out(RecoveryStep::CompareIncarnations) { 0 } else { self.incarnation };
        let order = if left_out(RecoveryStep::CompareOrders) { Order::default() } else { self.order };
        Self { incarnation, order, arrival }
    }
}

/// A change of a key, encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'b> {
    pub(super) hash: u64,
    pub(super) version: Version,
    pub(super) key: &'b [u8],
    pub(super) kind: Kind,
    /// What [`Words::encoded`] or [`Ranges::encoded`] gives.
    pub(super) bytes: &'b [u8],
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The row is so many words.
    Put { words: u32 },
    /// So many ranges; the words between the first and the last one, if they are all of these.
    Patch { ranges: u32, covered: Option<(u32, u32)> },
    /// There is no row.
    Delete,
}

/// What lies under the patches of a key.
#[derive(Clone, Copy, Debug)]
enum Base {
    /// What the checkpoint has.
    Unknown,
    Row {
        words: u32,
        encoded: Span,
    },
    Nothing,
}

#[derive(Debug)]
pub(super) struct Entry {
    /// The newest put or deletion.
    version: Version,
    base: Base,
    key: StoredKey,
    /// The newest patch, and behind it the others, in no order.
    patches: u32,
    /// Whether the checkpoint has had its row.
    met: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
enum StoredKey {
    Short { bytes: [u8; SHORT], length: u8 },
    Long(Span),
}

#[derive(Clone, Copy, Debug)]
struct Patch {
    version: Version,
    ranges: u32,
    covered: Option<(u32, u32)>,
    encoded: Span,
    next: u32,
}

/// The keys of one table.
#[derive(Debug, Default)]
struct Keys {
    index: HashTable<u32>,
    entries: Vec<Entry>,
}

/// Keys, and what was done to them.
#[derive(Debug)]
pub(super) struct Part {
    seed: HashSeed,
    tables: Vec<Keys>,
    patches: Vec<Patch>,
    /// Patches that are no longer needed.
    free: u32,
    arena: Arena,
    arrivals: u64,
    /// The memory of entries and their index.
    keys_bytes: usize,
}

/// What becomes of the row that lies under a key's changes.
pub(super) enum Below<'p> {
    /// It is this one.
    Row(Words<'p>),
    /// There is none.
    Nothing,
    /// It is the checkpoint's.
    Checkpoint,
}

impl Part {
    pub(super) fn new(seed: HashSeed, tables: usize) -> Self {
        Self {
            seed,
            tables: (0..tables).map(|_| Keys::default()).collect(),
            patches: Vec::new(),
            free: NONE,
            arena: Arena::default(),
            arrivals: 0,
            keys_bytes: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.arena.bytes()
            + self.keys_bytes
            + self.patches.capacity() * size_of::<Patch>()
            + self.tables.capacity() * size_of::<Keys>()
    }

    /// Takes in a change.
    pub(super) fn apply(&mut self, table: usize, incoming: &Incoming<'_>) {
        self.arrivals += 1;
        let version = incoming.version.arriving(self.arrivals);
        let at = self.entry(table, incoming);
        let base = match incoming.kind {
            Kind::Patch { ranges, covered } => {
                let patch = Patch { version, ranges, covered, encoded: Span::default(), next: NONE };
                return self.patch(table, at, patch, incoming.bytes);
            }
            Kind::Put { words } => Some(words),
            Kind::Delete => None,
        };
        let entry = &mut self.tables[table].entries[at];
        if !matches!(entry.base, Base::Unknown) && version < entry.version {
            return;
        }
        entry.version = version;
        entry.base = match (base, entry.base) {
            (None, _) => Base::Nothing,
            (Some(words), Base::Row { encoded, .. }) => {
                Base::Row { words, encoded: self.arena.replace(encoded, incoming.bytes) }
            }
            (Some(words), _) => Base::Row { words, encoded: self.arena.push(incoming.bytes) },
        };
        let newest = entry.patches;
        let is_older = newest != NONE && self.patches[newest as usize].version < version;
        if is_older && !left_out(RecoveryStep::PassOverOlderPatches) {
            self.tables[table].entries[at].patches = NONE;
            self.forget(newest);
        }
    }

    /// The entry of a key, which is made if there is none.
    fn entry(&mut self, table: usize, incoming: &Incoming<'_>) -> usize {
        let Self { tables, arena, seed, .. } = self;
        let Keys { index, entries } = &mut tables[table];
        let is_it = |at: &u32| entries[*at as usize].key.get(arena) == incoming.key;
        if let Some(at) = index.find(incoming.hash, is_it) {
            return *at as usize;
        }
        let before = index.allocation_size() + entries.capacity() * size_of::<Entry>();
        index.insert_unique(incoming.hash, entries.len() as u32, |at| entries[*at as usize].key.get(arena).hash(*seed));
        entries.push(Entry {
            version: Version::new(0, Order::default()),
            base: Base::Unknown,
            key: StoredKey::new(incoming.key, arena),
            patches: NONE,
            met: AtomicBool::new(false),
        });
        self.keys_bytes += index.allocation_size() + entries.capacity() * size_of::<Entry>() - before;
        entries.len() - 1
    }

    /// Adds a patch to those of a key. One that a newer one covers is not kept, so that a row that is patched again and again takes no more memory.
    fn patch(&mut self, table: usize, at: usize, patch: Patch, bytes: &[u8]) {
        let entry = &mut self.tables[table].entries[at];
        if !matches!(entry.base, Base::Unknown) && patch.version < entry.version {
            return;
        }
        let first = entry.patches;
        let (mut before, mut number) = (NONE, first);
        for _ in 0..LOOKED_AT {
            let Some(other) = self.patches.get(number as usize).copied() else { break };
            if other.version > patch.version && patch.is_covered_by(&other) {
                return;
            }
            if other.version < patch.version && other.is_covered_by(&patch) {
                let encoded = self.arena.replace(other.encoded, bytes);
                self.unlink(table, at, before, other.next);
                return self.link(table, at, number, Patch { encoded, ..patch });
            }
            (before, number) = (number, other.next);
        }
        let patch = Patch { encoded: self.arena.push(bytes), ..patch };
        let number = self.free;
        if let Some(free) = self.patches.get(number as usize) {
            self.free = free.next;
            self.link(table, at, number, patch);
        } else {
            self.patches.push(patch);
            self.link(table, at, self.patches.len() as u32 - 1, patch);
        }
    }

    fn unlink(&mut self, table: usize, at: usize, before: u32, next: u32) {
        match self.patches.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.tables[table].entries[at].patches = next,
        }
    }

    /// Writes a patch to its place, and into the list of its key: in front if it is the newest, else behind that one.
    fn link(&mut self, table: usize, at: usize, number: u32, patch: Patch) {
        let head = &mut self.tables[table].entries[at].patches;
        let next = match self.patches.get_mut(*head as usize) {
            Some(newest) if newest.version > patch.version => std::mem::replace(&mut newest.next, number),
            _ => std::mem::replace(head, number),
        };
        self.patches[number as usize] = Patch { next, ..patch };
    }

    /// The patches from this one on may be used again.
    fn forget(&mut self, first: u32) {
        let mut number = first;
        while let Some(patch) = self.patches.get_mut(number as usize) {
            let next = std::mem::replace(&mut patch.next, self.free);
            self.free = number;
            number = next;
        }
    }

    pub(super) fn find(&self, table: usize, hash: u64, key: &[u8]) -> Option<&Entry> {
        let Keys { index, entries } = &self.tables[table];
        let at = index.find(hash, |at| entries[*at as usize].key.get(&self.arena) == key)?;
        Some(&entries[*at as usize])
    }

    /// The keys of a table; they are gone from here then.
    pub(super) fn take(&mut self, table: usize) -> Vec<Entry> {
        std::mem::take(&mut self.tables[table]).entries
    }

    pub(super) fn key<'p>(&'p self, entry: &'p Entry) -> &'p [u8] {
        entry.key.get(&self.arena)
    }

    pub(super) fn below(&self, entry: &Entry) -> Below<'_> {
        match entry.base {
            Base::Unknown => Below::Checkpoint,
            Base::Row { words, encoded } => Below::Row(Words::of(self.arena.get(encoded), words as usize)),
            Base::Nothing => Below::Nothing,
        }
    }

    /// The patches that count over what lies under them, the newest last.
    pub(super) fn patches(&self, entry: &Entry, scratch: &mut Vec<(Version, u32)>) -> bool {
        scratch.clear();
        let is_over = |version| {
            matches!(entry.base, Base::Unknown)
                || version > entry.version
                || left_out(RecoveryStep::PassOverOlderPatches)
        };
        let mut number = entry.patches;
        while let Some(patch) = self.patches.get(number as usize) {
            if is_over(patch.version) {
                scratch.push((patch.version, number));
            }
            number = patch.next;
        }
        if scratch.len() > 1 && !left_out(RecoveryStep::SortPatches) {
            scratch.sort_unstable();
        }
        !scratch.is_empty()
    }

    /// The ranges of a patch that [`patches`](Self::patches) has found.
    pub(super) fn ranges(&self, number: u32) -> Ranges<'_> {
        let patch = &self.patches[number as usize];
        Ranges::of(self.arena.get(patch.encoded), u64::from(patch.ranges))
    }
}

impl Entry {
    /// Notes that the checkpoint has a row of this key; whether it had one before.
    pub(super) fn meet(&self) -> bool {
        // Threads share it, and nothing else depends on it before they have all ended.
        self.met.swap(true, Ordering::Relaxed)
    }

    pub(super) fn was_met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }
}

impl Patch {
    fn is_covered_by(&self, newer: &Self) -> bool {
        let (Some((first, end)), Some((newer_first, newer_end))) = (self.covered, newer.covered) else { return false };
        newer_first <= first && end <= newer_end || left_out(RecoveryStep::CoverPatches)
    }
}

impl StoredKey {
    fn new(key: &[u8], arena: &mut Arena) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..key.len()) {
            Some(short) => {
                short.copy_from_slice(key);
                Self::Short { bytes, length: key.len() as u8 }
            }
            None => Self::Long(arena.push(key)),
        }
    }

    #[inline]
    fn get<'k>(&'k self, arena: &'k Arena) -> &'k [u8] {
        match self {
            Self::Short { bytes, length } => &bytes[..usize::from(*length)],
            Self::Long(span) => arena.get(*span),
        }
    }
}
