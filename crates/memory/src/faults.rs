//! Allocations that a test refuses. Only tests turn the feature `faults` on.

use std::cell::Cell;

/// Which of a thread's allocations are refused, the first being number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// None.
    #[default]
    Nothing,
    /// This one, as when some thread gives memory back a time later.
    Only(u64),
    /// This one and all that follow, as at the memory limit.
    From(u64),
}

thread_local! {
    static REFUSAL: Cell<Refusal> = const { Cell::new(Refusal::Nothing) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Refuses allocations of this thread from now on, which are counted anew. Returns how many there were before.
pub fn refuse(refusal: Refusal) -> u64 {
    REFUSAL.set(refusal);
    ALLOCATIONS.replace(0)
}

/// Whether the allocation that is being asked for is refused.
pub(crate) fn refused() -> bool {
    let number = ALLOCATIONS.get() + 1;
    ALLOCATIONS.set(number);
    match REFUSAL.get() {
        Refusal::Nothing => false,
        Refusal::Only(refused) => number == refused,
        Refusal::From(first) => number >= first,
    }
}
