//! Versions and the chains that they form (Figure 3 of the paper).
//!
//! A version is made before its row is known: a *placeholder*, whose state is the planned transaction that will fill it. The end of a
//! version is the beginning of the one above it, so it is not stored: that would write a line which nobody else needs.
//!
//! ```text
//!   chain ──► version, begin 40 ──► version, begin 12 ──► …     newest first
//!             state: planned        state: row
//! ```

use std::cell::UnsafeCell;
use std::ptr::NonNull;

use polychron_base::{Error, Stop};
use polychron_index::{Handle, handle_of, pointer_of};
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicU64, Ordering};

use super::planned::Planned;
use super::timestamp::Timestamp;

/// Bytes before a version's row.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes of a version that are fetched ahead of their use; the processor goes on by itself.
const FETCHED_BYTES: usize = 1280;

/// Bytes of a chain; a model checker's words are larger.
const CHAIN_BYTES: usize = size_of::<Head>().next_multiple_of(16);
const _: () = assert!(polychron_sync::MODELLED || CHAIN_BYTES == 16);

/// The state of a version that has a row. Transactions lie at multiples of 8, so no address is so small.
const ROW: u64 = 1;
/// The state of a version that says: from here on the key is absent.
const ABSENT: u64 = 2;
/// The state of a version whose row lies in a block that the version above gives back.
const LENT_ROW: u64 = 3;
/// The state of an intent whose transaction, and those of all intents below it, are complete.
const ALL_COMPLETE: u64 = 4;
/// Which of these it is; none of them where it is a transaction. The rest is the version above, of one that collection has looked at.
const KIND: u64 = 7;
/// The head of a chain that is being taken out of its index.
const CLOSED: u64 = 1;
/// The mark of a chain that lies beside its index, next to the address of its newest version. Versions lie at multiples of 8.
const SEALED: u64 = 2;

#[repr(C)]
struct Header {
    begin: Timestamp,
    /// The version below; it may be gone when no transaction is left that could want it, so only those that want it follow.
    previous: AtomicU64,
    state: AtomicU64,
    /// Words of the row, written by who fills the version.
    len: UnsafeCell<u32>,
    /// Words behind the header, at least one where there can be a row.
    capacity: u32,
}

/// A version of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(NonNull<Header>);

/// What a version holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its transaction was not executed yet. The transaction may be another one by now: then the version is not pending any more.
    Pending(NonNull<Planned>),
    /// A row.
    Row,
    /// Nothing.
    Absent,
}

impl Version {
    /// A version that the transaction will fill, with room for a row of `capacity` words.
    pub(super) fn allocate(
        begin: Timestamp,
        producer: NonNull<Planned>,
        capacity: usize,
        guard: &Guard<'_>,
    ) -> Result<Self, Error> {
        let place = guard.allocate(HEADER_BYTES + 8 * capacity)?.cast::<Header>();
        let state = AtomicU64::new(producer.as_ptr().expose_provenance() as u64);
        let header =
            Header { begin, previous: AtomicU64::new(0), state, len: UnsafeCell::new(0), capacity: capacity as u32 };
        // SAFETY: the block is as large as that, aligned to 16 bytes, and nobody else knows it.
        unsafe { place.write(header) };
        Ok(Self(place))
    }

