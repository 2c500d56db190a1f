//! Column types, table definitions, row layout and order-preserving keys.
//!
//! A row is a byte string in one layout that follows from the table's columns alone. Two APIs use the same
//! bytes: the typed one of [`Row`], whose offsets are constants, and the dynamic one of [`Layout`] and [`Value`]. Keys are
//! byte strings that sort as their values do; short ones of fixed width never leave the registers ([`Key`]).

// `derive(Row)` names this crate from outside, also in this crate's own tests.
extern crate self as polychron_schema;

mod buffer;
mod column;
mod column_types;
mod decimal;
mod definition;
#[doc(hidden)]
pub mod derive;
mod dynamic;
mod enums;
mod error;
mod evolution;
mod extractor;
mod fixed;
mod foreign;
mod inspect;
mod key;
mod key_column;
mod key_types;
mod layout;
mod mutate;
mod prefix;
mod row;
mod start;
mod times;
mod types;
mod value;

pub use buffer::{RowBuffer, RowRef};
#[doc(hidden)]
pub use column::Blank;
pub use column::{Column, ColumnSet, ColumnSpan, ColumnValue, Columns, Projection};
pub use decimal::{Decimal, Decimal128, DecimalRangeError, ParseDecimalError, parse_units};
pub use definition::{
    ColumnDefinition, ColumnOrder, ForeignKeyDefinition, IndexDefinition, IndexKind, TableDefinition,
};
pub use dynamic::{build_row, build_row_of, set_value, set_value_ref};
pub use enums::{EnumType, EnumVariant};
pub use error::SchemaError;
pub use evolution::{ColumnHistory, Evolution, EvolutionError};
pub use extractor::KeyExtractor;
pub use fixed::{Date, FixedBytes, FixedString, Timestamp};
pub use key::{Key, KeyScratch, KeyWidth, OwnedKey, width};
#[doc(hidden)]
pub use key::{KeyReader, KeySink};
pub use layout::{ColumnShape, Layout, LayoutColumn, Shape, Slot, StaticLayout, place};
pub use mutate::{ChangedRuns, Changes, RowMut, length_with};
pub use polychron_base::key::{EncodedKey, HashSeed, Key8, Key16, MAX_KEY_BYTES};
/// ```
/// use polychron_schema::{Column, Row, RowBuffer, Value};
///
/// #[derive(Column, Clone, Copy, Debug, PartialEq)]
/// enum State {
///     Open,
///     Paid = 10,
///     Closed = 20,
/// }
///
/// #[derive(Column, Clone, Copy, Debug, PartialEq)]
/// struct OrderId(u64);
///
/// #[derive(Row)]
/// #[index(columns(state))]
/// struct Order {
///     #[key]
///     id: OrderId,
///     state: State,
///     previous: Option<OrderId>,
/// }
///
/// let mut buffer = RowBuffer::new();
/// Order { id: OrderId(7), state: State::Paid, previous: None }.encode(&mut buffer).unwrap();
/// let order = Order::view(buffer.as_row());
/// assert_eq!((order.id(), order.state(), order.previous()), (OrderId(7), State::Paid, None));
/// assert_eq!(Value::from(State::Paid), Value::Unsigned(10));
/// assert_eq!(Order::STATE.slot.width, 1);
/// ```
#[doc(inline)]
pub use polychron_schema_derive::Column;
pub use polychron_schema_derive::Row;
pub use prefix::{ByteRange, KeyBound, KeyPrefix, RangeScratch};
pub use row::{Index, KeyRef, Row, RowView, RowViewMut};
pub use start::{Behind, KeyStart, ValueStart};
pub use times::TimeRangeError;
pub use types::{ColumnType, DEFAULT_VARIABLE_MAX, MAX_DECIMAL_SCALE, MAX_DECIMAL128_SCALE};
pub use value::{Value, ValueRef};

/// The trait `Row` without the derive of the same name, for crates that bring their own.
#[doc(hidden)]
pub mod row_trait {
    pub use crate::row::Row;
}

/// The longest row in bytes.
pub const MAX_ROW_BYTES: usize = 1 << 20;

/// The most columns of a table.
pub const MAX_COLUMNS: usize = 1024;

/// The most columns of a primary key or an index.
pub const MAX_KEY_COLUMNS: usize = 32;

/// The most columns of a key that a type stands for: the widest tuple that is a [`Key`].
pub const MAX_TYPED_KEY_COLUMNS: usize = 8;
