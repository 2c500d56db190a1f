//! Polychron: a main-memory transactional database. Serializable by default, many writers, and a choice of published
//! concurrency-control protocols behind one interface.
//!
//! ```
//! use polychron::{Database, Operations, Options, Row, Stop};
//!
//! #[derive(Row)]
//! struct Account {
//!     #[key]
//!     id: u64,
//!     balance: i64,
//! }
//!
//! #[derive(Debug, thiserror::Error)]
//! #[error("no such account")]
//! struct NotFound;
//!
//! let database = Database::open(Options::default())?;
//! let accounts = database.create_table::<Account>()?;
//! # database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 50 }))?;
//! database.transact(|transaction| {
//!     let balance = transaction.get(&accounts, 1)?.ok_or(NotFound)?.balance();
//!     transaction.update(&accounts, 1, |row| row.set_balance(balance - 10))
//! })?;
//! let total: i64 = database.transact(|transaction| transaction.scan(&accounts, ..).map(|row| row.balance()).sum())?;
//! assert_eq!(total, 40);
//! # Ok::<(), polychron::Error>(())
//! ```

// `derive(Row)` names this crate from outside, also in this crate's own tests.
extern crate self as polychron;

mod database;
mod list;
mod pool;

pub use database::{Database, Options, Session, TransactionOf};
pub use list::{DefaultProtocol, PROTOCOLS, ProtocolInfo, ProtocolVisitor, UnknownProtocol, for_protocol};
pub use polychron_engine::{
    Abort, Common, Declare, Error, IndexId, Insertion, Interactive, Isolation, Operations, Procedure, Protocol, Reason,
    Restriction, Scan, Statistics, Stop, Table, TableId, Transaction, Versions, Worker,
};
pub use polychron_protocols as protocols;
pub use polychron_schema as schema;
pub use polychron_schema::Index;
pub use polychron_schema::row_trait::Row;
#[doc(inline)]
pub use polychron_schema_derive::FaceRow as Row;
