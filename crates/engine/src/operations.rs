//! Operations of procedures.

use std::ops::{ControlFlow, RangeBounds};

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{
    Columns, Index, Key, KeyBound, KeyPrefix, KeyRef, KeyScratch, KeyStart, OwnedKey, Projection, Row, RowMut, RowRef,
    RowView, Value,
};

use crate::aggregate::{self, Group, Grouping};
use crate::typed::{KeyBounds, Range, with_encoded};
use crate::{
    Aggregate, ChangeOutcome, ColumnBatch, Insertion, Savepoint, Scan, Table, Transaction, change_outcome, checked,
    foreign_keys, keys,
};

/// [`Error::Duplicate`] of a row, with its values.
#[cold]
fn duplicate<T: Transaction + ?Sized, R: Row>(transaction: &T, table: &Table<R>, index: IndexId, row: &R) -> Error {
    let named =
        with_encoded(table.id, row, |bytes| Ok(transaction.constraints(table.id)?.duplicate(table.id, index, bytes)));
    named.unwrap_or_else(|_| Error::duplicate(table.id, index))
}

/// The operations of procedures, on typed tables and on rows as bytes. Every [`Transaction`] has it, and none can do it in another way: what is written is
/// checked here.
pub trait Operations: Transaction {
    /// Reads a row, where it lies: for as long as nothing else is read. [`Operations::get_owned`] copies it, to be kept.
    ///
    /// ```compile_fail,E0499
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// fn richer<T: Transaction>(transaction: &mut T, accounts: &Table<Account>) -> Result<bool, Error> {
    ///     let (one, two) = (transaction.get(accounts, 1)?, transaction.get(accounts, 2)?);
    ///     Ok(one.zip(two).is_some_and(|(one, two)| one.balance() > two.balance()))
    /// }
    /// ```
    #[inline]
    fn get<R: Row>(&mut self, table: &Table<R>, key: KeyRef<'_, R>) -> Result<Option<R::Ref<'_>>, Error> {
        keys::check_typed(table.id, &key)?;
        let mut scratch = KeyScratch::new();
        let row = self.read_row(table.id, key.encode(&mut scratch), &Projection::ALL)?;
        Ok(row.map(R::view))
    }

    /// Reads a row as an owned value, which can be kept while others are read.
    ///
    /// ```
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// fn richer<T: Transaction>(transaction: &mut T, accounts: &Table<Account>) -> Result<Option<u64>, Error> {
    ///     let (Some(one), Some(two)) = (transaction.get_owned(accounts, 1)?, transaction.get_owned(accounts, 2)?) else {
    ///         return Ok(None);
    ///     };
    ///     Ok(Some(if one.balance > two.balance { one.id } else { two.id }))
    /// }
    /// ```
    #[inline]
    fn get_owned<R: Row>(&mut self, table: &Table<R>, key: KeyRef<'_, R>) -> Result<Option<R>, Error> {
        Ok(self.get(table, key)?.map(R::from_ref))
    }

    /// Whether there is a row with this key.
    #[inline]
    fn contains<R: Row>(&mut self, table: &Table<R>, key: KeyRef<'_, R>) -> Result<bool, Error> {
        keys::check_typed(table.id, &key)?;
        let mut scratch = KeyScratch::new();
        Ok(self.read_row(table.id, key.encode(&mut scratch), &Projection::NONE)?.is_some())
    }

    /// The number of rows of the table. This reads all of it, as [`Operations::scan`] does, so it conflicts with every insertion and deletion.
    fn len<R: Row>(&mut self, table: &Table<R>) -> Result<u64, Error> {
        self.scan(table, ..).count()
    }

    /// The row with the smallest key.
    fn first<R: Row>(&mut self, table: &Table<R>) -> Result<Option<R>, Error> {
        self.scan(table, ..).first(R::from_ref)
    }

    /// The row with the largest key.
    fn last<R: Row>(&mut self, table: &Table<R>) -> Result<Option<R>, Error> {
        self.scan(table, ..).last(R::from_ref)
    }

    /// Takes the row with the smallest key out of the table.
    ///
    /// ```
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Job { #[key] number: u64, command: String }
    /// fn next<T: Transaction>(transaction: &mut T, jobs: &Table<Job>) -> Result<Option<String>, Error> {
    ///     Ok(transaction.pop_first(jobs)?.map(|job| job.command))
    /// }
    /// ```
    fn pop_first<R: Row>(&mut self, table: &Table<R>) -> Result<Option<R>, Error> {
        let Some(row) = self.first(table)? else { return Ok(None) };
        self.delete(table, row.key_ref())?;
        Ok(Some(row))
    }

    /// Deletes the rows of a range, and answers how many.
    ///
    /// ```
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// # #[derive(Row)] struct Event { #[key] at: u64, text: String }
    /// fn forget<T: Transaction>(transaction: &mut T, events: &Table<Event>, before: u64) -> Result<u64, Error> {
    ///     transaction.delete_range(events, ..before)
    /// }
    /// ```
    fn delete_range<'k, R: Row>(
        &mut self,
        table: &Table<R>,
        range: impl RangeBounds<KeyRef<'k, R>>,
    ) -> Result<u64, Error> {
        self.retain(table, range, |_| false)
    }

    /// Deletes the rows of a range for which `stays` does not hold, and answers how many.
    fn retain<'k, R: Row>(
        &mut self,
        table: &Table<R>,
        range: impl RangeBounds<KeyRef<'k, R>>,
        mut stays: impl FnMut(R::Ref<'_>) -> bool,
    ) -> Result<u64, Error> {
        let going = self.scan(table, range).filter(|row| !stays(row));
        let keys: Vec<R::Key> = going.map(|row| R::key_of(row.into_row())).collect()?;
        for key in &keys {
            self.delete(table, key.as_key_ref())?;
        }
        Ok(keys.len() as u64)
    }

    /// Reads some columns of a row: what is not wanted is not copied.
    #[inline]
    fn get_columns<R: Row, C: Columns<R>>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        columns: C,
    ) -> Result<Option<C::Values<'_>>, Error> {
        keys::check_typed(table.id, &key)?;
        let mut scratch = KeyScratch::new();
        let row = self.read_row(table.id, key.encode(&mut scratch), &columns.projection())?;
        Ok(row.map(|row| columns.read(row)))
    }

    /// Reads a row without protecting the read; see [`Transaction::read_row_unvalidated`].
    #[inline]
    fn get_unvalidated<R: Row>(&mut self, table: &Table<R>, key: KeyRef<'_, R>) -> Result<Option<R::Ref<'_>>, Error> {
        keys::check_typed(table.id, &key)?;
        let mut scratch = KeyScratch::new();
        let row = self.read_row_unvalidated(table.id, key.encode(&mut scratch), &Projection::ALL)?;
        Ok(row.map(R::view))
    }

    /// Changes a row. `false`: no such row.
    ///
    /// # Errors
    /// The error of `change`, if its [`ChangeOutcome`] can fail. The row is then as it was, and the transaction may go on.
    #[inline]
    fn update<R: Row, O: ChangeOutcome>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        change: impl FnOnce(&mut R::Mut<'_>) -> O,
    ) -> Result<bool, O::Error> {
        keys::check_typed(table.id, &key)?;
        let mut scratch = KeyScratch::new();
        change_outcome::update_row(self, table.id, key.encode(&mut scratch), &Projection::ALL, |row| {
            change(&mut R::from_row_mut(row.reborrow()))
        })
    }

    /// Changes some columns of a row: only those may be looked at and set. Setting another one is answered as a panic of `change` is, and
    /// undoes the transaction.
    ///
    /// # Errors
    /// As for [`Operations::update`].
    #[inline]
    fn update_columns<R: Row, C: Columns<R>, O: ChangeOutcome>(
        &mut self,
        table: &Table<R>,
        key: KeyRef<'_, R>,
        columns: C,
        change: impl FnOnce(&mut R::Mut<'_>) -> O,
    ) -> Result<bool, O::Error> {
        keys::check_typed(table.id, &key)?;
        let mut scratch = KeyScratch::new();
        let key = key.encode(&mut scratch);
        let projection = columns.projection();
        change_outcome::update_row(self, table.id, key, &projection, |row| {
            let earlier = row.changes().columns();
            let outcome = change(&mut R::from_row_mut(row.reborrow()));
            let beside = row.changes().columns().without(earlier.union(projection.columns));
            assert!(beside.is_empty(), "`update_columns` may set those columns alone that it was given");
            outcome
        })
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// [`Error::Duplicate`] when its key, or its key in a unique secondary index, is taken: the transaction is undone
    /// unless the caller catches the error. [`Operations::try_insert`] is cheaper for that.
    #[inline]
    fn insert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<(), Error> {
        match self.try_insert(table, row)? {
            Insertion::Inserted => Ok(()),
            Insertion::Duplicate(index) => Err(duplicate(self, table, index, row)),
        }
    }

    /// Inserts a row if none of its keys is taken.
    #[inline]
    fn try_insert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<Insertion, Error> {
        let key = row.key_ref();
        keys::check_typed(table.id, &key)?;
        with_encoded(table.id, row, |bytes| {
            let mut scratch = KeyScratch::new();
            foreign_keys::insert_row(self, table.id, key.encode(&mut scratch), bytes)
        })
    }

    /// Writes a row, whether or not there is one with its key.
    ///
    /// # Errors
    /// [`Error::Duplicate`] when another row has its key in a unique secondary index.
    #[inline]
    fn upsert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<(), Error> {
        let key = row.key_ref();
        keys::check_typed(table.id, &key)?;
        let outcome = with_encoded(table.id, row, |bytes| {
            let mut scratch = KeyScratch::new();
            foreign_keys::put_row(self, table.id, key.encode(&mut scratch), bytes)
        })?;
        match outcome {
            Insertion::Inserted => Ok(()),
            Insertion::Duplicate(index) => Err(duplicate(self, table, index, row)),
        }
    }

    /// Deletes a row. `false`: no such row.
    #[inline]
    fn delete<R: Row>(&mut self, table: &Table<R>, key: KeyRef<'_, R>) -> Result<bool, Error> {
        keys::check_typed(table.id, &key)?;
        let mut scratch = KeyScratch::new();
        foreign_keys::delete_row(self, table.id, key.encode(&mut scratch))
    }

    /// Starts bringing a row into the caches.
    #[inline]
    fn prefetch<R: Row>(&mut self, table: &Table<R>, key: KeyRef<'_, R>) {
        let mut scratch = KeyScratch::new();
        self.prefetch_row(table.id, key.encode(&mut scratch));
    }

    /// The rows of a range of keys, in order. Nothing happens before one of the answer's methods is called.
    #[inline]
    fn scan<'k, R: Row>(&mut self, table: &Table<R>, range: impl RangeBounds<KeyRef<'k, R>>) -> Range<'_, Self, R> {
        Range::new(self, table.id, IndexId::PRIMARY, KeyBounds::of(&range))
    }

    /// Visits every row of a table, in the order that is fastest; see [`Operations::scan_table`].
    #[inline]
    fn visit_all<R: Row>(&mut self, table: &Table<R>, mut visit: impl FnMut(R::Ref<'_>)) -> Result<(), Error> {
        self.scan_table(table.id, &Projection::ALL, &mut |row| {
            visit(R::view(row));
            ControlFlow::Continue(())
        })
    }

    /// The rows whose keys begin with the columns of `prefix`, in order.
    #[inline]
    fn scan_prefix<'k, R: Row, P: KeyPrefix<KeyRef<'k, R>>>(
        &mut self,
        table: &Table<R>,
        prefix: P,
    ) -> Range<'_, Self, R> {
        Range::new(self, table.id, IndexId::PRIMARY, KeyBounds::of_prefix(&prefix))
    }

    /// The rows whose keys start with a text, or with bytes, in order: those for which it is the start of the key's one column, or of its first
    /// column; behind whole values of leading columns, as `(7, "Moby")`, of the column behind these. The empty start is that of every value,
    /// and of NULL there is none. What counts is the text: the zeros that fill a `FixedString` up are no part of it.
    ///
    /// ```
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// #[derive(Row)]
    /// #[index(columns(shelf, title))]
    /// struct Book { #[key] code: String, shelf: u16, title: String }
    ///
    /// fn find<T: Transaction>(transaction: &mut T, books: &Table<Book>) -> Result<(u64, Option<Book>), Error> {
    ///     let of_the_nineties = transaction.scan_starting_with(books, "199").count()?;
    ///     let last = transaction.scan_starting_with_by(books, Book::BY_SHELF_TITLE, (7, "Moby")).last(Book::from_ref)?;
    ///     Ok((of_the_nineties, last))
    /// }
    /// ```
    #[inline]
    fn scan_starting_with<'k, R: Row, P: KeyStart<KeyRef<'k, R>>>(
        &mut self,
        table: &Table<R>,
        start: P,
    ) -> Range<'_, Self, R> {
        Range::new(self, table.id, IndexId::PRIMARY, KeyBounds::of_start::<KeyRef<'k, R>, P>(&start, false))
    }

    /// The same by the columns of a secondary index, in the index's order.
    #[inline]
    fn scan_starting_with_by<'k, R: Row, K: OwnedKey, P: KeyStart<K::Ref<'k>>>(
        &mut self,
        table: &Table<R>,
        index: Index<R, K>,
        start: P,
    ) -> Range<'_, Self, R> {
        Range::by(self, table, index, KeyBounds::of_start::<K::Ref<'k>, P>(&start, index.is_open()))
    }

    /// The rows that have these values in the columns of a secondary index, in the order of their primary keys. Of a hash
    /// index, this is what can be asked.
    #[inline]
    fn scan_by<R: Row, K: OwnedKey>(
        &mut self,
        table: &Table<R>,
        index: Index<R, K>,
        key: K::Ref<'_>,
    ) -> Range<'_, Self, R> {
        let bounds = if index.is_open() { KeyBounds::of_prefix(&key) } else { KeyBounds::of(&(key..=key)) };
        Range::by(self, table, index, bounds)
    }

    /// The rows whose first columns of a secondary index have these values, in the index's order.
    #[inline]
    fn scan_prefix_by<'k, R: Row, K: OwnedKey, P: KeyPrefix<K::Ref<'k>>>(
        &mut self,
        table: &Table<R>,
        index: Index<R, K>,
        prefix: P,
    ) -> Range<'_, Self, R> {
        Range::by(self, table, index, KeyBounds::of_prefix(&prefix))
    }

    /// The rows between two keys of a secondary index, in the index's order. A bound is a key of the index, or its first
    /// columns, and then stands for all entries that begin with it; bounds of other types do not compile.
    ///
    /// ```
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// #[derive(Row)]
    /// #[index(name = "by_place", columns(shelf, slot))]
    /// struct Book { #[key] id: u64, shelf: u16, slot: u32 }
    ///
    /// fn between<T: Transaction>(transaction: &mut T, books: &Table<Book>) -> Result<(u64, u64), Error> {
    ///     let places = transaction.scan_range_by(books, Book::BY_PLACE, (1_u16, 20_u32)..(2, 0)).count()?;
    ///     let shelves = transaction.scan_range_by(books, Book::BY_PLACE, 1_u16..=2).count()?;
    ///     Ok((places, shelves))
    /// }
    /// ```
    /// ```compile_fail
    /// # use polychron_engine::{Operations, Row, Error, Table, Transaction};
    /// # #[derive(Row)]
    /// # #[index(name = "by_place", columns(shelf, slot))]
    /// # struct Book { #[key] id: u64, shelf: u16, slot: u32 }
    /// fn between<T: Transaction>(transaction: &mut T, books: &Table<Book>) -> Result<u64, Error> {
    ///     transaction.scan_range_by(books, Book::BY_PLACE, 1_u32..=2).count()
    /// }
    /// ```
    #[inline]
    fn scan_range_by<'k, R: Row, K: OwnedKey, B: KeyBound<K::Ref<'k>>>(
        &mut self,
        table: &Table<R>,
        index: Index<R, K>,
        range: impl RangeBounds<B>,
    ) -> Range<'_, Self, R> {
        // A whole key ends where the entry's columns end, unless the primary key follows.
        let bounds = if B::WHOLE && !index.is_open() { KeyBounds::of(&range) } else { KeyBounds::of_prefixes(&range) };
        Range::by(self, table, index, bounds)
    }

    /// Changes a row in place: `change` sees the columns of `projection` and may set those. `false`: no such row.
    ///
    /// # Errors
    /// The refusals of [`checked`](crate::checked), here and in the three methods below, and the error of `change`. The row is then as
    /// it was.
    fn update_row<K: EncodedKey, O: ChangeOutcome>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>) -> O,
    ) -> Result<bool, O::Error> {
        checked::update_row(self, table, key, projection, change)
    }

    /// Inserts a row whose key is absent.
    fn insert_row<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        checked::insert_row(self, table, key, row)
    }

    /// Writes the whole row of `key`, whether or not there is one; what was there is not observed unless a secondary
    /// index needs it.
    fn put_row<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        checked::put_row(self, table, key, row)
    }

    /// Deletes the row of `key`. `false`: no such row.
    fn delete_row<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        foreign_keys::delete_row(self, table, key)
    }

    /// Visits the rows of a range in order. The range, as far as it was visited, stays as it was seen until the commit,
    /// or the transaction conflicts.
    fn scan_rows(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        checked::check_scan(self, scan)?;
        self.scan_unchecked(scan, visitor)
    }

    /// Visits every row of a table once, in the order that is fastest: for questions about all of it. In a read-write transaction the whole table
    /// stays as it was seen until the commit, as far as it was visited, or the transaction conflicts.
    ///
    /// # Errors
    /// [`Error::NoOrder`] where the primary index has no order and is needed: outside of snapshots always.
    fn scan_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.visit_table(table, projection, visitor)
    }

    /// Counts the rows of a range, or sums a column, or finds its smallest or largest value. The direction is of no
    /// matter.
    ///
    /// # Errors
    /// [`AggregateError`](crate::aggregate::AggregateError) where the column has no such answer, beside what a scan may end with.
    fn aggregate(&mut self, scan: &Scan<'_>, wanted: Aggregate) -> Result<Value, Error> {
        checked::check_scan(self, scan)?;
        Ok(aggregate::the_one(self.aggregate_range(scan, &Grouping::whole(&[wanted]))?))
    }

    /// Several answers in one pass over a range, of all its rows or of each group of them, in the order of the groups' keys.
    ///
    /// # Errors
    /// As [`Operations::aggregate`], [`Error::KeyTooLong`] where the values that a group has in common are longer than a key, and
    /// [`AggregateError::TooManyGroups`](crate::aggregate::AggregateError::TooManyGroups).
    fn aggregate_groups(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        checked::check_scan(self, scan)?;
        self.aggregate_range(scan, grouping)
    }

    /// Visits the rows of a range as column batches of up to [`ROWS`](crate::batch::ROWS) rows, in any order of rows. The columns, by
    /// position, must be numbers, dates or truth values; `scan.projection` and `scan.direction` are not looked at.
    ///
    /// `look` makes something of a batch, and `keep` gets it when the rows stood still meanwhile. Otherwise `look` is asked again of the
    /// same rows, and what it made of them before is dropped: it may have seen rows of different times. So what `look` writes
    /// elsewhere must be overwritten when it is asked again, and what is to last belongs into `keep`, which is called once for each batch.
    ///
    /// # Errors
    /// [`Error::NotNumeric`] where a column cannot come as a slice, beside what a scan may end with.
    fn scan_columns<O>(
        &mut self,
        scan: &Scan<'_>,
        columns: &[usize],
        look: &mut impl FnMut(&ColumnBatch<'_>) -> O,
        keep: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        checked::check_scan(self, scan)?;
        self.visit_columns(scan, columns, look, keep)
    }

    /// Marks a place to which [`Operations::roll_back_to`] can return. Where something that was left open before fails, or the transaction
    /// conflicts, there is no such place: the savepoint is void, and a return to it tells why.
    fn savepoint(&mut self) -> Savepoint {
        let position = self.mark();
        self.savepoints().set(position)
    }

    /// Undoes all writes since `savepoint`; reads stay protected. The savepoint stays valid, and those set later are void.
    ///
    /// # Errors
    /// [`Error::VoidSavepoint`], and nothing is undone. What had failed of what was left open since, and was told nowhere yet: it is undone
    /// with the rest, and told once.
    fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        let Some(position) = self.savepoints().position_of(savepoint) else {
            // What keeps the transaction from going on comes first.
            self.savepoints().take_refused()?;
            self.mark()?;
            return Err(Error::VoidSavepoint);
        };
        self.undo_unchecked(position)?;
        self.savepoints().undone_to(savepoint);
        self.savepoints().take_refused()
    }
}

impl<T: Transaction + ?Sized> Operations for T {}
