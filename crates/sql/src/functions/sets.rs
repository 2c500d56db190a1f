//! Functions that give several rows: they answer an array, which has the values of one row after the other.

use super::arrays::{array, split};
use super::{Function, functions, later};
use crate::arrays::Array;
use crate::context::Context;
use crate::datum::{Datum, Interval};
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::types::Type;
use crate::wide::decimal;

/// The most values that one call gives.
const MOST: usize = 2_000_000;

/// The columns of the rows that a function gives, if it gives several; one column has the type that the function has.
pub(crate) fn columns_of(name: &str) -> Option<&'static [(&'static str, Option<Type>)]> {
    Some(match name {
        "generate_series" => &[("generate_series", None)],
        "generate_subscripts" => &[("generate_subscripts", None)],
        "unnest" => &[("unnest", None)],
        "string_to_table" => &[("string_to_table", None)],
        "regexp_split_to_table" => &[("regexp_split_to_table", None)],
        "regexp_matches" => &[("regexp_matches", None)],
        "json_array_elements" | "jsonb_array_elements" | "json_array_elements_text" | "jsonb_array_elements_text" => {
            &[("value", None)]
        }
        "pg_listening_channels" => &[("pg_listening_channels", None)],
        "pg_partition_ancestors" => &[("relid", None)],
        "json_object_keys" => &[("json_object_keys", None)],
        "jsonb_object_keys" => &[("jsonb_object_keys", None)],
        "information_schema._pg_expandarray" => &[("x", None), ("n", Some(Type::Int4))],
        "pg_options_to_table" => &[("option_name", None), ("option_value", Some(Type::Text))],
        "pg_get_keywords" => &[
            ("word", None),
            ("catcode", Some(Type::Text)),
            ("barelabel", Some(Type::Bool)),
            ("catdesc", Some(Type::Text)),
            ("baredesc", Some(Type::Text)),
        ],
        "json_each" | "jsonb_each" | "json_each_text" | "jsonb_each_text" => {
            &[("key", Some(Type::Text)), ("value", None)]
        }
        _ => return None,
    })
}

fn no_step() -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

/// The values from the first one on, as long as `next` gives one that is not behind the last one.
fn series<'a>(
    context: &Context<'a>,
    first: Datum<'a>,
    is_within: impl Fn(Datum<'a>) -> bool,
    next: impl Fn(Datum<'a>) -> Result<Option<Datum<'a>>, SqlError>,
) -> Result<Datum<'a>, SqlError> {
    let (mut items, mut at) = (Vec::new(), Some(first));
    while let Some(value) = at.filter(|value| is_within(*value)) {
        if items.len() == MOST {
            let message = format!("a call gives at most {MOST} rows here");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        items.push(value);
        at = next(value)?;
    }
    Ok(Array::list(context.arena, &items))
}

fn integers<'a>(context: &Context<'a>, arguments: &[Datum<'a>], of: Type) -> Result<Datum<'a>, SqlError> {
    let step = if let Some(Datum::Int(step)) = arguments.get(2) { *step } else { 1 };
    if step == 0 {
        return Err(no_step());
    }
    let is_within = |value: Datum<'a>| {
        if step > 0 { value.compare(arguments[1]).is_le() } else { value.compare(arguments[1]).is_ge() }
    };
    series(context, arguments[0], is_within, |value| {
        let Datum::Int(value) = value else { return Ok(None) };
        Ok(crate::casts::in_range(i128::from(value) + i128::from(step), of).ok())
    })
}

fn numerics<'a>(context: &Context<'a>, arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    let step = arguments.get(2).map_or(Ok(Decimal::from(1)), |step| decimal(*step))?;
    arguments[..2].iter().try_for_each(|end| decimal(*end).map(|_| ()))?;
    if step.units() == 0 {
        return Err(no_step());
    }
    let rises = step.units() > 0;
    let is_within = |value: Datum<'a>| {
        if rises { value.compare(arguments[1]).is_le() } else { value.compare(arguments[1]).is_ge() }
    };
    series(context, arguments[0], is_within, |value| {
        let Datum::Numeric(value) = value else { return Ok(None) };
        value.add(step).map(|next| Some(Datum::Numeric(next)))
    })
}

