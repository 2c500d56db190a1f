//! A table: for its primary key and for each secondary index a store, which is an index and the chains it leads to. The rows of a
//! secondary index's chains are primary keys.

use std::ops::Bound;
use std::sync::PoisonError;

use polychron_base::Error;
use polychron_base::key::{EncodedKey, HashSeed, Key8, Key16};
use polychron_engine::stores::{self, Base, Hinted, IndexRef, Keyed, StoreDefinition, StoreTable};
use polychron_index::AnyIndex;
use polychron_memory::Guard;
use polychron_schema::TableDefinition;
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::chain::{Chain, Chains, Head, Lists};
use super::displaced::Displaced;

/// A table.
pub(super) type BohmTable = StoreTable<BohmStore>;

/// Words of room beside the fixed part of a row with variable columns; a longer row lies elsewhere.
const VARIABLE_WORDS: usize = 4;

/// Words of room for the primary key in a secondary entry; a longer one lies elsewhere.
const ENTRY_WORDS: usize = 4;

/// One index and its chains.
#[derive(Debug)]
pub struct BohmStore {
    pub(super) entries: stores::Store<Chains>,
    /// Of a secondary index: an intent of each transaction that may write entries. It does not know which ones before it runs, so a reader of the
    /// index executes it first.
    pub(super) intents: Head,
    /// Prefixes of keys under which transactions may write rows that they cannot name beforehand.
    pub(super) prefixes: Prefixes,
    /// Deleted keys that only snapshots see.
    pub(super) displaced: Displaced,
    /// Room for a row behind a placeholder.
    pub(super) row_words: usize,
    /// Whether equal keys of the index have one row at most.
    pub(super) unique: bool,
}

impl Keyed for BohmStore {
    type Records = Chains;

    const FETCHES_MORE: bool = true;

    #[inline]
    fn entries(&self) -> &stores::Store<Chains> {
        &self.entries
    }

    #[inline]
    fn locate<'t>(table: &'t BohmTable, _: &Key16) -> Option<(&'t AnyIndex, usize)> {
        Some((table.primary.index(), 1))
    }

    #[inline]
    fn fetch_more(table: &BohmTable, record: Hinted<'_>) {
        Chains::fetch_newest(record, table.primary.row_words);
    }
}

/// For each prefix of keys that was declared lately a list of intents.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// A bit for each length in bytes that occurs.
    lengths: AtomicU64,
    /// How many lists there are of each length.
    counts: Mutex<[u32; Prefix::<Key8>::LONGEST + 1]>,
    lists: Lists,
}

/// The first bytes of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix<K> {
    key: K,
    len: usize,
}

impl<K: EncodedKey> Prefix<K> {
    /// The longest prefix, in bytes. One that is cut off covers more keys.
    const LONGEST: usize = 63;

    pub(super) fn new(key: K, len: usize) -> Self {
        Self { key, len: len.min(Self::LONGEST) }
    }

    /// The whole key, as far as prefixes go.
    pub(super) fn of(key: K) -> Self {
        Self::new(key, key.len())
    }

    /// Whether a key begins with it.
    pub(super) fn covers<L: EncodedKey>(&self, key: L) -> bool {
        key.len() >= self.len
            && (0..self.len.div_ceil(8)).all(|index| Prefix::new(key, self.len).slice(index) == self.slice(index))
    }
}

impl<K: EncodedKey> EncodedKey for Prefix<K> {
    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, index: usize) -> u64 {
        let kept = 8 * self.len.saturating_sub(8 * index).min(8) as u32;
        match kept {
            0 => 0,
            kept => self.key.slice(index) & (u64::MAX << (64 - kept)),
        }
    }
}

impl Prefixes {
    fn new(lists: Lists) -> Self {
        Self { lengths: AtomicU64::new(0), counts: Mutex::new([0; Prefix::<Key8>::LONGEST + 1]), lists }
    }

    /// The lengths that occur: all that transactions of batches which are planned have.
    #[inline]
    pub(super) fn lengths(&self) -> u64 {
        self.lengths.load(Ordering::Relaxed)
    }

    /// The intents of a prefix.
    pub(super) fn find<'g, K: EncodedKey>(&self, prefix: Prefix<K>, guard: &'g Guard<'_>) -> Option<Chain<'g>> {
        self.lists.find(prefix, guard)
    }

    /// Makes a list for a prefix that has none.
    pub(super) fn make<'g, K: EncodedKey>(&self, prefix: Prefix<K>, guard: &'g Guard<'_>) -> Result<Chain<'g>, Error> {
        let list = self.lists.make(prefix, guard)?;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts[prefix.len()] += 1;
        // Relaxed, here and below: a thread that must see it executes a batch that is planned after the caller is done with it.
        self.lengths.fetch_or(1 << prefix.len(), Ordering::Relaxed);
        Ok(list)
    }

    /// Removes the list of a prefix, and frees it.
    pub(super) fn remove<K: EncodedKey>(&self, prefix: K, list: Chain<'_>, guard: &Guard<'_>) {
        self.lists.remove(prefix, list, guard);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts[prefix.len()] -= 1;
        if counts[prefix.len()] == 0 {
            self.lengths.fetch_and(!(1 << prefix.len()), Ordering::Relaxed);
        }
    }

