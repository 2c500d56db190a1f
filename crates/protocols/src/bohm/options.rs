//! BOHM's own knobs.

use polychron_base::Error;
use polychron_engine::stores::Knobs;

use super::timestamp::Timestamp;

/// Options of BOHM.
#[derive(Clone, Debug)]
pub struct Options {
    /// Transactions of a batch at most (§3.2.4). A batch is closed when it is full, or when fewer than two are under way: no client
    /// waits for company while threads have nothing to do.
    pub batch_size: usize,
    /// Into how many parts the keys are divided by their hash; one thread at a time plans for each (§3.2.2).
    pub partitions: usize,
    /// Threads that do nothing but concurrency control. With none of either kind, the clients' own threads take turns: each
    /// does what is due while it waits for its answers, so that the threads of a stage follow its load.
    pub concurrency_control_threads: usize,
    /// Threads that do nothing but execute.
    pub execution_threads: usize,
    /// Whether concurrency control finds the versions of declared reads (§3.2.3).
    pub annotate_reads: bool,
    /// Whether clients sort their keys by partition, so that each thread of concurrency control meets its own only (§3.2.2).
    pub preprocess: bool,
    /// What is done with procedures that may write keys which they do not name.
    pub unknown: Unknown,
    /// Whether snapshots are of finished batches only: they do not wait, and may miss the answers that their client got last. Otherwise they have
    /// all that was acknowledged to any client before, and execute what they need of batches that are under way.
    pub stale_snapshots: bool,
}

/// How a procedure is planned that does not name all keys it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// A first run finds the keys and leaves nothing behind, and the transaction gets a new log position. When the guess was
    /// wrong twice, as with [`Unknown::InPlace`].
    #[default]
    Reconnaissance,
    /// It keeps its log position, and no later transaction runs before it has run: the same order of procedures always gives the
    /// same database.
    InPlace,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_size: 1024,
            partitions: 1,
            concurrency_control_threads: 0,
            execution_threads: 0,
            annotate_reads: true,
            preprocess: false,
            unknown: Unknown::default(),
            stale_snapshots: false,
        }
    }
}

impl Options {
    /// The largest batch. What is planned again comes on top, from as many client batches as a client has under way.
    const LARGEST_BATCH: usize = Timestamp::MOST_IN_BATCH / 4 + 1;

    /// The most partitions, and the most threads of a kind.
    pub const MOST_THREADS: usize = 128;

    pub(super) fn check(&self) -> Result<(), Error> {
        let refused = |line: &str| Err(Error::options(line.to_owned()));
        if !(1..=Self::LARGEST_BATCH).contains(&self.batch_size) {
            return refused("batch-size lies between 1 and 65536");
        }
        if !(1..=Self::MOST_THREADS).contains(&self.partitions) {
            return refused("there are 1 to 128 partitions");
        }
        if self.concurrency_control_threads.max(self.execution_threads) > Self::MOST_THREADS {
            return refused("there are at most 128 threads of a kind");
        }
        if (self.concurrency_control_threads == 0) != (self.execution_threads == 0) {
            return refused("there are threads for concurrency control and for execution, or for neither");
        }
        Ok(())
    }
}

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<usize>().map_err(|_| format!("{name} is a number, not `{value}`"));
        let truth = || value.parse::<bool>().map_err(|_| format!("{name} is true or false, not `{value}`"));
        match name {
            "batch-size" => self.batch_size = number()?,
            "partitions" => self.partitions = number()?,
            "concurrency-control-threads" => self.concurrency_control_threads = number()?,
            "execution-threads" => self.execution_threads = number()?,
            "annotate-reads" => self.annotate_reads = truth()?,
            "preprocess" => self.preprocess = truth()?,
            "stale-snapshots" => self.stale_snapshots = truth()?,
            "unknown" => {
                self.unknown = match value {
                    "reconnaissance" => Unknown::Reconnaissance,
                    "in-place" => Unknown::InPlace,
                    _ => return Err(format!("unknown is reconnaissance or in-place, not `{value}`")),
                }
            }
            _ => {
                let names = "batch-size, partitions, concurrency-control-threads, execution-threads, annotate-reads, preprocess, stale-snapshots and unknown";
                return Err(format!("bohm has no option `{name}`; it has {names}"));
            }
        }
        Ok(())
    }
}
