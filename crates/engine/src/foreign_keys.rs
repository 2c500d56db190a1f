//! Foreign keys, for every protocol at once: a write looks through its own transaction for the parent row, a deletion for the
//! children. These are reads like any other, so under a serializable protocol a foreign key holds because the transactions have an order.
//! Levels of isolation that do not protect reads protect these ([`Transaction::protect_reads`]).
//!
//! The row is written first and its parents are checked afterwards, so a row may refer to itself. A write that is refused is undone, and the
//! transaction may go on. All writes of procedures come through here: typed operations ([`crate::Operations`]) directly, those of bytes behind the
//! checks of [`crate::checked`].

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::error::{self, KeyPreview, Naming};
use polychron_base::key::{EncodedKey, MAX_KEY_BYTES};
use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{
    ColumnSet, EvolutionError, ForeignKeyDefinition, KeyExtractor, KeyScratch, Projection, RowBuffer, RowMut, RowRef,
    Slot, TableDefinition, Value,
};

use crate::checked::RowRules;
use crate::key_names::{KeyNames, Words};
use crate::write_rules::{self, WriteRules};
use crate::{Insertion, Scan, Transaction, steady};

/// A foreign key between two tables of a database.
#[derive(Debug)]
pub struct Reference {
    child: TableId,
    parent: TableId,
    columns: ColumnSet,
    positions: Box<[usize]>,
    slots: Box<[Slot]>,
    /// Makes the parent's key of a row of the child.
    to_parent: KeyExtractor,
    /// The parent's key.
    key: KeyExtractor,
    /// The child's index that begins with the columns, and whether they are all of its key.
    index: IndexId,
    is_whole: bool,
    to_children: KeyExtractor,
}

/// The foreign keys that lead from a table and to it, and what its rows must be.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    rules: Option<Arc<RowRules>>,
    /// Indexed by the ids of the indexes, including dropped ones.
    keys: Vec<Option<Arc<KeyNames>>>,
    /// Says the names to errors.
    naming: Option<Arc<Naming>>,
    parents: Vec<Arc<Reference>>,
    children: Vec<Arc<Reference>>,
    /// Why nothing is written, while the table becomes one of other rows.
    held: Option<Arc<EvolutionError>>,
    /// What a layer above asks of rows that others write.
    outside: Option<Arc<dyn WriteRules>>,
}

impl Reference {
    fn new(
        (child, definition, ids): (TableId, &TableDefinition, &[IndexId]),
        foreign_key: &ForeignKeyDefinition,
        (parent, parents): (TableId, &TableDefinition),
    ) -> Result<Self, Error> {
        let layout = definition.layout()?;
        let columns = &foreign_key.columns;
        let (index, of_index, appends, to_children) = match definition.index_for(foreign_key)? {
            None => (IndexId::PRIMARY, &definition.key, false, KeyExtractor::primary(definition)?),
            Some(position) => {
                let of_index = &definition.indexes[position];
                let is_longer = definition.appends_primary_key(of_index);
                let extractor = KeyExtractor::secondary(definition, position)?;
                (ids[position], &of_index.columns, is_longer, extractor)
            }
        };
        Ok(Self {
            child,
            parent,
            columns: columns.iter().fold(ColumnSet::EMPTY, |set, &column| set.with(column as u16)),
            positions: columns.clone().into_boxed_slice(),
            slots: columns.iter().map(|&column| layout.columns()[column].slot).collect(),
            to_parent: KeyExtractor::foreign(definition, columns, parents)?,
            key: KeyExtractor::primary(parents)?,
            index,
            is_whole: !appends && of_index.len() == columns.len(),
            to_children,
        })
    }

    /// The table that it leads to.
    pub fn parent(&self) -> TableId {
        self.parent
    }

    /// The key of a row's parent; none when a column is NULL.
    fn parent_key<'s>(&self, row: RowRef<'_>, scratch: &'s mut KeyScratch) -> Result<Option<&'s [u8]>, Error> {
        if self.slots.iter().any(|slot| row.is_null(*slot)) {
            return Ok(None);
        }
        Ok(self.to_parent.extract(row, scratch).map(Some)?)
    }

