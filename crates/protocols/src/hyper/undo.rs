//! Undo buffers: the before-before-images of what one transaction has changed, which others undo to see what was there.
//!
//! ```text
//!  buffer  chunk │ stamp │ newest before-image
//!  chunk   next chunk │ bytes
//!  before-image   buffer │ older in the chain │ sibling │ out-of-line part │ row │ summary │ columns │ … │ fragments … │ key …
//!  fragment   first word (32) count (32) │ words …
//! ```
//!
//! * The stamp is the id of the transaction, from 2^63 on, until it commits; then its commit time. One store so commits all its
//!   before-images.
//! * A before-image does not change once it is in a chain, but for `older`, which changes under the latch of its slot.
//! * Before-images and their buffer are freed together, when no guard is left under which anybody has found one of them. A before-image
//!   that must stay when the others go is copied into a buffer ([`Copies`]) that is no larger than what is copied: two cache lines for an
//!   update of one number.

mod copies;
mod marks;

use std::marker::PhantomData;
use std::ptr::NonNull;

use polychron_base::key::EncodedKey;
use polychron_engine::stores::IndexRef;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::ColumnSet;
use polychron_sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::out_of_line::{OutOfLine, OutOfLineAddress};

pub(super) use copies::Copies;

/// Stamps from here on are ids of transactions that have not committed.
pub(super) const FIRST_ID: u64 = 1 << 63;

/// Bytes of a buffer's first chunk, and of its largest ones, unless one before-image needs more. The first one is between these two as large
/// as the worker's transaction before made use of: a buffer that stays behind a snapshot is then no larger than what is needed of it.
const FIRST_BYTES: std::ops::RangeInclusive<usize> = 128..=512;
const LARGEST_BYTES: usize = 64 << 10;

/// How far behind a before-image that is made the memory of the next ones is fetched: two or three before-images.
const FETCHED_AHEAD: usize = 256;

/// What was done to a row, which its before-image undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The row came: before, there was none.
    Insert,
    /// Some of its words changed.
    Update,
    /// The row went: its before-image is whole.
    Delete,
}

#[repr(C)]
struct Chunk {
    /// Of the first chunk the one that was added last, of others the one that was added before.
    next: AtomicPtr<Chunk>,
    bytes: usize,
}

#[repr(C)]
struct Body {
    /// The first chunk, at whose beginning the buffer lies.
    chunk: Chunk,
    stamp: AtomicU64,
    newest: AtomicPtr<Header>,
}

#[repr(C)]
struct Header {
    buffer: NonNull<Body>,
    older: AtomicPtr<Header>,
    /// The before-image that the same transaction made before.
    sibling: *mut Header,
    /// What was behind the fixed part.
    out_of_line: u64,
    row: u64,
    summary: u64,
    /// Changes under the latch of the slot alone; see [`Undo::take_over`].
    columns: AtomicU64,
    index_ref: IndexRef,
    /// Words of all fragments, behind which the key comes.
    fragment_words: u32,
    key_bytes: u16,
    kind: Kind,
    /// `HAS_OUT_OF_LINE` and so on; they change under the latch of the slot, or by the only owner of the buffer.
    marks: AtomicU8,
}

polychron_base::bits! { u8:
    /// The before-image keeps what was behind the fixed part.
    HAS_OUT_OF_LINE,
    /// The out-of-line part goes with the before-image.
    OWNS_OUT_OF_LINE,
    /// The before-image has left its chain before its buffer was old.
    LEFT,
    /// The before-image that it was put in front of was all-visible, and the slot does not count its own words yet.
    OVER_ALL_VISIBLE,
    /// The row came or went in a change that was newer, for which the before-image stands since.
    CAME_OR_WENT,
}

impl Chunk {
    fn new(next: *mut Self, bytes: usize) -> Self {
        Self { next: AtomicPtr::new(next), bytes }
    }
}

impl Body {
    /// A buffer without before-images, at the beginning of a chunk of so many bytes.
    fn new(stamp: u64, bytes: usize) -> Self {
        let newest = AtomicPtr::new(std::ptr::null_mut());
        Self { chunk: Chunk::new(std::ptr::null_mut(), bytes), stamp: AtomicU64::new(stamp), newest }
    }
}

