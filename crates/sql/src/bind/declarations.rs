//! Declarations of variables in the bodies of procedures.

use std::sync::Arc;

use sqlparser::ast;

use super::Written;
use super::bodies::{Compiler, syntax};
use super::variables::{Field, Fields, Variable, What};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::procedures::statements::{Declaration, DeclaredType};
use crate::procedures::tree::{Act, Step, Value};
use crate::types::ColumnType;

/// What a declaration declares.
enum Declared {
    Value(ColumnType),
    Record,
    Row(Vec<(String, ColumnType)>),
}

impl Compiler<'_, '_, '_> {
    pub(super) fn declaration(
        &mut self,
        label: Option<&Arc<str>>,
        declaration: &Declaration,
        steps: &mut Vec<Step>,
    ) -> Result<(), SqlError> {
        let name = &declaration.name;
        let fields = match self.declared(&declaration.of)? {
            Declared::Value(of) => {
                if declaration.is_required && declaration.initial.is_none() {
                    let message =
                        format!("variable \"{name}\" must have a default value, since it's declared NOT NULL");
                    return Err(SqlError::new(SqlState("22004"), message));
                }
                let null = ast::Expr::value(ast::Value::Null);
                let value = self.value(declaration.initial.as_ref().unwrap_or(&null), of);
                let slot = self.new_slot(declaration.is_required.then(|| name.clone()));
                steps.push(Step { line: declaration.line, act: Act::Set { slot, value, is_initial: true } });
                self.declare(label, name, Field { name: name.clone(), slot, of }, declaration.is_constant);
                return Ok(());
            }
            _ if declaration.initial.is_some() || declaration.is_required => {
                return Err(SqlError::unsupported("a record with a first value, or NOT NULL"));
            }
            Declared::Record => None,
            Declared::Row(columns) => {
                let fields = columns.into_iter().map(|(name, of)| Field { name, slot: self.new_slot(None), of });
                Some(fields.collect::<Vec<_>>())
            }
        };
        for field in fields.iter().flatten() {
            let value = Value { expr: Ok(Expr::NULL), uses: Vec::new() };
            let act = Act::Set { slot: field.slot, value, is_initial: true };
            steps.push(Step { line: declaration.line, act });
        }
        let is_fixed = fields.is_some();
        let fields = fields.map_or(Fields::None, Fields::Known);
        let what = What::Record { fields, is_fixed, known: Vec::new() };
        let is_constant = declaration.is_constant;
        self.entries.push(Variable { label: label.cloned(), name: name.clone(), what, is_constant });
        Ok(())
    }

    fn declared(&mut self, of: &DeclaredType) -> Result<Declared, SqlError> {
        let row_of = |compiler: &Self, table: &Written| {
            let table = compiler.binder.catalog.named_table(table)?;
            let columns = table.visible().map(|(_, column)| (column.name.clone(), column.of));
            Ok::<_, SqlError>(Declared::Row(columns.collect()))
        };
        match of {
            DeclaredType::Record => Ok(Declared::Record),
            DeclaredType::RowOf(table) => row_of(self, &Written::of_parts(vec![table.clone()])?),
            DeclaredType::Plain(of) => match (self.binder.catalog.column_type(of), of) {
                (Err(error), ast::DataType::Custom(name, _)) if error.state() == SqlState::UNDEFINED_OBJECT => {
                    Written::of(name).and_then(|table| row_of(self, &table)).map_err(|_| error)
                }
                (known, _) => known.map(Declared::Value),
            },
            DeclaredType::TypeOf(names) => {
                let (first, name) = match &names[..] {
                    [name] => (None, name),
                    [first, name, ..] => (Some(first.as_str()), name),
                    [] => return Err(syntax("syntax error at or near \"%\"")),
                };
                if let Some(field) = self.find(first, name)? {
                    return Ok(Declared::Value(field.0.of));
                }
                let Some(table) = first else { return Err(syntax(format!("\"{name}\" is not a known variable"))) };
                let table = self.binder.catalog.named_table(&Written::of_parts(vec![table.to_owned()])?)?;
                let column = table.visible().find(|(_, column)| column.name == *name);
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                let missing = || SqlError::new(SqlState::UNDEFINED_COLUMN, message);
                column.map(|(_, column)| Declared::Value(column.of)).ok_or_else(missing)
            }
        }
    }
}
