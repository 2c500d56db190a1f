//! Rows as values: a table's name that stands for its row, ROW, and the columns of a row.

use sqlparser::ast;

use super::expressions::not;
use super::literals::constant;
use super::scope::{Qualifier, ScopeColumn};
use super::{Binder, folded};
use crate::computed::is_own_name;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::records::{self, Field};
use crate::types::{Bound, ColumnType, Type};

/// The columns of a row that a statement knows.
pub(crate) type Shape = Vec<(String, ColumnType)>;

impl Binder<'_> {
    /// The type of rows with these columns.
    fn type_of_row(&mut self, shape: Shape) -> ColumnType {
        let at = self.shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        ColumnType { base: Type::Record, bound: Bound::Row(at as u32) }
    }

    /// The columns of a row.
    pub(super) fn shape(&self, of: ColumnType) -> Result<&Shape, SqlError> {
        let known = if let Bound::Row(at) = of.bound { self.shapes.get(at as usize) } else { None };
        known.ok_or_else(|| SqlError::unsupported("a row of which it is not known where it comes from"))
    }

    /// The text in front of the columns of such a row.
    fn shape_in_words(shape: &Shape) -> Expr {
        let fields: Vec<Field> = shape.iter().map(|(name, of)| (name.clone(), of.base)).collect();
        Expr::Constant(OwnedDatum::Text(records::shape(&fields).into()))
    }

    /// A row of these values.
    pub(super) fn row_of(&mut self, values: Vec<(String, Typed)>) -> Typed {
        let shape: Shape = values.iter().map(|(name, value)| (name.clone(), value.of)).collect();
        let mut parts = vec![Self::shape_in_words(&shape)];
        parts.extend(values.into_iter().map(|(_, value)| value.expr));
        Typed { expr: Expr::Array { parts: parts.into(), is_nested: false }, of: self.type_of_row(shape) }
    }

    /// `ROW(…)`, or values in parentheses.
    pub(super) fn written_row(&mut self, values: &[&ast::Expr]) -> Result<Typed, SqlError> {
        let mut bound = Vec::new();
        for (number, value) in (1..).zip(values) {
            let value = self.expr(value)?;
            bound.push((format!("f{number}"), self.known(value)?));
        }
        Ok(self.row_of(bound))
    }

    /// The row of the table of this name, if one is in FROM: of a function of one value, the value.
    pub(super) fn whole_row(&mut self, table: &str) -> Result<Option<Typed>, SqlError> {
        let of = Qualifier::from(table);
        let mut around = self.scopes.iter().rev().enumerate().filter(|(_, scope)| !scope.is_aside);
        let Some((level, scope)) = around.find(|(_, scope)| scope.has_table(of)) else { return Ok(None) };
        let scope = scope.clone();
        let at = |column: usize| if level == 0 { Expr::Column(column) } else { Expr::Outer { level, column } };
        let columns = scope.of_table(of)?;
        if let [(position, column)] = columns[..]
            && column.is_scalar
        {
            return Ok(Some(Typed { expr: at(position), of: column.of }));
        }
        // What SQL keeps for itself is no part of a row.
        let is_seen = |column: &ScopeColumn| !(column.is_hidden && is_own_name(&column.name));
        let mut values = Vec::new();
        for (position, column) in columns.iter().filter(|(_, column)| is_seen(column)) {
            self.catalog.reads(column.need);
            values.push((column.name.clone(), Typed { expr: at(*position), of: column.of }));
        }
        // Beside other tables an outer join may have left it out.
        let is_alone = columns.len() == scope.columns.len();
        let never_null = columns.iter().find(|(_, column)| {
            column.origin.as_ref().is_some_and(|(table, position)| !table.columns[*position].nullable)
        });
        let is_missing = match never_null {
            _ if is_alone => None,
            Some((position, _)) => Some(Expr::IsNull(Box::new(at(*position)))),
            None => {
                Some(Expr::And(columns.iter().map(|(position, _)| Expr::IsNull(Box::new(at(*position)))).collect()))
            }
        };
        let row = self.row_of(values);
        Ok(Some(match is_missing {
            None => row,
            Some(is_missing) => Typed {
                expr: Expr::Case { branches: [(is_missing, Expr::NULL)].into(), otherwise: Box::new(row.expr) },
                of: row.of,
            },
        }))
    }

    /// All columns of the row that an item of a list names so.
    pub(super) fn all_fields(&mut self, item: &ast::Expr) -> Result<Vec<(String, Typed)>, SqlError> {
        let row = crate::parse::row_of_all(item).ok_or_else(|| SqlError::internal("an item of a list is a row"))?;
        let row = self.expr(&row)?;
        self.fields(&row)
    }

    /// The columns of a row.
    pub(super) fn fields(&self, row: &Typed) -> Result<Vec<(String, Typed)>, SqlError> {
        let shape = self.shape(row.of)?;
        let field = |(at, (name, of)): (usize, &(String, ColumnType))| {
            let expr = match &row.expr {
                Expr::Array { parts, is_nested: false } => parts[at + 1].clone(),
                row => {
                    let at = constant(Datum::Int(at as i64), Type::Int4).expr;
                    Expr::Call(records::field_function(), [row.clone(), at].into())
                }
            };
            (name.clone(), Typed { expr, of: *of })
        };
        Ok(shape.iter().enumerate().map(field).collect())
    }

    /// The column of a row that has this name.
    pub(super) fn field(&self, row: &Typed, name: &ast::Ident) -> Result<Typed, SqlError> {
        if row.base() != Type::Record {
            let message =
                format!("column notation .{name} applied to type {}, which is not a composite type", row.base());
            return Err(SqlError::new(SqlState("42809"), message));
        }
        let name = folded(name);
        let mut named = self.fields(row)?.into_iter().filter(|(own, _)| *own == name);
        match (named.next(), named.next()) {
            (Some((_, field)), None) => Ok(field),
            (Some(_), Some(_)) => {
                let message = format!("column reference \"{name}\" is ambiguous");
                Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message))
            }
            (None, _) => {
                let message = format!("could not identify column \"{name}\" in record data type");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
            }
        }
    }

    /// Whether all columns of a row are NULL, or none is.
    pub(super) fn row_test(&self, row: &Typed, is_null: bool) -> Result<Typed, SqlError> {
        let tests = self.fields(row)?.into_iter().map(|(_, field)| {
            let test = Expr::IsNull(Box::new(field.expr));
            if is_null { test } else { not(test) }
        });
        Ok(Typed::new(Expr::And(tests.collect()), Type::Bool))
    }

    /// Calls a function of several rows with several columns: each row is a value.
    pub(super) fn rows_of_call(&mut self, call: Typed, columns: &[(&'static str, Option<Type>)]) -> Typed {
        let shape: Shape =
            columns.iter().map(|(name, of)| ((*name).to_owned(), of.map_or(call.of, ColumnType::from))).collect();
        let width = constant(Datum::Int(columns.len() as i64), Type::Int4).expr;
        let parts = [call.expr, Self::shape_in_words(&shape), width];
        Typed { expr: Expr::Call(records::rows_function(), parts.into()), of: self.type_of_row(shape) }
    }
}
