//! The one door to files.
//!
//! [`Files`] is what the rest of the crate uses. It checks arguments, names path and offset in errors, and refuses to go on with a file of which a
//! write or a sync has failed. Under it, a [`Disk`] does the work: [`Directory`], a directory of the file system, or the simulated disk of the
//! laboratory.
//!
//! The promises of a disk, and no more:
//!
//! - [`Files::create`] makes a file whose zeroes and length are durable, if its name is. Nothing is left of it if there is no room.
//! - [`File::sync`] makes durable what was written through any handle of that file before, its length included.
//! - [`Files::sync_directory`] makes durable which names the directory has.
//! - Of what was not synced, a power failure leaves any part, in any order: of each sector any state since the last sync, of each name the same.
//!   Bytes that were not written do not change, and a byte is old or new.
//! - After a failed write or sync the file has any mixture. What a failed sync should have made durable is in doubt for ever, though reads may show
//!   it: a later sync that succeeds says nothing about it.
//! - What a process finds after a restart may not be durable yet. Whoever builds on it syncs it first.

mod buffer;
mod directory;
mod error;
mod file;
mod files;

pub use buffer::{BLOCK, Buffer};
pub use directory::Directory;
pub use error::{Cause, Error, Operation};
pub use file::File;
pub use files::{Files, MAX_FILE_BYTES};

/// The purpose of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading alone; the file may lie on a medium that cannot be written.
    Read,
    /// Reading and writing.
    Write,
}

/// The content of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name, without the directory.
    pub name: String,
    /// Whether it is a directory itself.
    pub is_directory: bool,
}

/// A tree of files and directories, by paths from its root with `/` between their parts; the empty path is the root.
///
/// Implementations rely on what [`Files`] has checked: paths are well-formed, offsets and lengths are multiples of [`BLOCK`] and in range, bytes are
/// aligned to [`BLOCK`] in memory.
pub trait Disk: Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;
    /// The right to the whole tree, until it is dropped.
    type Lock: Send + 'static;

    /// Makes a file of so many zero bytes, allocated, with length and contents durable; the name is not.
    fn create(&self, path: &str, bytes: u64) -> Result<Self::File, Cause>;

    /// Opens a file that exists.
    fn open(&self, path: &str, access: Access) -> Result<Self::File, Cause>;

    /// Removes a file. Open handles go on.
    fn remove(&self, path: &str) -> Result<(), Cause>;

    /// The files of the directory, by name, without the lock and without names that [`Files`] would refuse.
    fn list(&self, path: &str) -> Result<Vec<Entry>, Cause>;

    /// All names that the root has, whatever they are, as far as they are text.
    fn names(&self) -> Result<Vec<String>, Cause>;

    /// Makes an empty directory.
    fn create_directory(&self, path: &str) -> Result<(), Cause>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &str) -> Result<(), Cause>;

    /// Makes the names of a directory durable.
    fn sync_directory(&self, path: &str) -> Result<(), Cause>;

    /// How many bytes may be allocated, as far as that is known. It is a hint: others take and free room, too.
    fn room(&self) -> Option<u64>;

    /// Locks the tree against other processes and other openings in this one.
    fn lock(&self) -> Result<Self::Lock, Cause>;

    /// Locks the tree against who [locks](Self::lock) it, and writes nothing; several may. `None` where it was never locked.
    fn lock_to_read(&self) -> Result<Option<Self::Lock>, Cause>;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync + 'static {
    /// The length in bytes.
    fn bytes(&self) -> Result<u64, Cause>;

    /// Fills the buffer from an offset on; [`Cause::Ended`] if the file is shorter.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Cause>;

    /// Writes at an offset that is within the file or at its end, which moves.
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Cause>;

    /// Makes contents and length durable.
    fn sync(&self) -> Result<(), Cause>;
}
