//! Types of other crates: as column types, or to and from the column types that hold the same. Each behind a feature of its name.

#[cfg(feature = "chrono")]
mod chrono;
#[cfg(feature = "jiff")]
mod jiff;
#[cfg(feature = "rust_decimal")]
mod rust_decimal;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "uuid")]
mod uuid;
