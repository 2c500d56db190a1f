//! Regular expressions, and patterns that are rewritten.

use std::ops::Range;

use super::strings::check_length;
use super::{Function, functions};
use crate::arrays::Array;
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::regexes::{Flags, Regex, push_replacement, with_regex};

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn matches<'a>(arguments: &[Datum<'a>], flags: Flags, wanted: bool) -> Result<Datum<'a>, SqlError> {
    let (of, pattern) = (text(arguments[0]), text(arguments[1]));
    with_regex(pattern, flags, |regex| Ok(Datum::Bool(regex.is_match(of) == wanted)))
}

/// The only character of an escape text; none if it is empty.
fn escape_of(escape: &str) -> Result<Option<char>, SqlError> {
    let mut letters = escape.chars();
    match (letters.next(), letters.next()) {
        (first, None) => Ok(first),
        _ => Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
            .with_hint("Escape string must be empty or one character.")),
    }
}

/// A pattern of LIKE with a backslash in the place of its escape character.
fn with_backslashes(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let escape = escape_of(escape)?;
    let mut made = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            letter if Some(letter) == escape => {
                made.push('\\');
                made.extend(letters.next());
            }
            '\\' => made.push_str("\\\\"),
            letter => made.push(letter),
        }
    }
    Ok(made)
}

/// A character that means itself.
fn push_escaped(letter: char, out: &mut String) {
    if r"\.^$|()[]{}*+?".contains(letter) {
        out.push('\\');
    }
    out.push(letter);
}

/// A pattern of SIMILAR TO as a regular expression.
fn of_similar(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let escape = escape_of(escape)?;
    let mut made = String::from("^(?:");
    let mut letters = pattern.chars();
    let mut is_in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            letter if Some(letter) == escape => {
                letters.next().into_iter().for_each(|letter| push_escaped(letter, &mut made));
            }
            ']' if is_in_class => (is_in_class, ()) = (false, made.push(']')),
            letter if is_in_class => made.push(letter),
            '[' => (is_in_class, ()) = (true, made.push('[')),
            '%' => made.push_str(".*"),
            '_' => made.push('.'),
            '(' => made.push_str("(?:"),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => made.push(letter),
            letter => push_escaped(letter, &mut made),
        }
    }
    made.push_str(")$");
    Ok(made)
}

/// The text, from a place on, with the match of this number replaced, or all of them where it is zero.
pub(super) fn replaced<'a>(
    context: &Context<'a>,
    [of, pattern, by]: [&str; 3],
    flags: Flags,
    (from, wanted): (usize, usize),
) -> Result<Datum<'a>, SqlError> {
    let (mut made, mut end, mut number) = (String::new(), 0, 0);
    with_regex(pattern, flags, |regex| {
        regex.each(of, from, |regex, found| {
            number += 1;
            if wanted == 0 || number == wanted {
                made.push_str(&of[end..found.start]);
                push_replacement(of, &regex.groups(of, &found)?, by, &mut made);
                check_length(made.len())?;
                end = found.end;
            }
            Ok(wanted == 0 || number < wanted)
        })
    })?;
    made.push_str(&of[end..]);
    check_length(made.len())?;
    Ok(Datum::Text(context.arena.alloc_str(&made)))
}

fn replace_by_flags<'a>(arguments: &[Datum<'a>], flags: &str, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let flags = Flags::of(flags)?;
    let texts = [text(arguments[0]), text(arguments[1]), text(arguments[2])];
    replaced(context, texts, flags, (0, usize::from(!flags.is_global)))
}

/// The parts of a text between matches.
pub(super) fn split<'a>(
    context: &Context<'a>,
    arguments: &[Datum<'a>],
    function: &str,
    flags: &str,
) -> Result<Datum<'a>, SqlError> {
    let (of, pattern) = (text(arguments[0]), text(arguments[1]));
    let flags = first_alone(function, Flags::of(flags)?, None)?;
    let (mut parts, mut start) = (Vec::new(), 0);
    with_regex(pattern, flags, |regex| {
        // An empty match at the beginning or the end, or behind another one, splits nothing.
        regex.each(of, 0, |_, found| {
            if found.start < of.len() && found.end > start {
                parts.push(Datum::Text(&of[start..found.start]));
                start = found.end;
            }
            Ok(true)
        })
    })?;
    parts.push(Datum::Text(&of[start..]));
    Ok(Array::list(context.arena, &parts))
}

