//! Regular expressions, and patterns that are rewritten.

use std::cell::RefCell;

use regex::{Regex, RegexBuilder};

use super::strings::check_length;
use super::{Function, functions};
use crate::arrays::Array;
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

/// What a compiled expression may take, in bytes.
const SIZE: usize = 1 << 20;

thread_local! {
    /// The expression that was used last: most statements have one for all of their rows.
    static LAST: RefCell<Option<(String, bool, Regex)>> = const { RefCell::new(None) };
}

pub(super) fn with_regex<O>(pattern: &str, ignores_case: bool, run: impl FnOnce(&Regex) -> O) -> Result<O, SqlError> {
    LAST.with_borrow_mut(|last| {
        let is_last = |last: &(String, bool, Regex)| last.0 == pattern && last.1 == ignores_case;
        if !last.as_ref().is_some_and(is_last) {
            let mut builder = RegexBuilder::new(pattern);
            builder.case_insensitive(ignores_case).dot_matches_new_line(true).size_limit(SIZE);
            let regex = builder.build().map_err(|error| {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                SqlError::new(SqlState("2201B"), format!("invalid regular expression: {why}"))
            })?;
            *last = Some((pattern.to_owned(), ignores_case, regex));
        }
        let Some((_, _, regex)) = last else { unreachable!("it was put there") };
        Ok(run(regex))
    })
}

fn matches<'a>(arguments: &[Datum<'a>], ignores_case: bool, wanted: bool) -> Result<Datum<'a>, SqlError> {
    let (of, pattern) = (text(arguments[0]), text(arguments[1]));
    with_regex(pattern, ignores_case, |regex| Datum::Bool(regex.is_match(of) == wanted))
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

/// A pattern of SIMILAR TO as a regular expression.
fn of_similar(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let escape = escape_of(escape)?;
    let mut made = String::from("^(?:");
    let mut letters = pattern.chars();
    let mut is_in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            letter if Some(letter) == escape => {
                made.push_str(&regex::escape(&letters.next().map(String::from).unwrap_or_default()));
            }
            ']' if is_in_class => (is_in_class, ()) = (false, made.push(']')),
            letter if is_in_class => made.push(letter),
            '[' => (is_in_class, ()) = (true, made.push('[')),
            '%' => made.push_str(".*"),
            '_' => made.push('.'),
            '(' => made.push_str("(?:"),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => made.push(letter),
            letter => made.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    made.push_str(")$");
    Ok(made)
}

/// The replacement of `regexp_replace` as the crate has it: `\1` is a group, and `\&` all of it.
pub(super) fn replacement(of: &str) -> String {
    let mut made = String::new();
    let mut letters = of.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => made.push_str("$$"),
            '\\' => match letters.next() {
                Some(digit @ '0'..='9') => made.push_str(&format!("${{{digit}}}")),
                Some('&') => made.push_str("${0}"),
                Some(other) => made.push(other),
                None => made.push('\\'),
            },
            letter => made.push(letter),
        }
    }
    made
}

fn replaced<'a>(arguments: &[Datum<'a>], flags: &str, context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let (of, pattern, by) = (text(arguments[0]), text(arguments[1]), replacement(text(arguments[2])));
    if let Some(flag) = flags.chars().find(|flag| !['g', 'i'].contains(flag)) {
        return Err(SqlError::unsupported(format!("the regular expression flag {flag}")));
    }
    let count = usize::from(!flags.contains('g'));
    let made = with_regex(pattern, flags.contains('i'), |regex| {
        let (mut made, mut end) = (String::new(), 0);
        let most = if count == 0 { usize::MAX } else { count };
        for found in regex.captures_iter(of).take(most) {
            let whole = found.get_match();
            made.push_str(&of[end..whole.start()]);
            found.expand(&by, &mut made);
            check_length(made.len())?;
            end = whole.end();
        }
        made.push_str(&of[end..]);
        Ok::<_, SqlError>(made)
    })??;
    Ok(Datum::Text(context.arena.alloc_str(&made)))
}

/// Flags of regular expressions: whether all matches count, and whether case does not.
pub(super) fn flags_of(flags: &str) -> Result<(bool, bool), SqlError> {
    if let Some(flag) = flags.chars().find(|flag| !['g', 'i', 'c', 's'].contains(flag)) {
        return Err(SqlError::unsupported(format!("the regular expression flag {flag}")));
    }
    Ok((flags.contains('g'), flags.contains('i')))
}

