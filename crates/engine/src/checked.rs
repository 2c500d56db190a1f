//! Checks of bytes before a protocol gets them: a row fits its table and stands under its own key, an update leaves the key
//! alone, and restrictions name columns of the table. Typed operations need none of this, because types say it.
//!
//! Whatever is refused changes nothing, and the transaction may go on.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

use polychron_base::error::AggregateError;
use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{
    Changes, ColumnSet, KeyExtractor, KeyScratch, Layout, MAX_ROW_BYTES, Projection, RowMut, RowRef, TableDefinition,
};

use crate::{ChangeOutcome, Insertion, Scan, Transaction, change_outcome, foreign_keys, keys, steady};

/// The rules for every row of a table.
#[derive(Debug)]
pub struct RowRules {
    layout: Layout,
    key: KeyExtractor,
}

impl RowRules {
    /// The checks of a definition.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn new(definition: &TableDefinition) -> Result<Self, Error> {
        Ok(Self { layout: definition.layout()?, key: KeyExtractor::primary(definition)? })
    }

    /// Positions of the columns of the primary key.
    pub(crate) fn key_positions(&self) -> &[usize] {
        self.key.positions()
    }

    /// A row fits the table, and has this key.
    fn check<K: EncodedKey>(&self, table: TableId, key: K, row: RowRef<'_>) -> Result<(), Error> {
        self.check_layout(table, row)?;
        let mut scratch = KeyScratch::new();
        let too_long = |error| Error::from(error).in_index(table, IndexId::PRIMARY);
        let own = self.key.extract(row, &mut scratch).map_err(too_long)?;
        if !is_same(key, own) {
            return Err(Error::wrong_key(table, key, own));
        }
        Ok(())
    }

    fn check_layout(&self, table: TableId, row: RowRef<'_>) -> Result<(), Error> {
        let bytes = row.as_bytes().len();
        if bytes > MAX_ROW_BYTES {
            return Err(Error::row_too_long(bytes, MAX_ROW_BYTES).in_index(table, IndexId::PRIMARY));
        }
        self.layout.check_row(row).map_err(|error| Error::wrong_row(table, error.to_string()))
    }

    /// A projection that a caller has put together covers its columns: what it leaves out need not be in the copy that is changed.
    fn check_projection(&self, table: TableId, projection: &Projection) -> Result<(), Error> {
        if *projection == Projection::ALL {
            return Ok(());
        }
        match self.layout.left_out(projection) {
            Some(column) => {
                let why = format!("the projection of an update does not cover one of its columns: {}", column.name);
                Err(Error::wrong_row(table, why))
            }
            None => Ok(()),
        }
    }

    /// The rules for an update: it set columns of its projection, marked all that it changed, and none of the key's.
    fn check_update(
        &self,
        table: TableId,
        projection: &Projection,
        (before, earlier): (RowRef<'_>, Changes),
        row: &RowMut<'_>,
    ) -> Result<(), Error> {
        let marked = row.changes().columns();
        let changed = self.layout.differences(before, row.as_row());
        let wrong = |why: &str, columns: ColumnSet| {
            let names = self.layout.columns().iter().enumerate();
            let named = names.filter(|&(position, _)| columns.contains(position as u16));
            let named: Vec<_> = named.map(|(_, column)| column.name.as_str()).collect();
            Err(Error::wrong_row(table, format!("{why}: {}", named.join(", "))))
        };
        // Asked of each column: among very many, others have the same bit.
        let mut key = self.key.positions().iter().map(|&position| &self.layout.columns()[position]);
        if let Some(column) = key.find(|column| column.differs(before, row.as_row())) {
            let why = format!("an update cannot change a column of the primary key: {}", column.name);
            return Err(Error::wrong_row(table, why));
        }
        let beside = changed.union(marked.without(earlier.columns())).without(projection.columns);
        if !beside.is_empty() {
            return wrong("an update changed columns that are not in its projection", beside);
        }
        let unmarked = changed.without(marked);
        if !unmarked.is_empty() {
            return wrong("an update changed columns without saying so", unmarked);
        }
        if changed.is_empty() { Ok(()) } else { self.check_changed(table, changed, row.as_row()) }
    }

    /// Only the columns that changed are looked at: what is not in the projection need not be there.
    fn check_changed(&self, table: TableId, changed: ColumnSet, row: RowRef<'_>) -> Result<(), Error> {
        let checked = self.layout.check_columns(row, changed);
        checked.map_err(|error| Error::wrong_row(table, error.to_string()))
    }
}

