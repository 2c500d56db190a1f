//! Arrays.

use super::strings::check_length;
use super::{Function, functions};
use crate::arrays::{Array, Dimension, MOST_DIMENSIONS, size, too_many_dimensions};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};

pub(super) fn array<'a>(datum: Datum<'a>) -> Array<'a> {
    if let Datum::Array(array) = datum { array } else { unreachable!("an array") }
}

fn int(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn wrong_subscript(message: &str) -> SqlError {
    SqlError::new(SqlState("2202E"), message)
}

fn dimension(of: Datum<'_>, number: Datum<'_>) -> Option<Dimension> {
    let at = usize::try_from(int(number)).ok()?.checked_sub(1)?;
    array(of).dimensions().get(at).copied()
}

fn known<'a>(value: Option<i32>) -> Datum<'a> {
    value.map_or(Datum::Null, |value| Datum::Int(value.into()))
}

fn items<'a>(of: Array<'a>) -> Vec<Datum<'a>> {
    of.items().collect()
}

/// An array with an element at one of its ends.
fn with_item<'a>(context: &Context<'a>, of: Datum<'a>, item: Datum<'a>, is_last: bool) -> Result<Datum<'a>, SqlError> {
    let Datum::Array(of) = of else { return Ok(Array::list(context.arena, &[item])) };
    let mut dimensions = of.dimensions();
    if dimensions.len() > 1 {
        let message = "argument must be empty or one-dimensional array";
        return Err(SqlError::new(SqlState("22000"), message));
    }
    let mut items = items(of);
    items.insert(if is_last { items.len() } else { 0 }, item);
    let lower = dimensions.first().map_or(1, |it| it.lower);
    dimensions = vec![Dimension { lower, ..Dimension::of(items.len()) }];
    size(&dimensions)?;
    Ok(Array::datum(context.arena, &dimensions, items))
}

/// Both, one behind the other; an array of one dimension less is one more element.
fn joined<'a>(context: &Context<'a>, one: Datum<'a>, other: Datum<'a>) -> Result<Datum<'a>, SqlError> {
    let (Datum::Array(a), Datum::Array(b)) = (one, other) else {
        return Ok(if one.is_null() { other } else { one });
    };
    check_length(a.bytes().len() + b.bytes().len())?;
    let (of_a, of_b) = (a.dimensions(), b.dimensions());
    let dimensions = match (of_a.len(), of_b.len()) {
        (0, _) => return Ok(other),
        (_, 0) => return Ok(one),
        (own, more) if own == more && of_a[1..] == of_b[1..] => {
            let mut all = of_a;
            all[0].length = all[0].length.saturating_add(of_b[0].length);
            all
        }
        (own, more) if own == more + 1 && of_a[1..] == of_b[..] => {
            let mut all = of_a;
            all[0].length += 1;
            all
        }
        (own, more) if own + 1 == more && of_b[1..] == of_a[..] => {
            let mut all = of_b;
            all[0].length += 1;
            all
        }
        _ => return Err(wrong_subscript("cannot concatenate incompatible arrays")),
    };
    size(&dimensions)?;
    Ok(Array::datum(context.arena, &dimensions, a.items().chain(b.items())))
}

fn one_dimension(of: Array<'_>, place: &str) -> Result<(), SqlError> {
    if of.dimensions().len() > 1 {
        Err(SqlError::unsupported(format!("{place} of an array of several dimensions")))
    } else {
        Ok(())
    }
}

fn is_item(item: Datum<'_>, wanted: Datum<'_>) -> bool {
    item.is_null() == wanted.is_null() && item.compare(wanted).is_eq()
}

/// The number of the first element that is equal, from a position on.
fn position<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    let Datum::Array(of) = arguments[0] else { return Ok(Datum::Null) };
    let dimensions = of.dimensions();
    if dimensions.len() > 1 {
        let message = "searching for elements in multidimensional arrays is not supported";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let lower = dimensions.first().map_or(1, |it| i64::from(it.lower));
    let from = match arguments.get(2) {
        None => lower,
        Some(Datum::Int(from)) => *from,
        Some(_) => return Err(SqlError::new(SqlState("22004"), "initial position must not be null")),
    };
    let numbered = (lower..).zip(of.items());
    let found = numbered.filter(|(at, _)| *at >= from).find(|(_, item)| is_item(*item, arguments[1]));
    Ok(found.map_or(Datum::Null, |(at, _)| Datum::Int(at)))
}

