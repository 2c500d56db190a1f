//! The row layer: rows and their secondary entries, made of what a protocol stores under keys, once for all protocols.
//!
//! A protocol stores *records*: words under a key of an index. In the primary index the words are a row; in a secondary one they lead to
//! a row, by its primary key unless the protocol knows better. [`Primitives`] is what a running transaction of a protocol can do with
//! records. On it, this module is a [`Transaction`](crate::Transaction): each change of a row changes the entries that lead to it, an operation that fails
//! leaves nothing behind, and a scan of a secondary index follows its entries to the rows.

mod change;
mod fill;
mod primitives;
mod transaction;
mod visit;

use polychron_schema::RowBuffer;

use crate::Savepoints;
use crate::redo::Watch;
use crate::stores::key_in_entry;

pub use change::{lock_row, make_entry};
pub use fill::{fill, fill_by_own_worker, make_entries};
pub use primitives::{At, Finding, Flags, Intent, Lookup, Primitives, Rewrite};
pub use transaction::watch_scan;
pub use visit::{Visit, follow_key};

crate::named! {
    /// Steps of the row layer that a test can leave out. Protocols have them among their own steps, by the same names, so that each has a test
    /// that fails without them.
    pub enum Step {
        /// An operation that fails on its way is undone.
        UndoOperations,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
        /// A row whose change has failed is put back. This one stands in front of all protocols, and has a test of its own.
        RestoreRows,
        /// A put that has found no row looks again where its key is taken. This one stands in front of all protocols, too.
        LookAgain,
    }
}

crate::named! {
    /// A point at which a test steps in.
    pub enum Point {
        /// A put has found no row with its key, and has not added its own.
        PutFoundNothing,
    }
}

/// Memory of the row layer, which each worker keeps.
#[derive(Debug, Default)]
pub struct Buffers {
    /// A row that is being changed: in a box, because it is taken out and put back by each change.
    changing: Option<Box<RowBuffer>>,
    /// A row as it was before a change.
    old: RowBuffer,
    /// A row as it is to be.
    new: RowBuffer,
    /// A row that takes the place of another one.
    whole: RowBuffer,
    /// An entry's words.
    entry: RowBuffer,
    /// The savepoints of the running transaction, unless the protocol has them elsewhere.
    pub savepoints: Savepoints,
    /// What it reads of a log that has stopped, unless the protocol has that elsewhere.
    pub watch: Watch,
}

impl Buffers {
    /// A buffer for a row that is changed, until [`Primitives::give_back`].
    #[inline]
    pub fn take_changing(&mut self) -> Box<RowBuffer> {
        self.changing.take().unwrap_or_default()
    }

    /// The primary key to which [`follow_key`] went last.
    pub fn followed_key(&self) -> &[u8] {
        key_in_entry(self.entry.as_words())
    }
}
