//! Insertions, updates, and deletions with an insertion, one to a transaction, of rows of ten integers (§4.2 of the HyPer paper).
//!
//! Every client has the keys that are its own: a residue of the number of clients. It updates and deletes those that it knows to be
//! there, and inserts behind them, so that clients meet at the memory of the table and nowhere else.

mod procedure;

use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::{Error, TableId};
use polychron_engine::{Protocol, Row, Table, Worker};
use polychron_sync::atomic::{AtomicU64, Ordering};

pub use procedure::{ModifyProcedure, Tuple};

use crate::run::{IndexChoice, Part, Share, Totals, for_each_row, load_rows};
use crate::{CheckError, Checked, Client, Workload};
use procedure::{DELETE_AND_INSERT, INSERT, KINDS, Task, UPDATE};

/// Transactions that a client may have drawn and not finished, and more.
const UNFINISHED: i64 = 1 << 16;

/// Options of the modify workload.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct ModifyOptions {
    /// Rows at first, of ten integers each
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,

    /// What the transactions do
    #[arg(long, value_enum, default_value_t = Operation::Mixed)]
    pub operation: Operation,

    /// The primary index
    #[arg(long, value_enum, default_value_t = IndexChoice::Hash)]
    pub index: IndexChoice,

    /// Threads that read snapshots in place of changing rows, and visit all rows
    #[arg(long, default_value_t = 0)]
    pub readers: usize,

    /// Seconds for which each snapshot stays open, between a visit of all rows at its beginning and one at its end; 0 visits them once
    #[arg(long, default_value_t = 0.0)]
    pub read_seconds: f64,
}

impl Default for ModifyOptions {
    fn default() -> Self {
        Self {
            records: 1_000_000,
            operation: Operation::Mixed,
            index: IndexChoice::Hash,
            readers: 0,
            read_seconds: 0.0,
        }
    }
}

/// Which of the three operations are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A row is inserted.
    Insert,
    /// One integer of a random row changes.
    Update,
    /// A random row is deleted, and another one inserted.
    DeleteAndInsert,
    /// A third each.
    #[default]
    Mixed,
}

/// The modify workload.
#[derive(Debug)]
pub struct Modify {
    options: ModifyOptions,
    table: Table<Tuple>,
    /// The number of executed transactions of each kind.
    totals: Totals<3>,
    threads: AtomicU64,
}

impl Workload for Modify {
    const NAME: &'static str = "modify";
    const SUMMARY: &'static str = "insertions, updates, and deletions with an insertion, of rows of ten integers";
    const KINDS: &'static [&'static str] = KINDS;
    const GROWS: bool = true;

    type Options = ModifyOptions;
    type Client = ModifyClient;

    fn validate(options: &ModifyOptions, threads: usize) -> Result<(), String> {
        if options.records < threads as u64 {
            return Err(format!("--records is less than {threads}, and every thread needs a row of its own"));
        }
        if options.readers >= threads {
            return Err(format!("--readers is {}, and one of {threads} threads changes rows", options.readers));
        }
        if !options.read_seconds.is_finite() || options.read_seconds < 0.0 {
            return Err(format!("--read-seconds is {}, which is no time", options.read_seconds));
        }
        Ok(())
    }

    fn estimated_bytes(options: &ModifyOptions) -> u64 {
        options.records.saturating_mul(192)
    }

    fn create<P: Protocol>(options: &ModifyOptions, database: &Arc<P>) -> Result<Self, Error> {
        let definition =
            Tuple::definition().with_primary_kind(options.index.into()).with_expected_rows(options.records as usize);
        let table = Table::create_as(&**database, definition)?;
        Ok(Self { options: options.clone(), table, totals: Totals::default(), threads: AtomicU64::new(1) })
    }

    fn rows_to_load(&self) -> u64 {
        self.options.records
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        load_rows(worker, self.table.id(), self.options.records, share, |key, row| {
            Tuple::new(key).encode(row).expect("ten integers make a row");
        })
    }

    fn a_table(&self) -> TableId {
        self.table.id()
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> ModifyClient {
        let threads = threads - self.options.readers;
        let read = (thread >= threads).then_some(self.options.read_seconds);
        // Relaxed: every client of a run says the same.
        self.threads.store(threads as u64, Ordering::Relaxed);
        let (thread, threads) = (thread as u64, threads as u64);
        let loaded = (self.options.records.saturating_sub(thread)).div_ceil(threads);
        let deletes = read.is_none() && matches!(self.options.operation, Operation::DeleteAndInsert | Operation::Mixed);
        ModifyClient {
            table: self.table,
            operation: self.options.operation,
            read,
            thread,
            threads,
            records: self.options.records,
            loaded,
            present: if deletes { (0..loaded).collect() } else { Vec::new() },
            next: loaded,
            random: Random::stream(seed, thread),
            part: self.totals.part(),
        }
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let executed = [INSERT, UPDATE, DELETE_AND_INSERT].map(|kind| self.totals.get(kind));
        // A client alone may have made all insertions, and drawn a few more.
        let insertions = executed[INSERT] + executed[DELETE_AND_INSERT] + UNFINISHED;
        let end = self.options.records + insertions as u64 * self.threads.load(Ordering::Relaxed);
        let (mut rows, mut changes) = (0_i64, 0_i64);
        for_each_row(database, self.table.id(), end, |_, row| {
            rows += 1;
            changes += i64::from(Tuple::view(row).changes());
        })?;
        let condition = "there are as many rows, with as many changes, as the transactions made".to_owned();
        let expected = self.options.records as i64 + executed[INSERT];
        // Rows that went took their changes with them.
        let is_whole =
            if executed[DELETE_AND_INSERT] == 0 { changes == executed[UPDATE] } else { changes <= executed[UPDATE] };
        if rows != expected || !is_whole {
            let made = executed[UPDATE];
            let rows = format!(
                "{rows} rows have {changes} changes; it ought to be {expected} rows, and {made} changes were made"
            );
            return Err(CheckError::Broken { condition, rows });
        }
        Ok(Checked { conditions: vec![condition] })
    }
}

