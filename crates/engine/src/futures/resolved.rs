//! The values of futures after the commit.

use super::arena::Scope;
use super::expression::FutureError;
use super::future::Future;
use super::types::FutureValue;

/// The values of a transaction's futures, once it has committed (the paper's commit gives them back, §3.2). Nothing is read to learn
/// them: they are what the commit went by. They are there until the thread begins another transaction that leaves futures open.
#[derive(Debug)]
pub struct Resolved {
    scope: Scope,
}

impl Resolved {
    /// Right after the commit of the transaction of this scope.
    pub(crate) fn of(scope: Scope) -> Self {
        Self { scope }
    }

    /// The value.
    ///
    /// # Errors
    /// [`FutureError`] where it has none, or belongs to another transaction.
    pub fn get<T: FutureValue>(&self, future: Future<T>) -> Result<T, FutureError> {
        future.state.resolved(self.scope).map(T::release)
    }
}

/// An answer with futures in it, which become values when the transaction has committed: a future, or a tuple of such answers.
pub trait Outcome {
    /// Its new value.
    type Values;

    /// Gives the values.
    ///
    /// # Errors
    /// As [`Resolved::get`].
    fn resolve(self, resolved: &Resolved) -> Result<Self::Values, FutureError>;
}

impl<T: FutureValue> Outcome for Future<T> {
    type Values = T;

    fn resolve(self, resolved: &Resolved) -> Result<T, FutureError> {
        resolved.get(self)
    }
}

impl<O: Outcome> Outcome for Option<O> {
    type Values = Option<O::Values>;

    fn resolve(self, resolved: &Resolved) -> Result<Self::Values, FutureError> {
        self.map(|outcome| outcome.resolve(resolved)).transpose()
    }
}

macro_rules! tuple_of_outcomes {
    ($($type:ident $position:tt)*) => {
        impl<$($type: Outcome),*> Outcome for ($($type,)*) {
            type Values = ($($type::Values,)*);

            fn resolve(self, resolved: &Resolved) -> Result<Self::Values, FutureError> {
                Ok(($(self.$position.resolve(resolved)?,)*))
            }
        }
    };
}

tuple_of_outcomes!(A 0 B 1);
tuple_of_outcomes!(A 0 B 1 C 2);
tuple_of_outcomes!(A 0 B 1 C 2 D 3);
tuple_of_outcomes!(A 0 B 1 C 2 D 3 E 4);
tuple_of_outcomes!(A 0 B 1 C 2 D 3 E 4 F 5);
tuple_of_outcomes!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
tuple_of_outcomes!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
