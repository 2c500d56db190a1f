//! Databases on a path whose process is killed, again and again, and what must be there when they are opened again.
//!
//! A *client* process executes transactions on a database and tells before each that it begins, and after each what it was answered. The process that
//! started it keeps these lines, the *ledger*, kills it after a drawn time, opens the database itself, and examines what is there (`examine.rs`). Then the
//! next client goes on with the same directory, another protocol, and another durability. All is drawn from a seed, but what the clients come to is up to the machine.
//!
//! This uses what users can use, and nothing of the other tests: neither their generators nor their checker.

mod client;
mod examine;
mod item;
mod ledger;
mod restore;
mod run;
mod work;

pub use client::{Client, Kept, client};
pub use item::Item;
pub use run::{Failure, Plan, Report, run};
