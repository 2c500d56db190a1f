//! Ids, errors, keys, seeded randomness and clocks: what every other crate of Polychron speaks with.

pub mod clock;
pub mod error;
pub mod floats;
pub mod id;
pub mod key;
pub mod line;
pub mod random;
pub mod room;
pub mod sizes;

pub use error::{Abort, Error, Reason};
pub use id::{IndexId, TableId, WorkerId};

/// Constants that are one bit each, the lowest one first.
#[macro_export]
macro_rules! bits {
    (@ $bit:expr, $type:ty: $(#[$note:meta])* $name:ident $(, $($others:tt)*)?) => {
        $(#[$note])*
        const $name: $type = $bit;
        $($crate::bits!(@ $bit << 1, $type: $($others)*);)?
    };
    (@ $bit:expr, $type:ty:) => {};
    ($type:ty: $($names:tt)+) => {
        $crate::bits!(@ 1, $type: $($names)+);
    };
}

/// `Ok`, of a result whose error type is [`Error`]: for closures in which nothing else says what that is.
#[allow(non_snake_case, reason = "it is used as the variant is")]
#[inline]
pub const fn Ok<T>(value: T) -> Result<T, Error> {
    Result::Ok(value)
}
