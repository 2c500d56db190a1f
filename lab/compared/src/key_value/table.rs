//! A table: an index over records for its primary key, and one for each secondary index (`record.rs` draws a record).

use polychron_engine::stores::{Store, StoreTable};

use super::record::RowRecords;

/// One index.
pub(super) type Entries = Store<RowRecords>;

/// A table.
pub(super) type Table = StoreTable<Entries>;
