//! How a transaction finds the row of a key: the version before its own timestamp, whose transaction it executes or waits for.

use std::ops::ControlFlow;

use polychron_base::Error;
use polychron_base::key::EncodedKey;
use polychron_engine::Scan;
use polychron_engine::mutations::left_out;
use polychron_engine::stores::{Batch, Both, key_in_entry};
use polychron_index::Handle;
use polychron_memory::{Guard, Local};
use polychron_sync::Backoff;

use super::chain::{Chain, Head, Superseded, found, make_chain};
use super::collection::Deleted;
use super::entry::{Entry, KeptKey, Known, Put, Want};
use super::execution::{ExecutorState, Outcome, ensure_complete, execute_claimed};
use super::interactive::Driver;
use super::parking::SpinBudget;
use super::planned::{Executing, Planned, Progress};
use super::protocol::Shared;
use super::steps::Step;
use super::table::{BohmStore, Prefix, bits};
use super::timestamp::Timestamp;
use super::transaction::{BohmTransaction, Position};
use super::version::{Filling, Free, Fresh, State, Version};

impl<'t> BohmTransaction<'t> {
    /// Looks at the present list of tables from now on.
    pub(super) fn renew_tables(&mut self) {
        // SAFETY: the transaction holds the guard, and renews it only if it has a snapshot open since before. One that is executed for another one
        // returns to that, which holds an older guard.
        unsafe { self.state.tables.renew(&self.shared.base.catalog) };
    }

    /// A transaction that the calling thread has claimed.
    pub(super) fn planned(
        shared: &'t Shared,
        state: &'t mut ExecutorState,
        local: &'t Local,
        planned: Executing<'t>,
        timestamp: Timestamp,
    ) -> Self {
        let mut transaction = Self::new(shared, state, local, timestamp);
        transaction.awaits = true;
        transaction.next = planned.body().first;
        transaction.planned = Some(planned);
        transaction.trusts_annotations =
            left_out(Step::DistrustAnnotations) || shared.pipeline.is_annotation_valid(timestamp.batch());
        transaction
    }

    /// A snapshot of the last finished batch, or of a later one that clients know of; it is open until it is dropped. Then it executes what it
    /// needs of the batches in between, as a transaction does.
    pub(super) fn snapshot(shared: &'t Shared, state: &'t mut ExecutorState, local: &'t Local, worker: usize) -> Self {
        // A procedure that opens one must not wait for itself.
        let is_stale = shared.options.stale_snapshots || shared.is_inside();
        let at_least = if is_stale { 0 } else { shared.acknowledged.batch() };
        let batch = shared.snapshots.open(worker, &shared.pipeline, at_least);
        // Before the list of tables is looked at, in `begin`, so that it stays while the guard rests.
        let kept = local.begin_snapshot();
        let mut transaction = Self::new(shared, state, local, Timestamp::end_of(batch));
        transaction.driver = Driver::Snapshot(worker);
        transaction.kept = Some(kept);
        transaction.awaits = batch > shared.pipeline.finished();
        let begun = transaction.begin();
        debug_assert!(begun.is_ok(), "a snapshot waits as long as it takes");
        transaction.rest();
        transaction
    }

    pub(super) fn new(
        shared: &'t Shared,
        state: &'t mut ExecutorState,
        local: &'t Local,
        timestamp: Timestamp,
    ) -> Self {
        let guard = local.pin();
        let mut scratch = state.scratches.pop().unwrap_or_default();
        scratch.watch.begin(&shared.base.common.journal);
        Self {
            shared,
            state,
            local,
            guard,
            kept: None,
            asked: 0,
            planned: None,
            timestamp,
            doomed: false,
            again: false,
            is_guessing: false,
            undeclared: None,
            lost: None,
            was_refused_memory: false,
            awaits: false,
            driver: Driver::ByThePipeline,
            is_saving: false,
            saves_operation: false,
            next: 0,
            covering: None,
            trusts_annotations: false,
            scratch,
            has_staged: false,
        }
    }

