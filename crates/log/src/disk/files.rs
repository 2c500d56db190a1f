//! Files by their paths, with arguments checked and errors that name them.

use super::{Access, BLOCK, Cause, Disk, DiskFile as _, Entry, Error, File, Operation};

/// How long a file may be, in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 40;

/// The name by which a [`Directory`](super::Directory) is locked; it is not listed, and is no path.
pub(super) const LOCK: &str = "LOCK";

/// Entries of a directory that is empty for its user: a file system is mounted there, or a desktop has shown it.
const SYSTEM: [&str; 2] = ["lost+found", ".DS_Store"];

/// How long a name may be, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// How many names a path may have.
const MAX_DEPTH: usize = 4;

/// The files of one database.
///
/// Paths begin at its directory, with `/` between their parts. A name has up to 100 letters, digits, dots, dashes and underscores of ASCII and does not
/// begin with a dot.
#[derive(Clone, Copy, Debug)]
pub struct Files<D> {
    disk: D,
}

impl<D: Disk> Files<D> {
    /// The files of a disk.
    pub fn new(disk: D) -> Self {
        Self { disk }
    }

    /// The disk that does the work.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Makes a file of so many zero bytes, a multiple of [`BLOCK`]. They are allocated, and durable together with the length; the name is after
    /// [`sync_directory`](Self::sync_directory).
    ///
    /// # Errors
    /// [`Cause::Full`]: nothing is left of the file. [`Cause::Exists`]: the name is taken. After other errors, a file of that name may be there, of any
    /// length and contents.
    pub fn create(&self, path: &str, bytes: u64) -> Result<File<D::File>, Error> {
        let failed = |cause| Error::new(Operation::Create, path, None, cause);
        check_path(path).map_err(failed)?;
        if !bytes.is_multiple_of(BLOCK as u64) || bytes > MAX_FILE_BYTES {
            return Err(failed(Cause::Invalid("the length is not one of a file")));
        }
        let file = self.disk.create(path, bytes).map_err(failed)?;
        Ok(File::new(file, path, Access::Write, bytes))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`Cause::NotFound`], [`Cause::IsADirectory`], and what the system says.
    pub fn open(&self, path: &str, access: Access) -> Result<File<D::File>, Error> {
        let failed = |cause| Error::new(Operation::Open, path, None, cause);
        check_path(path).map_err(failed)?;
        let file = self.disk.open(path, access).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        Ok(File::new(file, path, access, bytes))
    }

    /// Removes a file; durable after [`sync_directory`](Self::sync_directory). Open handles go on.
    ///
    /// # Errors
    /// [`Cause::NotFound`], [`Cause::IsADirectory`], and what the system says: then it may be removed or not.
    pub fn remove(&self, path: &str) -> Result<(), Error> {
        self.by_path(Operation::Remove, path, D::remove)
    }

    /// The files of a directory, by name. Names that are none of a database's are left out.
    ///
    /// # Errors
    /// [`Cause::NotFound`], [`Cause::NotADirectory`], and what the system says.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>, Error> {
        self.by_path(Operation::List, path, D::list)
    }

    /// A name in the database's directory that is not among these, if there is one. No name is passed over but the lock's, and those that systems put into
    /// directories by themselves.
    ///
    /// # Errors
    /// The system's error.
    pub fn other_than(&self, known: &[&str]) -> Result<Option<String>, Error> {
        let names = self.disk.names().map_err(|cause| Error::new(Operation::List, "", None, cause))?;
        let is_other = |name: &String| *name != LOCK && !SYSTEM.contains(&&**name) && !known.contains(&&**name);
        Ok(names.into_iter().filter(is_other).min())
    }

    /// Makes a directory; durable after [`sync_directory`](Self::sync_directory) of the one that it is in.
    ///
    /// # Errors
    /// [`Cause::Exists`], [`Cause::Full`], and what the system says: then it may be there or not.
    pub fn create_directory(&self, path: &str) -> Result<(), Error> {
        self.by_path(Operation::CreateDirectory, path, D::create_directory)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Cause::NotFound`], [`Cause::NotEmpty`], [`Cause::NotADirectory`], and what the system says: then it may be removed or not.
    pub fn remove_directory(&self, path: &str) -> Result<(), Error> {
        self.by_path(Operation::RemoveDirectory, path, D::remove_directory)
    }

    /// Makes durable which names a directory has.
    ///
    /// # Errors
    /// The system's error: then nothing is known of what was changed since the last sync, and another sync does not help.
    pub fn sync_directory(&self, path: &str) -> Result<(), Error> {
        self.by_path(Operation::SyncDirectory, path, D::sync_directory)
    }

    /// How many bytes may be allocated: a hint, which is not bounded where it is not known.
    pub fn room(&self) -> u64 {
        self.disk.room().unwrap_or(u64::MAX)
    }

    /// Locks the database against other processes, and other openings in this one.
    ///
    /// # Errors
    /// [`Cause::Locked`] with the process that has it.
    pub fn lock(&self) -> Result<D::Lock, Error> {
        self.disk.lock().map_err(|cause| Error::new(Operation::Lock, "", None, cause))
    }

    /// Locks the database against who writes, and writes nothing. Several may have that. `None` where nobody has ever locked it.
    ///
    /// # Errors
    /// As of [`lock`](Self::lock).
    pub fn lock_to_read(&self) -> Result<Option<D::Lock>, Error> {
        self.disk.lock_to_read().map_err(|cause| Error::new(Operation::Lock, "", None, cause))
    }

    fn by_path<T>(
        &self,
        operation: Operation,
        path: &str,
        act: impl FnOnce(&D, &str) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        // The root is there, and nothing else may be done with it.
        let is_root = path.is_empty() && matches!(operation, Operation::List | Operation::SyncDirectory);
        let checked = if is_root { Ok(()) } else { check_path(path) };
        checked.and_then(|()| act(&self.disk, path)).map_err(|cause| Error::new(operation, path, None, cause))
    }
}

fn check_path(path: &str) -> Result<(), Cause> {
    let is_fine = path.split('/').count() <= MAX_DEPTH && path.split('/').all(is_name) && path != LOCK;
    if is_fine { Ok(()) } else { Err(Cause::Invalid("this is no path in a database")) }
}

/// Whether a file or directory may have this name.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_part)
}

/// The listing of a directory as [`Disk::list`] returns it, from all that it has.
pub(super) fn listing(path: &str, entries: impl Iterator<Item = Entry>) -> Vec<Entry> {
    let is_lock = |name: &str| path.is_empty() && name == LOCK;
    let mut entries: Vec<Entry> = entries.filter(|it| is_name(&it.name) && !is_lock(&it.name)).collect();
    entries.sort();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_the_directory() {
        let long = "a".repeat(MAX_NAME_BYTES + 1);
        for path in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".a", "a b", "ä", "LOCK", "a/b/c/d/e", "a\0", &long]
        {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        for path in ["a", "log/1.log", "manifest.0", "checkpoint/7/3.0", "a/LOCK", &long[1..]] {
            assert!(check_path(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn a_listing_has_what_is_the_databases() {
        let entry = |name: &str| Entry { name: name.to_owned(), is_directory: false };
        let all = || ["b", "LOCK", ".hidden", "a~"].iter().map(|name| entry(name)).chain([entry("a")]);
        assert_eq!(listing("", all()), [entry("a"), entry("b")]);
        assert_eq!(listing("log", all()), [entry("LOCK"), entry("a"), entry("b")]);
    }
}
