//! The keys of a table's indexes in the words of its definition, for errors.

use std::sync::Arc;

use polychron_base::error::{NamedKey, TableNames};
use polychron_base::{Error, IndexId};
use polychron_schema::{KeyExtractor, KeyScratch, RowRef, TableDefinition, Value};

/// The name of an index's key.
#[derive(Debug)]
pub(crate) struct KeyNames {
    table: String,
    /// None of the primary index.
    index: Option<String>,
    columns: Vec<String>,
    extractor: KeyExtractor,
}

impl KeyNames {
    /// The keys of the primary index and of the secondary ones, which have these ids; the result is indexed by id.
    pub(crate) fn all(definition: &TableDefinition, ids: &[IndexId]) -> Result<Vec<Option<Arc<Self>>>, Error> {
        let primary = Self::new(definition, None, &definition.key, KeyExtractor::primary(definition)?);
        let mut all = vec![Some(Arc::new(primary))];
        for (position, id) in ids.iter().enumerate() {
            all.resize(id.position(), None);
            all.push(Some(Arc::new(Self::secondary(definition, position)?)));
        }
        Ok(all)
    }

    /// The key of the secondary index at a position of the definition.
    pub(crate) fn secondary(definition: &TableDefinition, position: usize) -> Result<Self, Error> {
        let extractor = KeyExtractor::secondary(definition, position)?;
        let index = &definition.indexes[position];
        Ok(Self::new(definition, Some(index.name.clone()), &index.columns, extractor))
    }

    fn new(definition: &TableDefinition, index: Option<String>, columns: &[usize], extractor: KeyExtractor) -> Self {
        let columns = columns.iter().map(|&column| definition.columns[column].name.clone()).collect();
        Self { table: definition.name.clone(), index, columns, extractor }
    }

    /// The key of a row. `None`: the row has none.
    pub(crate) fn of_row(&self, row: RowRef<'_>) -> Option<NamedKey> {
        let mut scratch = KeyScratch::new();
        self.of_bytes(self.extractor.extract(row, &mut scratch).ok()?)
    }

    /// An encoded key of which these are the first bytes.
    fn of_front(&self, key: &[u8]) -> NamedKey {
        let values = self.extractor.describe_front(key);
        NamedKey::new(self.table.clone(), self.index.clone(), self.columns.clone(), values)
    }

    /// An encoded key. `None`: it is none of this index.
    pub(crate) fn of_bytes(&self, key: &[u8]) -> Option<NamedKey> {
        let values = self.extractor.decode_key(key).ok()?;
        // The primary key may follow.
        let values = values.iter().take(self.columns.len()).map(Value::to_string).collect();
        Some(NamedKey::new(self.table.clone(), self.index.clone(), self.columns.clone(), values))
    }
}

/// The names of a table, its columns and the keys of its indexes.
#[derive(Debug)]
pub(crate) struct Words {
    table: String,
    columns: Vec<String>,
    /// Indexed by the ids of the indexes.
    keys: Vec<Option<Arc<KeyNames>>>,
}

impl Words {
    pub(crate) fn new(definition: &TableDefinition, keys: &[Option<Arc<KeyNames>>]) -> Self {
        let columns = definition.columns.iter().map(|column| column.name.clone()).collect();
        Self { table: definition.name.clone(), columns, keys: keys.to_vec() }
    }
}

impl TableNames for Words {
    fn table(&self) -> &str {
        &self.table
    }

    fn column(&self, position: usize) -> Option<&str> {
        self.columns.get(position).map(String::as_str)
    }

    fn index(&self, index: IndexId) -> Option<&str> {
        self.keys.get(index.position())?.as_ref()?.index.as_deref()
    }

    fn key(&self, index: IndexId, key: &[u8], is_whole: bool) -> Option<NamedKey> {
        let names = self.keys.get(index.position())?.as_ref()?;
        if is_whole { names.of_bytes(key) } else { Some(names.of_front(key)) }
    }
}
