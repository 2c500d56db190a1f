//! A barrier between two sides of which one passes it all the time and the other seldom: the first pays next to nothing, and the second
//! makes every thread of the process pass one. Where the system does not offer that, or a model runs the threads, both pass a fence.

/// Finds out what the system offers, before anybody passes a barrier.
pub(crate) fn prepare() {
    imp::prepare();
}

/// The side that passes often: its store before this is seen by the loads behind [`heavy`], or its loads behind this see what was stored
/// before that.
#[inline]
pub(crate) fn light() {
    imp::light();
}

/// The other side. `false`: the system has refused it, and nothing may be concluded.
pub(crate) fn heavy() -> bool {
    imp::heavy()
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri, polychron_slow))))]
mod imp {
    use std::sync::Once;

    use polychron_sync::atomic::{AtomicBool, Ordering, fence};
    use polychron_sync::fence_for_the_compiler;
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether the system makes all threads pass a barrier. Set before the first worker is there, and for good.
    static OFFERED: AtomicBool = AtomicBool::new(false);

    pub(super) fn prepare() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let is_offered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            // Relaxed: `call_once` orders it, and a thread that passes a barrier has its slot from a thread that has been here.
            OFFERED.store(is_offered, Ordering::Relaxed);
        });
    }

    #[inline]
    pub(super) fn light() {
        if OFFERED.load(Ordering::Relaxed) {
            // The processor is told by `heavy`; the compiler must not move anything across.
            fence_for_the_compiler();
        } else {
            // SeqCst: pairs with the fence in `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn heavy() -> bool {
        // SeqCst: pairs with the fence in `light`; and the calls to the system order nothing for the compiler.
        fence(Ordering::SeqCst);
        !OFFERED.load(Ordering::Relaxed) || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri, polychron_slow)))))]
mod imp {
    use polychron_sync::atomic::{Ordering, fence};

    pub(super) fn prepare() {}

    #[inline]
    pub(super) fn light() {
        // SeqCst: pairs with the fence in `heavy`.
        fence(Ordering::SeqCst);
    }

    pub(super) fn heavy() -> bool {
        // SeqCst: pairs with the fence in `light`.
        fence(Ordering::SeqCst);
        true
    }
}
