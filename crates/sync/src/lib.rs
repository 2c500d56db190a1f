//! The one door to atomics: std in the product, loom or shuttle in model tests. No other crate names
//! `std::sync::atomic`.
//!
//! `--cfg loom` explores every interleaving of small parts, weak memory included; `--cfg shuttle` runs random schedules of whole
//! transactions under sequential consistency. What is built here on top of the atomics is what several crates need: a latch, back-off, a
//! place to sleep, the store-to-load barrier of epochs, prefetches, copies through atomic words, and sums over them.

mod backoff;
mod latch;
#[cfg(any(loom, shuttle))]
pub mod model;
mod numbers;
mod parker;
mod process;
pub mod vectors;
mod words;

pub use backoff::{Backoff, nap};
pub use crossbeam_utils::CachePadded;
pub use crossbeam_utils::atomic::AtomicCell;
pub use latch::{SpinGuard, SpinLatch};
pub use numbers::Numbers;
pub use parker::Parker;
pub use process::Process;
pub use words::{copy_words, load_words, prefetch_read, store_words};

use atomic::{AtomicU64, Ordering};

/// Atomic types and orderings.
pub mod atomic {
    #[cfg(not(any(loom, shuttle)))]
    pub use core::sync::atomic::*;
    #[cfg(loom)]
    pub use loom::sync::atomic::*;
    #[cfg(all(shuttle, not(loom)))]
    pub use shuttle::sync::atomic::*;
}

/// Threads as the model checker knows them.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::*;
    #[cfg(all(shuttle, not(loom)))]
    pub use shuttle::thread::*;
    #[cfg(not(any(loom, shuttle)))]
    pub use std::thread::*;

    /// Whether joining the thread waits for nothing; a model checker has it join.
    #[cfg(not(any(loom, shuttle)))]
    pub fn is_finished<T>(thread: &JoinHandle<T>) -> bool {
        thread.is_finished()
    }

    /// As above.
    #[cfg(any(loom, shuttle))]
    pub fn is_finished<T>(_: &JoinHandle<T>) -> bool {
        true
    }
}

#[cfg(loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(loom)]
#[doc(hidden)]
pub use loom::thread_local as modelled_thread_local;
#[cfg(all(shuttle, not(loom)))]
pub use shuttle::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread_local,
};

/// As the standard library's, for one variable with a constant beginning.
#[cfg(loom)]
#[macro_export]
macro_rules! thread_local {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = const { $init:expr };) => {
        $crate::modelled_thread_local! { $(#[$attribute])* static $name: $type = $init; }
    };
}

/// The lock, unless another thread has it. A poisoned lock is taken as it is.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Whether a model checker runs the threads. Nothing happens by itself then: no thread is started for the passing of time.
pub const MODELLED: bool = cfg!(any(loom, shuttle));

/// A number that tells the calling thread from all other living ones.
#[inline]
pub fn this_thread() -> u64 {
    crate::thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
}

/// A number that no other call of this process is answered, until all have been used; never 0.
pub fn new_number() -> u32 {
    const NUMBERS: u32 = (1 << 24) - 1;
    // Not a modelled atomic: identities order nothing, and models have no statics.
    static NEXT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(1);
    // Relaxed: the exchanges alone tell the calls apart.
    let next = |number: u32| Some(if number == NUMBERS { 1 } else { number + 1 });
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(1)
}

/// Tells the processor (or the model checker) that the thread waits for another one.
#[inline]
pub fn spin_hint() {
    #[cfg(not(any(loom, shuttle)))]
    core::hint::spin_loop();
    #[cfg(any(loom, shuttle))]
    thread::yield_now();
}

/// Lets no later load of this thread happen before the exchange (or other read-modify-write operation) that it has just made is visible to
/// every other thread: a sequentially consistent fence, which on x86-64 the exchange was already.
#[inline]
pub fn fence_behind_exchange() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    // SeqCst: the full barrier that pairs with every other call of this function.
    atomic::fence(Ordering::SeqCst);
}

/// Keeps the compiler, and no other thread, from moving reads and writes across: for a thread that has another thread make this processor
/// pass a barrier.
#[inline]
pub fn fence_for_the_compiler() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Raises a word to `value`, unless it has come so far already. `order` is that of a read-modify-write operation; where nothing is stored
/// the word is read by an acquiring load.
///
/// This is `fetch_max`, of which ThreadSanitizer knows nothing: it would miss all that the word hands on.
#[inline]
pub fn raise(word: &AtomicU64, value: u64, order: Ordering) {
    // An error says that there was nothing to raise.
    let _ = word.fetch_update(order, Ordering::Acquire, |now| (now < value).then_some(value));
}

/// Stores `value`, and lets no later load of this thread happen before the store is visible to every other thread.
///
/// The store is a release; the barrier behind it is a sequentially consistent fence. Two threads that each publish a word
/// this way and then look at the other's cannot both miss what the other published. On x86-64 one exchange does both, at
/// about half the price of the fence; the compiler fence keeps the compiler from moving loads before it.
#[inline]
pub fn publish(word: &AtomicU64, value: u64) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    {
        // SeqCst: a locked exchange, the full barrier that pairs with every other call of this function.
        word.swap(value, Ordering::SeqCst);
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    {
        // Release: pairs with the acquire loads of any thread that scans the word.
        word.store(value, Ordering::Release);
        // SeqCst: the full barrier that pairs with every other call of this function.
        atomic::fence(Ordering::SeqCst);
    }
}
