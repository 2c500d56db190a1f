//! What most programs use: `use polychron::prelude::*`.

pub use polychron_engine::typed::{Conditions, Range};

pub use crate::{
    Access, Becomes, Database, Declare, Error, Future, Futures, OpenTransaction, Operations, Procedure, Row, Session,
    Table, Transaction,
};
