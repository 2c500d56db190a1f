//! Timestamps wrap around (§3.1): versions that are very old are written once more, as they are, before the clock can come to
//! lie half its numbers ahead of them, where early and late are exchanged.
//!
//! Whenever the clock has gone on by a sixteenth of its numbers, the worker that notices goes through all records: it collects
//! them, and rewrites what is older than an eighth, rows and deletions. Nobody begins a transaction when the last round, or the horizon, lies three
//! sixteenths behind (the clocks' *limit*). So at any time a visible version, a read timestamp that counts, and everything that runs
//! are less than half the numbers old, however narrow the clock is, however slow a worker or a leader, and however long nobody
//! was there while time went on. `docs/protocols/cicada.md` proves it. With 55 bits of nanoseconds a round is due after 26 days.

use polychron_base::key::EncodedKey;
use polychron_base::{Error, TableId};
use polychron_engine::mutations::{left_out, pass};
use polychron_memory::{Guard, Local};
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{Backoff, Mutex, try_lock};

use super::kept::{Beginning, OwnGuard};
use super::protocol::Shared;
use super::reclaim::{Reclaimer, Site};
use super::record::{Record, Version};
use super::steps::{Point, Step};
use super::table::Store;
use super::transaction::CicadaTransaction;
use super::worker::State;

/// The rounds. When the last one began, the clocks know.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    rounds: AtomicU64,
    working: Mutex<()>,
}

impl Renewal {
    /// How many rounds were made.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

/// Makes a round if one is due and nobody is at it. The worker runs no transaction.
#[inline]
pub(super) fn keep_up(shared: &Shared, state: &mut State, local: &Local) {
    if is_due(shared, state) {
        try_round(shared, state, local);
    }
}

/// Whether the clock has gone on by a sixteenth of its numbers since the last round began.
#[inline]
fn is_due(shared: &Shared, state: &State) -> bool {
    let clocks = &shared.clocks;
    clock(shared, state).saturating_sub(clocks.renewed()) > clocks.shape.sixteenths(1)
}

/// A reading that none of the worker's timestamps is ahead of so far.
#[inline]
fn clock(shared: &Shared, state: &State) -> u64 {
    state.clock.ahead().max(shared.clocks.bound())
}

/// Waits until the worker may begin a transaction again: until the horizon and the last round have come near enough. A clock
/// that has gone on without them, because nobody was there or somebody was very slow, is followed in several rounds.
///
/// # Errors
/// [`Error::WaitsForItself`] when the thread has a transaction open that may be what holds the horizon.
#[cold]
pub(super) fn wait_for_limit(shared: &Shared, state: &mut State, local: &Local) -> Result<(), Error> {
    let mut backoff = Backoff::new();
    while !shared.clocks.is_admitted(&state.clock) {
        if backoff.is_yielding() && shared.clocks.is_open_here(Some(state.base.slot)) {
            return Err(Error::waits_for_itself(TableId::NONE, None));
        }
        pass(Point::HeldBack);
        shared.clocks.lead();
        if !is_due(shared, state) || !try_round(shared, state, local) {
            backoff.wait();
        }
    }
    Ok(())
}

/// Makes a round, unless somebody else is at it or has just been.
#[cold]
fn try_round(shared: &Shared, state: &mut State, local: &Local) -> bool {
    let Some(_working) = try_lock(&shared.renewal.working) else { return false };
    // A round is made where everybody can be by now, not where time may have gone on to.
    shared.clocks.lead();
    let time = state.clock.fall_back(shared.clocks.bound());
    let is_due = is_due(shared, state);
    if is_due {
        renew(shared, state, local);
    }
    state.clock.catch_up(time);
    is_due
}

/// A round over all records.
fn renew(shared: &Shared, state: &mut State, local: &Local) {
    let began = clock(shared, state);
    let guard = local.pin();
    super::worker::renew_tables(shared, state, &guard);
    let tables = state.base.tables.keep();
    for table in tables.iter().flatten() {
        for store in std::iter::once(&table.primary).chain(table.secondaries()) {
            if !left_out(Step::RenewReadiness) {
                let _held = shared.clocks.hold(state.base.slot);
                store.renew_ready_from(shared.clocks.min_rts());
                store.displaced.renew(shared.clocks.min_rts());
            }
            let oldest = shared.clocks.shape.sixteenths(2);
            let mut round = Round { shared, state, local, guard: &guard, store, oldest };
            if store.versioned.is_some() {
                round.renew_records(true);
                round.renew_records(false);
                continue;
            }
            store.for_each_entry(&guard, &mut |key, record| round.renew_entry(record, key));
        }
    }
    if !left_out(Step::RenewGaps) {
        let _held = shared.clocks.hold(state.base.slot);
        shared.gaps.refresh(shared.clocks.min_rts());
    }
    shared.renewal.rounds.fetch_add(1, Ordering::Relaxed);
    shared.clocks.set_renewed(began);
}

/// A round through one index.
struct Round<'r> {
    shared: &'r Shared,
    state: &'r mut State,
    local: &'r Local,
    guard: &'r Guard<'r>,
    store: &'r Store,
    /// Versions of a greater age are written anew.
    oldest: u64,
}

