//! SQL over the plug point's transactions, in PostgreSQL's dialect. `docs/sql.md` has the design.

mod access;
mod bind;
mod casts;
mod catalog;
mod codec;
mod connection;
mod context;
mod datum;
mod decimal;
mod error;
mod exec;
mod expr;
mod functions;
mod parse;
mod paths;
mod plan;
mod statement;
mod text;
mod types;

pub use connection::{Connection, Outcome, SqlDatabase};
pub use datum::{Datum, Interval, OwnedDatum};
pub use decimal::Decimal;
pub use error::{SqlError, SqlState};
pub use types::{Bound, ColumnType, Type};