/// Bytes of a before-image.
#[inline]
fn before_image_bytes(fragment_words: usize, key_bytes: usize) -> usize {
    size_of::<Header>() + 8 * fragment_words + key_bytes.next_multiple_of(8)
}

/// What a before-image is made of, besides the words that it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) index_ref: IndexRef,
    pub(super) row: u64,
    /// The key, or what stands for it: see `predicates.rs`.
    pub(super) summary: u64,
    pub(super) columns: ColumnSet,
    /// Words of the fragments, a word before each included.
    pub(super) fragment_words: usize,
    /// Whether it keeps what was behind the fixed part.
    pub(super) has_out_of_line: bool,
}

/// Where a before-image is, for what is kept beyond a guard. Whether it is still there is for the owner of its buffer to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept(NonNull<Header>);

// SAFETY: an address is a number until `Kept::under`.
unsafe impl Send for Kept {}

impl Kept {
    /// The before-image that lies here.
    ///
    /// # Safety
    /// Its buffer was not given back before the guard was taken.
    #[inline]
    pub(super) unsafe fn under<'g>(self, _guard: &'g Guard<'_>) -> Undo<'g> {
        Undo(self.0, PhantomData)
    }
}

/// A before-image in a buffer, which a guard, or a thread that has the buffer, keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undo<'g>(NonNull<Header>, PhantomData<&'g ()>);

impl<'g> Undo<'g> {
    /// The before-image at an address that a slot has, which may be none.
    ///
    /// # Safety
    /// The slot had it when its state was looked at under this guard, or under the slot's latch.
    #[inline]
    pub(super) unsafe fn at(address: u64, _guard: &'g Guard<'_>) -> Option<Self> {
        Self::behind(std::ptr::with_exposed_provenance_mut(address as usize), PhantomData)
    }

    /// What a link of a live before-image leads to.
    #[inline]
    fn behind(link: *mut Header, live: PhantomData<&'g ()>) -> Option<Self> {
        NonNull::new(link).map(|header| Self(header, live))
    }

    /// The number that stands for it in its slot.
    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Where it is.
    #[inline]
    pub(super) fn kept(self) -> Kept {
        Kept(self.0)
    }

