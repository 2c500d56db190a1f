//! Versions and the chains that they form (Figure 3 of the paper).
//!
//! A version is made before its row is known: a *placeholder*, whose state is the planned transaction that will fill it. A version ends where
//! the one above it begins, so its end is not stored: that would write a line which nothing else needs.
//!
//! ```text
//!   chain ──► version, begin 40 ──► version, begin 12 ──► …     newest first
//!             state: planned        state: row
//! ```
//!
//! A version has its row for good from [`State::Row`] on. Until then only the transaction that fills the version looks at its
//! words, through a [`Filling`].

use std::marker::PhantomData;
use std::num::{NonZeroU64, NonZeroUsize};
use std::ptr::NonNull;

use polychron_base::Error;
use polychron_memory::Guard;
use polychron_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::planned::{Executing, Planned};
use super::timestamp::Timestamp;

/// Bytes before a version's row.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes of a version that are fetched ahead of their use; the processor goes on by itself.
const FETCHED_BYTES: usize = 1280;

/// The state of a version that has a row. Transactions lie at multiples of 8, so no address is so small.
const ROW: u64 = 1;
/// The state of a version from which on the key is absent.
const ABSENT: u64 = 2;
/// The state of a version whose row lies in a block that the version above owns.
const LENT_ROW: u64 = 3;
/// The state of an intent whose transaction, and those of all intents below it, are complete.
const ALL_COMPLETE: u64 = 4;
/// The bits that distinguish these states; zero in the address of a transaction. The other bits are the version above, where collection has linked
/// the version upward.
const KIND: u64 = 7;

#[repr(C)]
struct Header {
    begin: Timestamp,
    /// The version below. It may be gone when no transaction is left that could read it.
    previous: AtomicU64,
    state: AtomicU64,
    /// Words of the row, written by the transaction that fills the version.
    len: AtomicU32,
    /// Words behind the header, at least one where there can be a row.
    capacity: u32,
}

/// A version of a row. It stays for `'g`, and so do its row and its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version<'g> {
    header: NonNull<Header>,
    _stays: PhantomData<&'g Header>,
}

/// The address of a version, which may have been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawVersion(NonZeroU64);

/// A version that is in no chain. Its holder alone knows it.
#[derive(Debug)]
pub(super) struct Fresh<'g>(Version<'g>);

/// A version that is being filled. Nothing else looks at its row.
#[derive(Debug)]
pub(super) struct Filling<'g>(Version<'g>);

/// The row of a version, which no longer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'g>(Version<'g>);

/// The content of a version.
#[derive(Clone, Copy, Debug)]
pub(super) enum State<'g> {
    /// Its transaction was not executed when the state was read. The memory may belong to another transaction by now; then the version is no
    /// longer pending.
    Pending(&'g Planned),
    /// A row.
    Row(Row<'g>),
    /// Nothing.
    Absent,
}

/// When the memory of a version is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Free {
    /// At once.
    Now,
    /// When all guards that exist now are dropped.
    BehindGuards,
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
    /// A version lies at the address, and stays for `'g`, as its database does.
    #[inline]
    pub(super) unsafe fn get<'g>(self) -> Version<'g> {
        let address = NonZeroUsize::try_from(self.0).expect("addresses have the machine's width");
        Version { header: NonNull::with_exposed_provenance(address), _stays: PhantomData }
    }

    /// Starts fetching the version, and the beginning of its row.
    #[inline]
    pub(super) fn prefetch(self) {
        self.prefetch_at(0);
    }

    /// Starts fetching the rest of a row of so many words behind the header. Reads nothing, so the version may have been freed.
    #[inline]
    pub(super) fn prefetch_row(self, words: usize) {
        (64..(HEADER_BYTES + 8 * words).min(FETCHED_BYTES)).step_by(64).for_each(|offset| self.prefetch_at(offset));
    }

    #[inline]
    fn prefetch_at(self, offset: usize) {
        let header = std::ptr::without_provenance::<u8>(self.0.get() as usize);
        polychron_sync::prefetch_read(header.wrapping_byte_add(offset));
    }
}

