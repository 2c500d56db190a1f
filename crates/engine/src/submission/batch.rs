//! Procedures of any types that are executed together.

use std::any::Any;
use std::cell::Cell;

use polychron_base::{Error, Stop};

use super::answer::Reply;
use crate::drive::catch;
use crate::futures::Resolved;
use crate::{Declare, Procedure, Transaction, Worker};

/// A batch that is being filled, or executed, or waits for either.
pub(super) struct Batch<W> {
    /// For each type of procedures that came so far those that are here now.
    lanes: Vec<Box<dyn Lane<W>>>,
    pub(super) count: usize,
    /// When the first procedure came.
    pub(super) opened_ns: u64,
}

impl<W> Default for Batch<W> {
    fn default() -> Self {
        Self { lanes: Vec::new(), count: 0, opened_ns: 0 }
    }
}

/// Procedures of one type, which the batch does not know.
trait Lane<W>: Any + Send {
    /// Executes all of them, and those of the other lanes with them, and answers each.
    fn execute(&mut self, worker: &mut W, others: &mut [Box<dyn Lane<W>>]);
}

/// Executes the procedures of these lanes together.
fn execute<W: 'static>(lanes: &mut [Box<dyn Lane<W>>], worker: &mut W) {
    if let Some((first, others)) = lanes.split_first_mut() {
        first.execute(worker, others);
    }
}

/// Procedures of one type.
struct Lined<P: Procedure> {
    procedures: Vec<Submitted<P>>,
    replies: Vec<Reply<P::Output>>,
}

/// A procedure among others that it does not know: when it panics where it names its keys, it alone is stopped.
struct Submitted<P> {
    procedure: P,
    panic: Cell<Option<String>>,
}

impl<P: Procedure> Procedure for Submitted<P> {
    type Output = P::Output;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<P::Output, Stop> {
        match self.panic.take() {
            None => self.procedure.run(transaction),
            Some(text) => {
                self.panic.set(Some(text.clone()));
                Err(Error::Panicked(text).into())
            }
        }
    }

    #[inline]
    fn committed(&mut self, output: &mut P::Output, resolved: &Resolved) {
        self.procedure.committed(output, resolved);
    }

    #[inline]
    fn declare<D: Declare>(&self, declaration: &mut D) {
        if let Err(panic) = catch(|| self.procedure.declare(declaration)) {
            self.panic.set(Some(panic.text()));
        }
    }
}

impl<W: Worker + 'static> Batch<W> {
    pub(super) fn push<P: Procedure + 'static>(&mut self, procedure: P, reply: Reply<P::Output>) {
        let mut lanes = self.lanes.iter();
        let known = lanes.position(|lane| (&**lane as &dyn Any).is::<Lined<P>>());
        let position = known.unwrap_or_else(|| {
            self.lanes.push(Box::new(Lined::<P> { procedures: Vec::new(), replies: Vec::new() }));
            self.lanes.len() - 1
        });
        let lane: &mut dyn Any = &mut *self.lanes[position];
        let lane = lane.downcast_mut::<Lined<P>>().expect("it was found by its type, or made just now");
        lane.procedures.push(Submitted { procedure, panic: Cell::new(None) });
        lane.replies.push(reply);
        self.count += 1;
    }

    /// Executes all procedures, and answers each of them.
    pub(super) fn execute(&mut self, worker: &mut W) {
        execute(&mut self.lanes, worker);
        self.count = 0;
    }
}

impl<W: Worker + 'static, P: Procedure + 'static> Lane<W> for Lined<P> {
    fn execute(&mut self, worker: &mut W, others: &mut [Box<dyn Lane<W>>]) {
        if self.procedures.is_empty() {
            return execute(others, worker);
        }
        let Self { procedures, replies } = self;
        let mut others = Some(others);
        let mut with_others = |worker: &mut W| {
            if let Some(others) = others.take() {
                execute(others, worker);
            }
        };
        // What procedures do is caught further down, one by one. What comes up to here, from a destructor perhaps, ends those that
        // were not answered yet, and no others.
        let executed = catch(|| {
            let mut done = |position: usize, outcome| replies[position].answer(outcome);
            worker.execute_batch_with(procedures, &mut done, &mut with_others);
        });
        if let Err(panic) = executed {
            let text = panic.text();
            replies.iter_mut().for_each(|reply| reply.answer(Err(Error::Panicked(text.clone()))));
        }
        with_others(worker);
        replies.clear();
        while let Some(procedure) = procedures.pop() {
            // Its destructor may panic, too; the answer is given.
            let _ = catch(move || drop(procedure));
        }
    }
}
