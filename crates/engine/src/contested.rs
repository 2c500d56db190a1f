//! Lets a transaction through that conflicts at the same rows again and again, for optimistic protocols.
//!
//! A client that has a row in its processor's cache reads and overwrites it in less time than the row's line takes to come to another
//! processor. So of two clients at one row, one may commit for as long as the system lets it run, and the other does not commit at all. With
//! more threads than processors, a thread may lose its processor in the middle of a transaction; it gets it back after all others that can
//! run, and conflicts then.
//!
//! So a transaction that has conflicted several times in a row ([`CONFLICTS_UNFAVOURED`]) waits until it is *favoured*, one of a database at
//! a time, in the order in which they have asked. Until its attempt ends, other transactions do not commit what would make it conflict at
//! these rows: they conflict instead, and ask for the favour in their turn. A thread that waits sleeps: so of many clients at one row few
//! can run, and one of those that loses its processor has it back soon.
//!
//! Between two favours every thread commits as before, for a time that is short beside what one thread runs for, and long beside a
//! transaction: to hand the row over at each commit would cost a switch of threads each time. No thread wakes another. A thread that waits
//! sleeps for as long as those before it are likely to need.
//!
//! Nothing but progress depends on the favour, so nothing is ordered by it: a transaction that does not see it in time costs the favoured
//! one another conflict. A favour ends with the transaction, and where that conflicts again and again after a few attempts. It is no lock: a
//! transaction that is next and has looked several times during one and the same favour ends that, because the favoured attempt takes long,
//! or its client does nothing, or it waits for this very thread. It then makes an attempt that no favour holds up. Nor does the order delay
//! another: a thread that does not look in its turn is passed over.

use polychron_sync::atomic::{AtomicUsize, Ordering};
use polychron_sync::{CachePadded, MODELLED, nap, spin_hint};

use crate::drive::RandomWait;

/// Conflicts in a row before a transaction asks for the favour. After half of them it yields its processor ([`RandomWait::SPINS`]), which
/// most often goes to the transaction in its way. To ask earlier costs throughput where few transactions conflict so often: a wait for the
/// favour takes a millisecond, and leaves a processor idle (YCSB, θ = 0.9, two threads a processor: a quarter fewer commits under HyPer).
pub const CONFLICTS_UNFAVOURED: u64 = 2 * RandomWait::SPINS;

/// Rows that are remembered.
const MOST: usize = 8;

/// The intended length of a turn, including the commits of others before the next one, in units of [`nap`].
const NAPS_OF_A_TURN: u32 = 2;
/// Turns beyond which a transaction does not sleep ahead.
const MOST_TURNS_AHEAD: usize = 256;
/// The number of looks of a transaction during one turn, and in all, before it stops waiting.
const MOST_LOOKS_AT_ONE: u32 = if MODELLED { 1 } else { 8 };
const MOST_LOOKS: u32 = if MODELLED { 2 } else { 512 };
/// Conflicts of a favoured transaction after which it asks anew. It spins before the first few of the next attempts, and sleeps before the
/// others.
const MOST_KEPT: u32 = if MODELLED { 1 } else { 16 };
const KEPT_AWAKE: u32 = 4;

/// No transaction is favoured.
const NOBODY: usize = 0;

/// The address of a row's record. The record may be gone: the address is compared, and never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowAddress(pub usize);

/// The favour of a database. Every commit reads it, and few write it.
#[derive(Debug, Default)]
pub struct Favour {
    /// The favoured transaction's worker, counted from one.
    whose: AtomicUsize,
    /// The number of transactions that have been favoured so far.
    turns: AtomicUsize,
    rows: [AtomicUsize; MOST],
    queue: CachePadded<Queue>,
}

/// The requests for the favour, in order.
#[derive(Debug, Default)]
struct Queue {
    /// Places given away.
    tickets: AtomicUsize,
    /// The first place whose turn is not over.
    first: AtomicUsize,
}

