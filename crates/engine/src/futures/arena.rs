//! The arena in which expressions are made. Operators on futures have no access to the transaction, so each running transaction that leaves
//! futures open has an expression arena in its thread. The arena holds the nodes, and a future refers to its expression by number.
//!
//! The memory is used again by the thread's next transaction. In a thread that ends, whose own memory is gone already, arenas lie in the
//! process's.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use polychron_sync::new_number;

use super::expression::{Expression, FutureError};
use super::value::{Bytes, Operand, Value};
use crate::lazy::Nodes;

/// Which transaction a future belongs to: the number of a thread, and one that the thread gives once. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    thread: u32,
    number: u64,
}

#[derive(Debug)]
struct Expressions {
    scope: Scope,
    is_open: bool,
    nodes: Box<Nodes>,
}

polychron_sync::thread_local! {
    static BENCHES: RefCell<Vec<Expressions>> = const { RefCell::new(Vec::new()) };
}
// These two have no destructors, so they are there until the thread has ended.
polychron_sync::thread_local! {
    static LATEST: Cell<Scope> = const { Cell::new(Scope::NONE) };
}
polychron_sync::thread_local! {
    /// The number of running attempts.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Benches of threads that end.
static OF_ENDING_THREADS: Mutex<Vec<Expressions>> = Mutex::new(Vec::new());
/// Closed ones among them that are kept to be looked at: as many as threads may end at the same time and still find theirs.
const KEPT: usize = 64;

impl Scope {
    const NONE: Self = Self { thread: 0, number: 0 };

    /// The scope of a transaction that has none yet.
    #[inline]
    pub(crate) fn fresh() -> Self {
        LATEST.with(|latest| {
            let Self { thread, number } = latest.get();
            let thread = if thread == 0 { new_number() } else { thread };
            latest.set(Self { thread, number: number + 1 });
            latest.get()
        })
    }

    /// The scope of what is made of values of both; `None` when they belong to different transactions.
    #[inline]
    pub(super) fn joined(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::NONE, _) => Some(other),
            (_, Self::NONE) => Some(self),
            (one, two) => (one == two).then_some(self),
        }
    }

    #[inline]
    fn with_arena<O>(self, work: impl FnOnce(&mut Expressions) -> O) -> Option<O> {
        let find = |arenas: &mut Vec<Expressions>| arenas.iter_mut().find(|arena| arena.scope == self).map(work);
        with_benches(|arenas, _| find(arenas))
    }

    /// Makes something of terms of this scope. `None`: its transaction has ended, or a term is not its own.
    #[inline]
    pub(super) fn make(self, of: impl FnOnce(&mut Nodes) -> Result<Expression, FutureError>) -> Option<Operand> {
        self.with_arena(|expressions| {
            let nodes = &mut *expressions.nodes;
            let made = of(nodes).and_then(|expression| nodes.combine(expression)).ok()?;
            Some(nodes.operand(made))
        })?
    }

    /// The value of the node at a position, once it is known.
    pub(super) fn value(self, position: u32) -> Option<Option<Value<Bytes>>> {
        self.with_arena(|expressions| {
            let Nodes { program, values } = &*expressions.nodes;
            values.get(position as usize).map(|value| value.map(|value| program.texts.release(value)))
        })?
    }

    /// Why a place has come to nothing.
    #[cold]
    pub(super) fn failure(self, position: u32) -> Option<FutureError> {
        self.with_arena(|expressions| expressions.nodes.failure(position))
    }
}

/// Lends the thread's benches, or those of all threads that end where its own are gone, with how many closed ones are kept of them at least.
#[inline]
fn with_benches<O>(work: impl FnOnce(&mut Vec<Expressions>, usize) -> O) -> O {
    let mut work = Some(work);
    let mut once = |arenas: &mut Vec<Expressions>, kept| (work.take().expect("it is called once"))(arenas, kept);
    match BENCHES.try_with(|arenas| once(&mut arenas.borrow_mut(), 0)) {
        Ok(output) => output,
        Err(_) => once(&mut OF_ENDING_THREADS.lock().unwrap_or_else(PoisonError::into_inner), KEPT),
    }
}

/// A transaction's expression arena: what a protocol keeps as long as it leaves futures open, in the thread that runs the transaction. When
/// it is dropped what lies on it stays to be looked at until the thread's next one is set up.
#[derive(Debug)]
pub struct ExpressionArena {
    scope: Scope,
    /// It belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl ExpressionArena {
    /// Sets one up.
    #[inline]
    pub fn new() -> Self {
        let scope = Scope::fresh();
        with_benches(|arenas, kept| {
            let mut closed = arenas.iter().enumerate().filter(|(_, arena)| !arena.is_open);
            // The oldest one, for others may still look at theirs.
            let reusable = closed.next().map(|(position, _)| position);
            match reusable.filter(|_| kept == 0 || closed.count() >= kept) {
                Some(position) => arenas[position..].rotate_left(1),
                None => arenas.push(Expressions { scope, is_open: true, nodes: Box::default() }),
            }
            let arena = arenas.last_mut().expect("there is one now");
            (arena.scope, arena.is_open) = (scope, true);
            arena.nodes.clear();
        });
        Self { scope, thread: PhantomData }
    }

    /// Lends the expression arena's nodes, for something else in their place: the user exchanges them again before any operator is at
    /// work.
    #[inline]
    pub fn exchange(&self, nodes: &mut Box<Nodes>) {
        self.scope.with_arena(|expressions| std::mem::swap(&mut expressions.nodes, nodes));
    }

    /// The scope of the transaction's futures.
    #[inline]
    pub fn scope(&self) -> Scope {
        self.scope
    }
}

impl Default for ExpressionArena {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ExpressionArena {
    #[inline]
    fn drop(&mut self) {
        self.scope.with_arena(|expressions| expressions.is_open = false);
    }
}

/// A transaction runs in this thread: the driver of transactions holds one meanwhile, and so does a transaction that its client keeps open.
#[derive(Debug)]
pub struct Attempt {
    thread: PhantomData<*const ()>,
}

impl Attempt {
    /// It begins.
    #[inline]
    pub fn begin() -> Self {
        RUNNING.with(|running| running.set(running.get() + 1));
        Self { thread: PhantomData }
    }

    /// Whether one runs in the calling thread.
    #[inline]
    pub fn is_running() -> bool {
        RUNNING.with(Cell::get) > 0
    }
}

impl Drop for Attempt {
    /// Transactions that clients keep open end in any order.
    #[inline]
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(running.get() - 1));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn scopes_of_transactions_and_threads_differ() {
        let (one, two) = (ExpressionArena::new(), ExpressionArena::new());
        assert_ne!(one.scope(), two.scope());
        // Threads that follow each other have the same memory, and not the same numbers.
        let elsewhere = || std::thread::spawn(Scope::fresh).join().expect("no panic");
        let (third, fourth) = (elsewhere(), elsewhere());
        assert!(third != fourth && ![one.scope(), two.scope()].contains(&third));
        assert!(!Attempt::is_running());
        {
            let (outer, inner) = (Attempt::begin(), Attempt::begin());
            drop(outer);
            assert!(Attempt::is_running());
            drop(inner);
        }
        assert!(!Attempt::is_running());
    }

    #[test]
    fn a_bench_is_used_again() {
        let first = ExpressionArena::new();
        let old = first.scope();
        drop(first);
        assert_eq!(old.value(0), None);
        let second = ExpressionArena::new();
        assert!(old.with_arena(|_| ()).is_none() && second.scope().with_arena(|_| ()).is_some());
    }
}
