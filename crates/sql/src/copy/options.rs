//! The options of COPY.

use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::names;
use crate::error::{SqlError, SqlState};
use crate::parse::syntax_error;

/// How rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Text,
    Csv,
    Binary,
}

/// Whether the first line has names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Header {
    #[default]
    None,
    Names,
    /// They must be those of the columns.
    Match,
}

/// Columns that an option is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Chosen {
    #[default]
    None,
    All,
    Named(Vec<String>),
}

/// The options, which fit each other.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) format: Format,
    pub(crate) delimiter: u8,
    pub(crate) null: String,
    pub(crate) header: Header,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
    pub(crate) force_quote: Chosen,
    pub(crate) force_not_null: Chosen,
    pub(crate) force_null: Chosen,
}

/// What an option is given.
enum Value {
    Nothing,
    Text(String),
    Star,
    Names(Vec<String>),
}

type Given = Vec<(String, Value)>;

fn wrong(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

fn unusable(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

fn bad_value(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The options in either of their forms.
pub(super) fn parse(parser: &mut Parser<'_>, is_from: bool) -> Result<Options, SqlError> {
    let _ = parser.parse_keyword(Keyword::WITH);
    let given = if parser.consume_token(&Token::LParen) { listed(parser)? } else { in_words(parser)? };
    Options::of(given, is_from)
}

/// A text in quotes.
fn quoted(token: &Token) -> Option<String> {
    match token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) | Token::UnicodeStringLiteral(text) => {
            Some(text.clone())
        }
        Token::DollarQuotedString(text) => Some(text.value.clone()),
        _ => None,
    }
}

/// `NAME [VALUE], …)`
fn listed(parser: &mut Parser<'_>) -> Result<Given, SqlError> {
    let mut given = Vec::new();
    loop {
        let token = parser.next_token().token;
        let Token::Word(name) = &token else { return Err(syntax_error(&token)) };
        let value = match parser.next_token().token {
            Token::Comma | Token::RParen => {
                parser.prev_token();
                Value::Nothing
            }
            Token::Mul => Value::Star,
            Token::LParen => {
                let names = names(parser)?;
                let end = parser.next_token().token;
                if end != Token::RParen {
                    return Err(syntax_error(&end));
                }
                Value::Names(names)
            }
            Token::Number(number, _) => Value::Text(number),
            Token::Word(word) => {
                Value::Text(if word.quote_style.is_some() { word.value } else { word.value.to_lowercase() })
            }
            other => Value::Text(quoted(&other).ok_or_else(|| syntax_error(&other))?),
        };
        given.push((name.value.to_lowercase(), value));
        match parser.next_token().token {
            Token::Comma => {}
            Token::RParen => return Ok(given),
            other => return Err(syntax_error(&other)),
        }
    }
}

/// The form that COPY had before: `CSV HEADER DELIMITER AS ';'`.
fn in_words(parser: &mut Parser<'_>) -> Result<Given, SqlError> {
    let mut given = Vec::new();
    loop {
        let token = parser.peek_token().token;
        let Token::Word(word) = &token else { return Ok(given) };
        let name = word.value.to_lowercase();
        match name.as_str() {
            "binary" | "csv" => {
                parser.next_token();
                given.push(("format".to_owned(), Value::Text(name)));
            }
            "header" | "freeze" => {
                parser.next_token();
                given.push((name, Value::Nothing));
            }
            "delimiter" | "null" | "quote" | "escape" | "encoding" => {
                parser.next_token();
                let _ = parser.parse_keyword(Keyword::AS);
                let value = parser.next_token().token;
                given.push((name, Value::Text(quoted(&value).ok_or_else(|| syntax_error(&value))?)));
            }
            "force" => {
                parser.next_token();
                given.push(forced(parser)?);
            }
            _ => return Ok(given),
        }
    }
}

/// What follows FORCE.
fn forced(parser: &mut Parser<'_>) -> Result<(String, Value), SqlError> {
    let token = parser.next_token().token;
    let word = if let Token::Word(word) = &token { word.value.to_lowercase() } else { String::new() };
    let name = match word.as_str() {
        "quote" if parser.consume_token(&Token::Mul) => return Ok(("force_quote".to_owned(), Value::Star)),
        "quote" => "force_quote",
        "null" => "force_null",
        "not" if parser.parse_keyword(Keyword::NULL) => "force_not_null",
        _ => return Err(syntax_error(&token)),
    };
    Ok((name.to_owned(), Value::Names(names(parser)?)))
}

impl Value {
    fn text(self, name: &str) -> Result<String, SqlError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Star => Ok("*".to_owned()),
            Self::Nothing | Self::Names(_) => Err(wrong(format!("{name} requires a parameter"))),
        }
    }

    fn boolean(&self) -> Option<bool> {
        match self {
            Self::Nothing => Some(true),
            Self::Text(text) => match text.to_lowercase().as_str() {
                "true" | "on" | "1" => Some(true),
                "false" | "off" | "0" => Some(false),
                _ => None,
            },
            Self::Star | Self::Names(_) => None,
        }
    }

    fn header(&self) -> Result<Header, SqlError> {
        match self {
            Self::Text(text) if text.eq_ignore_ascii_case("match") => Ok(Header::Match),
            _ => match self.boolean() {
                Some(true) => Ok(Header::Names),
                Some(false) => Ok(Header::None),
                None => Err(wrong("header requires a Boolean value or \"match\"")),
            },
        }
    }

    fn columns(self, name: &str, may_be_all: bool) -> Result<Chosen, SqlError> {
        match self {
            Self::Star if may_be_all => Ok(Chosen::All),
            Self::Names(names) => Ok(Chosen::Named(names)),
            _ => Err(bad_value(format!("argument to option \"{name}\" must be a list of column names"))),
        }
    }
}

