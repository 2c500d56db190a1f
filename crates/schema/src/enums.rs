//! Enums as column types: the numbers of their variants, in the smallest integer that holds them all.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::buffer::{RowBuffer, RowRef};
use crate::error::SchemaError;
use crate::key::width::{W1, W2, W4, W8};
use crate::key::{KeyReader, KeySink, KeyWidth};
use crate::layout::Slot;
use crate::mutate::RowMut;
use crate::types::ColumnType;
use crate::value::Value;

/// A variant of an [`EnumType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EnumVariant {
    /// Its name.
    pub name: &'static str,
    /// Its number, which is what is stored.
    pub number: i128,
}

/// The variants of an enum: the type of a column whose values are their numbers. `#[derive(Column)]` makes it.
///
/// Two types are the same when their variants are: names, numbers and order.
///
/// ```
/// use polychron_schema::{ColumnType, EnumType, EnumVariant, TableDefinition};
/// static STATE: EnumType = EnumType::new(&[
///     EnumVariant { name: "Open", number: 0 },
///     EnumVariant { name: "Closed", number: 300 },
/// ]);
/// let table = TableDefinition::new("order").with_column("id", ColumnType::U64).with_column("state", ColumnType::Enum(&STATE));
/// assert_eq!(table.columns[1].column_type.stored(), ColumnType::U16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EnumType {
    variants: &'static [EnumVariant],
    integer: Integer,
}

const REPEATED: &str = "two variants have the same number";

/// The types of [`EnumType::interned`], by their variants.
type Interned<'n> = BTreeMap<Box<[(&'n str, i128)]>, &'static EnumType>;

static INTERNED: Mutex<Interned<'static>> = Mutex::new(BTreeMap::new());

/// The integer that holds the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Integer {
    bytes: u8,
    is_signed: bool,
}

impl EnumType {
    /// The type of these variants; a definition refuses one that has none.
    ///
    /// # Panics
    /// When a number needs more than 64 bits, or two variants have the same one.
    pub const fn new(variants: &'static [EnumVariant]) -> Self {
        assert!(
            Self::problem(variants).is_none(),
            "a number needs more than 64 bits, or two variants have the same one"
        );
        Self::unchecked(variants)
    }

    /// As [`EnumType::new`]; what is wrong with the variants shows elsewhere.
    #[doc(hidden)]
    pub const fn unchecked(variants: &'static [EnumVariant]) -> Self {
        let (least, most) = bounds(variants);
        let is_signed = least < 0;
        let mut bytes = 1;
        while bytes < 8 && !holds(bytes, is_signed, least, most) {
            bytes *= 2;
        }
        Self { variants, integer: Integer { bytes, is_signed } }
    }

    /// The type of variants that are known at run time only, each a name and a number. It stays for as long as the process, one for all that are
    /// equal.
    ///
    /// # Errors
    /// Why they are no column type; then nothing stays.
    pub fn interned(variants: &[(&str, i128)]) -> Result<&'static Self, &'static str> {
        let mut numbers: Vec<i128> = variants.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(REPEATED);
        }
        // The bounds are those of all numbers.
        let ends = [numbers.first(), numbers.last()].map(|end| end.copied().unwrap_or(0));
        if let Some(problem) = Self::width_problem(&ends.map(|number| EnumVariant { name: "", number })) {
            return Err(problem);
        }
        let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
        // A lookup needs no names that live as long as those of the map.
        let known: &Interned<'_> = &interned;
        if let Some(kind) = known.get(variants) {
            return Ok(kind);
        }
        let variants: Box<[(&'static str, i128)]> =
            variants.iter().map(|(name, number)| (&*Box::leak(Box::<str>::from(*name)), *number)).collect();
        let of_kind: Vec<_> = variants.iter().map(|&(name, number)| EnumVariant { name, number }).collect();
        let kind = &*Box::leak(Box::new(Self::unchecked(of_kind.leak())));
        interned.insert(variants, kind);
        Ok(kind)
    }

    /// Whether the numbers need too many bits; the compiler sees to it that those of an enum differ.
    #[doc(hidden)]
    pub const fn width_problem(variants: &[EnumVariant]) -> Option<&'static str> {
        let (least, most) = bounds(variants);
        if holds(8, least < 0, least, most) {
            return None;
        }
        Some("the variants' numbers need more than 64 bits: a column holds those of an `i64` or of a `u64`")
    }

