//! Undo buffers: the before-images of what one transaction has changed, which others undo to see what was there.
//!
//! ```text
//!  buffer  chunk │ stamp │ newest image
//!  chunk   next chunk │ bytes
//!  image   buffer │ older in the chain │ sibling │ tail │ row │ summary │ columns │ … │ pieces … │ key …
//!  piece   first word (32) count (32) │ words …
//! ```
//!
//! * The stamp is the id of the transaction, from 2^63 on, until it commits; then its commit time. One store so commits all its images.
//! * An image does not change once it is in a chain, but for `older`, which changes under the latch of its slot.
//! * Images and their buffer are given back together, when no guard is left under which anybody has found one of them. An image that must
//!   stay when the others go is copied into a buffer ([`Copies`]) that is no larger than what is copied: two cache lines for an update of one
//!   number.

mod copies;
mod marks;

use std::marker::PhantomData;
use std::ptr::NonNull;

use polychron_base::key::EncodedKey;
use polychron_engine::stores::IndexRef;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::ColumnSet;
use polychron_sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::tail::{Tail, TailAddress};

pub(super) use copies::Copies;

/// Stamps from here on are ids of transactions that have not committed.
pub(super) const FIRST_ID: u64 = 1 << 63;

/// Bytes of a buffer's first chunk, and of its largest ones, unless one image needs more. The first one is between these two as large as the
/// worker's transaction before made use of: a buffer that stays behind a snapshot is then no larger than what is needed of it.
const FIRST_BYTES: std::ops::RangeInclusive<usize> = 128..=512;
const LARGEST_BYTES: usize = 64 << 10;

/// How far behind an image that is made the memory of the next ones is fetched: two or three images.
const FETCHED_AHEAD: usize = 256;

/// What was done to a row, which its image undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The row came: before, there was none.
    Insert,
    /// Some of its words changed.
    Update,
    /// The row went: its image is whole.
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
    /// The image that the same transaction made before.
    sibling: *mut Header,
    /// What was behind the fixed part.
    tail: u64,
    row: u64,
    summary: u64,
    /// Changes under the latch of the slot alone; see [`Undo::take_over`].
    columns: AtomicU64,
    index_ref: IndexRef,
    /// Words of all pieces, behind which the key comes.
    piece_words: u32,
    key_bytes: u16,
    kind: Kind,
    /// `HAS_TAIL` and so on; they change under the latch of the slot, or by who alone still has the buffer.
    marks: AtomicU8,
}

/// The image keeps what was behind the fixed part.
const HAS_TAIL: u8 = 1;
/// The tail goes with the image.
const OWNS_TAIL: u8 = 2;
/// The image has left its chain before its buffer was old.
const LEFT: u8 = 4;
/// The image that it was put in front of was all-visible, and the slot does not count its own words yet.
const OVER_ALL_VISIBLE: u8 = 8;
/// The row came or went in a change that was newer, for which the image stands since.
const CAME_OR_WENT: u8 = 16;

impl Chunk {
    fn new(next: *mut Self, bytes: usize) -> Self {
        Self { next: AtomicPtr::new(next), bytes }
    }
}

impl Body {
    /// A buffer without images, at the beginning of a chunk of so many bytes.
    fn new(stamp: u64, bytes: usize) -> Self {
        let newest = AtomicPtr::new(std::ptr::null_mut());
        Self { chunk: Chunk::new(std::ptr::null_mut(), bytes), stamp: AtomicU64::new(stamp), newest }
    }
}

/// Bytes of an image.
#[inline]
fn image_bytes(piece_words: usize, key_bytes: usize) -> usize {
    size_of::<Header>() + 8 * piece_words + key_bytes.next_multiple_of(8)
}

/// What an image is made of, besides the words that it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) index_ref: IndexRef,
    pub(super) row: u64,
    /// The key, or what stands for it: see `predicates.rs`.
    pub(super) summary: u64,
    pub(super) columns: ColumnSet,
    /// Words of the pieces, a word before each included.
    pub(super) piece_words: usize,
    /// Whether it keeps what was behind the fixed part.
    pub(super) has_tail: bool,
}

/// Where an image is, for what is kept beyond a guard. Whether it is still there is for the owner of its buffer to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept(NonNull<Header>);

// SAFETY: an address is a number until `Kept::under`.
unsafe impl Send for Kept {}

impl Kept {
    /// The image that lies here.
    ///
    /// # Safety
    /// Its buffer was not given back before the guard was taken.
    #[inline]
    pub(super) unsafe fn under<'g>(self, _guard: &'g Guard<'_>) -> Undo<'g> {
        Undo(self.0, PhantomData)
    }
}

/// An image in a buffer, which a guard, or who has the buffer, keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undo<'g>(NonNull<Header>, PhantomData<&'g ()>);

