//! Text into statements: where the one that is being typed ends.
//!
//! Quotes, dollar quotes, comments and parentheses hide semicolons, as in psql. What is not complete stays for the next line.

/// What the text of a shell is made of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// A statement, with its semicolon.
    Statement(&'t str),
    /// What begins a statement in front of a backslash, which is a command about it: `SELECT 1 \\gx`.
    Begun(&'t str),
    /// From a backslash outside of quotes to the end of its line, without that.
    Command(&'t str),
}

/// What is open at the end of a text, for the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    /// Nothing but blanks and comments.
    Nothing,
    Statement,
    Quote(char),
    Dollar,
    Comment,
    Parenthesis,
}

/// How far a text was looked through that has no whole piece yet: before the last part of it that may go on.
#[derive(Clone, Copy, Default)]
pub(super) struct Scan {
    at: usize,
    depth: usize,
    has_words: bool,
    routine: Routine,
}

/// How far a definition with a body between BEGIN ATOMIC and END has come, whose semicolons end no statement.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Routine {
    #[default]
    Start,
    /// Behind CREATE, in so many words.
    Created(u8),
    /// In the head of a procedure, or behind its body.
    Head,
    /// Behind a BEGIN there.
    Begun,
    /// Within BEGIN, with so many CASE and BEGIN around.
    Body(u32),
    Other,
}

impl Routine {
    fn next(self, word: &str) -> Self {
        let is = |wanted: &str| word.eq_ignore_ascii_case(wanted);
        match self {
            Self::Start if is("create") => Self::Created(0),
            Self::Created(_) if is("procedure") || is("function") => Self::Head,
            Self::Created(words) if words < 2 => Self::Created(words + 1),
            Self::Start | Self::Created(_) | Self::Other => Self::Other,
            Self::Begun if is("atomic") => Self::Body(0),
            Self::Head | Self::Begun if is("begin") => Self::Begun,
            Self::Head | Self::Begun => Self::Head,
            Self::Body(depth) if is("case") || is("begin") => Self::Body(depth + 1),
            Self::Body(0) if is("end") => Self::Head,
            Self::Body(depth) if is("end") => Self::Body(depth - 1),
            Self::Body(depth) => Self::Body(depth),
        }
    }
}

/// The next piece of a text and what is behind it. `Err`: there is none yet, and what is open; it goes on there with the same text and more.
pub(super) fn next_piece<'t>(text: &'t str, scan: &mut Scan) -> Result<(Piece<'t>, &'t str), Open> {
    let start = text.len() - text.trim_start().len();
    let rest = &text[start..];
    if rest.starts_with('\\') {
        let end = rest.find('\n').unwrap_or(rest.len());
        let behind = rest.get(end + 1..).unwrap_or_default();
        return Ok((Piece::Command(rest[..end].trim_end()), behind));
    }
    let (end, has_words) = end_of_statement(rest, scan)?;
    *scan = Scan::default();
    if !has_words && !rest[..end].ends_with(';') {
        // Comments before a command.
        return next_piece(&rest[end..], scan);
    }
    let piece = if rest[..end].ends_with(';') { Piece::Statement(&rest[..end]) } else { Piece::Begun(&rest[..end]) };
    Ok((piece, &rest[end..]))
}

/// Where the first statement of a text ends: behind its semicolon, or before the backslash of a command; and whether it has more than comments.
fn end_of_statement(text: &str, scan: &mut Scan) -> Result<(usize, bool), Open> {
    let Scan { mut at, mut depth, mut has_words, mut routine } = *scan;
    while let Some(letter) = text[at..].chars().next() {
        *scan = Scan { at, depth, has_words, routine };
        let rest = &text[at..];
        let hidden = match letter {
            '\'' => Some((quoted(rest, '\'', is_escaped(text, at)), Open::Quote('\''))),
            '"' => Some((quoted(rest, '"', false), Open::Quote('"'))),
            '-' if rest.starts_with("--") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '/' if rest.starts_with("/*") => Some((comment(rest), Open::Comment)),
            '$' if !is_in_word(text, at) && dollar_tag(rest).is_some() => Some((dollar(rest), Open::Dollar)),
            _ => None,
        };
        if let Some((end, open)) = hidden {
            has_words |= open != Open::Comment;
            at += end.ok_or(open)?;
            continue;
        }
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ';' if depth == 0 && !matches!(routine, Routine::Body(_)) => return Ok((at + 1, has_words)),
            '\\' => return Ok((at, has_words)),
            _ => {}
        }
        has_words |= !letter.is_whitespace();
        if letter.is_alphabetic() && !is_in_word(text, at) {
            let end = rest.find(|it: char| !(it.is_alphanumeric() || it == '_' || it == '$')).unwrap_or(rest.len());
            routine = routine.next(&rest[..end]);
        }
        at += letter.len_utf8();
    }
    Err(match (has_words, depth) {
        (false, _) => Open::Nothing,
        (true, 0) => Open::Statement,
        (true, _) => Open::Parenthesis,
    })
}

