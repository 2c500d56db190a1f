//! The archive: copies of log files that are closed, and of manifests, with which a backup can be brought up to a later time.
//!
//! `<database>/log/<number>.log` has the frames of a log file, at the places that they had, and `<database>/manifests/<generation>.0` a manifest.

use std::collections::VecDeque;
use std::sync::PoisonError;

use polychron_engine::mutations::left_out;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{Mutex, MutexGuard};

use crate::DatabaseId;
use crate::disk::{Access, BLOCK, Buffer, Cause, Disk, File, Files};
use crate::error::Error;
use crate::flush::pool::path_of;
use crate::flush::{Log, pool};
use crate::frame::{Frame, Place};
use crate::manifest::{self, Manifest};
use crate::read;
use crate::steps::ArchiveStep;

/// How many manifests wait at most until the archive takes them. Without one of them the log is not known well enough to stop where it counted.
const MOST_WAITING: usize = 256;

/// The directory of manifests.
pub(super) const MANIFESTS: &str = "manifests";

/// Hears of an archive that begins to fail.
pub type OnFailure = Box<dyn Fn(&str) + Send + Sync>;

/// Where closed log files of an open database go.
pub struct Archive<D: Disk> {
    to: Files<D>,
    database: DatabaseId,
    /// The log file that is copied next: all before are in the archive.
    next: AtomicU64,
    state: Mutex<State>,
    on_failure: OnFailure,
}

struct State {
    is_prepared: bool,
    /// Manifests that are not there yet, by their generations.
    waiting: VecDeque<(u64, Vec<u8>)>,
    /// The last error.
    failure: Option<String>,
}

impl<D: Disk> Archive<D> {
    /// The archive of a database whose log begins with this manifest's first file. Those before are nobody's care.
    pub fn new(to: Files<D>, manifest: &Manifest, on_failure: OnFailure) -> Self {
        let state = State { is_prepared: false, waiting: VecDeque::new(), failure: None };
        let next = AtomicU64::new(manifest.first_log_file);
        Self { to, database: manifest.database, next, state: Mutex::new(state), on_failure }
    }

    /// The log file that is copied next.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// A manifest is durable.
    pub(crate) fn note(&self, manifest: &Manifest, generation: u64) {
        let waiting = &mut self.lock().waiting;
        if waiting.len() == MOST_WAITING {
            waiting.pop_front();
        }
        waiting.push_back((generation, manifest::encode(manifest, generation)));
    }

    /// Copies what is not there yet. The caller sees to it that no log file goes meanwhile. A failure is reported once, until it works again.
    pub(crate) fn catch_up(&self, files: &Files<D>, log: &Log<D>, manifest: &Manifest) {
        let state = &mut *self.lock();
        let result = self.try_catch_up(state, files, log, manifest);
        let failure = result.err().map(|error| error.to_string());
        if let Some(reason) = &failure
            && state.failure.is_none()
        {
            (self.on_failure)(reason);
        }
        state.failure = failure;
    }

