//! Whether the process is the one that made something, or was forked from it: asked so often that the system is not.

use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{MODELLED, Process};

use crate::system::{Mapping, PAGE};

/// The process that has made this, and no other that was forked from it.
#[derive(Debug)]
pub struct Origin {
    process: Process,
    /// A page that has something in this process, and nothing in one that is forked from it.
    mark: Option<Mapping>,
}

impl Origin {
    /// The one that calls.
    pub fn here() -> Self {
        // A model checker's atomics are more than their words.
        let mark = if MODELLED { None } else { Mapping::new(PAGE, false).filter(Mapping::is_wiped_on_fork) };
        let this = Self { process: Process::here(), mark };
        this.word().into_iter().for_each(|word| word.store(1, Ordering::Relaxed));
        this
    }

    /// Whether it is the one that calls.
    #[inline]
    pub fn is_here(&self) -> bool {
        // Relaxed: the system has wiped it before the process had its first instruction.
        self.word().map_or_else(|| self.process.is_here(), |word| word.load(Ordering::Relaxed) == 1)
    }

    #[inline]
    fn word(&self) -> Option<&AtomicU64> {
        // SAFETY: the mapping has a page of zeroes, which begins with an aligned word, lives as long as this, and is only used by this reference.
        self.mark.as_ref().map(|mark| unsafe { mark.base().cast::<AtomicU64>().as_ref() })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn it_is_here() {
        assert!(Origin::here().is_here());
    }
}
