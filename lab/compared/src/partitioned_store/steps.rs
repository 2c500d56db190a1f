//! The steps that keep transactions apart, each of which tests leave out to show what it is for.
//! `lab/check/tests/mutations` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// A transaction takes the locks of its partitions before it begins.
        TakeLocks,
        /// A key of another partition is refused.
        RefuseUndeclared,
        /// A range that reaches into another partition is refused.
        RefuseUndeclaredRanges,
        /// A table that is not divided is written by a thread that has all partitions.
        RefuseSharedWrites,
        /// So is an index that is unique over all partitions.
        RefuseSharedEntries,
        /// A key of such an index is looked for in all partitions.
        SearchAllPartitions,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
        /// A rollback puts back what was.
        UndoTransactions,
        /// An operation that fails on its way is undone.
        UndoOperations,
    }
}
