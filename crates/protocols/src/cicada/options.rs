//! The knobs of this protocol.

use std::time::Duration;

use polychron_base::Error;
use polychron_engine::stores::knobs::{self, Knobs};

use super::timestamp::Shape;

/// How far the serial order agrees with the order in which commits were acknowledged (§3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// As in the paper by default: a worker's transactions are ordered one after the other; two workers' clocks may differ.
    Loose,
    /// A transaction that begins after another was acknowledged follows it, as far as all cores read the same time: a
    /// commit whose timestamp lies ahead of the machine's clock waits until it does not. That happens behind a clock boost
    /// and takes a microsecond at most. Where cores read different times it is as strict as they agree.
    #[default]
    Clock,
    /// The same whatever the clocks say (external consistency): a commit is acknowledged when every transaction that might
    /// still get an earlier timestamp has ended.
    External,
}

/// How new a snapshot is at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshots {
    /// It contains what its session, or the calling thread, has committed or read. Where that was written just now, it waits for the commits
    /// that are under way.
    #[default]
    FollowCommits,
    /// It begins at once, and sees what has become the past by then (§3.1).
    Settled,
}

/// Which indexes keep versions (§3.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Indexes {
    /// None: they lead to records, which keep versions; insertions come into them at validation, and timestamps for what is
    /// absent are kept beside. Fewer cache lines for each lookup.
    #[default]
    SingleVersion,
    /// All: their nodes are records, read at a timestamp and validated like rows.
    MultiVersion,
    /// Those that are named, when they are made: a table's name stands for its primary index, `table.index` for a secondary one.
    MultiVersionOf(Vec<String>),
}

impl Indexes {
    /// Whether the index of that name keeps versions; a primary index has none.
    pub(super) fn is_versioned(&self, table: &str, index: Option<&str>) -> bool {
        let is_it = |name: &String| match index {
            None => name == table,
            Some(index) => name.strip_prefix(table).and_then(|rest| rest.strip_prefix('.')) == Some(index),
        };
        match self {
            Self::SingleVersion => false,
            Self::MultiVersion => true,
            Self::MultiVersionOf(names) => names.iter().any(is_it),
        }
    }
}

impl std::str::FromStr for Indexes {
    type Err = String;

    /// `single-version`, `multi-version`, or `multi-version:table,table.index`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "single-version" => Ok(Self::SingleVersion),
            None if text == "multi-version" => Ok(Self::MultiVersion),
            Some(("multi-version", names)) if names.split(',').all(|name| !name.is_empty()) => {
                Ok(Self::MultiVersionOf(names.split(',').map(str::to_owned).collect()))
            }
            _ => Err(format!(
                "indexes is `{text}`; it is single-version, multi-version, or multi-version: and names of tables and \
                 table.index, with commas between them"
            )),
        }
    }
}

/// Options of Cicada. The defaults are the paper's values where nothing else is said.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the serial order relates to real time. The paper's default is `Loose`; a user who writes in one thread and reads
    /// in another expects more, and `Clock` costs next to nothing.
    pub consistency: Consistency,
    /// How new a snapshot is at least. The paper's is of the past whatever its worker has committed.
    pub snapshots: Snapshots,
    /// Timestamps from one shared counter instead of the workers' clocks (factor analysis).
    pub central_clock: bool,
    /// Bits of a timestamp that tell workers apart. The paper's 8 allow for 256 workers, two of which are the database's own;
    /// 9 leave 256 to users, and 12 allow for 4096.
    pub worker_bits: u32,
    /// Bits of a timestamp that hold the clock. All that are left, unless a test wants to see them wrap around: a sixteenth of their
    /// numbers must then be more than there are rows, which are renewed in one round.
    pub clock_bits: Option<u32>,
    /// How often the horizons move on and garbage is collected (Figure 9: 10 µs to 100 ms).
    pub collection_interval: Duration,
    /// How far the oldest reader may fall behind before versions that nobody sees are unlinked between the versions that it
    /// and others see. The paper has no such thing: there a long reader holds back everything that came after it.
    pub pruning_after: Duration,
    /// How long a transaction may be open before the horizons pass it. One that was passed and writes draws another timestamp when it commits,
    /// and conflicts if what it read has changed since. The paper's horizons wait for every transaction, so that one idle client
    /// makes every snapshot as old as itself.
    pub overtaking_after: Duration,
    /// How often a worker adjusts its clock to another one's.
    pub synchronization_interval: Duration,
    /// What a worker's clock is ahead by after a conflict.
    pub clock_boost: Duration,
    /// How often the background thread does what workers do besides their transactions, in case they have none.
    pub background_interval: Duration,
    /// After how many commits in a row both are left out.
    pub calm_after: u32,
    /// The longest wait after a conflict. `None` finds it by climbing the hill of throughput (§3.9).
    pub fixed_backoff: Option<Duration>,
    /// After how many operations a running transaction checks that what it read still stands together, so that a loop over
    /// inconsistent reads ends.
    pub check_every: u32,
    /// Which indexes keep versions (§3.6).
    pub indexes: Indexes,
    /// What the laboratory leaves out to measure what it is worth.
    #[cfg(any(test, feature = "ablation"))]
    pub ablation: Ablation,
}