    /// Visits the lists of all prefixes under which some key between two others may lie.
    pub(super) fn between<'g>(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(Chain<'g>),
    ) {
        let (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(above) | Bound::Excluded(above)) =
            (lower, upper)
        else {
            return self.lists.for_each(|_, list| visit(list), guard);
        };
        let shared = shared_prefix(lower, above, matches!(upper, Bound::Excluded(_)));
        let lengths = self.lengths();
        if lengths >> (shared + 1).min(63) != 0 {
            let may_be = |prefix: &[u8]| prefix <= above && prefix >= &lower[..prefix.len().min(lower.len())];
            let visit = |prefix: &[u8], list| {
                if may_be(prefix) {
                    visit(list);
                }
            };
            return self.lists.for_each(visit, guard);
        }
        for len in bits(lengths) {
            self.find(Prefix::new(lower, len), guard).into_iter().for_each(&mut visit);
        }
    }
}

/// The positions of the bits that are set.
pub(super) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        next
    })
}

/// How many first bytes all keys from `lower` to `upper` have in common.
fn shared_prefix(lower: &[u8], upper: &[u8], is_excluded: bool) -> usize {
    let common = lower.iter().zip(upper).take_while(|(left, right)| left == right).count();
    // Below the least key that begins with a larger byte there, all begin as the lower bound does.
    let is_next = is_excluded
        && upper.len() == common + 1
        && lower.get(common).is_some_and(|&byte| byte != u8::MAX && byte + 1 == upper[common]);
    common + usize::from(is_next)
}

impl BohmStore {
    pub(super) fn new(base: &Base<Self>, table: &TableDefinition, definition: &StoreDefinition) -> Result<Self, Error> {
        let shape = table.layout()?.shape();
        let variable = if shape.variable_count > 0 { VARIABLE_WORDS } else { 0 };
        let is_secondary = definition.index_ref.index != polychron_base::IndexId::PRIMARY;
        let unique = !is_secondary || table.indexes.last().is_some_and(|index| index.unique);
        let row_words = if is_secondary { ENTRY_WORDS } else { (shape.fixed_bytes as usize / 8 + variable).max(1) };
        let entries = base.store(definition)?;
        let lists = Lists::new(definition.hash_seed, &base.deferred_drops)?;
        let displaced = Displaced::new(base, definition);
        Ok(Self { entries, intents: Head::new(), prefixes: Prefixes::new(lists), displaced, row_words, unique })
    }

    #[inline]
    pub(super) fn index_ref(&self) -> IndexRef {
        self.entries.index_ref
    }

    #[inline]
    pub(super) fn index(&self) -> &AnyIndex {
        self.entries.index()
    }

    /// What the hashes of its keys depend on.
    #[inline]
    pub(super) fn hash_seed(&self) -> HashSeed {
        self.entries.hash_seed
    }

    /// A number that spreads stores over the threads of concurrency control.
    pub(super) fn hash(&self) -> u64 {
        let IndexRef { table, index } = self.index_ref();
        Key8::new((table.position() as u64) << 16 | index.position() as u64, 8).hash(HashSeed::FIXED)
    }

    /// The chain of a key.
    #[inline]
    pub(super) fn find<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Option<Chain<'g>> {
        Chains::find(&self.entries, key, guard)
    }

    /// The chain of a key, which is made if there is none.
    pub(super) fn find_or_make<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Result<Chain<'g>, Error> {
        if let Some(chain) = self.find(key, guard) {
            return Ok(chain);
        }
        self.make_or_find(key, guard)
    }

    /// The chain of a key that had none just before.
    pub(super) fn make_or_find<'g, K: EncodedKey>(&self, key: K, guard: &'g Guard<'_>) -> Result<Chain<'g>, Error> {
        Chains::make_or_find(&self.entries, key, guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_the_first_bytes() {
        let (key, seed): (&[u8], _) = (&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], HashSeed::FIXED);
        for len in 0..=key.len() {
            let (prefix, same) = (Prefix::new(key, len), &key[..len]);
            assert_eq!(
                (prefix.hash(seed), prefix.slice(0), prefix.slice(1)),
                (same.hash(seed), same.slice(0), same.slice(1))
            );
            assert!(prefix.covers(key));
        }
        assert!(!Prefix::new(key, 3).covers(&[1, 2][..]) && !Prefix::new(key, 3).covers(&[1, 2, 4][..]));
        assert_eq!(Prefix::of(&[7; 100][..]).len(), 63);
    }

    #[test]
    fn keys_of_a_range_have_a_prefix_in_common() {
        assert_eq!(shared_prefix(&[1, 2, 3], &[1, 2, 9], false), 2);
        assert_eq!(shared_prefix(&[1, 2], &[1, 3], true), 2);
        assert_eq!(shared_prefix(&[1, 2, 7], &[1, 3], true), 2);
        assert_eq!(shared_prefix(&[1, 2], &[1, 3], false), 1);
        assert_eq!(shared_prefix(&[1, 2], &[1, 4], true), 1);
        assert_eq!(shared_prefix(&[1, u8::MAX], &[2], true), 1);
        assert_eq!(bits(0b1001).collect::<Vec<_>>(), [0, 3]);
    }
}
