//! The protocols, a folder each. Nothing outside of a folder names what is inside, except the list in the crate
//! `polychron`.

pub mod bohm;
pub mod cicada;
#[cfg(test)]
mod contested_tests;
pub mod hyper;
pub mod lazy;
#[cfg(test)]
mod lazy_tests;
pub mod locking;
pub mod maflingo;
pub mod serial;
