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

/// A table of one database. Ids are not used again after a table is dropped, and no two databases of a process have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId {
    database: u32,
    position: u32,
}

impl TableId {
    /// The id of the table at a position of a database's list. The number of the database is its own in this process; none has the
    /// number 0.
    #[inline]
    pub const fn new(database: u32, position: u32) -> Self {
        Self { database, position }
    }

    /// The number of the database whose table it is.
    #[inline]
    pub const fn database(self) -> u32 {
        self.database
    }

    /// The id as a position in the database's list of tables.
    #[inline]
    pub const fn position(self) -> usize {
        self.position as usize
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "table {}", self.position)
    }
}

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
