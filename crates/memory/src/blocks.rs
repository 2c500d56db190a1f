//! Free blocks: lists that run through the blocks themselves, and the stash where workers leave and find batches of them.

use std::ptr::{self, NonNull};

use polychron_sync::SpinLatch;

use crate::classes::{CLASSES, batch_of_class};

/// The contents of a free block: real pointers, so that provenance survives while the block is free.
#[repr(C)]
struct Block {
    next: *mut Block,
    /// The first block of the next batch, in the first block of a batch that lies in the stash.
    next_batch: *mut Block,
}

/// A list of free blocks of one class. Owns them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeList {
    head: *mut Block,
    count: u32,
}

impl FreeList {
    pub(crate) const EMPTY: Self = Self { head: ptr::null_mut(), count: 0 };

    #[inline]
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Puts a block in front.
    ///
    /// # Safety
    /// The block is at least 16 bytes, aligned to 16, and the list owns it from now on.
    #[inline]
    pub(crate) unsafe fn push(&mut self, block: NonNull<u8>) {
        let block = block.as_ptr().cast::<Block>();
        // SAFETY: the caller gives the block away; it is large enough and aligned for a `Block`.
        unsafe { (&raw mut (*block).next).write(self.head) };
        self.head = block;
        self.count += 1;
    }

    /// The block in front, or null.
    #[inline]
    pub(crate) const fn head(&self) -> *const u8 {
        self.head.cast()
    }

    /// Takes the block in front.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.head)?;
        // SAFETY: the list owns the block, and `push` wrote its next pointer.
        self.head = unsafe { (&raw const (*block.as_ptr()).next).read() };
        self.count -= 1;
        Some(block.cast())
    }
}

/// The shared free blocks of one class.
#[derive(Clone, Copy)]
struct Shelf {
    /// Full batches, linked through the second word of the first block of each.
    batches: *mut Block,
    /// Blocks that came in less than a batch.
    loose: FreeList,
}

// SAFETY: a shelf owns its blocks.
unsafe impl Send for Shelf {}

impl Default for Shelf {
    fn default() -> Self {
        Self { batches: ptr::null_mut(), loose: FreeList::EMPTY }
    }
}

impl Shelf {
    fn give_batch(&mut self, batch: FreeList) {
        // SAFETY: the shelf owns the batch from now on, and blocks have room for two pointers.
        unsafe { (&raw mut (*batch.head).next_batch).write(self.batches) };
        self.batches = batch.head;
    }
}

/// All blocks that lay on a shelf, taken out. Any thread that has it owns them. Each block is only read before it is handed out, so it may
/// be given away.
pub(crate) struct Gathered {
    batches: *mut Block,
    list: FreeList,
}

impl Iterator for Gathered {
    type Item = NonNull<u8>;

    fn next(&mut self) -> Option<NonNull<u8>> {
        self.list.pop().or_else(|| {
            let batch = NonNull::new(self.batches)?;
            // SAFETY: the batch is owned, and `give_batch` wrote the word; no block of it was handed out yet.
            self.batches = unsafe { (&raw const (*batch.as_ptr()).next_batch).read() };
            self.list = FreeList { head: batch.as_ptr(), count: u32::MAX };
            self.list.pop()
        })
    }
}

/// The shared free blocks of every class. Its latches are taken once a batch.
pub(crate) struct Stash {
    shelves: Box<[SpinLatch<Shelf>]>,
}

impl std::fmt::Debug for Stash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Stash").finish_non_exhaustive()
    }
}

impl Stash {
    pub(crate) fn new() -> Self {
        Self { shelves: (0..CLASSES).map(|_| SpinLatch::default()).collect() }
    }

    /// Takes up to a batch of blocks, or an empty list when there are none.
    pub(crate) fn take(&self, class: usize) -> FreeList {
        let mut shelf = self.shelves[class].lock();
        if shelf.batches.is_null() {
            return std::mem::replace(&mut shelf.loose, FreeList::EMPTY);
        }
        let head = shelf.batches;
        // SAFETY: the shelf owns the batch, and `give_batch` wrote the word.
        shelf.batches = unsafe { (&raw const (*head).next_batch).read() };
        FreeList { head, count: batch_of_class(class) }
    }

    /// Takes all blocks of a class.
    pub(crate) fn gather(&self, class: usize) -> Gathered {
        let Shelf { batches, loose } = std::mem::take(&mut *self.shelves[class].lock());
        Gathered { batches, list: loose }
    }

    /// Leaves blocks of a class, at most a batch.
    pub(crate) fn give(&self, class: usize, mut list: FreeList) {
        let batch = batch_of_class(class);
        debug_assert!(list.count <= batch);
        let mut shelf = self.shelves[class].lock();
        if list.count == batch {
            shelf.give_batch(list);
            return;
        }
        while let Some(block) = list.pop() {
            // SAFETY: the block was in a list of the same class, which owned it.
            unsafe { shelf.loose.push(block) };
            if shelf.loose.count == batch {
                let full = std::mem::replace(&mut shelf.loose, FreeList::EMPTY);
                shelf.give_batch(full);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_stash_returns_what_it_was_given() {
        let class = 3;
        let batch = batch_of_class(class);
        let mut blocks = vec![[0u128; 4]; 3 * batch as usize];
        let stash = Stash::new();
        let mut list = FreeList::EMPTY;
        let mut pushed = 0;
        for block in &mut blocks {
            // SAFETY: the block is 64 bytes, aligned to 16, and lives until the end of the test.
            unsafe { list.push(NonNull::from(block).cast()) };
            pushed += 1;
            if list.count() == batch || pushed % 7 == 0 {
                stash.give(class, std::mem::replace(&mut list, FreeList::EMPTY));
            }
        }
        stash.give(class, list);
        let mut addresses = std::collections::BTreeSet::new();
        loop {
            let mut list = stash.take(class);
            if list.count() == 0 {
                break;
            }
            let count = list.count();
            let before = addresses.len();
            while let Some(block) = list.pop() {
                addresses.insert(block.addr());
            }
            assert_eq!(addresses.len() - before, count as usize);
        }
        assert_eq!(addresses.len(), blocks.len());
    }
}
