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
    if parser.peek_keyword(Keyword::ALTER) { parser.maybe_parse(set_schema) } else { Ok(None) }
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
