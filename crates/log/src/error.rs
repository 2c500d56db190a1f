//! Why a log cannot be opened or read.

use polychron_base::line::OneLine;
use polychron_schema::SchemaError;

use crate::{catalog, disk, manifest};

/// Why a log could not be opened or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// The manifests could not be read or written.
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
    /// The catalog could not be read.
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
    /// Something was durable and is not there as it was written.
    #[error(
        "{file} is damaged from byte {offset} on, and with it what epochs {first_epoch} to {last_epoch} have: {reason}"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// Where the damage begins.
        offset: u64,
        /// The first epoch that is not whole.
        first_epoch: u64,
        /// The last epoch that is known to have been durable.
        last_epoch: u64,
        /// The value that was found instead.
        reason: &'static str,
    },
    /// A file of the checkpoint is not as it was written.
    #[error("{file} is damaged from byte {offset} on: {reason}")]
    Damaged {
        /// The file.
        file: String,
        /// Where the damage begins, or is noticed.
        offset: u64,
        /// The value that was found instead.
        reason: &'static str,
    },
    /// It was interrupted, because the database is closed.
    #[error("the checkpoint was given up")]
    GivenUp,
    /// The write of a manifest has failed before.
    #[error("it is not known which manifest counts before the database is opened again")]
    InDoubt,
    /// Another version wrote it.
    #[error("{file} has frames or blocks of format {format}, which this version does not know")]
    Unsupported {
        /// The file.
        file: String,
        /// Its format.
        format: u16,
    },
    /// Something in a record is not what any record has.
    #[error("the log has a record that is malformed")]
    Record,
    /// The log and the checkpoint contradict each other about a row.
    #[error("the row {} of table {} cannot be recovered: {fault}", OneLine(key), OneLine(table))]
    Row {
        /// The table's name.
        table: String,
        /// The row's key: its values, or its bytes if it has none.
        key: String,
        /// The fault.
        fault: RowFault,
    },
    /// A table's definition is not valid.
    #[error("table {}: {error}", OneLine(table))]
    Definition {
        /// The table's name.
        table: String,
        /// Why not.
        error: SchemaError,
    },
    /// The directory has no manifest that counts.
    #[error("it has no manifest that counts")]
    NoDatabase,
    /// An archive has a file of this name that is of another history.
    #[error("the archive's file {file} is of another history of the database, and is not overwritten")]
    OtherInArchive {
        /// The file.
        file: String,
    },
    /// A backup cannot be brought up to a later time.
    #[error("{reason}")]
    Unrestorable {
        /// Why not.
        reason: String,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(&'static str),
}

impl Error {
    /// Whether there was no room for something.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Disk(error) | Self::Manifest(manifest::Error::Disk(error)) if error.is_full())
    }

    /// Whether an operation has failed that would have written.
    pub(crate) fn is_of_writing(&self) -> bool {
        use disk::Operation as O;
        let (Self::Disk(error) | Self::Manifest(manifest::Error::Disk(error))) = self else { return false };
        !matches!(error.operation, O::Open | O::Measure | O::Read | O::List | O::Lock)
    }

    /// The same as the user of the database at this path is told it.
    #[cold]
    pub(crate) fn of_database(self, path: &str) -> polychron_base::Error {
        use polychron_base::Error as Told;
        let path = path.to_owned();
        let reason = self.to_string();
        match self {
            Self::Disk(ref error) | Self::Manifest(manifest::Error::Disk(ref error)) => match error.cause {
                disk::Cause::Locked { holder } => Told::in_use(path, holder),
                disk::Cause::Full if error.is_full() => Told::disk_full(path, reason),
                // What a manifest names is there.
                disk::Cause::NotFound => Told::corrupt(path, reason),
                _ => Told::inaccessible(path, reason),
            },
            Self::Unsupported { .. }
            | Self::Manifest(manifest::Error::Unsupported { .. })
            | Self::Catalog(catalog::Error::Unsupported { .. }) => Told::other_format(path, reason),
            Self::NoDatabase => Told::no_database(path, reason),
            Self::OtherInArchive { .. } | Self::Unrestorable { .. } => Told::inaccessible(path, reason),
            Self::Options(_) => Told::options(reason),
            Self::GivenUp => Told::Cancelled,
            Self::InDoubt => Told::log_stopped(reason),
            Self::Corrupt { .. }
            | Self::Damaged { .. }
            | Self::Record
            | Self::Row { .. }
            | Self::Definition { .. }
            | Self::Manifest(_)
            | Self::Catalog(_) => Told::corrupt(path, reason),
        }
    }
}

/// Why a row cannot be recovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowFault {
    /// It is no row of its table.
    #[error("it is no row of this table: {0}")]
    Layout(SchemaError),
    /// A change has a key that is none of its table's.
    #[error("{0}")]
    Key(SchemaError),
    /// It was patched, and was never put, or was deleted before.
    #[error("it was patched where there was none")]
    PatchOfNothing,
    /// A patch is for words that it does not have.
    #[error("it was patched behind its end")]
    PatchBeyondEnd,
    /// A patch gave it another key.
    #[error("a patch has changed its key")]
    OtherKey,
    /// The checkpoint has two of it.
    #[error("the checkpoint has it twice")]
    Twice,
}

/// Why a log has stopped.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// An operation on a file failed.
    Disk(disk::Error),
    /// A thread panicked while it flushed.
    Panicked,
}

impl From<disk::Error> for Stop {
    fn from(error: disk::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<Stop> for polychron_base::Error {
    #[cold]
    fn from(stop: Stop) -> Self {
        Self::log_stopped(match stop {
            Stop::Disk(error) => error.to_string(),
            Stop::Panicked => "a thread panicked while it flushed".to_owned(),
        })
    }
}
