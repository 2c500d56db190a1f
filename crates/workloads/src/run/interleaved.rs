//! Transactions of one thread that are open at the same time and take turns at every operation, as if each operation came over a network
//! in its own time (§4.3–4.4 of the HyPer paper): conflicts between them are what one thread otherwise never has.
//!
//! Each transaction has a worker and a stack of its own; the thread draws whose turn it is. Only for protocols whose operations do not wait for
//! another transaction to end ([`polychron_engine::Protocol::INTERLEAVES`]).

use std::cell::RefCell;
use std::hint::black_box;
use std::ops::ControlFlow;

use corosensei::stack::DefaultStack;
use corosensei::{CoroutineResult, ScopedCoroutine, ScopedCoroutineRef, Yielder};
use hdrhistogram::Histogram;
use polychron_base::clock::Clock;
use polychron_base::key::EncodedKey;
use polychron_base::random::Random;
use polychron_engine::{
    Aggregate, Constraints, Declare, Insertion, LazyFutures, Mode, Prefetch, Procedure, Projection, Queries, RowMut,
    RowRef, Savepoints, Scan, Stop, TableDefinition, TableId, Transaction, Worker,
};
use polychron_schema::Value;
use send_wrapper::SendWrapper;

use super::client::{Failure, Loop, Phase, count};
use crate::{Client, Transact};

/// Where a transaction lets others take their turn.
type Turns<'y> = SendWrapper<&'y Yielder<(), ()>>;

impl<C: Client> Loop<'_, C> {
    /// Executes transactions until the run is over, as many at a time as there are workers, and returns the latencies of the measured
    /// interval by kind.
    pub(super) fn interleave<W: Worker>(self, workers: &mut [W]) -> Result<Vec<Histogram<u64>>, Failure> {
        let shared = RefCell::new(self);
        let sessions: Vec<_> = workers.iter_mut().map(|worker| session(&shared, worker)).collect();
        let outcome = in_scope(sessions.into_iter(), Vec::new(), &mut |sessions| go_around(&shared, sessions));
        outcome.map(|()| shared.into_inner().timer.latencies)
    }
}

type Session<'s> = ScopedCoroutine<'s, (), (), Result<(), Failure>>;
type SessionRef<'s> = ScopedCoroutineRef<'s, (), (), Result<(), Failure>, DefaultStack>;

/// Opens all sessions, the scope of each within that of the one before.
fn in_scope<'s, O>(
    mut closed: std::vec::IntoIter<Session<'_>>,
    open: Vec<SessionRef<'s>>,
    then: &mut dyn FnMut(Vec<SessionRef<'_>>) -> O,
) -> O {
    match closed.next() {
        None => then(open),
        Some(next) => next.scope(|next| {
            let mut open: Vec<SessionRef<'_>> = open;
            open.push(next);
            in_scope(closed, open, then)
        }),
    }
}

/// Gives sessions turns until all have ended. Whose turn it is, is drawn: those that go around in a fixed order can refuse each other
/// again and again in the same places, for ever.
fn go_around<C: Client>(shared: &RefCell<Loop<'_, C>>, mut sessions: Vec<SessionRef<'_>>) -> Result<(), Failure> {
    let (mut phase, mut outcome) = (Phase::WARMUP, Ok(()));
    let mut random = Random::stream(0x7EA, 0);
    while !sessions.is_empty() {
        let now = shared.borrow().phase.get();
        if now != phase && now != Phase::OVER {
            shared.borrow_mut().timer.reset();
            phase = now;
        }
        let turn = random.below(sessions.len() as u64) as usize;
        if let CoroutineResult::Return(ended) = sessions[turn].as_mut().resume(()) {
            outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            sessions.swap_remove(turn);
        }
    }
    outcome
}

