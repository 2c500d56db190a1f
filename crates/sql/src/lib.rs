//! SQL over the plug point's transactions, in PostgreSQL's dialect. `docs/sql.md` has the design.

mod access;
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
mod define;
mod definitions;
mod error;
mod exec;
mod expr;
mod functions;
mod gates;
mod outcome;
mod parse;
mod paths;
mod plan;
mod sequences;
mod session;
mod statement;
mod text;
mod types;

pub use connection::Connection;
pub use database::SqlDatabase;
pub use datum::{Datum, Interval, OwnedDatum};
pub use decimal::Decimal;
pub use error::{SqlError, SqlState};
pub use outcome::{Notice, Outcome};
pub use types::{Bound, ColumnType, Type};