/// The parts of a text between matches.
pub(super) fn split<'a>(context: &Context<'a>, arguments: &[Datum<'a>], flags: &str) -> Result<Datum<'a>, SqlError> {
    let (of, pattern) = (text(arguments[0]), text(arguments[1]));
    let (_, ignores_case) = flags_of(flags)?;
    let parts: Vec<_> = with_regex(pattern, ignores_case, |regex| {
        let mut parts = Vec::new();
        let mut start = 0;
        // An empty match at the beginning or the end, or behind another one, splits nothing.
        for found in regex.find_iter(of).filter(|it| !it.is_empty() || it.start() > 0 && it.start() < of.len()) {
            if found.is_empty() && found.start() == start {
                continue;
            }
            parts.push(Datum::Text(&of[start..found.start()]));
            start = found.end();
        }
        parts.push(Datum::Text(&of[start..]));
        parts
    })?;
    Ok(Array::list(context.arena, &parts))
}

/// What groups match, or all of a match where there are no groups.
fn groups<'a>(of: &'a str, found: &regex::Captures<'_>) -> Vec<Datum<'a>> {
    let at = |group: Option<regex::Match<'_>>| group.map_or(Datum::Null, |it| Datum::Text(&of[it.range()]));
    if found.len() == 1 { vec![at(found.get(0))] } else { (1..found.len()).map(|group| at(found.get(group))).collect() }
}

/// The groups of each match, as an array of arrays.
pub(super) fn all_matches<'a>(
    context: &Context<'a>,
    arguments: &[Datum<'a>],
    flags: &str,
) -> Result<Datum<'a>, SqlError> {
    let (of, pattern) = (text(arguments[0]), text(arguments[1]));
    let (is_all, ignores_case) = flags_of(flags)?;
    let most = if is_all { usize::MAX } else { 1 };
    let found: Vec<_> = with_regex(pattern, ignores_case, |regex| {
        regex.captures_iter(of).take(most).map(|found| Array::list(context.arena, &groups(of, &found))).collect()
    })?;
    Ok(Array::list(context.arena, &found))
}

/// The groups of the first match.
fn first_match<'a>(context: &Context<'a>, arguments: &[Datum<'a>], flags: &str) -> Result<Datum<'a>, SqlError> {
    if flags.contains('g') {
        let message = "regexp_match() does not support the \"global\" option";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Use the regexp_matches function instead."));
    }
    let Datum::Array(found) = all_matches(context, arguments, flags)? else { return Ok(Datum::Null) };
    Ok(found.items().next().unwrap_or(Datum::Null))
}

/// What the first group of the first match has, or all of it where there are no groups.
fn first_part<'a>(context: &Context<'a>, arguments: &[Datum<'a>]) -> Result<Datum<'a>, SqlError> {
    match first_match(context, arguments, "")? {
        Datum::Array(groups) => Ok(groups.items().next().unwrap_or(Datum::Null)),
        none => Ok(none),
    }
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "~"(Text, Text) -> Bool = |it, _| matches(it, false, true);
    "!~"(Text, Text) -> Bool = |it, _| matches(it, false, false);
    "~*"(Text, Text) -> Bool = |it, _| matches(it, true, true);
    "!~*"(Text, Text) -> Bool = |it, _| matches(it, true, false);
    "like_escape"(Text, Text) -> Text = |it, context| {
        Ok(Datum::Text(context.arena.alloc_str(&with_backslashes(text(it[0]), text(it[1]))?)))
    };
    "similar_to_escape"(Text, Text) -> Text = |it, context| {
        Ok(Datum::Text(context.arena.alloc_str(&of_similar(text(it[0]), text(it[1]))?)))
    };
    "regexp_replace"(Text, Text, Text) -> Text = |it, context| replaced(it, "", context);
    "regexp_replace"(Text, Text, Text, Text) -> Text = |it, context| replaced(it, text(it[3]), context);
    "regexp_match"(Text, Text) -> Texts = |it, context| first_match(context, it, "");
    "regexp_match"(Text, Text, Text) -> Texts = |it, context| first_match(context, it, text(it[2]));
    "regexp_split_to_array"(Text, Text) -> Texts = |it, context| split(context, it, "");
    "regexp_split_to_array"(Text, Text, Text) -> Texts = |it, context| split(context, it, text(it[2]));
    "regexp_like"(Text, Text) -> Bool = |it, _| matches(it, false, true);
    "regexp_like"(Text, Text, Text) -> Bool = |it, _| matches(it, flags_of(text(it[2]))?.1, true);
    "substring"(Text, Text) -> Text = |it, context| first_part(context, it);
    "^@"(Text, Text) -> Bool = |it, _| Ok(Datum::Bool(text(it[0]).starts_with(text(it[1]))));
    "starts_with"(Text, Text) -> Bool = |it, _| Ok(Datum::Bool(text(it[0]).starts_with(text(it[1]))));
};
