//! [`Key`] for every column type, `Option` and tuples.

use crate::column::ColumnValue;
use crate::error::SchemaError;
use crate::fixed::{Date, FixedBytes, FixedString, Timestamp};
use crate::key::width::{W0, W1, W2, W4, W8, W16, Wide};
use crate::key::{Key, KeyReader, KeyScratch, KeySink, KeyWidth, OwnedKey};
use crate::{ColumnType, Decimal, Decimal128};

/// The bits of a floating-point number in the order of [`f64::total_cmp`].
#[inline(always)]
pub(crate) fn float_to_bits(value: f64) -> u64 {
    let bits = value.to_bits();
    bits ^ (((bits as i64 >> 63) as u64) | 1 << 63)
}

/// Undoes [`float_to_bits`].
#[inline(always)]
pub(crate) fn float_from_bits(bits: u64) -> f64 {
    f64::from_bits(bits ^ ((!(bits as i64) >> 63) as u64 | 1 << 63))
}

/// As [`float_to_bits`].
#[inline(always)]
pub(crate) fn short_float_to_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    bits ^ (((bits as i32 >> 31) as u32) | 1 << 31)
}

/// Undoes [`short_float_to_bits`].
#[inline(always)]
pub(crate) fn short_float_from_bits(bits: u32) -> f32 {
    f32::from_bits(bits ^ ((!(bits as i32) >> 31) as u32 | 1 << 31))
}

/// Whether the next column is of the type `T`, and never NULL.
pub fn takes_one<T: ColumnValue>(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
    matches!(columns.next(), Some((column, false)) if column.is_like(T::TYPE))
}

/// The common part of every implementation of [`Key`].
macro_rules! encoded_by_width {
    () => {
        type Encoded<'a>
            = <Self::Width as KeyWidth>::Encoded<'a>
        where
            Self: 'a;

        #[inline(always)]
        fn encode<'a>(&'a self, scratch: &'a mut KeyScratch) -> Self::Encoded<'a> {
            <Self::Width as KeyWidth>::encode(self, false, scratch)
        }
    };
}

macro_rules! number_key {
    ($($type:ty, [$($generics:tt)*], $width:ident, $bytes:literal, |$value:ident| $to:expr, |$raw:ident| $from:expr;)*) => {$(
        impl<$($generics)*> Key for $type {
            type Width = $width;
            const FIXED_BYTES: Option<usize> = Some($bytes);
            encoded_by_width!();

            #[inline(always)]
            fn put<S: KeySink>(&self, sink: &mut S, _: bool) {
                let $value = *self;
                sink.integer($to, $bytes);
            }
        }

        impl<$($generics)*> OwnedKey for $type {
            type Ref<'a> = Self;

            #[inline(always)]
            fn as_key_ref(&self) -> Self {
                *self
            }

            fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
                takes_one::<Self>(columns)
            }

            #[inline]
            fn take(reader: &mut KeyReader<'_>, _: bool) -> Result<Self, SchemaError> {
                let mut bytes = [0; 8];
                bytes[8 - $bytes..].copy_from_slice(&reader.array::<$bytes>()?);
                let $raw = u64::from_be_bytes(bytes);
                Ok($from)
            }
        }
    )*};
}

number_key! {
    u8, [], W1, 1, |value| u64::from(value), |raw| raw as u8;
    u16, [], W2, 2, |value| u64::from(value), |raw| raw as u16;
    u32, [], W4, 4, |value| u64::from(value), |raw| raw as u32;
    u64, [], W8, 8, |value| value, |raw| raw;
    i8, [], W1, 1, |value| u64::from(value as u8 ^ 1 << 7), |raw| (raw as u8 ^ 1 << 7) as i8;
    i16, [], W2, 2, |value| u64::from(value as u16 ^ 1 << 15), |raw| (raw as u16 ^ 1 << 15) as i16;
    i32, [], W4, 4, |value| u64::from(value as u32 ^ 1 << 31), |raw| (raw as u32 ^ 1 << 31) as i32;
    i64, [], W8, 8, |value| value as u64 ^ 1 << 63, |raw| (raw ^ 1 << 63) as i64;
    f32, [], W4, 4, |value| u64::from(short_float_to_bits(value)), |raw| short_float_from_bits(raw as u32);
    f64, [], W8, 8, |value| float_to_bits(value), |raw| float_from_bits(raw);
    Date, [], W4, 4, |value| u64::from(value.0 as u32 ^ 1 << 31), |raw| Self((raw as u32 ^ 1 << 31) as i32);
    Timestamp, [], W8, 8, |value| value.0 as u64 ^ 1 << 63, |raw| Self((raw ^ 1 << 63) as i64);
    Decimal<SCALE>, [const SCALE: u32], W8, 8,
        |value| value.units() as u64 ^ 1 << 63, |raw| Self::from_units((raw ^ 1 << 63) as i64);
}

