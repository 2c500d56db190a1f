//! A worker: a slot with a clock, pools, and the sets that its transactions use one after the other.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use polychron_base::clock::Duration;
use polychron_base::key::EncodedKey;
use polychron_base::random::Random;
use polychron_base::{Error, TableId};
use polychron_engine::contested::Contested;
use polychron_engine::mutations::{left_out, pass};
use polychron_engine::nested;
use polychron_engine::redo::Journal;
use polychron_engine::stores::{StoreWorker, WorkerBase};
use polychron_engine::{LoadedRow, Mode, Projection, Transaction, drive, load};
use polychron_memory::{Guard, Local};
use polychron_schema::RowRef;
use polychron_sync::atomic::Ordering;
use polychron_sync::spin_hint;

use super::clocks::{LocalClock, Span};
use super::counts::Stage;
use super::garbage::Garbage;
use super::kept::{OwnGuard, Stays};
use super::options::Snapshots;
use super::promotion::{self, Candidate};
use super::protocol::Shared;
use super::reclaim::{Reclaimer, Site};
use super::sets::Sets;
use super::steps::{Point, Step};
use super::table::{CicadaTable, Store};
use super::timestamp::Timestamp;
use super::transaction::{Buffers, CicadaTransaction};

/// Steps of collection in one go, so that no transaction waits for long before it begins.
const COLLECTED_AT_ONCE: usize = 512;
/// Steps of collection that a transaction pays for, whatever it does, and those for each version that it installs: an item and a version take about
/// three, so a backlog shrinks. A worker that maintained by time alone would work off backlogs in place of transactions whenever these are slow.
const COLLECTED_PER_TRANSACTION: i64 = 8;
const COLLECTED_PER_WRITE: i64 = 8;
/// Conflicts in a row before a transaction asks for the favour. Fewer than others', because all wait longer here where many conflict.
const CONFLICTS_UNFAVOURED: u64 = 4;
/// Steps that the background takes in one go.
const COLLECTED_IN_A_TICK: usize = 3 * 4096;

/// One thread's way into the database.
#[derive(Debug)]
pub struct CicadaWorker {
    pub(super) local: Local,
    pub(super) state: State,
    pub(super) shared: Arc<Shared>,
}

/// What a worker keeps from one transaction to the next.
#[derive(Debug)]
pub(super) struct State {
    pub(super) base: WorkerBase<Store>,
    pub(super) sets: Sets,
    pub(super) buffers: Buffers,
    /// What the running transaction leaves to be collected.
    pub(super) garbage: VecDeque<Garbage>,
    pub(super) clock: LocalClock,
    /// Rows that are worth moving into their heads.
    pub(super) promotions: Vec<Candidate>,
    /// Where the running transaction is.
    pub(super) stage: Stage,
    /// Commits since the last conflict.
    pub(super) commits_in_row: u32,
    /// The clock reading of the latest commit that wrote, if no snapshot has been behind it yet.
    pub(super) last_commit: Option<u64>,
    /// The same of the latest one that wrote or that read what snapshots might have missed.
    pub(super) last_seen: Option<u64>,
    /// Whether the running transaction has read such a version without protecting that.
    pub(super) saw_unprotected: bool,
    pub(super) maintained_ns: u64,
    /// Steps of collection that transactions have paid for, less those that were taken; negative when a slice took more than was paid for.
    paid_steps: i64,
    /// Names for the times in which its transactions keep what they find.
    pub(super) stays: Stays,
    /// Whether a deletion was refused memory since the worker maintained.
    pub(super) is_short: Cell<bool>,
    /// Nodes that were looked at for it, from the first one on.
    pub(super) moved_to: usize,
    random: Random,
}

impl CicadaWorker {
    pub(super) fn new(local: Local, shared: &Arc<Shared>) -> Self {
        let mut base = WorkerBase::new(&shared.base, &local);
        base.contested = Contested::asking_after(CONFLICTS_UNFAVOURED);
        let slot = base.slot;
        let state = State {
            base,
            sets: Sets::default(),
            buffers: Buffers::default(),
            garbage: VecDeque::new(),
            clock: shared.clocks.join(slot),
            promotions: Vec::new(),
            stage: Stage::default(),
            commits_in_row: 0,
            last_commit: None,
            last_seen: None,
            saw_unprotected: false,
            maintained_ns: 0,
            paid_steps: 0,
            stays: Stays::new(),
            is_short: Cell::new(false),
            moved_to: 0,
            random: Random::stream(0xC1CADA, slot as u64 + 1),
        };
        Self { local, state, shared: Arc::clone(shared) }
    }

