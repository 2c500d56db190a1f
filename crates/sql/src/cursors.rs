//! Cursors: queries of which the client gets rows as it asks for them.
//!
//! A cursor reads on as far as rows are wanted (`kept`, `exec::paused`). It sees no later changes of its own transaction, as in PostgreSQL: a statement that is about to change one of
//! its tables has it read the rest before. A transaction that is run again goes with each cursor as far as the client had come, and must find the same rows.

pub(crate) mod kept;

use std::sync::Arc;

use polychron_base::TableId;
use polychron_engine::Protocol;
use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::bind::folded;
use crate::connection::{Connection, Parameters};
use crate::context::now;
use crate::control::Modes;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::names::Name;
use crate::outcome::Outcome;
use crate::parse::{error_of, syntax_error};
use crate::plan::Plan;
use crate::portals::{Declared, Portal};
use crate::rows::RowColumn;
use crate::statement::{Action, Definition, NewObject, Source};
use crate::types::Type;

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
    pub(crate) way: Way,
    pub(crate) is_held: bool,
}

/// Where a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// NO SCROLL, and portals that clients have bound.
    Forward,
    /// Nothing is said: backward, too, until the rows behind it are too many to be kept.
    BackWhileKept,
    /// SCROLL: all rows are kept.
    Both,
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
        let way = match (is_forward, is_scrolled) {
            (true, _) => Way::Forward,
            (false, true) => Way::Both,
            (false, false) => Way::BackWhileKept,
        };
        Ok(Self::Declare(Declare { name, query, way, is_held }.into()))
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