fn times<'a>(context: &Context<'a>, arguments: &[Datum<'a>], is_zoned: bool) -> Result<Datum<'a>, SqlError> {
    let Datum::Interval(step) = arguments[2] else { return Ok(Datum::Null) };
    if step.span() == 0 {
        return Err(no_step());
    }
    let rises = step.span() > 0;
    let is_within = |value: Datum<'a>| {
        if rises { value.compare(arguments[1]).is_le() } else { value.compare(arguments[1]).is_ge() }
    };
    series(context, arguments[0], is_within, |value| {
        let Datum::Timestamp(micros) = value else { return Ok(None) };
        if matches!(micros, i64::MIN | i64::MAX) {
            return Ok(None);
        }
        if !is_zoned {
            return later(micros, step).map(|next| Some(Datum::Timestamp(next)));
        }
        let local = later(crate::text::to_local(micros, context.zone), Interval { micros: 0, ..step })?;
        let by_clock =
            if step.months == 0 && step.days == 0 { micros } else { crate::text::from_local(local, context.zone) };
        Ok(by_clock.checked_add(step.micros).map(Datum::Timestamp))
    })
}

fn subscripts<'a>(context: &Context<'a>, arguments: &[Datum<'a>]) -> Datum<'a> {
    let Datum::Int(number) = arguments[1] else { return Datum::Null };
    let dimensions = array(arguments[0]).dimensions();
    let dimension = usize::try_from(number - 1).ok().and_then(|at| dimensions.get(at));
    let mut items: Vec<_> =
        dimension.map_or_else(Vec::new, |it| (it.lower..=it.upper()).map(|at| Datum::Int(at.into())).collect());
    if matches!(arguments.get(2), Some(Datum::Bool(true))) {
        items.reverse();
    }
    Array::list(context.arena, &items)
}

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "unnest"(AnyArray) -> AnyElement = |it, _| Ok(it[0]);
    "information_schema._pg_expandarray"(AnyArray) -> AnyElement = |it, context| {
        let pairs = (1..).zip(array(it[0]).items()).flat_map(|(number, item)| [item, Datum::Int(number)]);
        Ok(Array::list(context.arena, &pairs.collect::<Vec<_>>()))
    };
    "generate_series"(Int4, Int4) -> Int4 = |it, context| integers(context, it, Type::Int4);
    "generate_series"(Int4, Int4, Int4) -> Int4 = |it, context| integers(context, it, Type::Int4);
    "generate_series"(Int8, Int8) -> Int8 = |it, context| integers(context, it, Type::Int8);
    "generate_series"(Int8, Int8, Int8) -> Int8 = |it, context| integers(context, it, Type::Int8);
    "generate_series"(Numeric, Numeric) -> Numeric = |it, context| numerics(context, it);
    "generate_series"(Numeric, Numeric, Numeric) -> Numeric = |it, context| numerics(context, it);
    "generate_series"(Timestamp, Timestamp, Interval) -> Timestamp = |it, context| times(context, it, false);
    "generate_series"(Timestamptz, Timestamptz, Interval) -> Timestamptz = |it, context| times(context, it, true);
    "generate_subscripts"(AnyArray, Int4) -> Int4 = |it, context| Ok(subscripts(context, it));
    "generate_subscripts"(AnyArray, Int4, Bool) -> Int4 = |it, context| Ok(subscripts(context, it));
    "regexp_split_to_table"(Text, Text) -> Text = |it, context| super::patterns::split(context, it, "regexp_split_to_table", "");
    "regexp_split_to_table"(Text, Text, Text) -> Text = |it, context| super::patterns::split(context, it, "regexp_split_to_table", text(it[2]));
    "regexp_matches"(Text, Text) -> Texts = |it, context| super::patterns::all_matches(context, it, "");
    "regexp_matches"(Text, Text, Text) -> Texts = |it, context| super::patterns::all_matches(context, it, text(it[2]));
};

/// Those that are called with NULL, too.
pub(super) const LENIENT: &[Function] = functions! {
    "string_to_table"(Text, Text) -> Text = |it, context| match it[0] {
        Datum::Text(of) => Ok(Array::list(context.arena, &split(of, it[1], Datum::Null))),
        _ => Ok(Datum::Null),
    };
    "string_to_table"(Text, Text, Text) -> Text = |it, context| match it[0] {
        Datum::Text(of) => Ok(Array::list(context.arena, &split(of, it[1], it[2]))),
        _ => Ok(Datum::Null),
    };
};