    /// Its description in errors, with the parent's key.
    #[cold]
    fn in_words<T: Transaction + ?Sized>(&self, transaction: &T, key: &[u8]) -> Result<error::Reference, Error> {
        let (child, parent) = (transaction.definition(self.child)?, transaction.definition(self.parent)?);
        let names = |definition: &TableDefinition, positions: &[usize]| {
            (definition.name.clone(), positions.iter().map(|&at| definition.columns[at].name.clone()).collect())
        };
        let values = self.key.decode_key(key)?.iter().map(Value::to_string).collect();
        Ok(error::Reference::new(names(child, &self.positions), names(parent, &parent.key), values))
    }

    /// The range of the child's index that holds a parent's children.
    fn children_of(&self, key: &[u8]) -> Result<(Vec<u8>, Bound<Vec<u8>>), Error> {
        let mut scratch = KeyScratch::new();
        let first = self.to_children.encode_key(&self.key.decode_key(key)?, &mut scratch)?.to_vec();
        let upper = if self.is_whole { Bound::Included(first.clone()) } else { behind(&first) };
        Ok((first, upper))
    }
}

/// Behind all keys that begin with these bytes.
fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    let Some(last) = prefix.iter().rposition(|&byte| byte != u8::MAX) else { return Bound::Unbounded };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Bound::Excluded(end)
}

