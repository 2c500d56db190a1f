//! A database without its transactions.

use std::sync::Arc;
use std::time::Duration;

use polychron_base::{Error, IndexId, TableId};
use polychron_memory::Memory;
use polychron_schema::{EvolutionError, IndexDefinition, TableDefinition};
use polychron_sync::Mutex;

use crate::catalog::Superseded;
use crate::definitions::{Standing, StoredCatalog};
use crate::redo::{Journal, Order};
use crate::statistics::Registry;
use crate::{Metric, Statistics, Versions, WriteRules};

/// The memory and the tables of a database: what [`Protocol`](crate::Protocol) forwards to, so that a protocol over another one, and one behind
/// virtual calls, name it once. A protocol whose tables are [`StoreTable`](crate::stores::StoreTable)s has it for
/// [`StoreProtocol`](crate::stores::StoreProtocol).
#[allow(clippy::missing_errors_doc, reason = "as the methods of `Protocol` have them")]
pub trait Storage: Send + Sync {
    /// See [`Protocol::memory`](crate::Protocol::memory).
    fn memory(&self) -> &Arc<Memory>;

    /// The workers' counts.
    fn counters(&self) -> &Registry;

    /// The journal to which commits hand their changes.
    fn journal(&self) -> &Journal;

    /// Up to which order all transactions have ended that hand changes to the journal: those up to there that commit have sealed before the call, and
    /// none seals with such an order behind it. It does not go back, and comes near the present while transactions end and the database's own threads
    /// run.
    fn ended(&self) -> Order {
        Order::default()
    }

    /// See [`Protocol::create_table`](crate::Protocol::create_table).
    fn create_table(&self, definition: TableDefinition, standing: Standing) -> Result<TableId, Error>;

    /// See [`Protocol::drop_table`](crate::Protocol::drop_table).
    fn drop_table(&self, table: TableId) -> Result<(), Error>;

    /// See [`Protocol::create_index`](crate::Protocol::create_index).
    fn create_index(&self, table: TableId, definition: IndexDefinition, standing: Standing) -> Result<IndexId, Error>;

    /// See [`Protocol::drop_index`](crate::Protocol::drop_index).
    fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), Error>;

    /// Makes the permanent ones of these tables in a database that has had none, under their positions and with the ids of their indexes. Those that come
    /// behind them get others than any that ever were. The log is told nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Definition`] where the database has had tables. It is to be given up then.
    fn restore(&self, stored: &StoredCatalog) -> Result<(), Error>;

    /// Refuses writes into a table to transactions that begin from now on, for this reason, or admits them again. A thread that has made an index of
    /// the table afterwards knows that no older transaction will write into it either.
    ///
    /// # Errors
    /// [`EvolutionError::Ruled`]: others have rules for it.
    fn hold_table(&self, table: TableId, why: Option<Arc<EvolutionError>>) -> Result<(), Error>;

    /// Holds writes of transactions that begin from now on to these rules, or to none. The rules stay with the table when it gets another name.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    fn set_write_rules(&self, table: TableId, rules: Option<Arc<dyn WriteRules>>) -> Result<(), Error>;

    /// Makes a provisional table permanent: a recovery finds it from now on, with what was committed into it before.
    ///
    /// # Errors
    /// The log's answer.
    fn keep_table(&self, table: TableId) -> Result<(), Error>;

    /// Puts a table in the place of another one, and makes it permanent, which goes, with its name: in one step, for all transactions that begin from now on. A
    /// transaction that is open may go on reading the old one, as with [`Protocol::drop_table`](crate::Protocol::drop_table).
    fn supersede_table(&self, old: Superseded, new: TableId) -> Result<(), Error>;

    /// Held while a table becomes one of other rows.
    fn evolving(&self) -> &Mutex<()>;

    /// For how long a change of a table waits for what others have open: [`Retry::time`](crate::options::Retry::time).
    fn longest_wait(&self) -> Option<Duration>;

    /// Whether what waits for all transactions would wait for one that the calling thread has open.
    fn waits_for_itself(&self) -> bool {
        false
    }

    /// See [`Protocol::find_table`](crate::Protocol::find_table).
    fn find_table(&self, name: &str) -> Option<TableId>;

    /// See [`Protocol::table_names`](crate::Protocol::table_names).
    fn table_names(&self) -> Vec<String>;

    /// See [`Protocol::find_index`](crate::Protocol::find_index).
    fn find_index(&self, table: TableId, name: &str) -> Result<Option<IndexId>, Error>;

    /// See [`Protocol::definition`](crate::Protocol::definition).
    fn definition(&self, table: TableId) -> Result<Arc<TableDefinition>, Error>;

    /// See [`Protocol::statistics`](crate::Protocol::statistics).
    fn statistics(&self) -> Statistics;

    /// See [`Protocol::versions`](crate::Protocol::versions).
    fn versions(&self) -> Option<Versions> {
        None
    }

    /// See [`Protocol::inspect`](crate::Protocol::inspect).
    fn inspect(&self) -> Vec<Metric> {
        Vec::new()
    }
}
