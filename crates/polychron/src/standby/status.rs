//! How a standby follows its primary, as others see it, and the threads that do it.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use polychron_engine::Error;
use polychron_engine::mutations::inheriting;
use polychron_log::disk::Disk;
use polychron_log::ship::{Following, Point, Trouble, Unshown};
use polychron_sync::Process;
use polychron_sync::atomic::{AtomicBool, Ordering};

use crate::durable::Ends;

/// While so many bytes wait to be shown, no more are received.
const MOST_UNSHOWN: usize = 32 << 20;

/// How far a standby is behind its primary, and whether it follows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StandbyStatus {
    /// Whether it is connected to its primary.
    pub is_connected: bool,
    /// Log epochs that the primary has durably and that readers do not see yet, as far as the primary has told.
    pub epochs_behind: u64,
    /// The last log epoch that is durable here. Of several standbys, the one with the highest has all that the others have: it is to take over.
    pub received: u64,
    /// How long what was received last had been on its way, from its frame's wall clock at the primary until readers saw it. Clocks may differ.
    pub lag: Duration,
    /// The time of what readers see, by the primary's wall clock, in nanoseconds since 1970.
    pub seen_ns: u64,
    /// How often what readers see has changed.
    pub points: u64,
    /// Why it did not follow the last time.
    pub trouble: Option<String>,
    /// Why it has stopped following until it is opened again. It goes on being read.
    pub ended: Option<Arc<Error>>,
}

/// The status that a standby's thread shares with others.
#[derive(Default)]
pub(super) struct Shared {
    status: Mutex<Status>,
    is_over: AtomicBool,
    over: (Mutex<()>, Condvar),
    unshown: Mutex<Unshown>,
    /// There is more of that, or less.
    unshown_changed: Condvar,
}

#[derive(Clone, Default)]
pub(super) struct Status {
    pub(super) is_connected: bool,
    pub(super) received: u64,
    pub(super) primary: u64,
    pub(super) seen: Point,
    pub(super) lag: Duration,
    pub(super) points: u64,
    pub(super) trouble: Option<String>,
    /// What keeps what was received from being shown.
    pub(super) unshown: Option<String>,
    pub(super) ended: Option<Trouble>,
}

impl Shared {
    pub(super) fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits, unless the standby is closed.
    pub(super) fn pause(&self, time: Duration) {
        let lock = self.over.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_over() {
            drop(self.over.1.wait_timeout(lock, time));
        }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.over.0.lock());
        self.over.1.notify_all();
        drop(self.unshown());
        self.unshown_changed.notify_all();
    }

    fn unshown(&self) -> MutexGuard<'_, Unshown> {
        self.unshown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while too much waits to be shown, but no longer than this. Whether more may come.
    pub(super) fn has_room_within(&self, time: Duration) -> bool {
        let unshown = self.unshown();
        if unshown.bytes() <= MOST_UNSHOWN || self.is_over() || self.ended().is_some() {
            return true;
        }
        let waited = self.unshown_changed.wait_timeout(unshown, time).unwrap_or_else(PoisonError::into_inner);
        waited.0.bytes() <= MOST_UNSHOWN
    }

    /// Has another thread show this. There [was room](Self::has_room_within) before it came.
    pub(super) fn show(&self, more: Unshown) {
        let mut unshown = self.unshown();
        unshown.append(more);
        self.unshown_changed.notify_all();
    }

    /// All that is to be shown, as soon as there is something; `None` when the standby is closed.
    pub(super) fn to_show(&self) -> Option<Unshown> {
        let mut unshown = self.unshown();
        while unshown.is_empty() {
            if self.is_over() {
                return None;
            }
            unshown = self.unshown_changed.wait(unshown).unwrap_or_else(PoisonError::into_inner);
        }
        let taken = std::mem::take(&mut *unshown);
        self.unshown_changed.notify_all();
        Some(taken)
    }

    /// From now on it follows nobody.
    pub(super) fn end_with(&self, trouble: Trouble) {
        self.change(|status| {
            (status.is_connected, status.trouble) = (false, Some(trouble.to_string()));
            status.ended.get_or_insert(trouble);
        });
        drop(self.unshown());
        self.unshown_changed.notify_all();
    }

    /// Why it no longer follows anybody.
    pub(super) fn ended(&self) -> Option<Trouble> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).ended.clone()
    }
}

/// The files and threads of an open standby.
pub(super) struct Held<D: Disk> {
    pub(super) following: Arc<Following<D>>,
    pub(super) shared: Arc<Shared>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) process: Process,
}

impl<D: Disk + Clone> Held<D> {
    pub(super) fn spawn(&self, name: &str, act: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(inheriting(act))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    fn end(&self) {
        self.shared.end();
        self.following.stop();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // There are no such threads in a process that was forked.
            if self.process.is_here() { drop(thread.join()) } else { std::mem::forget(thread) }
        }
    }
}

impl<D: Disk + Clone> Ends for Held<D> {
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), Error> {
        self.following.checkpoint()
    }

    fn back_up(&self, path: &Path) -> Result<(), Error> {
        self.following.back_up_directory(path)
    }

    fn close(&self) -> Result<(), Error> {
        self.end();
        Ok(())
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    fn standby(&self) -> Option<StandbyStatus> {
        let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Status { is_connected, received, primary, seen, lag, points, trouble, unshown, ended } = status;
        let trouble = trouble.or(unshown);
        let epochs_behind = primary.max(received).saturating_sub(seen.epoch);
        let ended = ended.map(|trouble| Arc::new(trouble.of_standby(self.following.path())));
        let seen_ns = seen.written_ns;
        Some(StandbyStatus { is_connected, epochs_behind, received, lag, seen_ns, points, trouble, ended })
    }
}
