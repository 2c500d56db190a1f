//! The steps that keep transactions apart, each of which tests leave out to show what it is for.
//! `docs/mutation-proof.md` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// What is read is locked shared.
        LockReads,
        /// What is written is locked exclusively.
        LockWrites,
        /// Who holds a shared lock and writes makes it exclusive.
        Upgrade,
        /// That takes that nobody else holds it.
        UpgradeAlone,
        /// Locks are given back at the end only.
        HoldLocks,
        /// A range that is scanned is locked.
        LockRanges,
        /// It is locked before it is looked at, and gives way to nothing but its end.
        LockRangesFirst,
        /// An insertion looks for locked ranges.
        RespectRanges,
        /// The rows of a range are locked, too.
        LockScanned,
        /// A record that has left its index is looked up again.
        LookAgain,
        /// Who writes to a table knows all its indexes.
        KnowAllIndexes,
        /// An index that was dropped has not been asked.
        KnowDropped,
        /// A snapshot does not write.
        RefuseSnapshotWrites,
        /// A conflict is final, whatever the procedure makes of it.
        StayDoomed,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
        /// A condition that was tested is held.
        HoldConditions,
        /// Who has written looks for conditions of others.
        RespectConditions,
        /// What else such a condition depends on is locked.
        LockOperands,
        /// Who is wounded gives way.
        GiveWay,
        /// A rollback puts back what was.
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
        /// A transaction waits for a key, and has wounded who is younger.
        Queued,
    }
}
