//! TATP: what a mobile network asks of its home location register. Seven short transactions, four fifths of them reads,
//! over four tables; two of them find their subscriber through a secondary index.
//!
//! Where the description lets a transaction fail (no such row, or one that is there already), it counts as completed, as
//! in the description; an insertion that fails rolls its transaction back.

mod check;
mod load;
mod procedure;
mod schema;

use std::ops::Range;
use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::{Error, TableId};
use polychron_engine::{Protocol, Row, Table, TableDefinition, Worker};
use polychron_schema::FixedString;

pub use procedure::TatpProcedure;
pub use schema::{AccessInfo, CallForwarding, SpecialFacility, Subscriber};

use crate::run::{IndexChoice, Part, Share, Totals};
use crate::{CheckError, Checked, Client, Workload};
use load::{CHUNK, LoadSubscribers};
use procedure::Kind;
use schema::{Tables, digits};

/// Options of the TATP workload.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct TatpOptions {
    /// Subscribers, each with about 10 rows in all [the description's default is 1000000]
    #[arg(long, default_value_t = 1_000_000)]
    pub subscribers: u32,

    /// Index of the tables that need no order
    #[arg(long, value_enum, default_value_t = IndexChoice::Hash)]
    pub index: IndexChoice,
}

impl Default for TatpOptions {
    fn default() -> Self {
        Self { subscribers: 1_000_000, index: IndexChoice::Hash }
    }
}

/// The TATP workload.
#[derive(Debug)]
pub struct Tatp {
    options: TatpOptions,
    tables: Tables,
    /// Call forwardings inserted less deleted, the load's included.
    totals: Totals<1>,
}

impl Workload for Tatp {
    const NAME: &'static str = "tatp";
    const SUMMARY: &'static str = "TATP: a mobile network's register of subscribers, mostly short reads";
    const KINDS: &'static [&'static str] = procedure::KINDS;

    type Options = TatpOptions;
    type Client = TatpClient;

    fn validate(options: &TatpOptions, _threads: usize) -> Result<(), String> {
        if options.subscribers == 0 || options.subscribers > u32::MAX - CHUNK {
            return Err(format!("--subscribers lies between 1 and {}", u32::MAX - CHUNK));
        }
        Ok(())
    }

    fn estimated_bytes(options: &TatpOptions) -> u64 {
        // A subscriber with its secondary entry, 2.5 access infos, 2.5 facilities, 3.75 forwardings.
        u64::from(options.subscribers) * (230 + 5 * 88 + 4 * 100)
    }

    fn create<P: Protocol>(options: &TatpOptions, database: &Arc<P>) -> Result<Self, Error> {
        let rows = options.subscribers as usize;
        let sized = |definition: TableDefinition| {
            let rows = if definition.name == Subscriber::NAME { rows } else { rows * 5 / 2 };
            definition.with_primary_kind(options.index.into()).with_expected_rows(rows)
        };
        let tables = Tables {
            subscribers: Table::create_as(&**database, sized(Subscriber::definition()))?,
            access: Table::create_as(&**database, sized(AccessInfo::definition()))?,
            facilities: Table::create_as(&**database, sized(SpecialFacility::definition()))?,
            // Always ordered: it is read by range.
            forwardings: Table::create(&**database)?,
        };
        Ok(Self { options: options.clone(), tables, totals: Totals::default() })
    }

    /// Counted in subscribers.
    fn rows_to_load(&self) -> u64 {
        self.options.subscribers.into()
    }

    fn load_part<W: Worker>(&self, worker: &mut W, share: &Share<'_>) -> Result<(), Error> {
        let mut forwardings = self.totals.part();
        let Range { start, end } = share.of(self.options.subscribers.into());
        // Subscribers count from 1.
        let (mut from, end) = (start as u32 + 1, end as u32 + 1);
        while from < end {
            let ids = from..end.min(from + CHUNK);
            from = ids.end;
            let loaded = u64::from(ids.end - ids.start);
            forwardings.add(0, worker.execute(&mut LoadSubscribers { tables: self.tables, ids, seed: share.seed })?);
            (share.progress)(loaded);
        }
        Ok(())
    }

    fn a_table(&self) -> TableId {
        self.tables.subscribers.id()
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> TatpClient {
        TatpClient {
            tables: self.tables,
            subscribers: self.options.subscribers,
            // Threads and subscribers draw from the same seed, so threads take streams that no subscriber has.
            random: Random::stream(seed, u64::from(u32::MAX) + 1 + thread as u64),
            part: self.totals.part(),
        }
    }

    fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        check::check(database, &self.tables, self.options.subscribers, self.totals.get(0))
    }
}

/// Draws the transactions of one thread.
#[derive(Debug)]
pub struct TatpClient {
    tables: Tables,
    subscribers: u32,
    random: Random,
    part: Part<1>,
}

impl TatpClient {
    /// A subscriber of the description's non-uniform distribution.
    fn subscriber(&mut self) -> u32 {
        let mask = match self.subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        let subscribers = u64::from(self.subscribers);
        let drawn = self.random.range_inclusive(0, mask) | self.random.range_inclusive(1, subscribers);
        (drawn % subscribers + 1) as u32
    }
}

impl Client for TatpClient {
    type Procedure = TatpProcedure;

    #[inline]
    fn next(&mut self) -> TatpProcedure {
        let subscriber = self.subscriber();
        let random = &mut self.random;
        let kind = Kind::of_percent(random.below(100));
        TatpProcedure {
            tables: self.tables,
            kind,
            subscriber,
            number: if kind.finds_by_number() { digits(subscriber.into()) } else { FixedString::default() },
            some_type: random.range_inclusive(1, 4) as u8,
            start_time: random.below(3) as u8 * 8,
            end_time: random.range_inclusive(1, 24) as u8,
            value: random.next_u64(),
            inserted: 0,
        }
    }

    #[inline]
    fn finished(&mut self, procedure: &TatpProcedure) {
        self.part.add(0, procedure.inserted);
    }
}
