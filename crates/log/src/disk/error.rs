//! Errors of files.

use std::fmt;

/// The operation that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Files::create`](super::Files::create).
    Create,
    /// [`Files::open`](super::Files::open).
    Open,
    /// [`File::bytes`](super::File::bytes).
    Measure,
    /// [`File::read_at`](super::File::read_at).
    Read,
    /// [`File::write_at`](super::File::write_at).
    Write,
    /// [`File::sync`](super::File::sync).
    Sync,
    /// [`Files::remove`](super::Files::remove).
    Remove,
    /// [`Files::list`](super::Files::list).
    List,
    /// [`Files::create_directory`](super::Files::create_directory).
    CreateDirectory,
    /// [`Files::remove_directory`](super::Files::remove_directory).
    RemoveDirectory,
    /// [`Files::sync_directory`](super::Files::sync_directory).
    SyncDirectory,
    /// [`Files::lock`](super::Files::lock).
    Lock,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Measure => "measure",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Remove => "remove",
            Self::List => "list",
            Self::CreateDirectory => "create the directory",
            Self::RemoveDirectory => "remove the directory",
            Self::SyncDirectory => "sync the directory",
            Self::Lock => "lock",
        })
    }
}

/// Why it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no such file or directory.
    #[error("it does not exist")]
    NotFound,
    /// The name is taken.
    #[error("it exists already")]
    Exists,
    /// A part of the path is a file.
    #[error("it is not a directory")]
    NotADirectory,
    /// A file was expected.
    #[error("it is a directory")]
    IsADirectory,
    /// A pipe, a device, or another thing that keeps nothing.
    #[error("it is not a file")]
    NotAFile,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The file ends before.
    #[error("the file ends before")]
    Ended,
    /// No room is left. Nothing was done, or what was begun is undone, unless the operation was a write.
    #[error("no space is left")]
    Full,
    /// The device failed, or the file system after its device had.
    #[error("the device failed")]
    Device,
    /// An earlier write or sync of this file failed; see [`File`](super::File).
    #[error("an earlier write or sync of this file failed, and what it has is in doubt")]
    InDoubt,
    /// Another opening has the lock.
    #[error("it is in use{}", Holder(*holder))]
    Locked {
        /// The process that has it, if that is known.
        holder: Option<u32>,
    },
    /// The process has no right to do this.
    #[error("permission denied")]
    Denied,
    /// The arguments are wrong; nothing was tried.
    #[error("{0}")]
    Invalid(&'static str),
    /// The file system takes no changes.
    #[error("the file system can only be read")]
    ReadOnly,
    /// The path has a name that the file system does not take.
    #[error("a name in the path is too long, or is none that the file system takes")]
    Name,
    /// The directory in which it is to be made is not there.
    #[error("the directory that it is to be in does not exist")]
    NoParent,
    /// Another error of the system, by its number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    System(i32),
}

struct Holder(Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |process| write!(out, " by process {process}"))
    }
}

/// An operation on a file or directory failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} {}: {cause}", Place(self))]
pub struct Error {
    /// The operation that was tried.
    pub operation: Operation,
    /// On which file or directory: the path from the root, which is itself empty.
    pub path: String,
    /// At which byte of the file, for reads and writes.
    pub offset: Option<u64>,
    /// Why it failed.
    pub cause: Cause,
}

impl Error {
    #[cold]
    pub(super) fn new(operation: Operation, path: &str, offset: Option<u64>, cause: Cause) -> Self {
        Self { operation, path: path.to_owned(), offset, cause }
    }

    /// A file is not made, because it would leave too little room to others.
    #[cold]
    pub(crate) fn full(path: &str) -> Self {
        Self::new(Operation::Create, path, None, Cause::Full)
    }

    /// Whether there was no room: what failed may be tried again when there is some. Not where a sync has found none: that leaves in doubt what was written
    /// before, as any other failure of it does.
    pub fn is_full(&self) -> bool {
        self.cause == Cause::Full && !matches!(self.operation, Operation::Sync | Operation::SyncDirectory)
    }
}

struct Place<'e>(&'e Error);

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.path.is_empty() { "the database's directory" } else { &self.0.path })?;
        self.0.offset.map_or(Ok(()), |offset| write!(out, " at byte {offset}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_operation_path_offset_and_cause() {
        let error = Error::new(Operation::Write, "log/3.log", Some(8192), Cause::Device);
        assert_eq!(error.to_string(), "cannot write log/3.log at byte 8192: the device failed");
        let error = Error::new(Operation::Lock, "", None, Cause::Locked { holder: Some(7) });
        assert_eq!(error.to_string(), "cannot lock the database's directory: it is in use by process 7");
        assert!(Error::new(Operation::Create, "a", None, Cause::Full).is_full());
        assert!(!Error::new(Operation::Sync, "a", None, Cause::Full).is_full());
    }
}
