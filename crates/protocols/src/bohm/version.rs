//! Versions and the chains that they form (Figure 3 of the paper).
//!
//! A version is made before its row is known: a *placeholder*, whose state is the planned transaction that will fill it. The end of a
//! version is the beginning of the one above it, so it is not stored: that would write a line which nobody else needs.
//!
//! ```text
//!   chain ──► version, begin 40 ──► version, begin 12 ──► …     newest first
//!             state: planned        state: row
//! ```

use std::marker::PhantomData;
use std::num::{NonZeroU64, NonZeroUsize};
use std::ptr::NonNull;

use polychron_base::Error;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::planned::Planned;
use super::timestamp::Timestamp;

/// Bytes before a version's row.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes of a version that are fetched ahead of their use; the processor goes on by itself.
const FETCHED_BYTES: usize = 1280;

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

#[repr(C)]
struct Header {
    begin: Timestamp,
    /// The version below; it may be gone when no transaction is left that could want it, so only those that want it follow.
    previous: AtomicU64,
    state: AtomicU64,
    /// Words of the row, written by who fills the version.
    len: AtomicU32,
    /// Words behind the header, at least one where there can be a row.
    capacity: u32,
}

/// A version of a row, which stays for `'g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version<'g> {
    place: NonNull<Header>,
    _stays: PhantomData<&'g Header>,
}

/// Where a version lies, or lay: it may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawVersion(NonZeroU64);

/// A version that no chain has, and nobody else knows.
#[derive(Debug)]
pub(super) struct Fresh<'g>(Version<'g>);

/// A version that its transaction fills. Nobody else looks at its row.
#[derive(Debug)]
pub(super) struct Filling<'g>(Version<'g>);

/// A version that was superseded, for the one who gives it back.
#[derive(Debug)]
pub(super) struct Old {
    version: RawVersion,
    /// The version above, which was this one when it was superseded; others may have been put in between since.
    above: RawVersion,
}

/// What a version holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum State<'g> {
    /// Its transaction was not executed yet. The transaction may be another one by now: then the version is not pending any more.
    Pending(&'g Planned),
    /// A row.
    Row,
    /// Nothing.
    Absent,
}

impl RawVersion {
    #[inline]
    pub(super) fn from_address(address: u64) -> Option<Self> {
        NonZeroU64::new(address).map(Self)
    }

    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0.get()
    }

    /// The version.
    ///
    /// # Safety
    /// The address is of a version, which stays for `'g`.
    #[inline]
    pub(super) unsafe fn get<'g>(self) -> Version<'g> {
        let address = NonZeroUsize::try_from(self.0).expect("addresses have the machine's width");
        Version { place: NonNull::with_exposed_provenance(address), _stays: PhantomData }
    }

    /// The version, for models, which make it and put it in a chain in different threads.
    ///
    /// # Safety
    /// No chain has the version, and nothing else that this answers is used.
    #[cfg(all(test, loom))]
    pub(super) unsafe fn fresh<'g>(self) -> Fresh<'g> {
        // SAFETY: the caller says so.
        Fresh(unsafe { self.get() })
    }

    /// Starts fetching the version, and the beginning of its row.
    #[inline]
    pub(super) fn prefetch(self) {
        self.prefetch_at(0);
    }

    /// Starts fetching the rest of a row that has so many words behind the header. Reads nothing, so the version may be gone.
    #[inline]
    pub(super) fn prefetch_row(self, words: usize) {
        (64..(HEADER_BYTES + 8 * words).min(FETCHED_BYTES)).step_by(64).for_each(|offset| self.prefetch_at(offset));
    }

    #[inline]
    fn prefetch_at(self, offset: usize) {
        let place = std::ptr::without_provenance::<u8>(self.0.get() as usize);
        polychron_sync::prefetch_read(place.wrapping_byte_add(offset));
    }
}

impl Old {
    /// Made once of each version, by the chain.
    pub(super) fn new(version: RawVersion, above: RawVersion) -> Self {
        Self { version, above }
    }

    pub(super) fn version(&self) -> RawVersion {
        self.version
    }

    /// The version above when this one was superseded.
    pub(super) fn above(&self) -> RawVersion {
        self.above
    }
}

