//! Of which process something is: a process that is forked has all memory of the other one, and of its threads only the one that has forked.

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The one that calls.
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether it is the one that calls. It asks the system.
    pub fn is_here(self) -> bool {
        self == Self::here()
    }
}
