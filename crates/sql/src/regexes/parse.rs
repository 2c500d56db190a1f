//! The syntax of PostgreSQL's advanced regular expressions.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, Look};

use super::classes;
use super::tree::{Node, Preference};
use super::{Flags, invalid};
use crate::error::SqlError;

/// How deep parentheses nest.
const DEPTH: usize = 200;

/// The most repetitions that can be written.
const MOST_REPETITIONS: u32 = 255;

pub(super) struct Parsed {
    pub(super) node: Node,
    /// How many groups there are.
    pub(super) groups: usize,
}

pub(super) fn parse(pattern: &str, flags: Flags) -> Result<Parsed, SqlError> {
    let mut parser = Parser { left: pattern, flags, groups: 0, depth: 0 };
    if let Some(rest) = pattern.strip_prefix("***=") {
        return Ok(Parsed { node: parser.literal(rest), groups: 0 });
    }
    if let Some(rest) = pattern.strip_prefix("***:") {
        parser.left = rest;
    } else if pattern.starts_with("***") {
        return Err(operand());
    }
    if flags.is_literal {
        let text = parser.left;
        return Ok(Parsed { node: parser.literal(text), groups: 0 });
    }
    parser.embedded_options()?;
    if parser.flags.is_literal {
        let text = parser.left;
        return Ok(Parsed { node: parser.literal(text), groups: 0 });
    }
    let node = parser.choice()?;
    match parser.peek() {
        None => Ok(Parsed { node, groups: parser.groups }),
        Some(_) => Err(invalid("parentheses () not balanced")),
    }
}

fn operand() -> SqlError {
    invalid("quantifier operand invalid")
}

fn brackets() -> SqlError {
    invalid("brackets [] not balanced")
}

fn escape() -> SqlError {
    invalid("invalid escape \\ sequence")
}

/// What an escape stands for.
enum Escaped {
    Letter(char),
    Class(ClassUnicode),
    Place(Look),
}

