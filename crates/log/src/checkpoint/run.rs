//! Checkpoints of an open database: when one is made, and what is made of failures.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use polychron_base::clock::Duration;
use polychron_engine::mutations::{left_out, pass};
use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use polychron_sync::{Mutex, MutexGuard};

use super::fold::{Fold, Folded, Kept};
use super::known::Known;
use super::pace::Pace;
use super::{DIRECTORY, directory_of};
use crate::backup::Archive;
use crate::disk::{self, Cause, Disk, Entry, Files};
use crate::error::Error;
use crate::flush::Log;
use crate::flush::flusher::Framed;
use crate::manifest::{self, Checkpoint, Manifest, Manifests};
use crate::read;
use crate::ship::{self, Shared};
use crate::steps::{ArchiveStep, CheckpointStep, Point};

/// After a failure the next one is not begun by itself for so long.
const RETRY: Duration = Duration::from_secs(10);
/// The same where there was no room, which may come back at any time.
const RETRY_FULL: Duration = Duration::from_secs(1);

/// How checkpoints are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The log's files take as much as half of the last one, or this, in bytes: one begins by itself early enough, and pauses less and less the more of
    /// that is used.
    pub log_bytes: u64,
    /// The share of the time in which one that has begun by itself works at first; so it takes that share of the device and of its threads.
    pub share: f64,
    /// How much memory may be taken for what the log has of rows, in bytes: two to three times the log's. Where that is not enough, the log is read several
    /// times, each time for some of the keys.
    pub memory_bytes: usize,
    /// Where what has changed since rows were written takes no more memory than this share of their bytes, they stay, and only changes are written. So much
    /// longer is what a recovery has to gather, for checkpoints that cost as much as has changed.
    pub changes: f64,
    /// How many threads work.
    pub threads: usize,
    /// How long a file may become, in bytes, before another one is begun.
    pub file_bytes: u64,
    /// A file that is shorter is written again with the others of its table, even if none of its rows has changed.
    pub least_bytes: u64,
    /// Keys that differ in so many last bits alone are near each other: where one of them has changed, the rows of all are written again.
    pub group_bits: u32,
    /// How much content blocks have, in bytes, but for one with a single longer row.
    pub block_bytes: usize,
}

impl Options {
    /// For a database.
    pub fn production() -> Self {
        Self {
            log_bytes: 256 << 20,
            share: 0.25,
            memory_bytes: 768 << 20,
            changes: 0.125,
            threads: 2,
            file_bytes: 32 << 20,
            least_bytes: 4 << 20,
            group_bits: 12,
            block_bytes: super::block::CONTENT_BYTES,
        }
    }

    /// For a database whose log takes so much memory: as much is taken while one is made.
    pub fn within(memory_bytes: usize) -> Self {
        let production = Self::production();
        Self {
            log_bytes: production.log_bytes.min(16 * memory_bytes as u64),
            memory_bytes: production.memory_bytes.min(memory_bytes),
            ..production
        }
    }

    /// So small that there are several files, blocks and readings after some transactions.
    pub fn tiny() -> Self {
        Self {
            log_bytes: 64 << 10,
            share: 1.0,
            memory_bytes: 256,
            changes: 0.0,
            threads: 1,
            file_bytes: 8 << 10,
            least_bytes: 0,
            group_bits: 1,
            block_bytes: 2 << 10,
        }
    }
}

/// How one is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// Beside others: with pauses.
    Paced,
    /// Somebody waits for it.
    Unpaced,
}

/// The outcomes of checkpoints since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that count, or did.
    pub made: u64,
    /// Those that were given up.
    pub failed: u64,
}

/// Makes the checkpoints of an open database, one at a time.
pub struct Checkpoints<D: Disk> {
    pub(crate) files: Files<D>,
    pub(crate) options: Options,
    state: Mutex<State>,
    made: AtomicU64,
    failed: AtomicU64,
    is_unwanted: Arc<AtomicBool>,
    /// How many threads wait for one.
    awaited: Arc<AtomicUsize>,
    /// Where log files go before they are given back.
    archive: Option<Archive<D>>,
    /// The state that connections to standbys share with the log.
    pub(crate) shared: Shared,
}

pub(crate) struct State {
    /// The number of the next one: none has it, not even one that has failed.
    next: u64,
    /// A write of a manifest has failed, so that it is unknown which one counts.
    is_in_doubt: bool,
    /// When the next one may begin by itself, behind one that has failed.
    retry_ns: u64,
    /// What is known of the files of the last one.
    known: Known,
}

impl<D: Disk> Checkpoints<D> {
    /// Gives up the one that is being made, and all later ones.
    pub fn stop(&self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
    }
}

