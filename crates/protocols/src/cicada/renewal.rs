//! Timestamps wrap around (§3.1): versions that are very old are written once more, as they are, before the clock can come to
//! lie half its numbers ahead of them, where early and late change places.
//!
//! Whenever the clock has gone on by a sixteenth of its numbers, the worker that notices goes through all records: it collects
//! them, and rewrites what is older than an eighth. Nobody begins a transaction when the last round, or the horizon, lies a
//! quarter behind. So at any time a visible version, a read timestamp that counts, and everything that runs are less than half
//! the numbers old, however narrow the clock is and however slow a worker. With 56 bits of nanoseconds a round is due after
//! 52 days.

use std::sync::{PoisonError, TryLockError};

use polychron_base::key::EncodedKey;
use polychron_engine::Mode;
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::redo::Redo;
use polychron_engine::stores::for_each;
use polychron_memory::{Guard, Local};
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{Backoff, Mutex};

use super::protocol::Shared;
use super::reclaim::Site;
use super::record::{Record, Version, search};
use super::steps::{Point, Step};
use super::table::Store;
use super::transaction::CicadaTransaction;
use super::worker::State;

/// The rounds.
#[derive(Debug)]
pub(super) struct Renewal {
    /// The clock when the last round began.
    began: AtomicU64,
    rounds: AtomicU64,
    working: Mutex<()>,
}

impl Renewal {
    /// No round so far, at this clock.
    pub(super) fn new(clock: u64) -> Self {
        Self { began: AtomicU64::new(clock), rounds: AtomicU64::new(0), working: Mutex::default() }
    }

    /// How many rounds were made.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// How far the clock has gone on since the last round began, in shares of `1 / parts` of its numbers.
    #[inline]
    fn is_past(&self, clock: u64, numbers: u64, parts: u64) -> bool {
        // Acquire: pairs with the release in `renew`: what the round wrote is seen.
        clock.saturating_sub(self.began.load(Ordering::Acquire)) > numbers / parts
    }
}

/// Makes a round if one is due, and waits where going on would not be safe. The worker runs no transaction.
#[inline]
pub(super) fn keep_up<R: Redo>(shared: &Shared<R>, state: &mut State, local: &Local) {
    let numbers = shared.clocks.shape.clock_numbers();
    if shared.renewal.is_past(clock(shared, state), numbers, 16) {
        keep_up_slowly(shared, state, local, numbers);
    }
    if shared.clocks.lag() > numbers / 4 && !left_out(Step::HoldBack) {
        wait_for_horizon(shared, numbers);
    }
}

/// A reading that none of the worker's timestamps is ahead of so far.
#[inline]
fn clock<R: Redo>(shared: &Shared<R>, state: &State) -> u64 {
    state.clock.ahead().max(shared.clocks.bound())
}

#[cold]
fn wait_for_horizon<R: Redo>(shared: &Shared<R>, numbers: u64) {
    let mut backoff = Backoff::new();
    while shared.clocks.lag() > numbers / 4 {
        pass(Point::HeldBack);
        shared.clocks.lead();
        backoff.wait();
    }
}

#[cold]
fn keep_up_slowly<R: Redo>(shared: &Shared<R>, state: &mut State, local: &Local, numbers: u64) {
    let mut backoff = Backoff::new();
    while shared.renewal.is_past(clock(shared, state), numbers, 16) {
        let working = match shared.renewal.working.try_lock() {
            Ok(working) => working,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            // Somebody else is at it; that is soon enough for a while.
            Err(TryLockError::WouldBlock) if !shared.renewal.is_past(clock(shared, state), numbers, 4) => return,
            Err(TryLockError::WouldBlock) => {
                backoff.wait();
                continue;
            }
        };
        if shared.renewal.is_past(clock(shared, state), numbers, 16) {
            renew(shared, state, local, numbers);
        }
        drop(working);
    }
}

