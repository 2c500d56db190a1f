//! Typed rows.

use crate::MAX_TYPED_KEY_COLUMNS;
use crate::buffer::{RowBuffer, RowRef};
use crate::definition::{IndexDefinition, TableDefinition};
use crate::error::SchemaError;
use crate::evolution::ColumnHistory;
use crate::key::{Key, KeyScratch, OwnedKey};
use crate::layout::Shape;
use crate::mutate::{Changes, RowMut};
use crate::prefix::{ByteRange, KeyPrefix, RangeScratch};
use crate::start::KeyStart;
use polychron_base::{Error, IndexId, TableId};
use std::marker::PhantomData;

/// The primary key of `R` by reference: what a lookup takes.
pub type KeyRef<'a, R> = <<R as Row>::Key as OwnedKey>::Ref<'a>;

/// A struct whose fields are a table's columns; `#[derive(Row)]` implements it.
///
/// For a struct `Account` it also makes `AccountRef` (a view with one getter a column), `AccountMut` (the same with
/// setters for the columns outside the key) and one constant a column, such as `Account::BALANCE`.
///
/// The derive's page has the attributes and the types of fields: [`#[derive(Row)]`](derive@crate::Row).
///
/// ```
/// use polychron_schema::{Changes, FixedString, Row, RowBuffer};
///
/// #[derive(Row, Debug, PartialEq)]
/// #[index(name = "by_owner", columns(owner))]
/// struct Account {
///     #[key]
///     id: u64,
///     balance: i64,
///     owner: FixedString<16>,
///     note: Option<String>,
/// }
///
/// let account = Account { id: 7, balance: 100, owner: FixedString::new("Ada").unwrap(), note: None };
/// let mut buffer = RowBuffer::new();
/// account.encode(&mut buffer).unwrap();
///
/// let view = Account::view(buffer.as_row());
/// assert_eq!((view.balance(), view.owner().as_str(), view.note()), (100, "Ada", None));
///
/// let mut changes = Changes::NONE;
/// let mut row = Account::view_mut(&mut buffer, &mut changes);
/// row.set_balance(row.balance() - 10);
/// row.set_note(Some("spent")).unwrap();
/// assert!(changes.columns().contains(Account::BALANCE.index));
///
/// let owned = Account::from_ref(Account::view(buffer.as_row()));
/// assert_eq!(owned, Account { balance: 90, note: Some("spent".into()), ..account });
/// ```
pub trait Row: Sized + Send + Sync + 'static {
    /// The primary key: the type of the one `#[key]` field, or a tuple of all in declaration order.
    type Key: OwnedKey;

    /// A view with a getter for each column.
    type Ref<'a>: RowView<'a>;

    /// A row that can be changed, with getters and setters.
    type Mut<'a>: RowViewMut;

    /// The table's name.
    const NAME: &'static str;

    /// The dimensions of a row.
    const SHAPE: Shape;

    /// The table's definition.
    fn definition() -> TableDefinition;

    /// The declared past of the columns, in their order; empty where none is declared.
    fn history() -> Vec<ColumnHistory> {
        Vec::new()
    }

    /// Reads columns of a row.
    fn view(row: RowRef<'_>) -> Self::Ref<'_>;

    /// Reads and changes columns of the row in `buffer`, and notes in `changes` which were changed.
    #[inline]
    fn view_mut<'a>(buffer: &'a mut RowBuffer, changes: &'a mut Changes) -> Self::Mut<'a> {
        Self::from_row_mut(RowMut::new(buffer, changes, Self::SHAPE))
    }

    /// Reads and changes columns of a row.
    fn from_row_mut(row: RowMut<'_>) -> Self::Mut<'_>;

    /// Writes the row.
    ///
    /// # Errors
    /// When a value or the row is too long; the buffer is then empty.
    fn encode(&self, out: &mut RowBuffer) -> Result<(), SchemaError>;

    /// The row's primary key.
    fn key(&self) -> Self::Key;

    /// The row's primary key without copying its strings.
    fn key_ref(&self) -> KeyRef<'_, Self>;

    /// The primary key in an encoded row.
    fn key_of(row: RowRef<'_>) -> Self::Key;

    /// The struct with the values of a view.
    fn from_ref(view: Self::Ref<'_>) -> Self;

    /// The bounds of all primary keys whose first columns are given.
    #[inline]
    fn prefix<'s, 'k, P: KeyPrefix<KeyRef<'k, Self>>>(prefix: P, scratch: &'s mut RangeScratch) -> ByteRange<'s> {
        scratch.prefix(&prefix)
    }
}

/// A typed view, such as `AccountRef`.
pub trait RowView<'a>: Copy {
    /// The row that is read.
    fn into_row(self) -> RowRef<'a>;
}

/// A typed view that can change its row, such as `AccountMut`.
pub trait RowViewMut {
    /// The row with all changes so far.
    fn as_row(&self) -> RowRef<'_>;

