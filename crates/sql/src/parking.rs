//! Connections that hear nothing: where their workers go, and come from.

use std::sync::Arc;

use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_engine::redo::Answers;
use polychron_engine::{Error, Protocol, limits};
use polychron_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sqlparser::ast;

use crate::connection::Connection;
use crate::database::SqlDatabase;
use crate::error::SqlError;
use crate::parse::{self, Command};
use crate::resident;
use crate::session::{KeptBecause, Parking};

/// Where a connection's workers come from. A connection has one as long as it runs statements or holds a transaction that is not parked.
pub trait Workers<W>: Send + Sync {
    /// A worker for a connection.
    ///
    /// # Errors
    /// [`Error::TooManyWorkers`], and whatever else there is none for.
    fn take(&self) -> Result<W, Error>;

    /// Takes a worker back whose connection has nothing to do.
    fn give_back(&self, worker: Box<W>);
}

/// What there is not enough of, for which transactions are parked that would otherwise stay open.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// How many connections wait for workers.
    waiting: AtomicUsize,
    /// How many workers are wanted back.
    wanted: AtomicUsize,
    /// When memory was looked at, and whether it was short.
    looked_ns: AtomicU64,
    is_memory_short: AtomicBool,
}

/// How long a wait for a worker looks away.
const NAP: Duration = Duration::from_millis(1);
/// After how many looks a worker is wanted again: another connection may have got the one that came back.
const LOOKS: u32 = 100;
/// How long a look at memory lasts.
const MEMORY_LOOK_NS: u64 = 1_000_000_000;
/// Memory is short when so many percent of it are in use.
const SHORT_PERCENT: usize = 80;

