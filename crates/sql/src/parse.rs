//! Text into statements.

mod all_fields;
mod columns;
mod operators;
mod row_locks;
mod table_as;
mod tables;
mod targets;
mod vacuum;
mod words;

use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::control::Control;
use crate::copy::Copy;
use crate::cursors::CursorCommand;
use crate::error::{SqlError, SqlState};
use crate::gaps::AlterSequence;
use crate::roles::RoleCommand;
use crate::session_functions::SessionCalls;

/// How deeply expressions and queries may nest. The parser, the binder and the evaluation go down as deep.
const DEPTH: usize = 200;

/// How many operators, operands of AND and OR, and set operations may follow each other: the parser makes a tree of them that is as deep.
const CHAIN: Chain = Chain { operators: 1000, connectives: 5000, sets: 300 };

/// What follows each other: tokens of one operand, operands of AND and OR, and set operations. What is in parentheses counts with what follows them,
/// because the tree of that is as much deeper.
#[derive(Clone, Copy, Default)]
struct Chain {
    operators: usize,
    connectives: usize,
    sets: usize,
}

impl Chain {
    /// Goes on behind a token.
    fn add(&mut self, token: &Token) {
        match token {
            Token::Whitespace(_) => {}
            Token::SemiColon => *self = Self::default(),
            Token::Comma => *self = Self { sets: self.sets, ..Self::default() },
            Token::Word(word) => match word.keyword {
                Keyword::AND | Keyword::OR => (self.operators, self.connectives) = (0, self.connectives + 1),
                Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT | Keyword::JOIN => {
                    *self = Self { sets: self.sets + 1, ..Self::default() };
                }
                Keyword::WHEN | Keyword::THEN => *self = Self { sets: self.sets, ..Self::default() },
                _ => self.operators += 1,
            },
            _ => self.operators += 1,
        }
    }

    fn is_too_long(self) -> bool {
        self.operators > CHAIN.operators || self.connectives > CHAIN.connectives || self.sets > CHAIN.sets
    }

    /// The longer ones of both.
    fn max(self, other: Self) -> Self {
        Self {
            operators: self.operators.max(other.operators),
            connectives: self.connectives.max(other.connectives),
            sets: self.sets.max(other.sets),
        }
    }
}

/// What is in parentheses, or in a CASE.
#[derive(Clone, Copy, Default)]
struct Level {
    /// What follows each other at its end, and the longest of it.
    chain: Chain,
    longest: Chain,
    is_case: bool,
}

fn too_complex() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
}

/// Refuses what would make trees that are too deep to be walked.
fn check_chains(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let mut levels = vec![Level::default()];
    for token in tokens.iter().map(|token| &token.token) {
        let is_word = |keyword: Keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
        let opens_case = is_word(Keyword::CASE);
        let closes = match token {
            Token::RParen | Token::RBracket => true,
            _ => is_word(Keyword::END) && levels.last().is_some_and(|level| level.is_case),
        };
        let mut within = Chain::default();
        if opens_case || matches!(token, Token::LParen | Token::LBracket) {
            levels.push(Level { is_case: opens_case, ..Level::default() });
        } else if closes && levels.len() > 1 {
            within = levels.pop().unwrap_or_default().longest;
        }
        let Some(level) = levels.last_mut() else { continue };
        level.chain = level.chain.max(within);
        level.chain.add(token);
        level.longest = level.longest.max(level.chain);
        if level.chain.is_too_long() {
            return Err(too_complex());
        }
    }
    Ok(())
}

/// Whether what a query answers depends on all columns that a table has: it has `*`, TABLE or NATURAL.
pub(crate) fn takes_all_columns(query: &str) -> Result<bool, SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, query).tokenize().map_err(|error| error_of(error.into()))?;
    let tokens: Vec<_> = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let is_wildcard = |at: usize| {
        let is_call = at > 0 && *tokens[at - 1] == Token::LParen;
        // A product goes on with an operand.
        !is_call
            && tokens.get(at + 1).is_none_or(|next| match next {
                Token::Comma | Token::RParen | Token::SemiColon => true,
                Token::Word(word) => word.quote_style.is_none() && is_clause(word.keyword),
                _ => false,
            })
    };
    Ok((0..tokens.len()).any(|at| match tokens[at] {
        Token::Mul => is_wildcard(at),
        Token::Word(word) => word.quote_style.is_none() && matches!(word.keyword, Keyword::NATURAL | Keyword::TABLE),
        _ => false,
    }))
}

