//! What most programs use: `use polychron::prelude::*`.

pub use polychron_engine::typed::Range;

pub use crate::{
    Access, Becomes, Database, Declare, Error, Future, Futures, Operations, Procedure, Row, Session, Table, Transaction,
};
