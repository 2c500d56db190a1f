//! The steps that keep transactions apart, each of which tests leave out to show what it is for, and the points at which
//! they step in. `lab/check/tests/mutations` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// What a running transaction has written is undone for others.
        UndoUncommitted,
        /// What was committed after the start is undone.
        UndoLater,
        /// A row that another transaction is writing is not written.
        RefuseBeingWritten,
        /// A row that was written since the start is not written.
        RefuseWrittenLater,
        /// A key that is looked up is logged.
        LogPoints,
        /// A range that is visited is logged.
        LogRanges,
        /// A smallest or largest value that is asked for is logged.
        LogExtremes,
        /// An aggregate without an answer, because the sum does not fit, is logged.
        LogFailures,
        /// A row that an update looked at and left as it was is logged.
        LogLooks,
        /// The restrictions of a scan are logged, and with them the columns that they look at.
        LogRestrictions,
        /// A key in which a duplicate stands is logged.
        LogDuplicates,
        /// A row whose change or deletion was refused is logged.
        LogRefused,
        /// What was committed meanwhile is compared with the points.
        ComparePoints,
        /// It is compared with the paths.
        ComparePaths,
        /// A row that went, or changed, is compared as it was.
        CompareBefore,
        /// A row that came, or changed, is compared as it is.
        CompareAfter,
        /// What is committed between the first comparison and the commit section is compared, too.
        CompareInSection,
        /// A thread that moves its start compares what it has asked before with what was committed up to there.
        CompareBeforeMoving,
        /// A row that was deleted is not locked for what is going to be written.
        PassOverDeleted,
        /// A write that is taken back leaves a read.
        ReadsOfUndone,
        /// After a conflict every call conflicts.
        StayDoomed,
        /// A thread that writes a table knows all its indexes.
        KnowAllIndexes,
        /// An index is not used at timestamps before its filling.
        AwaitIndexes,
        /// A row whose entry is made by the filling is written by it, too.
        LockFilledRows,
        /// A before-image stays as long as some thread reads a timestamp at which it is undone.
        AwaitReaders,
        /// A before-image leaves the middle of a chain only if older ones put back all that it does.
        KeepWords,
        /// What is known of the words that older before-images put back is known for one timestamp.
        RestoredTimestamps,
        /// It is known for those words.
        RestoredWords,
        /// It is not known because of the before-image that is asked about.
        RestoredByOthers,
        /// A before-image that is needed goes on when its buffer goes.
        MoveOut,
        /// Behind a transaction that may write, a before-image that stays stands for newer ones that leave.
        StandForNewer,
        /// What is committed behind a listing is distinguished from what was listed.
        ListedTimestamps,
        /// Writers pass a before-image without a look at it only when all of them began after its commit.
        AwaitWriters,
        /// Nothing is put on a record that has left the index for older transactions.
        PassOverDisplaced,
        /// A snapshot looks for what has left the index.
        LookBeside,
        /// So does an older transaction that may write.
        WritersLookBeside,
        /// It looks there, too, when the index has taken a key that it inserts.
        InsertBeside,
        /// A transaction makes known that it will read before it chooses what.
        AnnounceStart,
        /// What a foreign key rests on is validated under snapshot isolation, too.
        ProtectParents,
        /// A thread that latches a plain slot widens the interval over it.
        CoverVersions,
        /// It stops a thread that narrows the interval.
        StopNarrowing,
        /// What was made of a slot range counts only when the interval is what it was.
        LookAgain,
        /// An operation that fails on its way is undone.
        UndoOperations,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
    }
}

named! {
    /// A point at which a test steps in.
    pub enum Point {
        /// A transaction has read the latest commit, and has not said that it reads it.
        Starting,
        /// A transaction has looked at the catalog, and has not begun.
        Beginning,
        /// A scan has looked at the positions of a slot range, and has not read it.
        Lending,
        /// A scan has looked at the slots of an interval, and has not narrowed it.
        Narrowing,
        /// The first comparison has passed, and the commit section has not begun.
        Compared,
    }
}
