//! Scans by the first characters of a text, or the first bytes of bytes.

use crate::key::{Key, KeyScratch, KeySink};
use crate::prefix::{ByteRange, RangeScratch};
use crate::{FixedBytes, FixedString};

/// A start of keys `K`: text for a column of text, bytes for one of bytes, behind whole values of the columns before it.
///
/// ```
/// use polychron_schema::{Index, RangeScratch, Row};
/// #[derive(Row)]
/// #[index(columns(shelf, title))]
/// struct Book { #[key] id: u64, shelf: u16, title: String }
///
/// let mut scratch = RangeScratch::new();
/// let range = Book::BY_SHELF_TITLE.starting_with((7, "Moby"), &mut scratch).unwrap();
/// assert_eq!((range.start, range.end), (&b"\x00\x07Moby"[..], Some(&b"\x00\x07Mobz"[..])));
/// ```
#[diagnostic::on_unimplemented(
    message = "the keys `{K}` cannot start with `{Self}`",
    note = "a start is a `&str` for a column of text or a `&[u8]` for one of bytes; behind other columns a tuple that ends with it, such as \
            `(7, \"Moby\")`"
)]
pub trait KeyStart<K> {
    /// Appends the bytes with which such keys begin; `None` when there are none. `open` says that more follows behind the last column of `K`.
    #[doc(hidden)]
    fn put_start(&self, sink: &mut KeyScratch, open: bool) -> Option<Behind>;
}

/// A start of the values of a column `C`.
pub trait ValueStart<C> {
    /// As [`KeyStart::put_start`], where `open` says that more follows behind the column.
    #[doc(hidden)]
    fn put_value_start(&self, sink: &mut KeyScratch, open: bool) -> Option<Behind>;
}

/// The end of the bytes of a start.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    Anything,
    /// So many bytes of the same column, not all of which are zero.
    NotOnlyZeros(usize),
}

/// The start of a value of variable width: escaped as the value is, and without its end.
fn put_variable(bytes: &[u8], sink: &mut KeyScratch, open: bool) -> Option<Behind> {
    if !open {
        sink.bytes(bytes);
        return Some(Behind::Anything);
    }
    for (number, part) in bytes.split(|&byte| byte == 0).enumerate() {
        if number > 0 {
            sink.bytes(&[0, 255]);
        }
        sink.bytes(part);
    }
    Some(Behind::Anything)
}

/// The start of a value of `width` bytes. A longer one would go on in the column behind.
fn put_fixed(bytes: &[u8], width: usize, sink: &mut KeyScratch) -> Option<Behind> {
    sink.bytes(&bytes[..bytes.len().min(width)]);
    (bytes.len() <= width).then_some(Behind::Anything)
}

/// The same of a text that is padded with zeros, which are no part of it: a start that ends with zeros is one of longer texts alone.
fn put_padded(text: &str, width: usize, sink: &mut KeyScratch) -> Option<Behind> {
    let behind = put_fixed(text.as_bytes(), width, sink)?;
    match width - text.len() {
        _ if !text.ends_with('\0') => Some(behind),
        0 => None,
        rest => Some(Behind::NotOnlyZeros(rest)),
    }
}

macro_rules! column_starts {
    ($([$($generics:tt)*] $start:ty => $column:ty, |$self:ident, $sink:ident, $open:ident| $put:expr;)*) => {$(
        impl<$($generics)*> ValueStart<$column> for $start {
            fn put_value_start(&self, $sink: &mut KeyScratch, $open: bool) -> Option<Behind> {
                let $self = self;
                $put
            }
        }

        impl<$($generics)*> KeyStart<$column> for $start {
            fn put_start(&self, sink: &mut KeyScratch, open: bool) -> Option<Behind> {
                ValueStart::<$column>::put_value_start(self, sink, open)
            }
        }
    )*};
}

column_starts! {
    [] &str => &str, |text, sink, open| put_variable(text.as_bytes(), sink, open);
    [const N: usize] &str => FixedString<N>, |text, sink, _open| put_padded(text, N, sink);
    [] &[u8] => &[u8], |bytes, sink, open| put_variable(bytes, sink, open);
    [const N: usize] &[u8] => FixedBytes<N>, |bytes, sink, _open| put_fixed(bytes, N, sink);
    [const N: usize] &[u8] => [u8; N], |bytes, sink, _open| put_fixed(bytes, N, sink);
    [const M: usize] &[u8; M] => &[u8], |bytes, sink, open| put_variable(&bytes[..], sink, open);
    [const M: usize, const N: usize] &[u8; M] => FixedBytes<N>, |bytes, sink, _open| put_fixed(&bytes[..], N, sink);
    [const M: usize, const N: usize] &[u8; M] => [u8; N], |bytes, sink, _open| put_fixed(&bytes[..], N, sink);
}

