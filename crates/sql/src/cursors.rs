//! Cursors: the answer of a query, of which the client gets rows as it asks for them.
//!
//! A scan cannot be left and gone on with, so a cursor has the whole answer from its DECLARE on, within the memory of a statement. It sees no later changes, as in PostgreSQL.
//! FETCH and MOVE read nothing of the database, so a transaction that is run again runs the DECLAREs again, and goes on if they answer the same.

use polychron_engine::Protocol;
use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::bind::folded;
use crate::connection::Connection;
use crate::datum::OwnedDatum;
use crate::error::{SqlError, SqlState};
use crate::outcome::Outcome;
use crate::parse::{error_of, syntax_error};
use crate::rows::RowColumn;
use crate::types::{Bound, Type};

/// A statement about cursors.
#[derive(Clone, Debug)]
pub(crate) enum CursorCommand {
    Declare(Box<Declare>),
    Fetch {
        name: String,
        direction: Direction,
        is_move: bool,
    },
    /// Without a name: all of them.
    Close(Option<String>),
}

#[derive(Clone, Debug)]
pub(crate) struct Declare {
    pub(crate) name: String,
    pub(crate) query: ast::Statement,
    /// NO SCROLL.
    pub(crate) is_forward: bool,
    pub(crate) is_held: bool,
}

/// Which rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// So many from here on, backward where it is negative. None at all: the row where the cursor is.
    Forward(i64),
    ForwardAll,
    BackwardAll,
    /// The row of this number, from 1, or from the end where it is negative.
    Absolute(i64),
    Relative(i64),
}

impl CursorCommand {
    /// The statement that begins with the next word, if it is one of these.
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Option<Self>, SqlError> {
        let Token::Word(word) = parser.peek_token().token else { return Ok(None) };
        if word.quote_style.is_some() {
            return Ok(None);
        }
        let parse = match word.value.to_ascii_lowercase().as_str() {
            "declare" => Self::declare,
            "fetch" => |parser: &mut Parser<'_>| Self::fetch(parser, false),
            "move" => |parser: &mut Parser<'_>| Self::fetch(parser, true),
            "close" => |parser: &mut Parser<'_>| {
                Ok(Self::Close(if parser.parse_keyword(Keyword::ALL) { None } else { Some(name(parser)?) }))
            },
            _ => return Ok(None),
        };
        parser.next_token();
        parse(parser).map(Some)
    }

    fn declare(parser: &mut Parser<'_>) -> Result<Self, SqlError> {
        let name = name(parser)?;
        let (mut is_forward, mut is_scrolled) = (false, false);
        loop {
            match parser_word(parser).as_str() {
                "binary" => return Err(SqlError::unsupported("a BINARY cursor")),
                // All of them are insensitive.
                "insensitive" | "asensitive" => {}
                "scroll" => is_scrolled = true,
                "no" if parser_word(parser) == "scroll" => is_forward = true,
                "cursor" => break,
                _ => {
                    parser.prev_token();
                    return Err(syntax_error(&parser.peek_token().token));
                }
            }
        }
        if is_forward && is_scrolled {
            let message = "cannot specify both SCROLL and NO SCROLL";
            return Err(SqlError::new(SqlState::INVALID_CURSOR_DEFINITION, message));
        }
        let is_held = parser.parse_keyword(Keyword::WITH);
        if is_held || parser.parse_keyword(Keyword::WITHOUT) {
            parser.expect_keyword(Keyword::HOLD).map_err(error_of)?;
        }
        parser.expect_keyword(Keyword::FOR).map_err(error_of)?;
        let query = parser.parse_query().map_err(error_of)?;
        crate::bind::check_reads_only(&query, "DECLARE CURSOR")?;
        let query = ast::Statement::Query(query);
        Ok(Self::Declare(Declare { name, query, is_forward, is_held }.into()))
    }

    fn fetch(parser: &mut Parser<'_>, is_move: bool) -> Result<Self, SqlError> {
        let direction = direction(parser)?;
        let _ = parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::IN]);
        Ok(Self::Fetch { name: name(parser)?, direction, is_move })
    }
}

/// The next word, in small letters; empty if there is none.
fn parser_word(parser: &mut Parser<'_>) -> String {
    match parser.next_token().token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_lowercase(),
        _ => String::new(),
    }
}

fn name(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    let token = parser.peek_token().token;
    match token {
        Token::Word(_) => parser.parse_identifier().map(|name| folded(&name)).map_err(error_of),
        other => Err(syntax_error(&other)),
    }
}

/// Whether the word behind the next one may belong to the same direction: a cursor may have the name of one.
fn is_followed(parser: &Parser<'_>) -> bool {
    !matches!(parser.peek_nth_token(1).token, Token::EOF | Token::SemiColon)
}

