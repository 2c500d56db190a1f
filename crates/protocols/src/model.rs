//! What the models of records share: a memory, and a thread beside the one that runs the model.

use polychron_memory::{Guard, Local, Memory, Options};
use polychron_sync::thread::{self, JoinHandle};

/// Works with a guard of this thread and a place in the memory for another one.
pub(crate) fn with_places(work: impl FnOnce(&Guard<'_>, Local)) {
    let memory = Memory::new(Options { max_workers: 2, ..Options::tiny() }).expect("sound options");
    let here = memory.register().expect("a slot is free");
    let there = memory.register().expect("a slot is free");
    work(&here.pin(), there);
}

/// Works in another thread, which hands its place back so that it is dropped when all is over.
pub(crate) fn spawn(place: Local, work: impl FnOnce(&Guard<'_>) + 'static) -> JoinHandle<Local> {
    let running = thread::spawn(move || {
        work(&place.pin());
        place
    });
    // Loom considers other orders only after this thread gave way once.
    thread::yield_now();
    running
}
