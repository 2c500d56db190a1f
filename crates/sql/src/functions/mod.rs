//! The registry of functions and operators, and which of several is meant.

mod angles;
mod arithmetic;
mod arrays;
mod asked;
mod calendars;
mod comparisons;
mod digests;
mod encodings;
mod formats;
mod json;
mod numerics;
mod occurrences;
mod parts;
mod patterns;
mod powers;
mod sets;
mod strings;
mod system;
mod times;
mod waits;

pub(crate) use arithmetic::{checked as checked_float, sum as sum_of_floats};
pub(crate) use numerics::{ADD, DIVIDE, MULTIPLY};
pub(crate) use parts::PARTS_OF_SPAN;
pub(crate) use sets::columns_of;
pub(crate) use system::is_of_rights;
pub(crate) use times::{divided as span_divided, later, sum as sum_of_spans};

use std::sync::LazyLock;

use hashbrown::HashMap;

use crate::casts::{self, Place};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::types::{Category, Type};

/// What a function does with its arguments.
pub(crate) type Eval = for<'a> fn(&[Datum<'a>], &Context<'a>) -> Result<Datum<'a>, SqlError>;

/// The most arguments that a function has.
pub(crate) const MOST_ARGUMENTS: usize = 8;

/// Whether the same arguments always have the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volatility {
    /// Always.
    Immutable,
    /// Within a statement.
    Stable,
    /// Each call may have another one.
    Volatile,
}

/// A function, or an operator, whose name is its sign.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [Type],
    pub(crate) result: Type,
    /// NULL among the arguments makes NULL, and the function is not called.
    pub(crate) is_strict: bool,
    pub(crate) eval: Eval,
}

/// Operators of arrays of one type. Other functions take what their elements' types have in common.
const ALIKE: [&str; 9] = ["=", "<>", "<", "<=", ">", ">=", "@>", "<@", "&&"];

impl Function {
    /// What `AnyElement` stands for beside these arguments, if they tell it.
    ///
    /// # Errors
    /// No type is that of all of them.
    pub(crate) fn element(&self, arguments: &[Type]) -> Result<Option<Type>, Unresolved> {
        let mut element: Option<Type> = None;
        for (wanted, argument) in self.arguments.iter().zip(arguments) {
            let next = match (wanted, argument) {
                (Type::AnyArray, argument) => argument.element(),
                (Type::AnyElement, argument) if *argument != Type::Unknown => Some(*argument),
                (Type::AnyEnum, argument @ Type::Enum(_)) => Some(*argument),
                _ => None,
            };
            let Some(next) = next else { continue };
            let known = *element.get_or_insert(next);
            if known != next && ALIKE.contains(&self.name) {
                return Err(Unresolved::None);
            }
            if casts::find(next, known, Place::Implicit).is_none() {
                casts::find(known, next, Place::Implicit).ok_or(Unresolved::None)?;
                element = Some(next);
            }
        }
        Ok(element)
    }

    /// Whether its arguments may be of any type.
    pub(crate) fn is_polymorphic(&self) -> bool {
        self.arguments.iter().any(|it| matches!(it, Type::AnyArray | Type::AnyElement | Type::AnyEnum))
    }

    /// Whether the same arguments always have the same result.
    pub(crate) fn volatility(&self) -> Volatility {
        match self.name {
            "random" | "gen_random_uuid" | "clock_timestamp" | "setseed" | "pg_sleep" | "pg_sleep_for"
            | "pg_sleep_until" => Volatility::Volatile,
            "to_timestamp" | "make_timestamptz" | "age" | "now" | "transaction_timestamp" | "statement_timestamp" => {
                Volatility::Stable
            }
            // The session's zone counts.
            _ if self.arguments.contains(&Type::Timestamptz) => Volatility::Stable,
            _ => Volatility::Immutable,
        }
    }
}

/// Makes functions that are strict: `"name"(arguments) -> result = closure;`.
macro_rules! functions {
    ($($name:literal ($($argument:ident),*) -> $result:ident = $eval:expr;)*) => {
        &[$($crate::functions::Function {
            name: $name,
            arguments: &[$($crate::types::Type::$argument),*],
            result: $crate::types::Type::$result,
            is_strict: true,
            eval: $eval,
        }),*]
    };
}
pub(crate) use functions;

