//! What volatile functions have given in a transaction, so that they give it again where that is run again.
//!
//! The session lends its tape to the thread while a statement runs: a function is called with values alone.

use std::cell::RefCell;

/// The most values that are kept.
const LONGEST: usize = 100_000;

/// The values, in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    values: Vec<u128>,
    /// How many of them were given again.
    again: usize,
    /// There were more than are kept.
    is_cut: bool,
}

thread_local! {
    static LENT: RefCell<Option<Tape>> = const { RefCell::new(None) };
}

impl Tape {
    /// Values are given again from the first one on.
    pub(crate) fn repeat(&mut self) {
        self.again = 0;
    }

    /// How many values it has given.
    pub(crate) fn position(&self) -> usize {
        self.again
    }

    /// What was given behind this was undone: it is not given again.
    pub(crate) fn return_to(&mut self, position: usize) {
        self.values.truncate(position);
        self.again = self.values.len();
    }

    /// Whether it cannot give again what was given.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn give(&mut self, fresh: impl FnOnce() -> u128) -> u128 {
        if let Some(value) = self.values.get(self.again) {
            self.again += 1;
            return *value;
        }
        let value = fresh();
        if self.values.len() < LONGEST {
            self.values.push(value);
            self.again += 1;
        } else {
            self.is_cut = true;
        }
        value
    }
}

/// Lends the tape to this thread while `work` runs.
pub(crate) fn lend<O>(tape: &mut Tape, work: impl FnOnce() -> O) -> O {
    /// Brings the tape back, also when `work` panics.
    struct Back<'t>(&'t mut Tape, Option<Tape>);

    impl Drop for Back<'_> {
        fn drop(&mut self) {
            *self.0 = LENT.replace(self.1.take()).unwrap_or_default();
        }
    }

    let before = LENT.replace(Some(std::mem::take(tape)));
    let _back = Back(tape, before);
    work()
}

/// What a volatile function gives: `fresh`, or what it gave before.
pub(crate) fn volatile(fresh: impl FnOnce() -> u128) -> u128 {
    LENT.with_borrow_mut(|lent| match lent {
        Some(tape) => tape.give(fresh),
        None => fresh(),
    })
}