fn is_same<K: EncodedKey>(key: K, own: &[u8]) -> bool {
    key.len() == own.len() && (0..own.len().div_ceil(8)).all(|index| key.slice(index) == EncodedKey::slice(&own, index))
}

/// Looks at a row by the rules of its table; a transaction that knows none has them made of the definition.
fn check_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &T,
    table: TableId,
    key: K,
    row: RowRef<'_>,
) -> Result<(), Error> {
    match transaction.constraints(table)?.rules() {
        Some(rules) => rules.check(table, key, row)?,
        None => RowRules::new(transaction.definition(table)?)?.check(table, key, row)?,
    }
    Ok(())
}

/// [`Operations::insert_row`].
///
/// # Errors
/// [`Error::WrongRow`], [`Error::WrongKey`], [`Error::KeyTooLong`], [`Error::RowTooLong`], and those of [`foreign_keys::insert_row`].
pub(crate) fn insert_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    row: RowRef<'_>,
) -> Result<Insertion, Error> {
    steady!(table, key => insert_row(transaction, table, key, row));
    check_row(transaction, table, key, row)?;
    foreign_keys::insert_row(transaction, table, key, row)
}

/// [`Operations::put_row`].
///
/// # Errors
/// As for [`insert_row`].
pub(crate) fn put_row<T: Transaction + ?Sized, K: EncodedKey>(
    transaction: &mut T,
    table: TableId,
    key: K,
    row: RowRef<'_>,
) -> Result<Insertion, Error> {
    steady!(table, key => put_row(transaction, table, key, row));
    check_row(transaction, table, key, row)?;
    foreign_keys::put_row(transaction, table, key, row)
}

/// The number of tables whose rules a thread remembers.
const REMEMBERED: usize = 8;

/// The rules of a table.
type Known = (TableId, Arc<RowRules>);

thread_local! {
    /// Rules that a thread keeps for updates, so that the counts of the rules' owners, which all threads share, are not written each time. A
    /// table's layout never changes, and no other table ever has its id.
    static RULES: RefCell<[Option<Known>; REMEMBERED]> = RefCell::default();
}

fn rules_of<T: Transaction + ?Sized>(transaction: &T, table: TableId) -> Result<Arc<RowRules>, Error> {
    Ok(match transaction.constraints(table)?.rules() {
        Some(rules) => Arc::clone(rules),
        None => Arc::new(RowRules::new(transaction.definition(table)?)?),
    })
}

/// [`Operations::update_row`]. A row of which the change makes something wrong is put back as it was, in place, so that no savepoint is
/// needed.
///
/// # Errors
/// [`Error::WrongRow`], what the change has failed with, and those of [`foreign_keys::update_row`].
pub(crate) fn update_row<T: Transaction + ?Sized, K: EncodedKey, O: ChangeOutcome>(
    transaction: &mut T,
    table: TableId,
    key: K,
    projection: &Projection,
    change: impl FnOnce(&mut RowMut<'_>) -> O,
) -> Result<bool, O::Error> {
    steady!(table, key => update_row(transaction, table, key, projection, change));
    // In a thread that ends what it kept may be gone.
    let mut kept = RULES.try_with(RefCell::take).unwrap_or_default();
    let room = &mut kept[table.position() % REMEMBERED];
    if room.as_ref().is_none_or(|(known, _)| *known != table) {
        *room = Some((table, rules_of(transaction, table)?));
    }
    let rules = &room.as_ref().expect("it was put there").1;
    rules.check_projection(table, projection)?;
    let found = change_outcome::change_or_restore(transaction, (table, key), projection, |row, before| {
        change(row).into_result()?;
        rules.check_update(table, projection, before, row).map_err(O::Error::from)
    });
    let _ = RULES.try_with(|slot| slot.replace(kept));
    found
}

/// The bounds of a scan are short enough, and its restrictions name columns of the table.
///
/// # Errors
/// [`Error::KeyTooLong`], [`AggregateError::NoSuchColumn`], and those of [`Transaction::definition`].
#[inline]
pub(crate) fn check_scan<T: Transaction + ?Sized>(transaction: &T, scan: &Scan<'_>) -> Result<(), Error> {
    for bound in [scan.lower, scan.upper] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            keys::check_key(key).map_err(|error| error.in_index(scan.table, scan.index))?;
        }
    }
    if scan.restrictions.is_empty() {
        return Ok(());
    }
    let columns = transaction.definition(scan.table)?.columns.len();
    match scan.restrictions.iter().find(|restriction| restriction.column >= columns) {
        Some(restriction) => Err(AggregateError::NoSuchColumn(scan.table, restriction.column).into()),
        None => Ok(()),
    }
}