/// A count, if there is one.
fn count(parser: &mut Parser<'_>) -> Result<Option<i64>, SqlError> {
    let is_negative = match parser.peek_token().token {
        Token::Minus => true,
        Token::Plus => false,
        Token::Number(..) => {
            let Token::Number(number, _) = parser.next_token().token else { return Ok(None) };
            return number_of(&number, false).map(Some);
        }
        _ => return Ok(None),
    };
    parser.next_token();
    match parser.next_token().token {
        Token::Number(number, _) => number_of(&number, is_negative).map(Some),
        other => Err(syntax_error(&other)),
    }
}

fn number_of(text: &str, is_negative: bool) -> Result<i64, SqlError> {
    let number =
        text.parse::<i32>().map(i64::from).map_err(|_| syntax_error(&Token::Number(text.to_owned(), false)))?;
    Ok(if is_negative { -number } else { number })
}

fn direction(parser: &mut Parser<'_>) -> Result<Direction, SqlError> {
    if let Some(count) = count(parser)? {
        return Ok(Direction::Forward(count));
    }
    let next = parser.peek_token().token;
    let Token::Word(word) = &next else { return Err(syntax_error(&next)) };
    if word.quote_style.is_some() || !is_followed(parser) {
        return Ok(Direction::Forward(1));
    }
    let word = word.value.to_ascii_lowercase();
    let is_backward = word == "backward";
    parser.next_token();
    let needed =
        |count: Option<i64>, parser: &Parser<'_>| count.ok_or_else(|| syntax_error(&parser.peek_token().token));
    Ok(match word.as_str() {
        "next" => Direction::Forward(1),
        "prior" => Direction::Forward(-1),
        "first" => Direction::Absolute(1),
        "last" => Direction::Absolute(-1),
        "all" => Direction::ForwardAll,
        "absolute" => {
            let count = count(parser)?;
            Direction::Absolute(needed(count, parser)?)
        }
        "relative" => {
            let count = count(parser)?;
            Direction::Relative(needed(count, parser)?)
        }
        "forward" | "backward" => {
            if let Some(count) = count(parser)? {
                Direction::Forward(if is_backward { -count } else { count })
            } else if parser.parse_keyword(Keyword::ALL) {
                if is_backward { Direction::BackwardAll } else { Direction::ForwardAll }
            } else {
                Direction::Forward(if is_backward { -1 } else { 1 })
            }
        }
        _ => {
            parser.prev_token();
            Direction::Forward(1)
        }
    })
}

/// The rows of an answer, and where the client is.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) name: String,
    pub(crate) columns: Vec<(String, Type)>,
    pub(crate) bounds: Vec<Bound>,
    pub(crate) rows: Vec<Vec<OwnedDatum>>,
    /// What the rows take.
    pub(crate) bytes: usize,
    /// 0 is in front of the first row, and one more than there are rows behind the last one.
    position: usize,
    is_forward: bool,
    /// A FETCH has failed: it answers no more.
    has_failed: bool,
    pub(crate) is_held: bool,
    /// The transaction of its DECLARE has committed.
    pub(crate) has_survived: bool,
    /// Its number among those of the session: greater ones were declared later.
    pub(crate) number: u64,
}

impl Cursor {
    pub(crate) fn new(declare: &Declare, outcome: Outcome, bytes: usize, number: u64) -> Self {
        Self {
            name: declare.name.clone(),
            columns: outcome.columns,
            bounds: outcome.bounds,
            rows: outcome.rows,
            bytes,
            position: 0,
            is_forward: declare.is_forward,
            has_failed: false,
            is_held: declare.is_held,
            has_survived: false,
            number,
        }
    }

    /// Moves, and answers with the positions of the rows that were passed, the first of them first.
    fn go(&mut self, direction: Direction, is_move: bool) -> Result<Vec<usize>, SqlError> {
        if self.has_failed {
            let message = format!("portal \"{}\" cannot be run", self.name);
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
        }
        let (last, here) = (self.rows.len(), self.position);
        match direction {
            Direction::Forward(0) | Direction::Relative(0) => {
                // The row is gone back to, unless nobody wants to see it.
                let is_on_row = (1..=last).contains(&here);
                if is_on_row && !is_move {
                    self.check_backward()?;
                }
                Ok(if is_on_row { vec![here] } else { Vec::new() })
            }
            Direction::Forward(count) => self.step(count),
            Direction::ForwardAll => self.step(i64::MAX),
            Direction::BackwardAll => self.step(i64::MIN),
            Direction::Absolute(number) => {
                if number < 0 {
                    // The end is gone to first.
                    self.check_backward()?;
                }
                let distance = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
                let wanted = if number < 0 { (last + 1).saturating_sub(distance) } else { distance.min(last + 1) };
                self.move_to(wanted)
            }
            Direction::Relative(count) => {
                let distance = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
                let wanted =
                    if count < 0 { here.saturating_sub(distance) } else { here.saturating_add(distance).min(last + 1) };
                if count < 0 {
                    self.check_backward()?;
                }
                self.move_to(wanted)
            }
        }
    }