    pub(super) fn slot(&self) -> usize {
        self.state.base.slot
    }

    /// Begins a transaction that stays in its epoch between its operations, as those of a batch do.
    ///
    /// # Errors
    /// As [`polychron_engine::Interactive::begin`].
    #[doc(hidden)]
    pub fn begin_in_epoch(&mut self, mode: Mode) -> Result<CicadaTransaction<'_>, Error> {
        self.make_ready();
        self.begin_transaction(mode, true)
    }

    /// The timestamp of the latest transaction.
    pub(super) fn last_timestamp(&self) -> Timestamp {
        self.shared.clocks.shape.timestamp(self.state.clock.adjusted, self.state.base.slot)
    }

    /// What to hand to [`CicadaWorker::follow`] of a worker whose transactions are to come after this one's so far.
    pub fn clock_reading(&self) -> u64 {
        self.state.clock.adjusted
    }

    /// Makes this worker's transactions follow those of another one up to that clock reading (causal consistency, §3.1), where
    /// [`super::Consistency::Loose`] does not promise it.
    pub fn follow(&mut self, clock_reading: u64) {
        self.shared.clocks.follow(&mut self.state.clock, clock_reading);
    }
}

impl StoreWorker for CicadaWorker {
    type Store = Store;
    type Transaction<'w> = CicadaTransaction<'w>;

    polychron_engine::worker_parts!(shared.base);

    #[inline]
    fn start(&mut self, mode: Mode) -> Result<CicadaTransaction<'_>, Error> {
        self.begin_transaction(mode, false)
    }

    fn await_present(&mut self, longest: Duration) -> bool {
        self.shared.clocks.await_present(longest)
    }

    /// A transaction that the horizon has passed reads on at its timestamp.
    fn keeps_open_readers(&self, _: Mode) -> bool {
        true
    }

    /// It still has its words, its sets and its guard.
    fn undo_leaked(&mut self) {
        let Self { local, state, shared } = self;
        let timestamp = shared.clocks.shape.timestamp(state.clock.adjusted, state.base.slot);
        // SAFETY: no transaction borrows the worker, so the one that has begun at this timestamp was leaked. It still keeps its list of tables.
        let held = unsafe { shared.clocks.take_over(state.base.slot, timestamp) };
        // What it has read is kept by its own guard, which may have left its epoch; it may have been news.
        state.sets.reads.clear();
        state.saw_unprotected = true;
        let guard = OwnGuard::new(local.pin(), held, &mut state.stays, true);
        drop(CicadaTransaction::taken_over(shared, state, guard));
    }

    fn has_gathered(&mut self, tables: &[Option<Arc<CicadaTable>>]) {
        let Self { local, state: State { base, buffers, .. }, shared } = self;
        // The group has a guard of its own for as long as it runs, which keeps what is found under this one.
        buffers.planned.look_up_now(shared, tables, &local.pin(), &mut base.hints);
    }

    /// Waits for a random time below the bound that the regulation has found (§3.9). The paper's wait assumes a processor for each thread; with
    /// fewer, or at a row that another processor has in its cache, a transaction that conflicts again and again waits for the favour.
    fn wait(&mut self, attempts: u64) {
        let longest_ns = self.shared.regulation.longest_ns();
        if longest_ns > 0 {
            let wait_ns = self.state.random.below(longest_ns + 1);
            self.shared.clocks.counts(self.state.base.slot).waits.note(wait_ns);
            let until_ns = self.shared.clocks.now_ns() + wait_ns;
            while self.shared.clocks.now_ns() < until_ns {
                spin_hint();
            }
        }
        self.state.base.contested.wait(&self.shared.base.favour, self.state.base.slot, attempts);
    }

    fn load_rows(&mut self, table: TableId, rows: &[LoadedRow<'_>]) -> Result<(), Error> {
        if !super::loading::load(&self.shared, &self.local, table, rows)? {
            load::by_transaction(self, table, rows)?;
            super::fill::await_past(&self.shared, self.last_timestamp())?;
        }
        Ok(())
    }

    fn maintain_stores(&mut self) {
        let Self { local, state, shared } = self;
        let guard = local.pin();
        renew_tables(shared, state, &guard);
        promotion::see_to_shortage(shared, state, local);
        shared.lead(shared.clocks.now_ns());
        let held = shared.hold_for_collection(state.base.slot);
        let site = Site::new(state.base.tables.list(), &shared.clocks, state.base.slot, &guard);
        collect_all(shared, true, &mut state.buffers.spans, &site);
        drop((held, guard));
        local.collect();
    }

    /// Appendix B: versions do not change, so one read alone needs no validation. It is as of the time that the worker's clock
    /// shows, or of a later one.
    #[inline]
    fn read_alone<K: EncodedKey, O: Send>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        mut read: impl FnMut(Option<RowRef<'_>>) -> O + Send,
    ) -> Result<O, Error> {
        // A read alone raises no read timestamp: an earlier transaction may still change what it saw. None from before the last commit of the
        // worker or the thread may, which comes before the read; they have ended when the horizon has passed it. Whether what is read is durable that a
        // log has kept which has stopped, a transaction finds out.
        let is_passed = |commit| self.shared.clocks.has_passed_commit(commit, self.state.base.slot);
        let min_wts = self.shared.clocks.min_wts();
        // A reading of long ago may seem not to have been passed, which makes no difference but in speed.
        let is_after = |commit| !min_wts.is_after(Timestamp(commit));
        if self.shared.base.common.journal.has_stopped()
            || !self.state.last_commit.is_none_or(is_passed)
            || nested::any_commit(self.shared.base.catalog.number(), is_after)
        {
            return drive::transact(self, Mode::ReadWrite, &mut |transaction| {
                Transaction::read_row(transaction, table, key, projection).map(&mut read)
            });
        }
        let mut transaction = self.begin_in_epoch(Mode::ReadWrite)?;
        let table = transaction.state.base.tables.table(table)?;
        // Where nothing was seen, a version of a node or of a tombstone that is just as new says so.
        let mut is_news = true;
        let reader = transaction.guard.reader();
        let seen = table.primary.record_at(key, reader, &transaction.guard).and_then(|record| {
            record.prefetch(table.primary.records.lines());
            let seen = reader.search(record, None, !left_out(Step::AwaitPendingAlone));
            is_news = seen.version.is_none_or(|version| !min_wts.is_after(version.wts()));
            seen.version.filter(|_| seen.is_row)
        });
        let output = drive::catch(|| read(seen.map(|version| version.row())));
        if is_news {
            transaction.note_seen();
        }
        transaction.end();
        drop(transaction);
        match output {
            Ok(output) => {
                self.state.base.counters.committed();
                Ok(output)
            }
            Err(panic) => {
                self.state.base.counters.refused();
                Err(panic.into_error())
            }
        }
    }
}