impl<'g> Undo<'g> {
    /// The image at an address that a slot has, which may be none.
    ///
    /// # Safety
    /// The slot had it when its state was looked at under this guard, or under the slot's latch.
    #[inline]
    pub(super) unsafe fn at(address: u64, _guard: &'g Guard<'_>) -> Option<Self> {
        Self::behind(std::ptr::with_exposed_provenance_mut(address as usize), PhantomData)
    }

    /// What a link of a live image leads to.
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
        // SAFETY: its buffer is kept alive, as who made this has promised.
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

    /// Whose it is, or since when it is committed. Acquire: pairs with the release of the commit.
    #[inline]
    pub(super) fn stamp(self) -> u64 {
        self.buffer().stamp()
    }

    /// The next older image of the row. Acquire: pairs with the release of `set_older`.
    #[inline]
    pub(super) fn older(self) -> Option<Self> {
        Self::behind(self.header().older.load(Ordering::Acquire), self.1)
    }

    /// Under the latch of the slot, or before the image is in a chain.
    #[inline]
    pub(super) fn set_older(self, older: Option<Undo<'_>>) {
        let address = older.map_or(std::ptr::null_mut(), |older| older.0.as_ptr());
        // Pairs with the acquire in `older`.
        self.header().older.store(address, Ordering::Release);
    }

    /// The image that the same transaction made before.
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
    pub(super) fn tail(self) -> Option<Option<Tail<'g>>> {
        let has_tail = self.header().marks.load(Ordering::Relaxed) & HAS_TAIL != 0;
        // SAFETY: who finds the image finds the tail, which goes no sooner.
        has_tail.then(|| TailAddress::at(self.header().tail).map(|tail| unsafe { tail.under() }))
    }

    /// Bytes that it takes in its chunk.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        let header = self.header();
        image_bytes(header.piece_words as usize, header.key_bytes.into())
    }

    #[inline]
    fn payload(self) -> *mut u64 {
        // SAFETY: the payload lies right behind the header, in the same chunk.
        unsafe { self.0.as_ptr().add(1).cast() }
    }

    /// The pieces: the first word of each, and what was there.
    #[inline]
    pub(super) fn pieces(self) -> Pieces<'g> {
        // SAFETY: so many words were written before the image was put into a chain, and do not change.
        Pieces(unsafe { std::slice::from_raw_parts(self.payload(), self.header().piece_words as usize) })
    }

    /// The words of the pieces, to be written before the image is in a chain.
    ///
    /// # Safety
    /// Nobody else has the image yet.
    #[inline]
    pub(super) unsafe fn pieces_mut(self) -> &'g mut [u64] {
        // SAFETY: so many words lie behind the header, and the caller is alone with them.
        unsafe { std::slice::from_raw_parts_mut(self.payload(), self.header().piece_words as usize) }
    }

    /// The key.
    #[inline]
    pub(super) fn key(self) -> &'g [u8] {
        let header = self.header();
        // SAFETY: the key's bytes lie behind the pieces, and do not change.
        unsafe {
            let start = self.payload().add(header.piece_words as usize).cast::<u8>();
            std::slice::from_raw_parts(start, header.key_bytes.into())
        }
    }
}

/// See [`Undo::pieces`].
pub(super) struct Pieces<'a>(&'a [u64]);

impl<'a> Iterator for Pieces<'a> {
    type Item = (usize, &'a [u64]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&head, rest) = self.0.split_first()?;
        let (words, rest) = rest.split_at((head >> 32) as usize);
        self.0 = rest;
        Some((head as u32 as usize, words))
    }
}

/// The word before a piece.
#[inline]
pub(super) fn piece_head(first: usize, count: usize) -> u64 {
    first as u64 | (count as u64) << 32
}

/// The images of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer(NonNull<Body>);

// SAFETY: as for `Undo`.
unsafe impl Send for Buffer {}

impl Buffer {
    #[inline]
    fn body(&self) -> &Body {
        // SAFETY: whoever has a buffer keeps it alive.
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

    /// All images are committed from this timestamp on.
    #[inline]
    pub(super) fn commit(self, timestamp: u64) {
        // Release: pairs with the acquire in `stamp`.
        self.body().stamp.store(timestamp, Ordering::Release);
    }

    /// Its images, newest first.
    #[inline]
    pub(super) fn images(&self) -> impl Iterator<Item = Undo<'_>> {
        // Who asks has the buffer from its own transaction, or through the lock of the list.
        let newest = Undo::behind(self.body().newest.load(Ordering::Relaxed), PhantomData);
        std::iter::successors(newest, |undo| undo.sibling())
    }

