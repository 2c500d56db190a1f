//! What the models of both indexes share: an index in a memory of its own, and threads that work on it.

use crate::{Change, Changes, Handle, Stamp};
use polychron_memory::{Guard, Local, Memory, Options};
use polychron_sync::thread::{self, JoinHandle};
use std::sync::Arc;

pub(crate) fn handle(value: u64) -> Handle {
    Handle::new(value).expect("handles of models are not zero")
}

/// The threads of a model, beside the one that runs it.
pub(crate) struct Threads<I> {
    index: Arc<I>,
    waiting: Vec<Local>,
    running: Vec<JoinHandle<Local>>,
}

/// Makes an index in a memory of its own and works on it, with up to so many other threads. What comes before the first
/// thread begins and after the last one has ended is not interleaved.
pub(crate) fn with_threads<I: Send + Sync + 'static>(
    others: usize,
    make: impl FnOnce(&Guard<'_>) -> I,
    work: impl FnOnce(&I, &Guard<'_>, &mut Threads<I>),
) {
    let memory = Memory::new(Options { max_workers: others + 1, ..Options::tiny() }).expect("sound options");
    let own = memory.register().expect("a slot is free");
    let waiting = (0..others).map(|_| memory.register().expect("a slot is free")).collect();
    let guard = own.pin();
    let index = Arc::new(make(&guard));
    let mut threads = Threads { index: Arc::clone(&index), waiting, running: Vec::new() };
    work(&index, &guard, &mut threads);
    threads.join();
}

impl<I: Send + Sync + 'static> Threads<I> {
    /// Works on the index in a thread of its own.
    pub(crate) fn spawn(&mut self, work: impl FnOnce(&I, &Guard<'_>) + 'static) {
        let local = self.waiting.pop().expect("a place for each thread");
        let index = Arc::clone(&self.index);
        self.running.push(thread::spawn(move || {
            work(&index, &local.pin());
            local
        }));
        // Loom considers other orders only after this thread gave way once.
        thread::yield_now();
    }

    /// Waits for all threads.
    pub(crate) fn join(&mut self) {
        for thread in self.running.drain(..) {
            self.waiting.push(thread.join().expect("no thread panics"));
        }
    }
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
        let same = |stamp: &Stamp, other: Stamp| *stamp == other || unsafe { stamp.settled() } == other;
        match change {
            Change::Added { of, new } if self.0.iter().any(|stamp| same(stamp, of)) => self.0.push(new),
            Change::Added { .. } => {}
            Change::Moved { before, after } => {
                self.0.iter_mut().filter(|stamp| same(stamp, before)).for_each(|stamp| *stamp = after);
            }
        }
    }
}
