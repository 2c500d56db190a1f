//! Ids of tables, indexes and workers.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as a position in an array.
            #[inline]
            pub const fn position(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!($word, " {}"), self.0)
            }
        }
    };
}

id!(
    /// A table of one database. Ids are not used again after a table is dropped.
    TableId, "table"
);
id!(
    /// An index of one table: 0 is the primary one, secondary ones follow in the order of their creation.
    IndexId, "index"
);
id!(
    /// A worker's slot.
    WorkerId, "worker"
);

impl IndexId {
    /// The primary index of every table.
    pub const PRIMARY: Self = Self(0);
}