    fn header(&self) -> &Header {
        // SAFETY: who holds a version was told by its chain that it stays: see `docs/protocols/bohm.md`.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn begin(self) -> Timestamp {
        self.header().begin
    }

    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    #[inline]
    fn from_address(address: u64) -> Option<Self> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).map(Self)
    }

    /// The version below.
    #[inline]
    pub(super) fn previous(self) -> Option<Self> {
        // Acquire: pairs with the release of who put that version there.
        Self::from_address(self.header().previous.load(Ordering::Acquire))
    }

    /// Cuts off what is below.
    pub(super) fn forget_previous(self) {
        self.header().previous.store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn state(self) -> State {
        // Acquire: pairs with the release in `finish`, so that the row is there.
        let state = self.header().state.load(Ordering::Acquire);
        match state & KIND {
            ROW | LENT_ROW => State::Row,
            0 => {
                let producer = std::ptr::with_exposed_provenance_mut(state as usize);
                State::Pending(NonNull::new(producer).expect("a version has a producer"))
            }
            _ => State::Absent,
        }
    }

    /// The version above, where collection has said which one that is ([`Self::settle`]).
    #[inline]
    pub(super) fn above(self) -> Option<Self> {
        let state = self.header().state.load(Ordering::Relaxed);
        // A transaction is not a version, and its address is no kind.
        if state & KIND == 0 { None } else { Self::from_address(state & !KIND) }
    }

    /// Whether collection has looked at the version, and left it for a snapshot.
    #[inline]
    pub(super) fn is_settled(self) -> bool {
        self.above().is_some()
    }

    /// Leaves the version for a snapshot. From now on it is known which one is above, until one of the two is gone. The caller collects its chain,
    /// and the batch of the version above is finished, so nobody else changes the state any more.
    pub(super) fn settle(self, above: Self) {
        let state = &self.header().state;
        let kind = state.load(Ordering::Relaxed) & KIND;
        // Release: pairs with the acquire in `state`: the row was there before.
        state.store(above.address() | kind, Ordering::Release);
    }

    /// Takes the version out from between the one above and the one below, which is settled. Who is at it finds its way on. The caller collects
    /// its chain, and gives the version back.
    pub(super) fn unlink(self, above: Self, below: Option<Self>) {
        if let Some(below) = below {
            // A row that was taken over from below goes back there.
            // SAFETY: the transactions of both are complete.
            let goes_back = unsafe { below.has_lent_to(self) };
            if goes_back {
                self.header().state.store(LENT_ROW, Ordering::Release);
                below.header().state.store(ROW, Ordering::Release);
            }
            below.settle(above);
        }
        // Release: pairs with the acquire in `previous`.
        above.header().previous.store(below.map_or(0, Self::address), Ordering::Release);
    }

    /// Whether the row lies in a block that the version above has taken over, and has.
    ///
    /// # Safety
    /// Nobody puts a row into either.
    unsafe fn has_lent_to(self, above: Self) -> bool {
        let is_lent = self.header().state.load(Ordering::Relaxed) & KIND == LENT_ROW;
        // SAFETY: the caller says so; a version whose row was taken over has one in a block.
        is_lent && unsafe { above.has_block() && above.start() == self.start() }
    }

    /// Makes known what the version holds: the row that was put, or that the key is absent.
    ///
    /// # Safety
    /// The caller executes the transaction of this version.
    #[inline]
    pub(super) unsafe fn finish(self, has_row: bool) {
        // Release: pairs with the acquire in `state`.
        self.header().state.store(if has_row { ROW } else { ABSENT }, Ordering::Release);
    }

    /// Says of an intent that its transaction, and those of all intents below, are complete.
    pub(super) fn set_all_complete(self) {
        // Release: hands on what the caller has seen of them.
        self.header().state.store(ALL_COMPLETE, Ordering::Release);
    }

    /// Whether somebody has said so.
    pub(super) fn is_all_complete(self) -> bool {
        // Acquire: pairs with the release above.
        self.header().state.load(Ordering::Acquire) == ALL_COMPLETE
    }

    /// The words of the row.
    ///
    /// # Safety
    /// The version has a row, or the caller executes its transaction and has put one; nobody puts another one while the words
    /// are borrowed.
    #[inline]
    pub(super) unsafe fn words<'a>(self) -> &'a [u64] {
        // SAFETY: the caller promises that who wrote the length and the words is done, or is the caller.
        unsafe { std::slice::from_raw_parts(self.start(), *self.header().len.get() as usize) }
    }

    /// The same, to be changed.
    ///
    /// # Safety
    /// As for [`Version::put`], and a row was put.
    #[inline]
    pub(super) unsafe fn words_mut<'a>(self) -> &'a mut [u64] {
        // SAFETY: the caller says so.
        unsafe { std::slice::from_raw_parts_mut(self.start(), *self.header().len.get() as usize) }
    }

    /// Where the row lies: behind the header, or in a block of its own whose address stands there.
    ///
    /// # Safety
    /// As for [`Version::words`].
    #[inline]
    unsafe fn start(self) -> *mut u64 {
        // SAFETY: the capacity says how much lies behind the header; the length is the caller's to read.
        unsafe {
            let inline = self.0.as_ptr().add(1).cast::<u64>();
            if *self.header().len.get() <= self.header().capacity {
                inline
            } else {
                std::ptr::with_exposed_provenance_mut(inline.read() as usize)
            }
        }
    }

    /// Forgets the row that was put, and gives back the room it had elsewhere.
    ///
    /// # Safety
    /// As for [`Version::put`].
    pub(super) unsafe fn clear(self, guard: &Guard<'_>) {
        // SAFETY: the caller says so.
        unsafe {
            self.free_block(guard);
            *self.header().len.get() = 0;
        }
    }

    /// Puts a row.
    ///
    /// # Safety
    /// The caller executes the transaction of this version, and no row of it is borrowed.
    #[inline]
    pub(super) unsafe fn put(self, words: &[u64], guard: &Guard<'_>) -> Result<(), Error> {
        // SAFETY: nobody else looks at the row of a version that is pending.
        unsafe {
            let len = self.header().len.get();
            if words.len() > self.header().capacity as usize || *len > self.header().capacity {
                self.put_elsewhere(words.len(), guard)?;
            }
            *len = words.len() as u32;
            self.start().copy_from_nonoverlapping(words.as_ptr(), words.len());
        }
        Ok(())
    }

    /// Words behind the header of a version that can take over this one's row.
    ///
    /// # Safety
    /// As for [`Version::words`].
    pub(super) unsafe fn words_to_take_over(self) -> usize {
        // SAFETY: the caller says so.
        let len = unsafe { *self.header().len.get() };
        if len <= self.header().capacity { (len as usize).max(1) } else { 1 }
    }

    /// Puts the row of the version below, which needs no memory: a row that has a block of its own is taken over with it.
    ///
    /// # Safety
    /// As for [`Version::put`], and nothing was put; the version below has a row, this one has room to take it over, and no other one took it
    /// over.
    pub(super) unsafe fn put_again(self, below: Self) {
        // SAFETY: nobody else looks at the row of a version that is pending. What the version below has stays as long as this one.
        unsafe {
            debug_assert!(self.header().capacity as usize >= below.words_to_take_over(), "the row has room");
            let len = *below.header().len.get();
            let is_taken_over = len > below.header().capacity && len > self.header().capacity;
            let inline = self.0.as_ptr().add(1).cast::<u64>();
            if is_taken_over {
                inline.write(below.start().expose_provenance() as u64);
                // Release: keeps the row known to who learns of it by this.
                below.header().state.store(LENT_ROW, Ordering::Release);
            } else {
                inline.copy_from_nonoverlapping(below.start(), len as usize);
            }
            *self.header().len.get() = len;
        }
    }

    /// Whether the row lies in a block that is this version's.
    ///
    /// # Safety
    /// Nobody puts a row.
    unsafe fn has_block(self) -> bool {
        // SAFETY: the caller says so.
        let len = unsafe { *self.header().len.get() };
        len > self.header().capacity && self.header().state.load(Ordering::Acquire) & KIND != LENT_ROW
    }

    /// Makes room for a row of `count` words where it has none, and gives back the room it had elsewhere.
    #[cold]
    unsafe fn put_elsewhere(self, count: usize, guard: &Guard<'_>) -> Result<(), Error> {
        let block = match count > self.header().capacity as usize {
            true => Some(guard.allocate(8 * count)?),
            false => None,
        };
        // SAFETY: as in `put`; there is at least one word behind the header of a version that can have a row.
        unsafe {
            self.free_block(guard);
            if let Some(block) = block {
                debug_assert!(self.header().capacity > 0, "a version without room has no row");
                self.0.as_ptr().add(1).cast::<u64>().write(block.as_ptr().expose_provenance() as u64);
            }
        }
        Ok(())
    }

    /// Gives a block of the row's own back.
    ///
    /// # Safety
    /// Nobody reads the row any more.
    unsafe fn free_block(self, guard: &Guard<'_>) {
        // SAFETY: the length is larger than the capacity only where the row lies in a block of that length.
        unsafe {
            let len = *self.header().len.get();
            if self.has_block() {
                let block = NonNull::new(self.start()).expect("a row lies somewhere");
                guard.free(block.cast(), 8 * len as usize);
            }
        }
    }

    /// Gives the version's memory back at once.
    ///
    /// # Safety
    /// No transaction can come to it any more.
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        let bytes = HEADER_BYTES + 8 * self.header().capacity as usize;
        // SAFETY: the caller says so; the block was allocated with that size.
        unsafe {
            self.free_block(guard);
            guard.free(self.0.cast(), bytes);
        }
    }

    /// Gives the version's memory back when no guard of now is left.
    ///
    /// # Safety
    /// Threads that pin from now on cannot come to it.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: the caller says so; the blocks were allocated with those sizes.
        unsafe {
            let len = *self.header().len.get();
            if self.has_block() {
                let block = NonNull::new(self.start()).expect("a row lies somewhere");
                guard.retire(block.cast(), 8 * len as usize);
            }
            guard.retire(self.0.cast(), HEADER_BYTES + 8 * self.header().capacity as usize);
        }
    }

    /// Starts fetching the version, and the beginning of its row.
    #[inline]
    pub(super) fn prefetch(self) {
        polychron_sync::prefetch_read(self.0.as_ptr());
    }

    /// Starts fetching the rest of a row that has so many words behind the header. Reads nothing, so the version may be gone.
    #[inline]
    pub(super) fn prefetch_row(self, words: usize) {
        for offset in (64..(HEADER_BYTES + 8 * words).min(FETCHED_BYTES)).step_by(64) {
            polychron_sync::prefetch_read(self.0.as_ptr().wrapping_byte_add(offset));
        }
    }
}

