//! SQL over the plug point's transactions, in PostgreSQL's dialect. `docs/sql.md` has the design.

mod access;
mod arrays;
mod bind;
mod casts;
mod catalog;
mod codec;
mod connection;
mod context;
mod control;
mod database;
mod datum;
mod decimal;
mod definitions;
mod error;
mod exec;
mod explain;
mod expr;
mod functions;
mod json;
mod outcome;
mod parse;
mod paths;
mod plan;
mod session;
mod statement;
mod text;
mod types;

pub use arrays::Array;
pub use connection::Connection;
pub use database::SqlDatabase;
pub use datum::{Datum, Interval, OwnedDatum};
pub use decimal::Decimal;
pub use error::{SqlError, SqlState};
pub use outcome::{Notice, Outcome};
pub use types::{Bound, ColumnType, Element, Type};
