//! The steps that keep transactions apart, each of which tests leave out to show what it is for, and the points at which
//! they step in. `lab/check/tests/mutations` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// A worker's timestamps follow each other.
        ExceedLast,
        /// A transaction whose clock is behind the leader's bound starts over.
        BeginAfterBound,
        /// A snapshot whose horizon has moved on starts over.
        BeginAtHorizon,
        /// The horizon stays before every transaction that may write.
        AwaitWriters,
        /// Nothing is collected that a transaction or a snapshot may look at.
        AwaitReaders,
        /// A worker that joins while the leader is at work is among them.
        AwaitJoined,
        /// The horizon of the snapshots never goes back.
        NeverGoBack,
        /// A commit ahead of the machine's clock is acknowledged when the clock has followed.
        AwaitClock,
        /// With external consistency a commit is acknowledged when nobody can come to stand before it.
        AwaitHorizon,
        /// A transaction holds the horizons back until all its versions have their status.
        EndLast,
        /// What is installed is pending until it is validated.
        InstallPending,
        /// A version is installed where its timestamp belongs in the list.
        InstallInOrder,
        /// The read timestamps of what was read are raised.
        RaiseVersions,
        /// They are raised before the reads are checked.
        RaiseFirst,
        /// What was read is what is visible.
        CompareVersions,
        /// A transaction that checks its reads waits for what is pending.
        AwaitPendingReads,
        /// What is written on was not read by a later transaction.
        RefuseReadLater,
        /// A transaction that inserts waits for what is pending below.
        AwaitPendingBelow,
        /// A key that has a row by now is not inserted.
        RefuseInsertedFirst,
        /// One read alone waits for what is pending.
        AwaitPendingAlone,
        /// An aborted version counts for nothing.
        PassOverAborted,
        /// An own pending version is not what was read before it.
        PassOverOwn,
        /// The nodes that were looked at are as they were.
        CompareNodes,
        /// The words of parts that were seen empty are raised.
        RaiseGaps,
        /// A key that comes into being was missed by no later transaction.
        AdmitKeys,
        /// No later transaction has found a range empty that holds it.
        AdmitRanges,
        /// An index notes the lengths of the prefixes by which it is scanned.
        NoteLengths,
        /// A transaction that only read is validated as well.
        ValidateReaders,
        /// What a transaction read is validated before its error is believed.
        ValidateRollBack,
        /// That includes what its insertions saw, which the insertions themselves will not show.
        ProtectRolledBack,
        /// A running transaction is validated now and then.
        ValidateRunning,
        /// After a conflict every call conflicts.
        StayDoomed,
        /// A key that leads nowhere puts its node into the node set.
        NodesOfMisses,
        /// So does a record without a row.
        NodesOfTombstones,
        /// So does every node of a range.
        NodesOfRanges,
        /// So does an insertion that is undone.
        NodesOfUndone,
        /// So does an insertion that the transaction itself deletes again.
        NodesOfDeleted,
        /// In a multi-version index, a node that an insertion or a deletion changes was read.
        NodesOfChanges,
        /// So were the nodes that are merged, and the one above them.
        NodesOfMerges,
        /// So was the leaf that leads to a row which is written unread.
        NodesOfBlindWrites,
        /// A way down that comes to a node whose keys end before the wanted one goes on to the right.
        FollowSiblings,
        /// A leaf that leads to a record without a row is looked at again.
        LookAgain,
        /// A key that was missed is a part that was seen empty.
        PartsOfMisses,
        /// So is a key that is inserted.
        PartsOfInsertions,
        /// So is a range.
        PartsOfRanges,
        /// A key that was missed in an epoch that was left is looked up again.
        MissAgain,
        /// A range that was searched there is searched again.
        CountAgain,
        /// Both also look beside the index.
        LookBesideAgain,
        /// A hint that leads to no row is not believed.
        RefuseEmptyHints,
        /// Only what is superseded for every reader is collected.
        CollectSuperseded,
        /// Only a deleted record leaves the index.
        CloseOnlyDeleted,
        /// A record is closed before it leaves the index.
        CloseRecords,
        /// A key whose record was closed gets another one.
        ReplaceClosed,
        /// A record that was closed showed no row and shows none.
        TolerateClosed,
        /// Pruning leaves what an open reader sees.
        KeepSeen,
        /// A deleted key does not leave the index under an open reader that sees its row.
        KeepRows,
        /// Pruning leaves what a transaction may have read before an earlier one changed it.
        KeepSpans,
        /// Pruning leaves the latest version.
        KeepLatest,
        /// Pruning leaves what is not stable.
        KeepUnsettled,
        /// The horizon is read before the timestamps that are held.
        HorizonBeforeMoments,
        /// A transaction that writes a table knows all its indexes.
        KnowAllIndexes,
        /// A transaction that makes entries of a new index is later than those that did not know it.
        FollowUnknowing,
        /// An index is filled by transactions later than those that did not know it.
        FillAfterUnknowing,
        /// A snapshot does not use an index that was filled after its timestamp.
        AwaitIndexes,
        /// An index is handed out when its filling has become the past.
        AwaitFilling,
        /// A transaction that has missed a row waits for the log as far as it was looked for.
        AwaitMissed,
        /// Rows that are loaded are of a timestamp behind which nobody looks.
        LoadInThePast,
        /// Old versions are written anew before the clock wraps around.
        RenewRows,
        /// So are deletions that could not be collected.
        RenewDeletions,
        /// So are the words of parts that were seen empty.
        RenewGaps,
        /// So is the timestamp from which an index is complete.
        RenewReadiness,
        /// Nobody begins when the horizon, or the last round of renewal, is too far behind.
        HoldBack,
        /// A worker that collects holds the horizon by which it does.
        HoldToCollect,
        /// An operation that fails on its way is undone.
        UndoOperations,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
    }
}

named! {
    /// A point at which a test steps in.
    pub enum Point {
        /// A transaction knows its tables and has no timestamp yet.
        Beginning,
        /// It has one, which nobody can see yet.
        Drawn,
        /// Its timestamp can be seen, and it has not looked at the horizons again.
        Published,
        /// The leader has looked at the timestamps and not published the horizon.
        Scanned,
        /// A version is about to be put into its list.
        Linking,
        /// All versions are installed.
        Installed,
        /// The reads are checked.
        Checked,
        /// The validation has passed.
        Validated,
        /// A version of the transaction has its status; others may have none yet.
        Ended,
        /// The timestamps that are held were looked at.
        Counted,
        /// A node of a multi-version index has led to a record that was not looked at yet.
        Led,
        /// A transaction is held back because a reader, a round, or the leader is too far behind.
        HeldBack,
        /// A worker knows up to when it collects, and has collected nothing yet.
        Collecting,
    }
}
