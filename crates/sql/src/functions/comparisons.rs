//! Comparisons, which every type has with itself, and some with others.

use std::sync::LazyLock;

use super::{Eval, Function};
use crate::datum::Datum;
use crate::types::Type;

/// The signs, and which orders of two values make them true.
const SIGNS: [(&str, Eval); 6] = [
    ("=", |it, _| Ok(Datum::Bool(it[0].compare(it[1]).is_eq()))),
    ("<>", |it, _| Ok(Datum::Bool(it[0].compare(it[1]).is_ne()))),
    ("<", |it, _| Ok(Datum::Bool(it[0].compare(it[1]).is_lt()))),
    ("<=", |it, _| Ok(Datum::Bool(it[0].compare(it[1]).is_le()))),
    (">", |it, _| Ok(Datum::Bool(it[0].compare(it[1]).is_gt()))),
    (">=", |it, _| Ok(Datum::Bool(it[0].compare(it[1]).is_ge()))),
];

/// Pairs of types whose values have one form, so that they are compared as they are.
const PAIRS: [(Type, Type); 8] = [
    (Type::Int2, Type::Int4),
    (Type::Int4, Type::Int2),
    (Type::Int2, Type::Int8),
    (Type::Int8, Type::Int2),
    (Type::Int4, Type::Int8),
    (Type::Int8, Type::Int4),
    (Type::Float4, Type::Float8),
    (Type::Float8, Type::Float4),
];

static ALL: LazyLock<Vec<Function>> = LazyLock::new(|| {
    // Varchar has no comparisons of its own: its values are texts.
    let itself = Type::ALL
        .into_iter()
        .filter(|of| !matches!(of, Type::Varchar | Type::Json))
        .chain([Type::AnyArray, Type::AnyEnum]);
    let itself = itself.map(|of| (of, of));
    let pairs: Vec<_> = itself.chain(PAIRS).collect();
    let of_pair = |(left, right): (Type, Type)| {
        SIGNS.map(|(name, eval)| Function {
            name,
            arguments: Box::leak(Box::new([left, right])),
            result: Type::Bool,
            is_strict: true,
            eval,
        })
    };
    pairs.into_iter().flat_map(of_pair).collect()
});

pub(super) fn of_all_types() -> impl Iterator<Item = &'static Function> {
    ALL.iter()
}
