//! The steps of lazy transactions, each of which tests leave out to show what it is for.
//! `lab/check/tests/mutations` says what goes wrong without each.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// Conditions that no thread holds are looked at again at the commit.
        CheckConditions,
        /// A future of a column that is going to be written is what will be written.
        ReadOwnFutures,
        /// What is going to be written is written before it is read.
        FlushBeforeReads,
        /// Columns that are still to be read are read before their row is written.
        FlushBeforeWrites,
        /// What is going to be written is written before a range is scanned.
        FlushBeforeScans,
        /// What was open at a savepoint, and has been flushed since, is open again after a return to it.
        ReopenFlushed,
        /// What was made since a savepoint is resolved before it is undone, so that what fails of it is told.
        ResolveUndone,
        /// What was going to be written since a savepoint is forgotten.
        ForgetUndone,
        /// What is overwritten before it is written must have a value, too.
        ComputeOverwritten,
        /// Conditions that no thread holds are looked at again by a thread that fails, too.
        CheckBeforeFailing,
        /// A failure at the commit that may come from reads that were never mutually consistent is none.
        ValidateFailures,
    }
}
