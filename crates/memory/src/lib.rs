//! Memory: regions, pools, epochs and reclamation. (Interface first; the inside is being built.)

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

/// An allocation was refused: the memory limit is reached or the system has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: {requested} bytes were asked for")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: usize,
}

/// How memory is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {}

/// The memory of one database, shared by all its workers.
#[derive(Debug)]
pub struct Memory {}

impl Memory {
    /// Sets memory up.
    pub fn new(_options: Options) -> Result<Arc<Self>, OutOfMemory> {
        Ok(Arc::new(Self {}))
    }

    /// Claims a worker slot.
    pub fn register(self: &Arc<Self>) -> Result<Local, OutOfMemory> {
        Ok(Local { retired: RefCell::new(Vec::new()) })
    }
}

/// One worker's share of the memory: its pools, its slot in the epoch tables, what it retired.
#[derive(Debug)]
pub struct Local {
    retired: RefCell<Vec<(NonNull<u8>, usize)>>,
}

// SAFETY: the retired list is owned; nothing of it is shared with another thread.
unsafe impl Send for Local {}

impl Local {
    /// Enters the current epoch: nothing retired from now on is freed before the guard is dropped.
    pub fn pin(&self) -> Guard<'_> {
        Guard { local: self }
    }
}

/// Proof that the worker is inside an epoch; gives access to its pools.
#[derive(Debug)]
pub struct Guard<'l> {
    local: &'l Local,
}

fn layout(bytes: usize) -> std::alloc::Layout {
    let align = if bytes.is_multiple_of(64) { 64 } else { 16 };
    std::alloc::Layout::from_size_align(bytes.max(16), align).expect("sizes are far below isize::MAX")
}

impl Guard<'_> {
    /// Takes `bytes` bytes of uninitialised memory, aligned to 64 when `bytes` is a multiple of 64 and to 16 otherwise.
    pub fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        // SAFETY: the layout's size is never zero.
        NonNull::new(unsafe { std::alloc::alloc(layout(bytes)) }).ok_or(OutOfMemory { requested: bytes })
    }

    /// Gives memory back at once.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] with the same `bytes`, and no thread can reach it any more.
    pub unsafe fn free(&self, pointer: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises that pointer and size match an allocation.
        unsafe { std::alloc::dealloc(pointer.as_ptr(), layout(bytes)) }
    }

    /// Gives memory back once every guard that exists now is dropped.
    ///
    /// # Safety
    /// `pointer` came from [`Guard::allocate`] with the same `bytes`; threads that pin from now on cannot reach it.
    pub unsafe fn retire(&self, pointer: NonNull<u8>, bytes: usize) {
        self.local.retired.borrow_mut().push((pointer, bytes));
    }
}
