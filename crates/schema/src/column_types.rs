//! [`ColumnValue`] for every column type and `Option`.

use polychron_base::Error;

use crate::buffer::{RowBuffer, RowRef, text_of};
use crate::column::{Blank, ColumnValue};
use crate::fixed::{Date, FixedBytes, FixedString, Timestamp};
use crate::layout::Slot;
use crate::mutate::RowMut;
use crate::types::{ColumnType, DEFAULT_VARIABLE_MAX};
use crate::{Decimal, Decimal128};

macro_rules! plain_column {
    ($($type:ty, [$($generics:tt)*], $column:expr, $bytes:literal, |$value:ident| $to:expr, |$raw:ident| $from:expr;)*) => {$(
        impl<$($generics)*> ColumnValue for $type {
            type Ref<'a> = Self;
            type Plain = Self;
            type Written = ();
            const TYPE: ColumnType = $column;

            #[inline(always)]
            fn read(row: RowRef<'_>, slot: Slot) -> Self {
                let $raw = row.load::<$bytes>(slot.offset);
                $from
            }

            #[inline(always)]
            fn build(out: &mut RowBuffer, slot: Slot, $value: Self) {
                out.store(slot.offset, &$to);
            }

            #[inline(always)]
            fn change(row: &mut RowMut<'_>, _: &'static str, slot: Slot, $value: Self) {
                row.store(slot, &$to);
            }

            #[inline(always)]
            fn borrow(&self) -> Self {
                *self
            }

            #[inline(always)]
            fn own(value: Self) -> Self {
                value
            }
        }
    )*};
}

plain_column! {
    bool, [], ColumnType::Bool, 1, |value| [u8::from(value)], |raw| raw[0] != 0;
    i8, [], ColumnType::I8, 1, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    i16, [], ColumnType::I16, 2, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    i32, [], ColumnType::I32, 4, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    i64, [], ColumnType::I64, 8, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    u8, [], ColumnType::U8, 1, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    u16, [], ColumnType::U16, 2, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    u32, [], ColumnType::U32, 4, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    u64, [], ColumnType::U64, 8, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    i128, [], ColumnType::I128, 16, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    u128, [], ColumnType::U128, 16, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    f32, [], ColumnType::F32, 4, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    f64, [], ColumnType::F64, 8, |value| value.to_le_bytes(), |raw| Self::from_le_bytes(raw);
    char, [], ColumnType::Char, 4, |value| u32::from(value).to_le_bytes(), |raw| character(u32::from_le_bytes(raw));
    Date, [], ColumnType::Date, 4, |value| value.0.to_le_bytes(), |raw| Self(i32::from_le_bytes(raw));
    Timestamp, [], ColumnType::Timestamp, 8, |value| value.0.to_le_bytes(), |raw| Self(i64::from_le_bytes(raw));
    Decimal<SCALE>, [const SCALE: u32], ColumnType::Decimal { scale: SCALE }, 8,
        |value| value.units().to_le_bytes(), |raw| Self::from_units(i64::from_le_bytes(raw));
    Decimal128<SCALE>, [const SCALE: u32], ColumnType::Decimal128 { scale: SCALE }, 16,
        |value| value.units().to_le_bytes(), |raw| Self::from_units(i128::from_le_bytes(raw));
}

/// The character of a number. One of no character, which only a torn row can hold, gives the replacement character.
#[inline(always)]
pub(crate) fn character(number: u32) -> char {
    char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

macro_rules! inline_column {
    ($type:ty, $column:ident, |$value:ident| $bytes:expr, |$array:ident| $from:expr) => {
        impl<const N: usize> ColumnValue for $type {
            type Ref<'a> = &'a Self;
            type Plain = Self;
            type Written = ();
            const TYPE: ColumnType = ColumnType::$column { bytes: N as u32 };

            #[inline(always)]
            fn read<'a>(row: RowRef<'a>, slot: Slot) -> &'a Self {
                let $array = row.array(slot.offset).unwrap_or(const { &[0; N] });
                $from
            }

            #[inline(always)]
            fn build(out: &mut RowBuffer, slot: Slot, $value: &Self) {
                out.store(slot.offset, $bytes);
            }

            #[inline(always)]
            fn change(row: &mut RowMut<'_>, _: &'static str, slot: Slot, $value: &Self) {
                row.store(slot, $bytes);
            }

            #[inline(always)]
            fn borrow(&self) -> &Self {
                self
            }

            #[inline(always)]
            fn own(value: &Self) -> Self {
                *value
            }
        }
    };
}

