//! How memory is set up.

use std::time::Duration;

use crate::Error;
use crate::coalesce::PAGE;

/// How the memory of a database is set up. `Options::default()` is fit for a server that has the machine to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The hard mark in bytes: what is taken from the system for rows, versions and indexes never exceeds it. `None`, the
    /// default, takes what the machine or its control group grants.
    pub limit_bytes: Option<usize>,
    /// The soft mark, in percent of the limit: from there on [`crate::Memory::pressure`] reports
    /// [`crate::Pressure::Soft`]. 80 leaves time to react before work fails.
    pub soft_percent: u8,
    /// The part of the limit that is set aside for work that makes room, such as deletions ([`crate::Guard::with_reserve`]). `None`, the default,
    /// takes 1/64 of the limit, at least 4 KiB and at most 64 MiB. A transaction that deletes at the limit has room for its rows in it with
    /// 256 bytes each besides their columns, or is refused; `docs/memory.md` says which protocols need less.
    pub reserve_bytes: Option<usize>,
    /// Whether to ask the system for huge pages. On by default: rows are met at random, and with small pages most
    /// accesses miss the translation cache as well. Where the system declines, small pages serve in silence.
    pub huge_pages: bool,
    /// The number of workers that may be registered at once, besides [`crate::OWN_SLOTS`]. A slot costs two cache lines, and the leader of
    /// a tick reads all up to the last one that was ever claimed.
    pub max_workers: usize,
    /// Whether the thread that a worker runs on is pinned to a processor of the worker's own, and the worker takes memory of that processor's node:
    /// workers in the order of their slots, on the processors that the process may use. For benchmarks and machines with nothing else to do; a thread with
    /// several workers goes to the processor of the one that came to it last, and stays pinned. Without effect where the system cannot.
    pub pin_workers: bool,
    /// The interval at which a background thread advances the epochs; `None` leaves that to any thread that calls
    /// [`crate::Epochs::advance`]. The thesis takes 1 s. The default of 10 ms keeps snapshots fresher and the memory of
    /// retired blocks small, and one scan of the slots a tick still costs nothing that can be measured.
    pub epoch_interval: Option<Duration>,
    /// The address space that is mapped at once. Only memory that is handed out counts against the limit, so a large value is cheap.
    pub region_bytes: usize,
    /// The largest chunk a worker takes from a region for its small blocks. A worker starts with 64 KiB and doubles: a
    /// short-lived one wastes little, a busy one comes rarely and gets whole huge pages.
    pub chunk_bytes: usize,
}

/// The smallest reserve that is taken unasked: room for some deletions under any protocol.
const LEAST_RESERVE: usize = 4096;

/// The largest reserve that is taken unasked.
const MOST_RESERVE: usize = 64 << 20;

/// The minimum number of a worker's largest chunks that the limit holds.
const CHUNKS: usize = 64;

/// The largest region: more address space than memory in any machine that we know.
const MOST_REGION: usize = 1 << 40;

/// The smallest chunk.
pub(crate) const LEAST_CHUNK: usize = 1024;

/// The first chunk a worker takes, before doubling.
pub(crate) const FIRST_CHUNK: usize = 64 << 10;

/// Of a region and a chunk. An interpreter keeps books on every byte of an allocation, and long ones take it long.
const DEFAULT_BYTES: (usize, usize) = if cfg!(miri) { (256 << 10, 4 << 10) } else { (256 << 20, 2 << 20) };

impl Default for Options {
    fn default() -> Self {
        Self {
            limit_bytes: None,
            soft_percent: 80,
            reserve_bytes: None,
            huge_pages: true,
            max_workers: 256,
            pin_workers: false,
            epoch_interval: Some(Duration::from_millis(10)),
            region_bytes: DEFAULT_BYTES.0,
            chunk_bytes: DEFAULT_BYTES.1,
        }
    }
}

impl Options {
    /// More slots than threads that anyone runs.
    pub const MOST_WORKERS: usize = 1 << 16;

    /// For tests: everything small, so that rare states are reached soon, no reserve, and no clock but the one the test moves.
    pub fn tiny() -> Self {
        Self {
            limit_bytes: Some(16 << 20),
            soft_percent: 50,
            reserve_bytes: Some(0),
            huge_pages: false,
            max_workers: 8,
            pin_workers: false,
            epoch_interval: None,
            region_bytes: 256 << 10,
            chunk_bytes: 4 << 10,
        }
    }

    /// The reserve under a limit.
    pub(crate) fn reserve_of(&self, limit: usize) -> Result<usize, Error> {
        let bytes =
            self.reserve_bytes.unwrap_or_else(|| (limit / 64).max(LEAST_RESERVE.min(limit / 16)).min(MOST_RESERVE));
        let reason = "reserve_bytes is at most 1/2 of limit_bytes";
        if bytes > limit / 2 { Err(Error::InvalidOptions { reason }) } else { Ok(bytes / 64 * 64) }
    }

    /// How many bytes a worker that does nothing may have waiting, that only it would free: of all workers together an eighth of the
    /// limit. Seldom reached by one that is busy, whose garbage comes back to itself.
    pub(crate) fn most_waiting(&self, limit: usize) -> usize {
        (limit / (8 * self.max_workers)).clamp(16 << 10, 4 << 20)
    }

    /// The largest chunk that a worker takes for small blocks under a limit: many workers' chunks are a small part of it.
    pub(crate) fn chunk_of(&self, limit: usize) -> usize {
        let share = (limit / CHUNKS).max(LEAST_CHUNK);
        self.chunk_bytes.min(1 << share.ilog2())
    }

    /// How much a worker retires in one epoch before it begins the next itself. At the default intervals and a large limit it has to retire
    /// 1 GB/s for that, or the clock's thread to wait for a processor; a tick costs a scan of the slots. Under a small limit less,
    /// for what waits lies between blocks that stay, so that large chunks are rare when it is freed.
    pub(crate) fn overdue_bytes(limit: usize) -> usize {
        (limit / 256).clamp(4 << 10, 2 << 20)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |reason| Err(Error::InvalidOptions { reason });
        if self.max_workers == 0 || self.max_workers > Self::MOST_WORKERS {
            return refuse("max_workers lies between 1 and 65536");
        }
        if self.soft_percent > 100 {
            return refuse("soft_percent is at most 100");
        }
        if !self.region_bytes.is_multiple_of(PAGE) || !(PAGE..=MOST_REGION).contains(&self.region_bytes) {
            return refuse("region_bytes is a multiple of 64 KiB, and at most 1 TiB");
        }
        if self.chunk_bytes < 4096 || self.chunk_bytes > self.region_bytes || !self.chunk_bytes.is_power_of_two() {
            return refuse("chunk_bytes is a power of two from 4 KiB to region_bytes");
        }
        if self.epoch_interval.is_some_and(|interval| interval.is_zero()) {
            return refuse("epoch_interval is longer than 0");
        }
        Ok(())
    }
}
