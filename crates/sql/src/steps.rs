//! The steps of SQL that tests leave out one at a time. `docs/lab/mutation-proof.md` says what they are for.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// A statement waits for the definition that has closed its table.
        WaitAtGates,
        /// A definition waits for the transactions that use its tables.
        AwaitUsers,
        /// What a transaction answers that is run again is compared with what it has answered.
        CompareAnswers,
        /// What a parked transaction answers that goes on is compared with what it has answered.
        CompareParked,
        /// A transaction that is parked gives its worker back.
        GiveWorkersBack,
        /// A parked transaction does not go on with tables that definitions have taken.
        RefuseOutdated,
        /// Checks that were deferred are run before the commit.
        RunDeferred,
        /// Checks that are behind a savepoint go with it, and those before it stay.
        KeepChecks,
        /// An error is answered once what was read before it is known to be consistent.
        DoubtErrors,
        /// A transaction that does not see a table which is newer than itself begins again.
        RenewOutdated,
        /// A transaction does not use a table that was shown, with rows, since it began.
        RenewBehind,
        /// NULLs come last where nothing else is said.
        NullsLast,
    }
}
