//! A map in the order of its keys that is a list: for few entries, or for ones that come in that order.

use std::borrow::Borrow;
use std::fmt;
use std::{slice, vec};

/// A map in the order of its keys.
///
/// An entry that comes before others moves these. A B-tree does not, and takes the compiler many times as long for each type of key and value: it is
/// for maps that become large in any order.
#[derive(Clone, PartialEq, Eq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

/// The entries of a [`SortedMap`].
pub type Entries<'m, K, V> = std::iter::Map<slice::Iter<'m, (K, V)>, fn(&(K, V)) -> (&K, &V)>;

impl<K, V> SortedMap<K, V> {
    /// Without entries.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries.
    pub fn iter(&self) -> Entries<'_, K, V> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// All keys.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// All values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The highest key.
    pub fn last_key(&self) -> Option<&K> {
        self.0.last().map(|(key, _)| key)
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets the entries whose values are not to be kept.
    pub fn retain(&mut self, is_kept: impl Fn(&V) -> bool) {
        self.0.retain(|(_, value)| is_kept(value));
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Where a key is, or would be.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        match self.last_key() {
            Some(last) if last.borrow() < key => Err(self.len()),
            _ => self.0.binary_search_by(|(other, _)| other.borrow().cmp(key)),
        }
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// The same, to change it.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    /// Whether a key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Gives a key a value, and answers the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// The value of a key, which is made if the key has none.
    pub fn or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, make()));
            at
        });
        &mut self.0[at].1
    }

    /// Takes a key and its value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// The entry of a key, or else the last one before it.
    pub fn up_to(&self, key: &K) -> Option<(&K, &V)> {
        let behind = self.find(key).map_or_else(|at| at, |at| at + 1);
        self.0[..behind].last().map(|(key, value)| (key, value))
    }

    /// The entries from a key on.
    pub fn from(&self, key: &K) -> Entries<'_, K, V> {
        let (Ok(at) | Err(at)) = self.find(key);
        self.0[at..].iter().map(|(key, value)| (key, value))
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    /// Of several values of a key the last one counts.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'m, K, V> IntoIterator for &'m SortedMap<K, V> {
    type Item = (&'m K, &'m V);
    type IntoIter = Entries<'m, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::Random;

    /// It answers what a B-tree does, whatever is done to both.
    #[test]
    fn it_is_a_map_in_order() {
        for seed in 0..20 {
            let (mut random, mut map, mut model) = (Random::from_seed(seed), SortedMap::new(), BTreeMap::new());
            for value in 0..300 {
                let key = random.below(40);
                match random.below(5) {
                    0 | 1 => assert_eq!(map.insert(key, value), model.insert(key, value)),
                    2 => assert_eq!(map.remove(&key), model.remove(&key)),
                    3 => assert_eq!(map.or_insert_with(key, || value), model.entry(key).or_insert(value)),
                    _ => assert_eq!(map.get_mut(&key), model.get_mut(&key)),
                }
                assert_eq!((map.get(&key), map.contains_key(&key)), (model.get(&key), model.contains_key(&key)));
                assert_eq!((map.len(), map.last_key()), (model.len(), model.keys().last()));
                assert!(map.from(&key).eq(model.range(key..)));
                assert_eq!(map.up_to(&key), model.range(..=key).next_back());
            }
            assert!(
                map.iter().eq(&model) && map.keys().eq(model.keys()) && map.values().rev().eq(model.values().rev())
            );
            assert_eq!(format!("{map:?}"), format!("{model:?}"));
            assert_eq!(map, model.into_iter().rev().collect());
            map.retain(|value| value % 2 == 0);
            assert!(map.values().all(|value| value % 2 == 0));
            map.clear();
            assert!(map.is_empty() && map == SortedMap::default());
        }
    }
}
