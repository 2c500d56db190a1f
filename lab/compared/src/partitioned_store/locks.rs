//! The partitions' locks.
//!
//! * Rows and entries of a partition are read and written only by a thread that holds its lock.
//! * Rows of tables that are not divided are read by a thread that holds any lock, and written by a thread that holds all of them; so no
//!   transaction runs without a lock.
//! * Locks are taken in ascending order, all of them before the first operation, so no thread waits in a cycle. Where a thread runs a
//!   transaction inside of another one, two orders meet: that transaction does not wait without end.

use polychron_base::Error;
use polychron_engine::nested::Endurance;
use polychron_engine::{Protocol, limits};
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{Backoff, CachePadded};

use super::protocol::PartitionedStore;

/// One word for each partition, each in its own cache line: the holding thread, or 0.
#[derive(Debug)]
pub(super) struct Locks {
    words: Box<[CachePadded<AtomicU64>]>,
}

/// The partition of a partition column's value, of so many.
#[inline]
pub(super) fn wrapped(value: u64, partitions: usize) -> usize {
    // Most workloads number their partitions from zero; a division would cost more than the rest of this.
    let count = partitions as u64;
    (if value < count { value } else { value % count }) as usize
}

impl Locks {
    pub(super) fn new(partitions: usize) -> Self {
        Self { words: (0..partitions).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The partition of a partition column's value.
    #[inline]
    pub(super) fn partition_of(&self, value: u64) -> usize {
        wrapped(value, self.words.len())
    }

    #[inline]
    fn try_lock(&self, partition: usize, thread: u64) -> bool {
        let word = &self.words[partition];
        // Acquire: pairs with the release in `unlock`, so that all its holder did is seen.
        word.load(Ordering::Relaxed) == 0
            && word.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes a lock for a transaction that holds so many.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when this thread holds the lock itself, and would wait forever; or when it holds others for another transaction, and
    /// the lock was not to be had in a long time. What [`limits::check`] says while it waits.
    #[inline]
    fn lock(&self, partition: usize, thread: u64, held: usize) -> Result<(), Error> {
        if self.try_lock(partition, thread) { Ok(()) } else { self.wait(partition, thread, held) }
    }

    #[cold]
    fn wait(&self, partition: usize, thread: u64, held: usize) -> Result<(), Error> {
        // Relaxed: what the thread has stored itself it sees.
        let is_here = |word: &CachePadded<AtomicU64>| word.load(Ordering::Relaxed) == thread;
        let is_nested = self.words.iter().filter(|word| is_here(word)).count() > held;
        let mut endurance = is_nested.then(Endurance::begin);
        let mut backoff = Backoff::new();
        loop {
            if self.try_lock(partition, thread) {
                return Ok(());
            }
            let goes_on = match &mut endurance {
                Some(endurance) => endurance.wait() && !is_here(&self.words[partition]),
                None => {
                    backoff.wait();
                    true
                }
            };
            limits::check()?;
            if !goes_on {
                let what = "a call from inside a transaction of the same thread";
                return Err(Error::unsupported(PartitionedStore::NAME, what));
            }
        }
    }

    #[inline]
    fn unlock(&self, partition: usize) {
        // Release: pairs with the acquire in `try_lock`.
        self.words[partition].store(0, Ordering::Release);
    }
}

/// Partitions: those that a transaction wants, then those whose locks it holds.
#[derive(Debug)]
pub(super) struct Partitions {
    /// In the order in which they were named, or ascending once they are locked; meaningless when `all`.
    list: Vec<u32>,
    named: Box<[bool]>,
    all: bool,
}

impl Partitions {
    pub(super) fn new(count: usize) -> Self {
        Self { list: Vec::new(), named: vec![false; count].into(), all: false }
    }

    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        for &partition in &self.list {
            self.named[partition as usize] = false;
        }
        self.list.clear();
        self.all = false;
    }

    /// Adds a partition.
    #[inline]
    pub(super) fn name(&mut self, partition: usize) {
        if !self.named[partition] {
            self.named[partition] = true;
            self.list.push(partition as u32);
        }
    }

    /// No thread named any: all are wanted.
    #[inline]
    pub(super) fn complete(&mut self) {
        self.all = self.list.is_empty() || self.list.len() == self.named.len();
    }

    /// Whether all are among them.
    #[inline]
    pub(super) fn all(&self) -> bool {
        self.all
    }

    /// Whether this one is.
    #[inline]
    pub(super) fn contains(&self, partition: usize) -> bool {
        self.all || self.named[partition]
    }

    /// Takes the locks.
    ///
    /// # Errors
    /// As [`Locks::lock`]; none is held then.
    #[inline]
    pub(super) fn lock(&mut self, locks: &Locks) -> Result<(), Error> {
        let thread = polychron_sync::this_thread();
        if self.all {
            return (0..locks.len()).try_for_each(|partition| {
                locks
                    .lock(partition, thread, partition)
                    .inspect_err(|_| (0..partition).for_each(|held| locks.unlock(held)))
            });
        }
        self.list.sort_unstable();
        for (position, &partition) in self.list.iter().enumerate() {
            if let Err(error) = locks.lock(partition as usize, thread, position) {
                self.list[..position].iter().for_each(|&held| locks.unlock(held as usize));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives the locks back.
    #[inline]
    pub(super) fn unlock(&self, locks: &Locks) {
        if self.all {
            (0..locks.len()).for_each(|partition| locks.unlock(partition));
        } else {
            self.list.iter().for_each(|&partition| locks.unlock(partition as usize));
        }
    }
}

/// All locks, held while tables change.
#[derive(Debug)]
pub(super) struct AllLocked<'l> {
    locks: &'l Locks,
    partitions: Partitions,
}

impl<'l> AllLocked<'l> {
    pub(super) fn new(locks: &'l Locks) -> Result<Self, Error> {
        let mut partitions = Partitions::new(locks.len());
        partitions.complete();
        partitions.lock(locks)?;
        Ok(Self { locks, partitions })
    }
}

impl Drop for AllLocked<'_> {
    fn drop(&mut self) {
        self.partitions.unlock(self.locks);
    }
}