/// Whether a keyword follows the list of a SELECT.
fn is_clause(keyword: Keyword) -> bool {
    use Keyword::{EXCEPT, FETCH, FROM, GROUP, HAVING, INTERSECT, LIMIT, OFFSET, ORDER, UNION, WHERE, WINDOW};
    matches!(
        keyword,
        EXCEPT | FETCH | FROM | GROUP | HAVING | INTERSECT | LIMIT | OFFSET | ORDER | UNION | WHERE | WINDOW
    )
}

/// How many views may be made of each other.
const VIEWS: usize = 32;

/// Refuses a view within so many others: the trees of their queries are as deep together.
pub(crate) fn check_views(count: usize) -> Result<(), SqlError> {
    let hint = || format!("Views may be made of each other {VIEWS} times.");
    if count < VIEWS { Ok(()) } else { Err(too_complex().with_hint(hint())) }
}

/// What the parser does not know: `SET CONSTRAINTS a, b DEFERRED` becomes `SET CONSTRAINTS = a, b, 'DEFERRED'`, and ALL is a text, too.
fn with_constraints(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_word = |token: &TokenWithSpan, text: &str| matches!(&token.token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text));
    let mut at = 0;
    while at < tokens.len() {
        let mut words = (at..tokens.len()).filter(|&at| !matches!(tokens[at].token, Token::Whitespace(_)));
        let (first, second) = (words.next(), words.next());
        let end = (at..tokens.len()).find(|&at| tokens[at].token == Token::SemiColon).unwrap_or(tokens.len());
        if let (Some(first), Some(second)) = (first, second)
            && second < end
            && is_word(&tokens[first], "set")
            && is_word(&tokens[second], "constraints")
        {
            let as_text = |token: &mut TokenWithSpan| token.token = Token::SingleQuotedString(token.token.to_string());
            let words = ["all", "deferred", "immediate"];
            let texts =
                tokens[second + 1..end].iter_mut().filter(|token| words.iter().any(|word| is_word(token, word)));
            texts.for_each(as_text);
            if let Some(last) =
                (second + 1..end).rev().find(|&at| matches!(tokens[at].token, Token::SingleQuotedString(_)))
            {
                tokens.insert(last, TokenWithSpan::wrap(Token::Comma));
            }
            tokens.insert(second + 1, TokenWithSpan::wrap(Token::Eq));
            at = end + 3;
        } else {
            at = end + 1;
        }
    }
    tokens
}

/// The longest statement, in bytes.
const LENGTH: usize = 16 << 20;

pub(crate) fn error_of(error: ParserError) -> SqlError {
    match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => syntax_error_of(&message),
        ParserError::RecursionLimitExceeded => {
            too_complex().with_hint(format!("Expressions and queries may be nested {DEPTH} times."))
        }
    }
}

/// The error that the parser describes: what it has found where, if it tells.
fn syntax_error_of(message: &str) -> SqlError {
    let placed = message.rsplit_once(" at Line: ").and_then(|(before, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        Some((before, Location::new(line.parse().ok()?, column.trim().parse().ok()?)))
    });
    let found = |before: &str| before.rsplit_once(", found: ").map(|(_, found)| found.to_owned());
    match placed.map(|(before, place)| (found(before), place)) {
        Some((Some(token), place)) if token != "EOF" => {
            SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{token}\"")).at(place)
        }
        Some((None, place)) => SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {message}")).at(place),
        None if !message.ends_with(", found: EOF") => {
            SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {message}"))
        }
        _ => syntax_error(&Token::EOF),
    }
}

/// What separates the name of a window from what its frame leaves out. The parser does not know EXCLUDE, so it is moved into the name.
pub(crate) const EXCLUSION: char = '\u{1}';

