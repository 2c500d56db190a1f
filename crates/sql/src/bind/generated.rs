//! Generated columns: `GENERATED ALWAYS AS (…) STORED`.

use sqlparser::ast;

use super::Binder;
use super::alter::Alteration;
use super::changes::scope_of;
use super::definitions::Draft;
use super::drops::cascaded;
use super::renames::mentions;
use crate::casts::Place;
use crate::catalog::{Column, ForeignAction, ForeignKey, Identity, Table};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::outcome::Notice;

/// Where such an expression stands.
pub(super) const PLACE: &str = "column generation expressions";

/// Why a column takes no values.
pub(super) fn detail(column: &Column) -> String {
    match column.generated {
        Some(_) => format!("Column \"{}\" is a generated column.", column.name),
        None => format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name),
    }
}

/// Leaves generated columns out of those of a COPY, which may not name them.
pub(super) fn leave_out(table: &Table, columns: &mut Vec<usize>, is_named: bool) -> Result<(), SqlError> {
    let is_generated = |at: &usize| table.columns[*at].generated.is_some();
    match columns.iter().find(|at| is_generated(at)) {
        Some(&at) if is_named => {
            let message = format!("column \"{}\" is a generated column", table.columns[at].name);
            let detail = "Generated columns cannot be used in COPY.";
            Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).with_detail(detail))
        }
        _ => {
            columns.retain(|at| !is_generated(at));
            Ok(())
        }
    }
}

/// Refuses a foreign key that would set a generated column.
pub(super) fn check_foreign_key(columns: &[Column], key: &ForeignKey) -> Result<(), SqlError> {
    if !columns.iter().any(|column| column.generated.is_some() && key.columns.contains(&column.name)) {
        return Ok(());
    }
    let sets = |action| matches!(action, ForeignAction::SetNull | ForeignAction::SetDefault);
    let event = match (sets(key.on_delete), sets(key.on_update) || key.on_update == ForeignAction::Cascade) {
        (false, false) => return Ok(()),
        (true, _) => "DELETE",
        (false, true) => "UPDATE",
    };
    let message = format!("invalid ON {event} action for foreign key constraint containing generated column");
    Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
}

impl Binder<'_> {
    /// What a generated column is over the columns of its table.
    pub(crate) fn generated(&mut self, table: &str, columns: &[Column], of: &Column) -> Result<Expr, SqlError> {
        let expr = crate::parse::expression(of.generated.as_deref().unwrap_or_default())?;
        let bind = |binder: &mut Self| {
            binder.within(scope_of(table, columns), |binder| {
                binder.place = PLACE;
                binder.expr(&expr)
            })
        };
        let value = self.under_public(bind)?;
        let from = value.base();
        let cast = self.cast(value, of.of, Place::Assignment).map_err(|error| {
            let (name, to) = (&of.name, of.of.base);
            let message = format!("column \"{name}\" is of type {to} but default expression is of type {from}");
            match error.state() {
                SqlState::DATATYPE_MISMATCH => SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                    .with_hint("You will need to rewrite or cast the expression."),
                _ => error,
            }
        });
        Ok(cast?.expr)
    }

    /// Refuses an expression that would not always be the same, or that asks for what is generated itself.
    pub(super) fn check_generated(&mut self, draft: &Draft) -> Result<(), SqlError> {
        let columns = &draft.description.columns;
        for column in columns.iter().filter(|column| column.generated.is_some()) {
            self.is_mutable = false;
            let bind = |binder: &mut Self| binder.generated(draft.name.plain(), columns, column);
            let value = self.for_table(bind)?;
            let (mut is_mutable, mut asked) = (self.is_mutable, None);
            value.walk(&mut |it| {
                is_mutable |= matches!(it, Expr::Drawn(..) | Expr::Lookup { .. });
                if let Expr::Column(at) = it
                    && columns[*at].generated.is_some()
                {
                    asked.get_or_insert(*at);
                }
            });
            if let Some(at) = asked {
                let name = &columns[at].name;
                let message = format!("cannot use generated column \"{name}\" in column generation expression");
                let detail = "A generated column cannot reference another generated column.";
                return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message).with_detail(detail));
            }
            if is_mutable {
                let message = "generation expression is not immutable";
                return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
            }
        }
        Ok(())
    }

    /// A change of a column that the parser does not know.
    pub(super) fn change_column(&mut self, at: usize, change: &str, of: &mut Alteration) -> Result<(), SqlError> {
        match change {
            "drop identity" => self.drop_identity(at, false, of),
            "drop identity if exists" => self.drop_identity(at, true, of),
            "set generated always" => Self::set_identity(at, Identity::Always, of),
            "set generated by default" => Self::set_identity(at, Identity::ByDefault, of),
            "drop expression" => Self::drop_expression(at, false, of),
            "drop expression if exists" => Self::drop_expression(at, true, of),
            other => Err(SqlError::unsupported(format!("ALTER COLUMN {}", other.to_uppercase()))),
        }
    }

    /// `ALTER COLUMN … DROP EXPRESSION`: the column keeps its values, and takes others.
    pub(super) fn drop_expression(at: usize, may_be_missing: bool, change: &mut Alteration) -> Result<(), SqlError> {
        let Draft { name: table, description, .. } = &mut change.draft;
        let column = &mut description.columns[at];
        if column.generated.take().is_some() {
            return Ok(());
        }
        let message = format!("column \"{}\" of relation \"{table}\" is not a stored generated column", column.name);
        if !may_be_missing {
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
        }
        let notice = Notice::remark(SqlState::SUCCESS, format!("{message}, skipping"));
        change.definition.notices.push(notice);
        Ok(())
    }

    /// The generated columns that look at one that is dropped go with it, or it stays.
    pub(super) fn drop_generated(
        &mut self,
        (name, what): (&str, &str),
        cascade: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let shown = self.catalog.shown(&change.draft.name)?;
        let names: Vec<_> = looking_at(&change.draft.description.columns, name).map(|it| it.name.clone()).collect();
        let details = names.iter().map(|own| match cascade {
            true => format!("drop cascades to column {own} of table {shown}"),
            false => format!("column {own} of table {shown} depends on {what}"),
        });
        cascaded(what, &details.collect::<Vec<_>>(), cascade, &mut change.definition)?;
        for name in names {
            self.drop_column(&ast::Ident::with_quote('"', name), false, true, change)?;
        }
        Ok(())
    }
}

/// The generated columns that look at a column.
fn looking_at<'c>(columns: &'c [Column], name: &'c str) -> impl Iterator<Item = &'c Column> {
    let looks = move |text: &String| mentions(text, name);
    columns.iter().filter(move |column| column.generated.as_ref().is_some_and(looks))
}

/// Refuses another type for a column at which generated ones look.
pub(super) fn check_retyped(columns: &[Column], name: &str) -> Result<(), SqlError> {
    let Some(other) = looking_at(columns, name).next() else { return Ok(()) };
    let detail = format!("Column \"{name}\" is used by generated column \"{}\".", other.name);
    let message = "cannot alter type of a column used by a generated column";
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
}