impl Constraints {
    /// None.
    pub const NONE: &'static Self = &Self {
        rules: None,
        keys: Vec::new(),
        naming: None,
        parents: Vec::new(),
        children: Vec::new(),
        held: None,
        outside: None,
    };

    /// The constraints of a new table, whose secondary indexes have these ids: its foreign keys, and those among them that refer to the table itself.
    ///
    /// # Errors
    /// [`Error::Definition`]: there is no such parent, or its key has other types.
    pub fn of<'d>(
        (table, definition, ids): (TableId, &'d TableDefinition, &[IndexId]),
        find: impl Fn(&str) -> Option<TableId>,
        definition_of: impl Fn(TableId) -> Result<&'d TableDefinition, Error>,
    ) -> Result<Self, Error> {
        let rules = Some(Arc::new(RowRules::new(definition)?));
        let keys = KeyNames::all(definition, ids)?;
        let mut constraints = Self { rules, keys, ..Self::default() };
        constraints.register_names(table, definition);
        for foreign_key in &definition.foreign_keys {
            let parent = if foreign_key.parent == definition.name { Some(table) } else { find(&foreign_key.parent) };
            let parent = parent.ok_or_else(|| {
                Error::definition(format!(
                    "`{}` refers to `{}`, which does not exist",
                    definition.name, foreign_key.parent
                ))
            })?;
            let parents = if parent == table { definition } else { definition_of(parent)? };
            let reference = Arc::new(Reference::new((table, definition, ids), foreign_key, (parent, parents))?);
            if parent == table {
                constraints.children.push(Arc::clone(&reference));
            }
            constraints.parents.push(reference);
        }
        Ok(constraints)
    }

    /// An index of this id is added to the table, and is the last one of this definition.
    ///
    /// # Errors
    /// When the definition is not valid.
    pub fn add_index(&mut self, table: TableId, definition: &TableDefinition, index: IndexId) -> Result<(), Error> {
        let names = KeyNames::secondary(definition, definition.indexes.len() - 1)?;
        self.keys.resize(index.position(), None);
        self.keys.push(Some(Arc::new(names)));
        self.register_names(table, definition);
        Ok(())
    }

    fn register_names(&mut self, table: TableId, definition: &TableDefinition) {
        self.naming = Some(Arc::new(Naming::begin(table, Arc::new(Words::new(definition, &self.keys)))));
    }

    /// [`Error::Duplicate`] of a row whose key is taken in an index.
    #[cold]
    pub fn duplicate(&self, table: TableId, index: IndexId, row: RowRef<'_>) -> Error {
        let key = self.keys.get(index.position()).and_then(|names| names.as_ref()?.of_row(row));
        key.map_or_else(|| Error::duplicate(table, index), |key| Error::duplicate_key(table, index, key))
    }

    /// The table's row rules, if it has any.
    pub(crate) fn rules(&self) -> Option<&Arc<RowRules>> {
        self.rules.as_ref()
    }

    /// The foreign keys that lead to other tables.
    pub fn foreign(&self, table: TableId) -> impl Iterator<Item = &Arc<Reference>> {
        self.parents.iter().filter(move |reference| reference.parent != table)
    }

    /// Another table refers to this one from now on.
    pub fn add_child(&mut self, reference: Arc<Reference>) {
        self.children.push(reference);
    }

    /// A table that another one refers to is not dropped.
    ///
    /// # Errors
    /// [`Error::Definition`].
    pub fn check_removal(&self, name: &str, table: TableId, exists: impl Fn(TableId) -> bool) -> Result<(), Error> {
        let child =
            self.children.iter().map(|reference| reference.child).find(|&child| child != table && exists(child));
        child.map_or(Ok(()), |child| Err(Error::definition(format!("{} refers to `{name}`", error::table_name(child)))))
    }

    /// Forbids writes to the table of this name, which is to become one of other rows, or allows them again.
    ///
    /// # Errors
    /// [`EvolutionError::Ruled`].
    pub fn hold(&mut self, table: &str, why: Option<Arc<EvolutionError>>) -> Result<(), EvolutionError> {
        if why.is_some() && self.outside.is_some() {
            return Err(EvolutionError::Ruled { table: table.to_owned() });
        }
        self.held = why;
        Ok(())
    }

    /// Writes that do not obey the table's rules by themselves are held to these from now on.
    pub fn set_write_rules(&mut self, rules: Option<Arc<dyn WriteRules>>) {
        self.outside = rules;
    }

    /// The table has another name now, that of its definition. Its indexes have these ids.
    ///
    /// # Errors
    /// When the definition is not valid.
    pub fn rename(&mut self, table: TableId, definition: &TableDefinition, ids: &[IndexId]) -> Result<(), Error> {
        self.rules = Some(Arc::new(RowRules::new(definition)?));
        self.keys = KeyNames::all(definition, ids)?;
        self.register_names(table, definition);
        Ok(())
    }

    /// The table may be written.
    ///
    /// # Errors
    /// [`EvolutionError::Superseded`].
    #[inline]
    fn check_open(&self) -> Result<&Self, Error> {
        match &self.held {
            None => Ok(self),
            Some(why) => Err(EvolutionError::clone(why).into()),
        }
    }

    /// Whether something is asked of a new row, or a changed one.
    #[inline]
    fn has_parents(&self) -> bool {
        !self.parents.is_empty() || self.outside_rules().is_some()
    }

    /// Whether something is asked of a deletion.
    #[inline]
    fn has_children(&self) -> bool {
        !self.children.is_empty() || self.outside_rules().is_some()
    }

    /// The rules of a layer above, unless that is what writes.
    #[inline]
    fn outside_rules(&self) -> Option<&Arc<dyn WriteRules>> {
        self.outside.as_ref().filter(|_| !write_rules::are_obeyed())
    }

    /// An index by which children are found is not dropped.
    ///
    /// # Errors
    /// [`Error::Definition`].
    pub fn check_index_removal(&self, index: IndexId) -> Result<(), Error> {
        if self.parents.iter().any(|reference| reference.index == index) {
            return Err(Error::definition("a foreign key needs this index"));
        }
        Ok(())
    }
}

/// As [`Transaction::insert_unchecked`], of a row whose parents must exist.
///
/// # Errors
/// [`Error::NoParent`], beside those of the method.
#[inline]
pub fn insert_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    row: RowRef<'_>,
) -> Result<Insertion, Error> {
    steady!(table, key => insert_row(transaction, table, key, row));
    let mark = before(transaction, table, Constraints::has_parents)?;
    let outcome = transaction.insert_unchecked(table, key, row);
    match mark {
        None => outcome,
        Some(mark) => check_new_row(transaction, table, row, outcome, mark),
    }
}

