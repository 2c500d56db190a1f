//! Undo buffers: the before-images of what one transaction has changed, which others undo to see what was there.
//!
//! ```text
//!  buffer  stamp │ linked │ newest image │ …
//!  image   buffer │ older in the chain │ sibling │ tail │ row │ summary │ columns │ … │ pieces … │ key …
//!  piece   first word (32) count (32) │ words …
//! ```
//!
//! * The stamp is the id of the transaction, from 2^63 on, until it commits; then its commit time. One store so commits all its images.
//! * An image does not change once it is in a chain, but for `older`, which changes under the latch of its slot.
//! * Images and their buffer are given back together, when no guard is left under which anybody has found one of them.

use std::ptr::NonNull;

use polychron_base::key::EncodedKey;
use polychron_engine::stores::Place;
use polychron_memory::{Guard, OutOfMemory};
use polychron_schema::ColumnSet;
use polychron_sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::tail::Tail;

/// Stamps from here on are ids of transactions that have not committed.
pub(super) const FIRST_ID: u64 = 1 << 63;

/// Bytes of a buffer's first chunk, and of its largest ones, unless one image needs more.
const FIRST_BYTES: usize = 512;
const LARGEST_BYTES: usize = 64 << 10;

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
    next: *mut Chunk,
    bytes: usize,
}

#[repr(C)]
struct Body {
    stamp: AtomicU64,
    /// How many images are in chains: counted for buffers of which single images are taken out.
    linked: AtomicU64,
    newest: AtomicPtr<Header>,
    /// The chunk that was added last; the buffer lies in the first one.
    chunks: AtomicPtr<Chunk>,
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
    columns: ColumnSet,
    place: Place,
    /// Words of all pieces, and of the key behind them.
    piece_words: u32,
    key_bytes: u16,
    kind: Kind,
    has_tail: bool,
    /// Whether the tail goes with the image.
    owns_tail: AtomicBool,
}

/// What an image is made of, besides the words that it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) row: u64,
    /// The key, or what stands for it: see `predicates.rs`.
    pub(super) summary: u64,
    pub(super) columns: ColumnSet,
    /// Words of the pieces, a word before each included.
    pub(super) piece_words: usize,
    /// Whether it keeps what was behind the fixed part.
    pub(super) has_tail: bool,
}

/// An image in a buffer, which a guard or the list of transactions keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undo(NonNull<Header>);

// SAFETY: an image is an address; what changes behind it is atomic.
unsafe impl Send for Undo {}

impl Undo {
    /// The image at an address, which may be none.
    #[inline]
    pub(super) fn at(address: u64) -> Option<Self> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).map(Self)
    }

    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: whoever has an image keeps its buffer alive.
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
        NonNull::new(self.header().older.load(Ordering::Acquire)).map(Self)
    }

    /// Under the latch of the slot, or before the image is in a chain.
    #[inline]
    pub(super) fn set_older(self, older: Option<Self>) {
        let address = older.map_or(std::ptr::null_mut(), |older| older.0.as_ptr());
        // Pairs with the acquire in `older`.
        self.header().older.store(address, Ordering::Release);
    }

    /// The image that the same transaction made before.
    #[inline]
    pub(super) fn sibling(self) -> Option<Self> {
        NonNull::new(self.header().sibling).map(Self)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        self.header().kind
    }

    #[inline]
    pub(super) fn place(self) -> Place {
        self.header().place
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

    /// The columns that changed.
    #[inline]
    pub(super) fn columns(self) -> ColumnSet {
        self.header().columns
    }

    /// What was behind the fixed part, if that changed.
    #[inline]
    pub(super) fn tail(self) -> Option<Option<Tail>> {
        self.header().has_tail.then(|| Tail::at(self.header().tail))
    }

    /// Says that the tail goes with the image, or that it does not; answers what was so.
    #[inline]
    pub(super) fn own_tail(self, owns: bool) -> bool {
        // Under the latch of the slot, or by who alone still has the buffer.
        let before = self.header().owns_tail.load(Ordering::Relaxed);
        self.header().owns_tail.store(owns, Ordering::Relaxed);
        before && self.header().tail != 0
    }

    #[inline]
    fn payload(&self) -> *mut u64 {
        // SAFETY: the payload lies right behind the header, in the same chunk.
        unsafe { self.0.as_ptr().add(1).cast() }
    }

    /// The pieces: the first word of each, and what was there.
    #[inline]
    pub(super) fn pieces(&self) -> Pieces<'_> {
        // SAFETY: so many words were written before the image was put into a chain, and do not change.
        Pieces(unsafe { std::slice::from_raw_parts(self.payload(), self.header().piece_words as usize) })
    }

    /// The words of the pieces, to be written before the image is in a chain.
    ///
    /// # Safety
    /// Nobody else has the image yet.
    #[inline]
    pub(super) unsafe fn pieces_mut<'a>(self) -> &'a mut [u64] {
        // SAFETY: so many words lie behind the header, and the caller is alone with them.
        unsafe { std::slice::from_raw_parts_mut(self.payload(), self.header().piece_words as usize) }
    }

    /// The key.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
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

    /// See [`Undo::stamp`].
    #[inline]
    pub(super) fn stamp(self) -> u64 {
        // Acquire: pairs with the release in `commit`.
        self.body().stamp.load(Ordering::Acquire)
    }

    /// All images are committed from this moment on.
    #[inline]
    pub(super) fn commit(self, moment: u64, images: usize) {
        self.body().linked.store(images as u64, Ordering::Relaxed);
        // Release: pairs with the acquire in `stamp`.
        self.body().stamp.store(moment, Ordering::Release);
    }

    /// Its images, newest first.
    #[inline]
    pub(super) fn images(self) -> impl Iterator<Item = Undo> {
        // Who asks has the buffer from its own transaction, or through the lock of the list.
        let newest = NonNull::new(self.body().newest.load(Ordering::Relaxed)).map(Undo);
        std::iter::successors(newest, |undo| undo.sibling())
    }

    /// One of its images has left its chain; whether others are left.
    pub(super) fn unlink(self) {
        self.body().linked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether none of its images is in a chain any more.
    pub(super) fn is_unlinked(self) -> bool {
        self.body().linked.load(Ordering::Relaxed) == 0
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
                unsafe { tail.retire(guard) };
            }
        }
        let mut chunk = NonNull::new(self.body().chunks.load(Ordering::Relaxed));
        while let Some(present) = chunk {
            // SAFETY: the chunks are the buffer's, and stay readable until the guard ends.
            let Chunk { next, bytes } = unsafe { present.read() };
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
    chunk_bytes: usize,
    /// Bytes of all chunks.
    bytes: usize,
    /// All images that stand, oldest first.
    images: Vec<Undo>,
}