impl Shortage {
    fn is_there(&self) -> bool {
        // Relaxed: who waits looks again and again.
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether a worker is wanted back. The caller gives one back then: it is wanted no longer.
    pub(crate) fn claim(&self) -> bool {
        let less = |wanted: usize| wanted.checked_sub(1);
        // Relaxed, as above.
        self.wanted.load(Ordering::Relaxed) > 0
            && self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Whether most of memory is in use at this time: `used` answers how much is, and how much there is. It is asked once a second.
    fn is_memory_short(&self, now: u64, used: impl FnOnce() -> Option<(usize, usize)>) -> bool {
        // Relaxed: nothing hangs on who looks.
        if now.saturating_sub(self.looked_ns.load(Ordering::Relaxed)) >= MEMORY_LOOK_NS {
            self.looked_ns.store(now, Ordering::Relaxed);
            let is_short = used().is_some_and(|(used, limit)| used >= limit / 100 * SHORT_PERCENT);
            self.is_memory_short.store(is_short, Ordering::Relaxed);
        }
        self.is_memory_short.load(Ordering::Relaxed)
    }

    /// A worker, which is waited for so long where there is none.
    pub(crate) fn take<W>(&self, longest: Duration, source: &dyn Workers<W>) -> Result<W, Error> {
        match source.take() {
            Err(Error::TooManyWorkers { .. }) => self.wait(longest, source),
            taken => taken,
        }
    }

    /// Transactions of this thread that have only read give theirs back.
    #[cold]
    fn wait<W>(&self, longest: Duration, source: &dyn Workers<W>) -> Result<W, Error> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.wanted.fetch_add(1, Ordering::Relaxed);
        resident::park_rested();
        let (clock, mut looks) = (SystemClock::new(), 0_u32);
        let begun = clock.now_ns();
        let taken = loop {
            match source.take() {
                Err(full @ Error::TooManyWorkers { .. }) => {
                    let waited = Duration::from_nanos(clock.now_ns().saturating_sub(begun));
                    let may_wait = if waited < longest { limits::check() } else { Err(full) };
                    if let Err(error) = may_wait {
                        break Err(error);
                    }
                    looks += 1;
                    if looks.is_multiple_of(LOOKS) {
                        self.wanted.fetch_max(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(NAP);
                }
                taken => break taken,
            }
        };
        let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
        self.wanted.fetch_min(waiting, Ordering::Relaxed);
        taken
    }
}

/// Workers that are made when they are needed, and end when they are not.
impl<P: Protocol> Workers<P::Driven> for std::sync::Arc<P> {
    fn take(&self) -> Result<P::Driven, Error> {
        self.worker().map(Into::into)
    }

    fn give_back(&self, worker: Box<P::Driven>) {
        drop(worker);
    }
}

impl<P: Protocol> Connection<P> {
    /// Connects to the database.
    ///
    /// # Errors
    /// All of the protocol's workers are in use.
    pub fn open(database: &Arc<SqlDatabase<P>>) -> Result<Self, SqlError> {
        let answers = Answers::new(database.protocol.storage().journal().clone());
        Self::with_workers(database, answers, Box::new(database.protocol.clone()))
    }

    /// A connection with workers from here, which waits for what `answers` says before it answers. `workers` is dropped behind the worker.
    ///
    /// # Errors
    /// There is no worker.
    pub fn with_workers(
        database: &Arc<SqlDatabase<P>>,
        answers: Answers,
        workers: Box<dyn Workers<P::Driven>>,
    ) -> Result<Self, SqlError> {
        Self::with_workers_within(database, answers, workers, Duration::ZERO)
    }

    /// Parks the transaction that the client holds, whether or not it was idle for `park_after`: what it has of the engine ends, and its worker is given back. The next
    /// statement has it run again in the thread where it comes, and fails with [`SqlState::SERIALIZATION_FAILURE`](crate::SqlState::SERIALIZATION_FAILURE) where something else is answered. Without a transaction the worker alone is
    /// given back.
    pub fn park(&mut self) -> Parking {
        if self.is_copying {
            return Parking::Kept(KeptBecause::Copying);
        }
        self.session.park()
    }

    /// As [`Connection::park`], where the transaction has heard nothing for `park_after`. One that has only read may stay open ([`KeptBecause::Reads`]). For whoever has many connections, to be called now and then.
    pub fn park_idle(&mut self) -> Parking {
        let is_idle = match (self.session.idle_for(), self.session.park_after) {
            (Some(idle), Some(park_after)) => idle >= park_after,
            (Some(_), None) => false,
            (None, _) => true,
        };
        match () {
            () if !is_idle => Parking::Kept(KeptBecause::NotIdle),
            () if !self.is_copying && !self.is_memory_short() && self.session.keeps_reader() => {
                Parking::Kept(KeptBecause::Reads)
            }
            () => self.park(),
        }
    }

    fn is_memory_short(&self) -> bool {
        let used = || self.database.protocol.statistics().memory.map(|it| (it.used_bytes, it.limit_bytes));
        self.session.idle_for().is_some() && self.database.shortage.is_memory_short(resident::now_ns(), used)
    }

    /// From now on a statement that finds no worker waits for one so long. Only for connections whose threads hold no other ones: those would wait for themselves.
    pub fn wait_for_workers(&mut self, longest: Duration) {
        self.session.worker_wait = longest;
    }

    /// Whether another connection waits for a worker.
    pub fn is_worker_wanted(&self) -> bool {
        self.database.shortage.is_there()
    }

    /// Gives memory back that only makes the next statement cheaper, but for what is bound. For whoever has many connections that are silent.
    pub fn shrink(&mut self) {
        self.session.shrink();
    }

    /// After how long a silence transactions are parked; `None`: never.
    pub fn park_after(&self) -> Option<Duration> {
        self.session.park_after
    }

    /// After how long a silence the transaction that the client holds ends (`idle_in_transaction_session_timeout`); `None`: never.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.session.idle_timeout
    }

    /// How long the transaction that the client holds has heard nothing, if it holds one.
    pub fn idle_for(&self) -> Option<Duration> {
        self.session.idle_for()
    }

    /// A text comes: a transaction that is parked is run again, unless the text only rolls it back.
    pub(crate) fn wake(&mut self, text: &str) -> Result<(), SqlError> {
        let is_parked = self.session.wake()?;
        if !is_parked || rolls_back(text) {
            return Ok(());
        }
        let (slot, zone) = (self.slot.clone(), &self.zone);
        let gone_on = self.session.unpark(&slot, zone);
        // A commit that fails ends the transaction.
        if gone_on.is_err()
            && self.session.is_lost()
            && begins_with(text, |it| matches!(it, ast::Statement::Commit { .. }))
        {
            self.session.roll_back();
            self.finish_definitions();
        }
        gone_on
    }
}

/// Whether a text begins with a rollback of the transaction.
fn rolls_back(text: &str) -> bool {
    begins_with(text, |it| matches!(it, ast::Statement::Rollback { savepoint: None, .. }))
}

fn begins_with(text: &str, is_it: impl Fn(&ast::Statement) -> bool) -> bool {
    matches!(parse::commands(text).unwrap_or_default().first(), Some(Command::Sql(statement)) if is_it(statement))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that has a worker once one was given back.
    #[derive(Default)]
    struct Empty(AtomicBool);

    impl Workers<()> for Empty {
        fn take(&self) -> Result<(), Error> {
            if self.0.load(Ordering::Acquire) { Ok(()) } else { Err(Error::TooManyWorkers { limit: 1 }) }
        }

        fn give_back(&self, _: Box<()>) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn one_worker_is_wanted_for_each_who_waits() {
        let (shortage, source) = (Shortage::default(), Empty::default());
        assert!(shortage.take(Duration::ZERO, &source).is_err() && !shortage.is_there() && !shortage.claim());
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| shortage.take(Duration::from_secs(600), &source));
            while !shortage.claim() {
                std::thread::yield_now();
            }
            source.give_back(Box::new(()));
            assert!(taken.join().unwrap().is_ok());
        });
        assert!(!shortage.is_there() && !shortage.claim());
    }

    #[test]
    fn memory_is_short_when_most_is_in_use() {
        let shortage = Shortage::default();
        let looks = [(79, false), (80, true), (100, true), (0, false)];
        for ((used, is_short), second) in looks.into_iter().zip(1..) {
            let now = second * MEMORY_LOOK_NS;
            assert_eq!(shortage.is_memory_short(now, || Some((used * 10, 1000))), is_short, "{used}");
            assert_eq!(shortage.is_memory_short(now + 1, || panic!("it was looked at just now")), is_short);
        }
    }
}
