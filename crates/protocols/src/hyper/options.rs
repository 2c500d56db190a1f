//! The knobs of this protocol.

use polychron_engine::stores::Knobs;

use super::level::Level;

/// Options of HyPer's MVCC.
#[derive(Clone, Debug)]
pub struct Options {
    /// What transactions are promised of each other.
    pub level: Level,
    /// In which order the words of a page's rows lie.
    pub backend: Backend,
    /// For how many records one pair of VersionedPositions stands, a power of two from 16 to 65536; `None`: there are none, and a scan looks
    /// at every record's version. 1024 as in the paper (Figure 8).
    pub synopsis: Option<u32>,
    /// What of a record goes into its before-image when columns change.
    pub before_images: BeforeImages,
    /// Whether scans by columns time their parts (Figure 9), which costs them two looks at the clock a slot range and two a versioned
    /// record.
    pub timed_scans: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: Level::default(),
            backend: Backend::default(),
            synopsis: Some(1024),
            before_images: BeforeImages::default(),
            timed_scans: false,
        }
    }
}

/// What of a record is kept when columns of it change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeforeImages {
    /// The words that change.
    #[default]
    Columns,
    /// The whole record, as systems do that keep versions of records: for comparison.
    Records,
}

/// The two ways in which rows lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// A row's words one behind the other: best for point accesses, and so the default.
    #[default]
    Rows,
    /// The same word of all rows of a page one behind the other, so that a column of eight bytes is a plain slice.
    Columns,
}

/// The fewest and the most records of a synopsis: beyond, positions do not fit.
const LEAST_SYNOPSIS: u32 = 16;
const MOST_SYNOPSIS: u32 = 1 << 16;

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match (name, value) {
            ("level", "columns") => self.level = Level::Columns,
            ("level", "rows") => self.level = Level::Rows,
            ("level", "snapshot") => self.level = Level::Snapshot,
            ("level", _) => return Err(format!("`level` is `columns`, `rows` or `snapshot`, and not `{value}`")),
            ("backend", "rows") => self.backend = Backend::Rows,
            ("backend", "columns") => self.backend = Backend::Columns,
            ("synopsis", "none") => self.synopsis = None,
            ("synopsis", records) => {
                let valid =
                    |records: &u32| records.is_power_of_two() && (LEAST_SYNOPSIS..=MOST_SYNOPSIS).contains(records);
                let parsed = records.parse().ok().filter(valid);
                self.synopsis = Some(parsed.ok_or_else(|| {
                    format!("`synopsis` is `none` or a power of two from {LEAST_SYNOPSIS} to {MOST_SYNOPSIS}, and not `{records}`")
                })?);
            }
            ("before-images", "columns") => self.before_images = BeforeImages::Columns,
            ("before-images", "records") => self.before_images = BeforeImages::Records,
            ("timed-scans", "yes") => self.timed_scans = true,
            ("timed-scans", "no") => self.timed_scans = false,
            ("timed-scans", _) => return Err(format!("`timed-scans` is `yes` or `no`, and not `{value}`")),
            ("before-images", _) => {
                return Err(format!("`before-images` is `columns` or `records`, and not `{value}`"));
            }
            ("backend", _) => return Err(format!("`backend` is `rows` or `columns`, and not `{value}`")),
            _ => {
                let known = "`level`, `backend`, `synopsis`, `before-images` and `timed-scans`";
                return Err(format!("hyper has no option `{name}`; it has {known}"));
            }
        }
        Ok(())
    }
}
