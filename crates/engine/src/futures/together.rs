//! Futures of text and bytes, of columns that may be NULL, and of several columns together.

use polychron_schema::{Blank, FixedString};

use super::expression::Function;
use super::future::Future;
use super::types::FutureValue;

/// Types that have a length in bytes.
pub trait Long: FutureValue {}

/// Types that have a length in characters.
pub trait Text: Long {}

impl Long for String {}
impl Text for String {}
impl Long for Vec<u8> {}
impl<const N: usize> Long for FixedString<N> {}
impl<const N: usize> Text for FixedString<N> {}

impl<T: Long> Future<T> {
    /// How many bytes it has.
    pub fn length(self) -> Future<u32> {
        self.apply(Function::Bytes)
    }
}

impl<T: Text> Future<T> {
    /// How many characters it has.
    pub fn characters(self) -> Future<u32> {
        self.apply(Function::Characters)
    }
}

impl<T: FutureValue + Blank> Future<T> {
    /// The same where NULL could be, too.
    pub fn nullable(self) -> Future<Option<T>> {
        Future::new(self.state.nullable())
    }
}

/// ```
/// use polychron_engine::Future;
///
/// fn full_name(first: Future<String>, middle: Future<Option<String>>, last: Future<String>) -> Future<String> {
///     first + middle.map(|middle| Future::from(" ") + middle).or("") + " " + last
/// }
/// fn bonus(salary: Future<i64>, percent: Future<Option<i64>>) -> Future<Option<i64>> {
///     percent.map(|percent| salary * percent / 100)
/// }
/// ```
impl<T: FutureValue + Blank> Future<Option<T>> {
    /// Whether it is NULL.
    pub fn is_null(self) -> Future<bool> {
        self.apply(Function::IsNull)
    }

    /// The value. It fails where that is NULL.
    pub fn value(self) -> Future<T> {
        self.apply(Function::NotNull)
    }

    /// The value, or another one where that is NULL.
    pub fn or(self, other: impl Into<Future<T>>) -> Future<T> {
        self.clone().is_null().then(other).otherwise(self.value())
    }

    /// What is made of the value; NULL of NULL, whatever `make` would fail with.
    pub fn map<U: FutureValue + Blank>(self, make: impl FnOnce(Future<T>) -> Future<U>) -> Future<Option<U>> {
        let made = make(self.clone().value()).nullable();
        self.is_null().then(None).otherwise(made)
    }
}

/// Several futures, or one: as the columns of a row are compared and chosen together.
///
/// ```
/// use polychron_engine::{Future, Together};
///
/// type Name = (Future<String>, Future<String>);
///
/// fn earlier(one: Name, other: Name) -> Name {
///     let is_before = one.clone().comes_before(other.clone());
///     Together::choose(is_before, one, other)
/// }
/// ```
pub trait Together: Clone {
    /// Whether each is `=` its counterpart.
    fn same_as(self, other: Self) -> Future<bool>;

    /// Whether the first that differs from its counterpart is less.
    fn comes_before(self, other: Self) -> Future<bool>;

    /// These where a condition is true, others where it is not.
    fn choose(condition: Future<bool>, then: Self, otherwise: Self) -> Self;
}

impl<T: FutureValue> Together for Future<T> {
    fn same_as(self, other: Self) -> Future<bool> {
        self.equal_to(other)
    }

    fn comes_before(self, other: Self) -> Future<bool> {
        self.less_than(other)
    }

    fn choose(condition: Future<bool>, then: Self, otherwise: Self) -> Self {
        condition.then(then).otherwise(otherwise)
    }
}

macro_rules! tuple_of_futures {
    ($first:ident 0 $($type:ident $position:tt)+) => {
        impl<$first: Together, $($type: Together),+> Together for ($first, $($type),+) {
            fn same_as(self, other: Self) -> Future<bool> {
                self.0.same_as(other.0) $(& self.$position.same_as(other.$position))+
            }

            fn comes_before(self, other: Self) -> Future<bool> {
                let same = self.0.clone().same_as(other.0.clone());
                let rest = ($(self.$position,)+).comes_before(($(other.$position,)+));
                self.0.comes_before(other.0) | (same & rest)
            }

            fn choose(condition: Future<bool>, then: Self, otherwise: Self) -> Self {
                (
                    $first::choose(condition, then.0, otherwise.0),
                    $($type::choose(condition, then.$position, otherwise.$position)),+
                )
            }
        }
    };
}

impl<A: Together> Together for (A,) {
    fn same_as(self, other: Self) -> Future<bool> {
        self.0.same_as(other.0)
    }

    fn comes_before(self, other: Self) -> Future<bool> {
        self.0.comes_before(other.0)
    }

    fn choose(condition: Future<bool>, then: Self, otherwise: Self) -> Self {
        (A::choose(condition, then.0, otherwise.0),)
    }
}

tuple_of_futures!(A 0 B 1);
tuple_of_futures!(A 0 B 1 C 2);
tuple_of_futures!(A 0 B 1 C 2 D 3);
tuple_of_futures!(A 0 B 1 C 2 D 3 E 4);
tuple_of_futures!(A 0 B 1 C 2 D 3 E 4 F 5);
