//! Keys with columns that are futures.

use polychron_base::Error;
use polychron_schema::{ColumnType, ColumnValue, Key, KeyScratch, KeySink, Row, TableDefinition};

use super::future::{Future, hand_over};
use super::types::FutureValue;
use super::value::{Operand, Value};
use crate::Transaction;

/// An encoded key, some columns of which come later.
#[derive(Debug)]
pub struct OpenKey {
    /// The columns that are known, one behind the other.
    bytes: KeyScratch,
    parts: [KeyPart<Operand>; OpenKey::MOST],
    count: usize,
}

/// A column of a key that comes later.
#[derive(Clone, Copy, Debug)]
pub struct KeyPart<V> {
    /// How many bytes of known columns stand before it.
    pub offset: u16,
    /// How it is encoded.
    pub form: KeyForm,
    /// Its value.
    pub value: V,
}

/// How a column of a key is encoded.
#[derive(Clone, Copy, Debug)]
pub struct KeyForm {
    /// Its type: one that has a [`FutureValue`].
    pub column_type: ColumnType,
    /// Whether other columns follow, so that its end must show.
    pub open: bool,
}

impl KeyForm {
    /// Appends a value, as [`Key`] encodes it.
    #[inline]
    pub fn append(self, key: &mut KeyScratch, value: Value<&[u8]>) {
        match (value, self.column_type.key_width()) {
            (Value::Null, _) => debug_assert!(false, "a column of a primary key is never NULL"),
            (Value::Scalar(scalar), width) => {
                let width = width.unwrap_or(8);
                let sign = if self.column_type.is_signed() { 1 << (8 * width - 1) } else { 0 };
                key.integer(scalar ^ sign, width);
            }
            (Value::Bytes(bytes), Some(width)) => {
                key.bytes(bytes);
                key.zeros(width.saturating_sub(bytes.len()));
            }
            (Value::Bytes(bytes), None) if self.open => key.escaped(bytes),
            (Value::Bytes(bytes), None) => key.bytes(bytes),
        }
    }
}

/// Makes a whole key of its known columns and of the others, which `append` appends.
///
/// # Errors
/// [`Error::KeyTooLong`], or those of `append`.
#[inline]
pub fn close<V>(
    key: &mut KeyScratch,
    bytes: &[u8],
    parts: &[KeyPart<V>],
    mut append: impl FnMut(&mut KeyScratch, &KeyPart<V>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut from = 0;
    key.clear();
    for part in parts {
        let to = usize::from(part.offset);
        key.bytes(&bytes[from..to]);
        append(key, part)?;
        from = to;
    }
    key.bytes(&bytes[from..]);
    key.checked().map(drop).map_err(Error::from)
}

impl OpenKey {
    /// Columns of a key that may be open.
    const MOST: usize = 8;

    #[inline]
    pub(super) fn new() -> Self {
        const NONE: KeyPart<Operand> =
            KeyPart { offset: 0, form: KeyForm { column_type: ColumnType::Bool, open: false }, value: Operand::of(0) };
        Self { bytes: KeyScratch::new(), parts: [const { NONE }; Self::MOST], count: 0 }
    }

    /// The bytes of its known columns.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`].
    pub fn bytes(&self) -> Result<&[u8], Error> {
        self.bytes.checked().map_err(Error::from)
    }

    /// Its open columns.
    pub fn parts(&self) -> &[KeyPart<Operand>] {
        &self.parts[..self.count]
    }

    fn push(&mut self, form: KeyForm, value: Operand) -> Result<(), Error> {
        let offset = self.bytes.as_bytes().len() as u16;
        let part = self.parts.get_mut(self.count).ok_or_else(|| Error::key_too_long(None))?;
        *part = KeyPart { offset, form, value };
        self.count += 1;
        Ok(())
    }

    /// Becomes the key of a row whose columns `assigned` come later.
    #[inline]
    pub(super) fn set_row<R: Row>(
        &mut self,
        definition: &TableDefinition,
        row: &R,
        assigned: &super::Assigned,
    ) -> Result<(), Error> {
        let of_key = |position: &usize| assigned.iter().find(|(column, _)| usize::from(column.span.index) == *position);
        if !definition.key.iter().any(|position| of_key(position).is_some()) {
            row.key_ref().put(&mut self.bytes, false);
            return Ok(());
        }
        let mut whole = KeyScratch::new();
        row.key_ref().put(&mut whole, false);
        let mut rest = whole.checked().map_err(Error::from)?;
        for (at, position) in definition.key.iter().enumerate() {
            let column = &definition.columns[*position];
            let form = KeyForm { column_type: column.column_type, open: at + 1 < definition.key.len() };
            let (known, behind) = rest.split_at(form.length_at_the_front(rest));
            match of_key(position) {
                Some((_, value)) => self.push(form, value.clone())?,
                None => self.bytes.bytes(known),
            }
            rest = behind;
        }
        Ok(())
    }
}

impl KeyForm {
    /// How many bytes the column has that stands at the front of a key.
    #[inline]
    fn length_at_the_front(self, key: &[u8]) -> usize {
        if let Some(width) = self.column_type.key_width() {
            return width.min(key.len());
        }
        if !self.open {
            return key.len();
        }
        // A zero is followed by another at the end, and by 255 inside.
        let mut at = 0;
        while let Some(zero) = key.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == 0)) {
            at += zero + 2;
            if key.get(at - 1) != Some(&255) {
                return at.min(key.len());
            }
        }
        key.len()
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

macro_rules! future_key {
    ($([$($generics:tt)*] $future:ty: $key:ty;)*) => {$(
        impl<$($generics)*> FutureKeyColumn<$key> for Future<$future> {
            #[inline]
            fn append<T: Transaction + ?Sized>(
                &self,
                transaction: &mut T,
                key: &mut OpenKey,
                open: bool,
            ) -> Result<(), Error> {
                let value = hand_over(transaction, self.state.clone())?;
                key.push(KeyForm { column_type: <$future as ColumnValue>::TYPE, open }, value)
            }
        }

        impl<$($generics)*> FutureKey<$key> for Future<$future> {
            #[inline]
            fn encode_open<T: Transaction + ?Sized>(
                &self,
                transaction: &mut T,
                key: &mut OpenKey,
            ) -> Result<(), Error> {
                FutureKeyColumn::<$key>::append(self, transaction, key, false)
            }
        }
    )*};
}

/// A key of type `K`, of which columns may be futures: one of them, or a tuple.
pub trait FutureKey<K> {
    /// Appends it to an empty key.
    ///
    /// # Errors
    /// As there.
    fn encode_open<T: Transaction + ?Sized>(&self, transaction: &mut T, key: &mut OpenKey) -> Result<(), Error>;
}

future_key! {
    [C: FutureValue + Key] C: C;
    ['k] String: &'k str;
    ['k] Vec<u8>: &'k [u8];
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