impl<'g> Fresh<'g> {
    /// A version that the transaction will fill, with room for a row of `capacity` words. The transaction's memory stays until the database is
    /// closed, as all of them do.
    pub(super) fn allocate(
        begin: Timestamp,
        producer: &Planned,
        capacity: usize,
        guard: &'g Guard<'_>,
    ) -> Result<Self, Error> {
        let header = guard.allocate(HEADER_BYTES + 8 * capacity)?.cast::<Header>();
        let (previous, state, len) = (AtomicU64::new(0), AtomicU64::new(address_of(producer)), AtomicU32::new(0));
        // SAFETY: the block is as large as that, is aligned to 16 bytes, and nothing else knows it.
        unsafe { header.write(Header { begin, previous, state, len, capacity: capacity as u32 }) };
        Ok(Self(Version { header, _stays: PhantomData }))
    }

    pub(super) fn raw(&self) -> RawVersion {
        self.0.raw()
    }

    pub(super) fn begin(&self) -> Timestamp {
        self.0.begin()
    }

    /// Sets the version that will be below. A chain that takes the version has done so, and below one that is in no chain nothing is read.
    #[inline]
    pub(super) fn set_below(&self, below: Option<RawVersion>) {
        // Relaxed: the chain takes the version with a release.
        self.0.header().previous.store(below.map_or(0, RawVersion::address), Ordering::Relaxed);
    }

    /// The version, to be kept by its address.
    pub(super) fn keep(self) -> RawVersion {
        self.raw()
    }

    /// Frees the version at once.
    pub(super) fn free(self, guard: &Guard<'_>) {
        // SAFETY: nothing else knows the version.
        unsafe { self.0.free(Free::Now, guard) }
    }

    /// The version of [`Fresh::keep`], for models, which make it and put it in a chain in different threads.
    ///
    /// # Safety
    /// No chain has the version, and this is called once.
    #[cfg(all(test, loom))]
    pub(super) unsafe fn of(version: RawVersion) -> Self {
        // SAFETY: the caller says so.
        Self(unsafe { version.get() })
    }

    /// The version, to be filled before a chain has it.
    #[cfg(test)]
    pub(super) fn filling(&mut self) -> Filling<'_> {
        Filling(self.0)
    }
}

/// The state of a version that this transaction will fill.
#[inline]
fn address_of(producer: &Planned) -> u64 {
    std::ptr::from_ref(producer).expose_provenance() as u64
}

