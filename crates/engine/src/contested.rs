//! Lets a transaction through that conflicts at the same rows again and again, for optimistic protocols.
//!
//! A client that has a row in its processor's cache reads and overwrites it in less time than the row's line takes to come to another
//! processor. So of two clients at one row, one may commit for as long as the system lets it run, and the other does not commit at all. With more
//! threads than processors, a thread may lose its processor in the middle of a commit; all others conflict meanwhile, and which of
//! them commits next is a matter of luck.
//!
//! So a transaction that has conflicted [`CONFLICTS_UNFAVOURED`] times in a row waits until it is *favoured*, one of a database at a
//! time. Until its next attempt ends, other transactions do not commit what would make it conflict at these rows: they
//! conflict instead, and wait for the favour in their turn. A waiting transaction sleeps, so the processors are left to transactions that can go on,
//! and to one that holds a latch.
//!
//! Nothing but progress depends on the favour, so nothing is ordered by it: a transaction that does not see it in time costs the favoured one
//! another conflict. The favour ends with each attempt. It is no lock: a transaction that has slept [`MOST_NAPS_FOR_ONE`] times during one and the same
//! favour ends that, because the favoured attempt takes long, or its client does nothing, or it waits for this very thread. It then makes
//! an attempt that no favour holds up.

use polychron_sync::MODELLED;
use polychron_sync::atomic::{AtomicUsize, Ordering};

/// Conflicts in a row before a transaction asks for the favour. From the next one on, spinning waits would give the processor away as well,
/// and each attempt would take long where there are many threads.
pub const CONFLICTS_UNFAVOURED: u64 = 8;

/// Rows that are remembered.
const MOST: usize = 8;

/// The length of a sleep between two requests for the favour, in units of [`polychron_sync::nap`]: long enough to leave the processors to
/// transactions that work.
const NAPS_BETWEEN: u32 = 20;
/// How often a transaction sleeps during one and the same favour, and in all, before it makes an attempt without it.
const MOST_NAPS_FOR_ONE: u32 = if MODELLED { 1 } else { 8 };
const MOST_NAPS: u32 = if MODELLED { 2 } else { 512 };

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
    /// How many transactions have been favoured so far.
    turns: AtomicUsize,
    rows: [AtomicUsize; MOST],
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
    pub fn bars(&self, row: impl Into<RowAddress>, worker: usize) -> Option<usize> {
        self.other(worker).filter(|_| self.has(row.into()))
    }

    #[cold]
    fn has(&self, RowAddress(address): RowAddress) -> bool {
        self.rows.iter().any(|row| row.load(Ordering::Relaxed) == address)
    }

    /// Ends the favour of a worker. It may be another one's by now.
    fn end(&self, whose: usize) {
        let _ = self.whose.compare_exchange(whose, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The rows at which the attempts of a worker's transaction have conflicted, and its standing.
#[derive(Debug, Default)]
pub struct Contested {
    /// Addresses of records.
    rows: [usize; MOST],
    standing: Standing,
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

impl Contested {
    /// Whether the transaction must make way at a row for the favoured one, of another worker.
    #[inline]
    pub fn is_barred(&self, favour: &Favour, row: impl Into<RowAddress>, worker: usize) -> bool {
        favour.bars(row, worker).is_some() && self.standing != Standing::Impatient
    }

    /// The transaction has ended.
    #[inline]
    pub fn end(&mut self, favour: &Favour) {
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
        if attempts < CONFLICTS_UNFAVOURED {
            return false;
        }
        if attempts > CONFLICTS_UNFAVOURED {
            // The other side of the conflict most likely waits for a processor. Nobody else has to wait for that sleep.
            polychron_sync::nap(1);
        }
        let (mut turn, mut naps_for_one) = (usize::MAX, 0);
        for _ in 0..MOST_NAPS {
            if self.ask(favour, worker) {
                return true;
            }
            let present = favour.turns.load(Ordering::Relaxed);
            naps_for_one = if turn == present { naps_for_one + 1 } else { 0 };
            if naps_for_one >= MOST_NAPS_FOR_ONE {
                favour.end(favour.whose.load(Ordering::Relaxed));
                break;
            }
            turn = present;
            polychron_sync::nap(NAPS_BETWEEN);
        }
        self.standing = Standing::Impatient;
        true
    }

    fn ask(&mut self, favour: &Favour, worker: usize) -> bool {
        let whose = worker + 1;
        if favour.whose.compare_exchange(NOBODY, whose, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        self.standing = Standing::Favoured(whose);
        favour.turns.fetch_add(1, Ordering::Relaxed);
        favour.rows.iter().zip(self.rows).for_each(|(row, own)| row.store(own, Ordering::Relaxed));
        true
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
        assert!(other.is_barred(&favour, ROW, 1) && !other.is_barred(&favour, OTHER, 1));
        assert!(!first.is_barred(&favour, ROW, 0));
        assert_eq!(favour.other(1), Some(0));
        first.end(&favour);
        assert!(!other.is_barred(&favour, ROW, 1));
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

    /// A favoured client that does nothing costs the others one wait, and not one at each of their transactions.
    #[test]
    fn a_favour_that_lasts_is_ended() {
        let favour = Favour::default();
        let mut idle = favoured(&favour);
        let (mut second, third) = (Contested::default(), Contested::default());
        second.note(ROW);
        assert!(second.wait(&favour, 1, CONFLICTS_UNFAVOURED));
        assert!(!second.is_barred(&favour, ROW, 1) && !third.is_barred(&favour, ROW, 2));
        second.end(&favour);
        // The third is favoured, and the idle one's end does not change that.
        let mut third = third;
        third.note(ROW);
        assert!(third.wait(&favour, 2, CONFLICTS_UNFAVOURED));
        idle.end(&favour);
        assert!(second.is_barred(&favour, ROW, 1));
        third.end(&favour);
        assert!(!second.is_barred(&favour, ROW, 1));
    }
}
