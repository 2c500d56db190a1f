//! The workers' clocks and the horizons that a leader derives from them (§3.1, 3.8).
//!
//! Each worker has a slot, which it alone writes: the timestamp of its running transaction (`active`), the timestamp before
//! which everything is stable for that transaction (`floor`), and its clock. A leader, which is the worker that comes by when it is
//! due, first publishes `bound`, a clock reading that no transaction begins before from then on, and looks at every
//! `active` word: the earliest of these is `min_wts`, and every transaction that has an earlier timestamp has ended. It
//! publishes that, looks at every `floor`, and the earliest is `min_rts`: what was superseded by then, nobody looks at.
//!
//! A beginning transaction stores both words, passes a barrier, and looks at `bound` and `min_wts` again. Either the leader's
//! scan, which comes behind a barrier of its own, saw the words, or the worker sees what the leader published and starts
//! over. An idle worker's words are [`NONE`], so it holds nothing back.
//!
//! A transaction that runs for long is *overtaken* (`clocks/overtaking.rs`): the horizon passes its timestamp, and if it has anything
//! to write it draws another one when it commits.
//!
//! Timestamps wrap around, so whatever is compared must lie less than half their numbers apart. The leader sees to it: it publishes
//! a clock reading, `limit`, a share of the numbers behind `min_rts` and the last round of renewal, and no transaction begins
//! there or later. Neither a clock, nor a counter, nor the machine's time leads past it; a worker that comes to it waits.

use polychron_engine::mutations::{left_out, pass};
use polychron_memory::OWN_SLOTS;
use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use polychron_sync::{CachePadded, publish, this_thread};

pub(super) use self::held::{Held, HeldSpans, Span};
use self::overtaking::Watch;
use super::counts::Counts;
use super::options::{Consistency, Options};
use super::steps::{Point, Step};
use super::time::Time;
use super::timestamp::{Shape, Timestamp};

/// What the words of an idle worker hold; no timestamp is zero.
const NONE: u64 = 0;
/// By which share of the clock's numbers, in sixteenths, a timestamp may be ahead of the horizon and of the last round of renewal.
const SIXTEENTHS_AHEAD: u64 = 3;
/// By how many sixteenths more a round may be, which others wait for.
const SIXTEENTHS_OF_ROUNDS: u64 = 1;
/// A clock that stopped for longer than this is believed to have done something else (§3.1).
const LONGEST_STEP_NS: u64 = 3_600_000_000_000;

#[derive(Debug, Default)]
struct Slot {
    active: AtomicU64,
    floor: AtomicU64,
    /// Whether the transaction is being committed, so that its timestamp stands.
    is_committing: AtomicU64,
    /// The transaction's timestamp, when it has been overtaken: the leader writes it.
    overtaken: AtomicU64,
    /// Which thread has begun the transaction or snapshot.
    thread: AtomicU64,
    clock: AtomicU64,
    /// The latest adjusted reading of which a timestamp was made.
    drawn: AtomicU64,
    /// For statistics.
    counts: Counts,
}

#[derive(Debug)]
struct Horizons {
    bound: AtomicU64,
    min_wts: AtomicU64,
    min_rts: AtomicU64,
    led_at_ns: AtomicU64,
    /// When `min_wts` was moved last.
    moved_at_ns: AtomicU64,
    /// The clock reading of `min_rts`.
    stable: AtomicU64,
    /// The clock when the last round of renewal began that has come to its end.
    renewed: AtomicU64,
    /// No transaction begins at this reading or later.
    limit: AtomicU64,
}

/// The clocks of a database.
#[derive(Debug)]
pub(super) struct Clocks {
    horizons: CachePadded<Horizons>,
    leading: CachePadded<AtomicBool>,
    /// The shared counter, where there is one instead of clocks.
    central: Option<CachePadded<AtomicU64>>,
    used_slots: CachePadded<AtomicUsize>,
    slots: Box<[CachePadded<Slot>]>,
    /// What leaders know of the slots.
    watches: Box<[Watch]>,
    overtaking_ns: u64,
    time: Time,
    pub(super) shape: Shape,
    /// Whether clocks are the machine's, or go on by what each worker measures.
    is_machine_time: bool,
    synchronization_ns: u64,
    boost_ns: u64,
    /// No clock goes further than this at once.
    longest_step: u64,
}