    fn try_catch_up(
        &self,
        state: &mut State,
        files: &Files<D>,
        log: &Log<D>,
        manifest: &Manifest,
    ) -> Result<(), Error> {
        self.prepare(state)?;
        while let Some((generation, bytes)) = state.waiting.front() {
            self.write_manifest(*generation, bytes)?;
            state.waiting.pop_front();
        }
        // A file is closed for good once a frame behind it is durable with its epoch: until then an opening may go on in it.
        let (last, live) = (log.framed(), log.live());
        let mut copy: Option<Copy<D>> = None;
        let closed = if left_out(ArchiveStep::AwaitFollowing) { last.number + 1 } else { last.number };
        while self.next() < closed {
            let manifest = Manifest { first_log_file: self.next(), checkpoint: None, ..manifest.clone() };
            let number = self.next();
            let result = read::read_frames(files, &manifest, &live, &last, &mut |found_in, found| {
                if found_in != number {
                    return Ok(false);
                }
                let copy = match &mut copy {
                    Some(copy) => copy,
                    none => {
                        let file = files.open(&path_of(found.slot), Access::Read)?;
                        none.insert(self.begin_copy(number, file.bytes()?)?)
                    }
                };
                self.copy_frame(copy, number, found)?;
                Ok(true)
            });
            if !left_out(ArchiveStep::AwaitFollowing) {
                result?;
            }
            if let Some(Copy { file, .. }) = copy.take()
                && !left_out(ArchiveStep::SyncCopies)
            {
                file.sync()?;
                self.to.sync_directory(&self.path(pool::DIRECTORY))?;
            }
            self.next.store(number + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.database)
    }

    fn prepare(&self, state: &mut State) -> Result<(), Error> {
        if state.is_prepared {
            return Ok(());
        }
        let own = self.database.to_string();
        for path in [own.clone(), self.path(pool::DIRECTORY), self.path(MANIFESTS)] {
            match self.to.create_directory(&path) {
                Err(error) if error.cause != Cause::Exists => return Err(error.into()),
                _ => {}
            }
        }
        // What is there may not be durable.
        for path in ["", &own, &self.path(pool::DIRECTORY), &self.path(MANIFESTS)] {
            self.to.sync_directory(path)?;
        }
        state.is_prepared = true;
        Ok(())
    }

    fn write_manifest(&self, generation: u64, bytes: &[u8]) -> Result<(), Error> {
        let path = format!("{}/{generation}.0", self.path(MANIFESTS));
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        let file = match self.existing(&path, buffer.len() as u64)? {
            Some(file) => {
                let mut before = Buffer::zeroed(buffer.len());
                file.read_at(0, &mut before)?;
                if manifest::decode(&before).is_ok() && before[..] != buffer[..] {
                    return Err(Error::OtherInArchive { file: path });
                }
                file
            }
            None => self.to.create(&path, buffer.len() as u64)?,
        };
        file.write_at(0, &buffer)?;
        file.sync()?;
        Ok(self.to.sync_directory(&self.path(MANIFESTS))?)
    }

    /// The file of that name and length; none if there is no such one. One of another length was interrupted while it was made.
    fn existing(&self, path: &str, bytes: u64) -> Result<Option<File<D::File>>, Error> {
        match self.to.open(path, Access::Write) {
            Err(error) if error.cause == Cause::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(file) if file.bytes()? == bytes => Ok(Some(file)),
            Ok(_) => {
                self.to.remove(path)?;
                Ok(None)
            }
        }
    }

    fn begin_copy(&self, number: u64, bytes: u64) -> Result<Copy<D>, Error> {
        let path = format!("{}/{number}.log", self.path(pool::DIRECTORY));
        let file = match self.existing(&path, bytes)? {
            Some(file) => file,
            None => self.to.create(&path, bytes)?,
        };
        Ok(Copy { file, path })
    }

    /// Writes a frame to the place that it has. Another one that is there already is of another history, and stays.
    fn copy_frame(&self, copy: &Copy<D>, file: u64, found: &read::Found) -> Result<(), Error> {
        let (offset, bytes) = (found.offset, &found.bytes);
        let mut before = Buffer::zeroed(bytes.len());
        copy.file.read_at(offset, &mut before)?;
        if before[..] == bytes[..] {
            return Ok(());
        }
        let place = Place { database: self.database, file, offset };
        let is_other = Frame::peek(&before[..BLOCK]).is_ok_and(|(header, _)| header.place == place)
            && Frame::checksum_of(&before[..BLOCK]) != Frame::checksum_of(&bytes[..BLOCK]);
        if is_other && !left_out(ArchiveStep::KeepOthers) {
            return Err(Error::OtherInArchive { file: copy.path.clone() });
        }
        before.copy_from_slice(bytes);
        Ok(copy.file.write_at(offset, &before)?)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A log file that is being copied.
struct Copy<D: Disk> {
    file: File<D::File>,
    path: String,
}