    #[inline]
    fn header(self) -> &'g Header {
        // SAFETY: its buffer is kept alive, as the caller of the constructor has promised.
        unsafe { self.0.as_ref() }
    }

    /// Starts bringing it into the cache.
    #[inline]
    pub(super) fn prefetch(self) {
        let start = self.0.as_ptr().cast::<u8>();
        polychron_sync::prefetch_read(start);
        polychron_sync::prefetch_read(start.wrapping_add(64));
    }

    /// The buffer that it is in.
    #[inline]
    pub(super) fn buffer(self) -> Buffer {
        Buffer(self.header().buffer)
    }

    /// The transaction that owns it, or the time since which it is committed. Acquire: pairs with the release of the commit.
    #[inline]
    pub(super) fn stamp(self) -> u64 {
        self.buffer().stamp()
    }

    /// The next older before-image of the row. Acquire: pairs with the release of `set_older`.
    #[inline]
    pub(super) fn older(self) -> Option<Self> {
        Self::behind(self.header().older.load(Ordering::Acquire), self.1)
    }

    /// Under the latch of the slot, or before the before-image is in a chain.
    #[inline]
    pub(super) fn set_older(self, older: Option<Undo<'_>>) {
        let address = older.map_or(std::ptr::null_mut(), |older| older.0.as_ptr());
        // Pairs with the acquire in `older`.
        self.header().older.store(address, Ordering::Release);
    }

    /// The before-image that the same transaction made before.
    #[inline]
    pub(super) fn sibling(self) -> Option<Self> {
        Self::behind(self.header().sibling, self.1)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        self.header().kind
    }

    #[inline]
    pub(super) fn index_ref(self) -> IndexRef {
        self.header().index_ref
    }

    /// The number of its row.
    #[inline]
    pub(super) fn row(self) -> u64 {
        self.header().row
    }

    #[inline]
    pub(super) fn summary(self) -> u64 {
        self.header().summary
    }

    /// What was behind the fixed part, if that changed.
    #[inline]
    pub(super) fn out_of_line(self) -> Option<Option<OutOfLine<'g>>> {
        let has_out_of_line = self.header().marks.load(Ordering::Relaxed) & HAS_OUT_OF_LINE != 0;
        // SAFETY: a thread that finds the before-image finds the out-of-line part, which goes no sooner.
        has_out_of_line
            .then(|| OutOfLineAddress::at(self.header().out_of_line).map(|out_of_line| unsafe { out_of_line.under() }))
    }

    /// Bytes that it takes in its chunk.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        let header = self.header();
        before_image_bytes(header.fragment_words as usize, header.key_bytes.into())
    }

    #[inline]
    fn payload(self) -> *mut u64 {
        // SAFETY: the payload lies right behind the header, in the same chunk.
        unsafe { self.0.as_ptr().add(1).cast() }
    }

    /// The fragments: the first word of each, and what was there.
    #[inline]
    pub(super) fn fragments(self) -> Fragments<'g> {
        // SAFETY: so many words were written before the before-image was put into a chain, and do not change.
        Fragments(unsafe { std::slice::from_raw_parts(self.payload(), self.header().fragment_words as usize) })
    }

    /// The words of the fragments, to be written before the before-image is in a chain.
    ///
    /// # Safety
    /// No other thread has the before-image yet.
    #[inline]
    pub(super) unsafe fn fragments_mut(self) -> &'g mut [u64] {
        // SAFETY: so many words lie behind the header, and the caller is alone with them.
        unsafe { std::slice::from_raw_parts_mut(self.payload(), self.header().fragment_words as usize) }
    }

    /// The key.
    #[inline]
    pub(super) fn key(self) -> &'g [u8] {
        let header = self.header();
        // SAFETY: the key's bytes lie behind the fragments, and do not change.
        unsafe {
            let start = self.payload().add(header.fragment_words as usize).cast::<u8>();
            std::slice::from_raw_parts(start, header.key_bytes.into())
        }
    }
}

/// See [`Undo::fragments`].
pub(super) struct Fragments<'a>(&'a [u64]);

impl<'a> Iterator for Fragments<'a> {
    type Item = (usize, &'a [u64]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&head, rest) = self.0.split_first()?;
        let (words, rest) = rest.split_at((head >> 32) as usize);
        self.0 = rest;
        Some((head as u32 as usize, words))
    }
}

/// The word before a fragment.
#[inline]
pub(super) fn fragment_head(first: usize, count: usize) -> u64 {
    first as u64 | (count as u64) << 32
}

/// The before-images of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer(NonNull<Body>);

// SAFETY: as for `Undo`.
unsafe impl Send for Buffer {}

impl Buffer {
    #[inline]
    fn body(&self) -> &Body {
        // SAFETY: any thread that has a buffer keeps it alive.
        unsafe { self.0.as_ref() }
    }

    /// Starts bringing its stamp into the cache.
    #[inline]
    pub(super) fn prefetch(self) {
        polychron_sync::prefetch_read(self.0.as_ptr());
    }

    /// Where it lies, which tells it from others.
    #[inline]
    pub(super) fn address(self) -> usize {
        self.0.as_ptr().addr()
    }

    /// See [`Undo::stamp`].
    #[inline]
    pub(super) fn stamp(self) -> u64 {
        // Acquire: pairs with the release in `commit`.
        self.body().stamp.load(Ordering::Acquire)
    }

    /// All before-images are committed from this timestamp on.
    #[inline]
    pub(super) fn commit(self, timestamp: u64) {
        // Release: pairs with the acquire in `stamp`.
        self.body().stamp.store(timestamp, Ordering::Release);
    }