fn replaced<'a>(context: &Context<'a>, of: Array<'a>, wanted: Datum<'a>, by: Datum<'a>) -> Datum<'a> {
    let items = of.items().map(|item| if is_item(item, wanted) { by } else { item });
    Array::datum(context.arena, &of.dimensions(), items)
}

fn contains(own: Array<'_>, wanted: Array<'_>) -> bool {
    wanted
        .items()
        .all(|wanted| !wanted.is_null() && own.items().any(|item| !item.is_null() && item.compare(wanted).is_eq()))
}

fn overlaps(own: Array<'_>, other: Array<'_>) -> bool {
    other
        .items()
        .any(|other| !other.is_null() && own.items().any(|item| !item.is_null() && item.compare(other).is_eq()))
}

/// The element at these positions, one for each dimension.
fn element<'a>(of: Array<'a>, at: Array<'_>) -> Datum<'a> {
    let dimensions = of.dimensions();
    if dimensions.len() != at.length() {
        return Datum::Null;
    }
    let mut position = 0;
    for (dimension, at) in dimensions.iter().zip(at.items()) {
        let Datum::Int(at) = at else { return Datum::Null };
        let offset = at - i64::from(dimension.lower);
        let Some(offset) = usize::try_from(offset).ok().filter(|it| *it < dimension.length as usize) else {
            return Datum::Null;
        };
        position = position * dimension.length as usize + offset;
    }
    of.items().nth(position).unwrap_or(Datum::Null)
}

/// The elements within these bounds, each of which may be missing (NULL).
fn slice<'a>(context: &Context<'a>, of: Array<'a>, bounds: Array<'_>) -> Datum<'a> {
    let dimensions = of.dimensions();
    let bounds = items(bounds);
    let empty = || Array::list(context.arena, &[]);
    if dimensions.is_empty() || bounds.len() / 2 > dimensions.len() {
        return empty();
    }
    let mut ranges = Vec::new();
    for (at, dimension) in dimensions.iter().enumerate() {
        let (least, most) = (i64::from(dimension.lower), i64::from(dimension.upper()));
        let bound = |which: usize, default: i64| match bounds.get(at * 2 + which) {
            Some(Datum::Int(bound)) => *bound,
            _ => default,
        };
        let (lower, upper) = (bound(0, least).max(least), bound(1, most).min(most));
        if lower > upper {
            return empty();
        }
        ranges.push((lower - least, upper - least));
    }
    let made: Vec<_> = ranges.iter().map(|(lower, upper)| Dimension::of((upper - lower + 1) as usize)).collect();
    let chosen = of.items().enumerate().filter(|(at, _)| {
        let mut rest = *at as i64;
        dimensions.iter().zip(&ranges).rev().all(|(dimension, (lower, upper))| {
            let offset = rest % i64::from(dimension.length);
            rest /= i64::from(dimension.length);
            (*lower..=*upper).contains(&offset)
        })
    });
    Array::datum(context.arena, &made, chosen.map(|(_, item)| item))
}

/// `string_to_array`: parts between separators, or all letters where there is no separator.
pub(super) fn split<'a>(of: &'a str, by: Datum<'a>, null: Datum<'a>) -> Vec<Datum<'a>> {
    let parts: Vec<&str> = match by {
        _ if of.is_empty() => Vec::new(),
        Datum::Text("") => vec![of],
        Datum::Text(by) => of.split(by).collect(),
        _ => of.char_indices().map(|(at, letter)| &of[at..at + letter.len_utf8()]).collect(),
    };
    let is_null = |part: &str| matches!(null, Datum::Text(null) if null == part);
    parts.into_iter().map(|part| if is_null(part) { Datum::Null } else { Datum::Text(part) }).collect()
}

fn shown<'a>(context: &Context<'a>, of: Array<'_>, by: &str, null: Option<&str>) -> Datum<'a> {
    let texts = of.items().filter_map(|item| match item {
        Datum::Text(text) => Some(text),
        _ => null,
    });
    Datum::Text(context.arena.alloc_str(&texts.collect::<Vec<_>>().join(by)))
}

