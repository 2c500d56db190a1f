//! The steps that keep transactions apart, each of which tests leave out to show what it is for, and the points at which
//! they step in. `lab/check/tests/mutations` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// Phase 1 latches the records that are written.
        LatchWrites,
        /// Phase 1 latches own insertions, too.
        LatchInsertions,
        /// An own insertion is written only if no other transaction has written its record.
        RefuseOvertaken,
        /// A record that the index has forgotten is not written.
        RefuseUnlinkedWrites,
        /// A thread that writes a table knows all its indexes.
        KnowAllIndexes,
        /// An index that was dropped has not been asked.
        KnowDropped,
        /// The epoch is read after the last latch.
        EpochAfterLatches,
        /// The epoch is read before the first check.
        EpochBeforeChecks,
        /// A record that was read has the id it had.
        CompareIds,
        /// A record that was read is latched by no other thread.
        RefuseLatched,
        /// A record that was read has not moved.
        RefuseMoved,
        /// The nodes that were looked at are as they were.
        CompareNodes,
        /// A transaction that only read is validated as well.
        ValidateReaders,
        /// What a transaction read is validated before its error is believed.
        ValidateRollBack,
        /// A running transaction is validated now and then.
        ValidateRunning,
        /// After a conflict every call conflicts.
        StayDoomed,
        /// An id exceeds those of the records that were read.
        ExceedReads,
        /// An id exceeds those of the records that are written.
        ExceedWrites,
        /// An id exceeds the worker's last one.
        ExceedLast,
        /// A key that leads nowhere puts its node into the node set.
        NodesOfMisses,
        /// So does a record without a row.
        NodesOfTombstones,
        /// So does every node of a range.
        NodesOfRanges,
        /// So does an insertion that is taken back.
        NodesOfUndone,
        /// One that stays for another transaction is a record that was read.
        ReadsOfUndone,
        /// An own insertion brings the node set up to date.
        FollowOwnInsertions,
        /// It does so only for stamps that say what was there just before.
        FollowOnlyOwn,
        /// It adds the new node when the old one was divided.
        FollowSplits,
        /// It finds the stamps of nodes that were unlinked meanwhile.
        FollowResolved,
        /// A transaction that stands aside for long shows the records that it has read.
        NoteReads,
        /// So it does with those that it is going to write.
        NoteWrites,
        /// So it does with the nodes that it has looked at.
        NoteNodes,
        /// When it comes back it asks these alone, and not what they lead to.
        AskNodesAlone,
        /// A hint that leads to no row is not believed.
        RefuseEmptyHints,
        /// A record that is being written is dirty.
        MarkDirty,
        /// A read compares the data version before and after.
        ReadTwice,
        /// A row is kept for snapshots when it is overwritten.
        KeepVersions,
        /// The first snapshot waits until what was overwritten before, and not kept, is older than it is.
        AwaitKeeping,
        /// Rows are kept as long as a snapshot is open.
        KeepForOpen,
        /// A row that moves is kept for snapshots.
        KeepMoved,
        /// A snapshot passes over what is newer than it is.
        CompareEpochs,
        /// A snapshot does not use an index that was filled after its epoch.
        AwaitIndexes,
        /// An index is handed out when its filling has become the past.
        AwaitFilling,
        /// Rows that are loaded are of an epoch that all snapshots see.
        LoadInThePast,
        /// A thread that writes on a tombstone claims it.
        ClaimTombstones,
        /// A claimed tombstone is not unlinked.
        RespectClaims,
        /// A claim that is taken back holds until the transactions of that epoch have ended.
        OutliveClaims,
        /// A tombstone stays as long as a snapshot is older.
        OutliveSnapshots,
        /// Only a tombstone is unlinked.
        UnlinkOnlyTombstones,
        /// An older version stays as long as an open snapshot sees it.
        KeepSeen,
        /// It stays until those that begin from now on are newer than its end.
        KeepRecent,
        /// The horizon is read before the list of open snapshots is made.
        HorizonBeforeList,
        /// A tombstone stays as long as an open snapshot sees a row behind it.
        KeepHidden,
        /// A snapshot that misses a row looks for one that was displaced.
        LookBeside,
        /// A scan that has seen a row of a key does not see it again on the record to which it moved.
        SkipTwins,
        /// A rollback takes own insertions out.
        UndoInsertions,
        /// An operation that fails on its way is undone.
        UndoOperations,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
    }
}

named! {
    /// A point at which a test steps in.
    pub enum Point {
        /// Commit begins.
        Committing,
        /// Phase 2 has passed.
        Validated,
        /// A record's words are written and it is not published yet.
        Writing,
        /// The list of open snapshots is made.
        Listed,
        /// A read has copied the row and not looked at the data version again.
        Copied,
    }
}