/// A round over all records.
fn renew<R: Redo>(shared: &Shared<R>, state: &mut State, local: &Local, numbers: u64) {
    let began = clock(shared, state);
    let guard = local.pin();
    // SAFETY: the guard stands until the round is over, and those of its transactions are not renewed.
    unsafe { state.tables.renew(&shared.catalog) };
    let tables = state.tables.keep();
    for table in tables.iter().flatten() {
        for store in std::iter::once(&table.primary).chain(table.secondaries()) {
            if !left_out(Step::RenewReadiness) {
                store.renew_ready_from(shared.clocks.min_rts());
            }
            let mut round = Round { shared, state, local, guard: &guard, store, oldest: numbers / 8 };
            if let Some(nodes) = &store.versioned {
                round.renew_places(true, |visit| nodes.for_each(visit));
                round.renew_places(false, |visit| store.records.for_each(visit));
                continue;
            }
            for_each(store.index(), &guard, &mut |key, handle| {
                // SAFETY: the handle was found under the guard.
                round.renew_entry(unsafe { Record::from_handle(handle) }, key);
            });
        }
    }
    if !left_out(Step::RenewAbsences) {
        shared.absences.refresh(shared.clocks.min_rts());
    }
    shared.renewal.rounds.fetch_add(1, Ordering::Relaxed);
    // Release: pairs with the acquire in `is_past`.
    shared.renewal.began.store(began, Ordering::Release);
}

/// A round through one index.
struct Round<'r, R: Redo> {
    shared: &'r Shared<R>,
    state: &'r mut State,
    local: &'r Local,
    guard: &'r Guard<'r>,
    store: &'r Store,
    /// Versions of a greater age are written anew.
    oldest: u64,
}

impl<R: Redo> Round<'_, R> {
    /// Collects a record that a key leads to, and rewrites its row until it is young.
    fn renew_entry<K: EncodedKey>(&mut self, record: Record, key: K) {
        let tables = self.state.tables.keep();
        let (min_rts, worker) = (self.shared.clocks.min_rts(), self.state.worker);
        let site = Site { tables: &tables, min_rts, worker, guard: self.guard };
        self.state.reclaimer.collect_now(record, self.store, &site, key);
        self.rewrite(record, false);
    }

    /// The same for the places of an array, rows' or nodes' of a multi-version index; what is deleted there leaves by itself.
    fn renew_places(&mut self, is_node: bool, for_each: impl Fn(&mut dyn FnMut(Record))) {
        let tables = self.state.tables.keep();
        let (min_rts, worker) = (self.shared.clocks.min_rts(), self.state.worker);
        let site = Site { tables: &tables, min_rts, worker, guard: self.guard };
        for_each(&mut |record| self.state.reclaimer.collect_in_place(record, self.store, &site));
        // One moment for all, so that a round costs few timestamps, however many places there are.
        let timestamp = self.shared.clocks.begin(worker, &mut self.state.clock);
        let mut old = Vec::new();
        for_each(&mut |record| {
            let seen = search(record, timestamp, None, true);
            let age = |version: Version| self.shared.clocks.shape.clock_between(version.wts(), timestamp);
            if seen.version.is_some_and(|version| seen.is_row && age(version) > self.oldest) {
                old.push(record);
            }
        });
        self.shared.clocks.end(worker);
        // The round's guard keeps the places from serving again.
        old.into_iter().for_each(|record| self.rewrite(record, is_node));
    }

    fn rewrite(&mut self, record: Record, is_node: bool) {
        let (shared, oldest) = (self.shared, self.oldest);
        let mut backoff = Backoff::new();
        loop {
            let timestamp = shared.clocks.begin(self.state.worker, &mut self.state.clock);
            let guard = self.local.pin();
            let mut transaction = CicadaTransaction::new(shared, self.state, guard, timestamp, Mode::ReadWrite);
            let seen = search(record, timestamp, None, true);
            let old = seen
                .version
                .filter(|version| seen.is_row && shared.clocks.shape.clock_between(version.wts(), timestamp) > oldest);
            let Some(version) = old.filter(|_| !left_out(Step::RenewRows)) else { return };
            if transaction.rewrite(self.store.place(), record, version, is_node)
                && transaction.validate_and_write().is_ok()
            {
                return;
            }
            drop(transaction);
            shared.clocks.lead();
            backoff.wait();
        }
    }
}
