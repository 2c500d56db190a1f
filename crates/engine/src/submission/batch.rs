//! Procedures and closures of any types that are executed together.
//!
//! Each is begun once, by the thread that took the batch, or, where an earlier one lasts, by a thread that has nothing else to do:
//! the thread that takes it out of the batch executes and answers it.

use std::any::Any;
use std::cell::Cell;

use polychron_base::Error;
use polychron_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use polychron_sync::{Mutex, MutexGuard};

use super::answer::Reply;
use super::lock;
use crate::drive::{Caught, Failure, catch, discard};
use crate::futures::Resolved;
use crate::{Declare, Procedure, Transaction, Worker};

/// A batch that is being filled, or executed, or waits for either.
pub(super) struct Batch<W> {
    /// For each type of procedures that came so far those that are here now.
    lanes: Vec<Box<dyn Lane<W>>>,
    pub(super) count: usize,
    /// When the first procedure came.
    pub(super) opened_ns: u64,
    /// Which of all batches that were begun it is.
    pub(super) number: u64,
}

impl<W> Default for Batch<W> {
    fn default() -> Self {
        Self { lanes: Vec::new(), count: 0, opened_ns: 0, number: 0 }
    }
}

/// Procedures of one type, which the batch does not know.
pub(super) trait Lane<W>: Any + Send + Sync {
    /// Executes all of them that no thread has begun, and those of the other lanes with them, and answers each.
    fn execute(&self, worker: &mut W, others: &[Box<dyn Lane<W>>]);

    /// Takes one out that no thread has begun, executes and answers it. `false`: there is none.
    fn execute_one(&self, worker: &mut W) -> bool;

    /// Whether the worker has them.
    fn is_handed_over(&self) -> bool;

    /// The number of procedures that were begun, and of those that were answered.
    fn progress(&self) -> (usize, usize);

    /// Forgets them: all were executed.
    fn clear(&mut self);
}

/// Executes the procedures of these lanes together.
pub(super) fn execute<W: 'static>(lanes: &[Box<dyn Lane<W>>], worker: &mut W) {
    if let Some((first, others)) = lanes.split_first() {
        first.execute(worker, others);
    }
}

/// An item that can be submitted: a procedure or a closure.
pub(super) trait Item: Send + 'static {
    type Output: Send + 'static;
    type Error: From<Error> + Send + 'static;
}

impl<P: Procedure + 'static> Item for P {
    type Output = P::Output;
    type Error = P::Error;
}

/// An item that was taken out, and its claim to an answer.
type Taken<I> = (I, Reply<<I as Item>::Output, <I as Item>::Error>);

/// Items of one type.
pub(super) struct Lined<I: Item> {
    waiting: Vec<Mutex<Option<I>>>,
    replies: Vec<Mutex<Reply<I::Output, I::Error>>>,
    is_handed_over: AtomicBool,
    /// All before this position were begun, as far as those know who help.
    first: AtomicUsize,
    begun: AtomicUsize,
    answered: AtomicUsize,
}

/// A procedure among others that it does not know: when it panics where it names its keys, it alone is stopped.
struct Submitted<'l, P> {
    /// The procedure, until this or another thread begins it.
    waiting: &'l Mutex<Option<P>>,
    begun: Option<P>,
    count: &'l AtomicUsize,
    panic: Cell<Option<String>>,
}

impl<'l, P> Submitted<'l, P> {
    fn new(waiting: &'l Mutex<Option<P>>, count: &'l AtomicUsize) -> Self {
        Self { waiting, begun: None, count, panic: Cell::new(None) }
    }

    /// The procedure, unless another thread has begun it.
    #[inline]
    fn begin(&mut self) -> Option<&mut P> {
        if self.begun.is_none() {
            self.begun = lock(self.waiting).take();
            // Relaxed, here and below: it tells that some thread goes on, and nothing else.
            self.count.fetch_add(usize::from(self.begun.is_some()), Ordering::Relaxed);
        }
        self.begun.as_mut()
    }
}

