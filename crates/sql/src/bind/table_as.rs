//! CREATE TABLE AS, and SELECT INTO.

use sqlparser::ast;

use super::definitions::{Draft, check_name};
use super::query::Query;
use super::{Binder, folded};
use crate::catalog::Column;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::names::Name;
use crate::plan::Node;
use crate::sequences::{Draw, ROW_BLOCKS};
use crate::statement::Definition;

/// What PostgreSQL calls the statement.
pub(crate) const TABLE_AS: &str = "CREATE TABLE AS";

impl Binder<'_> {
    /// A table of the columns of a query, with its rows.
    pub(super) fn create_table_as(
        &mut self,
        create: &ast::CreateTable,
        query: &ast::Query,
        name: &Name,
    ) -> Result<Definition, SqlError> {
        super::check_reads_only(query, TABLE_AS)?;
        let mut draft = Draft::new(name);
        draft.description.on_commit = Self::on_commit(name, create)?;
        let Query { node, columns } = self.query(query)?;
        if !self.parameters.is_empty() {
            return Err(SqlError::unsupported("a parameter in CREATE TABLE AS"));
        }
        if self.catalog.is_live.get() {
            return Err(SqlError::unsupported("CREATE TABLE AS of what goes on now"));
        }
        if create.columns.len() > columns.len() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "too many column names were specified"));
        }
        for (at, column) in columns.iter().enumerate() {
            let named = create.columns.get(at).map_or_else(|| column.name.clone(), |given| folded(&given.name));
            check_name(&named)?;
            self.catalog.check_usable(column.of)?;
            if draft.column(&named).is_some() {
                let message = format!("column \"{named}\" specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            }
            draft.description.columns.push(Column::new(named, column.of));
        }
        let (mut table, objects) = draft.table(&self.catalog)?;
        let mut definition = Definition::new(TABLE_AS);
        if crate::parse::has_data(create) {
            let mut values: Vec<_> = (0..columns.len()).map(Expr::Column).collect();
            if let Some(number) = table.description.row_numbers {
                let source = self.catalog.sequence_of_rows(name, number);
                source.prepare(ROW_BLOCKS.0)?;
                values.push(self.drawing(Draw::Row(source), Box::new([])));
            }
            table.source = Some(Node::Project { input: Box::new(node), columns: values });
        }
        definition.uses = self.catalog.used.borrow().clone();
        definition.tables.push(table);
        definition.objects.extend(objects);
        Ok(definition)
    }
}
