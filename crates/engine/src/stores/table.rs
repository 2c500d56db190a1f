//! A table of stores, and its changes in the catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use polychron_base::error::KeyPreview;
use polychron_base::key::{HashSeed, Key16};
use polychron_base::{Error, IndexId, TableId};
use polychron_index::AnyIndex;
use polychron_schema::{
    ColumnSet, EvolutionError, IndexDefinition, IndexKind, KeyExtractor, KeyScratch, Layout, RowRef, TableDefinition,
};

use super::{Hinted, IndexRef, Records, key_in_entry};
use crate::catalog::{self, Catalog, Described};
use crate::definitions::{Standing, StoredCatalog, StoredTable};
use crate::foreign_keys::Constraints;
use crate::{Scan, WriteRules};

/// The parameters of an index's store.
#[derive(Clone, Debug)]
pub struct StoreDefinition {
    /// Which index it is.
    pub index_ref: IndexRef,
    /// Ordered or hash.
    pub kind: IndexKind,
    /// Whether a key occurs once at most.
    pub unique: bool,
    /// Makes the index's key of a row.
    pub extractor: KeyExtractor,
    /// The number of rows to make room for.
    pub expected_rows: usize,
    /// The seed of its keys' hashes.
    pub hash_seed: HashSeed,
    /// Whether it is read at once; otherwise it is when it has been filled.
    pub is_ready: bool,
}

/// Something that stands for one index.
pub trait Keyed {
    /// The records that the index leads to.
    type Records: Records;

    /// Whether [`Keyed::fetch_more`] does anything.
    const FETCHES_MORE: bool = false;

    /// The index and what it leads to.
    fn entries(&self) -> &super::Store<Self::Records>;

    /// Which index it is.
    #[inline]
    fn index_ref(&self) -> IndexRef {
        self.entries().index_ref
    }

    /// Whether the index may be read, and can answer the scan.
    ///
    /// # Errors
    /// As [`super::Store::scanned`].
    #[inline]
    fn check_scan(&self, scan: &Scan<'_>) -> Result<(), Error> {
        self.entries().scanned(scan).map(drop)
    }

    /// Makes the index's key of a row.
    #[inline]
    fn extractor(&self) -> &KeyExtractor {
        &self.entries().extractor
    }

    /// The index is going to be dropped: see [`super::Store::set_dropped`].
    fn set_dropped(&self) {
        self.entries().set_dropped();
    }

    /// Whether it was dropped.
    fn is_dropped(&self) -> bool {
        self.entries().is_dropped()
    }