impl<P: Procedure> Procedure for Submitted<'_, P> {
    type Output = P::Output;
    /// Errors of the engine are made into the procedure's own by the thread that takes the answer.
    type Error = Failure<P::Error>;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<P::Output, Self::Error> {
        if let Some(text) = self.panic.take() {
            self.panic.set(Some(text.clone()));
            // A thread that helps is not to begin it.
            let error = if self.begin().is_some() { Error::panicked(text) } else { Error::RolledBack };
            return Err(error.into());
        }
        // What another thread has begun is answered there. Here it counts as rolled back.
        let Some(procedure) = self.begin() else { return Err(Error::RolledBack.into()) };
        procedure.run(transaction).map_err(Failure::Own)
    }

    #[inline]
    fn committed(&mut self, output: &mut P::Output, resolved: &Resolved) {
        if let Some(procedure) = &mut self.begun {
            procedure.committed(output, resolved);
        }
    }

    #[inline]
    fn declare<D: Declare>(&self, declaration: &mut D) {
        let declared = match &self.begun {
            Some(procedure) => catch(|| procedure.declare(declaration)),
            None => {
                // A thread that helps does not wait for the lock.
                let waiting = lock(self.waiting);
                catch(|| waiting.iter().for_each(|procedure| procedure.declare(declaration)))
            }
        };
        if let Err(panic) = declared {
            self.panic.set(Some(panic.text()));
        }
    }
}

impl<W: Worker + 'static> Batch<W> {
    pub(super) fn push<I: Item + 'static>(&mut self, item: I, reply: Reply<I::Output, I::Error>)
    where
        Lined<I>: Lane<W>,
    {
        let mut lanes = self.lanes.iter();
        let known = lanes.position(|lane| (&**lane as &dyn Any).is::<Lined<I>>());
        let position = known.unwrap_or_else(|| {
            self.lanes.push(Box::new(Lined::<I>::new()));
            self.lanes.len() - 1
        });
        let lane: &mut dyn Any = &mut *self.lanes[position];
        let lane = lane.downcast_mut::<Lined<I>>().expect("it was found by its type, or made just now");
        lane.waiting.push(Mutex::new(Some(item)));
        lane.replies.push(Mutex::new(reply));
        self.count += 1;
    }

    /// Executes all procedures, and answers each of them.
    pub(super) fn execute(&self, worker: &mut W) {
        execute(&self.lanes, worker);
    }

    /// Executes procedures that no thread has begun, until there is `something_else` to do. Answers whether there was one.
    pub(super) fn help(&self, worker: &mut W, something_else: impl Fn() -> bool) -> bool {
        let by_itself = worker.help_others();
        let mut helped = by_itself == Some(true);
        for lane in self.lanes.iter().filter(|lane| by_itself.is_none() || !lane.is_handed_over()) {
            while lane.execute_one(worker) {
                helped = true;
                if something_else() {
                    return true;
                }
            }
        }
        helped
    }

    /// The progress of the batch: while it is unchanged, no thread has begun or answered a procedure.
    pub(super) fn progress(&self) -> (usize, usize) {
        let both = self.lanes.iter().map(|lane| lane.progress());
        both.fold((0, 0), |(begun, answered), lane| (begun + lane.0, answered + lane.1))
    }

    /// Makes an executed batch an empty one. Nothing of anybody's is dropped.
    pub(super) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.clear());
        self.count = 0;
    }
}

