//! What tests leave out, to show what each step is for.

use polychron_engine::named;

named! {
    /// Steps of BOHM that a test leaves out.
    pub enum Step {
        /// A reader executes the transaction that fills the version it wants, or waits for it (§3.3.1).
        AwaitPlaceholder,
        /// A reader takes the newest version before its own timestamp, not the newest of all.
        ReadBefore,
        /// A reader of a secondary index first has all transactions executed that may write entries of it.
        AwaitIntents,
        /// A reader first has all transactions executed that may write its key, or keys of its range, without having named them.
        AwaitPrefixes,
        /// Transactions wait for those before them that may write anything.
        AwaitEverything,
        /// A transaction looks at the list of tables when it has waited for those: they may know an index that it would not know before.
        ListBehindWaits,
        /// What was found for a declared read is not used where an unplanned write may have come in between.
        DistrustAnnotations,
        /// A placeholder that was not filled passes the preceding row on.
        PassOn,
        /// A procedure that failed leaves nothing of what it put.
        DiscardFailed,
        /// A write that was not planned is refused, or planned anew.
        RefuseUnplanned,
        /// Versions stay until no transaction and no snapshot wants them.
        AwaitReaders,
        /// A snapshot that misses a key looks beside, where deleted ones are that only snapshots see.
        LookBeside,
        /// Undoing to a savepoint, and operations that fail on their way, restore what was put before.
        UndoWrites,
        /// A unique index has a key once.
        RefuseDuplicates,
        /// What a transaction passes on is resolved before its changes are staged for the log.
        ResolveBeforeStaging,
    }
}

named! {
    /// Where a test steps in.
    pub enum Point {
        /// A transaction has its log position, and is going to wait for those before it that may write anything.
        Begins,
    }
}
