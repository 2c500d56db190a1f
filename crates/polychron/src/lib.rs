//! Polychron: a main-memory transactional database. Serializable by default, many writers, and a choice of published
//! concurrency-control protocols behind one interface.
//!
//! # Transactions
//!
//! A [`Database`] has typed tables ([`#[derive(Row)]`](derive@Row)). [`Database::transact`] runs a closure as a transaction, again and again until
//! it commits or fails; [`Database::snapshot`] reads a consistent state without conflicts. What a transaction can do is in [`Operations`].
//!
//! ```
//! use polychron::{Database, Error, Operations, Row};
//!
//! #[derive(Row)]
//! struct Account {
//!     #[key]
//!     id: u64,
//!     balance: u64,
//! }
//!
//! #[derive(Debug, thiserror::Error)]
//! enum PaymentError {
//!     #[error("no such account")]
//!     NotFound,
//!     #[error("the balance of {0} is too small")]
//!     NotCovered(u64),
//!     #[error(transparent)]
//!     Database(#[from] Error),
//! }
//!
//! let database = Database::in_memory()?;
//! let accounts = database.create_table::<Account>()?;
//! # database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 50 }))?;
//! // A transaction fails with the error type of its caller, and is run again until it commits or fails.
//! database.transact(|transaction| {
//!     // So does the closure of an update. The row is then as it was.
//!     let found = transaction.update(&accounts, 1, |row| {
//!         let left = row.balance().checked_sub(10).ok_or(PaymentError::NotCovered(row.balance()))?;
//!         row.set_balance(left);
//!         Ok::<_, PaymentError>(())
//!     })?;
//!     if found { Ok(()) } else { Err(PaymentError::NotFound) }
//! })?;
//! let total: u64 = database.transact(|transaction| transaction.scan(&accounts, ..).map(|row| row.balance()).sum())?;
//! assert_eq!(total, 40);
//! # Ok::<(), PaymentError>(())
//! ```
//!
//! # Columns
//!
//! Columns have the types that [`#[derive(Row)]`](derive@Row) lists, and those of your own: enums, and structs around one value
//! ([`Column`](derive@Column)).
//!
//! ```
//! use polychron::{Column, Database, Operations, Row};
//!
//! #[derive(Column, Clone, Copy, Debug, PartialEq)]
//! enum State {
//!     Open,
//!     Paid,
//! }
//!
//! #[derive(Column, Clone, Copy, Debug, PartialEq)]
//! struct OrderId(u64);
//!
//! #[derive(Row)]
//! #[index(columns(state))]
//! struct Order {
//!     #[key]
//!     id: OrderId,
//!     state: State,
//! }
//!
//! let database = Database::in_memory()?;
//! let orders = database.create_table::<Order>()?;
//! let unpaid = database.transact(|transaction| {
//!     for id in [7, 8, 9] {
//!         transaction.insert(&orders, &Order { id: OrderId(id), state: State::Open })?;
//!     }
//!     transaction.update(&orders, OrderId(8), |row| row.set_state(State::Paid))?;
//!     let open = transaction.scan_by(&orders, Order::BY_STATE, State::Open);
//!     open.map(|row| row.id()).collect::<Vec<_>>()
//! })?;
//! assert_eq!(unpaid, [OrderId(7), OrderId(9)]);
//! # Ok::<(), polychron::Error>(())
//! ```
//!
//! # Futures
//!
//! Futures leave values open that the procedure need not know; a protocol that can does not look at them before the
//! commit ([`Futures`]).
//!
//! ```
//! use polychron::{Database, Futures, Operations, Row};
//! # #[derive(Row)] struct Item { #[key] id: u64, stock: i64 }
//!
//! let database = Database::in_memory()?;
//! let items = database.create_table::<Item>()?;
//! database.transact(|transaction| transaction.insert(&items, &Item { id: 1, stock: 5 }))?;
//! let left = database.transact_resolved(|transaction| {
//!     let stock = transaction.future(&items, 1, Item::STOCK)?;
//!     if !transaction.is_true(stock.at_least(3))? {
//!         return Ok(None);
//!     }
//!     let left = stock - 3;
//!     transaction.set_future(&items, 1, Item::STOCK, left)?;
//!     polychron::Ok(Some(left))
//! })?;
//! assert_eq!(left, Some(2));
//! # Ok::<(), polychron::Error>(())
//! ```
//!
//! They stand for numbers, text, bytes and what may be NULL, alone or in tuples, also as columns of a key:
//!
//! ```
//! use polychron::prelude::*;
//! # #[derive(Row)] struct Shop { #[key] id: u16, name: String, city: Option<String>, next: u32 }
//! # #[derive(Row, Debug, PartialEq)] struct Ticket { #[key] shop: String, #[key] number: u32, label: String }
//!
//! let database = Database::in_memory()?;
//! let (shops, tickets) = (database.create_table::<Shop>()?, database.create_table::<Ticket>()?);
//! let shop = Shop { id: 1, name: "Corner".into(), city: None, next: 7 };
//! database.transact(|transaction| transaction.insert(&shops, &shop))?;
//! database.transact(|transaction| {
//!     let (name, city, next) = transaction.future(&shops, 1, (Shop::NAME, Shop::CITY, Shop::NEXT))?;
//!     transaction.set_future(&shops, 1, Shop::NEXT, next + 1)?;
//!     let label = name.clone() + ", " + city.or("nowhere") + ": " + next.convert::<String>();
//!     let ticket = Ticket { shop: String::new(), number: 0, label: String::new() };
//!     let columns = [Ticket::SHOP.becomes(name), Ticket::NUMBER.becomes(next), Ticket::LABEL.becomes(label)];
//!     transaction.insert_future(&tickets, &ticket, columns)
//! })?;
//! let ticket = database.transact(|transaction| transaction.get_owned(&tickets, ("Corner", 7)))?;
//! assert_eq!(ticket.map(|ticket| ticket.label), Some("Corner, nowhere: 7".to_owned()));
//! # Ok::<(), polychron::Error>(())
//! ```
//!
//! # Aggregates and column batches
//!
//! They ask for a range's answer or its columns in place of its rows; a protocol that stores
//! columns answers from them, and one with precision locking protects the answer alone ([`Range::aggregate`], [`Range::group_by`]).
//!
//! ```
//! use polychron::prelude::*;
//! # #[derive(Row)] struct Item { #[key] id: u64, shelf: u16, price: i64, stock: Option<u32> }
//!
//! let database = Database::in_memory()?;
//! let items = database.create_table::<Item>()?;
//! database.transact(|transaction| {
//!     (0..10).try_for_each(|id| transaction.insert(&items, &Item { id, shelf: 7, price: 5, stock: Some(id as u32) }))
//! })?;
//! let ((value, least, rows), shelves) = database.transact(|transaction| {
//!     let in_stock = transaction.scan(&items, ..).such_that(Item::STOCK.at_least(Some(5)));
//!     let totals = in_stock.aggregate((Item::PRICE.sum(), Item::STOCK.min(), count()))?;
//!     polychron::Ok((totals, transaction.scan(&items, ..).group_by(Item::SHELF, count())?))
//! })?;
//! assert_eq!((value, least, rows), (Some(25), Some(5), 5));
//! assert_eq!(shelves, [(7, 10)]);
//! # Ok::<(), polychron::Error>(())
//! ```
//!
//! [`Operations::aggregate`] and [`Operations::scan_columns`] ask for columns by their positions.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use polychron::schema::{Value, ValueRef};
//! use polychron::{Aggregate, Comparison, Database, Operations, Restriction, Row, Scan};
//! # #[derive(Row)] struct Item { #[key] id: u64, stock: i64 }
//!
//! let database = Database::in_memory()?;
//! let items = database.create_table::<Item>()?;
//! database.transact(|transaction| (0..10).try_for_each(|id| transaction.insert(&items, &Item { id, stock: 5 })))?;
//! let stock = usize::from(Item::STOCK.index);
//! let late = [Restriction { column: 0, comparison: Comparison::AtLeast, value: Value::Unsigned(6) }];
//! let (sum, values) = database.transact(|transaction| {
//!     let scan = Scan { restrictions: &late, ..Scan::all(items.id()) };
//!     let sum = transaction.aggregate(&scan, Aggregate::Sum(stock))?;
//!     let mut values = 0;
//!     transaction.scan_columns(
//!         &scan,
//!         &[stock],
//!         // May be asked again of the same rows, when others have changed them meanwhile.
//!         &mut |batch| batch.positions().filter(|&row| batch.columns[0].value(row) == ValueRef::Integer(5)).count(),
//!         &mut |of_batch| {
//!             values += of_batch;
//!             ControlFlow::Continue(())
//!         },
//!     )?;
//!     polychron::Ok((sum, values))
//! })?;
//! assert_eq!((sum, values), (Value::Integer(20), 4));
//! # Ok::<(), polychron::Error>(())
//! ```
//!
//! # Protocols
//!
//! [`Database::in_memory`] takes the default one, [`Cicada`](protocols::Cicada). [`Database::builder`] chooses another by its type
//! ([`Builder::with`]), or by a name that the program reads when it runs (`Builder::protocol`, feature `any`). [`protocols`] has those whose features are
//! turned on; [`protocol_list!`] makes a list of some, also of other crates.
//!
//! ```
//! use polychron::Database;
//! use polychron::protocols::Hyper;
//!
//! let database = Database::builder().with::<Hyper>().in_memory()?;
//! # drop(database);
//! # Ok::<(), polychron::Error>(())
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `durability` | databases that are opened with a path ([`Database::open`]) |
//! | `any` | a protocol chosen by its name, behind virtual calls; includes `protocols` |
//! | `chrono`, `jiff`, `rust_decimal`, `serde`, `uuid` | column types of these crates, or conversions from and to them ([`schema`]) |
//! | `sql` | statements in SQL, in PostgreSQL's dialect (`Database::sql`) |
//! | `metrics`, `tracing` | what a database counts and what happens in it, for these crates |
//! | `bohm`, `hyper`, `lazy`, `locking`, `maflingo`, `serial` | the protocols besides the default one |
//! | `protocols` | all of these |
//!
//! `durability` is on by default, no others. A program turns on the protocols that it uses.

