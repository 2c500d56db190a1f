//! A disk in memory that fails, lies and loses power, by seed.
//!
//! Without faults a [`SimulatedDisk`] answers as a [`Directory`](polychron_log::disk::Directory) does (`tests/real.rs` compares them). Tests count its
//! operations, [`plan`](SimulatedDisk::plan) a [`Fault`] at one of them, [`damage`](SimulatedDisk::damage) what is stored, and look at what a power
//! failure leaves ([`after_power_failure`](SimulatedDisk::after_power_failure)), or the end of a process
//! ([`after_restart`](SimulatedDisk::after_restart)). The same seeds give the same answers.

mod content;
mod damage;
mod disk;
mod faults;
mod survival;
mod tree;
mod trials;

pub use damage::Damage;
pub use disk::{SimulatedDisk, SimulatedFile, SimulatedLock};
pub use faults::{Fault, Step};
pub use survival::Survival;
pub use trials::{At, Trials, crash_seeds, seeds, stride, unneeded};