/// A worker's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocalClock {
    /// The clock itself; grows by the time that was measured here.
    time: u64,
    /// The machine's time at its latest reading.
    pub(super) now_ns: u64,
    /// The latest adjusted reading; timestamps are made of these.
    pub(super) adjusted: u64,
    /// The clocks' limit when it was last looked at. It only goes on.
    limit: u64,
    boost: u64,
    synchronized_ns: u64,
    partner: usize,
}

impl LocalClock {
    /// A reading that no timestamp so far is ahead of, nor will be soon.
    #[inline]
    pub(super) fn ahead(&self) -> u64 {
        self.adjusted.max(self.time)
    }

    /// Takes a reading of the clock away, which may have run where nobody can follow. Answers it.
    pub(super) fn fall_back(&mut self, bound: u64) -> u64 {
        let fallen = self.time.min(bound.max(self.adjusted));
        std::mem::replace(&mut self.time, fallen)
    }

    /// Gives it back.
    pub(super) fn catch_up(&mut self, time: u64) {
        self.time = self.time.max(time);
    }
}

/// A timestamp that nobody, now or later, looks behind ([`Clocks::min_rts`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon(Timestamp);

impl Horizon {
    /// The horizon of a test, which frees nothing that its readers see.
    #[cfg(test)]
    pub(super) fn of_test(timestamp: Timestamp) -> Self {
        Self(timestamp)
    }