impl State {
    /// A transaction begins: nothing is left of the one before.
    #[inline]
    pub(super) fn begin(&mut self, journal: &Journal) {
        debug_assert!(self.sets.writes.is_empty(), "the transaction before left something behind");
        self.promotions.clear();
        self.base.begin_logged(journal);
        self.base.nested.begin();
        self.stage = Stage::Running;
        self.saw_unprotected = false;
    }

    /// The transaction has installed so many versions, and pays for collecting more than that.
    #[inline]
    pub(super) fn pay_for_writes(&mut self, installed: usize) {
        self.paid_steps += COLLECTED_PER_WRITE * installed as i64;
    }
}

impl CicadaWorker {
    /// Begins a transaction, which stays in its epoch between its operations or does not.
    #[inline]
    fn begin_transaction(&mut self, mode: Mode, stays: bool) -> Result<CicadaTransaction<'_>, Error> {
        let Self { local, state, shared } = self;
        // Pinned first: a thread that waits for the transactions that know an old catalog waits for their epochs.
        let guard = local.pin();
        let knows = state.base.tables.is_present(&shared.base.catalog);
        renew_tables(shared, state, &guard);
        if !knows {
            // A transaction that leaves an index alone that was dropped comes after all that may still ask it. Relaxed: see `drop_index`.
            shared.clocks.follow(&mut state.clock, shared.unknowing.load(Ordering::Relaxed));
        }
        pass(Point::Beginning);
        shared.clocks.advance(&mut state.clock, state.base.slot);
        state.paid_steps += COLLECTED_PER_TRANSACTION;
        let interval_ns = shared.options.collection_interval.as_nanos() as u64;
        if state.clock.now_ns.saturating_sub(state.maintained_ns) >= interval_ns {
            maintain(shared, state, local, &guard, interval_ns);
        }
        let held = match mode {
            Mode::ReadWrite => loop {
                match shared.clocks.begin(state.base.slot, &mut state.clock) {
                    Some(held) => break held,
                    None => super::renewal::wait_for_limit(shared, state, local)?,
                }
            },
            Mode::Snapshot => {
                if shared.options.snapshots == Snapshots::FollowCommits {
                    state.last_commit = None;
                    let of_session = state.last_seen.take().map(|seen| (seen, state.base.slot));
                    let last = of_session.into_iter().chain(nested::last_seen(shared.base.catalog.number()));
                    last.for_each(|(commit, slot)| shared.clocks.await_commit(commit, slot));
                }
                shared.clocks.begin_snapshot(state.base.slot)
            }
        };
        Ok(CicadaTransaction::begin(shared, state, (guard, held), mode, stays))
    }
}

