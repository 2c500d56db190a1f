//! What must be found in a database, whatever its checkpoint and its log have of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use polychron_base::IndexId;
use polychron_log::Error;
use polychron_log::catalog::{Standing, StoredCatalog, StoredTable};
use polychron_log::recover::{Batch, Sink};
use polychron_schema::{ColumnType, TableDefinition};

/// The words of a row: its key and four numbers.
pub(crate) const WORDS: usize = 5;

/// A catalog of tables of numbers at these positions.
fn catalog(tables: &BTreeSet<u32>) -> StoredCatalog {
    let table = |position: &u32| {
        let definition = TableDefinition::new(format!("t{position}")).with_column("id", ColumnType::U64);
        let definition = (0..4).fold(definition, |it, column| it.with_column(format!("n{column}"), ColumnType::U64));
        let definition = Arc::new(definition.with_key([0]));
        (
            *position,
            StoredTable {
                definition,
                indexes: Vec::new(),
                last_index: IndexId::PRIMARY,
                standing: Standing::Permanent,
            },
        )
    };
    StoredCatalog::new(1000, tables.iter().map(table).collect()).expect("they are valid")
}

/// The same, as bytes.
pub(crate) fn encoded(tables: &BTreeSet<u32>) -> Vec<u8> {
    polychron_log::catalog::encode(&catalog(tables))
}

/// Which row: of which table, and its key.
pub(crate) type Key = (u32, u64);
pub(crate) type Rows = BTreeMap<Key, Vec<u64>>;

/// What is done to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Put(Vec<u64>),
    Patch(usize, Vec<u64>),
    Delete,
}

impl Done {
    /// The row as it is then.
    pub(crate) fn apply(&self, row: Option<&Vec<u64>>) -> Option<Vec<u64>> {
        match self {
            Self::Put(row) => Some(row.clone()),
            Self::Delete => None,
            Self::Patch(first, words) => {
                let mut row = row.expect("what is patched is there").clone();
                row[*first..first + words.len()].copy_from_slice(words);
                Some(row)
            }
        }
    }
}

/// A transaction that was sealed.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub(crate) incarnation: u64,
    pub(crate) order: u64,
    pub(crate) epoch: u64,
    pub(crate) done: Vec<(Key, Done)>,
}

/// All that was sealed and can still be, and what is certain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) sealed: Vec<Sealed>,
    /// Up to this epoch all was acknowledged, or an opening has found it.
    pub(crate) certain: u64,
    /// The last opening that has succeeded.
    pub(crate) incarnation: u64,
    /// Which tables there were, one after the other, and the first of these lists that can still be found.
    pub(crate) tables: Vec<BTreeSet<u32>>,
    pub(crate) first: usize,
}

/// What a database was found to have.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) tables: BTreeSet<u32>,
    pub(crate) rows: Rows,
    /// The last epoch that is whole.
    pub(crate) whole: u64,
    /// The last opening, and up to which epoch the log was whole then.
    pub(crate) incarnation: u64,
    pub(crate) durable: u64,
}

/// The rows of these tables after these transactions, in their order.
pub(crate) fn replay<'s>(sealed: impl Iterator<Item = &'s Sealed>, tables: &BTreeSet<u32>) -> Rows {
    let mut sealed: Vec<_> = sealed.collect();
    sealed.sort_by_key(|sealed| (sealed.incarnation, sealed.order));
    let mut rows = Rows::new();
    for (key, done) in sealed.iter().flat_map(|sealed| &sealed.done) {
        match done.apply(rows.get(key)) {
            Some(row) => rows.insert(*key, row),
            None => rows.remove(key),
        };
    }
    rows.retain(|(table, _), _| tables.contains(table));
    rows
}

impl Ledger {
    /// The rows that must be there.
    fn rows(&self, found: &Found) -> Rows {
        let Found { tables, whole, incarnation, durable, .. } = found;
        // An opening that has failed has decided, too, and begun with the next epoch.
        let last = if *incarnation > self.incarnation { (*durable).min(*whole) } else { *whole };
        replay(self.sealed.iter().filter(|sealed| sealed.epoch <= last), tables)
    }

    /// What is wrong with what was found, in words.
    pub(crate) fn complaint(&self, found: &Found) -> Option<String> {
        let Found { tables, rows, whole, .. } = found;
        if *whole < self.certain {
            return Some(format!("epochs up to {whole} are there, and {} was certain", self.certain));
        }
        if !self.tables.is_empty() && !self.tables[self.first..].contains(tables) {
            return Some(format!("the tables are {tables:?}, and can be {:?}", &self.tables[self.first..]));
        }
        let expected = self.rows(found);
        if let Some((key, row)) = expected.iter().find(|(key, row)| rows.get(key) != Some(row)) {
            return Some(format!("{key:?} is {:?} in place of {row:?}", rows.get(key)));
        }
        let other = rows.keys().find(|key| !expected.contains_key(key));
        other.map(|key| format!("{key:?} is there, and was deleted"))
    }

    /// An opening goes on with what it has found.
    pub(crate) fn decide(&mut self, found: &Found) {
        self.sealed.retain(|sealed| sealed.epoch <= found.whole);
        (self.certain, self.incarnation) = (found.whole, found.incarnation);
        self.tables = vec![found.tables.clone()];
        self.first = 0;
    }
}

/// Rows as they are handed out.
#[derive(Default)]
pub(crate) struct Collected(pub(crate) Mutex<Rows>);

impl Sink for Collected {
    type Error = Error;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut rows = self.0.lock().unwrap();
        for row in batch.rows() {
            let key = u64::from_be_bytes(row.key.try_into().expect("it is a number"));
            assert!(rows.insert((batch.table(), key), row.words.to_vec()).is_none(), "a row comes twice");
        }
        Ok(())
    }
}