/// A start of the first of several columns.
macro_rules! first_column_starts {
    ($generics:tt $start:ty; $(($($behind:ident)*))+) => {
        $(first_column_starts!(@one $generics $start; $($behind)*);)+
    };
    (@one $generics:tt $start:ty; ) => {
        first_column_starts!(@impl $generics $start; open, open);
    };
    (@one $generics:tt $start:ty; $($behind:ident)+) => {
        first_column_starts!(@impl $generics $start; _open, true; $($behind)+);
    };
    (@impl [$($generics:tt)*] $start:ty; $open:ident, $is_open:expr $(; $($behind:ident)+)?) => {
        impl<$($generics)* A, $($($behind),+)?> KeyStart<(A, $($($behind,)+)?)> for $start
        where
            Self: ValueStart<A>,
        {
            fn put_start(&self, sink: &mut KeyScratch, $open: bool) -> Option<Behind> {
                ValueStart::<A>::put_value_start(self, sink, $is_open)
            }
        }
    };
}

macro_rules! starts {
    ($([$($generics:tt)*] $start:ty;)*) => {$(
        /// NULL starts with nothing, not even with nothing at all.
        impl<$($generics)* C> ValueStart<Option<C>> for $start
        where
            Self: ValueStart<C>,
        {
            fn put_value_start(&self, sink: &mut KeyScratch, open: bool) -> Option<Behind> {
                sink.integer(1, 1);
                ValueStart::<C>::put_value_start(self, sink, open)
            }
        }

        impl<$($generics)* C> KeyStart<Option<C>> for $start
        where
            Self: ValueStart<C>,
        {
            fn put_start(&self, sink: &mut KeyScratch, open: bool) -> Option<Behind> {
                ValueStart::<Option<C>>::put_value_start(self, sink, open)
            }
        }

        first_column_starts!(
            [$($generics)*] $start;
            () (B) (B C) (B C D) (B C D E) (B C D E F) (B C D E F G) (B C D E F G H)
        );
    )*};
}

starts! {
    [] &str;
    [] &[u8];
    [const M: usize,] &[u8; M];
}

/// Values of leading columns, and the start of the column behind them.
macro_rules! tuple_starts {
    ($($column:ident $position:tt)+; $last:ident $end:tt; ) => {
        impl<$($column: Key,)+ $last, P: ValueStart<$last>> KeyStart<($($column,)+ $last,)> for ($($column,)+ P,) {
            fn put_start(&self, sink: &mut KeyScratch, open: bool) -> Option<Behind> {
                $(self.$position.put(sink, true);)+
                self.$end.put_value_start(sink, open)
            }
        }
    };
    ($($column:ident $position:tt)+; $last:ident $end:tt; $($behind:ident)+) => {
        impl<$($column: Key,)+ $last, P: ValueStart<$last>, $($behind),+> KeyStart<($($column,)+ $last, $($behind,)+)>
            for ($($column,)+ P,)
        {
            fn put_start(&self, sink: &mut KeyScratch, _: bool) -> Option<Behind> {
                $(self.$position.put(sink, true);)+
                self.$end.put_value_start(sink, true)
            }
        }
    };
}

macro_rules! all_tuple_starts {
    ($(($($column:ident $position:tt)+; $last:ident $end:tt): $(($($behind:ident)*))+;)+) => {
        $(all_tuple_starts!(@one ($($column $position)+; $last $end) $(($($behind)*))+);)+
    };
    (@one $lead:tt $($behind:tt)+) => { $(all_tuple_starts!(@pair $lead $behind);)+ };
    (@pair ($($column:ident $position:tt)+; $last:ident $end:tt) ($($behind:ident)*)) => {
        tuple_starts!($($column $position)+; $last $end; $($behind)*);
    };
}

all_tuple_starts! {
    (A 0; B 1): () (C) (C D) (C D E) (C D E F) (C D E F G) (C D E F G H);
    (A 0 B 1; C 2): () (D) (D E) (D E F) (D E F G) (D E F G H);
    (A 0 B 1 C 2; D 3): () (E) (E F) (E F G) (E F G H);
    (A 0 B 1 C 2 D 3; E 4): () (F) (F G) (F G H);
    (A 0 B 1 C 2 D 3 E 4; F 5): () (G) (G H);
    (A 0 B 1 C 2 D 3 E 4 F 5; G 6): () (H);
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6; H 7): ();
}

impl RangeScratch {
    /// The range of all keys `K` that start so; `None` when there are none. `open` says that their entries carry more behind the columns.
    pub fn starting_with<'s, K, P: KeyStart<K>>(&'s mut self, start: &P, open: bool) -> Option<ByteRange<'s>> {
        let (lower, upper) = self.both();
        lower.clear();
        upper.clear();
        let behind = start.put_start(lower, open).and(start.put_start(upper, open))?;
        if let Behind::NotOnlyZeros(rest) = behind {
            (1..rest).for_each(|_| lower.bytes(&[0]));
            lower.bytes(&[1]);
        }
        let bounded = upper.make_successor();
        Some(ByteRange { start: lower.as_bytes(), end: bounded.then(|| upper.as_bytes()) })
    }
}
