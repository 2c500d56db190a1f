//! Matches of regular expressions by their numbers: where they begin, and from where on they are looked for.

use std::ops::Range;

use super::patterns::{self, first_alone};
use super::{Function, functions};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::regexes::{Flags, with_regex};

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn int(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

/// A number among the arguments, which is one at least, or as much as `least`.
fn number(arguments: &[Datum<'_>], at: usize, (name, least): (&str, i64)) -> Result<usize, SqlError> {
    let value = arguments.get(at).map_or(1, |it| int(*it));
    if value < least {
        let message = format!("invalid value for parameter \"{name}\": {value}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(value as usize)
}

fn flags(function: &str, arguments: &[Datum<'_>], at: usize) -> Result<Flags, SqlError> {
    first_alone(function, Flags::of(arguments.get(at).map_or("", |it| text(*it)))?, None)
}

/// Where the character of this number begins, counted from one.
fn byte_of(of: &str, character: usize) -> usize {
    of.char_indices().nth(character - 1).map_or(of.len(), |(at, _)| at)
}

/// The part of a text that a group of a match is: `text, pattern, start, n, …`.
fn found(arguments: &[Datum<'_>], (flags, group): (Flags, usize)) -> Result<Option<Range<usize>>, SqlError> {
    let (start, wanted) = (number(arguments, 2, ("start", 1))?, number(arguments, 3, ("n", 1))?);
    let of = text(arguments[0]);
    let (mut number, mut result) = (0, None);
    with_regex(text(arguments[1]), flags, |regex| {
        regex.each(of, byte_of(of, start), |regex, found| {
            number += 1;
            if number == wanted {
                result = regex.groups(of, &found)?.get(group).cloned().flatten();
            }
            Ok(number < wanted)
        })
    })?;
    Ok(result)
}

fn part<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    let group = arguments.get(5).map_or(Ok(0), |_| number(arguments, 5, ("subexpr", 0)))?;
    let range = found(arguments, (flags("regexp_substr", arguments, 4)?, group))?;
    Ok(range.map_or(Datum::Null, |range| Datum::Text(&text(arguments[0])[range])))
}

/// The number of the character at which a match begins, or of the one behind it; zero where there is none.
fn position<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    let end = arguments.get(4).map_or(0, |it| int(*it));
    if !matches!(end, 0 | 1) {
        let message = format!("invalid value for parameter \"endoption\": {end}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let group = arguments.get(6).map_or(Ok(0), |_| number(arguments, 6, ("subexpr", 0)))?;
    let range = found(arguments, (flags("regexp_instr", arguments, 5)?, group))?;
    let before = range.map(|range| if end == 1 { range.end } else { range.start });
    Ok(Datum::Int(before.map_or(0, |at| text(arguments[0])[..at].chars().count() as i64 + 1)))
}

/// `regexp_replace` of the match of a number, or of all where that is zero.
fn replaced<'a>(arguments: &[Datum<'a>], context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let start = number(arguments, 3, ("start", 1))?;
    let flags = arguments.get(5).map_or("", |it| text(*it));
    let wanted = match arguments.get(4) {
        Some(_) => number(arguments, 4, ("n", 0))?,
        None => usize::from(!flags.contains('g')),
    };
    let texts = [text(arguments[0]), text(arguments[1]), text(arguments[2])];
    patterns::replaced(context, texts, Flags::of(flags)?, (byte_of(texts[0], start), wanted))
}

fn counted<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    let (of, start) = (text(arguments[0]), number(arguments, 2, ("start", 1))?);
    let mut count = 0;
    with_regex(text(arguments[1]), flags("regexp_count", arguments, 3)?, |regex| {
        regex.each(of, byte_of(of, start), |_, _| {
            count += 1;
            Ok(true)
        })
    })?;
    Ok(Datum::Int(count))
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "regexp_count"(Text, Text) -> Int4 = |it, _| counted(it);
    "regexp_count"(Text, Text, Int4) -> Int4 = |it, _| counted(it);
    "regexp_count"(Text, Text, Int4, Text) -> Int4 = |it, _| counted(it);
    "regexp_substr"(Text, Text) -> Text = |it, _| part(it);
    "regexp_substr"(Text, Text, Int4) -> Text = |it, _| part(it);
    "regexp_substr"(Text, Text, Int4, Int4) -> Text = |it, _| part(it);
    "regexp_substr"(Text, Text, Int4, Int4, Text) -> Text = |it, _| part(it);
    "regexp_substr"(Text, Text, Int4, Int4, Text, Int4) -> Text = |it, _| part(it);
    "regexp_instr"(Text, Text) -> Int4 = |it, _| position(it);
    "regexp_instr"(Text, Text, Int4) -> Int4 = |it, _| position(it);
    "regexp_instr"(Text, Text, Int4, Int4) -> Int4 = |it, _| position(it);
    "regexp_instr"(Text, Text, Int4, Int4, Int4) -> Int4 = |it, _| position(it);
    "regexp_instr"(Text, Text, Int4, Int4, Int4, Text) -> Int4 = |it, _| position(it);
    "regexp_instr"(Text, Text, Int4, Int4, Int4, Text, Int4) -> Int4 = |it, _| position(it);
    "regexp_replace"(Text, Text, Text, Int4) -> Text = |it, context| replaced(it, context);
    "regexp_replace"(Text, Text, Text, Int4, Int4) -> Text = |it, context| replaced(it, context);
    "regexp_replace"(Text, Text, Text, Int4, Int4, Text) -> Text = |it, context| replaced(it, context);
};
