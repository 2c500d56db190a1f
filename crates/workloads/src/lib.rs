//! The workloads: written once, as procedures over the public transaction API, and run unchanged on every protocol.

pub mod churn;
pub mod hotkey;
pub mod increment;
pub mod modify;
pub mod round_trip;
pub mod run;
pub mod scan;
pub mod smallbank;
pub mod tatp;
pub mod tpcc;
pub mod ycsb;

use std::sync::Arc;

use polychron_base::{Error, TableId};
use polychron_engine::{Mode, Procedure, Protocol};

use run::Share;

/// A workload: tables, their first contents, a mix of procedures, and checks of what is left at the end.
pub trait Workload: Sized + Send + Sync + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// One line for lists.
    const SUMMARY: &'static str;
    /// The names of the kinds of transactions, by [`Client::Procedure`]'s kind.
    const KINDS: &'static [&'static str];

    /// Whether its transactions leave more and more rows behind.
    const GROWS: bool = false;

    /// The workload's own options, as the command line has them.
    type Options: Clone + std::fmt::Debug + Send + Sync + serde::Serialize;
    /// The source from which one thread draws its transactions.
    type Client: Client;

    /// Checks the options before anything is made.
    ///
    /// # Errors
    /// One line that says what is wrong.
    fn validate(options: &Self::Options, threads: usize) -> Result<(), String>;

    /// Bytes that the loaded database will need, roughly (rows and indexes), for refusing what cannot fit.
    fn estimated_bytes(options: &Self::Options) -> u64;

    /// Creates the tables.
    ///
    /// # Errors
    /// The errors of the database.
    fn create<P: Protocol>(options: &Self::Options, database: &Arc<P>) -> Result<Self, Error>;

    /// The number of rows that [`Workload::load_part`] will insert in all.
    fn rows_to_load(&self) -> u64;

    /// Loads a share of the rows; several threads load theirs at once.
    ///
    /// # Errors
    /// The errors of the database.
    fn load_part<W: polychron_engine::Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error>;

    /// One of its tables: for a caller that looks at the database beside the run.
    fn a_table(&self) -> TableId;

    /// The source of transactions of one of `threads` threads.
    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client;

    /// Metrics of the workload's own for the report, taken when the transactions have ended.
    fn metrics(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Checks what must hold after any number of transactions. The database is at rest.
    ///
    /// # Errors
    /// The first condition that fails, with the rows that show it.
    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError>;
}

/// Draws transactions.
pub trait Client: Send {
    /// A transaction with its inputs.
    type Procedure: Transact + 'static;

    /// The next transaction.
    fn next(&mut self) -> Self::Procedure;

    /// A transaction of its own is about to be executed once more: what may be used only once in it is drawn again.
    fn again(&mut self, _procedure: &mut Self::Procedure) {}

    /// Told when a transaction has committed (or rolled itself back), with its answer.
    fn finished(&mut self, _procedure: &Self::Procedure) {}
}

/// A procedure of a workload.
pub trait Transact: Procedure<Error = Error> {
    /// Which kind it is: a position in [`Workload::KINDS`].
    fn kind(&self) -> usize;

    /// How it wants to run.
    fn mode(&self) -> Mode {
        Mode::ReadWrite
    }
}

/// The conditions that were checked, one line each.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Names of the conditions that hold.
    pub conditions: Vec<String>,
}

/// Why a check did not pass.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A condition does not hold.
    #[error("{condition} does not hold: {rows}")]
    Broken {
        /// The condition.
        condition: String,
        /// The rows that show it.
        rows: String,
    },
    /// The check itself could not be done.
    #[error("the check could not be done: {0}")]
    Engine(#[from] Error),
}