    /// Goes to a position, and answers with the row there.
    fn move_to(&mut self, wanted: usize) -> Result<Vec<usize>, SqlError> {
        let is_again = wanted == self.position && (1..=self.rows.len()).contains(&wanted);
        if wanted < self.position || is_again {
            self.check_backward()?;
        }
        self.position = wanted;
        Ok(if (1..=self.rows.len()).contains(&wanted) { vec![wanted] } else { Vec::new() })
    }

    fn step(&mut self, count: i64) -> Result<Vec<usize>, SqlError> {
        let (last, distance) = (self.rows.len(), usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX));
        if count < 0 {
            self.check_backward()?;
            let to = self.position.saturating_sub(distance);
            let passed = (to.max(1)..self.position.min(last + 1)).rev().collect();
            self.position = to;
            return Ok(passed);
        }
        let to = self.position.saturating_add(distance).min(last + 1);
        let passed = (self.position + 1..=to.min(last)).collect();
        self.position = to;
        Ok(passed)
    }

    fn check_backward(&self) -> Result<(), SqlError> {
        if !self.is_forward {
            return Ok(());
        }
        let error = SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward");
        Err(error.with_hint("Declare it with SCROLL option to enable backward scan."))
    }
}

impl<P: Protocol> Connection<P> {
    /// Runs a statement about cursors. `is_alone`: its text has no other one.
    pub(crate) fn run_cursor(
        &mut self,
        command: &CursorCommand,
        parameters: (&[Type], &[crate::Datum<'_>]),
        is_alone: bool,
    ) -> Result<Outcome, SqlError> {
        match command {
            CursorCommand::Declare(declare) => self.declare(declare, parameters, is_alone),
            CursorCommand::Fetch { name, direction, is_move } => self.fetch(name, *direction, *is_move),
            CursorCommand::Close(None) => {
                self.session.cursors.clear();
                Ok(Outcome::tagged("CLOSE CURSOR ALL"))
            }
            CursorCommand::Close(Some(name)) => {
                let at = self.find_cursor(name)?;
                self.session.cursors.remove(at);
                Ok(Outcome::tagged("CLOSE CURSOR"))
            }
        }
    }

    fn find_cursor(&mut self, name: &str) -> Result<usize, SqlError> {
        let missing = || SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"));
        let found = self.session.cursors.iter().position(|cursor| cursor.name == name);
        found.ok_or_else(missing).map_err(|error| self.fail(error))
    }

    fn declare(
        &mut self,
        declare: &Declare,
        (types, values): (&[Type], &[crate::Datum<'_>]),
        is_alone: bool,
    ) -> Result<Outcome, SqlError> {
        if !declare.is_held && self.session.is_planned() {
            return Err(self.needs_block("DECLARE CURSOR without HOLD"));
        }
        if !declare.is_held && is_alone && !self.session.is_explicit() {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(self.fail(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message)));
        }
        if self.session.cursors.iter().any(|cursor| cursor.name == declare.name) {
            let message = format!("cursor \"{}\" already exists", declare.name);
            return Err(self.fail(SqlError::new(SqlState::DUPLICATE_CURSOR, message)));
        }
        let plan = self.plan_of(&declare.query, types, values).map_err(|error| self.fail(error))?;
        if self.session.is_planned() {
            return self.declare_whole(declare, (&plan, values), is_alone);
        }
        self.session.begin(crate::control::Modes::default(), false)?;
        self.session.declare(declare, (&plan.into(), values), &self.zone)?;
        Ok(Outcome::tagged("DECLARE CURSOR"))
    }

    /// The columns of the cursor of this name, if there is one.
    pub fn cursor_columns(&self, name: &str) -> Option<Vec<RowColumn>> {
        let cursor = self.session.cursors.iter().find(|cursor| cursor.name == name)?;
        let column = |(at, (name, of)): (usize, &(String, Type))| RowColumn {
            name: name.clone(),
            of: *of,
            bound: cursor.bounds.get(at).copied().unwrap_or_default(),
            origin: None,
        };
        Some(cursor.columns.iter().enumerate().map(column).collect())
    }

    fn fetch(&mut self, name: &str, direction: Direction, is_move: bool) -> Result<Outcome, SqlError> {
        let at = self.find_cursor(name)?;
        let passed = self.session.cursors[at].go(direction, is_move);
        self.session.cursors[at].has_failed |= passed.is_err();
        let passed = passed.map_err(|error| self.fail(error))?;
        let (cursor, count) = (&self.session.cursors[at], passed.len() as u64);
        if is_move {
            return Ok(Outcome { count, ..Outcome::tagged(format!("MOVE {count}")) });
        }
        let rows = passed.iter().map(|&position| cursor.rows[position - 1].clone()).collect();
        let (columns, bounds) = (cursor.columns.clone(), cursor.bounds.clone());
        Ok(Outcome { count, columns, bounds, rows, ..Outcome::tagged(format!("FETCH {count}")) })
    }
}
