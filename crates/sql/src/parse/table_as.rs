//! `CREATE TABLE … AS` in PostgreSQL's form, and `SELECT … INTO` as the same.

use sqlparser::ast::{self, SetExpr, helpers::stmt_create_table::CreateTableBuilder};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};

use super::error_of;
use crate::error::SqlError;

/// The option of a table that is made without the rows of its query. No identifier of a statement has a blank unless it is quoted.
const NO_DATA: &str = "no data";

/// `CREATE TABLE … AS`, if the next statement is one.
pub(super) fn statement(parser: &mut Parser<'_>) -> Result<Option<ast::Statement>, SqlError> {
    if !parser.peek_keyword(Keyword::CREATE) {
        return Ok(None);
    }
    let Some(table) = parser.maybe_parse(beginning).map_err(error_of)? else { return Ok(None) };
    if parser.peek_keyword(Keyword::EXECUTE) {
        return Err(SqlError::unsupported("CREATE TABLE AS EXECUTE"));
    }
    let query = parser.parse_query().map_err(error_of)?;
    let mut options = Vec::new();
    if parser.parse_keyword(Keyword::WITH) {
        if parser.parse_keyword(Keyword::NO) {
            options.push(ast::SqlOption::Ident(ast::Ident::new(NO_DATA).into()));
        }
        parser.expect_keyword(Keyword::DATA).map_err(error_of)?;
    }
    let table = table.query(Some(query)).table_options(ast::CreateTableOptions::With(options));
    Ok(Some(ast::Statement::CreateTable(table.build())))
}

/// What stands in front of the query, up to `AS`.
fn beginning(parser: &mut Parser<'_>) -> Result<CreateTableBuilder, ParserError> {
    parser.expect_keyword(Keyword::CREATE)?;
    let _ = parser.parse_one_of_keywords(&[Keyword::GLOBAL, Keyword::LOCAL]);
    let temporary = parser.parse_one_of_keywords(&[Keyword::TEMP, Keyword::TEMPORARY]).is_some();
    let unlogged = parser.parse_keyword(Keyword::UNLOGGED);
    parser.expect_keyword(Keyword::TABLE)?;
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
    if parser.parse_keyword(Keyword::USING) {
        parser.parse_identifier()?;
    }
    // How rows are stored on disks, and where, says nothing here.
    parser.parse_options(Keyword::WITH)?;
    let on_commit =
        if parser.parse_keywords(&[Keyword::ON, Keyword::COMMIT]) { Some(on_commit(parser)?) } else { None };
    if parser.parse_keyword(Keyword::TABLESPACE) {
        parser.parse_identifier()?;
    }
    parser.expect_keyword(Keyword::AS)?;
    let column = |name| ast::ColumnDef { name, data_type: ast::DataType::Unspecified, options: Vec::new() };
    Ok(CreateTableBuilder::new(name)
        .temporary(temporary)
        .unlogged(unlogged)
        .if_not_exists(if_not_exists)
        .columns(columns.into_iter().map(column).collect())
        .on_commit(on_commit))
}

fn on_commit(parser: &mut Parser<'_>) -> Result<ast::OnCommit, ParserError> {
    let forms = [
        (&[Keyword::DELETE, Keyword::ROWS][..], ast::OnCommit::DeleteRows),
        (&[Keyword::PRESERVE, Keyword::ROWS], ast::OnCommit::PreserveRows),
        (&[Keyword::DROP], ast::OnCommit::Drop),
    ];
    match forms.into_iter().find(|(words, _)| parser.parse_keywords(words)) {
        Some((_, what)) => Ok(what),
        None => parser.expected_ref("DELETE ROWS, PRESERVE ROWS or DROP", parser.peek_token_ref()),
    }
}

/// `SELECT … INTO t …` as the statement that makes `t`. Any other one stays as it is.
pub(super) fn into_table(statement: ast::Statement) -> Result<ast::Statement, SqlError> {
    let ast::Statement::Query(mut query) = statement else { return Ok(statement) };
    let Some(into) = first(&mut query.body).and_then(|select| select.into.take()) else {
        return Ok(ast::Statement::Query(query));
    };
    let parts = match &into.targets[..] {
        [ast::Expr::Identifier(name)] => vec![name.clone()],
        [ast::Expr::CompoundIdentifier(names)] => names.clone(),
        _ => return Err(SqlError::unsupported(into)),
    };
    let table = CreateTableBuilder::new(ast::ObjectName::from(parts))
        .temporary(into.temporary)
        .unlogged(into.unlogged)
        .query(Some(query));
    Ok(ast::Statement::CreateTable(table.build()))
}

/// The first SELECT of a query.
fn first(body: &mut SetExpr) -> Option<&mut ast::Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { left, .. } => first(left),
        _ => None,
    }
}

/// Whether a table gets the rows of its query.
pub(crate) fn has_data(create: &ast::CreateTable) -> bool {
    let is_no_data =
        |option: &ast::SqlOption| matches!(option, ast::SqlOption::Ident(name) if name.to_string() == NO_DATA);
    match &create.table_options {
        ast::CreateTableOptions::With(options) => !options.iter().any(is_no_data),
        _ => true,
    }
}