impl<'g> Fresh<'g> {
    pub(super) fn raw(&self) -> RawVersion {
        self.0.raw()
    }

    pub(super) fn begin(&self) -> Timestamp {
        self.0.begin()
    }

    /// Says which version will be below.
    #[inline]
    pub(super) fn set_below(&self, below: Option<RawVersion>) {
        self.0.set_below(below, Ordering::Relaxed);
    }

    /// Leaves the version to who has its address.
    pub(super) fn keep(self) {}

    /// Gives the memory back at once.
    pub(super) fn free(self, guard: &Guard<'_>) {
        // SAFETY: nobody else knows the version.
        unsafe { self.0.free(guard) }
    }

    /// To be filled before a chain has it, by tests.
    #[cfg(test)]
    pub(super) fn filling(&mut self) -> Filling<'_> {
        Filling(self.0)
    }
}

impl<'g> Version<'g> {
    /// A version that the transaction will fill, with room for a row of `capacity` words.
    ///
    /// # Safety
    /// The transaction's memory stays as long as somebody may find the version.
    pub(super) unsafe fn allocate(
        begin: Timestamp,
        producer: &Planned,
        capacity: usize,
        guard: &'g Guard<'_>,
    ) -> Result<Fresh<'g>, Error> {
        let place = guard.allocate(HEADER_BYTES + 8 * capacity)?.cast::<Header>();
        let state = AtomicU64::new(std::ptr::from_ref(producer).expose_provenance() as u64);
        let header =
            Header { begin, previous: AtomicU64::new(0), state, len: AtomicU32::new(0), capacity: capacity as u32 };
        // SAFETY: the block is as large as that, aligned to 16 bytes, and nobody else knows it.
        unsafe { place.write(header) };
        Ok(Fresh(Self { place, _stays: PhantomData }))
    }

    #[inline]
    fn header(&self) -> &'g Header {
        // SAFETY: the version stays for that time.
        unsafe { self.place.as_ref() }
    }

    #[inline]
    pub(super) fn begin(self) -> Timestamp {
        self.header().begin
    }

    #[inline]
    pub(super) fn raw(self) -> RawVersion {
        let address = self.place.expose_provenance();
        RawVersion(NonZeroU64::try_from(address).expect("addresses have the machine's width"))
    }

    #[inline]
    fn address(self) -> u64 {
        self.raw().address()
    }

    /// The version below. It may be gone when no transaction is left that could want it.
    #[inline]
    pub(super) fn below(self) -> Option<RawVersion> {
        // Acquire: pairs with the release of who put that version there.
        RawVersion::from_address(self.header().previous.load(Ordering::Acquire))
    }

    /// Says which version is below, of one that no chain has yet, or with a release that makes that one known.
    #[inline]
    pub(super) fn set_below(self, below: Option<RawVersion>, order: Ordering) {
        self.header().previous.store(below.map_or(0, RawVersion::address), order);
    }

    /// Cuts off what is below.
    pub(super) fn forget_below(self) {
        self.header().previous.store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn state(self) -> State<'g> {
        // Acquire: pairs with the release in `finish`, so that the row is there.
        let state = self.header().state.load(Ordering::Acquire);
        match state & KIND {
            ROW | LENT_ROW => State::Row,
            0 => {
                let producer = NonNull::new(std::ptr::with_exposed_provenance_mut::<Planned>(state as usize));
                // SAFETY: who allocated the version said that the transaction's memory stays.
                State::Pending(unsafe { producer.expect("a version has a producer").as_ref() })
            }
            _ => State::Absent,
        }
    }

    /// The version above, where collection has said which one that is ([`Self::settle`]).
    #[inline]
    pub(super) fn above(self) -> Option<RawVersion> {
        let state = self.header().state.load(Ordering::Relaxed);
        // A transaction is not a version, and its address is no kind.
        if state & KIND == 0 { None } else { RawVersion::from_address(state & !KIND) }
    }

    /// Whether collection has looked at the version, and left it for a snapshot.
    #[inline]
    pub(super) fn is_settled(self) -> bool {
        self.above().is_some()
    }

    /// Leaves the version for a snapshot. From now on it is known which one is above, until one of the two is gone.
    ///
    /// # Safety
    /// The caller collects the chain, and the batch of the version above is finished, so nobody else changes the state any more.
    pub(super) unsafe fn settle(self, above: Version<'_>) {
        let state = &self.header().state;
        let kind = state.load(Ordering::Relaxed) & KIND;
        // Release: pairs with the acquire in `state`: the row was there before.
        state.store(above.address() | kind, Ordering::Release);
    }

    /// Takes the version out from between the one above and the one below, which is settled. Who is at it finds its way on.
    ///
    /// # Safety
    /// As for [`Version::settle`]; the caller gives the version back.
    pub(super) unsafe fn unlink(self, above: Version<'_>, below: Option<Version<'_>>) {
        if let Some(below) = below {
            // A row that was taken over from below goes back there.
            let is_lent = below.header().state.load(Ordering::Relaxed) & KIND == LENT_ROW;
            // SAFETY: the transactions of both are complete; a version whose row was taken over has one in a block. The caller says the rest.
            unsafe {
                if is_lent && self.has_block() && self.start() == below.start() {
                    self.header().state.store(LENT_ROW, Ordering::Release);
                    below.header().state.store(ROW, Ordering::Release);
                }
                below.settle(above);
            }
        }
        // Release: pairs with the acquire in `below`.
        above.header().previous.store(below.map_or(0, Version::address), Ordering::Release);
    }

    /// Says of an intent that its transaction, and those of all intents below, are complete. Where there can be a row the state tells of that.
    pub(super) fn set_all_complete(self) {
        if self.header().capacity == 0 {
            // Release: hands on what the caller has seen of them.
            self.header().state.store(ALL_COMPLETE, Ordering::Release);
        }
    }

    /// Whether somebody has said so.
    pub(super) fn is_all_complete(self) -> bool {
        // Acquire: pairs with the release above.
        self.header().state.load(Ordering::Acquire) == ALL_COMPLETE
    }

    /// The version, to be filled.
    ///
    /// # Safety
    /// The caller executes the transaction of this version, and nothing of its row is borrowed while this is used.
    #[inline]
    pub(super) unsafe fn fill(self) -> Filling<'g> {
        Filling(self)
    }

    /// The words of the row.
    ///
    /// # Safety
    /// The version has a row, or the caller executes its transaction; nobody puts another one while the words are borrowed.
    #[inline]
    pub(super) unsafe fn words(self) -> &'g [u64] {
        // SAFETY: the caller promises that who wrote the length and the words is done, or is the caller.
        unsafe { std::slice::from_raw_parts(self.start(), self.len()) }
    }

    /// How many words the row has.
    #[inline]
    fn len(self) -> usize {
        // Relaxed: the state hands it on with the words.
        self.header().len.load(Ordering::Relaxed) as usize
    }

    /// Words behind the header.
    #[inline]
    pub(super) fn capacity(self) -> usize {
        self.header().capacity as usize
    }

    /// The first word behind the header.
    #[inline]
    fn inline(self) -> *mut u64 {
        self.place.as_ptr().wrapping_add(1).cast::<u64>()
    }

    /// Where the row lies: behind the header, or in a block of its own whose address stands there.
    ///
    /// # Safety
    /// As for [`Version::words`].
    #[inline]
    unsafe fn start(self) -> *mut u64 {
        if self.len() <= self.capacity() {
            return self.inline();
        }
        // SAFETY: a longer row has its address behind the header, which the caller may read.
        std::ptr::with_exposed_provenance_mut(unsafe { self.inline().read() } as usize)
    }

    /// Words behind the header of a version that can take over this one's row.
    pub(super) fn words_to_take_over(self) -> usize {
        let len = self.len();
        if len <= self.capacity() { len.max(1) } else { 1 }
    }

    /// Whether the row lies in a block that is this version's.
    fn has_block(self) -> bool {
        self.len() > self.capacity() && self.header().state.load(Ordering::Acquire) & KIND != LENT_ROW
    }

    /// The block of the row's own, and its bytes.
    ///
    /// # Safety
    /// Nobody puts a row.
    unsafe fn block(self) -> Option<(NonNull<u8>, usize)> {
        // SAFETY: the caller says so; the length is larger than the capacity only where the row lies in a block of that length.
        let start = self.has_block().then(|| unsafe { self.start() })?;
        Some((NonNull::new(start).expect("a row lies somewhere").cast(), 8 * self.len()))
    }

    /// Bytes of the version.
    fn bytes(self) -> usize {
        HEADER_BYTES + 8 * self.capacity()
    }

    /// Gives the version's memory back at once.
    ///
    /// # Safety
    /// No transaction can come to it any more.
    pub(super) unsafe fn free(self, guard: &Guard<'_>) {
        // SAFETY: the caller says so; the blocks were allocated with those sizes.
        unsafe {
            if let Some((block, bytes)) = self.block() {
                guard.free(block, bytes);
            }
            guard.free(self.place.cast(), self.bytes());
        }
    }

    /// Gives the version's memory back when no guard of now is left.
    ///
    /// # Safety
    /// Threads that pin from now on cannot come to it.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        // SAFETY: as in `free`.
        unsafe {
            if let Some((block, bytes)) = self.block() {
                guard.retire(block, bytes);
            }
            guard.retire(self.place.cast(), self.bytes());
        }
    }
}