/// The options as they were given.
#[derive(Default)]
struct Said {
    format: Option<Format>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<Header>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<Chosen>,
    force_not_null: Option<Chosen>,
    force_null: Option<Chosen>,
    encoding: Option<()>,
    freeze: Option<bool>,
}

/// Notes an option that was not given before.
fn once<T>(place: &mut Option<T>, value: T) -> Result<(), SqlError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(wrong("conflicting or redundant options")),
    }
}

impl Said {
    fn note(&mut self, name: &str, value: Value, is_from: bool) -> Result<(), SqlError> {
        match name {
            "format" => {
                let format = match value.text(name)?.as_str() {
                    "text" => Format::Text,
                    "csv" => Format::Csv,
                    "binary" => Format::Binary,
                    other => return Err(bad_value(format!("COPY format \"{other}\" not recognized"))),
                };
                once(&mut self.format, format)
            }
            "delimiter" => once(&mut self.delimiter, value.text(name)?),
            "null" => once(&mut self.null, value.text(name)?),
            "quote" => once(&mut self.quote, value.text(name)?),
            "escape" => once(&mut self.escape, value.text(name)?),
            "header" => {
                let header = value.header()?;
                if header == Header::Match && !is_from {
                    return Err(unusable("cannot use \"match\" with HEADER in COPY TO"));
                }
                once(&mut self.header, header)
            }
            "force_quote" => once(&mut self.force_quote, value.columns(name, true)?),
            "force_not_null" => once(&mut self.force_not_null, value.columns(name, false)?),
            "force_null" => once(&mut self.force_null, value.columns(name, false)?),
            "encoding" => {
                let encoding = value.text(name)?;
                if !["utf8", "utf-8", "unicode"].contains(&encoding.to_lowercase().as_str()) {
                    return Err(SqlError::unsupported(format!("the encoding \"{encoding}\"")));
                }
                once(&mut self.encoding, ())
            }
            "freeze" => match value.boolean() {
                // Rows are never frozen here: what others see of them is as without it.
                Some(freeze) => once(&mut self.freeze, freeze),
                None => Err(wrong("freeze requires a Boolean value")),
            },
            _ => Err(wrong(format!("option \"{name}\" not recognized"))),
        }
    }
}

/// The only byte of a text.
fn byte(text: &str, what: &str) -> Result<u8, SqlError> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(unusable(format!("COPY {what} must be a single one-byte character"))),
    }
}