// `derive(Row)` names this crate from outside, also in this crate's own tests.
extern crate self as polychron;

mod builder;
mod claims;
mod database;
#[cfg(feature = "durability")]
mod durable;
mod indexes;
mod list;
mod open_transaction;
mod opening;
mod pool;
pub mod prelude;
#[cfg(feature = "durability")]
mod read_only;
#[cfg(feature = "durability")]
mod refusing;
mod requests;
mod resolving;
#[cfg(feature = "durability")]
mod ruled;
mod session;
#[cfg(feature = "sql")]
pub mod sql;
#[cfg(feature = "durability")]
mod standby;
mod statistics;
mod submitting;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod telemetry;

pub use builder::Builder;
pub use database::{Database, Options, TransactionOf};
pub use list::{DefaultProtocol, ProtocolInfo, ProtocolList, ProtocolVisitor, Protocols, UnknownProtocol};
#[cfg(feature = "any")]
pub use list::{any_protocol, any_protocol_of};
pub use open_transaction::OpenTransaction;
#[doc(inline)]
pub use polychron_base::{Ok, error};
pub use polychron_engine::aggregate::{AggregateError, Group, Grouping};
#[cfg(feature = "any")]
pub use polychron_engine::any::{AnyOptions, AnyProtocol};
pub use polychron_engine::futures::{FutureError, Outcome, Resolved, Together};
pub use polychron_engine::limits::{Cancellation, Limits};
pub use polychron_engine::open::Open;
pub use polychron_engine::options::{Retry, Submissions};
pub use polychron_engine::redo::Durability;
pub use polychron_engine::scan::Comparison;
pub use polychron_engine::typed::{
    Aggregates, Condition, Conditions, GroupColumns, MOST_GROUPS, Mapped, Range, Rows, Summed, Total, Totals, count,
};
pub use polychron_engine::{
    Abort, Access, Aggregate, Becomes, ChangeOutcome, ColumnBatch, ColumnVector, Commit, Common, Configuration,
    Declare, Direction, Error, Event, Events, Future, FutureValue, Futures, HotKey, IndexId, Insertion, Interactive,
    Isolation, Metric, MetricValue, Mode, OpeningStage, Operations, Procedure, Protocol, Reason, Restriction,
    Savepoint, Scan, Statistics, Submission, Table, TableId, Transaction, Versions, Worker,
};
#[cfg(feature = "durability")]
pub use polychron_log::Replication;
#[cfg(feature = "durability")]
pub use polychron_log::backup::{Restored, back_up_directory, restore_directory};
pub use polychron_memory::{MemoryStatistics, NodeStatistics, Options as MemoryOptions, Pressure};
pub use polychron_protocols as protocols;
pub use polychron_schema as schema;
pub use polychron_schema::row_trait::Row;
pub use polychron_schema::{EvolutionError, Index, Projection};
#[doc(inline)]
pub use polychron_schema_derive::{LibraryColumn as Column, LibraryRow as Row};
pub use pool::Loan;
pub use requests::{Request, RequestStatistics};
#[cfg(feature = "durability")]
pub use ruled::RulesNotLoaded;
pub use session::Session;
#[cfg(feature = "durability")]
pub use standby::StandbyStatus;

#[cfg(all(doctest, feature = "sql"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
