//! The names that most programs use: `use polychron::prelude::*`.

pub use polychron_engine::typed::{Aggregates, Conditions, Range, count};

pub use crate::{
    Access, Becomes, Database, Declare, Error, Future, Futures, OpenTransaction, Operations, Procedure, Row, Session,
    Table, Transaction,
};
