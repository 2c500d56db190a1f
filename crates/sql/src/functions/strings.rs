//! Texts and bytes.

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

fn made<'a>(context: &Context<'a>, text: &str) -> Result<Datum<'a>, SqlError> {
    Ok(Datum::Text(context.arena.alloc_str(text)))
}

fn joined<'a>(context: &Context<'a>, parts: &[&str]) -> Result<Datum<'a>, SqlError> {
    let length = parts.iter().map(|part| part.len()).sum();
    check_length(length)?;
    let mut all = bumpalo::collections::String::with_capacity_in(length, context.arena);
    parts.iter().for_each(|part| all.push_str(part));
    Ok(Datum::Text(all.into_bump_str()))
}

/// The letter's other case, where that is one letter.
fn upper(letter: char) -> char {
    let mut upper = letter.to_uppercase();
    upper.next().filter(|_| upper.len() == 0).unwrap_or(letter)
}

fn lower(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    lower.next().filter(|_| lower.len() == 0).unwrap_or(letter)
}

/// From the character at this position, which counts from 1 and may lie before it, so many characters.
fn substring<'a>(text: &'a str, start: i64, count: Option<i64>) -> Result<Datum<'a>, SqlError> {
    if count.is_some_and(|count| count < 0) {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let end = count.map_or(i64::MAX, |count| start.saturating_add(count));
    let at = |position: i64| {
        let skipped = usize::try_from(position - 1).unwrap_or(0);
        text.char_indices().nth(skipped).map_or(text.len(), |(at, _)| at)
    };
    let (first, last) = (at(start.max(1)), at(end.max(1)));
    Ok(Datum::Text(&text[first..last.max(first)]))
}

/// Whether a text fits a pattern of `%` and `_`. Bounded by the product of both lengths.
pub(crate) fn like(text: &str, pattern: &str, escape: Option<char>, ignores_case: bool) -> Result<bool, SqlError> {
    let folded = |of: &str| -> Vec<char> {
        if ignores_case { of.chars().flat_map(char::to_lowercase).collect() } else { of.chars().collect() }
    };
    let text = folded(text);
    /// A part of a pattern.
    enum Part {
        Any,
        One,
        Letter(char),
        /// The escape character, with nothing behind it.
        Nothing,
    }
    let mut parts = Vec::new();
    let mut letters = folded(pattern).into_iter();
    while let Some(letter) = letters.next() {
        parts.push(if Some(letter) == escape {
            letters.next().map_or(Part::Nothing, Part::Letter)
        } else {
            match letter {
                '%' => Part::Any,
                '_' => Part::One,
                letter => Part::Letter(letter),
            }
        });
    }
    // Goes back to the last `%` alone: earlier ones have nothing to gain.
    let (mut at, mut part, mut back) = (0, 0, None);
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                back = Some((part, at));
                part += 1;
            }
            Some(Part::One) => (at, part) = (at + 1, part + 1),
            // It is met only where the rest of the pattern fits.
            Some(Part::Nothing) => {
                let message = "LIKE pattern must not end with escape character";
                return Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, message));
            }
            Some(Part::Letter(letter)) if *letter == text[at] => (at, part) = (at + 1, part + 1),
            _ => match back {
                Some((any, from)) => {
                    back = Some((any, from + 1));
                    (at, part) = (from + 1, any + 1);
                }
                None => return Ok(false),
            },
        }
    }
    Ok(parts[part..].iter().all(|part| matches!(part, Part::Any)))
}

/// The longest text that a function makes, in bytes.
const LONGEST: usize = 1 << 26;

/// Whether a text of so many bytes is made.
pub(super) fn check_length(bytes: usize) -> Result<(), SqlError> {
    if bytes <= LONGEST {
        return Ok(());
    }
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large"))
}

