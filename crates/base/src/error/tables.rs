//! What tables, their indexes and columns are called, for errors: who makes one knows ids, and who reads it is to learn names, also when the
//! database is gone.
//!
//! Each table says its names for as long as it is there ([`Naming`]). Errors ask when they are made, which is rare, so that the code that makes
//! them needs no way to the definition.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{KeyPreview, NamedKey};
use crate::id::{IndexId, TableId};
use crate::key::EncodedKey;

/// How a table and what belongs to it are called.
pub trait TableNames: fmt::Debug + Send + Sync {
    /// The table.
    fn table(&self) -> &str;
    /// The column at a position.
    fn column(&self, position: usize) -> Option<&str>;
    /// A secondary index, also one that was dropped.
    fn index(&self, index: IndexId) -> Option<&str>;
    /// An encoded key of an index in words, or the first bytes of one. `None`: it is no key of this index.
    fn key(&self, index: IndexId, key: &[u8], is_whole: bool) -> Option<NamedKey>;
}

/// Says a table's names until it is dropped. Those that began last count.
#[derive(Debug)]
pub struct Naming {
    table: TableId,
    names: Arc<dyn TableNames>,
}

#[derive(Debug)]
struct Known {
    present: BTreeMap<TableId, Vec<Arc<dyn TableNames>>>,
    /// By the number of the database, the names of tables that were dropped last.
    gone: BTreeMap<u32, VecDeque<(TableId, String)>>,
}

/// How many names of tables that were dropped are kept of a database: an error may come of a handle to one. And of how many databases: the latest ones.
const GONE: usize = 64;
const DATABASES: usize = 1024;

static KNOWN: RwLock<Known> = RwLock::new(Known { present: BTreeMap::new(), gone: BTreeMap::new() });

fn known() -> RwLockReadGuard<'static, Known> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner)
}

fn change_known() -> RwLockWriteGuard<'static, Known> {
    KNOWN.write().unwrap_or_else(PoisonError::into_inner)
}

impl Naming {
    /// From now on.
    pub fn begin(table: TableId, names: Arc<dyn TableNames>) -> Self {
        change_known().present.entry(table).or_default().push(Arc::clone(&names));
        Self { table, names }
    }
}

impl Drop for Naming {
    fn drop(&mut self) {
        let mut known = change_known();
        let Some(present) = known.present.get_mut(&self.table) else { return };
        present.retain(|names| !Arc::ptr_eq(names, &self.names));
        if present.is_empty() {
            known.present.remove(&self.table);
        }
    }
}

/// A table of this name is dropped: handles to it may be used once more.
pub fn table_is_dropped(table: TableId, name: &str) {
    let mut known = change_known();
    let of_database = known.gone.entry(table.database()).or_default();
    if of_database.len() == GONE {
        of_database.pop_front();
    }
    of_database.push_back((table, name.to_owned()));
    if known.gone.len() > DATABASES {
        known.gone.pop_first();
    }
}

fn names_of(table: TableId) -> Option<Arc<dyn TableNames>> {
    known().present.get(&table)?.last().cloned()
}

/// The name of a table, or its number where nobody has said one.
#[cold]
pub fn table(table: TableId) -> String {
    if let Some(names) = names_of(table) {
        return names.table().to_owned();
    }
    let known = known();
    let mut gone = known.gone.get(&table.database()).into_iter().flatten();
    gone.find(|(other, _)| *other == table).map_or_else(|| table.to_string(), |(_, name)| name.clone())
}

/// The name of an index behind that of its table: `user.by_email`.
#[cold]
pub(super) fn index(id: TableId, index: IndexId) -> String {
    if index == IndexId::PRIMARY {
        return format!("the primary index of {}", table(id));
    }
    match names_of(id).and_then(|names| Some(format!("{}.{}", names.table(), names.index(index)?))) {
        Some(name) => name,
        None => format!("{index} of {}", table(id)),
    }
}

