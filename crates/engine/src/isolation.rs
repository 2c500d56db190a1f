//! The isolation that protocols promise, and their named options.

/// A protocol with options that have a name of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The name in lists and on the command line.
    pub name: &'static str,
    /// One line: what it is and when to take it.
    pub summary: &'static str,
    /// The isolation that it promises.
    pub isolation: Isolation,
    /// Names and values for [`crate::Protocol::set_option`].
    pub options: &'static [(&'static str, &'static str)],
}

impl Configuration {
    /// A serializable one.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        options: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { name, summary, isolation: Isolation::Serializable, options }
    }

    /// The same with another promise.
    #[must_use]
    pub const fn promising(self, isolation: Isolation) -> Self {
        Self { isolation, ..self }
    }
}

/// The isolation that a protocol promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// As if they ran one after the other.
    Serializable,
    /// Each transaction reads one consistent snapshot, and of two that write the same row at the same time one is aborted. Write
    /// skew, and what readers see of it, is allowed, and nothing else.
    Snapshot,
    /// Nothing: single operations are atomic, transactions are not.
    Nothing,
}
