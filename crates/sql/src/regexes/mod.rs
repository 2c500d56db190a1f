//! PostgreSQL's regular expressions, in time that does not explode.
//!
//! They are those of its manual's section 9.7.3: a match begins as early as one can, and then is the longest or the shortest one, as the whole
//! expression prefers. What each group has follows from what its part prefers (`parts`). The crates of `regex` find where a match begins, and with
//! automata that know all ends of matches where it ends.
//!
//! Back references and looking ahead or behind are refused: nothing bounds their time well.

mod automata;
mod classes;
mod parse;
mod parts;
mod tree;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta;
use regex_syntax::hir::Hir;

use self::automata::{Automaton, Builder};
use self::parts::Part;
use self::tree::{Node, Preference};
use crate::error::{SqlError, SqlState};

/// What a compiled expression, and what one of its automata may take, in bytes.
const SIZE: usize = 1 << 20;

/// How expressions are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// All matches are meant, and not the first one.
    pub(crate) is_global: bool,
    ignores_case: bool,
    is_expanded: bool,
    is_literal: bool,
    /// `.` and what is not in brackets are no ends of lines.
    has_lines: bool,
    /// `^` and `$` match at ends of lines.
    has_line_ends: bool,
}

impl Flags {
    pub(crate) fn ignoring_case(ignores_case: bool) -> Self {
        Self { ignores_case, ..Self::default() }
    }

    /// The flags of a function's argument.
    pub(crate) fn of(text: &str) -> Result<Self, SqlError> {
        let mut flags = Self::default();
        for flag in text.chars() {
            if flag == 'g' {
                flags.is_global = true;
            } else if !flags.set(flag)? {
                let message = format!("invalid regular expression option: \"{flag}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        }
        Ok(flags)
    }

    /// Whether there is such a flag.
    fn set(&mut self, flag: char) -> Result<bool, SqlError> {
        match flag {
            'c' => self.ignores_case = false,
            'i' => self.ignores_case = true,
            'm' | 'n' => (self.has_lines, self.has_line_ends) = (true, true),
            'p' => (self.has_lines, self.has_line_ends) = (true, false),
            'q' => self.is_literal = true,
            's' => (self.has_lines, self.has_line_ends) = (false, false),
            't' => self.is_expanded = false,
            'w' => (self.has_lines, self.has_line_ends) = (false, true),
            'x' => self.is_expanded = true,
            'b' | 'e' => return Err(SqlError::unsupported(format!("the regular expression flag {flag}"))),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn invalid(why: &str) -> SqlError {
    SqlError::new(SqlState("2201B"), format!("invalid regular expression: {why}"))
}

/// A compiled expression.
pub(crate) struct Regex {
    node: Node,
    /// How many groups there are.
    groups: usize,
    /// Where matches begin.
    whole: meta::Regex,
    hir: Hir,
    /// Where they end, when that is first asked.
    ends: Option<Automaton>,
    /// What groups have, when that is first asked.
    parts: Option<Part>,
}

thread_local! {
    /// The expression that was used last: most statements have one for all of their rows.
    static LAST: RefCell<Option<(String, Flags, Regex)>> = const { RefCell::new(None) };
}

/// The text with matches in it replaced, as `by` says: `\\1` is a group, and `\\&` all of the match.
pub(crate) fn push_replacement(text: &str, groups: &[Option<Range<usize>>], by: &str, out: &mut String) {
    let mut left = by;
    while let Some(at) = left.find('\\') {
        out.push_str(&left[..at]);
        let behind = left[at + 1..].chars().next();
        let group = match behind {
            Some('&') => Some(0),
            Some(digit @ '1'..='9') => Some(digit as usize - '0' as usize),
            _ => None,
        };
        match (group, behind) {
            (Some(group), _) => {
                let range = groups.get(group).cloned().flatten();
                out.push_str(range.map_or("", |range| &text[range]));
            }
            (None, Some('\\') | None) => out.push('\\'),
            // What is no sign here stays, with its backslash.
            (None, Some(other)) => out.extend(['\\', other]),
        }
        left = &left[at + 1 + behind.map_or(0, char::len_utf8)..];
    }
    out.push_str(left);
}

/// Runs with the expression compiled.
pub(crate) fn with_regex<O>(
    pattern: &str,
    flags: Flags,
    run: impl FnOnce(&mut Regex) -> Result<O, SqlError>,
) -> Result<O, SqlError> {
    LAST.with_borrow_mut(|last| {
        if !last.as_ref().is_some_and(|last| last.0 == pattern && last.1 == flags) {
            *last = Some((pattern.to_owned(), flags, Regex::new(pattern, flags)?));
        }
        let Some((_, _, regex)) = last else { unreachable!("it was put there") };
        run(regex)
    })
}

impl Regex {
    fn new(pattern: &str, flags: Flags) -> Result<Self, SqlError> {
        let parse::Parsed { node, groups } = parse::parse(pattern, flags)?;
        let hir = node.hir();
        let config = meta::Regex::config().nfa_size_limit(Some(SIZE)).hybrid_cache_capacity(SIZE);
        let whole = meta::Regex::builder().configure(config).build_from_hir(&hir);
        let whole = whole.map_err(|_| invalid("regular expression is too complex"))?;
        Ok(Self { node, groups, whole, hir, ends: None, parts: None })
    }

    /// Whether it matches anywhere.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.whole.is_match(text)
    }

    /// The first match that begins here or later.
    pub(crate) fn find(&mut self, text: &str, from: usize) -> Result<Option<Range<usize>>, SqlError> {
        let Some(found) = self.whole.find(Input::new(text).range(from..)) else { return Ok(None) };
        if self.ends.is_none() {
            self.ends = Some(Builder::new().forward(&self.hir)?);
        }
        let Some(ends) = &mut self.ends else { unreachable!("it was put there") };
        let is_shortest = self.node.preference() == Some(Preference::Shortest);
        let end = ends.end(text, (found.start(), text.len()), is_shortest)?;
        Ok(Some(found.start()..end.unwrap_or(found.end())))
    }

    /// What the groups of a match have; the first one is the match itself.
    pub(crate) fn groups(&mut self, text: &str, found: &Range<usize>) -> Result<Vec<Option<Range<usize>>>, SqlError> {
        let mut groups = vec![None; self.groups + 1];
        if self.groups > 0 {
            if self.parts.is_none() {
                self.parts = Some(Part::new(&self.node, &mut Builder::new())?);
            }
            let Some(parts) = &mut self.parts else { unreachable!("it was put there") };
            parts.fill(text, (found.start, found.end), &mut groups)?;
        }
        groups[0] = Some((found.start, found.end));
        Ok(groups.into_iter().map(|it| it.map(|(start, end)| start..end)).collect())
    }

    /// Where to look for the match behind this one: an empty one is left behind by a character.
    pub(crate) fn behind(text: &str, found: &Range<usize>) -> usize {
        let step = if found.is_empty() { text[found.end..].chars().next().map_or(1, char::len_utf8) } else { 0 };
        found.end + step
    }

    /// Calls `each` with the matches from here on, until it says that it has enough.
    pub(crate) fn each(
        &mut self,
        text: &str,
        from: usize,
        mut each: impl FnMut(&mut Self, Range<usize>) -> Result<bool, SqlError>,
    ) -> Result<(), SqlError> {
        let mut from = from;
        while from <= text.len()
            && let Some(found) = self.find(text, from)?
        {
            from = Self::behind(text, &found);
            if !each(self, found)? {
                break;
            }
        }
        Ok(())
    }
}