/// The flags of a function that takes no `g`.
pub(super) fn first_alone(function: &str, flags: Flags, instead: Option<&str>) -> Result<Flags, SqlError> {
    if !flags.is_global {
        return Ok(flags);
    }
    let message = format!("{function}() does not support the \"global\" option");
    let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    Err(match instead {
        Some(instead) => error.with_hint(format!("Use the {instead} function instead.")),
        None => error,
    })
}

/// What groups match, or all of a match where there are no groups.
fn groups<'a>(regex: &mut Regex, of: &'a str, found: &Range<usize>) -> Result<Vec<Datum<'a>>, SqlError> {
    let groups = regex.groups(of, found)?;
    let from = usize::from(groups.len() > 1);
    let text = |range: &Option<Range<usize>>| range.clone().map_or(Datum::Null, |range| Datum::Text(&of[range]));
    Ok(groups[from..].iter().map(text).collect())
}

/// The groups of each match, as an array of arrays.
pub(super) fn all_matches<'a>(
    context: &Context<'a>,
    arguments: &[Datum<'a>],
    flags: &str,
) -> Result<Datum<'a>, SqlError> {
    let (of, pattern, flags) = (text(arguments[0]), text(arguments[1]), Flags::of(flags)?);
    let mut all = Vec::new();
    with_regex(pattern, flags, |regex| {
        regex.each(of, 0, |regex, found| {
            all.push(Array::list(context.arena, &groups(regex, of, &found)?));
            Ok(flags.is_global)
        })
    })?;
    Ok(Array::list(context.arena, &all))
}

/// The groups of the first match.
fn first_match<'a>(context: &Context<'a>, arguments: &[Datum<'a>], flags: &str) -> Result<Datum<'a>, SqlError> {
    let (of, pattern) = (text(arguments[0]), text(arguments[1]));
    let flags = first_alone("regexp_match", Flags::of(flags)?, Some("regexp_matches"))?;
    with_regex(pattern, flags, |regex| {
        let Some(found) = regex.find(of, 0)? else { return Ok(Datum::Null) };
        Ok(Array::list(context.arena, &groups(regex, of, &found)?))
    })
}

/// What the first group of the first match has, or all of it where there are no groups.
fn first_part<'a>(context: &Context<'a>, arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    match first_match(context, arguments, "")? {
        Datum::Array(groups) => Ok(groups.items().next().unwrap_or(Datum::Null)),
        none => Ok(none),
    }
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "~"(Text, Text) -> Bool = |it, _| matches(it, Flags::default(), true);
    "!~"(Text, Text) -> Bool = |it, _| matches(it, Flags::default(), false);
    "~*"(Text, Text) -> Bool = |it, _| matches(it, Flags::ignoring_case(true), true);
    "!~*"(Text, Text) -> Bool = |it, _| matches(it, Flags::ignoring_case(true), false);
    "like_escape"(Text, Text) -> Text = |it, context| {
        Ok(Datum::Text(context.arena.alloc_str(&with_backslashes(text(it[0]), text(it[1]))?)))
    };
    "similar_to_escape"(Text, Text) -> Text = |it, context| {
        Ok(Datum::Text(context.arena.alloc_str(&of_similar(text(it[0]), text(it[1]))?)))
    };
    "regexp_replace"(Text, Text, Text) -> Text = |it, context| replace_by_flags(it, "", context);
    "regexp_replace"(Text, Text, Text, Text) -> Text = |it, context| replace_by_flags(it, text(it[3]), context);
    "regexp_match"(Text, Text) -> Texts = |it, context| first_match(context, it, "");
    "regexp_match"(Text, Text, Text) -> Texts = |it, context| first_match(context, it, text(it[2]));
    "regexp_split_to_array"(Text, Text) -> Texts = |it, context| split(context, it, "regexp_split_to_array", "");
    "regexp_split_to_array"(Text, Text, Text) -> Texts = |it, context| split(context, it, "regexp_split_to_array", text(it[2]));
    "regexp_like"(Text, Text) -> Bool = |it, _| matches(it, Flags::default(), true);
    "regexp_like"(Text, Text, Text) -> Bool = |it, _| matches(it, first_alone("regexp_like", Flags::of(text(it[2]))?, None)?, true);
    "substring"(Text, Text) -> Text = |it, context| first_part(context, it);
    "^@"(Text, Text) -> Bool = |it, _| Ok(Datum::Bool(text(it[0]).starts_with(text(it[1]))));
    "starts_with"(Text, Text) -> Bool = |it, _| Ok(Datum::Bool(text(it[0]).starts_with(text(it[1]))));
};
