//! YCSB: one table of integer keys and payload bytes, and transactions that read and write a few of them.
//!
//! A read touches every byte of the payload. A read-modify-write reads it all and raises the counters in its first and
//! last eight bytes. After the run the counters of every row must agree with each other (no write was torn) and, where no
//! row came or went and no write was blind, with the number of writes that committed.

mod client;
mod options;
mod procedure;

use std::sync::Arc;

use polychron_base::{Error, TableId};
use polychron_engine::{Protocol, Worker};
use polychron_schema::{ColumnType, TableDefinition};

pub use client::YcsbClient;
pub use options::{Preset, YcsbArguments, YcsbOptions};
pub use procedure::YcsbProcedure;

use crate::run::{Share, Totals, for_each_row, load_rows, span};
use crate::{CheckError, Checked, Workload};
use procedure::Shape;

/// The YCSB workload.
#[derive(Debug)]
pub struct Ycsb {
    options: YcsbOptions,
    shape: Shape,
    totals: Totals<2>,
}

/// Positions in the totals.
const WRITES: usize = 0;
const ROWS: usize = 1;

impl Workload for Ycsb {
    const NAME: &'static str = "ycsb";
    const SUMMARY: &'static str = "YCSB: reads and writes of a few rows of one table, by key, uniform or skewed";
    const KINDS: &'static [&'static str] = procedure::KINDS;

    type Options = YcsbOptions;
    type Client = YcsbClient;

    fn validate(options: &YcsbOptions, _threads: usize) -> Result<(), String> {
        options.validate()
    }

    fn estimated_bytes(options: &YcsbOptions) -> u64 {
        // A record's header and padding, and its index entry, beside key and payload.
        const OVERHEAD: u64 = 72;
        options.records.saturating_mul(u64::from(options.record_size) + OVERHEAD)
    }

    fn create<P: Protocol>(options: &YcsbOptions, database: &Arc<P>) -> Result<Self, Error> {
        let definition = TableDefinition::new("ycsb")
            .with_column("key", ColumnType::U64)
            .with_column("payload", ColumnType::FixedBytes { bytes: options.record_size })
            .with_key([0])
            .with_primary_kind(options.index.into())
            .with_expected_rows(options.records as usize);
        let layout = definition.layout().map_err(|error| Error::definition(error.to_string()))?;
        let table = database.create_table(definition)?;
        let shape = Shape::new(table, layout.shape(), span(&layout, 0), span(&layout, 1));
        Ok(Self { options: options.clone(), shape, totals: Totals::default() })
    }

    fn rows_to_load(&self) -> u64 {
        self.options.records
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        let build = |key, row: &mut _| self.shape.build(key, 0, row);
        load_rows(worker, self.shape.table, self.options.records, share, build)
    }

    fn a_table(&self) -> TableId {
        self.shape.table
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> YcsbClient {
        YcsbClient::new(&self.options, self.shape, self.totals.part(), seed, thread)
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        let (mut rows, mut sum, mut torn) = (0_i64, 0_i64, None);
        for_each_row(database, self.shape.table, self.options.records, |key, row| {
            let (first, last) = self.shape.counters(row);
            rows += 1;
            sum = sum.wrapping_add(first as i64);
            if first != last || self.shape.key(row) != key {
                torn.get_or_insert((key, first, last));
            }
        })?;
        let broken = |condition: &str, rows: String| CheckError::Broken { condition: condition.to_owned(), rows };
        let mut conditions = vec!["every row is whole: its key and both its counters agree".to_owned()];
        if let Some((key, first, last)) = torn {
            return Err(broken(&conditions[0], format!("key {key} has the counters {first} and {last}")));
        }
        let expected_rows = self.options.records as i64 + self.totals.get(ROWS);
        conditions.push("there are as many rows as were inserted and not deleted".to_owned());
        if rows != expected_rows {
            return Err(broken(&conditions[1], format!("{rows} rows in place of {expected_rows}")));
        }
        let counted = !self.options.blind_write && self.options.insert_delete_share == 0.0;
        if counted {
            conditions.push("the counters add up to the writes that committed".to_owned());
            let writes = self.totals.get(WRITES);
            if sum != writes {
                return Err(broken(&conditions[2], format!("the counters of all rows add up to {sum}, not {writes}")));
            }
        }
        Ok(Checked { conditions })
    }
}