    /// Its before-images, newest first.
    #[inline]
    pub(super) fn before_images(&self) -> impl Iterator<Item = Undo<'_>> {
        // A thread that asks has the buffer from its own transaction, or through the lock of the list.
        let newest = Undo::behind(self.body().newest.load(Ordering::Relaxed), PhantomData);
        std::iter::successors(newest, |undo| undo.sibling())
    }

    /// Its before-images that are still in chains.
    #[inline]
    pub(super) fn linked(&self) -> impl Iterator<Item = Undo<'_>> {
        self.before_images().filter(|before_image| !before_image.has_left())
    }

    /// Gives back the buffer, its before-images, and the out-of-line parts that they own, once all guards that exist now are gone.
    ///
    /// # Safety
    /// None of the before-images is in a chain, so that a thread that pins from now on does not find one; it is retired once.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        for before_image in self.before_images() {
            if before_image.own_out_of_line(false)
                && let Some(Some(out_of_line)) = before_image.out_of_line()
            {
                // SAFETY: the before-image owned it, and no thread finds it from now on.
                unsafe { out_of_line.address().retire(guard) };
            }
        }
        let mut chunk = Some(self.0.cast::<Chunk>());
        while let Some(present) = chunk {
            // SAFETY: the chunks are the buffer's, and stay readable until the guard ends.
            let (next, bytes) = unsafe { (present.as_ref().next.load(Ordering::Relaxed), present.as_ref().bytes) };
            // SAFETY: as the caller promises; it was allocated with this size.
            unsafe { guard.retire(present.cast(), bytes) };
            chunk = NonNull::new(next);
        }
    }
}

/// The buffer of a running transaction, and where its next before-image goes.
#[derive(Debug, Default)]
pub(super) struct Writing {
    buffer: Option<Buffer>,
    free: usize,
    left: usize,
    /// Bytes of the first chunk, from what the transaction before made use of, and of the latest one.
    first_bytes: usize,
    chunk_bytes: usize,
    /// Bytes of all chunks.
    bytes: usize,
    /// All before-images that stand, oldest first.
    before_images: Vec<Kept>,
    /// Whether there was a deletion among them.
    has_deleted: bool,
}

