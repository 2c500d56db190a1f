//! The one door to atomics: std in the product, loom in model tests. No other crate names `std::sync::atomic`.

/// Atomic types and orderings.
pub mod atomic {
    #[cfg(not(loom))]
    pub use core::sync::atomic::*;
    #[cfg(loom)]
    pub use loom::sync::atomic::*;
}

pub use crossbeam_utils::CachePadded;

/// Tells the processor (or the model checker) that the thread waits for another one.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
