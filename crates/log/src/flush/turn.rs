//! Whose turn it is to flush: the first one that waits and finds nobody flushing flushes for all.
//!
//! The right to flush is the value that flushing needs, which one thread at a time takes out. A flush closes one epoch, so that a thread which waits
//! beside one waits for that epoch or for the next. The former are all woken when it ends; of the latter one is, and flushes for the others. So a
//! flush wakes no thread in vain but one, and no thread sleeps while nobody flushes.

use std::sync::PoisonError;

use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{CachePadded, Condvar, Mutex, MutexGuard};

use crate::error::Stop;

/// The right to flush, and the epoch up to which all is durable.
pub(crate) struct Turn<F> {
    durable: CachePadded<AtomicU64>,
    state: Mutex<State<F>>,
    /// Where threads wait for even and for odd epochs.
    ended: [Condvar; 2],
}

enum State<F> {
    /// Nobody flushes.
    Free(F),
    /// Some thread does.
    Taken,
    /// No thread ever will.
    Stopped(Stop),
}

/// The right, while a thread has it. Dropped without an answer, by a panic, it stops the log.
struct Right<'t, F> {
    turn: &'t Turn<F>,
    flusher: Option<F>,
}

impl<F> Turn<F> {
    pub(crate) fn new(flusher: F, durable: u64) -> Self {
        Self {
            durable: CachePadded::new(AtomicU64::new(durable)),
            state: Mutex::new(State::Free(flusher)),
            ended: [Condvar::new(), Condvar::new()],
        }
    }