    /// Why variants are no column type.
    const fn problem(variants: &[EnumVariant]) -> Option<&'static str> {
        if let Some(problem) = Self::width_problem(variants) {
            return Some(problem);
        }
        let mut first = 0;
        while first < variants.len() {
            let mut second = first + 1;
            while second < variants.len() {
                if variants[first].number == variants[second].number {
                    return Some(REPEATED);
                }
                second += 1;
            }
            first += 1;
        }
        None
    }

    /// The variants, in declaration order.
    pub const fn variants(&self) -> &'static [EnumVariant] {
        self.variants
    }

    /// The variant with that number.
    pub fn variant(&self, number: i128) -> Option<&'static EnumVariant> {
        self.variants.iter().find(|variant| variant.number == number)
    }

    /// The integer type whose bytes and dynamic values these values have: the smallest one, without a sign where no
    /// number has one.
    pub const fn integer(&self) -> ColumnType {
        match (self.integer.is_signed, self.integer.bytes) {
            (true, 1) => ColumnType::I8,
            (true, 2) => ColumnType::I16,
            (true, 4) => ColumnType::I32,
            (true, _) => ColumnType::I64,
            (false, 1) => ColumnType::U8,
            (false, 2) => ColumnType::U16,
            (false, 4) => ColumnType::U32,
            (false, _) => ColumnType::U64,
        }
    }

    /// Bytes of that integer.
    pub const fn width(&self) -> u32 {
        self.integer.bytes as u32
    }

    /// Whether these bits of the integer are a variant's.
    pub(crate) fn holds_bits(&self, bits: u64) -> bool {
        self.variants.iter().any(|variant| bits_of(variant.number, self.width()) == bits)
    }
}

/// The low bytes of a number.
#[doc(hidden)]
pub const fn bits_of(number: i128, bytes: u32) -> u64 {
    number as u64 & (u64::MAX >> (64 - 8 * bytes))
}

const fn bounds(variants: &[EnumVariant]) -> (i128, i128) {
    let (mut least, mut most, mut at) = (0, 0, 0);
    while at < variants.len() {
        let number = variants[at].number;
        if number < least {
            least = number;
        }
        if number > most {
            most = number;
        }
        at += 1;
    }
    (least, most)
}

const fn holds(bytes: u8, is_signed: bool, least: i128, most: i128) -> bool {
    let bits = 8 * bytes as u32 - if is_signed { 1 } else { 0 };
    let end = 1_i128 << bits;
    most < end && least >= if is_signed { -end } else { 0 }
}

impl fmt::Display for EnumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("enum(")?;
        for (at, variant) in self.variants.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{} = {}", variant.name, variant.number)?;
        }
        f.write_str(")")
    }
}

/// An enum that is a column type. `#[derive(Column)]` implements it, and with it everything that a column needs.
#[doc(hidden)]
pub trait EnumColumn: Copy + Send + Sync + 'static {
    /// The variants.
    const ENUM: &'static EnumType;

    /// The bits of its integer.
    fn to_bits(self) -> u64;

    /// The variant with these bits, if there is one.
    fn from_bits(bits: u64) -> Option<Self>;

    /// The replacement for bits of no variant, which only a torn row can hold: the first variant.
    const FIRST: Self;

    #[inline(always)]
    fn read(row: RowRef<'_>, slot: Slot) -> Self {
        Self::from_bits(row.number(slot.offset, Self::ENUM.width())).unwrap_or(Self::FIRST)
    }

    #[inline(always)]
    fn build(self, out: &mut RowBuffer, slot: Slot) {
        out.store(slot.offset, &self.to_bits().to_le_bytes()[..Self::ENUM.width() as usize]);
    }

    #[inline(always)]
    fn change(self, row: &mut RowMut<'_>, slot: Slot) {
        row.store(slot, &self.to_bits().to_le_bytes()[..Self::ENUM.width() as usize]);
    }

    fn to_value(self) -> Value {
        let (bits, unused) = (self.to_bits(), 64 - 8 * Self::ENUM.width());
        if Self::ENUM.integer.is_signed {
            Value::Integer((bits << unused).cast_signed() >> unused)
        } else {
            Value::Unsigned(bits)
        }
    }

    #[inline(always)]
    fn put<S: KeySink>(self, sink: &mut S) {
        sink.integer(self.to_bits() ^ sign_of(Self::ENUM), Self::ENUM.width() as usize);
    }

    #[inline]
    fn take(reader: &mut KeyReader<'_>) -> Result<Self, SchemaError> {
        let bits = reader.number(Self::ENUM.width() as usize)? ^ sign_of(Self::ENUM);
        Self::from_bits(bits).ok_or(SchemaError::MalformedKey)
    }
}