impl<'g> Version<'g> {
    #[inline]
    fn header(&self) -> &'g Header {
        // SAFETY: the version stays for that time.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    pub(super) fn begin(self) -> Timestamp {
        self.header().begin
    }

    #[inline]
    pub(super) fn raw(self) -> RawVersion {
        let address = self.header.expose_provenance();
        RawVersion(NonZeroU64::try_from(address).expect("addresses have the machine's width"))
    }

    #[inline]
    fn address(self) -> u64 {
        self.raw().address()
    }

    /// The version below. It may be gone when no transaction is left that could read it.
    #[inline]
    pub(super) fn below(self) -> Option<RawVersion> {
        // Acquire: pairs with the release in `set_below`.
        RawVersion::from_address(self.header().previous.load(Ordering::Acquire))
    }

    /// Sets the version below, and makes that one known.
    ///
    /// # Safety
    /// The caller may insert or unlink versions at this point of the chain, and a thread that may follow the link finds a version that stays.
    #[inline]
    pub(super) unsafe fn set_below(self, below: Option<RawVersion>) {
        // Release: pairs with the acquire in `below`.
        self.header().previous.store(below.map_or(0, RawVersion::address), Ordering::Release);
    }

    /// Cuts off the versions below.
    pub(super) fn forget_below(self) {
        self.header().previous.store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn state(self) -> State<'g> {
        // Acquire: pairs with the release in `finish`, so that the row is there.
        let state = self.header().state.load(Ordering::Acquire);
        match state & KIND {
            ROW | LENT_ROW => State::Row(Row(self)),
            0 => {
                let producer = NonNull::new(std::ptr::with_exposed_provenance_mut::<Planned>(state as usize));
                // SAFETY: the address is of a transaction, whose memory stays as long as the database.
                State::Pending(unsafe { producer.expect("a version has a producer").as_ref() })
            }
            _ => State::Absent,
        }
    }

    /// The version above, if collection has linked this one upward ([`Self::link_upward`]).
    #[inline]
    pub(super) fn above(self) -> Option<RawVersion> {
        let state = self.header().state.load(Ordering::Relaxed);
        // A transaction is not a version, and its address is no kind.
        if state & KIND == 0 { None } else { RawVersion::from_address(state & !KIND) }
    }

    /// Whether collection has examined the version and left it for a snapshot.
    #[inline]
    pub(super) fn is_linked_upward(self) -> bool {
        self.above().is_some()
    }

    /// Notes which version is above, until one of the two is unlinked.
    ///
    /// # Safety
    /// The caller collects the chain, and the batch of the version above is finished, so nothing else changes the state from now on.
    pub(super) unsafe fn link_upward(self, above: Version<'_>) {
        let state = &self.header().state;
        let kind = state.load(Ordering::Relaxed) & KIND;
        // Release: pairs with the acquire in `state`: the row was there before.
        state.store(above.address() | kind, Ordering::Release);
    }

    /// Unlinks the version from between the one above and the one below, which is linked upward, and frees it behind the guards: a reader that is at
    /// it continues by its link.
    ///
    /// # Safety
    /// As for [`Version::link_upward`]; and no thread reaches the version by another way.
    pub(super) unsafe fn unlink(self, above: Version<'_>, below: Option<Version<'_>>, guard: &Guard<'_>) {
        // SAFETY: the transactions of all three are complete, so the lengths and the blocks do not change; a version whose row was taken over
        // has one in a block. The caller says the rest.
        unsafe {
            if let Some(below) = below {
                // The version below owns a row again that was taken over from it.
                let is_lent = below.header().state.load(Ordering::Relaxed) & KIND == LENT_ROW;
                if is_lent && self.has_block() && self.start() == below.start() {
                    self.header().state.store(LENT_ROW, Ordering::Release);
                    below.header().state.store(ROW, Ordering::Release);
                }
                below.link_upward(above);
            }
            above.set_below(below.map(Version::raw));
            self.free(Free::BehindGuards, guard);
        }
    }

    /// Notes of an intent that its transaction, and those of all intents below, are complete. A version that can have a row has no such
    /// state.
    pub(super) fn set_all_complete(self) {
        if self.header().capacity == 0 {
            // Release: hands on what the caller has seen of them.
            self.header().state.store(ALL_COMPLETE, Ordering::Release);
        }
    }

    /// Whether that was noted.
    pub(super) fn is_all_complete(self) -> bool {
        // Acquire: pairs with the release above.
        self.header().state.load(Ordering::Acquire) == ALL_COMPLETE
    }

    /// Whether this transaction fills the version, and has not finished that.
    #[inline]
    fn is_filled_by(self, executing: &Executing<'_>) -> bool {
        // Relaxed: the thread that executes the transaction alone replaces such a state.
        let state = self.header().state.load(Ordering::Relaxed);
        state == address_of(executing.planned()) && self.begin() == executing.timestamp()
    }

    /// The version, to be filled by its transaction. `None`: it is another one's, or finished.
    ///
    /// # Safety
    /// Neither another `Filling` of the transaction nor anything borrowed from one is used while this is.
    #[inline]
    pub(super) unsafe fn fill(self, executing: &Executing<'_>) -> Option<Filling<'g>> {
        self.is_filled_by(executing).then_some(Filling(self))
    }

    /// The words that the transaction has put so far into a version that it fills.
    #[inline]
    pub(super) fn put_by<'e>(self, executing: &'e Executing<'_>) -> Option<&'e [u64]>
    where
        'g: 'e,
    {
        // SAFETY: the thread that executes the transaction alone writes the row, by a `Filling` that borrows the transaction meanwhile.
        self.is_filled_by(executing).then(|| unsafe { std::slice::from_raw_parts(self.start(), self.len()) })
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
        self.header.as_ptr().wrapping_add(1).cast::<u64>()
    }

    /// The first word of the row: behind the header, or in a block of its own whose address is there.
    ///
    /// # Safety
    /// No other thread puts a row.
    #[inline]
    unsafe fn start(self) -> *mut u64 {
        if self.len() <= self.capacity() {
            return self.inline();
        }
        // SAFETY: a longer row has its address behind the header, which no other thread writes.
        std::ptr::with_exposed_provenance_mut(unsafe { self.inline().read() } as usize)
    }

    /// Whether the row lies in a block that this version owns.
    fn has_block(self) -> bool {
        self.len() > self.capacity() && self.header().state.load(Ordering::Acquire) & KIND != LENT_ROW
    }

    /// The block that the row owns, and its bytes.
    ///
    /// # Safety
    /// As for [`Version::start`].
    unsafe fn block(self) -> Option<(NonNull<u8>, usize)> {
        // SAFETY: the caller says so; the length is larger than the capacity only where the row lies in a block of that length.
        let start = self.has_block().then(|| unsafe { self.start() })?;
        Some((NonNull::new(start).expect("the address of a block").cast(), 8 * self.len()))
    }

    /// Frees the version and what it owns.
    ///
    /// # Safety
    /// Nothing comes to the version; behind guards, nothing that pins from now on. It is freed once.
    pub(super) unsafe fn free(self, when: Free, guard: &Guard<'_>) {
        let version = (self.header.cast(), HEADER_BYTES + 8 * self.capacity());
        // SAFETY: the caller says so; the blocks were allocated with those sizes.
        unsafe {
            for (block, bytes) in self.block().into_iter().chain([version]) {
                match when {
                    Free::Now => guard.free(block, bytes),
                    Free::BehindGuards => guard.retire(block, bytes),
                }
            }
        }
    }
}