/// Moves `EXCLUDE …` from the end of a window into its name.
fn with_exclusions(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let word = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        Token::LParen => "(".to_owned(),
        Token::RParen => ")".to_owned(),
        _ => String::new(),
    };
    if !tokens.iter().any(|token| matches!(&token.token, Token::Word(it) if it.keyword == Keyword::EXCLUDE)) {
        return tokens;
    }
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut opened: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let words: Vec<_> = tokens[at..].iter().take(4).map(word).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let found = match words[..] {
            ["exclude", "current", "row", ")"] => Some((3, "current")),
            ["exclude", "no", "others", ")"] => Some((3, "none")),
            ["exclude", "group", ")", ..] => Some((2, "group")),
            ["exclude", "ties", ")", ..] => Some((2, "ties")),
            _ => None,
        };
        match (found, words.first(), opened.last().copied()) {
            (Some((count, excluded)), _, Some(start)) => {
                tokens.drain(at..at + count);
                let starts = ["partition", "order", "rows", "range", "groups"];
                let is_named = !starts.contains(&word(&tokens[start + 1]).as_str());
                match &mut tokens[start + 1].token {
                    Token::Word(name) if is_named => {
                        let own =
                            if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
                        *name = quoted(format!("{own}{EXCLUSION}{excluded}"));
                    }
                    _ => {
                        let name = Token::Word(quoted(format!("{EXCLUSION}{excluded}")));
                        tokens.insert(start + 1, TokenWithSpan::wrap(name));
                        at += 1;
                    }
                }
                continue;
            }
            (_, Some(&"("), _) => opened.push(at),
            (_, Some(&")"), _) => drop(opened.pop()),
            _ => {}
        }
        at += 1;
    }
    tokens
}

pub(super) fn quoted(value: String) -> sqlparser::tokenizer::Word {
    sqlparser::tokenizer::Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword }
}

pub(crate) use all_fields::{is_row_of_all, row_of_all};
pub(crate) use columns::{CHANGE, LIKE, SEQUENCE};
pub(crate) use table_as::has_data;
pub(crate) use targets::TARGET;

const DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

/// How many comments may follow operators without a blank.
const COMMENTS: usize = 100;

/// How many bytes behind a COPY are cut again.
const CUT_AGAIN: usize = 64 << 20;

fn cut(text: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    let (mut tokens, mut rest, mut lines, mut left) = (Vec::new(), text, 0, CUT_AGAIN);
    loop {
        let cut = Tokenizer::new(&DIALECT, rest).tokenize_with_location();
        let mut more = cut.map_err(|error| error_of(ParserError::from(error)))?;
        more.iter_mut().for_each(|token| {
            token.span.start.line += lines;
            token.span.end.line += lines;
        });
        // The lines behind a COPY are its data for the tokenizer; here they are the next statements.
        let data = more.iter().position(|token| matches!(token.token, Token::CopyData { .. }));
        let Some(data) = data.map(|at| more.remove(at)) else {
            tokens.append(&mut more);
            return Ok(tokens);
        };
        tokens.append(&mut more);
        let line = data.span.start.line - 1;
        let skipped = usize::try_from(line - lines).unwrap_or(usize::MAX);
        let start = rest.split_inclusive('\n').take(skipped).map(str::len).sum();
        (rest, lines) = (&rest[start..], line);
        left = left
            .checked_sub(rest.len())
            .ok_or_else(|| too_complex().with_hint("Put no new lines behind statements of COPY."))?;
    }
}

/// The tokens of a text, blanks and comments among them.
pub(crate) fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    let mut tokens = cut(text)?;
    let mut text = std::borrow::Cow::Borrowed(text);
    // Each round moves a comment away from an operator.
    for _ in 0..COMMENTS {
        let Some(comment) = operators::with_operators(&mut tokens)? else { return Ok(tokens) };
        text = operators::with_blank(&text, comment).into();
        tokens = cut(&text)?;
    }
    Err(too_complex().with_hint("Put blanks in front of comments."))
}

pub(crate) fn parser(text: &str) -> Result<Parser<'static>, SqlError> {
    if text.len() > LENGTH {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a statement has at most 16 MiB"));
    }
    let tokens = crate::procedures::with_procedures(text, tokens(text)?)?;
    let tokens = with_constraints(tokens);
    check_chains(&tokens)?;
    let tokens = tables::with_tables(targets::with_targets(with_exclusions(tokens)));
    let tokens = row_locks::with_row_locks(all_fields::with_all_fields(tokens));
    let tokens = words::with_words(columns::with_columns(tokens));
    Ok(Parser::new(&DIALECT).with_recursion_limit(DEPTH).with_tokens_with_locations(tokens))
}

