//! The blanks at the end of a `character`, which values do not have here.
//!
//! A value has them where something looks at them: a pattern, a text that it is a part of, an answer. How many there are, its type tells.

use super::expressions::fold;
use crate::casts::Cast;
use crate::expr::{Expr, Typed};
use crate::functions::{Function, Volatility};
use crate::types::{ColumnType, Type};

/// The value with the blanks that a `character` of a known length has.
pub(super) fn with_blanks(typed: Typed) -> Typed {
    match typed.of.padding() {
        Some(length) => {
            let padded = Expr::Cast(Cast::Pad(length), Box::new(typed.expr));
            Typed::new(fold(padded, Volatility::Immutable), typed.of.base)
        }
        None => typed,
    }
}

/// Functions and operators that look at the blanks of a `character`, which is their first argument.
const SEEING_BLANKS: [&str; 9] = ["~~", "!~~", "~~*", "!~~*", "~", "!~", "~*", "!~*", "octet_length"];

pub(super) fn see_blanks(name: &str, arguments: &mut [Typed]) {
    if let Some(first) = arguments.first_mut().filter(|it| it.base() == Type::Bpchar && SEEING_BLANKS.contains(&name)) {
        let padded = with_blanks(std::mem::replace(first, Typed::new(Expr::NULL, Type::Text)));
        *first = Typed::new(padded.expr, Type::Text);
    }
}

/// The result of a function with the length that all values in it have, where its arguments tell one.
pub(super) fn passed_on(function: &Function, arguments: &[Typed], result: Type) -> ColumnType {
    let is_any = |of: &Type| matches!(of, Type::AnyArray | Type::AnyElement);
    let mut of = function.arguments.iter().zip(arguments).filter(|(of, _)| is_any(of)).map(|(_, it)| it.of);
    match of.next() {
        Some(first) if is_any(&function.result) && of.all(|it| it.padding() == first.padding()) => {
            first.passed_on(result)
        }
        _ => result.into(),
    }
}