fn filled<'a>(
    context: &Context<'a>,
    item: Datum<'a>,
    lengths: Array<'a>,
    lowers: Option<Array<'a>>,
) -> Result<Datum<'a>, SqlError> {
    let lengths = items(lengths);
    let lowers = lowers.map(items).unwrap_or_else(|| vec![Datum::Int(1); lengths.len()]);
    if lengths.len() > MOST_DIMENSIONS {
        return Err(too_many_dimensions(lengths.len()));
    }
    if lowers.len() != lengths.len() {
        return Err(wrong_subscript("wrong number of array subscripts"));
    }
    let mut dimensions = Vec::new();
    for pair in lengths.iter().zip(&lowers) {
        let (Datum::Int(length), Datum::Int(lower)) = pair else {
            return Err(SqlError::new(SqlState("22004"), "dimension values cannot be null"));
        };
        dimensions.push(Dimension { length: *length as i32, lower: *lower as i32 });
    }
    let count = size(&dimensions)?;
    if count == 0 {
        return Ok(Array::list(context.arena, &[]));
    }
    Ok(Array::datum(context.arena, &dimensions, std::iter::repeat_n(item, count)))
}

fn bounds_in_words(of: Array<'_>) -> Option<String> {
    let dimensions = of.dimensions();
    let words: Vec<_> = dimensions.iter().map(|it| format!("[{}:{}]", it.lower, it.upper())).collect();
    (!words.is_empty()).then(|| words.concat())
}

/// How many of the thresholds, which rise, a value has reached.
fn bucket<'a>(value: Datum<'a>, thresholds: Array<'a>) -> Result<Datum<'a>, SqlError> {
    if thresholds.dimensions().len() > 1 {
        return Err(wrong_subscript("thresholds must be one-dimensional array"));
    }
    let items = items(thresholds);
    if items.iter().any(|it| it.is_null()) {
        return Err(SqlError::new(SqlState("22004"), "thresholds array must not contain NULLs"));
    }
    Ok(Datum::Int(items.partition_point(|it| it.compare(value).is_le()) as i64))
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "num_nulls"(Texts) -> Int4 = |it, _| Ok(Datum::Int(array(it[0]).items().filter(|it| it.is_null()).count() as i64));
    "num_nonnulls"(Texts) -> Int4 = |it, _| {
        Ok(Datum::Int(array(it[0]).items().filter(|it| !it.is_null()).count() as i64))
    };
    "width_bucket"(AnyElement, AnyArray) -> Int4 = |it, _| bucket(it[0], array(it[1]));
    "array_ndims"(AnyArray) -> Int4 = |it, _| {
        let count = array(it[0]).dimensions().len() as i32;
        Ok(known((count > 0).then_some(count)))
    };
    "array_dims"(AnyArray) -> Text = |it, context| {
        Ok(bounds_in_words(array(it[0])).map_or(Datum::Null, |words| Datum::Text(context.arena.alloc_str(&words))))
    };
    "array_length"(AnyArray, Int4) -> Int4 = |it, _| Ok(known(dimension(it[0], it[1]).map(|it| it.length)));
    "array_lower"(AnyArray, Int4) -> Int4 = |it, _| Ok(known(dimension(it[0], it[1]).map(|it| it.lower)));
    "array_upper"(AnyArray, Int4) -> Int4 = |it, _| Ok(known(dimension(it[0], it[1]).map(Dimension::upper)));
    "cardinality"(AnyArray) -> Int4 = |it, _| Ok(Datum::Int(array(it[0]).length() as i64));
    "array_positions"(AnyArray, AnyElement) -> Int4s = |it, context| {
        let of = array(it[0]);
        one_dimension(of, "array_positions")?;
        let lower = of.dimensions().first().map_or(1, |it| i64::from(it.lower));
        let found = (lower..).zip(of.items()).filter(|(_, item)| is_item(*item, it[1]));
        Ok(Array::list(context.arena, &found.map(|(at, _)| Datum::Int(at)).collect::<Vec<_>>()))
    };
    "array_to_string"(AnyArray, Text) -> Text = |it, context| Ok(shown(context, array(it[0]), text(it[1]), None));
    "trim_array"(AnyArray, Int4) -> AnyArray = |it, context| {
        let of = array(it[0]);
        let first = of.dimensions().first().copied();
        let (length, lower) = first.map_or((0, 1), |it| (i64::from(it.length), i64::from(it.lower)));
        let count = int(it[1]);
        if !(0..=length).contains(&count) {
            let message = format!("number of elements to trim must be between 0 and {length}");
            return Err(SqlError::new(SqlState("2202E"), message));
        }
        let bounds = Array::encode(&[Dimension::of(2)], [Datum::Null, Datum::Int(lower + length - count - 1)]);
        Ok(slice(context, of, Array::of_bytes(&bounds)))
    };
    "array_element"(AnyArray, Int4s) -> AnyElement = |it, _| Ok(element(array(it[0]), array(it[1])));
    "array_slice"(AnyArray, Int4s) -> AnyArray = |it, context| Ok(slice(context, array(it[0]), array(it[1])));
    "@>"(AnyArray, AnyArray) -> Bool = |it, _| Ok(Datum::Bool(contains(array(it[0]), array(it[1]))));
    "<@"(AnyArray, AnyArray) -> Bool = |it, _| Ok(Datum::Bool(contains(array(it[1]), array(it[0]))));
    "&&"(AnyArray, AnyArray) -> Bool = |it, _| Ok(Datum::Bool(overlaps(array(it[0]), array(it[1]))));
};