/// As [`Transaction::put_unchecked`], of a row whose parents must exist.
///
/// # Errors
/// As for [`insert_row`].
#[inline]
pub fn put_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    row: RowRef<'_>,
) -> Result<Insertion, Error> {
    steady!(table, key => put_row(transaction, table, key, row));
    let mark = before(transaction, table, Constraints::has_parents)?;
    let outcome = transaction.put_unchecked(table, key, row);
    match mark {
        None => outcome,
        Some(mark) => check_new_row(transaction, table, row, outcome, mark),
    }
}

/// As [`Transaction::update_unchecked`]; where a foreign key changes, the new parent must exist.
///
/// # Errors
/// As for [`insert_row`].
#[inline]
pub fn update_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    projection: &Projection,
    change: impl FnOnce(&mut RowMut<'_>),
) -> Result<bool, Error> {
    steady!(table, key => update_row(transaction, table, key, projection, change));
    let mark = before(transaction, table, Constraints::has_parents)?;
    let mut changed = ColumnSet::EMPTY;
    let outcome = transaction.update_unchecked(table, key, projection, |row| {
        change(row);
        changed = row.changes().columns();
    });
    match mark {
        None => outcome,
        Some(mark) => check_changed_row(transaction, (table, key), changed, outcome, mark),
    }
}

/// As [`Transaction::delete_unchecked`], of a row to which no other one may refer.
///
/// # Errors
/// [`Error::HasChildren`], beside those of the method.
#[inline]
pub fn delete_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
) -> Result<bool, Error> {
    steady!(table, key => delete_row(transaction, table, key));
    let mark = before(transaction, table, Constraints::has_children)?;
    let outcome = transaction.delete_unchecked(table, key);
    match mark {
        None => outcome,
        Some(mark) => check_deleted_row(transaction, (table, key), outcome, mark),
    }
}

/// Whether a write of these columns of a table may be refused for what it writes.
pub(crate) fn concerns<T: Transaction + ?Sized>(
    transaction: &T,
    table: TableId,
    columns: ColumnSet,
) -> Result<bool, Error> {
    let constraints = transaction.constraints(table)?.check_open()?;
    let mut parents = constraints.parents.iter();
    Ok(constraints.outside_rules().is_some() || parents.any(|reference| reference.columns.intersects(columns)))
}

/// The position to undo to if a write breaks a rule; for tables whose writes are checked.
#[inline(always)]
fn before<T: Transaction + ?Sized>(
    transaction: &mut T,
    table: TableId,
    is_checked: impl FnOnce(&Constraints) -> bool,
) -> Result<Option<usize>, Error> {
    if is_checked(transaction.constraints(table)?.check_open()?) {
        transaction.mark_operation().map(Some)
    } else {
        Ok(None)
    }
}

#[cold]
fn check_new_row<T: Transaction + ?Sized>(
    transaction: &mut T,
    table: TableId,
    row: RowRef<'_>,
    outcome: Result<Insertion, Error>,
    mark: usize,
) -> Result<Insertion, Error> {
    let insertion = outcome?;
    if insertion == Insertion::Inserted {
        let checked = check_written(transaction, table, ColumnSet::ALL, row);
        undo_refused(transaction, mark, checked)?;
    }
    Ok(insertion)
}

#[cold]
fn check_changed_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    (table, key): (TableId, K),
    changed: ColumnSet,
    outcome: Result<bool, Error>,
    mark: usize,
) -> Result<bool, Error> {
    if !outcome? {
        return Ok(false);
    }
    let checked = check_present_row(transaction, (table, key), changed);
    undo_refused(transaction, mark, checked)?;
    Ok(true)
}

fn check_present_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    (table, key): (TableId, K),
    changed: ColumnSet,
) -> Result<(), Error> {
    if !concerns(transaction, table, changed)? {
        return Ok(());
    }
    let mut row = RowBuffer::new();
    if let Some(present) = transaction.read_row(table, key, &Projection::ALL)? {
        row.copy_from(present.as_bytes());
    }
    check_written(transaction, table, changed, row.as_row())
}

