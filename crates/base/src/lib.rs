//! Ids, errors, keys, seeded randomness and clocks: what every other crate of Polychron speaks with.

pub mod clock;
pub mod error;
pub mod floats;
pub mod id;
pub mod key;
pub mod random;
pub mod room;
pub mod sizes;

pub use error::{Abort, Error, Reason};
pub use id::{IndexId, TableId, WorkerId};

/// `Ok`, of a result whose error type is [`Error`]: for closures in which nothing else says what that is.
#[allow(non_snake_case, reason = "it is used as the variant is")]
#[inline]
pub const fn Ok<T>(value: T) -> Result<T, Error> {
    Result::Ok(value)
}
