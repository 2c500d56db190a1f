//! Statements that the parser does not know, in the form of others that it knows.

use sqlparser::ast::{self, AlterTableOperation as Operation, SequenceOptions, helpers::attached_token::AttachedToken};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::bind::folded;

/// What the name begins with that a table gets which goes to the schema of that name. No identifier of a statement has it.
const SCHEMA: char = '\u{3}';

/// A statement of this kind, if the next one is: the parser then stands behind it.
pub(crate) fn statement(parser: &mut Parser<'_>) -> Result<Option<ast::Statement>, ParserError> {
    match parser.peek_token_ref().token {
        Token::Word(ref word) if word.keyword == Keyword::ALTER => match parser.maybe_parse(rename_view)? {
            Some(renamed) => Ok(Some(renamed)),
            None => parser.maybe_parse(set_schema),
        },
        Token::Word(ref word) if [Keyword::BEGIN, Keyword::START, Keyword::SET].contains(&word.keyword) => {
            if says_deferrable(parser) {
                parser.maybe_parse(deferrable)
            } else {
                Ok(None)
            }
        }
        _ => Ok(None),
    }
}

/// The most tokens that a statement has which begins a transaction, or says what it is to be.
const MODES: usize = 32;

/// Whether the statement has the word `DEFERRABLE`.
fn says_deferrable(parser: &Parser<'_>) -> bool {
    let tokens = (0..MODES).map(|at| parser.peek_nth_token_ref(at));
    let mut own = tokens.take_while(|token| !matches!(token.token, Token::SemiColon | Token::EOF));
    own.any(|token| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::DEFERRABLE))
}

/// A statement about a transaction, `[NOT] DEFERRABLE` among its modes. The word says nothing more: a read-only transaction reads a snapshot, which never conflicts, and
/// need not wait for one.
fn deferrable(parser: &mut Parser<'_>) -> Result<ast::Statement, ParserError> {
    if parser.parse_keyword(Keyword::SET) {
        let session = parser.parse_keyword(Keyword::SESSION);
        if session {
            parser.expect_keywords(&[Keyword::CHARACTERISTICS, Keyword::AS])?;
        }
        parser.expect_keyword(Keyword::TRANSACTION)?;
        let modes = transaction_modes(parser)?;
        return Ok(ast::Statement::Set(ast::Set::SetTransaction { modes, snapshot: None, session }));
    }
    let begin = parser.parse_keyword(Keyword::BEGIN);
    let transaction = if begin {
        parser.parse_one_of_keywords(&[Keyword::TRANSACTION, Keyword::WORK])
    } else {
        parser.expect_keywords(&[Keyword::START, Keyword::TRANSACTION])?;
        Some(Keyword::TRANSACTION)
    };
    let transaction = transaction.map(|word| match word {
        Keyword::WORK => ast::BeginTransactionKind::Work,
        _ => ast::BeginTransactionKind::Transaction,
    });
    let modes = transaction_modes(parser)?;
    Ok(ast::Statement::StartTransaction {
        modes,
        begin,
        transaction,
        modifier: None,
        statements: Vec::new(),
        exception: None,
        has_end_keyword: false,
    })
}

fn transaction_modes(parser: &mut Parser<'_>) -> Result<Vec<ast::TransactionMode>, ParserError> {
    use ast::{TransactionAccessMode as Access, TransactionIsolationLevel as Level, TransactionMode as Mode};
    let mut modes = Vec::new();
    loop {
        if parser.parse_keywords(&[Keyword::READ, Keyword::ONLY]) {
            modes.push(Mode::AccessMode(Access::ReadOnly));
        } else if parser.parse_keywords(&[Keyword::READ, Keyword::WRITE]) {
            modes.push(Mode::AccessMode(Access::ReadWrite));
        } else if parser.parse_keywords(&[Keyword::ISOLATION, Keyword::LEVEL]) {
            let levels = [
                (&[Keyword::SERIALIZABLE][..], Level::Serializable),
                (&[Keyword::REPEATABLE, Keyword::READ], Level::RepeatableRead),
                (&[Keyword::READ, Keyword::COMMITTED], Level::ReadCommitted),
                (&[Keyword::READ, Keyword::UNCOMMITTED], Level::ReadUncommitted),
            ];
            match levels.into_iter().find(|(words, _)| parser.parse_keywords(words)) {
                Some((_, level)) => modes.push(Mode::IsolationLevel(level)),
                None => return parser.expected_ref("an isolation level", parser.peek_token_ref()),
            }
        } else if !parser.parse_keywords(&[Keyword::NOT, Keyword::DEFERRABLE]) {
            parser.expect_keyword(Keyword::DEFERRABLE)?;
        }
        if !parser.consume_token(&Token::Comma)
            && matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF)
        {
            return Ok(modes);
        }
    }
}

/// `ALTER SEQUENCE`
#[derive(Clone, Debug)]
pub(crate) struct AlterSequence {
    pub(crate) name: ast::ObjectName,
    pub(crate) if_exists: bool,
    pub(crate) change: SequenceChange,
}

#[derive(Clone, Debug)]
pub(crate) enum SequenceChange {
    Options(Vec<SequenceOption>),
    Rename(ast::Ident),
    Schema(ast::Ident),
}

#[derive(Clone, Debug)]
pub(crate) enum SequenceOption {
    Known(SequenceOptions),
    /// `RESTART [WITH …]`
    Restart(Option<ast::Expr>),
}