macro_rules! wide_number_key {
    ($($type:ty, [$($generics:tt)*], |$value:ident| $to:expr, |$raw:ident| $from:expr;)*) => {$(
        impl<$($generics)*> Key for $type {
            type Width = W16;
            const FIXED_BYTES: Option<usize> = Some(16);
            encoded_by_width!();

            #[inline(always)]
            fn put<S: KeySink>(&self, sink: &mut S, _: bool) {
                let $value = *self;
                sink.wide($to);
            }
        }

        impl<$($generics)*> OwnedKey for $type {
            type Ref<'a> = Self;

            #[inline(always)]
            fn as_key_ref(&self) -> Self {
                *self
            }

            fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
                takes_one::<Self>(columns)
            }

            #[inline]
            fn take(reader: &mut KeyReader<'_>, _: bool) -> Result<Self, SchemaError> {
                let $raw = u128::from_be_bytes(reader.array()?);
                Ok($from)
            }
        }
    )*};
}

wide_number_key! {
    u128, [], |value| value, |raw| raw;
    i128, [], |value| value as u128 ^ 1 << 127, |raw| (raw ^ 1 << 127) as i128;
    Decimal128<SCALE>, [const SCALE: u32],
        |value| value.units() as u128 ^ 1 << 127, |raw| Self::from_units((raw ^ 1 << 127) as i128);
}

impl Key for char {
    type Width = W4;
    const FIXED_BYTES: Option<usize> = Some(4);
    encoded_by_width!();

    #[inline(always)]
    fn put<S: KeySink>(&self, sink: &mut S, _: bool) {
        sink.integer(u64::from(*self), 4);
    }
}

impl OwnedKey for char {
    type Ref<'a> = Self;

    #[inline(always)]
    fn as_key_ref(&self) -> Self {
        *self
    }

    fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
        takes_one::<Self>(columns)
    }

    fn take(reader: &mut KeyReader<'_>, _: bool) -> Result<Self, SchemaError> {
        char::from_u32(u32::from_be_bytes(reader.array()?)).ok_or(SchemaError::MalformedKey)
    }
}

impl Key for bool {
    type Width = W1;
    const FIXED_BYTES: Option<usize> = Some(1);
    encoded_by_width!();

    #[inline(always)]
    fn put<S: KeySink>(&self, sink: &mut S, _: bool) {
        sink.integer(u64::from(*self), 1);
    }
}

impl OwnedKey for bool {
    type Ref<'a> = Self;

    #[inline(always)]
    fn as_key_ref(&self) -> Self {
        *self
    }

    fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
        takes_one::<Self>(columns)
    }

    fn take(reader: &mut KeyReader<'_>, _: bool) -> Result<Self, SchemaError> {
        match reader.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(SchemaError::MalformedKey),
        }
    }
}

macro_rules! inline_key {
    ($type:ty, |$self:ident| $bytes:expr, |$reader:ident| $take:expr) => {
        impl<const N: usize> Key for $type {
            type Width = Wide;
            const FIXED_BYTES: Option<usize> = Some(N);
            encoded_by_width!();

            #[inline]
            fn put<S: KeySink>(&$self, sink: &mut S, _: bool) {
                sink.bytes($bytes);
            }

            #[inline]
            fn raw(&$self, _: bool) -> Option<&[u8]> {
                Some($bytes)
            }
        }

        impl<const N: usize> OwnedKey for $type {
            type Ref<'a> = Self;

            #[inline(always)]
            fn as_key_ref(&self) -> Self {
                *self
            }

            fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
                takes_one::<Self>(columns)
            }

            fn take($reader: &mut KeyReader<'_>, _: bool) -> Result<Self, SchemaError> {
                $take
            }
        }
    };
}

inline_key!([u8; N], |self| self, |reader| reader.array());
inline_key!(FixedBytes<N>, |self| &self.0, |reader| reader.array().map(Self));
inline_key!(FixedString<N>, |self| self.as_array(), |reader| Ok(*Self::from_array(&reader.array()?)));

macro_rules! variable_key {
    ($type:ty, $owned:ty, $as_bytes:ident, |$bytes:ident| $own:expr) => {
        impl Key for $type {
            type Width = Wide;
            const FIXED_BYTES: Option<usize> = None;
            encoded_by_width!();

            #[inline]
            fn put<S: KeySink>(&self, sink: &mut S, open: bool) {
                let bytes: &[u8] = self.$as_bytes();
                if open { sink.escaped(bytes) } else { sink.bytes(bytes) }
            }

            #[inline]
            fn raw(&self, open: bool) -> Option<&[u8]> {
                if open { None } else { Some(self.$as_bytes()) }
            }
        }

        impl Key for $owned {
            type Width = Wide;
            const FIXED_BYTES: Option<usize> = None;
            encoded_by_width!();

            #[inline]
            fn put<S: KeySink>(&self, sink: &mut S, open: bool) {
                <$type as Key>::put(self, sink, open);
            }

            #[inline]
            fn raw(&self, open: bool) -> Option<&[u8]> {
                <$type as Key>::raw(self, open)
            }
        }

        impl OwnedKey for $owned {
            type Ref<'a> = &'a $type;

            #[inline]
            fn as_key_ref(&self) -> &$type {
                self
            }

            fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
                takes_one::<Self>(columns)
            }

            fn take(reader: &mut KeyReader<'_>, open: bool) -> Result<Self, SchemaError> {
                let $bytes = reader.variable(open)?;
                $own
            }
        }
    };
}