impl Writing {
    /// Images that stand, oldest first.
    #[inline]
    pub(super) fn images(&self) -> &[Undo] {
        &self.images
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

    /// Forgets the buffer, which others see to from now on, or which was never seen.
    #[inline]
    pub(super) fn leave(&mut self) -> Option<Buffer> {
        self.images.clear();
        self.images.shrink_to(1 << 14);
        self.left = 0;
        self.bytes = 0;
        self.buffer.take()
    }

    /// Room for an image, and its header. It is not in a chain yet, and counts when it is kept ([`Writing::keep`]).
    #[inline]
    pub(super) fn draft<K: EncodedKey>(
        &mut self,
        id: u64,
        draft: Draft,
        key: K,
        guard: &Guard<'_>,
    ) -> Result<Undo, OutOfMemory> {
        let key_bytes = key.len();
        let bytes = size_of::<Header>() + 8 * draft.piece_words + key_bytes.next_multiple_of(8);
        if bytes > self.left {
            self.grow(id, bytes, guard)?;
        }
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
                columns: draft.columns,
                place: draft.place,
                piece_words: draft.piece_words as u32,
                key_bytes: key_bytes as u16,
                kind: draft.kind,
                has_tail: draft.has_tail,
                owns_tail: AtomicBool::new(false),
            });
        }
        let undo = Undo(header);
        // SAFETY: there is room for the key behind the pieces.
        let room = unsafe {
            let start = undo.payload().add(draft.piece_words).cast::<u8>();
            start.write_bytes(0, key_bytes);
            std::slice::from_raw_parts_mut(start, key_bytes)
        };
        key.write_to(room);
        Ok(undo)
    }

    /// Says what was behind the fixed part.
    ///
    /// # Safety
    /// Nobody else has the image yet.
    #[inline]
    pub(super) unsafe fn set_tail(undo: Undo, tail: Option<Tail>) {
        // SAFETY: as the caller promises.
        unsafe { (*undo.0.as_ptr()).tail = tail.map_or(0, Tail::address) };
        undo.own_tail(true);
    }

    /// The latest draft is an image from now on.
    #[inline]
    pub(super) fn keep(&mut self, undo: Undo) {
        self.waste(undo);
        self.images.push(undo);
    }

    /// The latest draft keeps its place, for others may have found it.
    #[inline]
    pub(super) fn waste(&mut self, undo: Undo) {
        let header = undo.header();
        let bytes =
            size_of::<Header>() + 8 * header.piece_words as usize + usize::from(header.key_bytes).next_multiple_of(8);
        self.free += bytes;
        self.left -= bytes;
    }

    /// Takes the newest image out, if there are more than `len`.
    #[inline]
    pub(super) fn pop(&mut self, len: usize) -> Option<Undo> {
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
        let body = if self.buffer.is_none() { size_of::<Body>().next_multiple_of(8) } else { 0 };
        let start = size_of::<Chunk>() + body;
        let wanted = if self.buffer.is_none() { FIRST_BYTES } else { (self.chunk_bytes * 2).min(LARGEST_BYTES) };
        let bytes = wanted.max(start + needed);
        let chunk = guard.allocate(bytes)?.cast::<Chunk>();
        let next = self.buffer.map_or(std::ptr::null_mut(), |buffer| buffer.body().chunks.load(Ordering::Relaxed));
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone.
        unsafe { chunk.write(Chunk { next, bytes }) };
        match self.buffer {
            Some(buffer) => buffer.body().chunks.store(chunk.as_ptr(), Ordering::Relaxed),
            None => {
                // SAFETY: the first chunk has room for the buffer behind its own two words.
                let place = unsafe { chunk.add(1).cast::<Body>() };
                let body = Body {
                    stamp: AtomicU64::new(id),
                    linked: AtomicU64::new(0),
                    newest: AtomicPtr::new(std::ptr::null_mut()),
                    chunks: AtomicPtr::new(chunk.as_ptr()),
                };
                // SAFETY: as above.
                unsafe { place.write(body) };
                self.buffer = Some(Buffer(place));
            }
        }
        self.chunk_bytes = bytes;
        self.bytes += bytes;
        self.free = chunk.as_ptr().expose_provenance() + start;
        self.left = bytes - start;
        Ok(())
    }
}