    /// The timestamp.
    #[inline]
    pub(super) fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl Clocks {
    /// Clocks for so many workers.
    pub(super) fn new(options: &Options, shape: Shape, workers: usize) -> Self {
        let time = Time::new();
        let start = shape.proper(if options.central_clock { 1 } else { time.now_ns() });
        let first = shape.timestamp(start, 0);
        let horizons = Horizons {
            bound: AtomicU64::new(start),
            min_wts: AtomicU64::new(first.0),
            min_rts: AtomicU64::new(first.predecessor().0),
            led_at_ns: AtomicU64::new(time.now_ns()),
            moved_at_ns: AtomicU64::new(time.now_ns()),
            stable: AtomicU64::new(start),
            renewed: AtomicU64::new(start),
            limit: AtomicU64::new(start + shape.sixteenths(SIXTEENTHS_AHEAD)),
        };
        Self {
            horizons: CachePadded::new(horizons),
            leading: CachePadded::new(AtomicBool::new(false)),
            central: options.central_clock.then(|| CachePadded::new(AtomicU64::new(start))),
            // The database's own are used by its background, too.
            used_slots: CachePadded::new(AtomicUsize::new(workers.min(OWN_SLOTS))),
            slots: (0..workers).map(|_| CachePadded::default()).collect(),
            watches: (0..workers).map(|_| Watch::default()).collect(),
            overtaking_ns: options.overtaking_after.as_nanos() as u64,
            time,
            shape,
            is_machine_time: options.consistency != Consistency::Loose,
            synchronization_ns: options.synchronization_interval.as_nanos() as u64,
            boost_ns: options.clock_boost.as_nanos() as u64,
            longest_step: LONGEST_STEP_NS.min(shape.clock_numbers() / 64),
        }
    }

    /// The machine's time.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    /// A clock for the worker that has this slot; timestamps of a worker that had it before lie behind.
    pub(super) fn join(&self, slot: usize) -> LocalClock {
        // Release: pairs with the acquire loads of the leader. As with the epochs, a leader that does not see this yet is one
        // whose scan came before the barrier of the worker's first transaction.
        self.used_slots.fetch_max(slot + 1, Ordering::AcqRel);
        let now_ns = self.now_ns();
        // The slot's claim by this worker comes behind its release by the one before, and that behind `leave`.
        let common = if self.is_machine_time && self.central.is_none() { now_ns } else { self.bound() };
        let words = &self.slots[slot];
        let time = common.max(words.clock.load(Ordering::Relaxed));
        // Timestamps go on from what is near by now, and not before the limit's time.
        let adjusted = self.bound().min(time).max(words.drawn.load(Ordering::Relaxed));
        LocalClock { time, now_ns, adjusted, partner: slot, ..LocalClock::default() }
    }

    /// The worker of this slot goes; the one that has the slot after it goes on where its timestamps end.
    pub(super) fn leave(&self, slot: usize, local: &LocalClock) {
        self.slots[slot].clock.store(local.time.max(local.adjusted), Ordering::Relaxed);
    }

    /// Reads the machine's time and brings the worker's clock up to it.
    #[inline]
    pub(super) fn advance(&self, local: &mut LocalClock, slot: usize) {
        let now_ns = self.now_ns();
        if self.central.is_some() {
            local.now_ns = now_ns;
            return;
        }
        if self.is_machine_time {
            local.time = now_ns.max(local.time + 1);
        } else {
            local.time += now_ns.saturating_sub(local.now_ns).clamp(1, self.longest_step);
        }
        local.now_ns = now_ns;
        if now_ns.saturating_sub(local.synchronized_ns) >= self.synchronization_ns {
            self.synchronize(local, slot);
        }
    }

    /// One-sided synchronisation: a slow clock catches up with another worker's.
    #[cold]
    fn synchronize(&self, local: &mut LocalClock, slot: usize) {
        local.synchronized_ns = local.now_ns;
        // Relaxed: a clock reading orders nothing.
        let used = self.used_slots.load(Ordering::Relaxed).max(1);
        local.partner = (local.partner + 1) % used;
        if local.partner == slot {
            local.partner = (local.partner + 1) % used;
        }
        let other = self.slots[local.partner].clock.load(Ordering::Relaxed);
        if local.partner != slot {
            self.counts(slot).skew.note(other.saturating_sub(local.time));
        }
        local.time = local.time.max(other);
    }

    /// Makes the worker's next timestamps later than a clock reading (causal consistency).
    pub(super) fn follow(&self, local: &mut LocalClock, adjusted: u64) {
        // Nobody has drawn what is not before the limit.
        local.adjusted = local.adjusted.max(adjusted.min(self.limit() - 1));
    }

    /// Lets time pass at once.
    #[cfg(test)]
    pub(super) fn pass_time(&self, ns: u64) {
        self.time.pass(ns);
    }

    /// Puts a worker's clock ahead.
    #[cfg(test)]
    pub(super) fn push(&self, local: &mut LocalClock, by_ns: u64) {
        local.time += by_ns;
    }

    /// A conflict: the next attempt's timestamp is ahead of the other clocks.
    #[inline]
    pub(super) fn boost(&self, local: &mut LocalClock, slot: usize) {
        local.boost = self.boost_ns;
        self.counts(slot).boosts.add(1);
    }

    /// What the worker of this slot counts.
    #[inline]
    pub(super) fn counts(&self, slot: usize) -> &Counts {
        &self.slots[slot].counts
    }

    /// What all workers have counted so far.
    pub(super) fn all_counts(&self) -> impl Iterator<Item = &Counts> + Clone {
        self.slots.iter().map(|slot| &slot.counts)
    }

    /// A commit ends the boost.
    #[inline]
    pub(super) fn calm(&self, local: &mut LocalClock) {
        local.boost = 0;
    }

    /// The next reading of which a timestamp may be made; `None`: it is not before the worker's limit.
    #[inline]
    fn draw(&self, local: &LocalClock) -> Option<u64> {
        let next = match &self.central {
            // A worker that waits draws no numbers, of which the others have only so many.
            Some(counter) if counter.load(Ordering::Relaxed) + 1 >= local.limit => return None,
            Some(counter) => loop {
                // SeqCst for the one order that all draw from; the value alone matters.
                let drawn = counter.fetch_add(1, Ordering::SeqCst) + 1;
                // Not made proper: the number after it is drawn by some worker, which may be this one.
                if self.shape.proper(drawn) == drawn {
                    break drawn;
                }
            },
            None if left_out(Step::ExceedLast) => local.time + local.boost,
            None => (local.time + local.boost).max(local.adjusted + 1),
        };
        let next = self.shape.proper(next);
        (next < local.limit).then_some(next)
    }

    /// The same with a limit that is up to date, and as much later as is granted.
    #[cold]
    fn draw_late(&self, local: &mut LocalClock, granted: u64) -> Option<u64> {
        let limit = if left_out(Step::HoldBack) { u64::MAX } else { self.limit() + granted };
        (limit > local.limit).then(|| local.limit = limit)?;
        self.draw(local)
    }

    /// Begins a transaction that may write. `None`: it would come to the limit, and does not run.
    #[inline]
    pub(super) fn begin(&self, slot: usize, local: &mut LocalClock) -> Option<Held<'_>> {
        self.begin_within(slot, local, 0)
    }

