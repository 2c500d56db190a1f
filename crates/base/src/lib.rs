//! Ids, errors, keys, seeded randomness and clocks: what every other crate of Polychron speaks with.

pub mod key;
