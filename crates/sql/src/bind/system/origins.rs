//! Which columns of tables the columns of an answer are.

use super::objects::number;
use super::{Binder, table_id};
use crate::expr::{Expr, Typed};
use crate::rows::ColumnOrigin;

impl Binder<'_> {
    /// The columns of tables that the expressions of a list are, which is bound in the innermost scope. Of columns of views and subqueries it is not told.
    pub(in crate::bind) fn origins(&self, list: &[(String, Typed)]) -> Vec<Option<ColumnOrigin>> {
        let scope = self.scopes.last();
        let origin = |typed: &Typed| {
            let Expr::Column(at) = typed.expr else { return None };
            let (table, column) =
                scope?.columns.get(at)?.origin.as_ref().filter(|(table, _)| !table.name.is_temporary())?;
            let relation = u32::try_from(table_id(table)).ok()?;
            Some(ColumnOrigin { relation, number: i16::try_from(number(table, *column)).ok()? })
        };
        list.iter().map(|(_, typed)| origin(typed)).collect()
    }
}
