//! The steps that keep transactions apart and can be left out by tests, which show so what each is for. That one transaction
//! runs at a time is none of them: the tables have one owner, so a program without it does not compile.

use polychron_engine::named;

named! {
    /// A step that can be left out.
    pub enum Step {
        /// A rollback puts back what was.
        UndoTransactions,
        /// A unique secondary key that is taken is a duplicate.
        RefuseDuplicates,
        /// A snapshot may not write.
        RefuseSnapshotWrites,
    }
}