impl<P: Protocol> Connection<P> {
    /// Runs a statement about cursors. `is_alone`: its text has no other one.
    pub(crate) fn run_cursor(
        &mut self,
        command: &CursorCommand,
        parameters: (&[Type], &[Datum<'_>]),
        is_alone: bool,
    ) -> Result<Outcome, SqlError> {
        match command {
            CursorCommand::Declare(declare) => self.declare(declare, parameters, is_alone),
            CursorCommand::Fetch { name, direction, is_move } => self.fetch(name, *direction, *is_move),
            CursorCommand::Close(None) => {
                self.session.close_all();
                Ok(Outcome::tagged("CLOSE CURSOR ALL"))
            }
            CursorCommand::Close(Some(name)) => {
                if !self.session.close(name) {
                    return Err(self.no_cursor(name));
                }
                Ok(Outcome::tagged("CLOSE CURSOR"))
            }
        }
    }

    fn no_cursor(&mut self, name: &str) -> SqlError {
        self.fail(SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist")))
    }

    fn declare(
        &mut self,
        declare: &Declare,
        (types, values): (&[Type], &[Datum<'_>]),
        is_alone: bool,
    ) -> Result<Outcome, SqlError> {
        if !declare.is_held && self.session.is_planned() {
            return Err(self.needs_block("DECLARE CURSOR without HOLD"));
        }
        if !declare.is_held && is_alone && !self.session.is_explicit() {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(self.fail(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message)));
        }
        if let Err(error) = self.check_portal_name(&declare.name) {
            return Err(self.fail(error));
        }
        let bound = self.bind(&declare.query, Parameters { types, values }).map_err(|error| self.fail(error))?;
        let Action::Run(plan) = bound.action else { return Err(SqlError::internal("a query has no plan")) };
        if self.session.is_planned() {
            return self.declare_whole(declare, (&plan, values), is_alone);
        }
        self.session.begin(Modes::default(), false)?;
        let portal = self.declared(declare, &plan, bound.tables);
        self.session.declare(portal, (&plan.into(), values), declare.way)?;
        Ok(Outcome::tagged("DECLARE CURSOR"))
    }

    /// A plan is about to run: cursors do not see what it changes, so they read on before.
    pub(crate) fn read_before(&mut self, plan: &Plan) -> Result<(), SqlError> {
        if plan.changes().is_none() || !self.session.is_open() {
            return Ok(());
        }
        if let Plan::Truncate(tables) = plan {
            let tables = tables.iter().map(|(table, _)| (table.id, "TRUNCATE", &table.name));
            return self.check_unused(tables).map_err(|error| self.fail(error));
        }
        let tables = plan.changed_tables();
        self.open_waiting(tables.as_deref())?;
        self.session.gather(tables.as_deref(), &self.zone)
    }

    /// That no cursor of the transaction uses a table to which something is to be done.
    pub(crate) fn check_unused<'n>(
        &self,
        mut tables: impl Iterator<Item = (TableId, &'static str, &'n Name)>,
    ) -> Result<(), SqlError> {
        let portals = &self.session.portals;
        let is_used =
            |table: TableId| portals.iter().any(|portal| !portal.has_survived && portal.tables().contains(&table));
        let Some((_, verb, name)) = tables.find(|(table, ..)| is_used(*table)) else { return Ok(()) };
        let name = name.plain();
        let message = format!("cannot {verb} \"{name}\" because it is being used by active queries in this session");
        Err(SqlError::new(SqlState::OBJECT_IN_USE, message))
    }

    /// That no cursor of the transaction uses a table that a definition drops, makes anew or alters. New names are no matter.
    pub(crate) fn check_not_open(&self, source: Source<'_>, definition: &Definition) -> Result<(), SqlError> {
        if self.session.portals.is_empty() {
            return Ok(());
        }
        let is_rename = |operation: &ast::AlterTableOperation| {
            use ast::AlterTableOperation as A;
            matches!(operation, A::RenameTable { .. } | A::RenameColumn { .. } | A::RenameConstraint { .. })
        };
        let alters = match source {
            Source::Known(ast::Statement::AlterTable(alter)) => !alter.operations.iter().all(is_rename),
            _ => false,
        };
        let (tag, catalog) = (definition.tag, self.catalog());
        let table_of = |name: &Name| catalog.known(name).and_then(|object| object.table().map(|table| table.id));
        let is_kept = |table: TableId| {
            let kept = definition.objects.iter().filter_map(|(_, object)| object.as_ref());
            kept.into_iter().any(|object| matches!(object, NewObject::Table(own, _) if own.id == table))
        };
        let named = definition.objects.iter().filter_map(|(name, object)| match object {
            None => Some((table_of(name).filter(|table| !is_kept(*table))?, "DROP TABLE", name)),
            Some(NewObject::Table(table, _)) if alters => Some((table.id, tag, name)),
            Some(_) => None,
        });
        let made = definition.tables.iter().filter_map(|new| Some((table_of(&new.name)?, tag, &new.name)));
        let indexed = definition.index.iter().map(|(table, _)| (table.id, tag, &table.name));
        // What is made anew is not dropped.
        self.check_unused(made.chain(indexed).chain(named))
    }

    /// The portal of a cursor.
    pub(crate) fn declared(&mut self, declare: &Declare, plan: &Plan, tables: Vec<TableId>) -> Portal {
        let declared = Declared {
            text: self.slot.activity.text(),
            columns: columns_of(plan),
            tables,
            way: declare.way,
            is_held: declare.is_held,
            since: now(),
        };
        Portal::declared(&declare.name, self.session.next_portal(), declared)
    }

    /// The columns of the cursor of this name, if there is one.
    pub(crate) fn cursor_columns(&self, name: &str) -> Option<Arc<[RowColumn]>> {
        self.session.portals.get(name).map(|portal| portal.columns().into())
    }

    fn fetch(&mut self, name: &str, direction: Direction, is_move: bool) -> Result<Outcome, SqlError> {
        if self.session.portals.get(name).is_none() {
            return Err(self.no_cursor(name));
        }
        self.open_portal(name, 0)?;
        if let Some(portal) = self.session.portals.get(name).filter(|portal| portal.cursor.is_none()) {
            if !portal.is_done() {
                return Err(self.fail(SqlError::unsupported("FETCH from a portal whose statement is no query")));
            }
            let verb = if is_move { "MOVE 0" } else { "FETCH 0" };
            let columns = portal.columns().iter().map(|column| (column.name.clone(), column.of)).collect();
            return Ok(Outcome { columns, is_query: !is_move, ..Outcome::tagged(verb) });
        }
        let (passed, is_backward) = self.session.fetch(name, direction, is_move, &self.zone)?;
        let count = passed.len() as u64;
        if is_move {
            return Ok(Outcome { count, ..Outcome::tagged(format!("MOVE {count}")) });
        }
        let Some(portal) = self.session.portals.get(name) else { return Err(self.no_cursor(name)) };
        let row = |number: usize| portal.cursor.as_ref().map_or_else(Vec::new, |cursor| cursor.row(number).to_vec());
        let rows = if is_backward { passed.rev().map(row).collect() } else { passed.map(row).collect() };
        let columns = portal.columns().iter().map(|column| (column.name.clone(), column.of)).collect();
        let bounds = portal.columns().iter().map(|column| column.bound).collect();
        let origins = portal.columns().iter().map(|column| column.origin).collect();
        self.session.pass(name);
        let zone = self.zone.clone();
        Ok(Outcome {
            count,
            columns,
            bounds,
            origins,
            rows,
            zone,
            is_query: true,
            ..Outcome::tagged(format!("FETCH {count}"))
        })
    }
}

/// The columns that a plan answers with.
pub(crate) fn columns_of(plan: &Plan) -> Arc<[RowColumn]> {
    let columns = plan.columns().iter().map(|column| RowColumn {
        name: column.name.clone(),
        of: column.of.base,
        bound: column.of.bound,
        origin: column.origin,
    });
    columns.collect()
}
