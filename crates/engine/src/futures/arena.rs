//! Where expressions are made: operators on futures have no transaction at hand, so each running transaction that leaves futures open
//! has an expression arena in its thread, on which its nodes lie, and a future knows its expressions by number.
//!
//! The memory is used again by the thread's next transaction.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

use super::expression::{Expression, Operand, Scalar};
use crate::lazy::Nodes;

/// Which transaction a future belongs to: a thread, and a number that it gives once. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    thread: u64,
    number: u32,
}

#[derive(Debug)]
struct Bench {
    scope: Scope,
    is_open: bool,
    nodes: Box<Nodes>,
}

polychron_sync::thread_local! {
    static BENCHES: RefCell<Vec<Bench>> = const { RefCell::new(Vec::new()) };
}
polychron_sync::thread_local! {
    static LATEST: Cell<u32> = const { Cell::new(0) };
}
polychron_sync::thread_local! {
    static ATTEMPT: Cell<Scope> = const { Cell::new(Scope::NONE) };
}

impl Scope {
    const NONE: Self = Self { thread: 0, number: 0 };

    /// A number that this thread has not given for four thousand million transactions.
    #[inline]
    fn fresh() -> Self {
        LATEST.with(|latest| {
            latest.set(latest.get().checked_add(1).unwrap_or(1));
            Self { thread: polychron_sync::this_thread(), number: latest.get() }
        })
    }

    /// Of the attempt that runs in this thread: the scope of transactions that leave nothing open.
    #[inline]
    pub fn of_attempt() -> Self {
        ATTEMPT.with(Cell::get)
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
    fn on_bench<O>(self, work: impl FnOnce(&mut Bench) -> O) -> Option<O> {
        let find = |benches: &RefCell<Vec<Bench>>| {
            benches.borrow_mut().iter_mut().find(|expressions| expressions.scope == self).map(work)
        };
        BENCHES.try_with(find).ok()?
    }

    /// Makes something of the operands of this scope. `None`: its transaction has ended, or one of them is not its own.
    #[inline]
    pub(super) fn make(self, expression: Expression) -> Option<Operand> {
        self.on_bench(|expressions| expressions.nodes.combine(expression).ok())?
    }

    /// What a place has come to.
    pub(super) fn value(self, place: u32) -> Option<Option<Scalar>> {
        self.on_bench(|expressions| expressions.nodes.values.get(place as usize).copied())?
    }

    /// Why a place has come to nothing.
    #[cold]
    pub(super) fn failure(self, place: u32) -> Option<super::FutureError> {
        self.on_bench(|expressions| expressions.nodes.failure(place))
    }
}

/// A transaction's expression arena: what a protocol keeps as long as it leaves futures open, in the thread that runs the transaction. When it is
/// dropped what lies on it stays to be looked
/// at until the thread's next one is set up.
#[derive(Debug)]
pub struct ExpressionArena {
    scope: Scope,
    /// It belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl ExpressionArena {
    /// Sets one up. In a thread that ends, and whose benches are gone already, there is none: futures are then as those of a
    /// transaction that has ended.
    #[inline]
    pub fn new() -> Self {
        let scope = Scope::fresh();
        let _ = BENCHES.try_with(|benches| {
            let mut benches = benches.borrow_mut();
            if let Some(expressions) = benches.iter_mut().find(|expressions| !expressions.is_open) {
                (expressions.scope, expressions.is_open) = (scope, true);
                expressions.nodes.clear();
            } else {
                benches.push(Bench { scope, is_open: true, nodes: Box::default() });
            }
        });
        Self { scope, thread: PhantomData }
    }

    /// Lends the expression arena's nodes, for something else in their place: who uses them exchanges them again before any operator is at work.
    #[inline]
    pub fn exchange(&self, nodes: &mut Box<Nodes>) {
        self.scope.on_bench(|expressions| std::mem::swap(&mut expressions.nodes, nodes));
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
        self.scope.on_bench(|expressions| expressions.is_open = false);
    }
}

/// An attempt at a transaction runs in this thread: who drives transactions holds one meanwhile, so that futures that were known at
/// once are not taken for those of a later attempt.
#[derive(Debug)]
pub struct Attempt {
    before: Scope,
    thread: PhantomData<*const ()>,
}

impl Attempt {
    /// It begins.
    #[inline]
    pub fn begin() -> Self {
        let before = ATTEMPT.with(|attempt| attempt.replace(Scope::fresh()));
        Self { before, thread: PhantomData }
    }

    /// Whether one runs in the calling thread.
    #[inline]
    pub fn is_running() -> bool {
        Scope::of_attempt() != Scope::NONE
    }
}

impl Drop for Attempt {
    #[inline]
    fn drop(&mut self) {
        ATTEMPT.with(|attempt| attempt.set(self.before));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn scopes_of_transactions_and_threads_differ() {
        let (one, two) = (ExpressionArena::new(), ExpressionArena::new());
        assert_ne!(one.scope(), two.scope());
        let number = one.scope().number;
        let elsewhere = std::thread::spawn(|| (0..4).map(|_| ExpressionArena::new().scope()).collect::<Vec<_>>());
        let elsewhere = elsewhere.join().expect("no panic");
        assert!(elsewhere.iter().any(|scope| scope.number == number) && !elsewhere.contains(&one.scope()));
        let before = Scope::of_attempt();
        {
            let _outer = Attempt::begin();
            let outer = Scope::of_attempt();
            drop(Attempt::begin());
            assert!(Scope::of_attempt() == outer && outer != before);
        }
        assert_eq!(Scope::of_attempt(), before);
    }

    #[test]
    fn a_bench_is_used_again() {
        let first = ExpressionArena::new();
        let old = first.scope();
        drop(first);
        assert_eq!(old.value(0), None);
        let second = ExpressionArena::new();
        assert!(old.on_bench(|_| ()).is_none() && second.scope().on_bench(|_| ()).is_some());
    }
}