/// The bits to flip so that they sort.
const fn sign_of(kind: &EnumType) -> u64 {
    if kind.integer.is_signed { 1 << (8 * kind.width() - 1) } else { 0 }
}

/// The width of a key of `BYTES` bytes, for types whose width is a constant.
#[doc(hidden)]
#[derive(Debug)]
pub struct Bytes<const BYTES: u32>;

#[doc(hidden)]
pub trait HasWidth {
    type Width: KeyWidth;
}

macro_rules! has_width {
    ($($bytes:literal: $width:ident),*) => {$(
        impl HasWidth for Bytes<$bytes> {
            type Width = $width;
        }
    )*};
}

has_width!(1: W1, 2: W2, 4: W4, 8: W8);

#[cfg(test)]
mod tests {
    use super::*;

    const fn variant(number: i128) -> EnumVariant {
        EnumVariant { name: "v", number }
    }

    #[test]
    fn the_smallest_integer_is_taken() {
        use ColumnType::{I8, I16, I32, I64, U8, U16, U32, U64};
        let of = |least: i128, most: i128| {
            let variants = Box::leak(Box::new([variant(least), variant(most)]));
            assert_eq!(EnumType::problem(variants), None);
            EnumType::new(variants).integer()
        };
        for (expected, least, most) in [
            (U8, 0, 255),
            (U16, 0, 256),
            (U16, 7, 65_535),
            (U32, 0, 65_536),
            (U64, 0, 1 << 32),
            (U64, 0, u64::MAX.into()),
            (I8, -128, 127),
            (I16, -1, 128),
            (I16, -129, 0),
            (I32, -1, 32_768),
            (I64, -1, 1 << 31),
            (I64, i64::MIN.into(), i64::MAX.into()),
        ] {
            assert_eq!(of(least, most), expected, "{least} {most}");
        }
        assert!(EnumType::problem(&[variant(-1), variant(1 << 63)]).is_some());
        assert!(EnumType::problem(&[variant(0), variant(1 << 64)]).is_some());
        assert!(EnumType::problem(&[variant(3), variant(0), variant(3)]).is_some());
        assert_eq!(EnumType::new(const { &[variant(-1), variant(5)] }).to_string(), "enum(v = -1, v = 5)");
    }

    #[test]
    fn equal_variants_are_one_type() {
        static STATE: EnumType =
            EnumType::new(&[EnumVariant { name: "Open", number: -1 }, EnumVariant { name: "Closed", number: 300 }]);
        let names = ["Open".to_owned(), "Closed".to_owned()];
        let variants = [(names[0].as_str(), -1), (names[1].as_str(), 300)];
        let kind = EnumType::interned(&variants).unwrap();
        assert_eq!((kind, kind.integer()), (&STATE, ColumnType::I16));
        assert!(std::ptr::eq(kind, EnumType::interned(&variants).unwrap()));
        for other in [&variants[..1], &[variants[1], variants[0]], &[variants[0], ("closed", 300)]] {
            assert_ne!(EnumType::interned(other).unwrap(), kind);
        }
        assert_eq!(EnumType::interned(&[("a", 3), ("b", 0), ("c", 3)]), Err(REPEATED));
        for [first, second] in [[-1, 1 << 63], [1 << 64, 0], [i128::MIN, i128::MAX]] {
            assert!(EnumType::interned(&[("a", first), ("b", second)]).is_err(), "{first} {second}");
        }
        assert!(EnumType::interned(&[]).unwrap().variants().is_empty());
    }
}