/// The versions of a key, newest first.
#[derive(Debug)]
pub(super) struct Head(AtomicU64);

impl Head {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The newest version.
    #[inline]
    pub(super) fn newest(&self) -> Option<Version> {
        // Acquire: pairs with the release of who put the version there.
        let address = self.0.load(Ordering::Acquire);
        if address == CLOSED { None } else { Version::from_address(address & !SEALED) }
    }

    /// The newest version that does not begin after a timestamp.
    #[inline]
    pub(super) fn at(&self, timestamp: Timestamp) -> Option<Version> {
        let mut version = self.newest()?;
        while version.begin() > timestamp {
            version = version.previous()?;
        }
        Some(version)
    }

    /// Puts a version on top, which begins after all others; answers the one it supersedes. `Err`: the chain is closed.
    #[inline]
    pub(super) fn push(&self, version: Version) -> Result<Option<Version>, Closed> {
        let mut newest = self.0.load(Ordering::Acquire);
        loop {
            if newest & (CLOSED | SEALED) != 0 {
                return Err(Closed);
            }
            version.header().previous.store(newest, Ordering::Relaxed);
            // Release: who finds the version finds it whole. Acquire: another one came in between.
            let exchanged = self.0.compare_exchange(newest, version.address(), Ordering::AcqRel, Ordering::Acquire);
            match exchanged {
                Ok(_) => return Ok(Version::from_address(newest)),
                Err(other) => newest = other,
            }
        }
    }

