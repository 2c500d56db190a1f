//! The protocols, a folder each. Nothing outside of a folder names what is inside, except the list in the crate
//! `polychron`.

pub mod bohm;
pub mod cicada;
pub mod hekaton;
pub mod hyper;
pub mod key_value;
pub mod lazy;
#[cfg(test)]
mod lazy_tests;
pub mod locking;
pub mod maflingo;
#[cfg(all(test, loom))]
mod model;
pub mod partitioned_store;
pub mod serial;
