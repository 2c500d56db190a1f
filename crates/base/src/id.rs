//! Ids of tables, indexes and workers.

use std::fmt;

use crate::error::Error;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($number:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

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
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C, packed(2))]
pub struct TableId {
    /// The upper bits of the database's number.
    database: u16,
    /// The lower ones, and the position.
    position: u32,
}

// With an index it takes one word: read and write sets, versions and garbage remember both.
const _: () = assert!(size_of::<(TableId, IndexId)>() == 8);

impl TableId {
    /// The most tables that a database can have in its life.
    pub const POSITIONS: usize = 1 << Self::BITS;

    /// The id of no table, where none can be named: no database has this number.
    pub const NONE: Self = Self { database: 0, position: 0 };

    /// Bits of the database's number, and of the position.
    const BITS: u32 = 24;

    /// The id of the table at a position of a database's list, below [`TableId::POSITIONS`]. Of the number of the database, which is its
    /// own in this process, the low 24 bits count.
    #[inline]
    pub const fn new(database: u32, position: u32) -> Self {
        debug_assert!((position as usize) < Self::POSITIONS);
        Self { database: (database >> 8) as u16, position: database << Self::BITS | position }
    }

    /// The number of the database whose table it is.
    #[inline]
    pub const fn database(self) -> u32 {
        (self.database as u32) << 8 | self.position >> Self::BITS
    }

    /// The id as a position in the database's list of tables.
    #[inline]
    pub const fn position(self) -> usize {
        self.position as usize & (Self::POSITIONS - 1)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { out.write_str("a table unnamed") } else { write!(out, "table {}", self.position()) }
    }
}

impl fmt::Debug for TableId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return out.write_str("TableId::NONE");
        }
        let mut id = out.debug_struct("TableId");
        id.field("database", &self.database()).field("position", &self.position()).finish()
    }
}

id!(
    /// An index of one table: 0 is the primary one, secondary ones follow in the order of their creation.
    IndexId(u16), "index"
);
id!(
    /// A worker's slot.
    WorkerId(u32), "worker"
);

impl IndexId {
    /// The primary index of every table.
    pub const PRIMARY: Self = Self(0);

    /// The secondary index behind so many others.
    ///
    /// # Errors
    /// [`Error::Definition`]: a table has had too many.
    pub fn secondary(others: usize) -> Result<Self, Error> {
        match u16::try_from(others + 1) {
            Ok(id) => Ok(Self(id)),
            Err(_) => Err(Error::definition(format!("a table cannot have more than {} indexes in its life", u16::MAX))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_tables_keep_both_numbers() {
        const LAST: u32 = TableId::POSITIONS as u32 - 1;
        for (database, position) in [(0, 0), (1, 2), (0xAB_CDEF, 0x12_3456), (LAST, LAST)] {
            let id = TableId::new(database, position);
            assert_eq!((id.database(), id.position()), (database, position as usize));
            assert_eq!(id, TableId::new(database | 1 << 24, position), "the number begins anew behind 24 bits");
            let text = if id == TableId::NONE { "a table unnamed".to_owned() } else { format!("table {position}") };
            assert_eq!(id.to_string(), text);
        }
        assert!(TableId::new(1, LAST) < TableId::new(2, 0));
    }

    #[test]
    fn indexes_end_somewhere() {
        assert_eq!(IndexId::secondary(0).unwrap(), IndexId(1));
        assert!(IndexId::secondary(65_535).is_err() && IndexId::secondary(65_534).is_ok());
    }
}
