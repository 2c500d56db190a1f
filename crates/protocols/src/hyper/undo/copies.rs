//! Copies of before-images that stay when their buffer goes.

use std::marker::PhantomData;
use std::ptr::NonNull;

use polychron_memory::{Guard, OutOfMemory};
use polychron_sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::{Body, Buffer, HAS_OUT_OF_LINE, Header, Undo};

/// A buffer for copies of committed before-images, as large as they are.
pub(in crate::hyper) struct Copies {
    buffer: Buffer,
    free: NonNull<u64>,
    left: usize,
}

impl Copies {
    /// Room for copies of some of a buffer's before-images, of so many bytes together.
    pub(in crate::hyper) fn new(of: Buffer, bytes: usize, guard: &Guard<'_>) -> Result<Self, OutOfMemory> {
        let body = guard.allocate(size_of::<Body>() + bytes)?.cast::<Body>();
        // SAFETY: the memory is large enough, aligned to at least 16, and ours alone.
        let free = unsafe {
            body.write(Body::new(of.stamp(), size_of::<Body>() + bytes));
            body.add(1).cast()
        };
        Ok(Self { buffer: Buffer(body), free, left: bytes })
    }

    /// The buffer, and its bytes.
    pub(in crate::hyper) fn buffer(&self) -> (Buffer, usize) {
        (self.buffer, self.buffer.body().chunk.bytes)
    }

    /// Copies a before-image, with its stamp. `None`: there is no room. The copy is in no chain, leads to nothing older, and owns no
    /// out-of-line part yet.
    pub(in crate::hyper) fn copy<'c>(&mut self, before_image: Undo<'c>) -> Option<Undo<'c>> {
        let bytes = before_image.bytes();
        self.left = self.left.checked_sub(bytes)?;
        let (from, newest) = (before_image.header(), &self.buffer.body().newest);
        // SAFETY: there is room for it, aligned to 8, and no other thread knows of it; the before-image has as many bytes as are copied, of
        // which those behind its header do not change.
        let copy = unsafe {
            let header = self.free.cast::<Header>();
            self.free = self.free.byte_add(bytes);
            let payload = bytes - size_of::<Header>();
            header.add(1).cast::<u8>().as_ptr().copy_from_nonoverlapping(before_image.payload().cast(), payload);
            header.write(Header {
                buffer: self.buffer.0,
                older: AtomicPtr::new(std::ptr::null_mut()),
                sibling: newest.load(Ordering::Relaxed),
                columns: AtomicU64::new(from.columns.load(Ordering::Relaxed)),
                marks: AtomicU8::new(from.marks.load(Ordering::Relaxed) & HAS_OUT_OF_LINE),
                ..*from
            });
            header
        };
        newest.store(copy.as_ptr(), Ordering::Relaxed);
        Some(Undo(copy, PhantomData))
    }
}
