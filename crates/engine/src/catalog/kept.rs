//! Lists of tables that stay while no guard holds them.

use std::sync::PoisonError;

use polychron_sync::atomic::{Ordering, fence};
use polychron_sync::{Mutex, MutexGuard};

use super::{Catalog, Described, NEVER, Seen, Tables};

/// For each worker the list of tables that its open transaction looks at, for transactions that are in no epoch between two operations
/// ([`Guard::rest`](polychron_memory::Guard::rest), [`Guard::stand_aside`](polychron_memory::Guard::stand_aside)). A list is locked when its
/// worker meets another one, and when a table goes.
#[derive(Debug)]
pub struct Kept<T>(Box<[Mutex<Option<Versioned<T>>>]>);

/// A list and its version.
type Versioned<T> = (u64, Tables<T>);

impl<T: Described> Kept<T> {
    /// No lists, for so many workers.
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    fn of(&self, worker: usize) -> MutexGuard<'_, Option<Versioned<T>>> {
        self.0[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which list is kept for a worker.
    pub fn version(&self, worker: usize) -> Option<u64> {
        self.of(worker).as_ref().map(|(version, _)| *version)
    }

    /// Keeps the list that a worker sees until the worker lets it go. The caller is pinned since before it renewed `seen`.
    #[inline]
    pub fn keep(&self, worker: usize, seen: &mut Seen<T>) {
        if seen.kept != seen.version {
            self.keep_another(worker, seen);
        }
    }

    #[cold]
    fn keep_another(&self, worker: usize, seen: &mut Seen<T>) {
        seen.kept = seen.version;
        let before = self.of(worker).replace((seen.version, seen.keep()));
        // A table that goes with its list takes time, and asks the deferred drops: here and below without the lock.
        drop(before);
    }

    /// A transaction has ended, or its worker has none: a list that is not the present one is kept no more.
    #[inline]
    pub fn let_old_go(&self, worker: usize, seen: &mut Seen<T>, catalog: &Catalog<T>) {
        if seen.kept != NEVER && seen.kept != catalog.version() {
            self.let_go(worker, seen);
        }
    }

    /// Keeps nothing from now on for a worker that has no transaction open.
    #[cold]
    pub fn let_go(&self, worker: usize, seen: &mut Seen<T>) {
        seen.kept = NEVER;
        let before = self.of(worker).take();
        drop(before);
    }

    /// Takes the lists away that are kept for idle workers, except the present one. Asked behind a sequentially consistent fence,
    /// `is_idle` says of a worker whether it has no transaction open; one that begins announces that, passes such a fence, and looks at the
    /// catalog.
    ///
    /// A worker knows which list it keeps, and keeps another one as soon as it begins with another one. So a list may go whose
    /// worker will begin with a later one.
    pub fn take_from_idle(&self, catalog: &Catalog<T>, is_idle: impl Fn(usize) -> bool) {
        let present = catalog.version();
        // Barrier: pairs with the one of a worker that begins. A worker whose announcement is not seen here finds this version or a
        // later one.
        fence(Ordering::SeqCst);
        for worker in 0..self.0.len() {
            let mut kept = self.of(worker);
            if kept.as_ref().is_some_and(|(version, _)| *version < present) && is_idle(worker) {
                let list = kept.take();
                drop(kept);
                drop(list);
            }
        }
    }
}
