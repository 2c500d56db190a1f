//! Systems that the papers compare their designs with. Each is a protocol like those of the product, written against the public plug point:
//! what stands here could stand in anybody's crate.
//!
//! [`Everything`] is the list of these and of the product's protocols, by which the laboratory's command line goes.

pub mod hekaton;
pub mod key_value;
mod list;
pub mod partitioned_store;

pub use list::{Compared, Everything, any_protocol};