impl<'g> Filling<'g> {
    /// Makes known what the version holds: the row that was put, or that the key is absent.
    #[inline]
    pub(super) fn finish(self, has_row: bool) {
        // Release: pairs with the acquire in `state`.
        self.0.header().state.store(if has_row { ROW } else { ABSENT }, Ordering::Release);
    }

    /// The words that were put.
    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        // SAFETY: nobody else puts a row.
        unsafe { self.0.words() }
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: nobody else looks at the row of a version that is pending.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.0.len()) }
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        self.0.header().len.store(len as u32, Ordering::Relaxed);
    }

    /// Forgets the row that was put, and gives back the room it had elsewhere.
    pub(super) fn clear(&mut self, guard: &Guard<'_>) {
        // SAFETY: as above; a block that the row has is this version's alone.
        unsafe {
            if let Some((block, bytes)) = self.0.block() {
                guard.free(block, bytes);
            }
        }
        self.set_len(0);
    }

    /// Puts a row.
    #[inline]
    pub(super) fn put(&mut self, words: &[u64], guard: &Guard<'_>) -> Result<(), Error> {
        let room = self.0.capacity();
        if words.len() > room || self.0.len() > room {
            self.put_elsewhere(words.len(), guard)?;
        }
        self.set_len(words.len());
        // SAFETY: nobody else looks at the row of a version that is pending; there is room for so many words.
        unsafe { self.0.start().copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        Ok(())
    }

    /// Makes room for a row of `count` words where it has none, and gives back the room it had elsewhere.
    #[cold]
    fn put_elsewhere(&mut self, count: usize, guard: &Guard<'_>) -> Result<(), Error> {
        assert!(self.0.capacity() > 0, "a version without room has no row");
        let block = match count > self.0.capacity() {
            true => Some(guard.allocate(8 * count)?),
            false => None,
        };
        self.clear(guard);
        if let Some(block) = block {
            // SAFETY: there is a word behind the header, which is the caller's alone.
            unsafe { self.0.inline().write(block.as_ptr().expose_provenance() as u64) };
        }
        Ok(())
    }

    /// Puts the row of the version below in place of what was put, which needs no memory: a row that has a block of its own is taken over with
    /// it.
    ///
    /// # Safety
    /// This is the version right below; it has a row, stays as long as this one, and no other one took that row over.
    pub(super) unsafe fn take_over(&mut self, below: Version<'_>, guard: &Guard<'_>) {
        self.clear(guard);
        // SAFETY: nobody else looks at the row of a version that is pending, and the caller says the rest.
        unsafe {
            assert!(self.0.capacity() >= below.words_to_take_over(), "the row has room");
            let len = below.len();
            if len > below.capacity() && len > self.0.capacity() {
                self.0.inline().write(below.start().expose_provenance() as u64);
                // Release: keeps the row known to who learns of it by this.
                below.header().state.store(LENT_ROW, Ordering::Release);
            } else {
                self.0.inline().copy_from_nonoverlapping(below.start(), len);
            }
            self.set_len(len);
        }
    }
}