/// A statement of a text.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are statements of the parser")]
pub(crate) enum Command {
    Sql(ast::Statement),
    Cursor(CursorCommand),
    Copy(Box<Copy>),
    AlterSequence(Box<AlterSequence>),
    Roles(Box<RoleCommand>),
}

/// The statements of a text that are the parser's alone.
pub(crate) fn statements(text: &str) -> Result<Vec<ast::Statement>, SqlError> {
    let commands = commands(text)?.into_iter().map(|command| match command {
        Command::Sql(statement) => Ok(statement),
        Command::Cursor(_) | Command::Copy(_) | Command::AlterSequence(_) | Command::Roles(_) => {
            Err(SqlError::unsupported("this statement in this place"))
        }
    });
    commands.collect()
}

/// The most statements of a text, which are parsed before the first one runs: some kilobytes each.
const MOST_COMMANDS: usize = 1 << 15;

/// The statements of a text.
pub(crate) fn commands(text: &str) -> Result<Vec<Command>, SqlError> {
    let is_at_end = |error: &SqlError| error.message() == "syntax error at end of input";
    let placed = |error: SqlError| if is_at_end(&error) { error.at_end(text) } else { error.within(text) };
    commands_of(text).map_err(placed)
}

fn commands_of(text: &str) -> Result<Vec<Command>, SqlError> {
    let mut parser = parser(text)?;
    let mut commands = Vec::new();
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token_ref().token == Token::EOF {
            return Ok(commands);
        }
        if commands.len() == MOST_COMMANDS {
            let message = format!("a text has at most {MOST_COMMANDS} statements");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        commands.push(command(&mut parser).map_err(|error| known_gap(text, error))?);
        match &parser.peek_token_ref().token {
            Token::EOF | Token::SemiColon => {}
            other => {
                let place = parser.peek_token_ref().span.start;
                return Err(known_gap(text, syntax_error(other).at(place)));
            }
        }
    }
}

fn command(parser: &mut Parser<'_>) -> Result<Command, SqlError> {
    if let Some(cursor) = CursorCommand::parse(parser)? {
        return Ok(Command::Cursor(cursor));
    }
    if parser.parse_keyword(Keyword::COPY) {
        return Ok(Command::Copy(Copy::parse(parser)?.into()));
    }
    if let Some(command) = RoleCommand::parse(parser)? {
        return Ok(Command::Roles(command.into()));
    }
    if let Some(alter) = AlterSequence::parse(parser).map_err(error_of)? {
        return Ok(Command::AlterSequence(alter.into()));
    }
    if let Some(statement) = crate::gaps::statement(parser).map_err(error_of)? {
        return Ok(Command::Sql(statement));
    }
    if let Some(statement) = table_as::statement(parser)? {
        return Ok(Command::Sql(statement));
    }
    match &parser.peek_token_ref().token {
        Token::Word(word) if word.keyword == Keyword::VACUUM => vacuum::vacuum(parser).map(Command::Sql),
        _ => parser.parse_statement().map_err(error_of).and_then(table_as::into_table).map(Command::Sql),
    }
}

/// What is wrong with a text, of which the parser does not know all that PostgreSQL has.
#[cold]
fn known_gap(text: &str, error: SqlError) -> SqlError {
    let words: Vec<_> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
    if words.first().is_some_and(|word| word == "do") {
        return SqlError::unsupported("the statement DO");
    }
    if words.windows(3).any(|words| words == ["where", "current", "of"]) {
        return SqlError::unsupported("WHERE CURRENT OF");
    }
    let starts = |of: &str| words.iter().map(String::as_str).take(of.split(' ').count()).eq(of.split(' '));
    if let Some(known) = STATEMENTS.iter().find(|of| starts(of)) {
        return SqlError::unsupported(format!("the statement {}", known.to_uppercase()));
    }
    let has = |pair: [&str; 2]| words.windows(2).any(|words| words == pair);
    let gaps = [
        (has(["between", "symmetric"]), "BETWEEN SYMMETRIC"),
        (
            has(["rows", "from"]) || words.windows(2).any(|it| it[0] == "rows" && it[1].starts_with("from(")),
            "ROWS FROM",
        ),
        (words.iter().any(|word| word == "uescape"), "UESCAPE"),
        (
            words.first().is_some_and(|word| word == "update") && error.message().ends_with("near \"[\""),
            "a part of an array as what is set",
        ),
    ];
    if let Some((_, gap)) = gaps.into_iter().find(|(is_there, _)| *is_there) {
        return SqlError::unsupported(gap);
    }
    let is_recursive = words.starts_with(&["with".to_owned(), "recursive".to_owned()]);
    let follows = |clause: &str| words.windows(2).any(|pair| pair[0].ends_with(')') && pair[1] == clause);
    match ["search", "cycle"].into_iter().find(|clause| is_recursive && follows(clause)) {
        Some(clause) => SqlError::unsupported(format!("{} behind a recursive query", clause.to_uppercase())),
        None => error,
    }
}

