//! TPC-C (specification 5.11): a wholesale supplier with warehouses, districts, customers, orders and stock.
//!
//! All nine tables, all five transactions, the specified distributions, and the consistency conditions of clause 3.3.2.
//! `docs/workloads-tpcc.md` lists each choice that the specification leaves open, and each departure from it.

mod check;
mod client;
mod load;
mod options;
pub mod procedures;
mod queue;
mod random;
pub mod schema;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use polychron_engine::{Error, Protocol, Row, Table, TableId, Worker};
use polychron_schema::IndexKind;

pub use client::TpccClient;
pub use options::{Indexes, Scale, TpccOptions, Transactions};
pub use procedures::TpccProcedure;
pub use queue::DeliveryMode;

use crate::run::Share;
use crate::{CheckError, Checked, Workload};
use client::Home;
use queue::{Queues, Terminal};
use schema::Tables;

/// The TPC-C workload.
#[derive(Debug)]
pub struct Tpcc {
    options: TpccOptions,
    tables: Tables,
    /// All clients so far: the check finds the rows of the history through them.
    homes: Mutex<Vec<Arc<Home>>>,
    queues: Arc<Queues>,
}

impl Tpcc {
    /// The handles of the tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }
}

impl Workload for Tpcc {
    const NAME: &'static str = "tpcc";
    const SUMMARY: &'static str =
        "TPC-C: orders, payments and deliveries of a wholesale supplier; all transactions, all checks";
    const KINDS: &'static [&'static str] = procedures::KINDS;
    const GROWS: bool = true;

    type Options = TpccOptions;
    type Client = TpccClient;

    fn validate(options: &TpccOptions, threads: usize) -> Result<(), String> {
        options.validate(threads)
    }

    fn estimated_bytes(options: &TpccOptions) -> u64 {
        // A record's header and its index entries, on top of the row.
        const OVERHEAD: u64 = 64;
        let rows = options.rows();
        let bytes = |count: u64, shape: polychron_schema::Shape| count * (u64::from(shape.fixed_bytes) + OVERHEAD);
        bytes(rows.warehouse, schema::Warehouse::SHAPE)
            + bytes(rows.district, schema::District::SHAPE)
            + bytes(rows.customer, schema::Customer::SHAPE)
            + rows.customer * 2 * OVERHEAD
            + bytes(rows.customer, schema::History::SHAPE)
            + bytes(rows.order, schema::Order::SHAPE)
            + rows.order * OVERHEAD
            + bytes(rows.undelivered, schema::Undelivered::SHAPE)
            + bytes(rows.order_line, schema::OrderLine::SHAPE)
            + bytes(rows.item, schema::Item::SHAPE)
            + bytes(rows.stock, schema::Stock::SHAPE)
    }

    fn create<P: Protocol>(options: &TpccOptions, database: &Arc<P>) -> Result<Self, Error> {
        let rows = options.rows();
        let any = match options.index {
            Indexes::Hash => IndexKind::Hash,
            Indexes::Ordered => IndexKind::Ordered,
        };
        let tables = Tables {
            warehouse: create_table(database, any, rows.warehouse)?,
            district: create_table(database, any, rows.district)?,
            customer: create_table(database, any, rows.customer)?,
            history: create_table(database, any, rows.customer)?,
            undelivered: create_table(database, IndexKind::Ordered, rows.undelivered)?,
            order: create_table(database, any, rows.order)?,
            order_line: create_table(database, IndexKind::Ordered, rows.order_line)?,
            item: create_table(database, any, rows.item)?,
            stock: create_table(database, any, rows.stock)?,
        };
        let queues = Queues::new(usize::from(options.warehouses), options.delivery_results.as_deref());
        let queues = Arc::new(queues.map_err(Error::options)?);
        Ok(Self { options: options.clone(), tables, homes: Mutex::default(), queues })
    }

    fn rows_to_load(&self) -> u64 {
        self.options.rows().total()
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        let Self { options, tables, .. } = self;
        let loader = load::Loader { tables, scale: options.scale, warehouses: options.warehouses, share };
        loader.load(worker)?;
        if options.snapshots { loader.wait_for_snapshots(worker) } else { Ok(()) }
    }

    fn a_table(&self) -> TableId {
        self.tables.warehouse.id()
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> TpccClient {
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        // The last number belongs to loaded rows.
        let client = homes.len() as u16;
        assert!(homes.len() < usize::from(schema::History::LOADED), "more clients than history keys can tell apart");
        let home = Arc::new(Home::new(client, self.options.warehouses, thread, threads));
        homes.push(Arc::clone(&home));
        // With more threads than warehouses, the first thread of each warehouse owns its queue.
        let warehouses = usize::from(self.options.warehouses);
        let (owner, owns) = (thread % warehouses, thread < warehouses);
        let terminal = Terminal { queues: Arc::clone(&self.queues), mode: self.options.delivery, owner, owns };
        TpccClient::new(self.tables, self.options.clone(), seed, home, terminal)
    }

    fn metrics(&self) -> Vec<(&'static str, u64)> {
        self.queues.metrics()
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        check::Checker::new(&self.options, &self.tables, &homes).check(database)
    }
}

impl Tpcc {
    /// The same in a database that was made of this one's: a backup, or what was recovered.
    ///
    /// # Errors
    /// The errors of the database.
    pub fn in_copy<P: Protocol>(&self, database: &Arc<P>) -> Result<Self, Error> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Self { homes: Mutex::new(homes), ..Self::create(&self.options, database)? })
    }
}

/// A table that is there, as in a database that was recovered, is taken as it is.
fn create_table<P: Protocol, R: Row>(database: &Arc<P>, kind: IndexKind, rows: u64) -> Result<Table<R>, Error> {
    let definition = R::definition().with_primary_kind(kind).with_expected_rows(rows as usize);
    match database.find_table(&definition.name) {
        Some(table) => Table::with_id(&**database, table),
        None => Table::create_as(&**database, definition),
    }
}