impl Writing {
    /// Before-images that stand, oldest first.
    #[inline]
    pub(super) fn before_images(&self) -> impl Iterator<Item = Undo<'_>> {
        // The buffer is here until it is left to others.
        self.before_images.iter().map(|before_image| Undo(before_image.0, PhantomData))
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.before_images.len()
    }

    #[inline]
    pub(super) fn buffer(&self) -> Option<Buffer> {
        self.buffer
    }

    /// Bytes of the buffer.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there may be deletions among the before-images.
    #[inline]
    pub(super) fn has_deleted(&self) -> bool {
        self.has_deleted
    }

    /// Forgets the buffer, which others see to from now on, or which was never seen.
    #[inline]
    pub(super) fn leave(&mut self) -> Option<Buffer> {
        self.before_images.clear();
        self.before_images.shrink_to(1 << 14);
        self.has_deleted = false;
        let used = self.bytes - self.left;
        self.first_bytes = used.next_multiple_of(64).clamp(*FIRST_BYTES.start(), *FIRST_BYTES.end());
        self.left = 0;
        self.bytes = 0;
        self.buffer.take()
    }

    /// Room for a before-image, and its header. It is not in a chain yet, and counts when it is kept ([`Writing::keep`]).
    #[inline]
    pub(super) fn draft<'g, K: EncodedKey>(
        &mut self,
        id: u64,
        draft: Draft,
        key: K,
        guard: &'g Guard<'_>,
    ) -> Result<Undo<'g>, OutOfMemory> {
        let key_bytes = key.len();
        let bytes = before_image_bytes(draft.fragment_words, key_bytes);
        self.has_deleted |= draft.kind == Kind::Delete;
        if bytes > self.left {
            self.grow(id, bytes, guard)?;
        }
        // The memory was last used some epochs ago, and a thread that latches a slot waits until its before-image is written.
        let ahead = std::ptr::without_provenance::<u8>(self.free + FETCHED_AHEAD);
        (0..bytes.div_ceil(64)).for_each(|line| polychron_sync::prefetch_read(ahead.wrapping_add(64 * line)));
        let buffer = self.buffer.expect("growing makes the buffer");
        let header =
            NonNull::new(std::ptr::with_exposed_provenance_mut::<Header>(self.free)).expect("a place in a chunk");
        let sibling = self.before_images.last().map_or(std::ptr::null_mut(), |last| last.0.as_ptr());
        // SAFETY: there is room for it in the chunk, aligned to 8, and no other thread knows of it.
        unsafe {
            header.write(Header {
                buffer: buffer.0,
                older: AtomicPtr::new(std::ptr::null_mut()),
                sibling,
                out_of_line: 0,
                row: draft.row,
                summary: draft.summary,
                columns: AtomicU64::new(draft.columns.bits()),
                index_ref: draft.index_ref,
                fragment_words: draft.fragment_words as u32,
                key_bytes: key_bytes as u16,
                kind: draft.kind,
                marks: AtomicU8::new(if draft.has_out_of_line { HAS_OUT_OF_LINE } else { 0 }),
            });
        }
        let undo = Undo(header, PhantomData);
        // SAFETY: there is room for the key behind the fragments, in whole words.
        unsafe {
            let words = undo.payload().add(draft.fragment_words);
            (0..key_bytes.div_ceil(8)).for_each(|slice| words.add(slice).write(key.slice(slice).to_be()));
        }
        Ok(undo)
    }

    /// Says what was behind the fixed part.
    ///
    /// # Safety
    /// No other thread has the before-image yet.
    #[inline]
    pub(super) unsafe fn set_out_of_line(undo: Undo<'_>, out_of_line: Option<OutOfLineAddress>) {
        // SAFETY: as the caller promises.
        unsafe { (*undo.0.as_ptr()).out_of_line = out_of_line.map_or(0, OutOfLineAddress::to_word) };
        undo.own_out_of_line(true);
    }

    /// The latest draft is a before-image from now on.
    #[inline]
    pub(super) fn keep(&mut self, undo: Undo<'_>) {
        self.waste(undo);
        self.before_images.push(undo.kept());
    }

    /// The latest draft keeps its place, for others may have found it.
    #[inline]
    pub(super) fn waste(&mut self, undo: Undo<'_>) {
        let bytes = undo.bytes();
        self.free += bytes;
        self.left -= bytes;
    }

    /// Takes the newest before-image out, if there are more than `len`.
    #[inline]
    pub(super) fn pop(&mut self, len: usize) -> Option<Kept> {
        if self.before_images.len() > len { self.before_images.pop() } else { None }
    }

    /// Everything is done but the commit: the before-images are told to a thread that gets the buffer.
    #[inline]
    pub(super) fn seal(&mut self) {
        if let (Some(buffer), Some(newest)) = (self.buffer, self.before_images.last()) {
            // Others get the buffer through the lock of the list.
            buffer.body().newest.store(newest.0.as_ptr(), Ordering::Relaxed);
        }
    }

    #[cold]
    fn grow(&mut self, id: u64, needed: usize, guard: &Guard<'_>) -> Result<(), OutOfMemory> {
        let start = if self.buffer.is_none() { size_of::<Body>() } else { size_of::<Chunk>() };
        let wanted = if self.buffer.is_none() { self.first_bytes } else { (self.chunk_bytes * 2).min(LARGEST_BYTES) };
        let bytes = wanted.max(start + needed);
        // Near the limit there may still be room for just what is needed.
        let least = start + needed;
        let (chunk, bytes) = match guard.allocate(bytes) {
            Ok(chunk) => (chunk, bytes),
            Err(_) if least < bytes => (guard.allocate(least)?, least),
            Err(refused) => return Err(refused),
        };
        if let Some(buffer) = self.buffer {
            let first = &buffer.body().chunk.next;
            let next = first.load(Ordering::Relaxed);
            // SAFETY: the memory is large enough, aligned to at least 16, and ours alone.
            unsafe { chunk.cast().write(Chunk::new(next, bytes)) };
            first.store(chunk.cast().as_ptr(), Ordering::Relaxed);
        } else {
            // SAFETY: as above.
            unsafe { chunk.cast().write(Body::new(id, bytes)) };
            self.buffer = Some(Buffer(chunk.cast()));
        }
        self.chunk_bytes = bytes;
        self.bytes += bytes;
        self.free = chunk.as_ptr().expose_provenance() + start;
        self.left = bytes - start;
        Ok(())
    }
}
