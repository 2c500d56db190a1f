//! What names stand for: columns, and the variables of a procedure.

use std::sync::Arc;

use super::scope::Qualifier;
use super::{Binder, scope};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::types::ColumnType;

/// The variables that the statements of a procedure see.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// A later one hides those of its name.
    pub(super) entries: Vec<Variable>,
    /// Those that the statement's parameters stand for.
    pub(super) used: Vec<usize>,
    /// A column hides them; otherwise a name that stands for both is refused.
    pub(super) are_hidden: bool,
}

/// A name of a procedure, and what it stands for.
#[derive(Debug)]
pub(super) struct Variable {
    /// The label of its block.
    pub(super) label: Option<Arc<str>>,
    pub(super) name: String,
    pub(super) what: What,
    pub(super) is_constant: bool,
}

#[derive(Debug)]
pub(super) enum What {
    Value(Field),
    Record {
        fields: Fields,
        /// They are those of a table.
        is_fixed: bool,
        /// Those that it has had: rows of the same columns go to the same variables.
        known: Vec<Vec<Field>>,
    },
}

/// The fields of a record, as far as a body is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fields {
    /// No row was put there.
    None,
    Known(Vec<Field>),
    /// They depend on the way that an execution takes.
    Lost,
}

/// A variable of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) slot: usize,
    pub(super) of: ColumnType,
}

/// That a record has no fields yet.
fn unassigned(name: &str) -> SqlError {
    let message = format!("record \"{name}\" is not assigned yet");
    SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)
        .with_detail("The tuple structure of a not-yet-assigned record is indeterminate.")
}

impl Variables {
    /// The variable that these words name: itself, a field of it, or it behind the label of its block.
    pub(super) fn find(&self, first: Option<&str>, name: &str) -> Result<Option<(&Variable, &Field)>, SqlError> {
        for variable in self.entries.iter().rev() {
            match (&variable.what, first) {
                (What::Value(field), None) if variable.name == name => return Ok(Some((variable, field))),
                (What::Value(field), Some(label))
                    if variable.name == name && variable.label.as_deref() == Some(label) =>
                {
                    return Ok(Some((variable, field)));
                }
                (What::Record { fields, .. }, Some(record)) if variable.name == record => {
                    let fields = match fields {
                        Fields::Known(fields) => fields,
                        Fields::None => return Err(unassigned(record)),
                        Fields::Lost => {
                            let what =
                                format!("the record \"{record}\" behind loops or branches with rows of other columns");
                            return Err(SqlError::unsupported(what));
                        }
                    };
                    if let Some(field) = fields.iter().find(|field| field.name == name) {
                        return Ok(Some((variable, field)));
                    }
                    let message = format!("record \"{record}\" has no field \"{name}\"");
                    return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
                }
                (What::Record { .. }, None) if variable.name == name => {
                    return Err(SqlError::unsupported(format!("the row of the record \"{name}\" as a value")));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl Binder<'_> {
    pub(super) fn column(&mut self, table: Option<Qualifier<'_>>, name: &str) -> Result<Typed, SqlError> {
        let found = scope::resolve(&self.scopes, table, name);
        let variable = match table {
            Some(Qualifier { schema: Some(_), .. }) => Ok(None),
            table => self.variable(table.map(|it| it.table), name),
        };
        match (found, variable) {
            (Ok(_), Ok(Some(_)) | Err(_)) if !self.variables.as_ref().is_some_and(|it| it.are_hidden) => {
                let message = format!("column reference \"{name}\" is ambiguous");
                Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message)
                    .with_detail("It could refer to either a PL/pgSQL variable or a table column."))
            }
            (Ok((level, column, of)), _) => {
                let expr = if level == 0 { Expr::Column(column) } else { Expr::Outer { level, column } };
                Ok(Typed::new(expr, of))
            }
            (Err(error), _) if error.state() == SqlState::AMBIGUOUS_COLUMN => Err(error),
            (Err(_), Ok(Some(variable))) => Ok(self.used_variable(&variable)),
            (Err(_), Err(error)) | (Err(error), Ok(None)) => Err(error),
        }
    }

    fn variable(&self, table: Option<&str>, name: &str) -> Result<Option<Field>, SqlError> {
        let Some(variables) = &self.variables else { return Ok(None) };
        Ok(variables.find(table, name)?.map(|(_, field)| field.clone()))
    }

    /// The parameter that stands for a variable.
    fn used_variable(&mut self, field: &Field) -> Typed {
        let Some(variables) = &mut self.variables else { return Typed::new(Expr::NULL, field.of) };
        let at = variables.used.iter().position(|slot| *slot == field.slot).unwrap_or_else(|| {
            variables.used.push(field.slot);
            self.parameters.push(field.of.base);
            variables.used.len() - 1
        });
        Typed::new(Expr::Parameter(at), field.of.base)
    }

    /// What `$1` and its like stand for in a procedure. `None`: in a statement of a client.
    pub(super) fn numbered_variable(&mut self, name: &str) -> Option<Result<Typed, SqlError>> {
        self.variables.as_ref()?;
        let missing = || SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"));
        let found = self.variable(None, name).and_then(|found| found.ok_or_else(missing));
        Some(found.map(|field| self.used_variable(&field)))
    }

    /// Binds what belongs to a table or a view, where no variable is seen.
    pub(super) fn without_variables<O>(
        &mut self,
        bind: impl FnOnce(&mut Self) -> Result<O, SqlError>,
    ) -> Result<O, SqlError> {
        let variables = self.variables.take();
        let bound = bind(self);
        self.variables = variables;
        bound
    }
}
