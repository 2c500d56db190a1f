//! Serialization: decimals and fixed strings as texts, dates and points in time as their numbers, fixed bytes as bytes.

use std::fmt;

use ::serde::de::{Error, Visitor};
use ::serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Date, Decimal, Decimal128, FixedBytes, FixedString, Timestamp};

/// Takes a text, borrowed or not.
struct Text<F> {
    expected: &'static str,
    read: F,
}

impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let expected = self.expected;
        (self.read)(text).ok_or_else(|| E::custom(format_args!("{text:?} is not {expected}")))
    }
}

macro_rules! as_text {
    ($([$generics:ident: $kind:ty] $type:ty, $expected:literal, |$text:ident| $read:expr, |$value:ident| $write:expr;)*) => {$(
        impl<const $generics: $kind> Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                serializer.collect_str(&$write)
            }
        }

        impl<'de, const $generics: $kind> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text { expected: $expected, read: |$text: &str| $read })
            }
        }
    )*};
}

as_text! {
    [SCALE: u32] Decimal<SCALE>, "a decimal that the column holds", |text| text.parse().ok(), |value| value;
    [SCALE: u32] Decimal128<SCALE>, "a decimal that the column holds", |text| text.parse().ok(), |value| value;
    [N: usize] FixedString<N>, "a text that the column has room for", |text| Self::new(text), |value| value;
}

macro_rules! as_number {
    ($($type:ident: $number:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$number>::deserialize(deserializer).map(Self)
            }
        }
    )*};
}

as_number!(Date: i32, Timestamp: i64);

impl<const N: usize> Serialize for FixedBytes<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de, const N: usize> Deserialize<'de> for FixedBytes<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes<const N: usize>;

        impl<'de, const N: usize> Visitor<'de> for Bytes<N> {
            type Value = FixedBytes<N>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{N} bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                bytes.try_into().map(FixedBytes).map_err(|_| E::invalid_length(bytes.len(), &self))
            }

            fn visit_seq<A: ::serde::de::SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let mut bytes = [0; N];
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = elements.next_element()?.ok_or_else(|| A::Error::invalid_length(at, &self))?;
                }
                match elements.next_element::<u8>()? {
                    None => Ok(FixedBytes(bytes)),
                    Some(_) => Err(A::Error::invalid_length(N + 1, &self)),
                }
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<'de, T: Serialize + Deserialize<'de> + PartialEq + fmt::Debug>(value: &T, text: &'de str) {
        assert_eq!(serde_json::to_string(value).unwrap(), text);
        assert_eq!(serde_json::from_str::<T>(text).unwrap(), *value);
    }

    #[test]
    fn values_round_trip() {
        check(&Decimal::<2>::from_units(-1990), "\"-19.90\"");
        check(&Decimal128::<38>::from_units(1), "\"0.00000000000000000000000000000000000001\"");
        check(&FixedString::<4>::new("né").unwrap(), "\"né\"");
        check(&FixedBytes([0, 255]), "[0,255]");
        check(&Date(-1), "-1");
        check(&Timestamp(i64::MAX), "9223372036854775807");
        assert!(serde_json::from_str::<Decimal<2>>("\"1.234\"").is_err());
        assert!(serde_json::from_str::<FixedString<4>>("\"longer\"").is_err());
        assert!(
            serde_json::from_str::<FixedBytes<2>>("[1]").is_err()
                && serde_json::from_str::<FixedBytes<2>>("[1,2,3]").is_err()
        );
    }
}