/// The name of a column behind that of its table: `user.email`.
#[cold]
pub fn column(id: TableId, column: usize) -> String {
    match names_of(id).and_then(|names| Some(format!("{}.{}", names.table(), names.column(column)?))) {
        Some(name) => name,
        None => format!("column {column} of {}", table(id)),
    }
}

/// A key of an index in words, as far as it is known.
#[cold]
pub fn key(id: TableId, index: IndexId, key: Option<&KeyPreview>) -> NamedKey {
    let names = names_of(id);
    let named = key.and_then(|key| names.as_ref()?.key(index, key.bytes(), key.whole().is_some()));
    named.unwrap_or_else(|| unnamed(id, index, names.as_deref(), key))
}

/// A key of the primary index in words.
#[cold]
pub(super) fn whole_key<K: EncodedKey>(id: TableId, key: K) -> NamedKey {
    let mut bytes = vec![0; key.len()];
    key.write_to(&mut bytes);
    let names = names_of(id);
    let named = names.as_ref().and_then(|names| names.key(IndexId::PRIMARY, &bytes, true));
    named.unwrap_or_else(|| unnamed(id, IndexId::PRIMARY, names.as_deref(), Some(&KeyPreview::new(&bytes[..]))))
}

/// A key that cannot be decoded stands there as bytes.
fn unnamed(id: TableId, index: IndexId, names: Option<&dyn TableNames>, key: Option<&KeyPreview>) -> NamedKey {
    let of_index = || names.and_then(|names| names.index(index)).map_or_else(|| index.to_string(), str::to_owned);
    let index = (index != IndexId::PRIMARY).then(of_index);
    let values = key.map(KeyPreview::to_string).into_iter().collect();
    NamedKey::new(table(id), index, Vec::new(), values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Called(&'static str);

    impl TableNames for Called {
        fn table(&self) -> &str {
            self.0
        }

        fn column(&self, position: usize) -> Option<&str> {
            ["id", "email"].get(position).copied()
        }

        fn index(&self, index: IndexId) -> Option<&str> {
            (index == IndexId(1)).then_some("by_email")
        }

        fn key(&self, index: IndexId, key: &[u8], _: bool) -> Option<NamedKey> {
            let index = self.index(index).map(str::to_owned);
            (key.len() == 1).then(|| NamedKey::new(self.0.into(), index, vec!["id".into()], vec![key[0].to_string()]))
        }
    }

    #[test]
    fn tables_are_called_by_their_latest_names() {
        let (id, other) = (TableId::new(0x00FF_FFFE, 3), TableId::new(0x00FF_FFFE, 4));
        assert_eq!(table(id), "table 3");
        let first = Naming::begin(id, Arc::new(Called("first")));
        let second = Naming::begin(id, Arc::new(Called("second")));
        assert_eq!((table(id), table(other)), ("second".into(), "table 4".into()));
        drop(second);
        assert_eq!(table(id), "first", "the other one was not published");
        assert_eq!(
            (index(id, IndexId(1)), index(id, IndexId(2))),
            ("first.by_email".into(), "index 2 of first".into())
        );
        assert_eq!(index(id, IndexId::PRIMARY), "the primary index of first");
        assert_eq!((column(id, 1), column(id, 2)), ("first.email".into(), "column 2 of first".into()));
        let preview = KeyPreview::new(&[7][..]);
        assert_eq!(key(id, IndexId::PRIMARY, Some(&preview)).to_string(), "(id)=(7) in first");
        assert_eq!(key(id, IndexId(1), None).to_string(), "in first.by_email");
        assert_eq!(whole_key(id, &[7, 8][..]).to_string(), "0x0708 in first");
        drop(first);
        assert_eq!(table(id), "table 3");
        table_is_dropped(id, "first");
        assert_eq!(table(id), "first", "not long ago there was one");
        for position in 4..4 + GONE as u32 {
            table_is_dropped(TableId::new(id.database(), position), "another");
        }
        assert_eq!((table(id), table(other)), ("table 3".into(), "another".into()));
        assert_eq!(known().gone[&id.database()].len(), GONE);
        assert!(!known().present.contains_key(&id));
    }
}
