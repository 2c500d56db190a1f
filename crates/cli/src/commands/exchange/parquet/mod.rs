//! Parquet: the table's columns under their names, none nested.
//!
//! Files are read and written by columns, so that rows are turned into them in groups of bounded size.

mod columns;
mod guard;
mod read;
mod write;

pub(in crate::commands) use read::Columns;
pub(in crate::commands) use write::Groups;

#[cfg(test)]
mod tests;
