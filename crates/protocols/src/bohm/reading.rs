//! How a transaction finds the row of a key: the version before its own timestamp, and whom it waits for to know it.

use std::ptr::NonNull;

use polychron_base::Stop;
use polychron_base::key::EncodedKey;
use polychron_engine::Scan;
use polychron_engine::mutations::left_out;
use polychron_sync::Backoff;

use super::execution::{Outcome, execute_claimed, settle};
use super::interactive::Driven;
use super::planned::{Planned, Progress, Put, Want};
use super::sleeping::SpinBudget;
use super::steps::Step;
use super::table::{BohmStore, Prefix, bits};
use super::timestamp::Timestamp;
use super::transaction::{BohmTransaction, Position};
use super::version::{Head, State, Version};

impl BohmTransaction<'_> {
    /// The row that a key has here, if it has one.
    #[inline]
    pub(super) fn see<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<Option<Version>, Stop> {
        self.step()?;
        let trusts = self.await_prefixes(store, key)?;
        if let Some(position) = self.own(store, key) {
            let entry = self.entry(position);
            if entry.is_written() {
                return self.present(position);
            }
            if entry.want == Want::Read && trusts {
                return self.settled(entry.version.get());
            }
        }
        self.look_up(store, key)
    }

    /// The row of a key that the transactions before this one have left, once those are executed that may write it unnamed.
    fn look_up<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<Option<Version>, Stop> {
        if self.scratch.hints.waits() {
            self.scratch.hints.answer(&self.state.tables, &self.guard);
        }
        let found = match store.find(key, &self.guard) {
            Some(chain) => self.visible(chain.head())?,
            None => None,
        };
        if found.is_none() && store.displaced.concern(self.timestamp) {
            return self.look_beside(store, key);
        }
        Ok(found)
    }

    /// Has all transactions before this one executed that may write this key without having named it. Answers whether a version is the
    /// right one that concurrency control found.
    #[inline]
    pub(super) fn await_prefixes<K: EncodedKey>(&mut self, store: &BohmStore, key: K) -> Result<bool, Stop> {
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
                self.await_intents(list.head())?;
                let latest = list.head().at(self.timestamp);
                trusts &= latest.is_none_or(|latest| latest.begin().batch() <= finished_before);
            }
        }
        Ok(trusts || left_out(Step::DistrustAnnotations))
    }

    /// The same for all keys of a range.
    pub(super) fn await_range(&mut self, store: &BohmStore, scan: &Scan<'_>) -> Result<(), Stop> {
        if store.prefixes.lengths() == 0 || !self.awaits || left_out(Step::AwaitPrefixes) {
            return Ok(());
        }
        for list in store.prefixes.between(scan.lower, scan.upper, &self.guard) {
            self.await_intents(list.head())?;
        }
        Ok(())
    }

    /// The row that the key of an own entry has now.
    #[inline]
    pub(super) fn present(&mut self, position: Position) -> Result<Option<Version>, Stop> {
        let entry = self.entry(position);
        match entry.put.get() {
            Put::Row => Ok(entry.version.get()),
            Put::Deletion => Ok(None),
            Put::Nothing => {
                // SAFETY: the client keeps the stores of its entries.
                let store = unsafe { &*entry.store };
                let is_guessed = entry.want == Want::Guessed;
                if store.prefixes.lengths() != 0 || is_guessed {
                    match entry.kept_key() {
                        (key, None) => self.await_prefixes(store, key)?,
                        (_, Some(key)) => self.await_prefixes(store, &*key)?,
                    };
                }
                if is_guessed {
                    // No chain has the version, so nobody tells it when what is below it changes, and goes.
                    return match self.entry(position).kept_key() {
                        (key, None) => self.look_up(store, key),
                        (_, Some(key)) => self.look_up(store, &*key),
                    };
                }
                self.settled(self.entry(position).version.get().and_then(Version::previous))
            }
        }
    }

    /// The row that a chain has here.
    #[inline]
    pub(super) fn visible(&mut self, head: &Head) -> Result<Option<Version>, Stop> {
        if left_out(Step::ReadBefore) {
            let newest = head.newest();
            return Ok(newest.filter(|newest| newest.state() == State::Row));
        }
        match head.at(self.timestamp) {
            Some(version) if version.begin() == self.timestamp => {
                let own = self.own_version(version);
                self.present(own.expect("a version of its own has an entry"))
            }
            version => self.settled(version),
        }
    }

    /// The version if it has a row, once that is known.
    #[inline]
    pub(super) fn settled(&mut self, version: Option<Version>) -> Result<Option<Version>, Stop> {
        let Some(version) = version else { return Ok(None) };
        loop {
            match version.state() {
                State::Row => return Ok(Some(version)),
                State::Absent => return Ok(None),
                State::Pending(_) if left_out(Step::AwaitPlaceholder) => return Ok(None),
                State::Pending(producer) => self.await_producer(producer, version.begin())?,
            }
        }
    }

    /// Executes the transaction that fills a version, or waits while another thread does. When that takes long, or the version
    /// lies too deep, this transaction is handed back.
    pub(super) fn await_producer(&mut self, producer: NonNull<Planned>, timestamp: Timestamp) -> Result<(), Stop> {
        debug_assert!(timestamp < self.timestamp, "transactions wait for earlier ones only");
        debug_assert!(self.awaits, "a snapshot of finished batches sees nothing that is pending");
        // SAFETY: transactions' memory is kept while the database is open.
        let producer = unsafe { producer.as_ref() };
        if !matches!(self.driven, Driven::ByThePipeline) {
            let mut spin_budget = SpinBudget::default();
            while !settle(self.shared, self.state, self.local, producer, timestamp) {
                spin_budget.wait(&self.state.sleeper);
            }
            return Ok(());
        }
        let mut backoff = Backoff::new();
        let mut stalls = 1;
        loop {
            if producer.claim(timestamp) {
                return match execute_claimed(self.shared, self.state, self.local, producer, timestamp) {
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
                self.state.blocker = Some((NonNull::from(producer), timestamp));
                return Err(self.doom());
            }
            backoff.wait();
        }
    }

    /// Has all transactions before this one executed that stand in a list of intents.
    pub(super) fn await_intents(&mut self, intents: &Head) -> Result<(), Stop> {
        if !self.awaits || intents.newest().is_none() {
            return Ok(());
        }
        let finished = self.shared.pipeline.finished();
        intents.await_pending(self.timestamp, finished, |producer, timestamp| self.await_producer(producer, timestamp))
    }
}