variable_key!(str, String, as_bytes, |bytes| String::from_utf8(bytes).map_err(|_| SchemaError::MalformedKey));
variable_key!([u8], Vec<u8>, as_ref, |bytes| Ok(bytes));

impl<K: Key + ?Sized> Key for &K {
    type Width = K::Width;
    const FIXED_BYTES: Option<usize> = K::FIXED_BYTES;
    encoded_by_width!();

    #[inline(always)]
    fn put<S: KeySink>(&self, sink: &mut S, open: bool) {
        K::put(self, sink, open);
    }

    #[inline(always)]
    fn raw(&self, open: bool) -> Option<&[u8]> {
        K::raw(self, open)
    }
}

impl<K: Key> Key for Option<K> {
    type Width = <K::Width as KeyWidth>::Next;
    const FIXED_BYTES: Option<usize> = match K::FIXED_BYTES {
        Some(bytes) => Some(bytes + 1),
        None => None,
    };
    encoded_by_width!();

    /// NULL of a fixed-width type is filled up with zeros, so that the width stays fixed.
    #[inline(always)]
    fn put<S: KeySink>(&self, sink: &mut S, open: bool) {
        sink.integer(u64::from(self.is_some()), 1);
        match (self, K::FIXED_BYTES) {
            (Some(key), _) => key.put(sink, open),
            (None, Some(bytes)) => sink.zeros(bytes),
            (None, None) => {}
        }
    }
}

impl<K: OwnedKey> OwnedKey for Option<K> {
    type Ref<'a> = Option<K::Ref<'a>>;

    #[inline(always)]
    fn as_key_ref(&self) -> Self::Ref<'_> {
        self.as_ref().map(K::as_key_ref)
    }

    fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
        matches!(columns.next(), Some((column, true)) if K::is_over([(column, false)]))
    }

    fn take(reader: &mut KeyReader<'_>, open: bool) -> Result<Self, SchemaError> {
        match (reader.array()?, K::FIXED_BYTES) {
            ([1], _) => K::take(reader, open).map(Some),
            ([0], Some(bytes)) if reader.slice(bytes)?.iter().any(|&byte| byte != 0) => Err(SchemaError::MalformedKey),
            ([0], _) => Ok(None),
            _ => Err(SchemaError::MalformedKey),
        }
    }
}

impl Key for () {
    type Width = W0;
    const FIXED_BYTES: Option<usize> = Some(0);
    encoded_by_width!();

    #[inline(always)]
    fn put<S: KeySink>(&self, _: &mut S, _: bool) {}
}

const fn add(first: Option<usize>, second: Option<usize>) -> Option<usize> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first + second),
        _ => None,
    }
}

/// The width of all types of a list, one after the other.
macro_rules! sum_of_widths {
    ($last:ident) => { $last::Width };
    ($first:ident $($rest:ident)+) => { <$first::Width as KeyWidth>::Plus<sum_of_widths!($($rest)+)> };
}

macro_rules! tuple_key {
    ($($type:ident $position:tt)* ; $last:ident $end:tt) => {
        impl<$($type: Key,)* $last: Key> Key for ($($type,)* $last,) {
            type Width = sum_of_widths!($($type)* $last);
            const FIXED_BYTES: Option<usize> = {
                let sum = $last::FIXED_BYTES;
                $(let sum = add(sum, $type::FIXED_BYTES);)*
                sum
            };
            encoded_by_width!();

            #[inline(always)]
            fn put<S: KeySink>(&self, sink: &mut S, open: bool) {
                $(self.$position.put(sink, true);)*
                self.$end.put(sink, open);
            }
        }

        impl<$($type: OwnedKey,)* $last: OwnedKey> OwnedKey for ($($type,)* $last,) {
            type Ref<'a> = ($($type::Ref<'a>,)* $last::Ref<'a>,);

            #[inline(always)]
            fn as_key_ref(&self) -> Self::Ref<'_> {
                ($(self.$position.as_key_ref(),)* self.$end.as_key_ref(),)
            }

            fn takes(columns: &mut dyn Iterator<Item = (ColumnType, bool)>) -> bool {
                $($type::takes(columns) &&)* $last::takes(columns)
            }

            #[inline]
            fn take(reader: &mut KeyReader<'_>, open: bool) -> Result<Self, SchemaError> {
                Ok(($($type::take(reader, true)?,)* $last::take(reader, open)?,))
            }
        }
    };
}

tuple_key!(; A 0);
tuple_key!(A 0; B 1);
tuple_key!(A 0 B 1; C 2);
tuple_key!(A 0 B 1 C 2; D 3);
tuple_key!(A 0 B 1 C 2 D 3; E 4);
tuple_key!(A 0 B 1 C 2 D 3 E 4; F 5);
tuple_key!(A 0 B 1 C 2 D 3 E 4 F 5; G 6);
tuple_key!(A 0 B 1 C 2 D 3 E 4 F 5 G 6; H 7);