impl<'g> Row<'g> {
    /// The version that has the row.
    #[inline]
    pub(super) fn version(self) -> Version<'g> {
        self.0
    }

    /// The words of the row.
    #[inline]
    pub(super) fn words(self) -> &'g [u64] {
        // SAFETY: the row was finished, so nothing writes it, and it stays as long as the version.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.len()) }
    }

    /// Words behind the header of a version that can take over this row.
    fn words_to_take_over(self) -> usize {
        let len = self.0.len();
        if len <= self.0.capacity() { len.max(1) } else { 1 }
    }
}

impl Filling<'_> {
    /// Publishes the row that was put, or that the key is absent.
    #[inline]
    pub(super) fn finish(self, has_row: bool) {
        // Release: pairs with the acquire in `state`.
        self.0.header().state.store(if has_row { ROW } else { ABSENT }, Ordering::Release);
    }

    /// The words that were put.
    #[inline]
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: nothing else looks at the row of a version that is being filled.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.0.len()) }
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        self.0.header().len.store(len as u32, Ordering::Relaxed);
    }

    /// Forgets the row that was put, and frees the block it had.
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
        // SAFETY: nothing else looks at the row of a version that is being filled; there is room for so many words.
        unsafe { self.0.start().copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        Ok(())
    }

    /// Makes room for a row of `count` words where it has none, and frees the block it had.
    #[cold]
    fn put_elsewhere(&mut self, count: usize, guard: &Guard<'_>) -> Result<(), Error> {
        assert!(self.0.capacity() > 0, "a version without room has no row");
        let block = match count > self.0.capacity() {
            true => Some(guard.allocate(8 * count)?),
            false => None,
        };
        self.clear(guard);
        if let Some(block) = block {
            // SAFETY: there is a word behind the header, which the caller alone uses.
            unsafe { self.0.inline().write(block.as_ptr().expose_provenance() as u64) };
        }
        Ok(())
    }

    /// Replaces what was put by the row of the version below. That needs no memory: a block of the row is taken over.
    ///
    /// # Safety
    /// The row is that of the version right below, which stays as long as this one, and no other version took it over.
    pub(super) unsafe fn take_over(&mut self, row: Row<'_>, guard: &Guard<'_>) {
        self.clear(guard);
        let (below, words) = (row.version(), row.words());
        assert!(self.0.capacity() >= row.words_to_take_over(), "the row has room");
        let is_lent = words.len() > below.capacity().max(self.0.capacity());
        let address = [words.as_ptr().expose_provenance() as u64];
        let inline = if is_lent { &address } else { words };
        // SAFETY: nothing else looks at the row of a version that is being filled, and it has room for so many words.
        unsafe { self.0.inline().copy_from_nonoverlapping(inline.as_ptr(), inline.len()) };
        if is_lent {
            // Release: pairs with the acquire in `state`, which shows the row.
            below.header().state.store(LENT_ROW, Ordering::Release);
        }
        self.set_len(words.len());
    }
}