impl<D: Disk + Clone> Checkpoints<D> {
    /// Those of a database whose manifests are open. Removes what interrupted ones have left.
    ///
    /// # Errors
    /// The disk's error.
    pub fn open(files: &Files<D>, manifest: &Manifest, options: Options) -> Result<Self, Error> {
        let highest = numbers(files)?.into_iter().max().unwrap_or(0);
        let last = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.number);
        if !left_out(CheckpointStep::RemoveInterrupted) {
            sweep(files, manifest)?;
        }
        Ok(Self {
            files: files.clone(),
            options,
            state: Mutex::new(State {
                next: highest.max(last) + 1,
                is_in_doubt: false,
                retry_ns: 0,
                known: Known::new(options.group_bits),
            }),
            made: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            is_unwanted: Arc::default(),
            awaited: Arc::default(),
            archive: None,
            shared: Shared::default(),
        })
    }

    /// From now on no log file is given back that this has not.
    pub fn archive_to(&mut self, archive: Archive<D>) {
        self.archive = Some(archive);
    }

    /// A manifest is durable. What has to do with its tables waits for this.
    pub fn note(&self, manifests: &Manifests<D>) {
        self.shared.note(manifests.current(), manifests.generation());
        if let Some(archive) = &self.archive {
            archive.note(manifests.current(), manifests.generation());
        }
    }

    /// Has the archive take what it has not yet.
    pub fn archive(&self, log: &Log<D>, manifests: &Mutex<Manifests<D>>) {
        if let Some(archive) = &self.archive {
            let _no_other = self.lock();
            archive.catch_up(&self.files, log, &current(manifests));
        }
    }

    /// Their outcomes so far.
    pub fn counts(&self) -> Counts {
        Counts { made: self.made.load(Ordering::Relaxed), failed: self.failed.load(Ordering::Relaxed) }
    }

    /// Makes one if it is time: what a thread does again and again. A failure is counted, and the log keeps everything.
    pub fn tick(&self, log: &Log<D>, manifests: &Mutex<Manifests<D>>) {
        self.archive(log, manifests);
        let is_early = log.clock().now_ns() < self.lock().retry_ns;
        let manifest = current(manifests);
        // Clients wait for the room.
        let (is_wanted, haste) = if self.frees(log, &manifest) {
            (true, Haste::Unpaced)
        } else {
            (self.is_due(log, &manifest), Haste::Paced)
        };
        if !is_early && is_wanted {
            // It is counted.
            let _ = self.run(log, manifests, haste);
        }
    }

    /// Whether the log needs room, and a checkpoint would free some of its files.
    fn frees(&self, log: &Log<D>, manifest: &Manifest) -> bool {
        let archived = self.archive.as_ref().map_or(u64::MAX, Archive::next);
        let first = || log.first_needed(log.framed().epoch);
        log.is_tight() && first().is_some_and(|first| first.min(archived) > manifest.first_log_file)
    }

    fn is_due(&self, log: &Log<D>, manifest: &Manifest) -> bool {
        let last = log.framed();
        // A file at least stays behind each of them.
        let begins = self.most_log(log, manifest).min(3 * self.budget(manifest) / 4).max(2 * log.file_bytes(&last));
        log_bytes(log, manifest, &last) >= begins
    }

    /// How much the log's files may take.
    fn budget(&self, manifest: &Manifest) -> u64 {
        let data = manifest.checkpoint.as_ref().map_or(0, Checkpoint::bytes);
        self.options.log_bytes.max(data / 2)
    }

    /// How long the log may be then: the rest of its last file is there, too, and one to spare.
    fn most_log(&self, log: &Log<D>, manifest: &Manifest) -> u64 {
        self.budget(manifest).saturating_sub(2 * log.file_bytes(&log.framed()))
    }

    /// Makes one of all that is durable. Answers the epoch up to which the database's checkpoint has all.
    ///
    /// # Errors
    /// [`Error`]: then the one before goes on to count, or it is not known which one does, and opening the database tells.
    pub fn run(&self, log: &Log<D>, manifests: &Mutex<Manifests<D>>, haste: Haste) -> Result<u64, Error> {
        // One that is under way by itself hurries up, too.
        let waits = usize::from(haste == Haste::Unpaced);
        self.awaited.fetch_add(waits, Ordering::Relaxed);
        let state = &mut *self.lock();
        let mut result = self.run_with(state, log, manifests, haste);
        // What the log would need next is less urgent than the room that a checkpoint frees.
        while matches!(&result, Err(Error::Disk(error)) if error.is_full()) && log.give_up_room() {
            result = self.run_with(state, log, manifests, haste);
        }
        self.awaited.fetch_sub(waits, Ordering::Relaxed);
        match &result {
            Ok(_) => state.retry_ns = 0,
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let is_full = matches!(error, Error::Disk(error) if error.is_full());
                let pause = if is_full { RETRY_FULL } else { RETRY };
                state.retry_ns = log.clock().now_ns() + pause.as_nanos() as u64;
            }
        }
        result
    }

    fn run_with(
        &self,
        state: &mut State,
        log: &Log<D>,
        manifests: &Mutex<Manifests<D>>,
        haste: Haste,
    ) -> Result<u64, Error> {
        if state.is_in_doubt {
            return Err(Error::InDoubt);
        }
        let early = current(manifests);
        pass(Point::CheckpointBegins);
        let last = log.framed();
        // Behind the epoch: a table of which it has something was durably there before.
        let manifest = if left_out(CheckpointStep::ReadCatalogLater) { early } else { current(manifests) };
        if let Some(checkpoint) = manifest.checkpoint.as_ref().filter(|checkpoint| checkpoint.epoch >= last.epoch) {
            return Ok(checkpoint.epoch);
        }
        let number = state.next;
        state.next += 1;
        let (begun, most) = (log_bytes(log, &manifest, &last), self.most_log(log, &manifest));
        let share = || match haste {
            Haste::Paced => share(self.options.share, begun, most, log_bytes(log, &manifest, &log.framed())),
            Haste::Unpaced => 1.0,
        };
        let pace = self.pace(log, &share);
        let written =
            self.write(log, &manifest, last, number, &pace, &state.known).and_then(|Folded { checkpoint, groups }| {
                pass(Point::FilesWritten);
                if left_out(CheckpointStep::WriteManifestFirst) {
                    let early = Manifest { checkpoint: Some(checkpoint.clone()), ..current(manifests) };
                    let _ = sweep(&self.files, &early);
                }
                if let Some(archive) = &self.archive {
                    archive.catch_up(&self.files, log, &manifest);
                }
                self.publish(state, log, manifests, &checkpoint)?;
                state.known.follow(&checkpoint, groups);
                Ok(())
            });
        if (written.is_err() && left_out(CheckpointStep::RemoveFailed))
            || (state.is_in_doubt && !left_out(CheckpointStep::KeepInDoubt))
        {
            return written.map(|()| last.epoch);
        }
        // What cannot be removed is when the next one ends, or the database is opened again.
        let _ = sweep(&self.files, &current(manifests));
        written.map(|()| last.epoch)
    }

    /// The pace of work that takes a share of the time, and ends with the database.
    pub(crate) fn pace<'p>(&self, log: &Log<D>, share: &'p (dyn Fn() -> f64 + Sync)) -> Pace<'p> {
        let (is_unwanted, awaited) = (Arc::clone(&self.is_unwanted), Arc::clone(&self.awaited));
        Pace { clock: Arc::clone(log.clock()), share, is_unwanted, awaited }
    }

    /// Writes the files, durably with their names.
    fn write(
        &self,
        log: &Log<D>,
        manifest: &Manifest,
        last: Framed,
        number: u64,
        pace: &Pace<'_>,
        known: &Known,
    ) -> Result<Folded, Error> {
        let Self { files, options, .. } = self;
        let catalog = crate::catalog::decode(&manifest.catalog)?;
        if manifest.checkpoint.is_none() {
            // Anew: the name of one that is there may never become durable, when a sync of it has failed.
            sweep(files, manifest)?;
            files.create_directory(DIRECTORY)?;
        }
        files.create_directory(&directory_of(number))?;
        let live = log.live();
        let fold = Fold {
            files,
            to: files,
            database: manifest.database,
            log: &|visit| read::read_in_use(files, manifest, &live, &last, visit),
            manifest,
            catalog: &catalog,
            last,
            number,
            options,
            pace,
            kept: Kept::FilesAndRecords,
            known,
        };
        let folded = fold.run()?;
        if !left_out(CheckpointStep::SyncDirectories) {
            files.sync_directory(&directory_of(number))?;
            files.sync_directory(DIRECTORY)?;
            if manifest.checkpoint.is_none() {
                files.sync_directory("")?;
            }
        }
        Ok(folded)
    }

    /// Has the manifest begin with a checkpoint, and gives back the log files before.
    fn publish(
        &self,
        state: &mut State,
        log: &Log<D>,
        manifests: &Mutex<Manifests<D>>,
        checkpoint: &Checkpoint,
    ) -> Result<(), Error> {
        let mut manifests = lock(manifests);
        let before = manifests.current().clone();
        let first_log_file = log.first_needed(checkpoint.epoch).unwrap_or(before.first_log_file);
        let archived = self.archive.as_ref().filter(|_| !left_out(ArchiveStep::HoldBack)).map(Archive::next);
        let first_log_file = archived.map_or(first_log_file, |next| first_log_file.min(next));
        // A log without room does not grow for a standby.
        let is_held = |first: &u64| !log.is_tight() && log.bytes_between(*first, &log.framed()) <= ship::MOST_HELD;
        let first_log_file = self
            .shared
            .first_held()
            .filter(is_held)
            .map_or(first_log_file, |held| first_log_file.min(held.max(before.first_log_file)));
        let is_floor = !left_out(CheckpointStep::RaiseFloor);
        // More may be durable by now than the checkpoint has.
        let durable = if is_floor { before.durable.max(log.framed().epoch) } else { before.durable };
        let next = Manifest { checkpoint: Some(checkpoint.clone()), first_log_file, durable, ..before };
        if let Err(error) = manifests.write(next) {
            let is_harmless = matches!(&error, manifest::Error::TooLong { .. })
                || matches!(&error, manifest::Error::Disk(error) if error.is_full());
            state.is_in_doubt = !is_harmless;
            return Err(error.into());
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        self.note(&manifests);
        // Files that cannot be removed are tried again the next time.
        let _ = log.release(first_log_file, manifests.generation());
        log.note_checkpoint(checkpoint.bytes());
        Ok(())
    }

    /// While somebody has this, no checkpoint is made, and no file of the log or of a checkpoint goes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of a checkpoint that began at some length of the log: all of it once the log is as long as it may be, for what is written while it pauses
/// stays until it has ended. One that began late has a quarter of that length.
fn share(first: f64, begun: u64, most: u64, now: u64) -> f64 {
    let room = most.saturating_sub(begun).max(most / 4).max(1);
    let used = now.saturating_sub(begun) as f64 / room as f64;
    (first + (1.0 - first) * used).min(1.0)
}

/// How long the log is from the manifest's first file to a frame.
pub(super) fn log_bytes<D: Disk>(log: &Log<D>, manifest: &Manifest, last: &Framed) -> u64 {
    log.bytes_between(manifest.first_log_file, last)
}

fn lock<D: Disk>(manifests: &Mutex<Manifests<D>>) -> MutexGuard<'_, Manifests<D>> {
    manifests.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The manifest that counts, and its generation.
pub(crate) fn current_of<D: Disk + Clone>(manifests: &Mutex<Manifests<D>>) -> (Manifest, u64) {
    let manifests = lock(manifests);
    (manifests.current().clone(), manifests.generation())
}

fn current<D: Disk + Clone>(manifests: &Mutex<Manifests<D>>) -> Manifest {
    lock(manifests).current().clone()
}

/// The numbers of all checkpoints of which something is there.
fn numbers<D: Disk>(files: &Files<D>) -> Result<Vec<u64>, disk::Error> {
    match files.list(DIRECTORY) {
        Err(error) if error.cause == Cause::NotFound => Ok(Vec::new()),
        entries => {
            let number =
                |entry: &Entry| entry.name.parse().ok().filter(|number: &u64| number.to_string() == entry.name);
            Ok(entries?.iter().filter(|entry| entry.is_directory).filter_map(number).collect())
        }
    }
}

/// Removes all files of checkpoints that a manifest does not name. They come back if the power fails soon, and are removed again.
fn sweep<D: Disk>(files: &Files<D>, manifest: &Manifest) -> Result<(), disk::Error> {
    let named: BTreeSet<String> =
        manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files).map(|file| file.path()).collect();
    for number in numbers(files)? {
        let directory = directory_of(number);
        let mut is_needed = false;
        for entry in files.list(&directory)? {
            let path = format!("{directory}/{}", entry.name);
            if named.contains(&path) {
                is_needed = true;
            } else {
                files.remove(&path)?;
            }
        }
        if !is_needed {
            files.remove_directory(&directory)?;
        }
    }
    if manifest.checkpoint.is_some() {
        return Ok(());
    }
    match files.remove_directory(DIRECTORY) {
        // Somebody else's files stay.
        Err(error) if !matches!(error.cause, Cause::NotFound | Cause::NotEmpty) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn the_longer_the_log_the_greater_is_the_share() {
        let share = |begun, now| share(0.25, begun, 400, now);
        assert_eq!([300, 350, 400, 1000].map(|now| share(300, now)), [0.25, 0.625, 1.0, 1.0]);
        assert_eq!([0, 200, 400, 500].map(|now| share(0, now)), [0.25, 0.625, 1.0, 1.0]);
        // It began late, by and by.
        assert_eq!([500, 550, 600].map(|now| share(500, now)), [0.25, 0.625, 1.0]);
        assert_eq!(super::share(0.25, 7, 0, 9), 1.0);
    }
}