impl Queue {
    /// The turn of the first place is over, if it is this one still.
    fn pass(&self, ticket: usize) {
        let _ = self.first.compare_exchange(ticket, ticket.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Favour {
    /// The worker of the favoured transaction, unless that is this one.
    #[inline]
    pub fn other(&self, worker: usize) -> Option<usize> {
        match self.whose.load(Ordering::Relaxed) {
            NOBODY => None,
            whose => (whose != worker + 1).then(|| whose - 1),
        }
    }

    /// The worker whose favoured transaction has conflicted at a row, unless that is this one.
    #[inline]
    fn bars(&self, row: impl Into<RowAddress>, worker: usize) -> Option<usize> {
        self.other(worker).filter(|_| self.has(row.into()))
    }

    #[cold]
    fn has(&self, RowAddress(address): RowAddress) -> bool {
        self.rows.iter().any(|row| row.load(Ordering::Relaxed) == address)
    }

    fn set_rows(&self, rows: &[usize; MOST]) {
        self.rows.iter().zip(rows).for_each(|(row, &own)| row.store(own, Ordering::Relaxed));
    }

    /// Ends the favour of a worker. It may be another one's by now.
    fn end(&self, whose: usize) {
        let _ = self.whose.compare_exchange(whose, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The rows at which the attempts of a worker's transaction have conflicted, and its standing.
#[derive(Debug)]
pub struct Contested {
    /// Conflicts in a row before the transaction asks for the favour.
    unfavoured: u64,
    /// Addresses of records.
    rows: [usize; MOST],
    standing: Standing,
    /// The number of conflicts of the transaction since it is favoured.
    kept: u32,
}

/// How the transaction that runs, or is about to be run again, stands to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Ordinary,
    /// It was favoured, as the transaction of this worker, counted from one.
    Favoured(usize),
    /// It makes way for no transaction.
    Impatient,
}

impl Default for Contested {
    /// Asks after [`CONFLICTS_UNFAVOURED`].
    fn default() -> Self {
        Self::asking_after(CONFLICTS_UNFAVOURED)
    }
}

impl Contested {
    /// The state of a worker whose transactions ask for the favour after `unfavoured` conflicts in a row.
    pub fn asking_after(unfavoured: u64) -> Self {
        Self { unfavoured, rows: [0; MOST], standing: Standing::default(), kept: 0 }
    }

    /// Whether the transaction must make way at a row for the favoured one, of another worker. Not where that is open in this very thread
    /// (`is_here`, of a worker), and so waits for this one.
    #[inline]
    pub fn is_barred(
        &self,
        favour: &Favour,
        row: impl Into<RowAddress>,
        worker: usize,
        is_here: impl FnOnce(usize) -> bool,
    ) -> bool {
        favour.bars(row, worker).is_some_and(|other| self.standing != Standing::Impatient && !is_here(other))
    }

    /// An attempt has ended. A thread that conflicts although it is favoured most likely does so with what others had begun before, and is
    /// favoured in the next attempts as well. If there are none, the favour ends with the worker's next transaction, or when some thread
    /// waits for it.
    #[inline]
    pub fn end_attempt(&mut self, favour: &Favour, conflicted: bool) {
        if self.standing != Standing::Ordinary {
            self.end_or_keep(favour, conflicted);
        }
    }

    #[cold]
    fn end_or_keep(&mut self, favour: &Favour, conflicted: bool) {
        if conflicted && self.kept < MOST_KEPT && matches!(self.standing, Standing::Favoured(_)) {
            self.kept += 1;
        } else {
            self.end(favour);
        }
    }

    /// The transaction has ended, and is not run again.
    pub fn end(&mut self, favour: &Favour) {
        self.kept = 0;
        if let Standing::Favoured(whose) = std::mem::take(&mut self.standing) {
            favour.end(whose);
        }
    }

    /// The transaction has conflicted at a row.
    pub fn note(&mut self, row: impl Into<RowAddress>) {
        let RowAddress(row) = row.into();
        if !self.rows.contains(&row) {
            self.rows.rotate_right(1);
            self.rows[0] = row;
        }
    }

    /// Called before the next attempt of a transaction that has conflicted so many times in a row. When it is time, waits until the
    /// transaction is favoured, but not without end. `false`: it is not time yet.
    pub fn wait(&mut self, favour: &Favour, worker: usize, attempts: u64) -> bool {
        if attempts == 1 {
            // The others are of transactions before.
            self.rows[1..].fill(0);
        }
        if attempts < self.unfavoured {
            return false;
        }
        if self.keeps(favour) {
            return true;
        }
        if attempts > self.unfavoured {
            // The other side of the conflict most likely waits for a processor. No other thread has to wait for that sleep.
            nap(1);
        }
        let mut asking = Asking::new(favour);
        while let Some(naps) = asking.look(self, favour, worker) {
            nap(naps);
        }
        true
    }

    /// Whether the transaction is favoured already. Others begin nothing new at its rows, so it waits for those only that had begun.
    fn keeps(&mut self, favour: &Favour) -> bool {
        let is_favoured = |whose| favour.whose.load(Ordering::Relaxed) == whose;
        if !matches!(self.standing, Standing::Favoured(whose) if is_favoured(whose)) {
            self.end(favour);
            return false;
        }
        favour.set_rows(&self.rows);
        if self.kept > KEPT_AWAKE {
            nap(1);
        } else {
            (0..if MODELLED { 1 } else { 8 << self.kept }).for_each(|_| spin_hint());
        }
        true
    }

    fn ask(&mut self, favour: &Favour, worker: usize) -> bool {
        let whose = worker + 1;
        if favour.whose.compare_exchange(NOBODY, whose, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        self.standing = Standing::Favoured(whose);
        favour.turns.fetch_add(1, Ordering::Relaxed);
        favour.set_rows(&self.rows);
        true
    }
}

/// A place in the queue.
#[derive(Debug)]
struct Asking {
    ticket: usize,
    /// The first place and the number of favours at the latest look, and how often they were the same.
    turn: Option<(usize, usize)>,
    looks_at_one: u32,
    looks: u32,
}

impl Asking {
    fn new(favour: &Favour) -> Self {
        let ticket = favour.queue.tickets.fetch_add(1, Ordering::Relaxed);
        Self { ticket, turn: None, looks_at_one: 0, looks: 0 }
    }

    /// Asks for the favour if it is time. For how long the transaction is to sleep then, unless it has waited enough.
    fn look(&mut self, contested: &mut Contested, favour: &Favour, worker: usize) -> Option<u32> {
        let queue = &*favour.queue;
        let first = queue.first.load(Ordering::Relaxed);
        // A thread that was passed over waits for no other.
        let before = usize::try_from(self.ticket.wrapping_sub(first).cast_signed()).unwrap_or(0);
        if before == 0 && contested.ask(favour, worker) {
            queue.pass(self.ticket);
            return None;
        }
        let turn = Some((first, favour.turns.load(Ordering::Relaxed)));
        self.looks_at_one = if turn == self.turn { self.looks_at_one + 1 } else { 0 };
        (self.turn, self.looks) = (turn, self.looks + 1);
        let is_late = self.looks_at_one >= MOST_LOOKS_AT_ONE;
        if is_late && before > 0 {
            // The first one has no processor, or is gone.
            queue.pass(first);
            self.looks_at_one = 0;
        }
        if is_late && before == 0 || self.looks >= MOST_LOOKS {
            favour.end(favour.whose.load(Ordering::Relaxed));
            queue.pass(self.ticket);
            contested.standing = Standing::Impatient;
            return None;
        }
        Some(NAPS_OF_A_TURN * before.clamp(1, MOST_TURNS_AHEAD) as u32)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const ROW: RowAddress = RowAddress(64);
    const OTHER: RowAddress = RowAddress(128);

    /// Worker 0 conflicts at the row until it is favoured.
    fn favoured(favour: &Favour) -> Contested {
        let mut contested = Contested::default();
        for attempts in 1..=CONFLICTS_UNFAVOURED {
            contested.note(ROW);
            contested.end(favour);
            assert_eq!(contested.wait(favour, 0, attempts), attempts == CONFLICTS_UNFAVOURED);
        }
        contested
    }

    #[test]
    fn others_make_way_at_the_contested_rows_until_the_attempt_ends() {
        let (favour, other) = (Favour::default(), Contested::default());
        let mut first = favoured(&favour);
        assert!(other.is_barred(&favour, ROW, 1, |_| false) && !other.is_barred(&favour, OTHER, 1, |_| false));
        assert!(!first.is_barred(&favour, ROW, 0, |_| false));
        assert_eq!(favour.other(1), Some(0));
        first.end(&favour);
        assert!(!other.is_barred(&favour, ROW, 1, |_| false));
        assert_eq!(favour.other(1), None);
    }

    #[test]
    fn rows_of_transactions_before_are_forgotten() {
        let favour = Favour::default();
        let mut contested = favoured(&favour);
        contested.end(&favour);
        contested.note(OTHER);
        contested.wait(&favour, 0, 1);
        contested.note(OTHER);
        contested.wait(&favour, 0, CONFLICTS_UNFAVOURED);
        assert_eq!((favour.bars(OTHER, 1), favour.bars(ROW, 1)), (Some(0), None));
    }

    /// Requests are favoured in order; each sleeps for as many turns as there are before it.
    #[test]
    fn the_favour_goes_by_the_order_of_the_requests() {
        const CLIENTS: usize = 64;
        let favour = Favour::default();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| (Contested::default(), Asking::new(&favour))).collect();
        for turn in 0..CLIENTS {
            for client in (turn + 1..CLIENTS).rev() {
                let (contested, asking) = &mut clients[client];
                let naps = asking.look(contested, &favour, client);
                assert_eq!(naps, Some((client - turn) as u32 * NAPS_OF_A_TURN), "client {client}");
            }
            let (contested, asking) = &mut clients[turn];
            assert_eq!(asking.look(contested, &favour, turn), None);
            assert_eq!(contested.standing, Standing::Favoured(turn + 1));
            contested.end_attempt(&favour, false);
        }
        assert_eq!(favour.queue.first.load(Ordering::Relaxed), CLIENTS);
    }

    /// A client whose turn it is and that has no processor holds no thread up for more than so many looks, and is favoured when it comes.
    #[test]
    fn who_does_not_come_is_passed_over() {
        let favour = Favour::default();
        let (mut absent, mut absents) = (Contested::default(), Asking::new(&favour));
        let (mut next, mut nexts) = (Contested::default(), Asking::new(&favour));
        let looks = (1..).find(|_| nexts.look(&mut next, &favour, 1).is_none()).unwrap();
        assert_eq!(looks, MOST_LOOKS_AT_ONE + 2);
        assert_eq!(next.standing, Standing::Favoured(2));
        next.end(&favour);
        assert_eq!(absents.look(&mut absent, &favour, 0), None);
        assert_eq!(absent.standing, Standing::Favoured(1));
    }

    /// A favoured transaction that conflicts stays favoured, for a bounded number of attempts.
    #[test]
    fn a_favour_outlasts_conflicts() {
        let favour = Favour::default();
        let mut contested = favoured(&favour);
        let mut attempts = CONFLICTS_UNFAVOURED;
        while favour.other(1).is_some() {
            contested.end_attempt(&favour, true);
            attempts += 1;
            assert!(attempts <= CONFLICTS_UNFAVOURED + u64::from(MOST_KEPT) + 1);
            if favour.other(1).is_some() {
                assert!(contested.wait(&favour, 0, attempts));
            }
        }
        assert_eq!(attempts, CONFLICTS_UNFAVOURED + u64::from(MOST_KEPT) + 1);
        assert!(contested.wait(&favour, 0, attempts), "it asks anew");
        contested.end_attempt(&favour, false);
        assert_eq!(favour.other(1), None);
    }

    /// A favoured client that does nothing costs the others one wait, and not one at each of their transactions.
    #[test]
    fn a_favour_that_lasts_is_ended() {
        let favour = Favour::default();
        let mut idle = favoured(&favour);
        let (mut second, third) = (Contested::default(), Contested::default());
        second.note(ROW);
        assert!(second.wait(&favour, 1, CONFLICTS_UNFAVOURED));
        assert!(!second.is_barred(&favour, ROW, 1, |_| false) && !third.is_barred(&favour, ROW, 2, |_| false));
        second.end(&favour);
        // The third is favoured, and the idle one's end does not change that.
        let mut third = third;
        third.note(ROW);
        assert!(third.wait(&favour, 2, CONFLICTS_UNFAVOURED));
        idle.end(&favour);
        assert!(second.is_barred(&favour, ROW, 1, |_| false));
        third.end(&favour);
        assert!(!second.is_barred(&favour, ROW, 1, |_| false));
    }
}
