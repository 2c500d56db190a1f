//! The log's files: made before they are needed, and used again.
//!
//! The first ones are short, and each further one is as long as all that the log has, up to a limit. So a small database takes little room, and a
//! long log has few files. A longer one is made where a frame needs it.
//!
//! A file's name is the number of its slot. Which part of the log it has, the frames in it say: so a file is used again under the name that it has, and
//! what lies in it from before is known by its lower number.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::PoisonError;

use polychron_engine::mutations::left_out;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polychron_sync::{Mutex, MutexGuard, nap};

use crate::disk::{Access, BLOCK, Disk, Error, File, Files};
use crate::steps::{CheckpointStep, Step};

/// The directory of the log.
pub(crate) const DIRECTORY: &str = "log";

/// How many files are kept to be used again.
const SPARES: usize = 2;

/// How much room is left to a checkpoint at most, in bytes, and how much of that files hold that nobody else can take.
const MOST_LEFT: u64 = 1 << 30;
const MOST_RESERVED: u64 = 16 << 20;

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
    lengths: Lengths,
    state: Mutex<State>,
    /// How many bytes the files have that are to spare, as of the last change of that.
    spare_bytes: AtomicU64,
    /// The log's last growth found no room, or the next one would: a checkpoint is wanted, which frees files.
    is_tight: AtomicBool,
    /// The log is in another file since somebody has last seen to room.
    has_grown: AtomicBool,
    /// A flush does not wait for room.
    is_given_up: AtomicBool,
}

/// How long files are that are made, in bytes: whole blocks. Where a frame needs a longer one, it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) first: u64,
    pub(crate) most: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Slots whose files are durably there and have nothing that is needed.
    spare: Vec<u32>,
    /// The same, of files that the log does not use: they hold room until a checkpoint needs it.
    reserve: Vec<u32>,
    /// Log files that are in use, by ascending numbers.
    live: Vec<Live>,
    /// How long the files of all these are.
    bytes: BTreeMap<u32, u64>,
    /// How long the files of the last checkpoint are.
    checkpoint_bytes: u64,
}

/// A log file that has frames, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) number: u64,
    pub(crate) slot: u32,
    /// The first epoch of its first frame; the file before may have a part of that one, and has none behind it.
    pub(crate) first_epoch: u64,
}

impl State {
    fn bytes_of(&self, slot: u32) -> u64 {
        self.bytes.get(&slot).copied().unwrap_or(0)
    }

    fn spare_bytes(&self) -> u64 {
        self.spare.iter().map(|slot| self.bytes_of(*slot)).sum()
    }

    fn reserve_bytes(&self) -> u64 {
        self.reserve.iter().map(|slot| self.bytes_of(*slot)).sum()
    }

    fn live_bytes(&self) -> u64 {
        self.live.iter().map(|live| self.bytes_of(live.slot)).sum()
    }

    /// The memory that a checkpoint of the last one and of the log may take.
    fn folded_bytes(&self) -> u64 {
        self.checkpoint_bytes + self.live_bytes()
    }

    /// How much of that is kept for it, be it free or held by files. With one file in use alone there is nothing that it could free.
    fn reserved_bytes(&self) -> u64 {
        if self.live.len() < 2 { 0 } else { self.folded_bytes().min(MOST_LEFT) }
    }

    /// How much room growth leaves to a checkpoint, beside the files that it takes the room of where there is no other.
    fn left_bytes(&self) -> u64 {
        let is_alone = self.live.len() + self.spare.len() < 2;
        let held = self.spare_bytes() + self.reserve_bytes();
        if is_alone { 0 } else { self.folded_bytes().saturating_sub(held).min(MOST_LEFT) }
    }
}

impl<D: Disk> Pool<D> {
    /// A pool of the files that have these numbers, and no others. No flush waits for room before [`Pool::begin`].
    pub(crate) fn new(files: Files<D>, lengths: Lengths, live: Vec<Live>) -> Result<Self, Error> {
        let measured = live.iter().map(|live| Ok((live.slot, files.open(&path_of(live.slot), Access::Read)?.bytes()?)));
        let bytes = measured.collect::<Result<_, Error>>()?;
        let state = Mutex::new(State { live, bytes, ..State::default() });
        let [is_tight, has_grown, is_given_up] = [false, false, true].map(AtomicBool::new);
        Ok(Self { files, lengths, state, spare_bytes: AtomicU64::new(0), is_tight, has_grown, is_given_up })
    }

