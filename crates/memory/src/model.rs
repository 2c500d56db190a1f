//! What the models of records share: a memory, and two threads beside each other.

use polychron_sync::thread::{self, JoinHandle};

use crate::{Guard, Local, Memory, Options};

/// Makes something, runs `other` and `own` on it beside each other, and then `after`. What comes before and after is not
/// interleaved.
///
/// Neither runs in the thread of the model: loom lets a load choose among older values where the store came first in its
/// execution, so `other`, which begins first, is to be the one that writes if `own` only reads. A thread that gives way would not
/// be offered what it has seen before.
///
/// # Panics
/// When one of the two does.
pub fn beside<R: Copy + 'static>(
    make: impl FnOnce(&Guard<'_>) -> R,
    other: impl FnOnce(R, &Guard<'_>) + 'static,
    own: impl FnOnce(R, &Guard<'_>) + 'static,
    after: impl FnOnce(R, &Guard<'_>),
) {
    let memory = Memory::new(Options { max_workers: 3, ..Options::tiny() }).expect("sound options");
    let register = || memory.register().expect("a slot is free");
    let (here, there, elsewhere) = (register(), register(), register());
    let guard = here.pin();
    let record = make(&guard);
    let (other, own) = (spawn(record, there, other), spawn(record, elsewhere, own));
    // Their places are dropped when all is over.
    let locals = (other.join().expect("no thread panics"), own.join().expect("no thread panics"));
    after(record, &guard);
    drop(locals);
}

fn spawn<R: 'static>(record: R, local: Local, work: impl FnOnce(R, &Guard<'_>) + 'static) -> JoinHandle<Local> {
    thread::spawn(move || {
        work(record, &local.pin());
        local
    })
}
