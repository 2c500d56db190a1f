//! The steps that isolate transactions, each of which tests leave out to show what it is for. `lab/check/tests/mutations` has what goes wrong without
//! each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// What is read is locked shared.
        LockReads,
        /// What is written is locked exclusively.
        LockWrites,
        /// A shared lock becomes exclusive when its holder writes.
        Upgrade,
        /// Only when no other transaction holds it.
        UpgradeAlone,
        /// Locks are released at the end only.
        HoldLocks,
        /// A range that is scanned is locked.
        LockRanges,
        /// It is locked before it is read.
        LockRangesFirst,
        /// An insertion looks for locked ranges.
        RespectRanges,
        /// The rows of a range are locked, too.
        LockScanned,
        /// A record that has left its index is looked up again.
        LookAgain,
        /// A transaction that writes to a table knows all its indexes.
        KnowAllIndexes,
        /// An index that was dropped has not been read.
        KnowDropped,
        /// A snapshot does not write.
        RefuseSnapshotWrites,
        /// A conflict is final, whatever the procedure makes of it.
        StayDoomed,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
        /// A condition that was tested is held.
        HoldConditions,
        /// A transaction that has written looks for conditions of others.
        RespectConditions,
        /// The other rows of such a condition are locked.
        LockOperands,
        /// A wounded transaction gives way.
        GiveWay,
        /// A rollback restores the rows.
        UndoTransactions,
        /// An operation that fails on its way is undone.
        UndoOperations,
    }
}

named! {
    /// Points at which a test steps in.
    pub enum Point {
        /// A scan has collected entries and has not locked them yet.
        Collected,
        /// A transaction waits for a key, and has wounded younger ones.
        Queued,
    }
}
