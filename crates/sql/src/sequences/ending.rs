//! What a session does for others when its transaction commits, and ends.

use std::sync::Arc;

use super::Drawn;
use crate::advisory::Locks;
use crate::error::SqlError;
use crate::notifications::Post;

impl Drawn {
    /// The session has begun.
    pub(crate) fn connect(&self, post: &Arc<Post>, locks: &Arc<Locks>, session: u64) {
        self.outbox.connect(post);
        self.locks.connect(locks, session);
    }

    /// The transaction is about to commit.
    ///
    /// # Errors
    /// It must not.
    pub(crate) fn reserve(&self) -> Result<(), SqlError> {
        self.outbox.reserve(self.activity.get().map_or(0, |activity| activity.number()))
    }

    /// The transaction has ended.
    pub(crate) fn end(&self) {
        self.outbox.end();
        self.locks.end();
    }

    /// The session has ended, or forgets what it has.
    pub(crate) fn close(&self) {
        self.outbox.close();
        self.locks.close();
    }
}