    /// From now on a flush waits for room.
    pub(crate) fn begin(&self) {
        self.is_given_up.store(false, Ordering::Relaxed);
    }

    /// Waits no longer for room, because the log is closed.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Whether a checkpoint is wanted, for the room that it frees.
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }

    /// Whether the log is in another file since somebody has last seen to room.
    pub(crate) fn has_grown(&self) -> bool {
        self.has_grown.load(Ordering::Relaxed)
    }

    /// The files of the last checkpoint are so long.
    pub(crate) fn note_checkpoint(&self, bytes: u64) {
        self.lock().checkpoint_bytes = bytes;
    }

    /// Makes files, unless those to spare have so many bytes, as long as a checkpoint would find room beside them; and those that hold room for a small one,
    /// unless room is scarce already. It is an error if a checkpoint would not find room once the log has used so many bytes more and has gone over to its
    /// next file: the spare files are room for one of them, and not for both. Of a lack that comes next a checkpoint learns.
    pub(crate) fn fill(&self, need: u64) -> Result<(), Error> {
        let state = &mut *self.lock();
        self.has_grown.store(false, Ordering::Relaxed);
        let filled = self.fill_with(state, need.max(1));
        if filled.is_ok() && !left_out(CheckpointStep::HoldRoom) {
            self.fill_reserve(state)?;
        }
        // When the next file is used, there will be one more to leave room for.
        let next = self.next_bytes(state, 0);
        let longest = state.spare.iter().map(|slot| state.bytes_of(*slot)).max().unwrap_or(0);
        let reserved = state.reserved_bytes();
        let is_short = reserved > 0 && self.available_bytes(state) < need + longest + reserved;
        let is_tight = is_short || filled.is_err() || self.files.room() < 2 * next + state.left_bytes();
        self.is_tight.store(is_tight, Ordering::Relaxed);
        match filled {
            Err(error) if state.spare_bytes() < need.max(1) => Err(error),
            _ if is_short => Err(Error::full(DIRECTORY)),
            _ => Ok(()),
        }
    }

    /// Has as much room held as a small checkpoint takes, if the log has enough beside it; and gives up what is held for no reason, where it has not.
    fn fill_reserve(&self, state: &mut State) -> Result<(), Error> {
        let wanted = state.folded_bytes().min(MOST_RESERVED);
        let held = state.reserve_bytes();
        let left_to_log = 2 * self.next_bytes(state, 0);
        if held < wanted {
            let bytes = (wanted - held).max(self.lengths.first).next_multiple_of(BLOCK as u64);
            let room = self.files.room().saturating_sub(left_to_log);
            return match self.make(state, bytes, room) {
                Ok(slot) => {
                    state.reserve.push(slot);
                    Ok(())
                }
                Err(error) if error.is_full() => Ok(()),
                Err(error) => Err(error),
            };
        }
        let last = state.reserve.last().map_or(0, |slot| state.bytes_of(*slot));
        if last > 0 && held - last >= wanted && self.files.room() < left_to_log + state.left_bytes() {
            let kept = state.reserve.len() - 1;
            return self.remove_behind(state, |state| &mut state.reserve, kept);
        }
        Ok(())
    }

    fn fill_with(&self, state: &mut State, wanted: u64) -> Result<(), Error> {
        while state.spare_bytes() < wanted {
            let room = self.growth_bytes(state);
            // Many are needed for a long transaction, so each is as long as those so far.
            let missing = (wanted - state.spare_bytes()).max(state.spare_bytes()).min(self.lengths.most);
            let bytes = self.bounded_bytes(state, missing);
            self.create(state, bytes, room)?;
        }
        Ok(())
    }

    /// How much room there is beside what is left to a checkpoint.
    fn growth_bytes(&self, state: &State) -> u64 {
        self.files.room().saturating_sub(state.left_bytes())
    }

    /// How much room there is with that of the files that are not in use.
    fn available_bytes(&self, state: &State) -> u64 {
        self.files.room().saturating_add(state.spare_bytes() + state.reserve_bytes())
    }

    /// How long the next file is, which should have at least so many bytes: less than it should be, where there is no room for that; and a small part of what there
    /// is, for no file is freed before the log is in the next one.
    fn bounded_bytes(&self, state: &State, least: u64) -> u64 {
        let most = self.growth_bytes(state).min(self.available_bytes(state) / 4);
        self.next_bytes(state, least).min(most / BLOCK as u64 * BLOCK as u64).max(self.lengths.first)
    }

    /// How long the next file is, if it has at least so many bytes.
    fn next_bytes(&self, state: &State, least: u64) -> u64 {
        let Lengths { first, most } = self.lengths;
        state.live_bytes().clamp(first, most).max(least).next_multiple_of(BLOCK as u64)
    }

    /// A file of at least so many bytes for the log file of this number, which comes next and begins with this epoch. Waits for room, unless that was given up.
    pub(crate) fn take(&self, number: u64, first_epoch: u64, least: u64) -> Result<File<D::File>, Error> {
        loop {
            match self.try_take(Live { number, slot: 0, first_epoch }, least) {
                // What is sealed can no longer be refused. Nothing is staged meanwhile, and a checkpoint may free files.
                Err(error) if error.is_full() && !self.is_given_up.load(Ordering::Relaxed) => {
                    self.is_tight.store(true, Ordering::Relaxed);
                }
                taken => return taken,
            }
            // Nothing is locked here: a checkpoint needs the pool to free files.
            nap(200);
        }
    }

    fn try_take(&self, next: Live, least: u64) -> Result<File<D::File>, Error> {
        let state = &mut *self.lock();
        let is_long = |state: &State, slot: &u32| state.bytes_of(*slot) >= least;
        if !state.spare.iter().any(|slot| is_long(state, slot)) {
            // Of the room that is left to a checkpoint no more is taken than the frame needs.
            let bytes = self.bounded_bytes(state, least).max(least.next_multiple_of(BLOCK as u64));
            self.create(state, bytes, u64::MAX)?;
        }
        let Some(at) = state.spare.iter().position(|slot| is_long(state, slot)) else { unreachable!("it was made") };
        let slot = state.spare[at];
        let file = self.files.open(&path_of(slot), Access::Write)?;
        state.spare.remove(at);
        state.live.push(Live { slot, ..next });
        self.has_grown.store(true, Ordering::Relaxed);
        self.note_spare(state);
        Ok(file)
    }

    /// A file of just so many bytes for the log file of this number, which is never waited for: as a primary has it.
    pub(crate) fn take_exact(&self, number: u64, first_epoch: u64, bytes: u64) -> Result<File<D::File>, Error> {
        let state = &mut *self.lock();
        self.fill_exact_with(state, &[bytes])?;
        // One that is used again still has what it had, which is known by its lower number.
        let has_length = |slot: &u32| state.bytes_of(*slot) == bytes;
        let Some(at) = state.spare.iter().position(has_length) else { unreachable!("it was made") };
        let slot = state.spare[at];
        let file = self.files.open(&path_of(slot), Access::Write)?;
        state.spare.remove(at);
        state.live.push(Live { number, slot, first_epoch });
        self.note_spare(state);
        Ok(file)
    }

    /// Makes files of just these lengths, as far as none are to spare, so that there is room for them before anything is written.
    pub(crate) fn fill_exact(&self, lengths: &[u64]) -> Result<(), Error> {
        let filled = self.fill_exact_with(&mut self.lock(), lengths);
        let is_full = filled.as_ref().is_err_and(Error::is_full);
        self.is_tight.store(is_full, Ordering::Relaxed);
        filled
    }

    fn fill_exact_with(&self, state: &mut State, lengths: &[u64]) -> Result<(), Error> {
        let missing = |state: &State, bytes: u64| {
            let wanted = lengths.iter().filter(|length| **length == bytes).count();
            wanted.saturating_sub(state.spare.iter().filter(|slot| state.bytes_of(**slot) == bytes).count())
        };
        for bytes in lengths {
            if missing(state, *bytes) > 0 {
                // Those of other lengths give their room.
                let (spare, lengths_of) = (&mut state.spare, &state.bytes);
                let is_other = |slot: &u32| !lengths_of.get(slot).is_some_and(|bytes| lengths.contains(bytes));
                spare.sort_by_key(is_other);
                let kept = spare.iter().filter(|slot| !is_other(slot)).count();
                self.shorten(state, kept)?;
            }
            for _ in 0..missing(state, *bytes) {
                self.create(state, *bytes, u64::MAX)?;
            }
        }
        Ok(())
    }

    /// The files that are in use.
    pub(crate) fn live(&self) -> Vec<Live> {
        self.lock().live.clone()
    }

    /// How many bytes the files have that are to spare. No thread that makes a file is waited for.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare_bytes.load(Ordering::Relaxed)
    }

    fn note_spare(&self, state: &State) {
        self.spare_bytes.store(state.spare_bytes(), Ordering::Relaxed);
    }

    /// How long the log files with these numbers are together.
    pub(crate) fn bytes(&self, numbers: Range<u64>) -> u64 {
        let state = self.lock();
        state.live.iter().filter(|live| numbers.contains(&live.number)).map(|live| state.bytes_of(live.slot)).sum()
    }

    /// The number of the first log file that has anything of an epoch behind this one, or of the last file.
    pub(crate) fn first_needed(&self, epoch: u64) -> Option<u64> {
        let state = self.lock();
        let unneeded = state.live.windows(2).take_while(|pair| pair[1].first_epoch <= epoch).count();
        state.live.get(unneeded).map(|live| live.number)
    }

    /// The files of lower numbers are needed no longer: a manifest that says so is durable. The longest are kept.
    pub(crate) fn release(&self, first_number: u64) -> Result<(), Error> {
        let state = &mut *self.lock();
        let released = state.live.extract_if(.., |live| live.number < first_number).map(|live| live.slot);
        state.spare.extend(released);
        let bytes = &state.bytes;
        state.spare.sort_by_key(|slot| std::cmp::Reverse(bytes.get(slot).copied()));
        self.note_spare(state);
        self.shorten(state, SPARES)
    }

    /// Gives up room for the sake of a checkpoint that finds none: what is held for it, and only when that is gone the files that are to spare. Answers whether
    /// there was any.
    pub(crate) fn give_up_room(&self) -> Result<bool, Error> {
        let state = &mut *self.lock();
        let is_held = !state.reserve.is_empty();
        let is_any = is_held || !state.spare.is_empty();
        let given_up =
            if is_held { self.remove_behind(state, |state| &mut state.reserve, 0) } else { self.shorten(state, 0) };
        given_up.map(|()| is_any)
    }

    fn shorten(&self, state: &mut State, count: usize) -> Result<(), Error> {
        let removed = self.remove_behind(state, |state| &mut state.spare, count);
        self.note_spare(state);
        removed
    }

    /// Removes files of one kind, but for the first ones.
    fn remove_behind(
        &self,
        state: &mut State,
        kind: fn(&mut State) -> &mut Vec<u32>,
        count: usize,
    ) -> Result<(), Error> {
        let mut is_removed = false;
        while let Some(slot) = kind(state).get(count).copied() {
            self.files.remove(&path_of(slot))?;
            kind(state).remove(count);
            state.bytes.remove(&slot);
            is_removed = true;
        }
        if is_removed { self.files.sync_directory(DIRECTORY) } else { Ok(()) }
    }

    /// Makes a file to spare of so many bytes, if that is no more than may be taken.
    fn create(&self, state: &mut State, bytes: u64, room: u64) -> Result<(), Error> {
        let slot = self.make(state, bytes, room)?;
        state.spare.push(slot);
        self.note_spare(state);
        Ok(())
    }

    /// Makes a file of so many bytes, if that is no more than may be taken.
    fn make(&self, state: &mut State, bytes: u64, room: u64) -> Result<u32, Error> {
        let slot = (0..).find(|slot| !state.bytes.contains_key(slot)).unwrap_or(u32::MAX);
        let path = path_of(slot);
        if bytes > room {
            return Err(Error::full(&path));
        }
        self.files.create(&path, bytes)?;
        if !left_out(Step::SyncNames) {
            self.files.sync_directory(DIRECTORY)?;
        }
        state.bytes.insert(slot, bytes);
        Ok(slot)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
