//! A barrier between two sides of which one passes it all the time and the other seldom: the first pays next to nothing, and the second makes
//! every thread of the process pass one. Where the system does not offer that, or a model runs the threads, both pass a fence.

/// How the side that passes often does it, found out once and kept where that side finds it without a look at anything shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Light(imp::Kind);

impl Light {
    /// Finds out what the system offers, before anybody passes a barrier.
    pub(crate) fn prepare() -> Self {
        Self(imp::prepare())
    }

    /// The side that passes often: its store before this is seen by the loads behind [`heavy`], or its loads behind this see what was
    /// stored before that.
    #[inline]
    pub(crate) fn pass(self) {
        imp::light(self.0);
    }
}

/// The other side. `false`: the system has refused it, and nothing may be concluded.
pub(crate) fn heavy() -> bool {
    imp::heavy()
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri, polychron_slow))))]
mod imp {
    use std::sync::OnceLock;

    use polychron_sync::atomic::{Ordering, fence};
    use polychron_sync::fence_for_the_compiler;
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether the system makes all threads pass a barrier. Set before the first worker is there, and for good.
    static OFFERED: OnceLock<bool> = OnceLock::new();

    /// What [`OFFERED`] says.
    pub(super) type Kind = bool;

    pub(super) fn prepare() -> Kind {
        *OFFERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
    }

    #[inline]
    pub(super) fn light(offered: Kind) {
        if offered {
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
        OFFERED.get() != Some(&true) || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri, polychron_slow)))))]
mod imp {
    use polychron_sync::atomic::{Ordering, fence};

    pub(super) type Kind = ();

    pub(super) fn prepare() -> Kind {}

    #[inline]
    pub(super) fn light((): Kind) {
        // SeqCst: pairs with the fence in `heavy`.
        fence(Ordering::SeqCst);
    }

    pub(super) fn heavy() -> bool {
        // SeqCst: pairs with the fence in `light`.
        fence(Ordering::SeqCst);
        true
    }
}
