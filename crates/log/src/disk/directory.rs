//! A directory of the file system as a disk. The only file of the product that names the standard library's files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use polychron_sync::Process;

use super::files::{LOCK, listing};
use super::{Access, BLOCK, Buffer, Cause, Disk, DiskFile, Entry};

/// How much is zeroed by one write when a file is made.
const ZEROED_AT_ONCE: usize = 1 << 20;

/// What is there is its account's alone: rows, and what passwords are verified with.
const OWN_FILE: u32 = 0o600;
const OWN_DIRECTORY: u32 = 0o700;

fn create_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(OWN_DIRECTORY).create(path)
}

/// A directory of the file system.
#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
    /// Whether reads and writes pass by the system's cache, where they can.
    is_direct: bool,
}

impl Directory {
    /// Opens a directory, which is made if it is not there; the directory that it is in is. Its own name is durable after that.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_or_open(path: &Path) -> Result<Self, Cause> {
        check(path)?;
        match create_directory(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Cause::NoParent),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            // Where it exists, another process may have made it and ended before this sync.
            _ => {}
        }
        let directory = Self::open(path)?;
        directory.root.parent().map_or(Ok(()), sync_directory)?;
        Ok(directory)
    }

    /// Opens a directory that is there.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path) -> Result<Self, Cause> {
        check(path)?;
        // Whole, so that it stays the same when the process changes its working directory.
        let root = fs::canonicalize(path)?;
        if fs::metadata(&root)?.is_dir() { Ok(Self { root, is_direct: true }) } else { Err(Cause::NotADirectory) }
    }

    /// Makes a directory, or opens one that is empty. Its own name is durable after that. Answers whether it was made.
    ///
    /// # Errors
    /// [`Cause::NotEmpty`], whatever it has, and what the system says.
    pub fn create(path: &Path) -> Result<(Self, bool), Cause> {
        let is_new = !fs::exists(path)?;
        let directory = Self::create_or_open(path)?;
        match fs::read_dir(&directory.root)?.next() {
            None => Ok((directory, is_new)),
            Some(_) => Err(Cause::NotEmpty),
        }
    }

    /// Removes the directory, if it has nothing else than its lock.
    ///
    /// # Errors
    /// [`Cause::NotEmpty`], and what the system says.
    pub fn remove_self(&self) -> Result<(), Cause> {
        match fs::remove_file(self.root.join(LOCK)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        Ok(fs::remove_dir(&self.root)?)
    }

    /// The same directory, whose files are read and written through the system's cache. Writes are slower by that, and what a failed sync has dropped
    /// can be read as if it were there.
    #[must_use]
    pub fn through_cache(self) -> Self {
        Self { is_direct: false, ..self }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Opens a file that exists, past the cache if that is wanted and possible.
    fn open_file(&self, path: &Path, access: Access) -> Result<File, Cause> {
        let mut options = OpenOptions::new();
        // Nobody waits for the other end of what is a pipe.
        let at_once = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        options.read(true).write(access == Access::Write).custom_flags(at_once);
        if self.is_direct
            && let Some(flags) = direct_flags()
        {
            match options.clone().custom_flags(flags | at_once).open(path) {
                // The file system has no such way.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                result => return Ok(result?),
            }
        }
        Ok(options.open(path)?)
    }

    /// Opens, allocates, zeroes and syncs a file that was just made.
    fn fill(&self, path: &Path, bytes: u64) -> Result<DirectoryFile, Cause> {
        let file = self.open_file(path, Access::Write)?;
        if bytes > 0 {
            allocate(&file, bytes)?;
        }
        // Blocks that are only allocated are not written yet: the first write to each would change the file system's own data, which its sync would
        // have to wait for.
        let zeroes = Buffer::zeroed((ZEROED_AT_ONCE as u64).min(bytes) as usize);
        let mut done = 0;
        while done < bytes {
            let count = (zeroes.len() as u64).min(bytes - done) as usize;
            file.write_all_at(&zeroes[..count], done)?;
            done += count as u64;
        }
        file.sync_all()?;
        Ok(DirectoryFile { file })
    }
}

impl Disk for Directory {
    type File = DirectoryFile;
    type Lock = DirectoryLock;

    fn create(&self, path: &str, bytes: u64) -> Result<DirectoryFile, Cause> {
        let path = self.at(path);
        OpenOptions::new().write(true).create_new(true).mode(OWN_FILE).open(&path)?;
        self.fill(&path, bytes).inspect_err(|_| {
            // A file that cannot be removed either is left, as is said.
            let _ = fs::remove_file(&path);
        })
    }

    fn open(&self, path: &str, access: Access) -> Result<DirectoryFile, Cause> {
        let file = self.open_file(&self.at(path), access)?;
        // To open a directory for reading is allowed.
        match file.metadata()?.file_type() {
            kind if kind.is_dir() => Err(Cause::IsADirectory),
            kind if kind.is_file() => Ok(DirectoryFile { file }),
            _ => Err(Cause::NotAFile),
        }
    }

    fn remove(&self, path: &str) -> Result<(), Cause> {
        let path = self.at(path);
        // Systems differ in what they answer for a directory.
        if fs::symlink_metadata(&path)?.is_dir() { Err(Cause::IsADirectory) } else { Ok(fs::remove_file(path)?) }
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, Cause> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.at(path))? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(Entry { name, is_directory: entry.file_type()?.is_dir() });
            }
        }
        Ok(listing(path, entries.into_iter()))
    }

    fn names(&self) -> Result<Vec<String>, Cause> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        fs::read_dir(&self.root)?.map(name).collect()
    }

    fn create_directory(&self, path: &str) -> Result<(), Cause> {
        Ok(create_directory(&self.at(path))?)
    }

    fn remove_directory(&self, path: &str) -> Result<(), Cause> {
        Ok(fs::remove_dir(self.at(path))?)
    }

    fn sync_directory(&self, path: &str) -> Result<(), Cause> {
        let path = self.at(path);
        if fs::metadata(&path)?.is_dir() { sync_directory(&path) } else { Err(Cause::NotADirectory) }
    }

    fn room(&self) -> Option<u64> {
        let there = rustix::fs::statvfs(&self.root).ok()?;
        there.f_bavail.checked_mul(there.f_frsize)
    }

    fn lock(&self) -> Result<DirectoryLock, Cause> {
        let path = self.root.join(LOCK);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(OWN_FILE).open(path)?;
        file.try_lock().map_err(|error| refused(error, &file))?;
        // For others to see. Nothing depends on it, so it is not synced.
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(DirectoryLock::of(file))
    }

    fn lock_to_read(&self) -> Result<Option<DirectoryLock>, Cause> {
        let file = match File::open(self.root.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        file.try_lock_shared().map_err(|error| refused(error, &file))?;
        Ok(Some(DirectoryLock::of(file)))
    }
}