struct Parser<'p> {
    left: &'p str,
    flags: Flags,
    groups: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.left.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.left = &self.left[next.len_utf8()..];
        Some(next)
    }

    fn takes(&mut self, text: &str) -> bool {
        self.left.strip_prefix(text).map(|rest| self.left = rest).is_some()
    }

    /// `(?i)` and its like in front of all else.
    fn embedded_options(&mut self) -> Result<(), SqlError> {
        let Some(rest) = self.left.strip_prefix("(?") else { return Ok(()) };
        if !rest.starts_with(|next: char| next.is_ascii_alphabetic()) {
            return Ok(());
        }
        let (options, rest) = rest.split_once(')').ok_or_else(|| invalid("invalid embedded option"))?;
        self.left = rest;
        for option in options.chars() {
            if !self.flags.set(option)? {
                return Err(invalid("invalid embedded option"));
            }
        }
        Ok(())
    }

    /// Goes on behind comments, and behind blanks where they do not count.
    fn skip(&mut self) {
        loop {
            if self.flags.is_expanded {
                self.left = self.left.trim_start();
                if self.left.starts_with('#') {
                    self.left = self.left.find('\n').map_or("", |end| &self.left[end..]);
                    continue;
                }
            }
            if !self.left.starts_with("(?#") {
                return;
            }
            self.left = self.left.find(')').map_or("", |end| &self.left[end + 1..]);
        }
    }

    fn literal(&self, text: &str) -> Node {
        Node::Sequence(text.chars().map(|letter| self.letter(letter)).collect())
    }

    fn letter(&self, letter: char) -> Node {
        self.class(ClassUnicode::new([ClassUnicodeRange::new(letter, letter)]))
    }

    fn class(&self, mut class: ClassUnicode) -> Node {
        if self.flags.ignores_case {
            class.case_fold_simple();
        }
        Node::Letter(class)
    }

    fn choice(&mut self) -> Result<Node, SqlError> {
        let mut branches = vec![self.branch()?];
        while self.takes("|") {
            branches.push(self.branch()?);
        }
        Ok(if branches.len() == 1 { branches.remove(0) } else { Node::Either(branches) })
    }

    fn branch(&mut self) -> Result<Node, SqlError> {
        let mut parts = Vec::new();
        loop {
            self.skip();
            match self.peek() {
                None | Some('|' | ')') => break,
                Some(_) => parts.push(self.quantified()?),
            }
        }
        Ok(match parts.len() {
            0 => Node::Empty,
            1 => parts.remove(0),
            _ => Node::Sequence(parts),
        })
    }

    fn quantified(&mut self) -> Result<Node, SqlError> {
        let atom = self.atom()?;
        self.skip();
        let is_place = matches!(atom, Node::Place(_));
        let Some((least, most, is_exact)) = self.quantifier()? else { return Ok(atom) };
        if is_place {
            return Err(operand());
        }
        let is_shortest = self.takes("?");
        let prefers = if is_shortest { Preference::Shortest } else { Preference::Longest };
        self.skip();
        if self.quantifier()?.is_some() {
            return Err(operand());
        }
        Ok(Node::Repeated { of: Box::new(atom), least, most, prefers: (!is_exact).then_some(prefers) })
    }

    /// The least and the most number of repetitions, and whether one number was given alone.
    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>, bool)>, SqlError> {
        let bounds = match self.peek() {
            Some('*') => (0, None, false),
            Some('+') => (1, None, false),
            Some('?') => (0, Some(1), false),
            Some('{') if self.left[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                return self.bounds().map(Some);
            }
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(bounds))
    }

    fn bounds(&mut self) -> Result<(u32, Option<u32>, bool), SqlError> {
        let wrong = || invalid("invalid repetition count(s)");
        let end = self.left.find('}').ok_or_else(|| invalid("braces {} not balanced"))?;
        let inner = &self.left[1..end];
        self.left = &self.left[end + 1..];
        let number = |digits: &str| {
            let value = digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse::<u32>().ok()).flatten();
            value.filter(|it| *it <= MOST_REPETITIONS).ok_or_else(wrong)
        };
        match inner.split_once(',') {
            None => number(inner).map(|count| (count, Some(count), true)),
            Some((least, "")) => Ok((number(least)?, None, false)),
            Some((least, most)) => {
                let (least, most) = (number(least)?, number(most)?);
                if least <= most { Ok((least, Some(most), false)) } else { Err(wrong()) }
            }
        }
    }

    fn atom(&mut self) -> Result<Node, SqlError> {
        match self.next() {
            Some('(') => self.group(),
            Some('[') => self.bracket(),
            Some('.') => {
                let mut all = ClassUnicode::empty();
                all.negate();
                if self.flags.has_lines {
                    all.difference(&classes::one('\n'));
                }
                Ok(Node::Letter(all))
            }
            Some('^') => Ok(Node::Place(if self.flags.has_line_ends { Look::StartLF } else { Look::Start })),
            Some('$') => Ok(Node::Place(if self.flags.has_line_ends { Look::EndLF } else { Look::End })),
            Some('\\') => Ok(match self.escape()? {
                Escaped::Letter(letter) => self.letter(letter),
                Escaped::Class(class) => Node::Letter(class),
                Escaped::Place(look) => Node::Place(look),
            }),
            Some('*' | '+' | '?') => Err(operand()),
            Some('{') if self.left.starts_with(|next: char| next.is_ascii_digit()) => Err(operand()),
            Some(letter) => Ok(self.letter(letter)),
            None => Ok(Node::Empty),
        }
    }

    fn group(&mut self) -> Result<Node, SqlError> {
        let number = if let Some(rest) = self.left.strip_prefix('?') {
            if ["=", "!", "<=", "<!"].iter().any(|it| rest.starts_with(it)) {
                return Err(SqlError::unsupported("looking ahead or behind in a regular expression"));
            }
            self.left = rest.strip_prefix(':').ok_or_else(operand)?;
            None
        } else {
            self.groups += 1;
            Some(self.groups)
        };
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(invalid("regular expression is too complex"));
        }
        let inner = self.choice()?;
        self.depth -= 1;
        if !self.takes(")") {
            return Err(invalid("parentheses () not balanced"));
        }
        Ok(Node::Group(number, Box::new(inner)))
    }

    /// What stands behind a backslash.
    fn escape(&mut self) -> Result<Escaped, SqlError> {
        let letter = self.next().ok_or_else(escape)?;
        if !letter.is_ascii_alphanumeric() {
            return Ok(Escaped::Letter(letter));
        }
        Ok(match letter {
            'a' => Escaped::Letter('\x07'),
            'b' => Escaped::Letter('\x08'),
            'B' => Escaped::Letter('\\'),
            'c' => Escaped::Letter(char::from((self.next().ok_or_else(escape)? as u32 & 0x1f) as u8)),
            'e' => Escaped::Letter('\x1b'),
            'f' => Escaped::Letter('\x0c'),
            'n' => Escaped::Letter('\n'),
            'r' => Escaped::Letter('\r'),
            't' => Escaped::Letter('\t'),
            'v' => Escaped::Letter('\x0b'),
            'u' => Escaped::Letter(self.digits(16, 4, 4)?),
            'U' => Escaped::Letter(self.digits(16, 8, 8)?),
            'x' => Escaped::Letter(self.digits(16, 1, 255)?),
            '0' => {
                Escaped::Letter(if self.peek().is_some_and(|it| it.is_digit(8)) { self.digits(8, 1, 2)? } else { '\0' })
            }
            'd' | 's' | 'w' => Escaped::Class(classes::short(letter)),
            'D' | 'S' | 'W' => {
                let mut class = classes::short(letter.to_ascii_lowercase());
                class.negate();
                if self.flags.has_lines {
                    class.difference(&classes::one('\n'));
                }
                Escaped::Class(class)
            }
            'A' => Escaped::Place(Look::Start),
            'Z' => Escaped::Place(Look::End),
            'm' => Escaped::Place(Look::WordStartUnicode),
            'M' => Escaped::Place(Look::WordEndUnicode),
            'y' => Escaped::Place(Look::WordUnicode),
            'Y' => Escaped::Place(Look::WordUnicodeNegate),
            '1'..='9' => return Err(self.back_reference(letter)),
            _ => return Err(escape()),
        })
    }

    fn back_reference(&self, digit: char) -> SqlError {
        if digit.to_digit(10).is_some_and(|number| number as usize > self.groups) {
            return invalid("invalid backreference number");
        }
        SqlError::unsupported("a back reference in a regular expression")
    }

    /// The character whose number is given by so many digits.
    fn digits(&mut self, base: u32, least: usize, most: usize) -> Result<char, SqlError> {
        let count = self.left.chars().take(most).take_while(|it| it.is_digit(base)).count();
        if count < least {
            return Err(escape());
        }
        let (digits, rest) = self.left.split_at(count);
        self.left = rest;
        u32::from_str_radix(digits, base).ok().and_then(char::from_u32).ok_or_else(escape)
    }

    fn bracket(&mut self) -> Result<Node, SqlError> {
        for (text, look) in [("[:<:]]", Look::WordStartUnicode), ("[:>:]]", Look::WordEndUnicode)] {
            if self.takes(text) {
                return Ok(Node::Place(look));
            }
        }
        let is_negated = self.takes("^");
        let mut class = ClassUnicode::empty();
        let mut is_first = true;
        while is_first || !self.left.starts_with(']') {
            self.bracket_item(&mut class)?;
            is_first = false;
        }
        self.next();
        if self.flags.ignores_case {
            class.case_fold_simple();
        }
        if is_negated {
            class.negate();
            if self.flags.has_lines {
                class.difference(&classes::one('\n'));
            }
        }
        Ok(Node::Letter(class))
    }

    /// A character, a range or a named class.
    fn bracket_item(&mut self, class: &mut ClassUnicode) -> Result<(), SqlError> {
        if self.takes("[:") {
            let (name, rest) = self.left.split_once(":]").ok_or_else(brackets)?;
            self.left = rest;
            let named = classes::named(name, self.flags.ignores_case);
            class.union(&named.ok_or_else(|| invalid("invalid character class"))?);
            return Ok(());
        }
        let first = match self.bracket_letter()? {
            Escaped::Letter(letter) => letter,
            Escaped::Class(escaped) => {
                class.union(&escaped);
                return Ok(());
            }
            Escaped::Place(_) => return Err(escape()),
        };
        let is_range = self.left.starts_with('-') && !self.left[1..].starts_with(']');
        let last = if is_range {
            self.next();
            match self.bracket_letter()? {
                Escaped::Letter(letter) => letter,
                _ => return Err(invalid("invalid character range")),
            }
        } else {
            first
        };
        if last < first {
            return Err(invalid("invalid character range"));
        }
        class.push(ClassUnicodeRange::new(first, last));
        Ok(())
    }

    fn bracket_letter(&mut self) -> Result<Escaped, SqlError> {
        for (open, close) in [("[.", ".]"), ("[=", "=]")] {
            if self.takes(open) {
                let (name, rest) = self.left.split_once(close).ok_or_else(brackets)?;
                self.left = rest;
                let mut letters = name.chars();
                return match (letters.next(), letters.next()) {
                    (Some(letter), None) => Ok(Escaped::Letter(letter)),
                    _ => Err(invalid("invalid collating element")),
                };
            }
        }
        match self.next().ok_or_else(brackets)? {
            '\\' => self.escape(),
            letter => Ok(Escaped::Letter(letter)),
        }
    }
}