    /// The changes so far.
    fn changes(&self) -> Changes;
}

#[cold]
fn other_table(index: IndexId, own: TableId, table: TableId) -> Error {
    if own.database() == table.database() { Error::other_table(index, own, table) } else { Error::other_database(own) }
}

/// A secondary index of the typed row `R` over columns of the types `K`: a constant that `derive(Row)` makes, for every table of `R`s, or
/// a handle to an index that was made at run time, for its table.
pub struct Index<R, K> {
    name: &'static str,
    id: IndexId,
    /// Where it is not one that `R` declares.
    made: Option<MadeAtRunTime>,
    unique: bool,
    open: bool,
    marker: PhantomData<fn() -> (R, K)>,
}

/// The table of the index, and its columns.
#[derive(Clone, Copy)]
struct MadeAtRunTime {
    table: TableId,
    columns: [u16; MAX_TYPED_KEY_COLUMNS],
    count: u8,
}

impl<R, K> Clone for Index<R, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, K> Copy for Index<R, K> {}

impl<R: Row, K> Index<R, K> {
    /// The same index, whatever the types of its columns.
    #[inline]
    pub const fn untyped(self) -> Index<R, ()> {
        let Self { name, id, made, unique, open, .. } = self;
        Index { name, id, made, unique, open, marker: PhantomData }
    }

    /// Its definition, of which only the name may be another.
    pub fn definition(self) -> IndexDefinition {
        match self.made {
            Some(MadeAtRunTime { columns, count, .. }) => {
                let columns: Vec<_> = columns[..usize::from(count)].iter().map(|&column| column.into()).collect();
                IndexDefinition::new(self.name, columns).with_unique(self.unique)
            }
            None => R::definition().indexes.swap_remove(self.id.position() - 1),
        }
    }
}

impl<R: Row, K: OwnedKey> Index<R, K> {
    /// For `derive(Row)`: an index at its position.
    #[doc(hidden)]
    pub const fn new(name: &'static str, position: usize, unique: bool, nullable: bool) -> Self {
        let id = IndexId(position as u16 + 1);
        Self { name, id, made: None, unique, open: !unique || nullable, marker: PhantomData }
    }

    /// For `create_index`: an index of one table, which was made at run time.
    #[doc(hidden)]
    pub fn of_table(table: TableId, id: IndexId, columns: &[usize], unique: bool, nullable: bool) -> Self {
        let open = !unique || nullable;
        let mut made = MadeAtRunTime { table, columns: [0; MAX_TYPED_KEY_COLUMNS], count: columns.len() as u8 };
        made.columns.iter_mut().zip(columns).for_each(|(own, &column)| *own = column as u16);
        Self { name: "made at run time", id, made: Some(made), unique, open, marker: PhantomData }
    }

    /// The index's name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Whether a key without NULL occurs once at most.
    pub const fn is_unique(self) -> bool {
        self.unique
    }

    /// Whether entries carry more behind the columns: they do unless the index is unique and has no nullable column.
    #[inline]
    pub const fn is_open(self) -> bool {
        self.open
    }

    /// The index's id in a table of `R`s.
    ///
    /// # Errors
    /// The index was made at run time for another table.
    #[inline]
    pub fn id_in(self, table: TableId) -> Result<IndexId, Error> {
        match self.made {
            Some(made) if made.table != table => Err(other_table(self.id, made.table, table)),
            _ => Ok(self.id),
        }
    }

    /// The bounds of all entries whose columns have these values.
    #[inline]
    pub fn equal<'s>(self, key: K::Ref<'_>, scratch: &'s mut RangeScratch) -> ByteRange<'s> {
        if self.open { scratch.prefix(&key) } else { scratch.exactly(&key) }
    }

    /// The key of the one entry with these values in a unique index. None of them may be NULL: NULL equals nothing.
    #[inline]
    pub fn point<'s>(self, key: K::Ref<'_>, scratch: &'s mut KeyScratch) -> &'s [u8] {
        debug_assert!(self.unique, "a key of other indexes has many entries");
        if self.open { key.encode_prefix(scratch) } else { key.encode_bytes(scratch) }
    }

    /// The bounds of all entries that start so; `None` when there can be none.
    pub fn starting_with<'s, 'k, P: KeyStart<K::Ref<'k>>>(
        self,
        start: P,
        scratch: &'s mut RangeScratch,
    ) -> Option<ByteRange<'s>> {
        scratch.starting_with(&start, self.open)
    }

    /// The bounds of all entries whose first columns are given.
    #[inline]
    pub fn prefix<'s, 'k, P: KeyPrefix<K::Ref<'k>>>(self, prefix: P, scratch: &'s mut RangeScratch) -> ByteRange<'s> {
        scratch.prefix(&prefix)
    }
}