inline_column!(FixedString<N>, FixedString, |value| value.as_array(), |array| Self::from_array(array));
inline_column!(FixedBytes<N>, FixedBytes, |value| &value.0, |array| Self::from_array(array));
inline_column!([u8; N], FixedBytes, |value| value, |array| array);

macro_rules! variable_column {
    ($type:ty, $borrowed:ty, $column:ident, |$bytes:ident| $read:expr, $as_bytes:ident) => {
        impl ColumnValue for $type {
            type Ref<'a> = &'a $borrowed;
            type Plain = Self;
            type Written = Result<(), Error>;
            const TYPE: ColumnType = ColumnType::$column { max: DEFAULT_VARIABLE_MAX };

            #[inline]
            fn read<'a>(row: RowRef<'a>, slot: Slot) -> &'a $borrowed {
                let $bytes = row.variable(slot);
                $read
            }

            #[inline]
            fn build(out: &mut RowBuffer, slot: Slot, value: &$borrowed) {
                out.append(slot, value.$as_bytes());
            }

            #[inline]
            fn change(row: &mut RowMut<'_>, name: &'static str, slot: Slot, value: &$borrowed) -> Result<(), Error> {
                Ok(row.replace(name, slot, Some(value.$as_bytes()))?)
            }

            #[inline]
            fn variable_len(value: &$borrowed) -> usize {
                value.len()
            }

            #[inline]
            fn borrow(&self) -> &$borrowed {
                self
            }

            #[inline]
            fn own(value: &$borrowed) -> Self {
                value.to_owned()
            }
        }
    };
}

variable_column!(String, str, String, |bytes| text_of(bytes), as_bytes);
variable_column!(Vec<u8>, [u8], Bytes, |bytes| bytes, as_ref);

macro_rules! blank_fixed {
    ($([$($generics:tt)*] $type:ty),*) => {$(
        impl<$($generics)*> Blank for $type {
            #[inline]
            fn write_null(_: &mut RowBuffer, _: Slot) {}

            #[inline]
            fn change_to_null(row: &mut RowMut<'_>, _: &'static str, slot: Slot) {
                row.store_zeros(slot);
            }
        }
    )*};
}

blank_fixed!(
    [] bool, [] i8, [] i16, [] i32, [] i64, [] u8, [] u16, [] u32, [] u64, [] i128, [] u128, [] f32, [] f64, [] char,
    [] Date, [] Timestamp, [const SCALE: u32] Decimal<SCALE>, [const SCALE: u32] Decimal128<SCALE>,
    [const N: usize] FixedString<N>, [const N: usize] FixedBytes<N>, [const N: usize] [u8; N]
);

macro_rules! blank_variable {
    ($($type:ty),*) => {$(
        impl Blank for $type {
            #[inline]
            fn write_null(out: &mut RowBuffer, slot: Slot) {
                out.append(slot, &[]);
            }

            #[inline]
            fn change_to_null(row: &mut RowMut<'_>, name: &'static str, slot: Slot) -> Result<(), Error> {
                Ok(row.replace(name, slot, None)?)
            }
        }
    )*};
}

blank_variable!(String, Vec<u8>);

impl<T: Blank> ColumnValue for Option<T> {
    type Ref<'a> = Option<T::Ref<'a>>;
    type Plain = T;
    type Written = T::Written;
    const TYPE: ColumnType = T::TYPE;
    const NULLABLE: bool = true;

    #[inline(always)]
    fn read<'a>(row: RowRef<'a>, slot: Slot) -> Self::Ref<'a> {
        if row.is_null(slot) { None } else { Some(T::read(row, slot)) }
    }

    #[inline(always)]
    fn build(out: &mut RowBuffer, slot: Slot, value: Self::Ref<'_>) {
        match value {
            Some(value) => T::build(out, slot, value),
            None => {
                T::write_null(out, slot);
                out.set_null(slot, true);
            }
        }
    }

    /// The setters of the inner type also clear and set the NULL bit, and only once the value is accepted.
    #[inline(always)]
    fn change(row: &mut RowMut<'_>, name: &'static str, slot: Slot, value: Self::Ref<'_>) -> Self::Written {
        match value {
            Some(value) => T::change(row, name, slot, value),
            None => T::change_to_null(row, name, slot),
        }
    }

    #[inline]
    fn variable_len(value: Self::Ref<'_>) -> usize {
        value.map_or(0, T::variable_len)
    }

    #[inline(always)]
    fn borrow(&self) -> Self::Ref<'_> {
        self.as_ref().map(T::borrow)
    }

    #[inline(always)]
    fn own(value: Self::Ref<'_>) -> Self {
        value.map(T::own)
    }
}
