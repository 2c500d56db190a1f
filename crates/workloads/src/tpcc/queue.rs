//! The deferred execution of Delivery (clause 2.7.2): a terminal queues its request and goes on; the worker that owns the
//! queue takes one out before it draws its next transaction. Each warehouse has one owner, the first of its workers.
//!
//! A delivery counts when it is executed. What it did is told to the queue then: how many districts were skipped because
//! none of their orders waited, how long the request waited, and, where a file was asked for, a line in it (clause 2.7.2.2).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polychron_base::clock::{Clock, SystemClock};
use polychron_schema::Timestamp;
use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::procedures::Delivery;

/// When Delivery is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryMode {
    /// Queued, and executed later by the worker that owns the warehouse's queue
    #[default]
    Deferred,
    /// At once, by the worker that draws it
    Immediate,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) warehouse: u16,
    pub(super) carrier: u8,
    pub(super) date: Timestamp,
    pub(super) queued_ns: u64,
}

/// The requests for the warehouses of one owner, first in, first out.
#[derive(Debug, Default)]
struct Queue {
    /// How many wait, for an owner who looks often.
    waiting: AtomicUsize,
    requests: Mutex<VecDeque<Request>>,
}

/// The queues of all owners, and what became of their requests.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Box<[CachePadded<Queue>]>,
    clock: SystemClock,
    /// Written at every delivery, while the rest is read at every transaction.
    counts: CachePadded<Counts>,
    results: Option<Results>,
}

#[derive(Debug, Default)]
struct Counts {
    executed: AtomicU64,
    with_skips: AtomicU64,
    skipped: AtomicU64,
    longest_wait_ns: AtomicU64,
}

/// The result file. Lines that the disk does not take are counted.
#[derive(Debug)]
struct Results {
    file: Mutex<BufWriter<File>>,
    lost: AtomicU64,
}

/// The head of the result file.
const HEAD: &str = "queued_us,completed_us,warehouse,carrier,orders_by_district";

/// Locks what is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a result file, without changing one that is there.
///
/// # Errors
/// One line that says what is wrong.
pub(super) fn open_results(path: &Path) -> Result<File, String> {
    let opened = File::options().create(true).write(true).truncate(false).open(path);
    opened.map_err(|error| format!("--delivery-results {}: {error}", path.display()))
}

impl Queues {
    /// Queues for up to so many owners.
    ///
    /// # Errors
    /// One line, when the result file cannot be written.
    pub(super) fn new(owners: usize, results: Option<&Path>) -> Result<Self, String> {
        let results = results.map(|path| {
            let file = open_results(path)?;
            let begin = |mut file: File| {
                file.set_len(0)?;
                writeln!(file, "{HEAD}")?;
                Ok(file)
            };
            let file = begin(file).map_err(|error: std::io::Error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(Results { file: Mutex::new(BufWriter::new(file)), lost: AtomicU64::new(0) })
        });
        Ok(Self {
            queues: (0..owners).map(|_| CachePadded::default()).collect(),
            clock: SystemClock::new(),
            counts: CachePadded::default(),
            results: results.transpose()?,
        })
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Leaves a request to an owner.
    pub(super) fn push(&self, owner: usize, request: Request) {
        let queue = &self.queues[owner];
        let mut requests = lock(&queue.requests);
        requests.push_back(request);
        // A hint only: the lock carries the data.
        queue.waiting.store(requests.len(), Ordering::Relaxed);
    }

    /// The oldest request of an owner.
    #[inline]
    pub(super) fn pop(&self, owner: usize) -> Option<Request> {
        let queue = &self.queues[owner];
        if queue.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut requests = lock(&queue.requests);
        let request = requests.pop_front();
        queue.waiting.store(requests.len(), Ordering::Relaxed);
        request
    }

    /// Takes down what a delivery did that has committed.
    #[cold]
    pub(super) fn executed(&self, delivery: &Delivery) {
        let now_ns = self.now_ns();
        let skipped = u64::from(delivery.districts.saturating_sub(delivery.delivered));
        self.counts.executed.fetch_add(1, Ordering::Relaxed);
        self.counts.skipped.fetch_add(skipped, Ordering::Relaxed);
        self.counts.with_skips.fetch_add(u64::from(skipped > 0), Ordering::Relaxed);
        self.counts.longest_wait_ns.fetch_max(now_ns.saturating_sub(delivery.queued_ns), Ordering::Relaxed);
        if let Some(results) = &self.results {
            results.write(delivery, now_ns);
        }
    }

    /// For the report: what became of the requests, ramp-up included. Nothing where there were none.
    pub(super) fn metrics(&self) -> Vec<(&'static str, u64)> {
        let waiting: usize = self.queues.iter().map(|queue| queue.waiting.load(Ordering::Relaxed)).sum();
        let executed = self.counts.executed.load(Ordering::Relaxed);
        if executed == 0 && waiting == 0 {
            return Vec::new();
        }
        let mut metrics = vec![
            ("deliveries executed, ramp-up included", executed),
            ("deliveries that skipped a district", self.counts.with_skips.load(Ordering::Relaxed)),
            ("districts skipped by deliveries", self.counts.skipped.load(Ordering::Relaxed)),
            ("deliveries still queued", waiting as u64),
            ("longest wait of a delivery in µs", self.counts.longest_wait_ns.load(Ordering::Relaxed) / 1000),
        ];
        if let Some(results) = &self.results {
            let flushed = lock(&results.file).flush();
            let lost = results.lost.load(Ordering::Relaxed) + u64::from(flushed.is_err());
            if lost > 0 {
                metrics.push(("lines that the delivery results lack", lost));
            }
        }
        metrics
    }
}

impl Results {
    fn write(&self, delivery: &Delivery, now_ns: u64) {
        let Delivery { warehouse, carrier, queued_ns, .. } = delivery;
        let mut line = format!("{},{},{warehouse},{carrier},", queued_ns / 1000, now_ns / 1000);
        for (district, order) in (1_u8..).zip(delivery.orders()) {
            let between = if district > 1 { " " } else { "" };
            let order = order.map_or_else(|| "skipped".to_owned(), |order| order.to_string());
            line.push_str(&format!("{between}{district}:{order}"));
        }
        if writeln!(lock(&self.file), "{line}").is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One client's way to the queues.
#[derive(Debug)]
pub(super) struct Terminal {
    pub(super) queues: Arc<Queues>,
    pub(super) mode: DeliveryMode,
    /// The owner of the queue for its deliveries.
    pub(super) owner: usize,
    /// Whether that is its own.
    pub(super) owns: bool,
}

impl Terminal {
    /// The request that is to be executed next, if this client has to do with any.
    #[inline]
    pub(super) fn due(&self) -> Option<Request> {
        if self.owns { self.queues.pop(self.owner) } else { None }
    }
}