/// Draws the transactions of one thread.
#[derive(Debug)]
pub struct ModifyClient {
    table: Table<Tuple>,
    operation: Operation,
    /// For how many seconds a reader's snapshots stay open.
    read: Option<f64>,
    thread: u64,
    threads: u64,
    /// The number of loaded rows, and the number of those that are its own.
    records: u64,
    loaded: u64,
    /// The rows that are there and are not being deleted, by their number among the client's own; only where rows are deleted.
    present: Vec<u64>,
    /// The number of its next row.
    next: u64,
    random: Random,
    part: Part<3>,
}

impl ModifyClient {
    /// The key of one of its rows.
    fn key(&self, number: u64) -> u64 {
        number * self.threads + self.thread
    }

    fn new_key(&mut self) -> u64 {
        self.next += 1;
        self.key(self.next - 1)
    }

    fn update(&mut self) -> Task {
        let number = if self.present.is_empty() {
            self.random.below(self.loaded)
        } else {
            self.present[self.random.below(self.present.len() as u64) as usize]
        };
        Task::Update { key: self.key(number) }
    }

    /// Where all of its rows are being deleted, one is inserted.
    fn delete_and_insert(&mut self) -> Task {
        let inserted = self.new_key();
        if self.present.is_empty() {
            return Task::Insert { key: inserted };
        }
        let position = self.random.below(self.present.len() as u64) as usize;
        let deleted = self.present.swap_remove(position);
        Task::DeleteAndInsert { deleted: self.key(deleted), inserted }
    }
}

impl Client for ModifyClient {
    type Procedure = ModifyProcedure;

    #[inline]
    fn next(&mut self) -> ModifyProcedure {
        if let Some(seconds) = self.read {
            let key = self.random.below(self.records);
            return ModifyProcedure { table: self.table, task: Task::Read { key, seconds }, was_there: true };
        }
        let operation = match self.operation {
            Operation::Mixed => {
                [Operation::Insert, Operation::Update, Operation::DeleteAndInsert][self.random.below(3) as usize]
            }
            one => one,
        };
        let task = match operation {
            Operation::Insert => Task::Insert { key: self.new_key() },
            Operation::Update => self.update(),
            _ => self.delete_and_insert(),
        };
        ModifyProcedure { table: self.table, task, was_there: true }
    }

    #[inline]
    fn again(&mut self, procedure: &mut ModifyProcedure) {
        match &mut procedure.task {
            Task::Insert { key } => *key = self.new_key(),
            task @ Task::DeleteAndInsert { .. } => *task = self.delete_and_insert(),
            Task::Update { .. } | Task::Read { .. } => {}
        }
    }

    #[inline]
    fn finished(&mut self, procedure: &ModifyProcedure) {
        // Of a batch, an update may have run behind the deletion of its row.
        if self.read.is_none() {
            self.part.add(procedure.task.kind(), i64::from(procedure.was_there));
        }
        let deletes = matches!(self.operation, Operation::DeleteAndInsert | Operation::Mixed);
        if let Task::Insert { key } | Task::DeleteAndInsert { inserted: key, .. } = procedure.task
            && deletes
        {
            self.present.push(key / self.threads);
        }
    }
}