    /// The index in which a row is looked up ahead of its use, and the number of the record's cache lines to fetch. `None`: prefetching does not pay.
    #[inline]
    fn locate<'t>(table: &'t StoreTable<Self>, _key: &Key16) -> Option<(&'t AnyIndex, usize)>
    where
        Self: Sized,
    {
        Some((table.primary.entries().index(), table.lines(Self::Records::HEADER_BYTES)))
    }

    /// Starts fetching what a record leads to that the index gave just now; its first line was asked for a while ago.
    #[inline]
    fn fetch_more(_table: &StoreTable<Self>, _record: Hinted<'_>)
    where
        Self: Sized,
    {
    }
}

impl<R: Records> Keyed for super::Store<R> {
    type Records = R;

    #[inline]
    fn entries(&self) -> &Self {
        self
    }

    #[inline]
    fn index_ref(&self) -> IndexRef {
        self.index_ref
    }

    fn set_dropped(&self) {
        super::Store::set_dropped(self);
    }

    fn is_dropped(&self) -> bool {
        super::Store::is_dropped(self)
    }
}

/// A table as one catalog entry; adding or dropping an index makes a new entry around the same stores.
#[derive(Debug)]
pub struct StoreTable<S> {
    /// The table's id.
    pub id: TableId,
    /// The definition that users see, with the indexes that exist.
    pub definition: Arc<TableDefinition>,
    /// The positions of the columns in a row.
    pub layout: Layout,
    /// Whether there are secondary indexes.
    pub has_secondaries: bool,
    /// The primary index.
    pub primary: Arc<S>,
    /// Secondary indexes by id − 1; dropped ones leave a hole.
    secondaries: Vec<Option<Arc<S>>>,
    /// The foreign keys that lead from the table and to it.
    pub constraints: Constraints,
}

impl<S> Described for StoreTable<S> {
    #[inline]
    fn id(&self) -> TableId {
        self.id
    }

    fn definition(&self) -> &Arc<TableDefinition> {
        &self.definition
    }

    fn index_ids(&self) -> (Vec<IndexId>, IndexId) {
        let ids = (1..).zip(&self.secondaries).filter(|(_, store)| store.is_some()).map(|(id, _)| IndexId(id));
        (ids.collect(), IndexId(self.secondaries.len() as u16))
    }

    fn constraints(&self) -> &Constraints {
        &self.constraints
    }
}

fn store_definition(
    definition: &TableDefinition,
    index_ref: IndexRef,
    hash_seed: HashSeed,
) -> Result<StoreDefinition, Error> {
    let (kind, unique, extractor) = match definition.indexes.last() {
        Some(index) if index_ref.index != IndexId::PRIMARY => {
            let extractor = KeyExtractor::secondary(definition, definition.indexes.len() - 1)?;
            // Equal keys of such an index differ in the primary key behind them, so finding them is a range: it is ordered,
            // whatever kind was asked for.
            let kind = if definition.appends_primary_key(index) { IndexKind::Ordered } else { index.kind };
            (kind, index.unique, extractor)
        }
        _ => (definition.primary_kind, true, KeyExtractor::primary(definition)?),
    };
    let expected_rows = definition.expected_rows;
    Ok(StoreDefinition { index_ref, kind, unique, extractor, expected_rows, hash_seed, is_ready: true })
}

impl<S: Keyed> StoreTable<S> {
    fn new(
        id: TableId,
        definition: TableDefinition,
        primary: Arc<S>,
        secondaries: Vec<Option<Arc<S>>>,
        constraints: Constraints,
    ) -> Result<Self, Error> {
        Ok(Self {
            id,
            constraints,
            layout: definition.layout()?,
            has_secondaries: secondaries.iter().any(Option::is_some),
            definition: Arc::new(definition),
            primary,
            secondaries,
        })
    }

    /// Adds a table to the catalog; `make` builds its stores.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::Definition`] (also for a foreign key to a table that is not there), what `make` answers, or what the log does.
    pub fn create(
        catalog: &Catalog<Self>,
        (definition, standing): (&TableDefinition, Standing),
        hash_seed: HashSeed,
        mut make: impl FnMut(&TableDefinition, &StoreDefinition) -> Result<S, Error>,
    ) -> Result<TableId, Error> {
        definition.validate()?;
        let ids = (0..definition.indexes.len()).map(IndexId::secondary).collect::<Result<Vec<_>, _>>()?;
        let last = ids.last().copied().unwrap_or_default();
        catalog.create(&definition.name, standing, |table, present| {
            Self::build((table, definition, &ids, last), present, hash_seed, &mut make)
        })
    }

    /// Makes tables as they were stored ([`Storage::restore`](crate::Storage::restore)); `make` builds their stores.
    ///
    /// # Errors
    /// As [`Catalog::restore`].
    pub fn restore(
        catalog: &Catalog<Self>,
        stored: &StoredCatalog,
        hash_seed: HashSeed,
        mut make: impl FnMut(&TableDefinition, &StoreDefinition) -> Result<S, Error>,
    ) -> Result<(), Error> {
        catalog.restore(stored, |table, stored, present| {
            let StoredTable { definition, indexes, last_index, .. } = stored;
            Self::build((table, definition, indexes, *last_index), present, hash_seed, &mut make)
        })
    }

    /// A table whose indexes have these ids, of which the last one is the highest that any has had, and the parents that it has among the present tables.
    fn build(
        (table, definition, ids, last): (TableId, &TableDefinition, &[IndexId], IndexId),
        present: &[Option<Arc<Self>>],
        hash_seed: HashSeed,
        make: &mut impl FnMut(&TableDefinition, &StoreDefinition) -> Result<S, Error>,
    ) -> Result<(Self, Vec<(TableId, Self)>), Error> {
        let mut growing = TableDefinition { indexes: Vec::new(), foreign_keys: Vec::new(), ..definition.clone() };
        let primary = store_definition(&growing, IndexRef { table, index: IndexId::PRIMARY }, hash_seed)?;
        let primary = Arc::new(make(&growing, &primary)?);
        let mut secondaries: Vec<Option<Arc<S>>> = (0..last.position()).map(|_| None).collect();
        for (index, &id) in definition.indexes.iter().zip(ids) {
            growing.indexes.push(index.clone());
            let index_ref = IndexRef { table, index: id };
            let store = make(&growing, &store_definition(&growing, index_ref, hash_seed)?)?;
            secondaries[id.position() - 1] = Some(Arc::new(store));
        }
        let definition_of = |id: TableId| Ok(&*catalog::get(present, id)?.definition);
        let find = |name: &str| catalog::find(present, name);
        let constraints = Constraints::of((table, definition, ids), find, definition_of)?;
        let mut parents: BTreeMap<TableId, Self> = BTreeMap::new();
        for reference in constraints.foreign(table) {
            let id = reference.parent();
            let same = catalog::get(present, id)?.same();
            parents.entry(id).or_insert(same).constraints.add_child(Arc::clone(reference));
        }
        growing.foreign_keys.clone_from(&definition.foreign_keys);
        Ok((Self::new(table, growing, primary, secondaries, constraints)?, parents.into_iter().collect()))
    }

    /// The same table once more, around the same stores.
    fn same(&self) -> Self {
        Self {
            id: self.id,
            definition: Arc::clone(&self.definition),
            layout: self.layout.clone(),
            has_secondaries: self.has_secondaries,
            primary: Arc::clone(&self.primary),
            secondaries: self.secondaries.clone(),
            constraints: self.constraints.clone(),
        }
    }

    /// From here on nothing is written into a table of the catalog by transactions that begin, or it is again.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; [`EvolutionError::Ruled`].
    pub fn hold(catalog: &Catalog<Self>, table: TableId, why: Option<Arc<EvolutionError>>) -> Result<(), Error> {
        Self::constrain(catalog, table, |table| Ok(table.constraints.hold(&table.definition.name, why)?))
    }

    /// See [`crate::Storage::set_write_rules`].
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn set_write_rules(
        catalog: &Catalog<Self>,
        table: TableId,
        rules: Option<Arc<dyn WriteRules>>,
    ) -> Result<(), Error> {
        Self::constrain(catalog, table, |table| {
            table.constraints.set_write_rules(rules);
            Ok(())
        })
    }

    /// The same table of the catalog with other constraints.
    fn constrain(
        catalog: &Catalog<Self>,
        table: TableId,
        change: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        catalog.replace(table, |present| {
            let mut same = present.same();
            change(&mut same)?;
            Ok(same)
        })
    }

    /// The same table under another name.
    ///
    /// # Errors
    /// When the definition is not valid under that name.
    pub fn renamed(&self, name: &str) -> Result<Self, Error> {
        let definition = TableDefinition::clone(&self.definition).with_name(name);
        let mut same = self.same();
        same.constraints.rename(self.id, &definition, &self.index_ids().0)?;
        same.definition = Arc::new(definition);
        Ok(same)
    }

    /// Adds a secondary index to a table of the catalog, which is provisional ([`Catalog::keep_index`]).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NameTaken`], [`Error::Definition`], or what `make` answers.
    pub fn add_index(
        catalog: &Catalog<Self>,
        table: TableId,
        definition: &IndexDefinition,
        hash_seed: HashSeed,
        make: impl FnOnce(&TableDefinition, &StoreDefinition) -> Result<S, Error>,
    ) -> Result<(IndexId, Arc<S>), Error> {
        catalog.add_index(table, |present| {
            if present.definition.indexes.iter().any(|other| other.name == definition.name) {
                return Err(Error::name_taken(definition.name.clone()));
            }
            let changed = TableDefinition::clone(&present.definition).with_index(definition.clone());
            changed.validate()?;
            let index = IndexId::secondary(present.secondaries.len())?;
            let definition = store_definition(&changed, IndexRef { table, index }, hash_seed)?;
            let store = Arc::new(make(&changed, &StoreDefinition { is_ready: false, ..definition })?);
            let mut secondaries = present.secondaries.clone();
            secondaries.push(Some(Arc::clone(&store)));
            let mut constraints = present.constraints.clone();
            constraints.add_index(table, &changed, index)?;
            let changed = Self::new(table, changed, Arc::clone(&present.primary), secondaries, constraints)?;
            Ok((changed, (index, store)))
        })
    }

    /// Takes a secondary index out of a table of the catalog. Before anybody can know that, and leave the index alone, it is marked as
    /// dropped for those who use it, and then `dropped` runs.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::NoSuchIndex`].
    pub fn remove_index(
        catalog: &Catalog<Self>,
        table: TableId,
        index: IndexId,
        dropped: impl FnOnce(&Arc<S>),
    ) -> Result<(), Error> {
        let change = |present: &Self| {
            let mut secondaries = present.secondaries.clone();
            let position = index.position().wrapping_sub(1);
            let store = secondaries.get_mut(position).and_then(Option::take);
            let store = store.ok_or_else(|| Error::no_such_index(table, index))?;
            present.constraints.check_index_removal(index)?;
            let mut definition = TableDefinition::clone(&present.definition);
            // The definition lists the indexes that exist, so the dropped one's place is counted among those.
            definition.indexes.remove(present.secondaries[..position].iter().flatten().count());
            let constraints = present.constraints.clone();
            let changed = Self::new(table, definition, Arc::clone(&present.primary), secondaries, constraints)?;
            Ok((changed, store))
        };
        catalog.remove_index(IndexRef { table, index }, change, |store| {
            store.set_dropped();
            dropped(&store);
        })
    }

    /// The store of an index.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    #[inline]
    pub fn store(&self, index: IndexId) -> Result<&Arc<S>, Error> {
        if index == IndexId::PRIMARY {
            return Ok(&self.primary);
        }
        let store = self.secondaries.get(index.position() - 1).and_then(Option::as_ref);
        store.ok_or_else(|| Error::no_such_index(self.id, index))
    }

    /// Whether an index of the table was made later than this entry of the catalog.
    pub fn is_older_than(&self, index: IndexId) -> bool {
        index.position() > self.secondaries.len()
    }

    /// The stores of all indexes.
    #[inline]
    pub fn stores(&self) -> impl Iterator<Item = &Arc<S>> {
        std::iter::once(&self.primary).chain(self.secondaries())
    }

    /// The stores of the secondary indexes.
    #[inline]
    pub fn secondaries(&self) -> impl Iterator<Item = &Arc<S>> {
        self.secondaries.iter().flatten()
    }

    /// The stores of the secondary indexes whose entries a change of these columns moves.
    #[inline]
    pub fn affected(&self, columns: ColumnSet) -> impl Iterator<Item = &Arc<S>> {
        self.secondaries().filter(move |store| store.extractor().affects(columns))
    }

    /// The primary key in the words of a record, for explaining an abort: they may be changing.
    #[cold]
    pub fn key_in(&self, index: IndexId, words: &[u64]) -> Option<KeyPreview> {
        if index != IndexId::PRIMARY {
            return Some(KeyPreview::new(key_in_entry(words)));
        }
        let mut scratch = KeyScratch::new();
        self.primary.extractor().extract(RowRef::from_words(words), &mut scratch).ok().map(KeyPreview::new)
    }

    /// Cache lines of a row's fixed part behind a header of `header_bytes`.
    pub fn lines(&self, header_bytes: usize) -> usize {
        (self.layout.shape().fixed_bytes as usize + header_bytes).div_ceil(64)
    }
}

/// The first of these places whose index was dropped.
#[cold]
pub(super) fn dropped_among<S: Keyed>(
    tables: &[Option<Arc<StoreTable<S>>>],
    mut index_refs: impl Iterator<Item = IndexRef>,
) -> Option<IndexRef> {
    index_refs.find(|index_ref| {
        let table = catalog::known(tables, index_ref.table);
        table.and_then(|table| table.store(index_ref.index).ok()).is_some_and(|store| store.is_dropped())
    })
}

/// The first table of which any index was dropped: for transactions that do not remember which ones they have asked.
#[cold]
pub fn has_dropped<S: Keyed>(tables: &[Option<Arc<StoreTable<S>>>]) -> Option<TableId> {
    let mut tables = tables.iter().flatten();
    tables.find(|table| table.secondaries().any(|store| store.is_dropped())).map(|table| table.id)
}