fn padded<'a>(context: &Context<'a>, arguments: &[Datum<'a>], is_left: bool) -> Result<Datum<'a>, SqlError> {
    let (of, length) = (text(arguments[0]), int(arguments[1]).max(0));
    let fill = arguments.get(2).map_or(" ", |fill| text(*fill));
    if length > 1 << 24 {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large"));
    }
    let count = of.chars().count() as i64;
    if count >= length || fill.is_empty() {
        return substring(of, 1, Some(length.min(count)));
    }
    let filling: String = fill.chars().cycle().take((length - count) as usize).collect();
    if is_left { joined(context, &[&filling, of]) } else { joined(context, &[of, &filling]) }
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "||"(Text, Text) -> Text = |it, context| joined(context, &[text(it[0]), text(it[1])]);
    "||"(Bytea, Bytea) -> Bytea = |it, context| {
        let [Datum::Bytes(a), Datum::Bytes(b)] = it else { unreachable!("bytes") };
        check_length(a.len() + b.len())?;
        let mut all = bumpalo::collections::Vec::with_capacity_in(a.len() + b.len(), context.arena);
        all.extend_from_slice(a);
        all.extend_from_slice(b);
        Ok(Datum::Bytes(all.into_bump_slice()))
    };
    "~~"(Text, Text) -> Bool = |it, _| like(text(it[0]), text(it[1]), Some('\\'), false).map(Datum::Bool);
    "!~~"(Text, Text) -> Bool = |it, _| like(text(it[0]), text(it[1]), Some('\\'), false).map(|it| Datum::Bool(!it));
    "~~*"(Text, Text) -> Bool = |it, _| like(text(it[0]), text(it[1]), Some('\\'), true).map(Datum::Bool);
    "!~~*"(Text, Text) -> Bool = |it, _| like(text(it[0]), text(it[1]), Some('\\'), true).map(|it| Datum::Bool(!it));
    "length"(Text) -> Int4 = |it, _| Ok(Datum::Int(text(it[0]).chars().count() as i64));
    "length"(Bytea) -> Int4 = |it, _| {
        let Datum::Bytes(bytes) = it[0] else { unreachable!("bytes") };
        Ok(Datum::Int(bytes.len() as i64))
    };
    "char_length"(Text) -> Int4 = |it, _| Ok(Datum::Int(text(it[0]).chars().count() as i64));
    "character_length"(Text) -> Int4 = |it, _| Ok(Datum::Int(text(it[0]).chars().count() as i64));
    "octet_length"(Text) -> Int4 = |it, _| Ok(Datum::Int(text(it[0]).len() as i64));
    "lower"(Text) -> Text = |it, context| made(context, &text(it[0]).chars().map(lower).collect::<String>());
    "upper"(Text) -> Text = |it, context| made(context, &text(it[0]).chars().map(upper).collect::<String>());
    "initcap"(Text) -> Text = |it, context| {
        let mut is_inside = false;
        let letters = text(it[0]).chars().flat_map(|letter| {
            let was_inside = std::mem::replace(&mut is_inside, letter.is_alphanumeric());
            Some(if was_inside { lower(letter) } else { upper(letter) })
        });
        made(context, &letters.collect::<String>())
    };
    "substr"(Text, Int4) -> Text = |it, _| substring(text(it[0]), int(it[1]), None);
    "substr"(Text, Int4, Int4) -> Text = |it, _| substring(text(it[0]), int(it[1]), Some(int(it[2])));
    "substring"(Text, Int4) -> Text = |it, _| substring(text(it[0]), int(it[1]), None);
    "substring"(Text, Int4, Int4) -> Text = |it, _| substring(text(it[0]), int(it[1]), Some(int(it[2])));
    "left"(Text, Int4) -> Text = |it, _| {
        let (of, count) = (text(it[0]), int(it[1]));
        let count = if count < 0 { (of.chars().count() as i64 + count).max(0) } else { count };
        substring(of, 1, Some(count))
    };
    "right"(Text, Int4) -> Text = |it, _| {
        let (of, count) = (text(it[0]), int(it[1]));
        let all = of.chars().count() as i64;
        let skipped = if count < 0 { -count } else { (all - count).max(0) };
        substring(of, skipped.min(all) + 1, None)
    };
    "strpos"(Text, Text) -> Int4 = |it, _| {
        let (of, part) = (text(it[0]), text(it[1]));
        Ok(Datum::Int(of.find(part).map_or(0, |at| of[..at].chars().count() as i64 + 1)))
    };
    "replace"(Text, Text, Text) -> Text = |it, context| {
        let (of, from, to) = (text(it[0]), text(it[1]), text(it[2]));
        if from.is_empty() {
            return Ok(it[0]);
        }
        let count = if to.len() > from.len() { of.matches(from).count() } else { 0 };
        check_length(of.len().saturating_add(count.saturating_mul(to.len())))?;
        made(context, &of.replace(from, to))
    };
    "repeat"(Text, Int4) -> Text = |it, context| {
        let (of, count) = (text(it[0]), int(it[1]).max(0) as usize);
        check_length(of.len().saturating_mul(count))?;
        made(context, &of.repeat(count))
    };
    "reverse"(Text) -> Text = |it, context| made(context, &text(it[0]).chars().rev().collect::<String>());
    "btrim"(Text) -> Text = |it, _| Ok(Datum::Text(text(it[0]).trim_matches(' ')));
    "ltrim"(Text) -> Text = |it, _| Ok(Datum::Text(text(it[0]).trim_start_matches(' ')));
    "rtrim"(Text) -> Text = |it, _| Ok(Datum::Text(text(it[0]).trim_end_matches(' ')));
    "btrim"(Text, Text) -> Text = |it, _| {
        let set = text(it[1]);
        Ok(Datum::Text(text(it[0]).trim_matches(|letter| set.contains(letter))))
    };
    "ltrim"(Text, Text) -> Text = |it, _| {
        let set = text(it[1]);
        Ok(Datum::Text(text(it[0]).trim_start_matches(|letter| set.contains(letter))))
    };
    "rtrim"(Text, Text) -> Text = |it, _| {
        let set = text(it[1]);
        Ok(Datum::Text(text(it[0]).trim_end_matches(|letter| set.contains(letter))))
    };
    "lpad"(Text, Int4) -> Text = |it, context| padded(context, it, true);
    "lpad"(Text, Int4, Text) -> Text = |it, context| padded(context, it, true);
    "rpad"(Text, Int4) -> Text = |it, context| padded(context, it, false);
    "rpad"(Text, Int4, Text) -> Text = |it, context| padded(context, it, false);
    "split_part"(Text, Text, Int4) -> Text = |it, _| {
        let (of, by, at) = (text(it[0]), text(it[1]), int(it[2]));
        if at == 0 {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
        }
        let skipped = at.unsigned_abs() as usize - 1;
        let part = match by {
            "" => Some(of).filter(|_| skipped == 0),
            _ if at > 0 => of.split(by).nth(skipped),
            _ => of.rsplit(by).nth(skipped),
        };
        Ok(Datum::Text(part.unwrap_or_default()))
    };
    "ascii"(Text) -> Int4 = |it, _| Ok(Datum::Int(text(it[0]).chars().next().map_or(0, |it| i64::from(u32::from(it)))));
    "chr"(Int4) -> Text = |it, context| {
        let letter = u32::try_from(int(it[0])).ok().filter(|it| *it > 0).and_then(char::from_u32);
        let why = if int(it[0]) == 0 { "null character not permitted" } else { "requested character is not valid" };
        let bad = || SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, why);
        made(context, letter.ok_or_else(bad)?.encode_utf8(&mut [0; 4]))
    };
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (text, pattern, wanted) in [
            ("", "", true),
            ("", "%", true),
            ("abc", "a%", true),
            ("abc", "%b%", true),
            ("abc", "_b_", true),
            ("abc", "_b", false),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("aaab", "%aab", true),
            ("äöü", "_ö_", true),
        ] {
            assert_eq!(like(text, pattern, Some('\\'), false).unwrap(), wanted, "{text} {pattern}");
        }
        assert!(like("ABC", "a%c", Some('\\'), true).unwrap());
        assert!(like("a", "\\", Some('\\'), false).is_err());
        // Quadratic at most: with going back to every `%` this would not end.
        assert!(!like(&"a".repeat(2000), &("%a".repeat(500) + "b"), Some('\\'), false).unwrap());
    }
}