static REGISTRY: LazyLock<HashMap<&'static str, Vec<&'static Function>>> = LazyLock::new(|| {
    let mut registry: HashMap<_, Vec<_>> = HashMap::new();
    let all = [
        angles::FUNCTIONS,
        arithmetic::FUNCTIONS,
        arrays::FUNCTIONS,
        asked::FUNCTIONS,
        calendars::FUNCTIONS,
        digests::FUNCTIONS,
        encodings::FUNCTIONS,
        formats::FUNCTIONS,
        json::FUNCTIONS,
        numerics::FUNCTIONS,
        occurrences::FUNCTIONS,
        parts::FUNCTIONS,
        patterns::FUNCTIONS,
        powers::FUNCTIONS,
        sets::FUNCTIONS,
        strings::FUNCTIONS,
        system::FUNCTIONS,
        times::FUNCTIONS,
        waits::FUNCTIONS,
    ];
    let lenient =
        [arrays::LENIENT, asked::LENIENT, calendars::LENIENT, encodings::LENIENT, sets::LENIENT, system::LENIENT]
            .into_iter()
            .flatten()
            .map(|it| {
                let Function { name, arguments, result, eval, .. } = *it;
                &*Box::leak(Box::new(Function { name, arguments, result, is_strict: false, eval }))
            });
    for function in all.into_iter().flatten().chain(lenient).chain(comparisons::of_all_types()) {
        registry.entry(function.name).or_default().push(function);
    }
    registry
});

/// All functions and operators.
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    REGISTRY.values().flatten().copied()
}

/// All functions and operators of this name.
pub(crate) fn named(name: &str) -> &'static [&'static Function] {
    REGISTRY.get(name).map_or(&[], Vec::as_slice)
}

/// Why no function is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// None fits.
    None,
    /// More than one fits equally well.
    Ambiguous,
}

/// The function of this name that arguments of these types mean ("Type Conversion" in PostgreSQL's manual, 10.2 and 10.3).
pub(crate) fn resolve(name: &str, arguments: &[Type]) -> Result<&'static Function, Unresolved> {
    let candidates: Vec<_> = named(name).iter().copied().filter(|it| it.arguments.len() == arguments.len()).collect();
    if let Some(exact) = candidates.iter().find(|it| it.arguments == arguments) {
        return Ok(exact);
    }
    // An operator with one literal that is unknown takes it to be of the other's type.
    if let [left, right] = *arguments
        && (left == Type::Unknown) != (right == Type::Unknown)
    {
        let known = if left == Type::Unknown { right } else { left };
        let own = match known {
            Type::Array(_) => Type::AnyArray,
            Type::Enum(_) => Type::AnyEnum,
            _ => known,
        };
        if let Some(found) = candidates.iter().find(|it| it.arguments == [known, known] || it.arguments == [own, own]) {
            return Ok(found);
        }
    }
    let fits = |it: &&Function| {
        it.arguments.iter().zip(arguments).all(|(to, from)| casts::find(*from, *to, Place::Implicit).is_some())
            && it.element(arguments).is_ok()
    };
    narrow(candidates.into_iter().filter(fits).collect(), arguments)
}

