//! The steps of the log that tests leave out one at a time, and the points at which they step in. `docs/durability.md` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// An epoch's number is raised before the heads of the rings are read.
        RaiseEpochFirst,
        /// Changes that were sealed in a later epoch wait for the next frame.
        LeaveLaterEpochs,
        /// A ring's room is free again once its records are copied.
        FreeCopied,
        /// A change that the ring has no room for is refused.
        RefuseOverfull,
        /// A transaction begins only while its ring is at most half full.
        AwaitRoom,
        /// A reader waits for what was sealed and is not durable.
        AwaitSealed,
        /// Written bytes are synced before they count as durable.
        SyncFrames,
        /// So is the rest of a file that is left for the next one.
        SyncLeftFile,
        /// The name of a new file is durable before the file is used.
        SyncNames,
        /// Nothing is staged once the log has stopped.
        RefuseStopped,
        /// Changes that are sealed in a log that has stopped are not durable either.
        LoseLate,
        /// What a flush had taken that has failed is not durable either.
        LoseTaken,
        /// Deletions are staged while the log cannot grow.
        DeleteWhenFull,
        /// An idle log writes down what is durable.
        CarryDurable,
        /// A log that is closed has the manifest say how far it goes.
        NoteEnd,
        /// A frame is read only behind the one that it was written behind.
        FollowPredecessors,
        /// The changes of a long transaction are numbered through all of its pieces.
        NumberPieces,
        /// A piece is read only behind the one before.
        FollowPieces,
        /// So is a transaction only with its last piece.
        AwaitLastPiece,
        /// An epoch is read only if it is whole.
        CutUnfinished,
        /// Frames that were durable by the manifest must be there.
        KnowFloor,
        /// So must what frames behind the end say.
        LookBehind,
        /// A read that fails is tried once more.
        ReadTwice,
        /// Frames that an opening finds are written again.
        RewriteFound,
        /// An opening has a number of its own.
        RaiseIncarnation,
        /// It overwrites what lies behind the end.
        MarkOpening,
        /// It removes files that lie behind the end.
        RemoveLeftovers,
    }
}

named! {
    /// A step of opening a database, and of changing its tables, that can be left out.
    pub enum OpeningStep {
        /// A directory with other things in it is left alone.
        RefuseForeign,
        /// Sealed changes are durable before a list of tables that may depend on them.
        FlushFirst,
        /// The log stops when it is not known which tables are durable.
        StopInDoubt,
    }
}

named! {
    /// A step of checkpoints that can be left out.
    pub enum CheckpointStep {
        /// Records behind the consistent point are carried, and become no rows.
        CarryOpen,
        /// Those that the checkpoint before has carried count, too.
        TakeCarried,
        /// So do the changes that it has written beside rows.
        TakeChanges,
        /// Rows stay of which little has changed.
        LeaveRows,
        /// A log that is read again is read without what the checkpoint has.
        SkipFolded,
        /// The manifest says that the log was durable up to the checkpoint's epoch.
        RaiseFloor,
        /// Which tables there are is read behind the epoch.
        ReadCatalogLater,
        /// The files of a table stay that nothing was logged of.
        KeepUnchanged,
        /// So do files of other tables of which no row has changed, nor any near them.
        KeepUntouched,
        /// Rows are written again if one near them has changed.
        RewriteTouched,
        /// Rows that are passed on unchanged count as rows of their new file.
        NotePassed,
        /// Rows near which nothing has changed go into files of their own.
        WriteApart,
        /// Short files are written again with others.
        JoinShort,
        /// Files are synced before a manifest names them.
        SyncRows,
        /// So are their names.
        SyncDirectories,
        /// Log files and the files of the checkpoint before go once the manifest is durable.
        WriteManifestFirst,
        /// Nothing goes while it is unknown which manifest counts.
        KeepInDoubt,
        /// A failed checkpoint's files are removed.
        RemoveFailed,
        /// So is what an opening finds of one that was interrupted.
        RemoveInterrupted,
        /// The last block of a file is the one that the manifest says.
        KnowLastBlock,
        /// Files hold room for a checkpoint, which the log does not use.
        HoldRoom,
    }
}

named! {
    /// A step of backups, and of reading a database alone, that can be left out.
    pub enum BackupStep {
        /// A directory that has anything is left alone.
        RefuseFull,
        /// The names of a backup's files are durable before its manifests.
        SyncNames,
        /// There are manifests once all else is there.
        ManifestsLast,
        /// A failed backup's files are removed.
        ClearFailed,
        /// The log of a backup begins anew, and its checkpoint is before all of that.
        BeginEpochsAnew,
        /// The next opening of a backup has a number above those of the records that it carries.
        KeepIncarnation,
        /// A reader of a database that had no lock looks whether it has one now.
        LookAgain,
    }
}