/// Parts of the design that can be left out, one by one, to measure what each is worth.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(test, feature = "ablation")), expect(unreachable_pub, reason = "the laboratory alone reaches it"))]
pub struct Ablation {
    /// Whether small rows lie in the record's head.
    pub inlining: bool,
    /// Whether rows that are read outside of a free head move there (§3.3).
    pub promotion: bool,
    /// Whether a version that is being committed is waited for; otherwise it is passed over on the chance that it aborts (Table 2).
    pub wait_for_pending: bool,
    /// Whether only the latest version of a record is written on after it was read (Table 2).
    pub write_latest_only: bool,
    /// Whether the most contended records are written first (§3.5, Table 2).
    pub sort_by_contention: bool,
    /// Whether reads are checked before anything is written (§3.5, Table 2).
    pub check_early: bool,
    /// Whether reads look for own writes (§3.2's bypass leaves it out). Without, a transaction that reads or changes what it has written finds what was
    /// there before, and is serializable only if it never does.
    pub read_own_writes: bool,
}

impl Ablation {
    /// Nothing is left out.
    const WHOLE: Self = Self {
        inlining: true,
        promotion: true,
        wait_for_pending: true,
        write_latest_only: true,
        sort_by_contention: true,
        check_early: true,
        read_own_writes: true,
    };

    /// The part of this name.
    #[cfg(any(test, feature = "ablation"))]
    fn part(&mut self, name: &str) -> &mut bool {
        match name {
            "inlining" => &mut self.inlining,
            "promotion" => &mut self.promotion,
            "wait-for-pending" => &mut self.wait_for_pending,
            "write-latest-only" => &mut self.write_latest_only,
            "sort-by-contention" => &mut self.sort_by_contention,
            "read-own-writes" => &mut self.read_own_writes,
            _ => &mut self.check_early,
        }
    }
}

/// What [`Options::set`] knows. The clock's bits are for tests alone: with few of them a database comes to an end.
const NAMES: &str = "background-us, backoff-us, calm-after, central-clock, check-every, clock-boost-us, collection-us, \
                     consistency, indexes, overtaking-us, pruning-us, snapshots, synchronization-us, worker-bits";

impl Options {
    /// The shape of timestamps.
    ///
    /// # Errors
    /// [`Error::Options`]: no timestamp has so many bits.
    pub(super) fn shape(&self) -> Result<Shape, Error> {
        let line = "clock_bits is more than 8, and has room in 64 bits beside worker_bits, which is not 0";
        Shape::new(self.clock_bits, self.worker_bits).ok_or_else(|| Error::options(line.to_owned()))
    }