impl<I: Item> Lined<I> {
    fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        let is_handed_over = AtomicBool::new(false);
        let (waiting, replies) = (Vec::new(), Vec::new());
        Self { waiting, replies, is_handed_over, first: zero(), begun: zero(), answered: zero() }
    }

    pub(super) fn begun_and_answered(&self) -> (usize, usize) {
        (self.begun.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }

    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.replies.clear();
        self.is_handed_over.store(false, Ordering::Relaxed);
        for count in [&self.first, &self.begun, &self.answered] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Takes an item out as [`Lined::take`] does, runs it and answers it. `false`: there is none.
    pub(super) fn execute_next<'l>(
        &'l self,
        lock_item: impl Fn(&'l Mutex<Option<I>>) -> Option<MutexGuard<'l, Option<I>>>,
        run: impl FnOnce(I) -> Result<I::Output, Failure<I::Error>>,
    ) -> bool {
        let Some((item, mut reply)) = self.take(lock_item) else { return false };
        reply.answer(run(item));
        self.answered.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Answers the item at a position, if it was not answered yet. Its waiting thread is woken outside of the lock.
    fn answer(&self, position: usize, outcome: Result<I::Output, Failure<I::Error>>) {
        let mut reply = std::mem::take(&mut *lock(&self.replies[position]));
        reply.answer(outcome);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the first item out that no thread has begun, with its claim to an answer. None where it cannot be locked that way.
    fn take<'l>(
        &'l self,
        lock_item: impl Fn(&'l Mutex<Option<I>>) -> Option<MutexGuard<'l, Option<I>>>,
    ) -> Option<Taken<I>> {
        loop {
            let first = self.first.load(Ordering::Relaxed);
            let mut waiting = lock_item(self.waiting.get(first)?)?;
            let item = waiting.take();
            // Under the lock: a thread that finds no item gives no answer, because the claim to the answer has gone with it.
            let taken = item.map(|item| (item, std::mem::take(&mut *lock(&self.replies[first]))));
            drop(waiting);
            self.first.fetch_max(first + 1, Ordering::Relaxed);
            if taken.is_some() {
                self.begun.fetch_add(1, Ordering::Relaxed);
                return taken;
            }
        }
    }
}

/// Items that were not begun when the service ended. Each is dropped by itself: its destructor may panic.
impl<I: Item> Drop for Lined<I> {
    fn drop(&mut self) {
        self.waiting.iter().for_each(|waiting| discard(lock(waiting).take()));
    }
}

/// The outcome of a submitted procedure.
type Outcome<P> = Result<<P as Procedure>::Output, Failure<<P as Procedure>::Error>>;

/// Takes the outcomes of procedures, by their positions.
type Done<'d, P> = &'d (dyn Fn(usize, Outcome<P>) + Sync);

/// [`hand_in`] with some worker.
type HandIn<'h, P> = dyn FnMut(&mut [Submitted<'_, P>], Done<'_, P>) -> Result<(), Caught> + 'h;

/// Hands procedures to a worker, and catches what comes up to here. One function for all ways to execute them, since a worker's batches are compiled for each
/// type of `done`.
#[inline(never)]
fn hand_in<W: Worker, P: Procedure>(
    worker: &mut W,
    procedures: &mut [Submitted<'_, P>],
    done: Done<'_, P>,
    others: &mut dyn FnMut(&mut W),
) -> Result<(), Caught> {
    catch(|| worker.execute_batch_with(procedures, &|position, outcome| done(position, outcome), others))
}

/// The part that does not depend on the type of the worker.
impl<P: Procedure + 'static> Lined<P> {
    /// Executes all procedures that no thread has begun, by means of `hand_in`, and answers each.
    #[inline(never)]
    fn execute_all(&self, hand_in: &mut HandIn<'_, P>) {
        self.is_handed_over.store(true, Ordering::Relaxed);
        let mut procedures: Vec<_> = self.waiting.iter().map(|waiting| Submitted::new(waiting, &self.begun)).collect();
        // What procedures do is caught further down, one by one. What comes up to here, from a destructor perhaps, ends those that
        // were not answered yet, and no others.
        let executed = hand_in(&mut procedures, &|position, outcome| self.answer(position, outcome));
        if let Err(panic) = executed {
            let text = panic.text();
            (0..self.replies.len())
                .for_each(|position| self.answer(position, Err(Error::panicked(text.clone()).into())));
        }
        while let Some(submitted) = procedures.pop() {
            discard(submitted.begun);
            discard(lock(submitted.waiting).take());
        }
    }

    /// Takes a procedure out that no thread has begun, executes it by means of `hand_in`, and answers it. `false`: there is none.
    #[inline(never)]
    fn execute_alone(&self, hand_in: &mut HandIn<'_, P>) -> bool {
        // One that is locked is being begun, or is asked for its keys; then some thread goes on.
        let Some((procedure, reply)) = self.take(|item| item.try_lock().ok()) else { return false };
        let (waiting, count, reply) = (Mutex::new(Some(procedure)), AtomicUsize::new(0), Mutex::new(reply));
        let mut submitted = Submitted::new(&waiting, &count);
        let answer = |outcome| {
            let mut reply = std::mem::take(&mut *lock(&reply));
            reply.answer(outcome);
        };
        // As a batch, so that others may give the answer where this thread is made to wait.
        let executed = hand_in(std::slice::from_mut(&mut submitted), &|_, outcome| answer(outcome));
        executed.unwrap_or_else(|panic| answer(Err(Error::panicked(panic.text()).into())));
        self.answered.fetch_add(1, Ordering::Relaxed);
        discard(submitted.begun);
        discard(lock(&waiting).take());
        true
    }
}

impl<W: Worker + 'static, P: Procedure + 'static> Lane<W> for Lined<P> {
    fn execute(&self, worker: &mut W, others: &[Box<dyn Lane<W>>]) {
        let mut others = Some(others);
        let mut with_others = |worker: &mut W| {
            if let Some(others) = others.take() {
                execute(others, worker);
            }
        };
        if !self.waiting.is_empty() {
            self.execute_all(&mut |procedures, done| hand_in(worker, procedures, done, &mut with_others));
        }
        with_others(worker);
    }

    fn execute_one(&self, worker: &mut W) -> bool {
        self.execute_alone(&mut |procedures, done| hand_in(worker, procedures, done, &mut |_| ()))
    }

    fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Relaxed)
    }

    fn progress(&self) -> (usize, usize) {
        self.begun_and_answered()
    }

    fn clear(&mut self) {
        self.forget();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron_sync::thread;

    use super::super::answer::{Service, pair};
    use super::*;

    struct Nothing;

    impl Procedure for Nothing {
        type Output = ();
        type Error = Error;

        fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
            Ok(())
        }
    }

    /// While a procedure is being taken out by a helping thread, no thread finds it gone before its claim to an answer has gone with it: the
    /// thread of the batch would answer in its place.
    #[test]
    fn the_claim_to_an_answer_goes_with_its_procedure() {
        let mut lane = Lined::<Nothing>::new();
        let (submission, reply) = pair(Service::none(), None);
        lane.waiting.push(Mutex::new(Some(Nothing)));
        lane.replies.push(Mutex::new(reply));
        // A thread that takes the procedure has to wait for its claim.
        let held = lock(&lane.replies[0]);
        thread::scope(|scope| {
            scope.spawn(|| {
                // A look of the test may be in the way.
                let (_, mut reply) = std::iter::repeat_with(|| lane.take(|item| item.try_lock().ok()))
                    .find_map(|taken| taken)
                    .expect("it is there");
                reply.answer(Ok(()));
            });
            let mut seen_taken = 0;
            while seen_taken < 200 {
                match lane.waiting[0].try_lock() {
                    Ok(waiting) => assert!(waiting.is_some(), "the procedure has gone, and its claim lies there"),
                    Err(_) => seen_taken += 1,
                }
                thread::yield_now();
            }
            drop(held);
        });
        submission.wait().expect("who has taken it answers");
    }
}