impl Round<'_> {
    /// Collects a record that a key leads to, and rewrites its row until it is young. So is a deletion that could not be collected:
    /// a version above it is not stable, or its head waits for an epoch.
    fn renew_entry<K: EncodedKey>(&mut self, record: Record<'_>, key: K) {
        self.collect(|reclaimer, store, site| reclaimer.collect_now(record, store, site, key));
        self.rewrite(record, false, Some(key));
    }

    fn collect(&mut self, work: impl FnOnce(&mut Reclaimer, &Store, &Site<'_>)) {
        let (tables, worker) = (self.state.base.tables.keep(), self.state.base.slot);
        let _held = self.shared.clocks.hold(worker);
        let site = Site::new(&tables, &self.shared.clocks, worker, self.guard);
        work(&mut self.shared.bins.of(worker).wait(), self.store, &site);
    }

    /// The same for the slots of an array, rows' or nodes' of a multi-version index; what is deleted there leaves by itself.
    fn renew_records(&mut self, is_node: bool) {
        self.collect(|reclaimer, store, site| reclaimer.collect_in_place(store, is_node, site));
        // One timestamp for all, so that a round costs few timestamps, however many slots there are.
        let begun = OwnGuard::begin(self.shared, self.state, self.local, Beginning::InRound);
        let Some(own) = begun else { return };
        let (reader, timestamp) = (own.reader(), own.timestamp());
        let mut old = Vec::new();
        self.store.for_each_record(is_node, self.guard, |record| {
            let seen = reader.search(record, None, true);
            let age = |version: Version<'_>| self.shared.clocks.shape.clock_between(version.wts(), timestamp);
            if seen.version.is_some_and(|version| seen.is_row && age(version) > self.oldest) {
                old.push(record);
            }
        });
        drop(own);
        // The round's guard keeps the slots from being reused.
        old.into_iter().for_each(|record| self.rewrite(record, is_node, None::<&[u8]>));
    }

    fn rewrite<K: EncodedKey>(&mut self, record: Record<'_>, is_node: bool, key: Option<K>) {
        let (shared, oldest) = (self.shared, self.oldest);
        let mut backoff = Backoff::new();
        loop {
            let begun = OwnGuard::begin(shared, self.state, self.local, Beginning::InRound);
            let Some(guard) = begun else { return };
            let mut transaction = CicadaTransaction::new(shared, self.state, guard);
            let timestamp = transaction.timestamp();
            let seen = transaction.guard.search(record, None, true);
            let counts =
                if seen.is_row { !left_out(Step::RenewRows) } else { key.is_some() && !left_out(Step::RenewDeletions) };
            let age = |version: Version<'_>| shared.clocks.shape.clock_between(version.wts(), timestamp);
            let Some(version) = seen.version.filter(|&version| counts && age(version) > oldest) else { return };
            let (record, version) = (transaction.guard.keep(record), version.address());
            if transaction.rewrite(self.store.place(), record, version, is_node, key)
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
