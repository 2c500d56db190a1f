//! Transactions of one thread that are open at the same time and take turns at every operation, as if each operation came over a network
//! in its own time (§4.3–4.4 of the HyPer paper): conflicts between them are what one thread otherwise never has.
//!
//! [`Interleaved`] is a protocol around another one: the procedures of a batch are executed by several workers in turn. Each has a stack of its
//! own; the thread draws whose turn it is. Only for protocols whose operations do not wait for another transaction to end.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;

use corosensei::stack::DefaultStack;
use corosensei::{CoroutineResult, ScopedCoroutine, ScopedCoroutineRef, Yielder};
use polychron_base::key::EncodedKey;
use polychron_base::random::Random;
use polychron_engine::aggregate::{Group, Grouping};
use polychron_engine::drive::Failure;
use polychron_engine::{
    Common, Constraints, Counters, Declare, Error, Insertion, LazyFutures, Prefetch, Procedure, Projection, Protocol,
    Queries, RowMut, RowRef, Savepoints, Scan, Storage, TableDefinition, TableId, Ticket, Transaction, Worker,
};
use send_wrapper::SendWrapper;

/// A protocol whose workers have several transactions of a batch open at a time.
pub(crate) struct Interleaved<P> {
    base: Arc<P>,
    open: usize,
}

/// How a protocol is interleaved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options<O> {
    pub(crate) base: O,
    /// Transactions of a worker that are open at a time.
    pub(crate) open: usize,
}

impl<P: Protocol> Protocol for Interleaved<P> {
    const NAME: &'static str = P::NAME;
    const SUMMARY: &'static str = P::SUMMARY;

    type Options = Options<P::Options>;
    type Worker = InterleavedWorker<P::Worker>;
    type Driven = polychron_engine::WholeOnly<InterleavedWorker<P::Worker>>;

    fn open(options: Self::Options, common: Common) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { base: P::open(options.base, common)?, open: options.open.max(1) }))
    }

    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn isolation(&self) -> polychron_engine::Isolation {
        self.base.isolation()
    }

    fn storage(&self) -> &dyn Storage {
        self.base.storage()
    }

    fn worker(self: &Arc<Self>) -> Result<Self::Worker, Error> {
        let workers = (0..self.open).map(|_| self.base.worker()).collect::<Result<_, _>>()?;
        Ok(InterleavedWorker { workers, random: Random::stream(0x7EA, 0) })
    }
}

/// Several workers of one thread.
pub(crate) struct InterleavedWorker<W> {
    workers: Vec<W>,
    random: Random,
}

impl<W: Worker> Worker for InterleavedWorker<W> {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.workers[0].execute(procedure)
    }

    fn execute_batch<P: Procedure>(
        &mut self,
        procedures: &mut [P],
        done: &mut impl FnMut(usize, Result<P::Output, P::Error>),
    ) {
        let shared = RefCell::new((procedures.iter_mut().enumerate(), done));
        let sessions: Vec<_> = self.workers.iter_mut().map(|worker| session(&shared, worker)).collect();
        in_scope(sessions.into_iter(), Vec::new(), &mut |sessions| go_around(&mut self.random, sessions));
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        self.workers[0].snapshot(procedure)
    }

    fn admit(&mut self) -> Result<(), Error> {
        self.workers.iter_mut().try_for_each(Worker::admit)
    }

    fn take_ticket(&mut self) -> Ticket {
        self.workers.iter_mut().map(Worker::take_ticket).max().unwrap_or_default()
    }

    fn counters(&self) -> &Counters {
        self.workers[0].counters()
    }

    fn maintain(&mut self) {
        self.workers.iter_mut().for_each(Worker::maintain);
    }
}

/// Where a transaction lets others take their turn.
type Turns<'y> = SendWrapper<Turn<'y>>;

struct Turn<'y> {
    yielder: &'y Yielder<(), ()>,
    /// An operation was refused because it would wait for another transaction of the thread.
    waits: Cell<bool>,
}

impl Turn<'_> {
    fn note<O>(&self, outcome: Result<O, Error>) -> Result<O, Error> {
        if let Err(Error::WaitsForItself { .. }) = outcome {
            self.waits.set(true);
        }
        outcome
    }
}

type Session<'s> = ScopedCoroutine<'s, (), (), ()>;
type SessionRef<'s> = ScopedCoroutineRef<'s, (), (), (), DefaultStack>;

/// Opens all sessions, the scope of each within that of the one before.
fn in_scope<'s>(
    mut closed: std::vec::IntoIter<Session<'_>>,
    open: Vec<SessionRef<'s>>,
    then: &mut dyn FnMut(Vec<SessionRef<'_>>),
) {
    match closed.next() {
        None => then(open),
        Some(next) => next.scope(|next| {
            let mut open: Vec<SessionRef<'_>> = open;
            open.push(next);
            in_scope(closed, open, then);
        }),
    }
}