    /// The epoch up to which all is durable.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire) // pairs with the release in `end`
    }

    /// Waits until an epoch that was begun is durable. Where nobody flushes, this thread does: `flush` closes the current epoch and answers it, once
    /// all up to there is durable.
    pub(crate) fn wait(&self, epoch: u64, flush: impl Fn(&mut F) -> Result<u64, Stop>) -> Result<(), Stop> {
        if self.durable() >= epoch {
            return Ok(());
        }
        let mut state = self.lock();
        loop {
            // An epoch that was durable before the log stopped is.
            if self.durable() >= epoch {
                return Ok(());
            }
            state = match std::mem::replace(&mut *state, State::Taken) {
                State::Free(flusher) => {
                    drop(state);
                    self.flush_with(flusher, &flush);
                    self.lock()
                }
                State::Taken => self.of(epoch).wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Stopped(why) => {
                    *state = State::Stopped(why.clone());
                    return Err(why);
                }
            };
        }
    }

    fn flush_with(&self, flusher: F, flush: impl Fn(&mut F) -> Result<u64, Stop>) {
        let mut right = Right { turn: self, flusher: Some(flusher) };
        let result = right.flusher.as_mut().map(flush);
        if let (Some(result), Some(flusher)) = (result, right.flusher.take()) {
            self.end(flusher, result);
        }
    }

    /// Why it has stopped, if it has.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        match &*self.lock() {
            State::Stopped(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Gives the right back.
    fn end(&self, flusher: F, result: Result<u64, Stop>) {
        let mut state = self.lock();
        match result {
            Ok(epoch) => {
                debug_assert!(epoch > self.durable());
                // Release: pairs with the acquire in `durable`.
                self.durable.store(epoch, Ordering::Release);
                *state = State::Free(flusher);
                drop(state);
                self.of(epoch).notify_all();
                self.of(epoch + 1).notify_one();
            }
            Err(why) => {
                *state = State::Stopped(why);
                drop(state);
                self.ended.iter().for_each(Condvar::notify_all);
            }
        }
    }

    fn of(&self, epoch: u64) -> &Condvar {
        &self.ended[(epoch % 2) as usize]
    }

    fn lock(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Drop for Right<'_, F> {
    fn drop(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            self.turn.end(flusher, Err(Stop::Panicked));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_flushing_stops_the_log() {
        let turn = Turn::new((), 0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| turn.wait(1, |()| panic!("in vain"))));
        assert!(panicked.is_err());
        assert!(matches!(turn.wait(1, |()| Ok(1)), Err(Stop::Panicked)));
        assert!(matches!(turn.stopped(), Some(Stop::Panicked)));
        assert!(turn.wait(0, |()| Ok(1)).is_ok(), "what was durable is");
    }
}

#[cfg(all(test, loom))]
mod model {
    use polychron_sync::model::explore;
    use polychron_sync::{Arc, thread};

    use super::*;

    /// An epoch, and what a flush does: it closes the epoch, and then all that was sealed in it is durable.
    #[derive(Default)]
    struct Model {
        epoch: AtomicU64,
        sealed: [AtomicU64; 2],
        written: AtomicU64,
    }

    impl Model {
        fn seal(&self, client: usize) -> u64 {
            let epoch = self.epoch.load(Ordering::Acquire);
            self.sealed[client].store(epoch, Ordering::Release);
            epoch
        }

        fn flush(&self, _right: &mut ()) -> Result<u64, Stop> {
            let epoch = self.epoch.load(Ordering::Relaxed);
            self.epoch.store(epoch + 1, Ordering::Release);
            self.written.store(epoch, Ordering::Relaxed);
            Ok(epoch)
        }
    }

    /// Two clients wait for what they have sealed, twice: each wait ends, and not before a flush of its epoch has.
    #[test]
    fn every_wait_ends_behind_its_flush() {
        explore(3, || {
            let model = Arc::new(Model { epoch: AtomicU64::new(1), ..Model::default() });
            let turn = Arc::new(Turn::new((), 0));
            let client = |model: &Model, turn: &Turn<()>, client| {
                for _ in 0..2 {
                    let epoch = model.seal(client);
                    assert!(turn.wait(epoch, |right| model.flush(right)).is_ok());
                    assert!(turn.durable() >= epoch);
                    assert!(model.written.load(Ordering::Relaxed) >= epoch);
                }
            };
            let threads = [0, 1].map(|number| {
                let (model, turn) = (Arc::clone(&model), Arc::clone(&turn));
                thread::spawn(move || client(&model, &turn, number))
            });
            let _ = threads.map(|thread| thread.join().unwrap());
        });
    }

    /// Three of them, once each: one flushes for the others, or they take turns.
    #[test]
    fn one_flushes_for_the_others() {
        explore(2, || {
            let model = Arc::new(Model { epoch: AtomicU64::new(1), ..Model::default() });
            let turn = Arc::new(Turn::new((), 0));
            let wait = |model: &Model, turn: &Turn<()>| {
                let epoch = model.epoch.load(Ordering::Acquire);
                assert!(turn.wait(epoch, |right| model.flush(right)).is_ok());
                assert!(model.written.load(Ordering::Relaxed) >= epoch);
            };
            let threads = [(); 2].map(|()| {
                let (other, its) = (Arc::clone(&model), Arc::clone(&turn));
                thread::spawn(move || wait(&other, &its))
            });
            wait(&model, &turn);
            let _ = threads.map(|thread| thread.join().unwrap());
        });
    }

    /// A flush fails: all waits end, those for what is durable well and all others with the error.
    #[test]
    fn a_failure_ends_every_wait() {
        explore(3, || {
            let turn = Arc::new(Turn::new(1, 0));
            let fails = |epoch: &mut u64| {
                let closed = *epoch;
                *epoch += 1;
                if closed == 2 { Err(Stop::Panicked) } else { Ok(closed) }
            };
            let threads = [(); 2].map(|()| {
                let turn = Arc::clone(&turn);
                thread::spawn(move || [1, 2].map(|epoch| turn.wait(epoch, fails).is_ok()))
            });
            assert_eq!(threads.map(|thread| thread.join().unwrap()), [[true, false]; 2]);
            assert_eq!(turn.durable(), 1);
        });
    }
}