    /// Puts a version where it belongs, perhaps below others; answers which version is now superseded, and by which one. Below the
    /// newest one only the thread that executes the latest transaction of those that may write here unplanned does so, and it is alone.
    pub(super) fn insert(&self, version: Version) -> Result<Option<(Version, Version)>, Closed> {
        let begin = version.begin();
        loop {
            let newest = self.0.load(Ordering::Acquire);
            if newest & (CLOSED | SEALED) != 0 {
                return Err(Closed);
            }
            let mut above = None;
            let mut below = Version::from_address(newest);
            while let Some(other) = below.filter(|other| other.begin() > begin) {
                above = Some(other);
                below = other.previous();
            }
            debug_assert!(below.is_none_or(|other| other.begin() < begin), "a transaction has one version of a key");
            version.header().previous.store(below.map_or(0, Version::address), Ordering::Relaxed);
            match above {
                Some(above) => {
                    // Release: pairs with the acquire in `previous`.
                    above.header().previous.store(version.address(), Ordering::Release);
                    return Ok(Some((version, above)));
                }
                None => {
                    // Release: pairs with the acquire in `newest`.
                    let exchanged =
                        self.0.compare_exchange(newest, version.address(), Ordering::AcqRel, Ordering::Relaxed);
                    if exchanged.is_ok() {
                        return Ok(below.map(|below| (below, version)));
                    }
                }
            }
        }
    }