    /// What takes part: everything, where no laboratory has a say.
    #[inline(always)]
    pub(super) fn parts(&self) -> Ablation {
        #[cfg(any(test, feature = "ablation"))]
        return self.ablation;
        #[cfg(not(any(test, feature = "ablation")))]
        Ablation::WHOLE
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            consistency: Consistency::default(),
            snapshots: Snapshots::default(),
            central_clock: false,
            worker_bits: 9,
            clock_bits: None,
            collection_interval: Duration::from_micros(10),
            pruning_after: Duration::from_millis(1),
            overtaking_after: Duration::from_millis(1),
            synchronization_interval: Duration::from_micros(100),
            clock_boost: Duration::from_micros(1),
            background_interval: Duration::from_millis(1),
            calm_after: 5,
            fixed_backoff: None,
            check_every: 4096,
            indexes: Indexes::default(),
            #[cfg(any(test, feature = "ablation"))]
            ablation: Ablation::WHOLE,
        }
    }
}

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "indexes" => self.indexes = value.parse()?,
            "snapshots" => {
                let kinds = [("follow-commits", Snapshots::FollowCommits), ("settled", Snapshots::Settled)];
                self.snapshots = knobs::choice(name, value, &kinds)?;
            }
            "consistency" => {
                let kinds =
                    [("loose", Consistency::Loose), ("clock", Consistency::Clock), ("external", Consistency::External)];
                self.consistency = knobs::choice(name, value, &kinds)?;
            }
            "central-clock" => self.central_clock = knobs::yes_or_no(name, value)?,
            "worker-bits" => self.worker_bits = knobs::number(name, value)?,
            "collection-us" => {
                self.collection_interval = knobs::interval(name, value)?;
                self.background_interval = self.background_interval.max(self.collection_interval);
            }
            "pruning-us" => self.pruning_after = knobs::interval(name, value)?,
            "overtaking-us" => self.overtaking_after = knobs::interval(name, value)?,
            "synchronization-us" => self.synchronization_interval = knobs::interval(name, value)?,
            "clock-boost-us" => self.clock_boost = knobs::microseconds(name, value)?,
            "background-us" => self.background_interval = knobs::interval(name, value)?,
            "calm-after" => self.calm_after = knobs::number(name, value)?,
            "backoff-us" => {
                self.fixed_backoff = if value == "regulated" { None } else { Some(knobs::microseconds(name, value)?) }
            }
            "check-every" => self.check_every = knobs::number(name, value)?,
            #[cfg(any(test, feature = "ablation"))]
            "inlining" | "promotion" | "wait-for-pending" | "write-latest-only" | "sort-by-contention"
            | "check-early" | "read-own-writes" => {
                *self.ablation.part(name) = knobs::yes_or_no(name, value)?;
            }
            _ => return Err(knobs::unknown("cicada", name, NAMES)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_name_and_a_value() {
        let mut options = Options::default();
        let mut set = |name: &str, value: &str| options.set(name, value);
        for name in NAMES.split(", ").filter(|name| name.ends_with("-us") || name.ends_with("-bits")) {
            set(name, "7").unwrap();
            assert_eq!(
                set(name, "0").is_ok(),
                matches!(name, "backoff-us" | "clock-boost-us" | "worker-bits"),
                "{name}"
            );
            set(name, "7").unwrap();
            assert!(set(name, "x").unwrap_err().to_string().contains(name));
        }
        for (name, value) in [
            ("consistency", "loose"),
            ("central-clock", "yes"),
            ("calm-after", "7"),
            ("check-every", "7"),
            ("inlining", "no"),
            ("promotion", "no"),
            ("wait-for-pending", "no"),
            ("write-latest-only", "no"),
            ("sort-by-contention", "no"),
            ("check-early", "no"),
            ("read-own-writes", "no"),
            ("indexes", "multi-version"),
            ("snapshots", "settled"),
        ] {
            set(name, value).unwrap();
            assert!(set(name, "?").is_err(), "{name}");
        }
        assert!(set("nothing", "1").unwrap_err().to_string().contains(NAMES));
        let seven = Duration::from_micros(7);
        assert!(options.central_clock && options.consistency == Consistency::Loose);
        assert_eq!((options.worker_bits, options.calm_after, options.check_every), (7, 7, 7));
        assert_eq!(
            (options.collection_interval, options.pruning_after, options.overtaking_after),
            (seven, seven, seven)
        );
        assert_eq!((options.synchronization_interval, options.clock_boost), (seven, seven));
        assert_eq!((options.background_interval, options.fixed_backoff), (seven, Some(seven)));
        let Ablation { inlining, promotion, wait_for_pending, write_latest_only, .. } = options.ablation;
        let Ablation { sort_by_contention, check_early, read_own_writes, .. } = options.ablation;
        assert_eq!([inlining, promotion, wait_for_pending, write_latest_only], [false; 4]);
        assert_eq!([sort_by_contention, check_early, read_own_writes], [false; 3]);
        options.set("backoff-us", "regulated").unwrap();
        assert_eq!(options.fixed_backoff, None);
    }
}
