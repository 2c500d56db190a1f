//! Tasks that wait until there is room for what they submit.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::answer::Submission;
use super::batch::{Item, Lane, Lined};
use super::queue::Queue;
use crate::Worker;

/// Tasks that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct Tasks {
    waiting: VecDeque<(u64, Waker)>,
    latest: u64,
}

impl Tasks {
    /// Puts a task behind all others, or where it is already; answers its number, and a waker that no thread needs.
    pub(super) fn put(&mut self, number: u64, waker: Waker) -> (u64, Option<Waker>) {
        match self.waiting.binary_search_by_key(&number, |&(number, _)| number) {
            Ok(position) => (number, Some(std::mem::replace(&mut self.waiting[position].1, waker))),
            Err(_) => {
                self.latest += 1;
                self.waiting.push_back((self.latest, waker));
                (self.latest, None)
            }
        }
    }

    /// Takes the first tasks out, to be woken.
    pub(super) fn take(&mut self, count: usize) -> Vec<Waker> {
        self.waiting.drain(..count.min(self.waiting.len())).map(|(_, waker)| waker).collect()
    }

    /// A task no longer waits. One that was woken hands that on to the next, which is answered, beside the waker that is not needed.
    fn leave(&mut self, number: u64) -> (Option<Waker>, Option<Waker>) {
        match self.waiting.binary_search_by_key(&number, |&(number, _)| number) {
            Ok(position) => (None, self.waiting.remove(position).map(|(_, waker)| waker)),
            Err(_) => (self.waiting.pop_front().map(|(_, waker)| waker), None),
        }
    }
}

/// A procedure or closure that is handed over when there is room for it.
pub(super) struct Admission<'q, W: Worker + 'static, I: Item + 'static> {
    queue: &'q Queue<W>,
    /// It is moved out, and never pinned.
    item: Option<I>,
    /// Whether its answer waits until it is durable.
    holds: bool,
    /// The task's number; 0 while it does not wait.
    number: u64,
}

impl<'q, W: Worker + 'static, I: Item + 'static> Admission<'q, W, I> {
    pub(super) fn new(queue: &'q Queue<W>, (item, holds): (I, bool)) -> Self {
        Self { queue, item: Some(item), holds, number: 0 }
    }
}

impl<W: Worker + 'static, I: Item + 'static> Unpin for Admission<'_, W, I> {}

impl<W: Worker + 'static, I: Item + 'static> Future for Admission<'_, W, I>
where
    Lined<I>: Lane<W>,
{
    type Output = Submission<I::Output, I::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Submission<I::Output, I::Error>> {
        // Wakers are user code, which may come back here: none is cloned or dropped under the lock.
        let waker = context.waker().clone();
        let item = self.item.take().expect("a future that is ready is not polled again");
        match self.queue.submit_or_wait((item, self.holds), self.number, waker) {
            Ok(submission) => {
                self.number = 0;
                Poll::Ready(submission)
            }
            Err((item, number)) => {
                (self.item, self.number) = (Some(item), number);
                Poll::Pending
            }
        }
    }
}

impl<W: Worker + 'static, I: Item + 'static> Drop for Admission<'_, W, I> {
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        let (next, unneeded) = self.queue.with_tasks(|tasks| tasks.leave(self.number));
        drop(unneeded);
        next.into_iter().for_each(Waker::wake);
    }
}