/// Statements of PostgreSQL that the parser does not know, by their first words.
const STATEMENTS: &[&str] = &[
    "alter aggregate",
    "alter event trigger",
    "alter extension",
    "alter large object",
    "alter publication",
    "alter statistics",
    "alter subscription",
    "alter tablespace",
    "alter text search",
    "checkpoint",
    "cluster",
    "create access method",
    "create cast",
    "create conversion",
    "create event trigger",
    "create language",
    "create operator",
    "create publication",
    "create recursive view",
    "create statistics",
    "create subscription",
    "create tablespace",
    "create text search",
    "create transform",
    "drop access method",
    "drop aggregate",
    "drop cast",
    "drop collation",
    "drop conversion",
    "drop event trigger",
    "drop language",
    "drop publication",
    "drop rule",
    "drop statistics",
    "drop subscription",
    "drop tablespace",
    "drop text search",
    "import foreign schema",
    "load",
    "reindex",
    "security label",
];

pub(crate) fn syntax_error(token: &Token) -> SqlError {
    let what = if *token == Token::EOF { "at end of input".to_owned() } else { format!("at or near \"{token}\"") };
    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error {what}"))
}

/// The expression that a text is.
pub(crate) fn expression(text: &str) -> Result<ast::Expr, SqlError> {
    let mut parser = parser(text)?;
    let expr = parser.parse_expr().map_err(error_of)?;
    match parser.peek_token().token {
        Token::EOF => Ok(expr),
        other => Err(syntax_error(&other)),
    }
}

impl Command {
    /// Whether it neither is about transactions nor has an answer of its own.
    pub(crate) fn is_definition(&self) -> bool {
        match self {
            Self::Sql(statement) => Control::of(statement).is_ok_and(|control| control.is_none()),
            Self::Roles(command) => matches!(**command, RoleCommand::Define(_)),
            other => matches!(other, Self::AlterSequence(_)),
        }
    }

    /// Whether it begins a transaction.
    pub(crate) fn is_begin(&self) -> bool {
        matches!(self, Self::Sql(ast::Statement::StartTransaction { .. }))
    }

    pub(crate) fn is_set(&self) -> bool {
        match self {
            Self::Sql(ast::Statement::Query(query)) => SessionCalls::all(query).is_some(),
            Self::Sql(statement) => matches!(
                statement,
                ast::Statement::Set(ast::Set::SingleAssignment { .. } | ast::Set::SetTimeZone { .. })
            ),
            Self::Roles(command) => matches!(**command, RoleCommand::Switch(_)),
            _ => false,
        }
    }

    /// The statement, if it reads or changes rows and does nothing else, or executes one that does.
    pub(crate) fn runs(&self) -> Option<&ast::Statement> {
        match self {
            Self::Sql(statement) if is_plain(statement) || matches!(statement, ast::Statement::Execute { .. }) => {
                Some(statement)
            }
            _ => None,
        }
    }
}

/// Whether a statement reads or changes rows, and nothing else.
pub(crate) fn is_plain(statement: &ast::Statement) -> bool {
    use ast::Statement::{Call, Delete, Explain, Insert, Lock, Merge, Query, Truncate, Update};
    match statement {
        Query(query) => SessionCalls::all(query).is_none(),
        Truncate(truncate) => truncate.identity.is_none() && truncate.cascade.is_none(),
        other => matches!(other, Lock(_) | Insert(_) | Update(_) | Delete(_) | Merge(_) | Explain { .. } | Call(_)),
    }
}