    /// Its images that are still in chains.
    #[inline]
    pub(super) fn linked(&self) -> impl Iterator<Item = Undo<'_>> {
        self.images().filter(|image| !image.has_left())
    }

    /// Gives back the buffer, its images, and the tails that they own, once all guards that exist now are gone.
    ///
    /// # Safety
    /// None of the images is in a chain, so that who pins from now on does not find one; it is retired once.
    pub(super) unsafe fn retire(self, guard: &Guard<'_>) {
        for image in self.images() {
            if image.own_tail(false)
                && let Some(Some(tail)) = image.tail()
            {
                // SAFETY: the image owned it, and nobody finds it from now on.
                unsafe { tail.address().retire(guard) };
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

/// The buffer of a running transaction, and where its next image goes.
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
    /// All images that stand, oldest first.
    images: Vec<Kept>,
    /// Whether there was a deletion among them.
    has_deleted: bool,
}

impl Writing {
    /// Images that stand, oldest first.
    #[inline]
    pub(super) fn images(&self) -> impl Iterator<Item = Undo<'_>> {
        // The buffer is here until it is left to others.
        self.images.iter().map(|image| Undo(image.0, PhantomData))
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.images.len()
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

    /// Whether there may be deletions among the images.
    #[inline]
    pub(super) fn has_deleted(&self) -> bool {
        self.has_deleted
    }

    /// Forgets the buffer, which others see to from now on, or which was never seen.
    #[inline]
    pub(super) fn leave(&mut self) -> Option<Buffer> {
        self.images.clear();
        self.images.shrink_to(1 << 14);
        self.has_deleted = false;
        let used = self.bytes - self.left;
        self.first_bytes = used.next_multiple_of(64).clamp(*FIRST_BYTES.start(), *FIRST_BYTES.end());
        self.left = 0;
        self.bytes = 0;
        self.buffer.take()
    }

    /// Room for an image, and its header. It is not in a chain yet, and counts when it is kept ([`Writing::keep`]).
    #[inline]
    pub(super) fn draft<'g, K: EncodedKey>(
        &mut self,
        id: u64,
        draft: Draft,
        key: K,
        guard: &'g Guard<'_>,
    ) -> Result<Undo<'g>, OutOfMemory> {
        let key_bytes = key.len();
        let bytes = image_bytes(draft.piece_words, key_bytes);
        self.has_deleted |= draft.kind == Kind::Delete;
        if bytes > self.left {
            self.grow(id, bytes, guard)?;
        }
        // The memory was last used some epochs ago, and who latches a slot waits until its image is written.
        let ahead = std::ptr::without_provenance::<u8>(self.free + FETCHED_AHEAD);
        (0..bytes.div_ceil(64)).for_each(|line| polychron_sync::prefetch_read(ahead.wrapping_add(64 * line)));
        let buffer = self.buffer.expect("growing makes the buffer");
        let header =
            NonNull::new(std::ptr::with_exposed_provenance_mut::<Header>(self.free)).expect("a place in a chunk");
        let sibling = self.images.last().map_or(std::ptr::null_mut(), |last| last.0.as_ptr());
        // SAFETY: there is room for it in the chunk, aligned to 8, and nobody else knows of it.
        unsafe {
            header.write(Header {
                buffer: buffer.0,
                older: AtomicPtr::new(std::ptr::null_mut()),
                sibling,
                tail: 0,
                row: draft.row,
                summary: draft.summary,
                columns: AtomicU64::new(draft.columns.bits()),
                index_ref: draft.index_ref,
                piece_words: draft.piece_words as u32,
                key_bytes: key_bytes as u16,
                kind: draft.kind,
                marks: AtomicU8::new(if draft.has_tail { HAS_TAIL } else { 0 }),
            });
        }
        let undo = Undo(header, PhantomData);
        // SAFETY: there is room for the key behind the pieces, in whole words.
        unsafe {
            let words = undo.payload().add(draft.piece_words);
            (0..key_bytes.div_ceil(8)).for_each(|slice| words.add(slice).write(key.slice(slice).to_be()));
        }
        Ok(undo)
    }

    /// Says what was behind the fixed part.
    ///
    /// # Safety
    /// Nobody else has the image yet.
    #[inline]
    pub(super) unsafe fn set_tail(undo: Undo<'_>, tail: Option<TailAddress>) {
        // SAFETY: as the caller promises.
        unsafe { (*undo.0.as_ptr()).tail = tail.map_or(0, TailAddress::to_word) };
        undo.own_tail(true);
    }

    /// The latest draft is an image from now on.
    #[inline]
    pub(super) fn keep(&mut self, undo: Undo<'_>) {
        self.waste(undo);
        self.images.push(undo.kept());
    }

    /// The latest draft keeps its place, for others may have found it.
    #[inline]
    pub(super) fn waste(&mut self, undo: Undo<'_>) {
        let bytes = undo.bytes();
        self.free += bytes;
        self.left -= bytes;
    }

    /// Takes the newest image out, if there are more than `len`.
    #[inline]
    pub(super) fn pop(&mut self, len: usize) -> Option<Kept> {
        if self.images.len() > len { self.images.pop() } else { None }
    }

    /// Everything is done but the commit: the images are told to who gets the buffer.
    #[inline]
    pub(super) fn seal(&mut self) {
        if let (Some(buffer), Some(newest)) = (self.buffer, self.images.last()) {
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
