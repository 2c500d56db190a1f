//! The log's files: made before they are needed, and used again.
//!
//! A file's name is the number of its slot. Which part of the log it has, the frames in it say: so a file is used again under the name that it has, and
//! what lies in it from before is known by its lower number.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use polychron_engine::mutations::left_out;
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::{Mutex, MutexGuard, nap};

use crate::disk::{Access, Disk, Error, File, Files};
use crate::steps::Step;

/// The directory of the log.
pub(crate) const DIRECTORY: &str = "log";

/// How many files are kept to be used again.
const SPARES: usize = 2;

/// The path of a slot's file.
pub(crate) fn path_of(slot: u32) -> String {
    format!("{DIRECTORY}/{slot}.log")
}

/// The slot of a name in the log's directory.
pub(crate) fn slot_of(name: &str) -> Option<u32> {
    let slot = name.strip_suffix(".log")?.parse().ok()?;
    (format!("{slot}.log") == name).then_some(slot)
}

/// All files of the log.
pub(crate) struct Pool<D> {
    files: Files<D>,
    file_bytes: u64,
    state: Mutex<State>,
    is_given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Slots whose files are durably there and have nothing that is needed.
    spare: Vec<u32>,
    /// Log files that are in use, by ascending numbers.
    live: Vec<Live>,
}

/// A log file that has frames, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) number: u64,
    pub(crate) slot: u32,
    /// The first epoch of its first frame; the file before may have a part of that one, and has none behind it.
    pub(crate) first_epoch: u64,
}

impl<D: Disk> Pool<D> {
    /// A pool of the files that have these numbers, and no others.
    pub(crate) fn new(files: Files<D>, file_bytes: u64, live: Vec<Live>) -> Self {
        let state = Mutex::new(State { spare: Vec::new(), live });
        Self { files, file_bytes, state, is_given_up: AtomicBool::new(false) }
    }

    /// Waits no longer for room, because the log is closed.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// How long files are that are made.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Makes a file, unless there is one to spare.
    pub(crate) fn fill(&self) -> Result<(), Error> {
        let state = &mut *self.lock();
        if state.spare.is_empty() { self.create(state) } else { Ok(()) }
    }

    /// A file for the log file of this number, which comes next and begins with this epoch.
    pub(crate) fn take(&self, number: u64, first_epoch: u64) -> Result<File<D::File>, Error> {
        let state = &mut *self.lock();
        loop {
            if state.spare.is_empty() {
                self.create_in_time(state)?;
            }
            let slot = state.spare[0];
            let file = self.files.open(&path_of(slot), Access::Write)?;
            state.spare.remove(0);
            if file.bytes()? == self.file_bytes {
                state.live.push(Live { number, slot, first_epoch });
                return Ok(file);
            }
            // It was made when the options were others.
            self.files.remove(&path_of(slot))?;
        }
    }

    /// Makes a file, and waits for room where there is none: what is sealed cannot be refused any more. Nothing is admitted meanwhile.
    fn create_in_time(&self, state: &mut State) -> Result<(), Error> {
        loop {
            match self.create(state) {
                Err(error) if error.is_full() && !self.is_given_up.load(Ordering::Relaxed) => nap(200),
                result => return result,
            }
        }
    }

    /// The files that are in use.
    pub(crate) fn live(&self) -> Vec<Live> {
        self.lock().live.clone()
    }

    /// The number of the first log file that has anything of an epoch behind this one, or of the last file.
    pub(crate) fn first_needed(&self, epoch: u64) -> Option<u64> {
        let state = self.lock();
        let unneeded = state.live.windows(2).take_while(|pair| pair[1].first_epoch <= epoch).count();
        state.live.get(unneeded).map(|live| live.number)
    }

    /// The files of lower numbers are needed no longer: a manifest that says so is durable.
    pub(crate) fn release(&self, first_number: u64) -> Result<(), Error> {
        let state = &mut *self.lock();
        let released = state.live.extract_if(.., |live| live.number < first_number).map(|live| live.slot);
        state.spare.extend(released);
        let mut is_removed = false;
        while state.spare.len() > SPARES {
            self.files.remove(&path_of(state.spare[SPARES]))?;
            state.spare.remove(SPARES);
            is_removed = true;
        }
        if is_removed { self.files.sync_directory(DIRECTORY) } else { Ok(()) }
    }

    fn create(&self, state: &mut State) -> Result<(), Error> {
        let used: BTreeSet<u32> = state.live.iter().map(|live| live.slot).chain(state.spare.iter().copied()).collect();
        let slot = (0..).find(|slot| !used.contains(slot)).unwrap_or(u32::MAX);
        self.files.create(&path_of(slot), self.file_bytes)?;
        if !left_out(Step::SyncNames) {
            self.files.sync_directory(DIRECTORY)?;
        }
        state.spare.push(slot);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