/// Those that are called with NULL, too.
pub(super) const LENIENT: &[Function] = functions! {
    "||"(AnyArray, AnyArray) -> AnyArray = |it, context| joined(context, it[0], it[1]);
    "||"(AnyArray, AnyElement) -> AnyArray = |it, context| with_item(context, it[0], it[1], true);
    "||"(AnyElement, AnyArray) -> AnyArray = |it, context| with_item(context, it[1], it[0], false);
    "array_cat"(AnyArray, AnyArray) -> AnyArray = |it, context| joined(context, it[0], it[1]);
    "array_append"(AnyArray, AnyElement) -> AnyArray = |it, context| with_item(context, it[0], it[1], true);
    "array_prepend"(AnyElement, AnyArray) -> AnyArray = |it, context| with_item(context, it[1], it[0], false);
    "array_position"(AnyArray, AnyElement) -> Int4 = |it, _| position(it);
    "array_position"(AnyArray, AnyElement, Int4) -> Int4 = |it, _| position(it);
    "array_remove"(AnyArray, AnyElement) -> AnyArray = |it, context| {
        let Datum::Array(of) = it[0] else { return Ok(Datum::Null) };
        if of.dimensions().len() > 1 {
            let message = "removing elements from multidimensional arrays is not supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let left: Vec<_> = of.items().filter(|item| !is_item(*item, it[1])).collect();
        let lower = of.dimensions().first().map_or(1, |own| own.lower);
        match left.len() {
            0 => Ok(Array::list(context.arena, &[])),
            length => Ok(Array::datum(context.arena, &[Dimension { lower, ..Dimension::of(length) }], left)),
        }
    };
    "array_replace"(AnyArray, AnyElement, AnyElement) -> AnyArray = |it, context| match it[0] {
        Datum::Array(of) => Ok(replaced(context, of, it[1], it[2])),
        _ => Ok(Datum::Null),
    };
    "array_to_string"(AnyArray, Text, Text) -> Text = |it, context| match (it[0], it[1], it[2]) {
        (Datum::Array(of), Datum::Text(by), Datum::Text(null)) => Ok(shown(context, of, by, Some(null))),
        (Datum::Array(of), Datum::Text(by), _) => Ok(shown(context, of, by, None)),
        _ => Ok(Datum::Null),
    };
    "string_to_array"(Text, Text) -> Texts = |it, context| match it[0] {
        Datum::Text(of) => Ok(Array::list(context.arena, &split(of, it[1], Datum::Null))),
        _ => Ok(Datum::Null),
    };
    "string_to_array"(Text, Text, Text) -> Texts = |it, context| match it[0] {
        Datum::Text(of) => Ok(Array::list(context.arena, &split(of, it[1], it[2]))),
        _ => Ok(Datum::Null),
    };
    "array_fill"(AnyElement, Int4s) -> AnyArray = |it, context| match it[1] {
        Datum::Array(lengths) => filled(context, it[0], lengths, None),
        _ => Err(SqlError::new(SqlState("22004"), "dimension array or low bound array cannot be null")),
    };
    "array_fill"(AnyElement, Int4s, Int4s) -> AnyArray = |it, context| match (it[1], it[2]) {
        (Datum::Array(lengths), Datum::Array(lowers)) => filled(context, it[0], lengths, Some(lowers)),
        _ => Err(SqlError::new(SqlState("22004"), "dimension array or low bound array cannot be null")),
    };
};
