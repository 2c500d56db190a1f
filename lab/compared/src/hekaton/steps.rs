//! The steps that keep transactions apart, each of which tests leave out to show what it is for, and the points at which
//! they step in. `lab/check/tests/mutations` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// What a running transaction has written is not seen by others.
        PassUncommitted,
        /// A row that another transaction has written since is not written.
        RefuseOverwritten,
        /// A row that another transaction is writing is not deleted.
        RefuseLocked,
        /// A transaction says that it draws its end before it does.
        AnnounceEnd,
        /// A thread that reads what a preparing transaction has written depends on it.
        DependOnOthers,
        /// A transaction commits when those that it depends on have.
        AwaitOthers,
        /// A version that was read is still visible at the end.
        CompareVersions,
        /// A record that showed no row shows none at the end.
        CompareRecords,
        /// The nodes that were looked at are as they were.
        CompareNodes,
        /// A key that leads nowhere puts its node into the node set.
        NodesOfMisses,
        /// So does a record that shows no row.
        NodesOfBlanks,
        /// So does every node of a range.
        NodesOfRanges,
        /// So does an insertion that is taken back.
        NodesOfUndone,
        /// A write that is taken back leaves a read.
        ReadsOfUndone,
        /// An own insertion brings the node set up to date.
        FollowOwnInsertions,
        /// It does so only for stamps that say what was there just before.
        FollowOnlyOwn,
        /// It adds the new node when the old one was divided.
        FollowSplits,
        /// It finds the stamps of nodes that were unlinked meanwhile.
        FollowResolved,
        /// A hint that leads to no row is not believed.
        RefuseEmptyHints,
        /// What a failed procedure read was there before its error is believed.
        AwaitRollBack,
        /// After a conflict every call conflicts.
        StayDoomed,
        /// A thread that writes a table knows all its indexes.
        KnowAllIndexes,
        /// An index that was dropped has not been asked.
        KnowDropped,
        /// An index is not used at timestamps before its filling.
        AwaitIndexes,
        /// A row whose entry is made by the filling is written by it, too, where reads are not validated.
        LockFilledRows,
        /// A version stays as long as some thread reads a timestamp at which it is visible.
        AwaitReaders,
        /// What a foreign key rests on is validated under snapshot isolation, too.
        ProtectParents,
        /// An operation that fails on its way is undone.
        UndoOperations,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
    }
}

named! {
    /// A point at which a test steps in.
    pub enum Point {
        /// A transaction has looked at the catalog, and has not drawn its beginning.
        Beginning,
        /// Commit begins.
        Committing,
        /// The end is drawn and not known to others.
        Drawn,
        /// The transaction is preparing: its end is known, and nothing is validated.
        Preparing,
        /// Validation has passed.
        Validated,
    }
}