impl Options {
    fn of(given: Given, is_from: bool) -> Result<Self, SqlError> {
        let mut said = Said::default();
        given.into_iter().try_for_each(|(name, value)| said.note(&name, value, is_from))?;
        let format = said.format.unwrap_or_default();
        let (is_csv, is_binary) = (format == Format::Csv, format == Format::Binary);
        if is_binary && said.delimiter.is_some() {
            return Err(wrong("cannot specify DELIMITER in BINARY mode"));
        }
        if is_binary && said.null.is_some() {
            return Err(wrong("cannot specify NULL in BINARY mode"));
        }
        let delimiter = said.delimiter.as_deref().unwrap_or(if is_csv { "," } else { "\t" });
        let delimiter = byte(delimiter, "delimiter")?;
        if matches!(delimiter, b'\n' | b'\r') {
            return Err(bad_value("COPY delimiter cannot be newline or carriage return"));
        }
        let null = said.null.take().unwrap_or_else(|| if is_csv { "" } else { "\\N" }.to_owned());
        if null.contains(['\n', '\r']) {
            return Err(bad_value("COPY null representation cannot use newline or carriage return"));
        }
        let is_taken = matches!(delimiter, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9');
        if !is_csv && is_taken {
            return Err(bad_value(format!("COPY delimiter cannot be \"{}\"", char::from(delimiter))));
        }
        let header = said.header.unwrap_or_default();
        if is_binary && header != Header::None {
            return Err(unusable("cannot specify HEADER in BINARY mode"));
        }
        let (quote, escape) = said.quotes(is_csv, delimiter)?;
        said.check_forced(is_csv, is_from)?;
        if null.as_bytes().contains(&delimiter) {
            return Err(unusable("COPY delimiter must not appear in the NULL specification"));
        }
        if is_csv && null.as_bytes().contains(&quote) {
            return Err(unusable("CSV quote character must not appear in the NULL specification"));
        }
        let Said { force_quote, force_not_null, force_null, .. } = said;
        let (force_quote, force_null) = (force_quote.unwrap_or_default(), force_null.unwrap_or_default());
        let force_not_null = force_not_null.unwrap_or_default();
        Ok(Self { format, delimiter, null, header, quote, escape, force_quote, force_not_null, force_null })
    }
}

impl Said {
    /// What encloses fields of CSV, and what stands in front of the same within.
    fn quotes(&self, is_csv: bool, delimiter: u8) -> Result<(u8, u8), SqlError> {
        if !is_csv && self.quote.is_some() {
            return Err(unusable("COPY quote available only in CSV mode"));
        }
        let quote = self.quote.as_deref().map_or(Ok(b'"'), |quote| byte(quote, "quote"))?;
        if is_csv && quote == delimiter {
            return Err(bad_value("COPY delimiter and quote must be different"));
        }
        if !is_csv && self.escape.is_some() {
            return Err(unusable("COPY escape available only in CSV mode"));
        }
        Ok((quote, self.escape.as_deref().map_or(Ok(quote), |escape| byte(escape, "escape"))?))
    }

    fn check_forced(&self, is_csv: bool, is_from: bool) -> Result<(), SqlError> {
        let options = [
            (self.force_quote.is_some(), "quote", false),
            (self.force_not_null.is_some(), "not null", true),
            (self.force_null.is_some(), "null", true),
        ];
        for (_, name, of_from) in options.into_iter().filter(|(is_given, ..)| *is_given) {
            if !is_csv {
                return Err(unusable(format!("COPY force {name} available only in CSV mode")));
            }
            if of_from != is_from {
                let direction = if of_from { "FROM" } else { "TO" };
                return Err(unusable(format!("COPY force {name} only available using COPY {direction}")));
            }
        }
        Ok(())
    }
}

impl Chosen {
    /// Which of the copied columns are meant. `all` are those of the table, of which the copied ones are some.
    pub(super) fn among(
        &self,
        option: &str,
        columns: &[String],
        (table, all): (&str, &[String]),
    ) -> Result<Vec<bool>, SqlError> {
        let Self::Named(names) = self else { return Ok(vec![*self == Self::All; columns.len()]) };
        if let Some(name) = names.iter().find(|name| !columns.contains(name)) {
            if all.contains(name) {
                let message = format!("{option} column \"{name}\" not referenced by COPY");
                return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
            }
            let of = if table.is_empty() { String::new() } else { format!(" of relation \"{table}\"") };
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\"{of} does not exist")));
        }
        Ok(columns.iter().map(|column| names.contains(column)).collect())
    }
}