impl AlterSequence {
    /// The statement, if the next one is one of this kind.
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Option<Self>, ParserError> {
        if !parser.parse_keywords(&[Keyword::ALTER, Keyword::SEQUENCE]) {
            return Ok(None);
        }
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        let change = if parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
            SequenceChange::Rename(parser.parse_identifier()?)
        } else if parser.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]) {
            SequenceChange::Schema(parser.parse_identifier()?)
        } else {
            let mut options = Vec::new();
            while let Some(option) = sequence_option(parser)? {
                options.push(option);
            }
            if options.is_empty() {
                return parser.expected_ref("an option of a sequence", parser.peek_token_ref());
            }
            SequenceChange::Options(options)
        };
        Ok(Some(Self { name, if_exists, change }))
    }
}

fn sequence_option(parser: &mut Parser<'_>) -> Result<Option<SequenceOption>, ParserError> {
    let option = if parser.parse_keyword(Keyword::RESTART) {
        let with = parser.parse_keyword(Keyword::WITH);
        let is_number = matches!(parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus);
        let to = if with || is_number { Some(parser.parse_number()?) } else { None };
        return Ok(Some(SequenceOption::Restart(to)));
    } else if parser.parse_keyword(Keyword::INCREMENT) {
        let by = parser.parse_keyword(Keyword::BY);
        SequenceOptions::IncrementBy(parser.parse_number()?, by)
    } else if parser.parse_keyword(Keyword::MINVALUE) {
        SequenceOptions::MinValue(Some(parser.parse_number()?))
    } else if parser.parse_keyword(Keyword::MAXVALUE) {
        SequenceOptions::MaxValue(Some(parser.parse_number()?))
    } else if parser.parse_keywords(&[Keyword::NO, Keyword::MINVALUE]) {
        SequenceOptions::MinValue(None)
    } else if parser.parse_keywords(&[Keyword::NO, Keyword::MAXVALUE]) {
        SequenceOptions::MaxValue(None)
    } else if parser.parse_keyword(Keyword::START) {
        let with = parser.parse_keyword(Keyword::WITH);
        SequenceOptions::StartWith(parser.parse_number()?, with)
    } else if parser.parse_keyword(Keyword::CACHE) {
        SequenceOptions::Cache(parser.parse_number()?)
    } else if parser.parse_keywords(&[Keyword::NO, Keyword::CYCLE]) {
        SequenceOptions::Cycle(true)
    } else if parser.parse_keyword(Keyword::CYCLE) {
        SequenceOptions::Cycle(false)
    } else if parser.parse_keyword(Keyword::AS) {
        SequenceOptions::DataType(parser.parse_data_type()?)
    } else if parser.parse_keywords(&[Keyword::OWNED, Keyword::BY]) {
        SequenceOptions::OwnedBy(Some(parser.parse_object_name(false)?))
    } else {
        return Ok(None);
    };
    Ok(Some(SequenceOption::Known(option)))
}

/// `ALTER VIEW … RENAME …`, in the form of a change of a table of a type that PostgreSQL does not have.
fn rename_view(parser: &mut Parser<'_>) -> Result<ast::Statement, ParserError> {
    parser.expect_keywords(&[Keyword::ALTER, Keyword::VIEW])?;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    parser.expect_keyword(Keyword::RENAME)?;
    let operation = if parser.parse_keyword(Keyword::TO) {
        Operation::RenameTable { table_name: ast::RenameTableNameKind::To(parser.parse_object_name(false)?) }
    } else {
        let _ = parser.parse_keyword(Keyword::COLUMN);
        let old_column_name = parser.parse_identifier()?;
        parser.expect_keyword(Keyword::TO)?;
        Operation::RenameColumn { old_column_name, new_column_name: parser.parse_identifier()? }
    };
    Ok(ast::Statement::AlterTable(ast::AlterTable {
        name,
        if_exists,
        only: false,
        operations: vec![operation],
        location: None,
        on_cluster: None,
        table_type: Some(ast::AlterTableType::Iceberg),
        end_token: AttachedToken::empty(),
    }))
}

/// Whether the statement was written as ALTER VIEW.
pub(crate) fn is_of_view(alter: &ast::AlterTable) -> bool {
    alter.table_type == Some(ast::AlterTableType::Iceberg)
}

/// `ALTER TABLE … SET SCHEMA …`
fn set_schema(parser: &mut Parser<'_>) -> Result<ast::Statement, ParserError> {
    parser.expect_keywords(&[Keyword::ALTER, Keyword::TABLE])?;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let only = parser.parse_keyword(Keyword::ONLY);
    let name = parser.parse_object_name(false)?;
    parser.expect_keywords(&[Keyword::SET, Keyword::SCHEMA])?;
    let schema = folded(&parser.parse_identifier()?);
    let schema = ast::ObjectName::from(vec![ast::Ident::with_quote('"', format!("{SCHEMA}{schema}"))]);
    let operations = vec![Operation::RenameTable { table_name: ast::RenameTableNameKind::As(schema) }];
    Ok(ast::Statement::AlterTable(ast::AlterTable {
        name,
        if_exists,
        only,
        operations,
        location: None,
        on_cluster: None,
        table_type: None,
        end_token: AttachedToken::empty(),
    }))
}

/// The schema to which a table goes that is renamed so.
pub(crate) fn moved_to(name: &ast::ObjectName) -> Option<&str> {
    let [part] = &name.0[..] else { return None };
    part.as_ident()?.value.strip_prefix(SCHEMA)
}
