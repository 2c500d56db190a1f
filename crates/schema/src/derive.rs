//! Support for `#[derive(Column)]`: newtypes, and the common part of enums.

pub use crate::column::Blank;
use crate::column::ColumnValue;
pub use crate::enums::{Bytes, EnumColumn, HasWidth, bits_of};
use crate::key::OwnedKey;
pub use crate::key_types::takes_one;
use crate::layout::Slot;
use crate::mutate::RowMut;
use crate::types::ColumnType;
use crate::value::Value;

/// A column type that structs may stand around.
///
/// What is read as a value is then read as the struct; what is read as a reference into the row stays one.
#[diagnostic::on_unimplemented(
    message = "a column type cannot be a struct around `{Self}`",
    label = "not a column type, or an Option of one",
    note = "an Option stands around the column type: derive `Column` for a struct around `T`, and write an Option of the struct in the row"
)]
pub trait Inner: ColumnValue + OwnedKey + Blank {
    /// Whether a struct around this is read by value, and so must be one that is copied.
    const BY_VALUE: bool = true;

    /// How a struct `N` around this is read.
    type Wrapped<'a, N: 'static>;

    /// Puts the struct around it.
    fn wrap<'a, N: 'static>(
        inner: <Self as ColumnValue>::Ref<'a>,
        make: impl FnOnce(Self) -> N,
    ) -> Self::Wrapped<'a, N>;

    /// Puts another struct around it.
    fn map<'a, A: 'static, B: 'static>(
        wrapped: Self::Wrapped<'a, A>,
        turn: impl FnOnce(A) -> B,
    ) -> Self::Wrapped<'a, B>;

    /// The contents of the struct.
    fn unwrap<'v, 'a: 'v, N: 'static>(
        wrapped: &'v Self::Wrapped<'a, N>,
        get: impl FnOnce(&N) -> &Self,
    ) -> <Self as ColumnValue>::Ref<'v>;

    /// The value whose type is known at run time.
    fn to_value(self) -> Value;
}

/// A column type in a key or an index: every one is, and a type that is none is told of by one error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no column type",
    label = "not a column type",
    note = "a column is a bool, an integer of 8 to 128 bits, an f32 or f64, a char, a Decimal or Decimal128, a Date or \
            Timestamp, a [u8; N], FixedBytes or FixedString, a String or Vec<u8>, a type with `#[derive(Column)]`, or \
            an Option of one of these",
    note = "an enum without fields and a struct around one column type become one with `#[derive(Column)]`"
)]
pub trait KeyColumn: ColumnValue + OwnedKey {}

impl<T: KeyColumn + Blank> KeyColumn for Option<T> {}

/// The column type of a type, for checks that must not fail where it is none.
#[derive(Clone, Copy, Debug)]
pub struct ProbedShape {
    pub column_type: ColumnType,
    pub nullable: bool,
    pub is_column: bool,
}

/// Asks whether a type is a column type: its own constant is found first if it is, and that of [`NotAColumn`] otherwise.
#[derive(Debug)]
pub struct Probe<T>(std::marker::PhantomData<T>);

impl<T: ColumnValue> Probe<T> {
    pub const SHAPE: ProbedShape = ProbedShape { column_type: T::TYPE, nullable: T::NULLABLE, is_column: true };
}

pub trait NotAColumn {
    const SHAPE: ProbedShape = ProbedShape { column_type: ColumnType::Bool, nullable: false, is_column: false };
}

impl<T> NotAColumn for Probe<T> {}

/// Asks whether structs around a type are read by value, in the same way.
#[derive(Debug)]
pub struct ReadByValue<T>(std::marker::PhantomData<T>);

impl<T: Inner> ReadByValue<T> {
    pub const IS: bool = T::BY_VALUE;
}

pub trait NotReadByValue {
    const IS: bool = false;
}

impl<T> NotReadByValue for ReadByValue<T> {}

/// Asks whether a type is copied, in the same way.
#[derive(Debug)]
pub struct Copied<T>(std::marker::PhantomData<T>);

