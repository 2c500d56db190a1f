//! Keys with columns that are futures.

use polychron_base::Error;
use polychron_schema::{ColumnType, Key, KeyScratch, KeySink, Row, TableDefinition};

use super::expression::{Operand, Scalar};
use super::future::{Future, FutureValue, State, hand_over};
use crate::Transaction;

/// An encoded key, some columns of which come later.
#[derive(Debug)]
pub struct OpenKey {
    bytes: KeyScratch,
    parts: [KeyPart; OpenKey::MOST],
    count: usize,
}

/// A column of a key that comes later.
#[derive(Clone, Copy, Debug)]
pub struct KeyPart {
    /// Its offset in the key.
    pub offset: u16,
    /// Its type: one that has a [`FutureValue`].
    pub column_type: ColumnType,
    /// Its value.
    pub value: Operand,
}

impl KeyPart {
    /// Puts the value into the key's bytes.
    #[inline]
    pub fn put(&self, key: &mut [u8], value: Scalar) {
        let width = self.column_type.width() as usize;
        let sign = match self.column_type {
            ColumnType::Bool | ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => 0,
            _ => 1 << (8 * width - 1),
        };
        key[usize::from(self.offset)..][..width].copy_from_slice(&(value ^ sign).to_be_bytes()[8 - width..]);
    }
}

impl OpenKey {
    /// Columns of a key that may be open.
    const MOST: usize = 8;

    #[inline]
    pub(super) fn new() -> Self {
        let none = KeyPart { offset: 0, column_type: ColumnType::Bool, value: Operand::Known(0) };
        Self { bytes: KeyScratch::new(), parts: [none; Self::MOST], count: 0 }
    }

    /// The key's bytes, with anything where its open columns will be.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`].
    pub fn bytes(&self) -> Result<&[u8], Error> {
        self.bytes.checked().map_err(Error::from)
    }

    /// Its open columns.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts[..self.count]
    }

    fn push(&mut self, offset: usize, column_type: ColumnType, value: Operand) -> Result<(), Error> {
        let part = self.parts.get_mut(self.count).ok_or_else(|| Error::key_too_long(None))?;
        *part = KeyPart { offset: offset as u16, column_type, value };
        self.count += 1;
        Ok(())
    }

    /// Appends a column.
    fn column<T: Transaction + ?Sized>(
        &mut self,
        transaction: &mut T,
        column_type: ColumnType,
        state: State,
    ) -> Result<(), Error> {
        let value = hand_over(transaction, state)?;
        let offset = self.bytes.as_bytes().len();
        self.bytes.zeros(column_type.width() as usize);
        self.push(offset, column_type, value)
    }

    /// Becomes the key of a row whose columns `assigned` come later.
    pub(super) fn set_row<R: Row>(
        &mut self,
        definition: &TableDefinition,
        row: &R,
        assigned: &super::Assigned,
    ) -> Result<(), Error> {
        row.key_ref().put(&mut self.bytes, false);
        for (column, value) in assigned {
            let mut offset = Some(0);
            for &position in &definition.key {
                if position == usize::from(column.span.index) {
                    // Behind a text of any length a column has no place that is known from the definition.
                    let offset = offset
                        .ok_or(Error::unsupported("futures", "a future in a key behind a column of variable length"))?;
                    self.push(offset, column.column_type, *value)?;
                }
                let width = definition.columns[position].column_type.key_width();
                offset = offset.zip(width).map(|(offset, width)| offset + width);
            }
        }
        Ok(())
    }
}

/// A column of a key of type `C`, or a future of one.
pub trait FutureKeyColumn<C> {
    /// Appends it.
    ///
    /// # Errors
    /// The errors of handing over a future.
    fn append<T: Transaction + ?Sized>(&self, transaction: &mut T, key: &mut OpenKey, open: bool) -> Result<(), Error>;
}

impl<C: Key> FutureKeyColumn<C> for C {
    #[inline]
    fn append<T: Transaction + ?Sized>(&self, _: &mut T, key: &mut OpenKey, open: bool) -> Result<(), Error> {
        self.put(&mut key.bytes, open);
        Ok(())
    }
}

impl<C: FutureValue + Key> FutureKeyColumn<C> for Future<C> {
    fn append<T: Transaction + ?Sized>(&self, transaction: &mut T, key: &mut OpenKey, _: bool) -> Result<(), Error> {
        key.column(transaction, C::TYPE, self.state)
    }
}

/// A key of type `K`, of which columns may be futures: one of them, or a tuple.
pub trait FutureKey<K> {
    /// Appends it to an empty key.
    ///
    /// # Errors
    /// As there.
    fn encode_open<T: Transaction + ?Sized>(&self, transaction: &mut T, key: &mut OpenKey) -> Result<(), Error>;
}

impl<C: FutureValue + Key> FutureKey<C> for Future<C> {
    fn encode_open<T: Transaction + ?Sized>(&self, transaction: &mut T, key: &mut OpenKey) -> Result<(), Error> {
        self.append(transaction, key, false)
    }
}

macro_rules! tuple_key {
    ($($type:ident $column:ident $position:tt)* ; $last:ident $end_column:ident $end:tt) => {
        impl<$($type, $column: FutureKeyColumn<$type>,)* $last, $end_column: FutureKeyColumn<$last>>
            FutureKey<($($type,)* $last,)> for ($($column,)* $end_column,)
        {
            fn encode_open<T: Transaction + ?Sized>(&self, transaction: &mut T, key: &mut OpenKey) -> Result<(), Error> {
                $(self.$position.append(transaction, key, true)?;)*
                self.$end.append(transaction, key, false)
            }
        }
    };
}

tuple_key!(; A Ka 0);
tuple_key!(A Ka 0; B Kb 1);
tuple_key!(A Ka 0 B Kb 1; C Kc 2);
tuple_key!(A Ka 0 B Kb 1 C Kc 2; D Kd 3);
tuple_key!(A Ka 0 B Kb 1 C Kc 2 D Kd 3; E Ke 4);
tuple_key!(A Ka 0 B Kb 1 C Kc 2 D Kd 3 E Ke 4; F Kf 5);