/// Looks at the present list of tables from now on: in what the worker does under this guard, and in a transaction that begins under it, which holds
/// a timestamp before it leaves the epoch (`Shared::release_lists`).
#[inline]
pub(super) fn renew_tables(shared: &Shared, state: &mut State, _guard: &Guard<'_>) {
    // SAFETY: the worker is pinned, looks between transactions only behind such a call, and in one under the guard or the timestamp.
    unsafe { state.base.tables.renew(&shared.base.catalog) };
}

/// The maintenance between two transactions (§3.8): the worker is quiescent here.
#[cold]
fn maintain(shared: &Shared, state: &mut State, local: &Local, guard: &Guard<'_>, interval_ns: u64) {
    state.maintained_ns = state.clock.now_ns;
    if shared.clocks.is_due(state.clock.now_ns, interval_ns) {
        shared.lead(state.clock.now_ns);
    }
    collect(shared, state, guard);
    promotion::see_to_shortage(shared, state, local);
    super::renewal::keep_up(shared, state, local);
}

/// Takes the steps of collection in the worker's own bin that its transactions have paid for.
fn collect(shared: &Shared, state: &mut State, guard: &Guard<'_>) {
    let slot = state.base.slot;
    // Steps are saved up for one slice at most.
    state.paid_steps = state.paid_steps.min(COLLECTED_AT_ONCE as i64);
    let limit = state.paid_steps.max(0) as usize;
    if limit == 0 {
        return;
    }
    let _held = shared.hold_for_collection(slot);
    let site = Site::new(state.base.tables.list(), &shared.clocks, slot, guard);
    let reclaimer = shared.bins.of(slot).serve();
    pass(Point::Collecting);
    let Some(mut reclaimer) = reclaimer else { return };
    let taken = reclaimer.step(limit, &site);
    let left = limit.saturating_sub(taken);
    let taken = taken + prune(shared, &mut reclaimer, &mut state.buffers.spans, left, &site);
    state.paid_steps -= taken as i64;
    reclaimer.report(&shared.clocks, slot);
}

/// Prunes records when the oldest reader has fallen behind. Answers how many steps that took.
fn prune(shared: &Shared, reclaimer: &mut Reclaimer, spans: &mut Vec<Span>, limit: usize, site: &Site<'_>) -> usize {
    if shared.clocks.readers_lag() <= shared.options.pruning_after.as_nanos() as u64 {
        return 0;
    }
    let lag = shared.options.pruning_after.as_nanos() as u64;
    reclaimer.prune(limit, &shared.clocks.held_spans(site.worker, lag, spans), site)
}

/// Works off bins that no other worker is at, as far as readers allow; with `all`, those whose workers have come by, too. Then gives back
/// pages of slots that are all free.
pub(super) fn collect_all(shared: &Shared, all: bool, spans: &mut Vec<Span>, site: &Site<'_>) {
    shared.bins.go_round(all, |reclaimer| {
        reclaimer.drain(site);
        prune(shared, reclaimer, spans, usize::MAX, site);
        reclaimer.report(&shared.clocks, site.worker);
        true
    });
    for table in site.tables.iter().flatten().filter(|_| shared.bins.are_empty()) {
        let stores = std::iter::once(&table.primary).chain(table.secondaries());
        stores.for_each(|store| store.free_pages(&shared.bins, site.guard));
    }
}

/// Works off a bounded part of the bins whose workers have not come by.
pub(super) fn collect_some(shared: &Shared, spans: &mut Vec<Span>, site: &Site<'_>) {
    let mut left = COLLECTED_IN_A_TICK;
    shared.bins.go_round(false, |reclaimer| {
        left = left.saturating_sub(reclaimer.step(left, site));
        left = left.saturating_sub(prune(shared, reclaimer, spans, left, site));
        reclaimer.report(&shared.clocks, site.worker);
        left > 0
    });
}

impl Drop for CicadaWorker {
    fn drop(&mut self) {
        self.end_all();
        self.shared.clocks.leave(self.state.base.slot, &self.state.clock);
    }
}