impl<T: Copy> Copied<T> {
    pub const IS: bool = true;
}

pub trait NotCopied {
    const IS: bool = false;
}

impl<T> NotCopied for Copied<T> {}

/// Structs around these types are read by value.
#[doc(hidden)]
#[macro_export]
macro_rules! __read_by_value {
    ($([$($generics:tt)*] $type:ty),* $(,)?) => {$(
        $crate::derive::read_by_value!(@[$($generics)*] [$type] []);
    )*};
    // The clause token by token, so that it stays where it was written.
    (@[$($generics:tt)*] [$type:ty] [$($clause:tt)*]) => {
        #[allow(trivial_bounds)]
        impl<$($generics)*> $crate::derive::KeyColumn for $type $($clause)* {}

        #[allow(trivial_bounds)]
        impl<$($generics)*> $crate::derive::Inner for $type $($clause)* {
            type Wrapped<'a, N: 'static> = N;

            #[inline(always)]
            fn wrap<'a, N: 'static>(
                inner: <Self as $crate::ColumnValue>::Ref<'a>,
                make: impl FnOnce(Self) -> N,
            ) -> Self::Wrapped<'a, N> {
                make(<Self as $crate::ColumnValue>::own(inner))
            }

            #[inline(always)]
            fn map<'a, A: 'static, B: 'static>(
                wrapped: Self::Wrapped<'a, A>,
                turn: impl FnOnce(A) -> B,
            ) -> Self::Wrapped<'a, B> {
                turn(wrapped)
            }

            #[inline(always)]
            fn unwrap<'v, 'a: 'v, N: 'static>(
                wrapped: &'v Self::Wrapped<'a, N>,
                get: impl FnOnce(&N) -> &Self,
            ) -> <Self as $crate::ColumnValue>::Ref<'v> {
                <Self as $crate::ColumnValue>::borrow(get(wrapped))
            }

            #[inline]
            fn to_value(self) -> $crate::Value {
                ::core::convert::From::from(self)
            }
        }
    };
}

pub use crate::__read_by_value as read_by_value;

read_by_value!(
    [] bool, [] i8, [] i16, [] i32, [] i64, [] u8, [] u16, [] u32, [] u64, [] i128, [] u128, [] f32, [] f64, [] char,
    [] crate::Date, [] crate::Timestamp, [const SCALE: u32] crate::Decimal<SCALE>,
    [const SCALE: u32] crate::Decimal128<SCALE>, [const BYTES: usize] crate::FixedString<BYTES>,
    [const BYTES: usize] crate::FixedBytes<BYTES>, [const BYTES: usize] [u8; BYTES],
);

macro_rules! read_by_reference {
    ($($type:ty),*) => {$(
        impl KeyColumn for $type {}

        impl Inner for $type {
            const BY_VALUE: bool = false;

            type Wrapped<'a, N: 'static> = <Self as ColumnValue>::Ref<'a>;

            #[inline(always)]
            fn wrap<'a, N: 'static>(
                inner: <Self as ColumnValue>::Ref<'a>,
                _: impl FnOnce(Self) -> N,
            ) -> Self::Wrapped<'a, N> {
                inner
            }

            #[inline(always)]
            fn map<'a, A: 'static, B: 'static>(
                wrapped: Self::Wrapped<'a, A>,
                _: impl FnOnce(A) -> B,
            ) -> Self::Wrapped<'a, B> {
                wrapped
            }

            #[inline(always)]
            fn unwrap<'v, 'a: 'v, N: 'static>(
                wrapped: &'v Self::Wrapped<'a, N>,
                _: impl FnOnce(&N) -> &Self,
            ) -> <Self as ColumnValue>::Ref<'v> {
                wrapped
            }

            #[inline]
            fn to_value(self) -> Value {
                self.into()
            }
        }
    )*};
}

read_by_reference!(String, Vec<u8>);

/// Makes a column of fixed width NULL.
#[inline]
pub fn change_to_zeros(row: &mut RowMut<'_>, slot: Slot) {
    row.store_zeros(slot);
}