/// Whether the letter at a position goes on with a word.
fn is_in_word(text: &str, at: usize) -> bool {
    text[..at].chars().next_back().is_some_and(|before| before.is_alphanumeric() || before == '_' || before == '$')
}

/// Whether the quote at a position is that of `E'…'`, in which a backslash hides what follows.
fn is_escaped(text: &str, at: usize) -> bool {
    text[..at].ends_with(['e', 'E']) && !is_in_word(text, at - 1)
}

/// The length of a quoted text; two quotes are one in it.
fn quoted(text: &str, quote: char, has_escapes: bool) -> Option<usize> {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if has_escapes && letter == '\\' {
            letters.next();
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + 1);
        }
    }
    None
}

/// The length of a comment; comments nest.
pub(super) fn comment(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 {
        let next = text[at..].find(['*', '/'])?;
        at += next;
        let (change, length) = match &text[at..] {
            rest if rest.starts_with("*/") => (-1, 2),
            rest if rest.starts_with("/*") => (1, 2),
            _ => (0, 1),
        };
        depth += change;
        at += length;
    }
    Some(at)
}

/// `$tag$` at the beginning of a text.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 2;
    let name = &text[1..end - 1];
    let is_tag = !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    is_tag.then(|| &text[..end])
}

fn dollar(text: &str) -> Option<usize> {
    let tag = dollar_tag(text)?;
    text[tag.len()..].find(tag).map(|end| end + 2 * tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(mut text: &str) -> (Vec<String>, Open) {
        let mut pieces = Vec::new();
        loop {
            match next_piece(text, &mut Scan::default()) {
                Ok((Piece::Statement(piece) | Piece::Begun(piece) | Piece::Command(piece), rest)) => {
                    pieces.push(piece.to_owned());
                    text = rest;
                }
                Err(open) => return (pieces, open),
            }
        }
    }

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes() {
        let whole = [
            "SELECT 'a;''b;';",
            "SELECT \"a;\"\"\";",
            "SELECT $$;$$, $x$ $$;$x$;",
            "SELECT 1 -- ;\n, 2;",
            "/* ; /* ; */ ; */ SELECT 1;",
            "SELECT E'\\';';",
            "SELECT (1;2);",
            "SELECT a$b$ FROM t;",
            "SELECT $1;",
            ";",
            "SELECT 'x\\';",
            "CREATE OR REPLACE PROCEDURE p(a int) BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END; END;",
            "create procedure begin() language sql begin atomic end;",
            "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN NULL; END $$;",
        ];
        for text in whole {
            assert_eq!(pieces(text), (vec![text.to_owned()], Open::Nothing), "{text}");
        }
        assert_eq!(pieces("SELECT 1; SELECT 2;\n\\d t\nSELECT").0, ["SELECT 1;", "SELECT 2;", "\\d t"]);
        let plain = "CREATE TABLE t (v int);\nBEGIN;\nSELECT atomic; END;";
        assert_eq!(pieces(plain).0.len(), 4);
        assert_eq!(pieces("SELECT 1 \\gx\nSELECT '\\';").0, ["SELECT 1 ", "\\gx", "SELECT '\\';"]);
        assert_eq!(pieces("-- x\n\\d t\n/* y */ \\q").0, ["\\d t", "\\q"]);
    }

    #[test]
    fn what_is_open_is_told() {
        let open = [
            ("", Open::Nothing),
            (" \n-- x", Open::Nothing),
            ("SELECT 1", Open::Statement),
            ("SELECT 'x;", Open::Quote('\'')),
            ("SELECT \"x;", Open::Quote('"')),
            ("SELECT $a$ ; $b$", Open::Dollar),
            ("/* ;", Open::Comment),
            ("SELECT (1;", Open::Parenthesis),
            ("'ü", Open::Quote('\'')),
            ("$ü", Open::Statement),
        ];
        for (text, wanted) in open {
            assert_eq!(pieces(text), (vec![], wanted), "{text}");
        }
    }

    #[test]
    fn a_text_that_comes_in_lines_has_the_same_pieces() {
        let whole =
            "SELECT (1,\n 'a;\n;b', -- ;\n $x$;\n;$x$);\n/* ;\n; */ SELECT E'\\';\n;' \\gx\n\\d t\nSELECT \"\n;\";\n";
        let (mut text, mut scan, mut found) = (String::new(), Scan::default(), Vec::new());
        for line in whole.split_inclusive('\n') {
            text += line;
            while let Ok((Piece::Statement(piece) | Piece::Begun(piece) | Piece::Command(piece), rest)) =
                next_piece(&text, &mut scan)
            {
                found.push(piece.to_owned());
                text = rest.to_owned();
            }
        }
        assert_eq!((found.len(), found), (5, pieces(whole).0));
    }

    #[test]
    fn what_was_looked_through_is_not_looked_at_again() {
        let (mut text, mut scan) = ("INSERT INTO t VALUES\n".to_owned(), Scan::default());
        for _ in 0..100 {
            text += "(1, 'x;y'),\n";
            assert!(next_piece(&text, &mut scan).is_err());
            assert!(scan.at + 12 > text.len(), "{} of {}", scan.at, text.len());
        }
    }
}
