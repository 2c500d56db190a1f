//! The steps that keep transactions apart. Tests leave out one after the other, to show what each is for.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// A transaction acquires the lock before it begins.
        AcquireLock,
        /// A snapshot may not write.
        RefuseSnapshotWrites,
        /// A rollback puts back what was.
        UndoTransactions,
        /// An operation that fails on its way is undone.
        UndoOperations,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
    }
}