#[cold]
fn check_deleted_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    (table, key): (TableId, K),
    outcome: Result<bool, Error>,
    mark: usize,
) -> Result<bool, Error> {
    if !outcome? {
        return Ok(false);
    }
    let mut bytes = [0; MAX_KEY_BYTES];
    let length = key.write_to(&mut bytes);
    let by_rules = transaction.constraints(table)?.outside_rules().map_or(Ok(()), |rules| rules.check_deletion());
    let checked = by_rules.and_then(|()| check_children(transaction, table, &bytes[..length]));
    undo_refused(transaction, mark, checked)?;
    Ok(true)
}

/// Undoes a write that was refused, so that nothing of it is left for a caller that catches the error. Where it cannot be undone alone, the
/// transaction must not go on, and catching an error must not let it: it is ended as by a panic. An engine
/// without transactions keeps the write.
fn undo_refused<T: Transaction + ?Sized>(
    transaction: &mut T,
    mark: usize,
    checked: Result<(), Error>,
) -> Result<(), Error> {
    if let Err(error) = &checked
        && !error.is_conflict()
    {
        match transaction.undo_operation(mark) {
            Ok(()) | Err(Error::Unsupported { .. }) => {}
            Err(Error::Conflict) => return Err(Error::Conflict),
            Err(failed) => return Err(transaction.give_up(failed)),
        }
    }
    checked
}

/// Looks at a row that was written: by the rules of a layer above, and for its parents.
fn check_written<T: Transaction + ?Sized>(
    transaction: &mut T,
    table: TableId,
    changed: ColumnSet,
    row: RowRef<'_>,
) -> Result<(), Error> {
    if let Some(rules) = transaction.constraints(table)?.outside_rules() {
        rules.check_row(row)?;
    }
    check_parents(transaction, table, changed, row)
}

fn check_parents<T: Transaction + ?Sized>(
    transaction: &mut T,
    table: TableId,
    changed: ColumnSet,
    row: RowRef<'_>,
) -> Result<(), Error> {
    for number in 0.. {
        let Some(reference) = transaction.constraints(table)?.parents.get(number) else { break };
        let mut scratch = KeyScratch::new();
        let key = if reference.columns.intersects(changed) { reference.parent_key(row, &mut scratch)? } else { None };
        let (Some(key), parent) = (key, reference.parent) else { continue };
        transaction.protect_reads(true);
        let is_there = transaction.read_row(parent, key, &Projection::NONE).map(|row| row.is_some());
        transaction.protect_reads(false);
        if !is_there? {
            let reference = &transaction.constraints(table)?.parents[number];
            let words = reference.in_words(transaction, key)?;
            return Err(Error::no_parent(table, parent, KeyPreview::new(key), words));
        }
    }
    Ok(())
}

fn check_children<T: Transaction + ?Sized>(transaction: &mut T, table: TableId, key: &[u8]) -> Result<(), Error> {
    for number in 0.. {
        let Some(reference) = transaction.constraints(table)?.children.get(number) else { break };
        let (child, index) = (reference.child, reference.index);
        let (lower, upper) = reference.children_of(key)?;
        if transaction.definition(child).is_err() {
            // It was dropped.
            continue;
        }
        let scan = Scan {
            index,
            lower: Bound::Included(&lower),
            upper: upper.as_ref().map(Vec::as_slice),
            limit: 1,
            projection: Projection::NONE,
            ..Scan::all(child)
        };
        let mut has_children = false;
        transaction.protect_reads(true);
        let visited = transaction.scan_unchecked(&scan, &mut |_| {
            has_children = true;
            ControlFlow::Break(())
        });
        transaction.protect_reads(false);
        visited?;
        if has_children {
            let reference = &transaction.constraints(table)?.children[number];
            let words = reference.in_words(transaction, key)?;
            return Err(Error::has_children(table, child, KeyPreview::new(key), words));
        }
    }
    Ok(())
}
