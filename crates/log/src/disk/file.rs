//! An open file, which is given up once a write or a sync of it has failed.

use std::fmt;

use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::buffer::misaligned;
use super::{Access, Cause, DiskFile, Error, MAX_FILE_BYTES, Operation};

/// An open file.
///
/// Offsets and lengths are multiples of [`BLOCK`](super::BLOCK), and bytes lie in a [`Buffer`](super::Buffer) or a part of one. Several threads may
/// read and write at once, at different blocks.
///
/// After a write or a sync has failed, every further one is refused ([`Cause::InDoubt`]): the system may have dropped what it could not write and call
/// the rest clean, so that a second sync would answer that all is well. Syncs exclude one another, because the system reports a failure to one of them
/// alone.
pub struct File<F: DiskFile> {
    file: F,
    path: String,
    access: Access,
    /// How long the file is at least.
    bytes: AtomicU64,
    in_doubt: AtomicBool,
    syncing: Mutex<()>,
}

impl<F: DiskFile> File<F> {
    pub(super) fn new(file: F, path: &str, access: Access, bytes: u64) -> Self {
        Self {
            file,
            path: path.to_owned(),
            access,
            bytes: AtomicU64::new(bytes),
            in_doubt: AtomicBool::new(false),
            syncing: Mutex::new(()),
        }
    }

    /// The path from the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The length in bytes.
    ///
    /// # Errors
    /// [`Error`], when the system cannot tell.
    pub fn bytes(&self) -> Result<u64, Error> {
        self.file.bytes().map_err(|cause| self.error(Operation::Measure, None, cause))
    }

    /// Whether a write or a sync has failed.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire) // pairs with the release in `doubt`
    }

    /// Fills the buffer from an offset on. After an error its contents are arbitrary.
    ///
    /// # Errors
    /// [`Cause::Ended`] when the file is shorter, [`Cause::Invalid`] for arguments that are not aligned, and what the device says.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let failed = |cause| self.error(Operation::Read, Some(offset), cause);
        Self::checked(offset, into).map_err(failed)?;
        self.file.read_at(offset, into).map_err(failed)
    }

    /// Writes at an offset within the file or at its end. What was written is durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Cause::Invalid`] for arguments that are not aligned, and beyond the end: nothing was written. [`Cause::InDoubt`] after an earlier failure. With
    /// all others any part may have been written, and the file is in doubt.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let failed = |cause| self.error(Operation::Write, Some(offset), cause);
        self.writable().map_err(failed)?;
        Self::checked(offset, from).map_err(failed)?;
        if offset > self.bytes.load(Ordering::Relaxed) {
            // Another handle may have made it longer.
            let bytes = self.file.bytes().map_err(failed)?;
            if offset > bytes {
                return Err(failed(Cause::Invalid("the offset is beyond the end")));
            }
        }
        self.file.write_at(offset, from).inspect_err(|_| self.doubt()).map_err(failed)?;
        polychron_sync::raise(&self.bytes, offset + from.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes durable what was written before, the length included.
    ///
    /// # Errors
    /// [`Cause::InDoubt`] after an earlier failure. With all others the file is in doubt.
    pub fn sync(&self) -> Result<(), Error> {
        let failed = |cause| self.error(Operation::Sync, None, cause);
        let _turn = self.syncing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.writable().map_err(failed)?;
        self.file.sync().inspect_err(|_| self.doubt()).map_err(failed)
    }

    fn checked(offset: u64, bytes: &[u8]) -> Result<(), Cause> {
        let reason = misaligned(offset, bytes);
        let is_beyond = offset > MAX_FILE_BYTES || bytes.len() as u64 > MAX_FILE_BYTES - offset;
        let reason = reason.or(is_beyond.then_some("files are not as long as that"));
        reason.map_or(Ok(()), |reason| Err(Cause::Invalid(reason)))
    }

    fn writable(&self) -> Result<(), Cause> {
        if self.access == Access::Read {
            return Err(Cause::Invalid("the file was opened for reading"));
        }
        if self.is_in_doubt() { Err(Cause::InDoubt) } else { Ok(()) }
    }

    #[cold]
    fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Release); // pairs with the acquire in `is_in_doubt`
    }

    #[cold]
    fn error(&self, operation: Operation, offset: Option<u64>, cause: Cause) -> Error {
        Error::new(operation, &self.path, offset, cause)
    }
}

impl<F: DiskFile> fmt::Debug for File<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("File").field("path", &self.path).field("access", &self.access).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::disk::Buffer;

    /// A file of which the first sync fails, and all later ones succeed: what the system answers when pages were dropped.
    struct Failing {
        syncs: AtomicU64,
        entered: Sender<()>,
        second: Mutex<Receiver<()>>,
    }

    impl DiskFile for Failing {
        fn bytes(&self) -> Result<u64, Cause> {
            Ok(0)
        }

        fn read_at(&self, _offset: u64, _into: &mut [u8]) -> Result<(), Cause> {
            Ok(())
        }

        fn write_at(&self, _offset: u64, _from: &[u8]) -> Result<(), Cause> {
            Ok(())
        }

        fn sync(&self) -> Result<(), Cause> {
            if self.syncs.fetch_add(1, Ordering::Relaxed) > 0 {
                self.entered.send(()).expect("the first one has the other end");
                return Ok(());
            }
            // Another one that may begin beside this one does so now.
            let _ = self.second.lock().expect("it is not poisoned").recv_timeout(Duration::from_millis(100));
            Err(Cause::Device)
        }
    }

    #[test]
    fn no_sync_succeeds_beside_one_that_fails() {
        let (entered, second) = channel();
        let disk = Failing { syncs: AtomicU64::new(0), entered, second: Mutex::new(second) };
        let file = File::new(disk, "a", Access::Write, 0);
        file.write_at(0, &Buffer::zeroed(1)).expect("nothing has failed");
        let mut causes = std::thread::scope(|scope| {
            let sync = || file.sync().map_err(|error| error.cause);
            let threads = [scope.spawn(sync), scope.spawn(sync)];
            threads.map(|thread| thread.join().expect("a sync returns"))
        });
        causes.sort_by_key(|cause| *cause == Err(Cause::InDoubt));
        assert_eq!(causes, [Err(Cause::Device), Err(Cause::InDoubt)]);
    }

    #[test]
    fn what_was_opened_for_reading_is_not_written() {
        let (entered, second) = channel();
        let disk = Failing { syncs: AtomicU64::new(1), entered, second: Mutex::new(second) };
        let file = File::new(disk, "a", Access::Read, 0);
        assert!(matches!(file.write_at(0, &Buffer::zeroed(1)).unwrap_err().cause, Cause::Invalid(_)));
        assert!(matches!(file.sync().unwrap_err().cause, Cause::Invalid(_)));
        file.read_at(0, &mut Buffer::zeroed(1)).expect("it may be read");
    }
}