    /// Of a list of intents: calls `wait` with each transaction before a timestamp that is pending, from the latest on down to those that are
    /// known to be complete.
    pub(super) fn await_pending(
        &self,
        before: Timestamp,
        finished: u64,
        mut wait: impl FnMut(NonNull<Planned>, Timestamp) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let (mut next, mut latest) = (self.newest(), None);
        while let Some(intent) = next {
            if intent.begin().batch() <= finished || intent.is_all_complete() {
                break;
            }
            if intent.begin() < before {
                if let State::Pending(producer) = intent.state() {
                    wait(producer, intent.begin())?;
                }
                latest.get_or_insert(intent);
            }
            next = intent.previous();
        }
        if let Some(latest) = latest {
            // The next reader need not go further down than here.
            latest.set_all_complete();
        }
        Ok(())
    }

    /// Closes the chain if this version, which says that the key is absent, is its newest. The caller alone seals and closes it.
    pub(super) fn close(&self, version: Version) -> bool {
        let newest = version.address() | if self.is_sealed() { SEALED } else { 0 };
        // Relaxed: nothing is read through the head from now on. A closed chain is as good as an absent key.
        self.0.compare_exchange(newest, CLOSED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Keeps further versions out of the chain if this one, which says that the key is absent, is its newest. What is there is read as before.
    pub(super) fn seal(&self, version: Version) -> bool {
        // Relaxed: an exchange hands on what was released by who put the version there.
        let sealed = version.address() | SEALED;
        self.0.compare_exchange(version.address(), sealed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether the chain was sealed, for who may seal it.
    pub(super) fn is_sealed(&self) -> bool {
        let newest = self.0.load(Ordering::Relaxed);
        newest & SEALED != 0
    }
}

/// The chain is being taken out of its index, or lies beside it; who wants the key looks it up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// A chain in memory of its own, to which an index leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain(NonNull<Head>);

impl Chain {
    pub(super) fn allocate(guard: &Guard<'_>) -> Result<Self, Error> {
        let place = guard.allocate(CHAIN_BYTES)?.cast::<Head>();
        // SAFETY: the block has room for a head, is aligned to 16 bytes, and nobody else knows it.
        unsafe { place.write(Head::new()) };
        Ok(Self(place))
    }

    /// The chain behind a handle.
    ///
    /// # Safety
    /// The handle was found in an index of this protocol under a guard that lives as long as the chain is used.
    #[inline]
    pub(super) unsafe fn from_handle(handle: Handle) -> Self {
        Self(pointer_of(handle))
    }

    #[inline]
    pub(super) fn handle(self) -> Handle {
        handle_of(self.0)
    }

    #[inline]
    pub(super) fn head<'a>(self) -> &'a Head {
        // SAFETY: see `from_handle`: the guard keeps the memory.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn prefetch(self) {
        polychron_sync::prefetch_read(self.0.as_ptr());
    }

    /// Gives a chain back that no index took.
    ///
    /// # Safety
    /// Nobody else knows it.
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: the caller says so.
        unsafe { guard.free(self.0.cast(), CHAIN_BYTES) }
    }

    /// Gives a chain back that was taken out of its index; its versions are given back by who superseded them.
    ///
    /// # Safety
    /// Threads that pin from now on cannot find it.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: the caller says so.
        unsafe { guard.retire(self.0.cast(), CHAIN_BYTES) }
    }
}
