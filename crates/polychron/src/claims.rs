//! Taking rows off queues that many threads work on.
//!
//! Transactions that each take the first row of a table conflict with each other, whatever the protocol: one of them gets it, and the others
//! have read what is gone. Here every thread first looks for a row that no other one is at, outside of its transaction, and then takes that row by
//! its key, in the transaction.
//!
//! A claim is a hint and protects nothing: which row a call takes is decided by what others claim, and that it takes the row, and is the only one,
//! by its transaction. So claims may collide or be left behind. One that is older than [`LIVES_MS`] counts for nothing, so no row waits longer
//! for a thread that died or leaked its transaction; and where every row is claimed, the first one is tried.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::clock::{Clock, SystemClock};
use polychron_base::key::{EncodedKey, HashSeed};
use polychron_engine::{Error, Interactive, Mode, Operations, Protocol, Row, Table, TableId, drive};
use polychron_schema::{KeyScratch, OwnedKey, RowView};
use polychron_sync::atomic::{AtomicU64, Ordering};

use crate::{Database, Session, TransactionOf};

/// Rows among which a call looks for one that nobody is at: a few at first, because the index gives so many at once, and more where others are at
/// all of them.
const CANDIDATES: [usize; 2] = [4, 32];

/// For how long a claim counts, in milliseconds. A body that takes longer may find that others try its row.
const LIVES_MS: u64 = 100;

const SLOTS: usize = 1024;

/// The client at each row. Rows share slots by the hash of their keys.
pub(crate) struct Claims {
    /// When each was claimed, in milliseconds; 0: it is nobody's.
    slots: Box<[AtomicU64]>,
    clock: SystemClock,
    seed: HashSeed,
}

/// A claim, which ends when it is dropped.
struct Claim<'c> {
    slot: &'c AtomicU64,
    at: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Relaxed, here and below: claims hand nothing over. One that is too old may be somebody else's by now, who came later, at another time.
        let _ = self.slot.compare_exchange(self.at, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Default for Claims {
    fn default() -> Self {
        Self::new()
    }
}

impl Claims {
    fn new() -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { slots, clock: SystemClock::new(), seed: HashSeed::random() }
    }

    /// Claims the row of a key, unless somebody else has.
    fn claim(&self, table: TableId, key: &impl OwnedKey) -> Option<Claim<'_>> {
        let mut scratch = KeyScratch::new();
        let hash = key.encode_bytes(&mut scratch).hash(self.seed) ^ table.position() as u64;
        let slot = &self.slots[hash as usize % SLOTS];
        let now = self.clock.now_ns() / 1_000_000 + 1;
        let before = slot.load(Ordering::Relaxed);
        if before != 0 && now < before + LIVES_MS {
            return None;
        }
        slot.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(Claim { slot, at: now })
    }
}

/// The result of looking for a row.
enum Taken<O> {
    By(O),
    Gone,
}

impl<P: Protocol<Worker: Interactive>> Session<P> {
    /// As [`Database::claim_first`].
    ///
    /// # Errors
    /// As there.
    pub fn claim_first<R: Row, O, E: From<Error>>(
        &mut self,
        table: &Table<R>,
        body: impl FnMut(&mut TransactionOf<'_, P>, &R) -> Result<O, E>,
    ) -> Result<Option<O>, E> {
        let claims = Arc::clone(&self.claims);
        self.answer(|worker| claim_first::<P, R, O, E>(&claims, worker, table, body))
    }
}

impl<P: Protocol<Worker: Interactive>> Database<P> {
    /// Takes the first row of a table that no other call is at, and runs `body` with it in one transaction; `None` when there is no row.
    ///
    /// This is for queues: threads take different rows, so they do not conflict over the first one. When the transaction commits, the row is
    /// gone; when `body` fails, it is still there, and whoever comes next takes it. The order is that of the keys, but for rows that others are at. `None`
    /// is as serializable as any read. Calls look at the first few dozen rows; where all of these are claimed they conflict like others.
    ///
    /// To look costs some tenths of a microsecond, so one thread alone is faster with [`pop_first`](crate::Operations::pop_first) in a plain
    /// transaction. The longer a job takes, the more this is worth to several threads.
    ///
    /// ```
    /// # use polychron::{Database, Error, Operations, Row};
    /// #[derive(Row)]
    /// struct Job { #[key] number: u64, command: String }
    /// #[derive(Row)]
    /// struct Outcome { #[key] number: u64, text: String }
    ///
    /// # let database = Database::in_memory()?;
    /// let jobs = database.create_table::<Job>()?;
    /// let outcomes = database.create_table::<Outcome>()?;
    /// database.transact(|transaction| transaction.insert(&jobs, &Job { number: 1, command: "sweep".to_owned() }))?;
    /// let work = || {
    ///     database.claim_first(&jobs, |transaction, job| {
    ///         let outcome = Outcome { number: job.number, text: format!("{} done", job.command) };
    ///         transaction.insert(&outcomes, &outcome)
    ///     })
    /// };
    /// assert!(work()?.is_some());
    /// assert!(work()?.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn claim_first<R: Row, O, E: From<Error>>(
        &self,
        table: &Table<R>,
        body: impl FnMut(&mut TransactionOf<'_, P>, &R) -> Result<O, E>,
    ) -> Result<Option<O>, E> {
        self.answer(|worker| claim_first::<P, R, O, E>(&self.claims, worker, table, body))
    }
}

fn claim_first<P: Protocol<Worker: Interactive>, R: Row, O, E: From<Error>>(
    claims: &Claims,
    worker: &mut P::Worker,
    table: &Table<R>,
    mut body: impl FnMut(&mut TransactionOf<'_, P>, &R) -> Result<O, E>,
) -> Result<Option<O>, E> {
    loop {
        // The first row, and the first one that was claimed: a look that conflicts begins again.
        let (mut first, mut claimed) = (None, None);
        let look = |t: &mut TransactionOf<'_, P>| {
            for candidates in CANDIDATES {
                (first, claimed) = (None, None);
                let mut seen = 0;
                t.scan(table, ..).limit(candidates).visit(|row| {
                    seen += 1;
                    let key = R::key_of(row.into_row());
                    if let Some(claim) = claims.claim(table.id(), &key) {
                        claimed = Some((key, claim));
                        return ControlFlow::Break(());
                    }
                    first.get_or_insert(key);
                    ControlFlow::Continue(())
                })?;
                if claimed.is_some() || seen < candidates {
                    break;
                }
            }
            Ok(())
        };
        drive::look(worker, &mut { look })?;
        let (key, _claim) = match (claimed, first) {
            (Some((key, claim)), _) => (key, Some(claim)),
            (None, Some(key)) => (key, None),
            (None, None) => {
                // Nothing of that look was validated.
                if drive::transact(worker, Mode::ReadWrite, &mut |t: &mut TransactionOf<'_, P>| {
                    t.scan(table, ..).is_empty()
                })? {
                    return Ok(None);
                }
                continue;
            }
        };
        let taken = drive::transact(worker, Mode::ReadWrite, &mut |transaction: &mut TransactionOf<'_, P>| {
            let Some(row) = transaction.get_owned(table, key.as_key_ref())? else { return Ok::<_, E>(Taken::Gone) };
            transaction.delete(table, key.as_key_ref())?;
            body(transaction, &row).map(Taken::By)
        });
        match taken? {
            Taken::By(output) => return Ok(Some(output)),
            // Somebody else took it between the look and the transaction, so others get on.
            Taken::Gone => {}
        }
    }
}