/// Narrows what fits down to one.
fn narrow(mut left: Vec<&'static Function>, arguments: &[Type]) -> Result<&'static Function, Unresolved> {
    if left.is_empty() {
        return Err(Unresolved::None);
    }
    keep_best(&mut left, |it| count(it, arguments, |to, from| from == to));
    keep_best(&mut left, |it| {
        count(it, arguments, |to, from| from == to || from.category() == to.category() && to.is_preferred())
    });
    if let [only] = left[..] {
        return Ok(only);
    }
    for (at, _) in arguments.iter().enumerate().filter(|(_, argument)| **argument == Type::Unknown) {
        let mut categories = left.iter().map(|it| it.arguments[at].category());
        let first = categories.next();
        let is_one = categories.all(|category| Some(category) == first);
        let has_text = left.iter().any(|it| it.arguments[at].category() == Category::Text);
        let wanted = if has_text { Some(Category::Text) } else { first.filter(|_| is_one) };
        let Some(wanted) = wanted else { return Err(Unresolved::Ambiguous) };
        left.retain(|it| it.arguments[at].category() == wanted);
        if left.iter().any(|it| it.arguments[at].is_preferred()) {
            left.retain(|it| it.arguments[at].is_preferred());
        }
    }
    if let [only] = left[..] {
        return Ok(only);
    }
    // If the known arguments are of one type, the unknown ones are taken to be of it.
    let mut known = arguments.iter().copied().filter(|it| *it != Type::Unknown);
    if let Some(first) = known.next()
        && known.all(|it| it == first)
    {
        left.retain(|it| it.arguments.iter().all(|to| casts::find(first, *to, Place::Implicit).is_some()));
        if let [only] = left[..] {
            return Ok(only);
        }
    }
    Err(Unresolved::Ambiguous)
}

fn count(function: &Function, arguments: &[Type], counts: impl Fn(Type, Type) -> bool) -> usize {
    function.arguments.iter().zip(arguments).filter(|(to, from)| counts(**to, **from)).count()
}

fn keep_best(left: &mut Vec<&'static Function>, score: impl Fn(&Function) -> usize) {
    let best = left.iter().map(|it| score(it)).max().unwrap_or(0);
    left.retain(|it| score(it) == best);
}

/// The error of an operator that does not exist for these types, or is not unique.
pub(crate) fn no_operator(sign: &str, arguments: &[Type], why: Unresolved) -> SqlError {
    let words = match arguments {
        [one] => format!("{sign} {one}"),
        [left, right, ..] => format!("{left} {sign} {right}"),
        [] => sign.to_owned(),
    };
    let hint = "No operator matches the given name and argument types. You might need to add explicit type casts.";
    match why {
        Unresolved::None => {
            SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {words}")).with_hint(hint)
        }
        Unresolved::Ambiguous => {
            SqlError::new(SqlState::AMBIGUOUS_FUNCTION, format!("operator is not unique: {words}"))
        }
    }
}

/// Functions of texts, numbers, dates and times that PostgreSQL has.
const KNOWN: &str = include_str!("known.txt");

/// The same of a function. One that PostgreSQL has and this database has not is named as such.
pub(crate) fn no_function(name: &str, arguments: &[Type], why: Unresolved) -> SqlError {
    if why == Unresolved::None && KNOWN.lines().any(|known| known == name) && named(name).is_empty() {
        return SqlError::unsupported(format!("the function {name}"));
    }
    let types: Vec<_> = arguments.iter().map(|it| it.name()).collect();
    let words = format!("{name}({})", types.join(", "));
    let hint = "No function matches the given name and argument types. You might need to add explicit type casts.";
    match why {
        Unresolved::None => {
            SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {words} does not exist")).with_hint(hint)
        }
        Unresolved::Ambiguous => SqlError::new(SqlState::AMBIGUOUS_FUNCTION, format!("function {words} is not unique")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Type::{Bpchar, Date, Float8, Int2, Int4, Int8, Interval, Numeric, Text, Timestamp, Unknown, Varchar};

    #[test]
    fn no_function_has_too_many_arguments() {
        let too_many = all().find(|it| it.arguments.len() > MOST_ARGUMENTS);
        assert!(too_many.is_none_or(|it| panic!("{}", it.name)));
    }

    /// What PostgreSQL 15 chooses.
    #[test]
    fn overloads_are_chosen_as_postgresql_does() {
        let chosen = |name, arguments: &[Type]| resolve(name, arguments).map(|it| (it.arguments.to_vec(), it.result));
        for (name, arguments, wanted, result) in [
            ("+", [Int4, Int4], [Int4, Int4], Int4),
            ("+", [Int2, Int8], [Int2, Int8], Int8),
            ("+", [Int4, Unknown], [Int4, Int4], Int4),
            ("+", [Int4, Numeric], [Numeric, Numeric], Numeric),
            ("+", [Numeric, Float8], [Float8, Float8], Float8),
            ("-", [Date, Date], [Date, Date], Int4),
            ("-", [Timestamp, Interval], [Timestamp, Interval], Timestamp),
            ("+", [Date, Int2], [Date, Int4], Date),
            ("=", [Varchar, Unknown], [Text, Text], Type::Bool),
            ("=", [Bpchar, Unknown], [Bpchar, Bpchar], Type::Bool),
            ("=", [Int2, Numeric], [Numeric, Numeric], Type::Bool),
            ("=", [Unknown, Unknown], [Text, Text], Type::Bool),
            ("||", [Text, Unknown], [Text, Text], Text),
        ] {
            assert_eq!(chosen(name, &arguments), Ok((wanted.to_vec(), result)), "{name} {arguments:?}");
        }
        assert_eq!(chosen("abs", &[Int2]), Ok((vec![Int2], Int2)));
        assert_eq!(chosen("abs", &[Unknown]), Ok((vec![Float8], Float8)));
        assert_eq!(chosen("length", &[Varchar]), Ok((vec![Text], Int4)));
        assert_eq!(chosen("+", &[Text, Int4]).unwrap_err(), Unresolved::None);
        assert_eq!(chosen("+", &[Unknown, Unknown]).unwrap_err(), Unresolved::Ambiguous);
    }
}