/// One transaction after the other, until the run is over.
fn session<'s, 'r: 's, C: Client, W: Worker>(shared: &'s RefCell<Loop<'r, C>>, worker: &'s mut W) -> Session<'s> {
    ScopedCoroutine::new(move |yielder, ()| {
        loop {
            let (mut procedure, kind, begun_ns) = {
                let mut shared = shared.borrow_mut();
                if shared.phase.get() == Phase::OVER {
                    return Ok(());
                }
                let procedure = shared.client.next();
                let kind = procedure.kind();
                let begun_ns = shared.timer.is_due(kind).then(|| shared.timer.clock.now_ns());
                (procedure, kind, begun_ns)
            };
            let mode = procedure.mode();
            let mut taking_turns = TakingTurns { procedure: &mut procedure, turns: SendWrapper::new(yielder) };
            let outcome = loop {
                let outcome = match mode {
                    Mode::ReadWrite => worker.execute(&mut taking_turns),
                    Mode::Snapshot => worker.snapshot(&mut taking_turns),
                };
                // Another transaction of the thread is in the way, and goes on when it has its turn.
                let Err(polychron_engine::Error::WaitsForItself { .. }) = outcome else {
                    break outcome.map(|output| drop(black_box(output)));
                };
                yielder.suspend(());
            };
            let mut shared = shared.borrow_mut();
            if let Some(begun_ns) = begun_ns {
                shared.timer.record(kind, begun_ns);
            }
            count(shared.tally, kind, outcome, shared.isolation)?;
            shared.client.finished(&procedure);
        }
    })
}

/// A procedure that yields before each of its operations.
struct TakingTurns<'p, 'y, P> {
    procedure: &'p mut P,
    turns: Turns<'y>,
}

impl<P: Procedure> Procedure for TakingTurns<'_, '_, P> {
    type Output = P::Output;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<P::Output, Stop> {
        self.procedure.run(&mut InTurns { transaction, turns: &self.turns })
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.procedure.declare(declaration);
    }
}

/// A transaction that yields before each of its operations.
struct InTurns<'t, 'y, T> {
    transaction: &'t mut T,
    turns: &'t Turns<'y>,
}

impl<T> InTurns<'_, '_, T> {
    /// The transaction, after all others had their turn.
    fn turn(&mut self) -> &mut T {
        self.turns.suspend(());
        self.transaction
    }
}

impl<T: Transaction> Transaction for InTurns<'_, '_, T> {
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop> {
        self.turn().read_row(table, key, projection)
    }

    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Stop> {
        self.turn().read_row_unvalidated(table, key, projection)
    }

    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Stop> {
        self.turn().update_unchecked(table, key, projection, change)
    }

    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        self.turn().insert_unchecked(table, key, row)
    }

    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Stop> {
        self.turn().put_unchecked(table, key, row)
    }

    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Stop> {
        self.turn().delete_unchecked(table, key)
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.turn().scan_unchecked(scan, visitor)
    }

    fn mark(&mut self) -> Result<usize, Stop> {
        self.transaction.mark()
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Stop> {
        self.turn().undo_unchecked(position)
    }

    fn undo_operation(&mut self, position: usize) -> Result<(), Stop> {
        self.turn().undo_operation(position)
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.transaction.savepoints()
    }

    fn is_reconnaissance(&self) -> bool {
        self.transaction.is_reconnaissance()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Stop> {
        self.transaction.definition(table)
    }

    fn constraints(&self, table: TableId) -> Result<&Constraints, Stop> {
        self.transaction.constraints(table)
    }

    fn protect_reads(&mut self, protect: bool) {
        self.transaction.protect_reads(protect);
    }
}

impl<T: Transaction> Queries for InTurns<'_, '_, T> {
    fn visit_table(
        &mut self,
        table: TableId,
        projection: &Projection,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.turn().visit_table(table, projection, visitor)
    }

    fn aggregate_range(&mut self, scan: &Scan<'_>, wanted: Aggregate) -> Result<Value, Stop> {
        self.turn().aggregate_range(scan, wanted)
    }
}

impl<T: Transaction> LazyFutures for InTurns<'_, '_, T> {}

impl<T: Transaction> Prefetch for InTurns<'_, '_, T> {
    fn prefetch_row<K: EncodedKey>(&mut self, table: TableId, key: K) {
        self.transaction.prefetch_row(table, key);
    }

    fn has_prefetched(&self) -> bool {
        self.transaction.has_prefetched()
    }
}