named! {
    /// A step of archives and of restoring that can be left out.
    pub enum ArchiveStep {
        /// Log files stay until the archive has them.
        HoldBack,
        /// A file is copied only when a frame behind it is durable with its epoch.
        AwaitFollowing,
        /// Copies and their names are durable before a log file goes.
        SyncCopies,
        /// A file of another history is not overwritten.
        KeepOthers,
        /// A point counts only if it covers what the log has before its tables.
        CoverDefinitions,
        /// Frames behind the consistent point are not restored.
        DropOpen,
    }
}

named! {
    /// A step of shipping a log that can be left out.
    pub enum ShipStep {
        /// A frame is sent when it is durable.
        AwaitDurable,
        /// A frame is taken only behind the one that it was written behind.
        FollowPredecessors,
        /// Frames of a lower incarnation than a standby has seen are refused.
        RefuseLower,
        /// A frame is durable at the standby before what it has is applied.
        AppendFirst,
        /// Frames behind the consistent point wait for a later one.
        KeepOpen,
        /// A point counts only if it covers what the log has before its tables.
        CoverDefinitions,
        /// Tables are sent before the first frame that may have something of them.
        SendTables,
        /// Tables whose predecessors are not known are taken only if they are those that the standby knows.
        KnowTables,
        /// While a standby's manifest gets other tables, it is not known from which frame on they count.
        MarkUnknown,
        /// An idle log has what it has last covered by a consistent point.
        CoverLast,
        /// Log files stay while a standby is about to be sent them.
        HoldFiles,
        /// A new standby's manifests are written when all else is there.
        ManifestsLast,
        /// A standby that is too far behind says so where it is opened.
        MarkBehind,
        /// Files of another database, or of a later opening, stay.
        KeepOthers,
        /// A promoted standby has an incarnation that its old primary does not reach.
        RaiseTerm,
        /// An answer waits for as many standbys as the database wants.
        AwaitReplicas,
        /// A standby counts once, however often it is connected.
        CountOnce,
        /// It acknowledges what is durable there.
        AcknowledgeDurable,
        /// It answers when the primary says that it is there.
        AnswerAlive,
        /// One that has been silent for long loses its place.
        EndSilent,
        /// What it says of the history that it had before it was sent anything counts if that was compared.
        CompareFirst,
    }
}

named! {
    /// A step of a standby's database that can be left out.
    pub enum StandbyStep {
        /// Changes that a point closes are applied as one transaction.
        ApplyAtOnce,
    }
}

named! {
    /// A step of recovery that can be left out.
    pub enum RecoveryStep {
        /// Of a key's changes the one with the highest order counts, in whichever sequence they come.
        CompareOrders,
        /// Changes of a piece are those behind the ones of the pieces before.
        NumberThroughPieces,
        /// A change of a later incarnation counts, whatever its order.
        CompareIncarnations,
        /// Patches count over a row that was put before.
        ApplyPatches,
        /// They do not over one that was put later.
        PassOverOlderPatches,
        /// They count in their order.
        SortPatches,
        /// A patch replaces another one only if it has all of its words.
        CoverPatches,
        /// The row that is patched is there.
        RefusePatchOfNothing,
        /// A patch ends where its row does.
        RefusePatchBeyondEnd,
        /// A patch leaves the key as it is.
        RefuseOtherKey,
        /// A row is one of its table's layout.
        CheckRows,
        /// The checkpoint's row is gone if it was deleted since.
        DeleteFromCheckpoint,
        /// It leaves once if it was put since.
        ReplaceInCheckpoint,
        /// A row that was patched since must be in the checkpoint.
        AwaitPatched,
        /// It is there once.
        RefuseTwice,
        /// Changes and rows of tables that are not in the catalog do not count.
        SkipDropped,
    }
}

named! {
    /// A point at which a test steps in.
    pub enum Point {
        /// An epoch is being closed: its number is raised, and no head is read yet.
        Closing,
        /// The head of the first ring is read.
        FirstHeadRead,
        /// The last frame of an epoch is written, and not synced yet.
        FrameWritten,
        /// A checkpoint is begun, and its epoch is not chosen.
        CheckpointBegins,
        /// A checkpoint's files are written, and no manifest names them yet.
        FilesWritten,
        /// A database is read alone, and it is not known yet whether somebody has begun to write meanwhile.
        FilesRead,
        /// A standby is about to have its manifest written.
        StandbyWrites,
    }
}
