//! What the models of both indexes share: an index in a memory of its own, and threads that work on it.

use crate::{Change, Changes, Handle, Stamp};
use polychron_memory::{Guard, Local, Memory, Options};
use polychron_sync::thread::{self, JoinHandle};
use std::sync::Arc;

pub(crate) fn handle(value: u64) -> Handle {
    Handle::new(value).expect("handles of models are not zero")
}

/// Two threads on one index, in a memory of its own: makes the index, runs `other` and `own` beside each other, and then
/// `after` with what `own` answered. What comes before and after is not interleaved.
///
/// Neither runs in the thread of the model: loom lets a load choose among older values where the store came first in its
/// execution, so `other`, which begins first, is to be the one that writes if `own` only reads. A thread that gives way would not
/// be offered what it has seen before.
///
/// Stamps may be asked as long as this function runs: its own guard is older than they are.
pub(crate) fn beside<I: Send + Sync + 'static, O: 'static>(
    make: impl FnOnce(&Guard<'_>) -> I,
    other: impl FnOnce(&I, &Guard<'_>) + 'static,
    own: impl FnOnce(&I, &Guard<'_>) -> O + 'static,
    after: impl FnOnce(&I, &Guard<'_>, O),
) {
    let memory = Memory::new(Options { max_workers: 3, ..Options::tiny() }).expect("sound options");
    let register = || memory.register().expect("a slot is free");
    let (here, there, elsewhere) = (register(), register(), register());
    let guard = here.pin();
    let index = Arc::new(make(&guard));
    let other = spawn(&index, there, other);
    let own = spawn(&index, elsewhere, own);
    // Their places are dropped when all is over.
    let (there, ()) = other.join().expect("no thread panics");
    let (elsewhere, output) = own.join().expect("no thread panics");
    after(&index, &guard, output);
    drop((there, elsewhere));
}

fn spawn<I: Send + Sync + 'static, O: 'static>(
    index: &Arc<I>,
    local: Local,
    work: impl FnOnce(&I, &Guard<'_>) -> O + 'static,
) -> JoinHandle<(Local, O)> {
    let index = Arc::clone(index);
    thread::spawn(move || {
        let output = work(&index, &local.pin());
        (local, output)
    })
}

/// A transaction's node set.
pub(crate) struct NodeSet(pub(crate) Vec<Stamp>);

impl NodeSet {
    /// # Safety
    /// The guard of the stamps is alive.
    pub(crate) unsafe fn holds(&self) -> bool {
        // SAFETY: as promised by the caller.
        self.0.iter().all(|stamp| unsafe { stamp.holds() })
    }
}

impl Changes for NodeSet {
    fn change(&mut self, change: Change) {
        // SAFETY: models keep the guard of their stamps.
        let same = |stamp: &Stamp, other: Stamp| *stamp == other || unsafe { stamp.resolved() } == other;
        match change {
            Change::Added { of, new } if self.0.iter().any(|stamp| same(stamp, of)) => self.0.push(new),
            Change::Added { .. } => {}
            Change::Moved { before, after } => {
                self.0.iter_mut().filter(|stamp| same(stamp, before)).for_each(|stamp| *stamp = after);
            }
        }
    }
}