/// Why a lock is not to be had.
fn refused(error: TryLockError, file: &File) -> Cause {
    match error {
        TryLockError::WouldBlock => {
            let mut holder = String::new();
            // What the holder has not written yet, or something else has, is not known.
            let _ = file.take(20).read_to_string(&mut holder);
            Cause::Locked { holder: holder.trim().parse().ok() }
        }
        TryLockError::Error(error) => error.into(),
    }
}

/// An open file of a [`Directory`].
#[derive(Debug)]
pub struct DirectoryFile {
    file: File,
}

impl DiskFile for DirectoryFile {
    fn bytes(&self) -> Result<u64, Cause> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Cause> {
        // Past the cache, a read that ends within a block cannot be continued; so the end is asked for first.
        if self.bytes()? < offset + into.len() as u64 {
            return Err(Cause::Ended);
        }
        Ok(self.file.read_exact_at(into, offset)?)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Cause> {
        Ok(self.file.write_all_at(from, offset)?)
    }

    fn sync(&self) -> Result<(), Cause> {
        Ok(self.file.sync_data()?)
    }
}

/// The lock of a [`Directory`].
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
    process: Process,
}

impl DirectoryLock {
    fn of(file: File) -> Self {
        Self { file, process: Process::here() }
    }
}

impl Drop for DirectoryLock {
    /// Unlocks by itself: the file alone would stay locked while a process that was forked meanwhile has it, too, even if only until it executes
    /// another program. The lock of the process that was forked is this one's.
    fn drop(&mut self) {
        if self.process.is_here() {
            // What cannot be unlocked, the system unlocks when it is closed.
            let _ = self.file.unlock();
        }
    }
}

/// Refuses what is no path, of which the system says less.
fn check(path: &Path) -> Result<(), Cause> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() {
        Err(Cause::Invalid("the path is empty"))
    } else if bytes.contains(&0) {
        Err(Cause::Invalid("the path has a zero byte"))
    } else {
        Ok(())
    }
}

fn sync_directory(path: &Path) -> Result<(), Cause> {
    Ok(File::open(path)?.sync_all()?)
}

#[cfg(target_os = "linux")]
fn direct_flags() -> Option<i32> {
    Some(rustix::fs::OFlags::DIRECT.bits() as i32)
}

#[cfg(not(target_os = "linux"))]
fn direct_flags() -> Option<i32> {
    None
}

/// Reserves the room of a whole file, so that a lack of it shows before anything is written.
#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> Result<(), Cause> {
    use rustix::fs::FallocateFlags;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        // Where this is not known, writing the zeroes allocates.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(_file: &File, _bytes: u64) -> Result<(), Cause> {
    Ok(())
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists => Self::Exists,
            io::ErrorKind::NotADirectory => Self::NotADirectory,
            io::ErrorKind::IsADirectory => Self::IsADirectory,
            io::ErrorKind::DirectoryNotEmpty => Self::NotEmpty,
            io::ErrorKind::UnexpectedEof => Self::Ended,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero => Self::Full,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            io::ErrorKind::InvalidFilename => Self::Name,
            _ => match error.raw_os_error() {
                Some(EIO) | None => Self::Device,
                Some(number) => Self::System(number),
            },
        }
    }
}

/// The number of an input or output error, the same on all Unix systems.
const EIO: i32 = 5;

const _: () = assert!(ZEROED_AT_ONCE.is_multiple_of(BLOCK));