    /// Begins a transaction of a round of renewal, which makes room for others. The clock has fallen back.
    pub(super) fn begin_in_round(&self, slot: usize, local: &mut LocalClock) -> Held<'_> {
        let begun = self.begin_within(slot, local, self.shape.sixteenths(SIXTEENTHS_OF_ROUNDS));
        // What was granted to the round is no limit for others.
        local.limit = 0;
        begun
            .expect("the clock has too few numbers for the rows that are renewed in one round: clock_bits is too small")
    }

    #[inline]
    fn begin_within(&self, slot: usize, local: &mut LocalClock, granted: u64) -> Option<Held<'_>> {
        let words = &self.slots[slot];
        self.assert_idle(words);
        words.clock.store(local.time, Ordering::Relaxed);
        let mut min_wts = self.min_wts();
        loop {
            let Some(drawn) = self.draw(local).or_else(|| self.draw_late(local, granted)) else {
                self.end(slot);
                return None;
            };
            local.adjusted = drawn;
            let timestamp = self.shape.timestamp(drawn, slot);
            pass(Point::Drawn);
            // Release: pairs with the acquire in `furthest_drawn`, whose caller knows a limit that is later.
            words.drawn.store(drawn, Ordering::Release);
            // The barrier below comes before anyone may rely on it; release because a renewed word ends an old claim.
            words.floor.store(min_wts.predecessor().0, Ordering::Release);
            // Only its own thread compares it.
            words.thread.store(this_thread(), Ordering::Relaxed);
            // Barrier: pairs with those of `lead`.
            publish(&words.active, timestamp.0);
            pass(Point::Published);
            let bound = self.bound_now();
            let now = self.min_wts();
            if (drawn >= bound || left_out(Step::BeginAfterBound)) && now == min_wts {
                return Some(self.held(slot, timestamp));
            }
            if drawn < bound {
                words.counts.skew.note_most(bound - drawn);
            }
            local.time = local.time.max(bound);
            min_wts = now;
        }
    }

    /// Whether a transaction of this worker could begin now, as far as the limit is concerned.
    pub(super) fn is_admitted(&self, local: &LocalClock) -> bool {
        let next = match &self.central {
            Some(counter) => counter.load(Ordering::Relaxed) + 1,
            None => (local.time + local.boost).max(local.adjusted + 1),
        };
        self.shape.proper(next.max(self.bound())) < self.limit()
    }

    /// Begins a snapshot of what is stable (thread.rts of §3.1).
    #[inline]
    pub(super) fn begin_snapshot(&self, slot: usize) -> Held<'_> {
        let mut min_wts = self.min_wts();
        self.assert_idle(&self.slots[slot]);
        // Only its own thread compares it.
        self.slots[slot].thread.store(this_thread(), Ordering::Relaxed);
        loop {
            let floor = min_wts.predecessor();
            pass(Point::Drawn);
            // Barrier: pairs with the second one of `lead`.
            publish(&self.slots[slot].floor, floor.0);
            let now = self.min_wts();
            if now == min_wts || left_out(Step::BeginAtHorizon) {
                return self.held(slot, floor);
            }
            min_wts = now;
        }
    }

    /// The clock reading before which no transaction begins from now on.
    pub(super) fn bound(&self) -> u64 {
        self.horizons.bound.load(Ordering::Relaxed)
    }

    /// The same, behind a barrier.
    #[inline]
    fn bound_now(&self) -> u64 {
        // Acquire: pairs with the leader's `publish`.
        self.horizons.bound.load(Ordering::Acquire)
    }

    /// The clock reading at or after which no transaction begins. It only goes on.
    fn limit(&self) -> u64 {
        // Acquire: pairs with the leader's release: the horizon, and the round, of which it was made are seen.
        self.horizons.limit.load(Ordering::Acquire)
    }

    /// The clock when the last round of renewal began.
    #[inline]
    pub(super) fn renewed(&self) -> u64 {
        // Acquire: pairs with the release in `set_renewed`: what the round wrote is seen.
        self.horizons.renewed.load(Ordering::Acquire)
    }

    /// A round that began at this reading has come to its end.
    pub(super) fn set_renewed(&self, began: u64) {
        // Release: pairs with the acquire in `renewed`.
        self.horizons.renewed.store(began, Ordering::Release);
    }

    /// A reading that no transaction is ahead of which has a timestamp by now.
    pub(super) fn furthest_drawn(&self) -> u64 {
        // SeqCst: the barrier between what the caller has made known and the look at the words; pairs with that of `begin`. Whom
        // the look misses knows it.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `begin`.
        self.slots.iter().map(|slot| slot.drawn.load(Ordering::Acquire)).max().unwrap_or(0)
    }

    /// Every transaction that has an earlier timestamp has ended, or writes nothing at that timestamp.
    #[inline]
    pub(super) fn min_wts(&self) -> Timestamp {
        // Acquire: pairs with the leader's `publish`: a thread that sees it sees what those transactions did.
        Timestamp(self.horizons.min_wts.load(Ordering::Acquire))
    }

    /// Nobody, now or later, looks at what was superseded at this timestamp or before.
    #[inline]
    pub(super) fn min_rts(&self) -> Timestamp {
        // Acquire: pairs with the leader's release store, which comes after it saw the readers leave.
        Timestamp(self.horizons.min_rts.load(Ordering::Acquire))
    }

    /// The same for a collector.
    #[inline]
    pub(super) fn horizon(&self) -> Horizon {
        Horizon(self.min_rts())
    }

    /// How far the oldest reader is behind what is stable.
    #[inline]
    pub(super) fn readers_lag(&self) -> u64 {
        let (stable, min_rts) = (self.min_wts().predecessor(), self.min_rts());
        if min_rts.is_before(stable) { self.shape.clock_between(min_rts, stable) } else { 0 }
    }

    /// Whether the horizons should be moved on.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64, interval_ns: u64) -> bool {
        now_ns.saturating_sub(self.horizons.led_at_ns.load(Ordering::Relaxed)) >= interval_ns
    }

    /// How old what a snapshot of this timestamp sees is, in nanoseconds. Where a counter stands for the clock, it is as old as the horizon.
    pub(super) fn staleness_ns(&self, timestamp: Timestamp) -> u64 {
        let now_ns = self.now_ns();
        if self.central.is_some() {
            return now_ns.saturating_sub(self.horizons.moved_at_ns.load(Ordering::Relaxed));
        }
        let now = self.shape.timestamp(self.shape.proper(now_ns), 0);
        if timestamp.is_before(now) { self.shape.clock_between(timestamp, now) } else { 0 }
    }

    /// How far the clocks are ahead of the newest timestamp that nobody looks behind.
    #[inline]
    pub(super) fn lag(&self) -> u64 {
        self.bound().saturating_sub(self.horizons.stable.load(Ordering::Relaxed))
    }

    /// The leader has a clock as well, so that the horizon passes what workers did before they became idle.
    fn leaders_clock(&self, now_ns: u64) -> u64 {
        if self.is_machine_time {
            return now_ns;
        }
        let elapsed = now_ns.saturating_sub(self.horizons.led_at_ns.load(Ordering::Relaxed));
        self.bound() + elapsed.min(self.longest_step)
    }

    /// Moves the limit on behind the horizon, whose clock reading this is, and the last round. Only the leader does.
    fn move_limit(&self, stable: u64) {
        let horizons = &*self.horizons;
        horizons.stable.store(stable, Ordering::Relaxed);
        let limit = stable.min(self.renewed()) + self.shape.sixteenths(SIXTEENTHS_AHEAD);
        // Release: pairs with the acquire in `limit`.
        horizons.limit.store(limit.max(horizons.limit.load(Ordering::Relaxed)), Ordering::Release);
    }

    /// Moves the horizons on. `false`: somebody else is at it.
    pub(super) fn lead(&self) -> bool {
        self.lead_past(self.overtaking_ns)
    }

    /// The same past transactions that have run for so long and are not being committed.
    pub(super) fn lead_past(&self, spin_budget_ns: u64) -> bool {
        // Acquire: pairs with the release below, so that leaders follow each other.
        if self.leading.swap(true, Ordering::Acquire) {
            return false;
        }
        let horizons = &*self.horizons;
        let now_ns = self.now_ns();
        // Acquire: pairs with the release in `join`.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        let furthest = match &self.central {
            Some(counter) => counter.load(Ordering::SeqCst) + 1,
            None => {
                let clocks = slots.iter().map(|slot| slot.clock.load(Ordering::Relaxed));
                clocks.max().unwrap_or(0).max(self.leaders_clock(now_ns))
            }
        };
        // Time does not lead past the limit either: horizons stay comparable with what they are compared with.
        let furthest = furthest.min(horizons.limit.load(Ordering::Relaxed));
        let bound = self.shape.proper(furthest.max(horizons.bound.load(Ordering::Relaxed)));
        // Barrier: pairs with `publish` in `begin`; a transaction that the scan misses sees the bound.
        publish(&horizons.bound, bound);
        // Acquire: again for slots that joined meanwhile; and pairs with `end`.
        let slots = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        self.overtake(slots, now_ns, spin_budget_ns);
        let earliest = |slots: &[CachePadded<Slot>],
                        from: Timestamp,
                        word: &dyn Fn(&Slot) -> &AtomicU64,
                        passed: &dyn Fn(usize) -> u64| {
            let words = slots.iter().enumerate().map(|(at, slot)| (at, word(slot).load(Ordering::Acquire)));
            let held = words.filter(|&(at, word)| word != NONE && word != passed(at)).map(|(_, word)| Timestamp(word));
            held.fold(from, |least, word| if word.is_before(least) { word } else { least })
        };
        // A word that was stored with an outdated horizon, and is about to be stored anew, may lie behind: horizons never
        // go back, and nobody relies on that word.
        let not_before = |new: Timestamp, old: Timestamp| if new.is_before(old) { old } else { new };
        let old_min_wts = Timestamp(horizons.min_wts.load(Ordering::Relaxed));
        let old_min_wts = if left_out(Step::NeverGoBack) { Timestamp(NONE) } else { old_min_wts };
        let passed = |at: usize| self.watches[at].passed();
        let from = self.shape.timestamp(bound, 0);
        let writers = if left_out(Step::AwaitWriters) { &[] } else { slots };
        let earliest_active = earliest(writers, from, &|slot| &slot.active, &passed);
        let min_wts = not_before(earliest_active, old_min_wts);
        pass(Point::Scanned);
        // Barrier: pairs with those of `begin` and `begin_snapshot`; whom the scan misses sees this horizon.
        publish(&horizons.min_wts, min_wts.0);
        if min_wts != old_min_wts {
            horizons.moved_at_ns.store(now_ns, Ordering::Relaxed);
        }
        // Acquire: again, because a worker that has joined and begun a snapshot before the barrier reads at the horizon before this one.
        let joined = &self.slots[..self.used_slots.load(Ordering::Acquire)];
        let slots = if left_out(Step::AwaitJoined) { slots } else { joined };
        let readers = if left_out(Step::AwaitReaders) { &[] } else { slots };
        let min_rts = earliest(readers, min_wts.predecessor(), &|slot| &slot.floor, &|_| NONE);
        let min_rts = not_before(min_rts, Timestamp(horizons.min_rts.load(Ordering::Relaxed)));
        // Release: pairs with the acquire in `min_rts`.
        horizons.min_rts.store(min_rts.0, Ordering::Release);
        self.move_limit(self.shape.reading(min_rts, bound));
        horizons.led_at_ns.store(now_ns, Ordering::Relaxed);
        // Release: pairs with the acquire above.
        self.leading.store(false, Ordering::Release);
        true
    }
}

mod held;
#[cfg(all(test, loom))]
mod model;
mod overtaking;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
