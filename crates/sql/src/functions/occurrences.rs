//! Matches of regular expressions by their numbers: where they begin, and from where on they are looked for.

use super::patterns::{flags_of, replacement, with_regex};
use super::strings::check_length;
use super::{Function, functions};
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};

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

fn flags<'a>(function: &str, arguments: &[Datum<'a>], at: usize) -> Result<&'a str, SqlError> {
    let flags = arguments.get(at).map_or("", |it| text(*it));
    if flags.contains('g') {
        let message = format!("{function}() does not support the \"global\" option");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(flags)
}

/// Where the character of this number begins, counted from one.
fn byte_of(of: &str, character: usize) -> usize {
    of.char_indices().nth(character - 1).map_or(of.len(), |(at, _)| at)
}

/// The part of a text that a group of a match is: `text, pattern, start, n, …`.
fn found<'a>(
    arguments: &[Datum<'a>],
    (flags, group): (&str, usize),
) -> Result<Option<std::ops::Range<usize>>, SqlError> {
    let (start, wanted) = (number(arguments, 2, ("start", 1))?, number(arguments, 3, ("n", 1))?);
    let of = text(arguments[0]);
    let first = byte_of(of, start);
    with_regex(text(arguments[1]), flags_of(flags)?.1, |regex| {
        let part = &of[first..];
        // Without groups the whole match is meant, whatever group is asked for.
        let captures = regex.captures_iter(part).nth(wanted - 1)?;
        let range = captures.get(group)?.range();
        Some(range.start + first..range.end + first)
    })
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
    let (of, by) = (text(arguments[0]), replacement(text(arguments[2])));
    let first = byte_of(of, start);
    let made = with_regex(text(arguments[1]), flags_of(flags)?.1, |regex| {
        let (mut made, mut end, part) = (of[..first].to_owned(), 0, &of[first..]);
        for (number, found) in (1..).zip(regex.captures_iter(part)) {
            if wanted != 0 && number != wanted {
                continue;
            }
            let whole = found.get_match();
            made.push_str(&part[end..whole.start()]);
            found.expand(&by, &mut made);
            check_length(made.len())?;
            end = whole.end();
            if wanted != 0 {
                break;
            }
        }
        made.push_str(&part[end..]);
        Ok::<_, SqlError>(made)
    })??;
    Ok(Datum::Text(context.arena.alloc_str(&made)))
}

fn counted<'a>(arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    let start = number(arguments, 2, ("start", 1))?;
    let ignores_case = flags_of(flags("regexp_count", arguments, 3)?)?.1;
    let of = &text(arguments[0])[byte_of(text(arguments[0]), start)..];
    with_regex(text(arguments[1]), ignores_case, |regex| Datum::Int(regex.find_iter(of).count() as i64))
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
