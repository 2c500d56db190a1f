//! What a thread has committed last: a snapshot that it begins contains that, through whichever worker either goes.

use std::cell::Cell;

/// A commit that wrote: the database's number, the clock reading, and the worker's slot.
#[derive(Clone, Copy, Debug)]
struct Commit {
    database: u32,
    reading: u64,
    slot: usize,
}

polychron_sync::thread_local! {
    static LAST: Cell<Option<Commit>> = const { Cell::new(None) };
}

/// The calling thread has committed.
#[inline]
pub(super) fn note(database: u32, reading: u64, slot: usize) {
    LAST.with(|last| last.set(Some(Commit { database, reading, slot })));
}

/// The last commit of the calling thread, if that was in this database: its clock reading and slot. Waited for once, it is not told again.
pub(super) fn take(database: u32) -> Option<(u64, usize)> {
    LAST.with(|last| {
        let commit = last.get().filter(|commit| commit.database == database)?;
        last.set(None);
        Some((commit.reading, commit.slot))
    })
}