    /// The row that a key has here, if it has one.
    #[inline]
    pub(super) fn see<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<Option<Version<'t>>, Error> {
        self.step()?;
        let trusts = self.await_prefixes(store, key)?;
        if let Some(position) = self.own(store, key) {
            let entry = self.entry(position);
            if entry.is_written() {
                return self.present(position);
            }
            if entry.want == Want::Read && trusts {
                // SAFETY: the version to read stays until this transaction is complete.
                let version = entry.version().map(|version| unsafe { version.get() });
                return self.resolved(version);
            }
        }
        self.look_up(store, key)
    }

    /// The chain of a key, in an ordered index looked for near where the last key was.
    #[inline]
    pub(super) fn chain_of<K: EncodedKey>(&self, store: &BohmStore, key: K) -> Option<Chain<'_>> {
        if self.kept.is_some() {
            return store.find(key, &self.guard);
        }
        let mut fingers = self.scratch.fingers.borrow_mut();
        // SAFETY: fingers are cleared when a transaction ends, and only one with a snapshot renews its guard.
        let handle = unsafe { fingers.find(&store.entries, key, &self.guard) };
        handle.map(|handle| found(handle, &self.guard))
    }

    /// The chain of a key that had none just before, and is to be written.
    pub(super) fn make_chain_of<K: EncodedKey>(&self, store: &BohmStore, key: K) -> Result<Chain<'_>, Error> {
        assert!(self.kept.is_none(), "a snapshot writes nothing");
        let mut fingers = self.scratch.fingers.borrow_mut();
        // SAFETY: as in `chain_of`.
        make_chain(|handle| unsafe { fingers.insert(&store.entries, key, handle, &mut (), &self.guard) }, &self.guard)
    }

    /// The row of a key that the transactions before this one have left, once those are executed that may write it unnamed.
    fn look_up<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<Option<Version<'t>>, Error> {
        if self.scratch.hints.waits() {
            self.scratch.hints.answer(&self.state.tables, &self.guard);
        }
        let seen = self.chain_of(store, key).and_then(|chain| self.seen(chain.head()));
        let found = self.visible(seen)?;
        if found.is_none() && store.displaced.concern(self.timestamp) {
            return self.look_beside(store, key);
        }
        Ok(found)
    }

    /// Has all transactions before this one executed that may write this key without having named it. Answers whether the version is right that
    /// concurrency control found.
    #[inline]
    pub(super) fn await_prefixes<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<bool, Error> {
        let lengths = store.prefixes.lengths();
        if lengths == 0 || !self.awaits || left_out(Step::AwaitPrefixes) {
            return Ok(self.trusts_annotations);
        }
        let mut trusts = self.trusts_annotations;
        let finished_before = self.shared.pipeline.finished_before(self.timestamp.batch());
        for len in bits(lengths) {
            if len <= key.len()
                && let Some(list) = store.prefixes.find(Prefix::new(key, len), &self.guard)
            {
                let intents = self.intents(list.handle());
                self.await_intents(intents)?;
                let latest = self.at(intents);
                trusts &= latest.is_none_or(|latest| latest.begin().batch() <= finished_before);
            }
        }
        Ok(trusts || left_out(Step::DistrustAnnotations))
    }

    /// The same for all keys of a range.
    pub(super) fn await_range(&mut self, store: &BohmStore, scan: &Scan<'_>) -> Result<(), Error> {
        if store.prefixes.lengths() == 0 || !self.awaits || left_out(Step::AwaitPrefixes) {
            return Ok(());
        }
        let mut lists = std::mem::take(&mut self.scratch.lists);
        store.prefixes.between(scan.lower, scan.upper, &self.guard, |list| lists.push(list.handle()));
        let outcome = lists.drain(..).try_for_each(|list| {
            let intents = self.intents(list);
            self.await_intents(intents)
        });
        self.scratch.lists = lists;
        outcome
    }

    /// The intents of a list that was just found.
    fn intents(&self, list: Handle) -> &'t Head {
        // SAFETY: it was found under the guard, which stays as long as the operation of which this is a part.
        unsafe { Chain::from_handle(list) }.head()
    }

    /// The row that the key of an own entry has now.
    #[inline]
    pub(super) fn present(&mut self, position: Position) -> Result<Option<Version<'t>>, Error> {
        let entry = self.entry(position);
        match entry.put() {
            Put::Row => Ok(self.own_version_at(position)),
            Put::Deletion => Ok(None),
            Put::Nothing => {
                let store = entry.store();
                let is_guessed = entry.want == Want::Guessed;
                if store.prefixes.lengths() != 0 || is_guessed {
                    return self.present_below(position);
                }
                let below = self.below(position);
                self.resolved(below)
            }
        }
    }

    /// The row that the key of an own entry has before it, where there are prefixes, or no chain has the version.
    fn present_below(&mut self, position: Position) -> Result<Option<Version<'t>>, Error> {
        let (store, key) = self.await_prefixes_at(position)?;
        if self.entry(position).want == Want::Guessed {
            // No chain has the version, so its link does not follow changes below, where versions may be freed.
            return match &key {
                (key, None) => self.look_up(store, *key),
                (_, Some(key)) => self.look_up(store, &**key),
            };
        }
        let below = self.below(position);
        self.resolved(below)
    }

    /// Has all transactions before this one executed that may write the key of an own entry without having named it.
    pub(super) fn await_prefixes_at(&mut self, position: Position) -> Result<(&'t BohmStore, KeptKey), Error> {
        let entry = self.entry(position);
        let key = entry.kept_key();
        // SAFETY: the store stays until the transaction is complete.
        let store: &'t BohmStore = unsafe { &*std::ptr::from_ref(entry.store()) };
        match &key {
            (key, None) => self.await_prefixes(store, *key)?,
            (_, Some(key)) => self.await_prefixes(store, &**key)?,
        };
        Ok((store, key))
    }

    /// The newest version of a chain that is not behind this transaction.
    #[inline]
    fn at(&self, head: &Head) -> Option<Version<'t>> {
        // SAFETY: the transaction is under way, or the snapshot open, and has its guard; both stay for longer than what is found is used.
        unsafe { head.at(self.timestamp) }
    }

    /// The version of a chain that is seen here.
    #[inline]
    pub(super) fn seen(&self, head: &Head) -> Option<Version<'t>> {
        if left_out(Step::ReadBefore) {
            // SAFETY: it is read under the guard.
            let newest: Option<Version<'t>> = head.newest().map(|newest| unsafe { newest.get() });
            return newest.filter(|newest| matches!(newest.state(), State::Row(_)));
        }
        self.at(head)
    }

    /// The version of an own entry, which stays until the transaction is complete.
    #[inline]
    pub(super) fn own_version_at(&self, position: Position) -> Option<Version<'t>> {
        self.planned.as_ref()?.version(position)
    }

    /// The version below that of an own entry.
    #[inline]
    pub(super) fn below(&self, position: Position) -> Option<Version<'t>> {
        self.planned.as_ref()?.below(position)
    }

    /// The version of an own entry, to be filled.
    #[inline]
    pub(super) fn filling(&mut self, position: Position) -> Option<(Filling<'_>, Known<'_>, &Guard<'t>)> {
        let (version, entry) = self.planned.as_mut()?.filling(position)?;
        Some((version, entry, &self.guard))
    }

    /// Puts an own version that was not planned into the chain of its entry.
    pub(super) fn put_into<'g>(
        &self,
        chain: Chain<'_>,
        entry: &Entry,
        version: Fresh<'g>,
    ) -> Result<Option<Superseded>, Fresh<'g>> {
        assert!(self.planned.is_some() && version.begin() == self.timestamp, "a transaction puts its own versions");
        let raw = version.raw();
        // SAFETY: the transaction is executed here; it may write anything, or all others that may write this key wait for it. The entry is one of it.
        unsafe {
            let superseded = chain.head().insert(version)?;
            entry.set_version(raw, Some(chain));
            Ok(superseded)
        }
    }

    /// Frees an own version that no chain has. What has found it before may still look at it.
    pub(super) fn free_guessed(&mut self, position: Position) {
        let Some(version) = self.own_version_at(position).filter(|_| self.entry(position).want == Want::Guessed) else {
            return;
        };
        self.entry(position).forget_version();
        // SAFETY: no chain has the version, and the entry no longer names it, so nothing finds it from now on, and it is freed once. What
        // found it did so in this transaction, whose guard it waits for.
        unsafe { version.free(Free::BehindGuards, &self.guard) };
    }

    /// Replaces what an own entry has put by the row below, if it has one.
    pub(super) fn put_below(&mut self, position: Position, has_row: bool) {
        let below = self.below(position).filter(|_| has_row).map(Version::state);
        let (mut version, entry, guard) = self.filling(position).expect("it has a version");
        let put = match below {
            Some(State::Row(row)) => {
                // SAFETY: it stays, and this is done once of each version, at the end of its transaction.
                unsafe { version.take_over(row, guard) };
                Put::Row
            }
            _ => {
                version.clear(guard);
                Put::Deletion
            }
        };
        entry.set_put(put);
    }

    /// Copies the row of another version into the one of an own entry, to be changed there.
    #[inline]
    pub(super) fn copy_row(
        &mut self,
        position: Position,
        found: Version<'t>,
    ) -> Result<(Filling<'_>, Known<'_>), Error> {
        let State::Row(row) = found.state() else { unreachable!("another version that was found has a row") };
        let (mut version, entry, guard) = self.filling(position).expect("a written key has a version");
        version.put(row.words(), guard)?;
        Ok((version, entry))
    }

    /// The row to which an entry of a secondary index leads.
    #[inline]
    pub(super) fn see_behind(&mut self, store: &BohmStore, entry: Version<'t>) -> Result<Option<Version<'t>>, Error> {
        match entry.state() {
            State::Row(row) => self.see(store, key_in_entry(row.words())),
            _ => {
                // What the transaction has put may be replaced while it looks for the row.
                let words: Box<[u64]> = self.words_put(entry).into();
                self.see(store, key_in_entry(&words))
            }
        }
    }

    /// Leaves the key of an own entry to be removed from its index, if the version of the deletion is its newest.
    pub(super) fn leave_deleted(&self, position: Position) {
        let entry = self.entry(position);
        if let (Some(chain), Some(version)) = (entry.take_chain(), self.own_version_at(position)) {
            // SAFETY: a chain is not removed before the batches of its versions are finished. The version was put into the chain, which the entry has
            // named for the last time.
            let deleted = unsafe {
                let chain = Chain::from_handle(chain);
                let is_newest = chain.head().newest() == Some(version.raw());
                is_newest.then(|| Deleted::new(entry, chain, version))
            };
            deleted.into_iter().for_each(|deleted| self.shared.partition(entry.hash).leave_deleted(deleted));
        }
    }

    /// The row of a version that was found here to have one, or that this transaction has put.
    #[inline]
    pub(super) fn words(&self, found: Version<'t>) -> &[u64] {
        match found.state() {
            State::Row(row) => row.words(),
            _ => self.words_put(found),
        }
    }

    pub(super) fn words_put(&self, found: Version<'t>) -> &[u64] {
        self.planned.as_ref().and_then(|planned| found.put_by(planned)).expect("the version has a row")
    }

    /// The row that a chain has here, of which this version was seen.
    #[inline]
    pub(super) fn visible(&mut self, seen: Option<Version<'t>>) -> Result<Option<Version<'t>>, Error> {
        match seen {
            Some(version) if version.begin() == self.timestamp => {
                let own = self.own_version(version.raw());
                self.present(own.expect("a version of its own has an entry"))
            }
            version => self.resolved(version),
        }
    }

    /// The version if it has a row, once that is known.
    #[inline]
    pub(super) fn resolved(&mut self, version: Option<Version<'t>>) -> Result<Option<Version<'t>>, Error> {
        let Some(version) = version else { return Ok(None) };
        loop {
            match version.state() {
                State::Row(_) => return Ok(Some(version)),
                State::Absent => return Ok(None),
                State::Pending(_) if left_out(Step::AwaitPlaceholder) => return Ok(None),
                State::Pending(producer) => self.await_producer(producer, version.begin())?,
            }
        }
    }

    /// Executes the transaction that fills a version, or waits while another thread does. When that takes long, or the version
    /// lies too deep, this transaction is handed back.
    pub(super) fn await_producer(&mut self, producer: &Planned, timestamp: Timestamp) -> Result<(), Error> {
        debug_assert!(timestamp < self.timestamp, "transactions wait for earlier ones only");
        debug_assert!(self.awaits, "a snapshot of finished batches sees nothing that is pending");
        if !matches!(self.driver, Driver::ByThePipeline) {
            let mut spin_budget = SpinBudget::default();
            while !ensure_complete(self.shared, self.state, self.local, producer, timestamp) {
                spin_budget.wait(&self.state.parker);
            }
            return Ok(());
        }
        let mut backoff = Backoff::new();
        let mut stalls = 1;
        loop {
            if let Some(executing) = producer.claim(timestamp) {
                return match execute_claimed(self.shared, self.state, self.local, executing, timestamp) {
                    Outcome::Complete => Ok(()),
                    // It has waited already, or is too deep: to try it again from here would try all below it again, at every level.
                    Outcome::HandedBack => Err(self.doom()),
                };
            }
            if producer.progress(timestamp) == Progress::Complete {
                return Ok(());
            }
            self.state.seen.stalls += std::mem::take(&mut stalls);
            if backoff.is_yielding() {
                self.state.blocker = Some(producer.blocker(timestamp));
                return Err(self.doom());
            }
            backoff.wait();
        }
    }

    /// Has all transactions before this one executed that are in a list of intents.
    pub(super) fn await_intents(&mut self, intents: &Head) -> Result<(), Error> {
        if !self.awaits || intents.newest().is_none() {
            return Ok(());
        }
        let finished = self.shared.pipeline.finished();
        let timestamp = self.timestamp;
        // SAFETY: the operation has a guard.
        unsafe {
            intents.await_pending(timestamp, finished, |producer, timestamp| self.await_producer(producer, timestamp))
        }
    }

    pub(super) fn visit_batch(
        &mut self,
        batch: &Batch,
        store: &BohmStore,
        visit: &mut impl FnMut(&mut Self, Version<'t>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        // SAFETY: the handle was found under the transaction's guard, which stays until the next part.
        let chain = |position| batch.get(position).map(|handle| unsafe { Chain::<'_>::from_handle(handle) });
        for position in 0..batch.len() + 2 * Batch::AHEAD {
            if let Some(ahead) = chain(position) {
                ahead.prefetch();
            }
            if let Some(ahead) = position.checked_sub(Batch::AHEAD).and_then(chain) {
                ahead.prefetch_newest(store.row_words);
            }
            let Some(chain) = position.checked_sub(2 * Batch::AHEAD).and_then(chain) else { continue };
            if self.visit_chain(chain, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the version of a chain that is seen, if it has a row.
    #[inline]
    fn visit_chain(
        &mut self,
        chain: Chain<'_>,
        visit: &mut impl FnMut(&mut Self, Version<'t>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        #[cfg(test)]
        {
            self.state.scanned += 1;
        }
        self.step()?;
        let seen = self.seen(chain.head());
        match self.visible(seen)? {
            Some(version) => visit(self, version),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// A snapshot has found no row of a key in the index. Answers the row that it sees in the index beside, if there is one.
    #[cold]
    pub(super) fn look_beside<K: EncodedKey>(
        &mut self,
        store: &BohmStore,
        key: K,
    ) -> Result<Option<Version<'t>>, Error> {
        let seen = store.displaced.find(key, &self.guard).and_then(|chain| self.seen(chain.head()));
        self.visible(seen)
    }

    /// Visits the rest of a range along both indexes, from the position of `both` on.
    #[cold]
    pub(super) fn visit_both(
        &mut self,
        both: &mut Both,
        scan: &Scan<'_>,
        store: &BohmStore,
        visit: &mut impl FnMut(&mut Self, Version<'t>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        let Some(beside) = store.displaced.index() else { return Ok(ControlFlow::Continue(())) };
        loop {
            self.renew();
            let more = both.fill((store.index(), beside), scan, &self.guard);
            while let Some(handle) = both.next(scan.direction) {
                // SAFETY: the handle was found under the transaction's guard, which stays until the next part.
                let chain: Chain<'_> = unsafe { Chain::from_handle(handle) };
                if self.visit_chain(chain, visit)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if !more {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }
}