/// Gives sessions turns until all have ended. Whose turn it is, is drawn: those that go around in a fixed order can refuse each other
/// again and again at the same operations, for ever.
fn go_around(random: &mut Random, mut sessions: Vec<SessionRef<'_>>) {
    while !sessions.is_empty() {
        let turn = random.below(sessions.len() as u64) as usize;
        if let CoroutineResult::Return(()) = sessions[turn].as_mut().resume(()) {
            sessions.swap_remove(turn);
        }
    }
}

/// Executes one procedure of the batch after the other, until none is left.
fn session<'s, 'p: 's, P, W, I, D>(shared: &'s RefCell<(I, &'s mut D)>, worker: &'s mut W) -> Session<'s>
where
    P: Procedure + 'p,
    W: Worker,
    I: Iterator<Item = (usize, &'p mut P)>,
    D: FnMut(usize, Result<P::Output, P::Error>),
{
    ScopedCoroutine::new(move |yielder, ()| {
        loop {
            let next = shared.borrow_mut().0.next();
            let Some((position, procedure)) = next else { return };
            let turn = Turn { yielder, waits: Cell::new(false) };
            let mut taking_turns = TakingTurns { procedure, turns: SendWrapper::new(turn) };
            let outcome = loop {
                match worker.execute(&mut taking_turns) {
                    // Another transaction of the thread is in the way, and goes on when it has its turn.
                    Err(Failure::Engine(Error::WaitsForItself { .. })) => yielder.suspend(()),
                    Err(Failure::Own(_)) if taking_turns.turns.waits.get() => yielder.suspend(()),
                    outcome => break outcome.map_err(Failure::into_own),
                }
            };
            (shared.borrow_mut().1)(position, outcome);
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
    type Error = Failure<P::Error>;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<P::Output, Self::Error> {
        self.turns.waits.set(false);
        self.procedure.run(&mut InTurns { transaction, turns: &self.turns }).map_err(Failure::Own)
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
        self.turns.yielder.suspend(());
        self.transaction
    }
}

impl<T: Transaction> Transaction for InTurns<'_, '_, T> {
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        let turns = self.turns;
        turns.note(self.turn().read_row(table, key, projection))
    }

    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        let turns = self.turns;
        turns.note(self.turn().read_row_unvalidated(table, key, projection))
    }

    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        let turns = self.turns;
        turns.note(self.turn().update_unchecked(table, key, projection, change))
    }

    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        let turns = self.turns;
        turns.note(self.turn().insert_unchecked(table, key, row))
    }

    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        let turns = self.turns;
        turns.note(self.turn().put_unchecked(table, key, row))
    }

    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        let turns = self.turns;
        turns.note(self.turn().delete_unchecked(table, key))
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let turns = self.turns;
        turns.note(self.turn().scan_unchecked(scan, visitor))
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.transaction.mark()
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        let turns = self.turns;
        turns.note(self.turn().undo_unchecked(position))
    }

    fn undo_operation(&mut self, position: usize) -> Result<(), Error> {
        let turns = self.turns;
        turns.note(self.turn().undo_operation(position))
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.transaction.savepoints()
    }

    fn is_reconnaissance(&self) -> bool {
        self.transaction.is_reconnaissance()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        self.transaction.definition(table)
    }

    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
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
    ) -> Result<(), Error> {
        let turns = self.turns;
        turns.note(self.turn().visit_table(table, projection, visitor))
    }

    fn aggregate_range(&mut self, scan: &Scan<'_>, grouping: &Grouping<'_>) -> Result<Vec<Group>, Error> {
        let turns = self.turns;
        turns.note(self.turn().aggregate_range(scan, grouping))
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

#[cfg(test)]
mod tests {
    use polychron_protocols::hyper::{self, Hyper, Level};
    use polychron_sync::atomic::AtomicBool;
    use polychron_workloads::run::{self, Settings, Unobserved};
    use polychron_workloads::tpcc::{Scale, Tpcc, TpccOptions};

    use super::*;

    /// Transactions of one thread take turns, conflict, and leave the database whole.
    #[test]
    fn transactions_conflict() {
        let tpcc = TpccOptions { scale: Scale::tiny(), top_customer_percent: 20, ..TpccOptions::default() };
        for level in [Level::Columns, Level::Snapshot] {
            let base = hyper::Options { level, ..Default::default() };
            let database = Interleaved::<Hyper>::open(Options { base, open: 6 }, Common::default()).unwrap();
            let settings =
                Settings { threads: 1, batch: 60, warmup_seconds: 0.02, seconds: 0.2, ..Settings::default() };
            let stop = AtomicBool::new(false);
            let report = run::run::<_, Tpcc>(&database, &tpcc, &settings, &stop, &Unobserved).unwrap();
            assert!(report.completed > 0 && report.passed(), "{report:?}");
            // The six have three districts, so hardly a dozen of them do not meet.
            assert!(report.completed < 1000 || !report.aborts.is_empty(), "{report:?}");
        }
    }
}
