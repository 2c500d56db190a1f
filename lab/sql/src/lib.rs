//! Drawn statements of SQL, and what their answers must have in common.
//!
//! A seed draws a [`Case`]: tables, rows, and statements. PostgreSQL, where there is one, must answer each of them as the database does ([`differences`]);
//! without it, answers must agree with each other: parts of a table with the whole, a condition with its value, one access path with another.
//! [`sessions`] has transactions of several connections, whose answers must be those of some serial order.

mod answer;
mod case;
mod changes;
mod differences;
mod draw;
mod expressions;
mod kinds;
pub mod known;
mod oracle;
mod queries;
mod schema;
pub mod sessions;
pub mod suites;

pub use answer::{Answer, Ours, System};
pub use case::{Case, Statement};
pub use differences::{Difference, Tally, differences, shrunk};
pub use draw::Draw;
pub use expressions::{Scope, condition};
pub use kinds::Kind;
pub use oracle::Postgres;
pub use queries::query;
pub use schema::{Column, Schema, Table};

/// A number from the environment, or what stands in for it.
pub fn wanted(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
