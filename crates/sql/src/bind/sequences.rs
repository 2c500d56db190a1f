//! Sequences: their definitions, columns that have one, and the functions that ask them.

use std::sync::Arc;

use sqlparser::ast::{self, SequenceOptions};

use super::definitions::{Draft, free_name};
use super::joins::Source;
use super::{Binder, Written, column_type, folded};
use crate::casts::Place;
use crate::catalog::{Column, Object, taken};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::names::{Name, PUBLIC};
use crate::plan::Node;
use crate::roles::{Privileges, bits};
use crate::sequences::{BLOCK, Draw, Drawing, Sequence, SequenceDefinition, Shown, greatest_of};
use crate::statement::{Definition, NewObject};
use crate::types::Type;

/// The integer type of a column of type `serial` and the like.
pub(super) fn serial(of: &ast::DataType) -> Option<Type> {
    let ast::DataType::Custom(name, modifiers) = of else { return None };
    match super::plain_name(name).ok()?.as_str() {
        "serial" | "serial4" if modifiers.is_empty() => Some(Type::Int4),
        "bigserial" | "serial8" if modifiers.is_empty() => Some(Type::Int8),
        "smallserial" | "serial2" if modifiers.is_empty() => Some(Type::Int2),
        _ => None,
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The number that an option says.
pub(super) fn number(expr: &ast::Expr) -> Result<i64, SqlError> {
    let text = expr.to_string().replace(' ', "");
    text.parse().map_err(|_| invalid(format!("invalid value of a sequence's option: {text}")))
}

/// Refuses a definition that contradicts itself.
pub(super) fn check_definition(of: &SequenceDefinition) -> Result<(), SqlError> {
    let end = greatest_of(of.of);
    if of.increment == 0 {
        return Err(invalid("INCREMENT must not be zero"));
    }
    let (least, greatest, start) = (of.least, of.greatest, of.start);
    if greatest > end || greatest < -end - 1 {
        return Err(invalid(format!("MAXVALUE ({greatest}) is out of range for sequence data type {}", of.of)));
    }
    if least > end || least < -end - 1 {
        return Err(invalid(format!("MINVALUE ({least}) is out of range for sequence data type {}", of.of)));
    }
    if least >= greatest {
        return Err(invalid(format!("MINVALUE ({least}) must be less than MAXVALUE ({greatest})")));
    }
    if start < least {
        return Err(invalid(format!("START value ({start}) cannot be less than MINVALUE ({least})")));
    }
    if start > greatest {
        return Err(invalid(format!("START value ({start}) cannot be greater than MAXVALUE ({greatest})")));
    }
    Ok(())
}

/// Refuses a number to go on with that is out of bounds.
pub(super) fn check_restart(of: &SequenceDefinition, first: i64) -> Result<(), SqlError> {
    if first < of.least {
        let message = format!("RESTART value ({first}) cannot be less than MINVALUE ({})", of.least);
        return Err(invalid(message));
    }
    if first > of.greatest {
        let message = format!("RESTART value ({first}) cannot be greater than MAXVALUE ({})", of.greatest);
        return Err(invalid(message));
    }
    Ok(())
}

impl Binder<'_> {
    pub(crate) fn create_sequence(&mut self, name: &Name, options: &[SequenceOptions]) -> Result<Definition, SqlError> {
        let of = SequenceDefinition::rising(self.catalog.new_number(), Type::Int8);
        let sequence = self.sequence_with(name, of, options)?;
        let mut definition = Definition::new("CREATE SEQUENCE");
        let owner = sequence.owner.as_ref().map(|(table, _)| table.clone());
        self.note_owner(name, (None, owner.as_ref()), &mut definition)?;
        definition.set_object(name, Some(NewObject::Sequence(sequence, None)));
        Ok(definition)
    }

    fn sequence_with(
        &mut self,
        name: &Name,
        mut of: SequenceDefinition,
        options: &[SequenceOptions],
    ) -> Result<SequenceDefinition, SqlError> {
        let (mut least, mut greatest, mut start) = (None, None, None);
        for option in options {
            match option {
                SequenceOptions::DataType(data_type) => {
                    of.of = column_type(data_type)?.base;
                    if !matches!(of.of, Type::Int2 | Type::Int4 | Type::Int8) {
                        return Err(invalid("sequence type must be smallint, integer, or bigint"));
                    }
                }
                SequenceOptions::IncrementBy(by, _) => of.increment = number(by)?,
                SequenceOptions::MinValue(value) => least = value.as_ref().map(number).transpose()?,
                SequenceOptions::MaxValue(value) => greatest = value.as_ref().map(number).transpose()?,
                SequenceOptions::StartWith(value, _) => start = Some(number(value)?),
                // What is drawn at once is not the statement's to say.
                SequenceOptions::Cache(_) => {}
                SequenceOptions::Cycle(no) => of.cycles = !no,
                SequenceOptions::OwnedBy(owner) => {
                    of.owner = owner.as_ref().map(|owner| self.owner_of(name, owner)).transpose()?.flatten();
                }
            }
        }
        let rises = of.increment > 0;
        let end = greatest_of(of.of);
        of.least = least.unwrap_or(if rises { 1 } else { -end - 1 });
        of.greatest = greatest.unwrap_or(if rises { end } else { -1 });
        of.start = start.unwrap_or(if rises { of.least } else { of.greatest });
        of.first = of.start;
        check_definition(&of)?;
        Ok(of)
    }

    /// Gives a column a sequence of its own, and answers the text of its default.
    pub(super) fn own_sequence(
        &mut self,
        draft: &mut Draft,
        column: &Column,
        options: &[SequenceOptions],
        is_internal: bool,
    ) -> Result<String, SqlError> {
        let base = column.of.base;
        if !matches!(base, Type::Int2 | Type::Int4 | Type::Int8) {
            return Err(invalid("identity column type must be smallint, integer, or bigint"));
        }
        let first = format!("{}_{}_seq", draft.name, column.name);
        let is_own = |name: &Name| draft.objects.iter().any(|(own, _)| own == name);
        let is_taken = |name: &str| {
            let name = draft.name.beside(name);
            Ok(is_own(&name) || self.catalog.is_taken(&name)?)
        };
        let name = match options.iter().find_map(said_name) {
            Some(said) => {
                let Written { schema, name } = Written::of_text(said)?;
                if schema.is_some_and(|schema| schema != *draft.name.schema()) {
                    return Err(SqlError::unsupported("a sequence of a column in another schema"));
                }
                let name = draft.name.beside(&name);
                if is_own(&name) || self.catalog.is_taken(&name)? {
                    return Err(taken(&name));
                }
                name
            }
            None => draft.name.beside(&free_name(&is_taken, &first)?),
        };
        let of = SequenceDefinition::rising(self.catalog.new_number(), base);
        let of = self.sequence_with(&name, of, options)?;
        let owner = Some((draft.name.clone(), column.name.clone()));
        let sequence = SequenceDefinition { owner, is_internal, ..of };
        draft.objects.push((name.clone(), Some(NewObject::Sequence(sequence, None))));
        Ok(next_number(&name))
    }

    /// The row of a sequence in FROM.
    pub(super) fn sequence_row(
        &mut self,
        sequence: &Arc<Sequence>,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Source, SqlError> {
        self.catalog.need(Object::Sequence(sequence.clone()), bits::SELECT);
        sequence.find()?;
        let named = alias.map_or_else(|| sequence.name.plain().to_owned(), |alias| folded(&alias.name));
        let columns = [("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Type::Bool)];
        let columns = columns.map(|(name, of)| (name.to_owned(), of.into())).to_vec();
        let scope = super::joins::scope_of(&named, columns, alias)?;
        let scope = if alias.is_none() { scope.in_schema(sequence.name.schema()) } else { scope };
        let parts = [Shown::LastValue, Shown::IsCalled];
        let [last, is_called] = parts.map(|it| self.drawing(Draw::Shown(sequence.clone(), it), Box::new([])));
        let zero = super::literals::constant(crate::datum::Datum::Int(0), Type::Int8).expr;
        let node = Node::Project { input: Box::new(Node::Nothing), columns: vec![last, zero, is_called] };
        Ok(Source { node, scope })
    }

    /// A function of sequences.
    pub(super) fn sequence_function(
        &mut self,
        name: &str,
        arguments: &[&ast::Expr],
    ) -> Result<Option<Typed>, SqlError> {
        let (draw, rest) = match (name, arguments) {
            ("nextval", [of]) => {
                let sequence = self.named_sequence(of)?;
                self.needs_sequence(&sequence, bits::USAGE | bits::UPDATE);
                sequence.prepare(BLOCK)?;
                (Draw::Next(sequence), &[][..])
            }
            ("currval", [of]) => {
                let sequence = self.named_sequence(of)?;
                self.needs_sequence(&sequence, bits::USAGE | bits::SELECT);
                (Draw::Current(sequence), &[][..])
            }
            ("lastval", []) => (Draw::Last, &[][..]),
            ("setval", [of, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
                let sequence = self.named_sequence(of)?;
                self.needs_sequence(&sequence, bits::UPDATE);
                sequence.find()?;
                (Draw::Set(sequence), rest)
            }
            _ => return Ok(None),
        };
        let types = [Type::Int8, Type::Bool];
        let rest = rest.iter().zip(types).map(|(expr, of)| {
            let value = self.expr(expr)?;
            Ok(self.cast(value, of.into(), Place::Implicit)?.expr)
        });
        let rest = rest.collect::<Result<_, SqlError>>()?;
        Ok(Some(Typed::new(self.drawing(draw, rest), Type::Int8)))
    }

    /// One of these privileges is needed, but for the numbers of identity columns.
    fn needs_sequence(&self, sequence: &std::sync::Arc<Sequence>, privileges: Privileges) {
        if !(sequence.definition.is_internal && self.catalog.is_kept_text.get()) {
            self.catalog.need_any(Object::Sequence(sequence.clone()), privileges);
        }
    }

    pub(super) fn drawing(&self, draw: Draw, arguments: Box<[Expr]>) -> Expr {
        Expr::Drawn(Drawing { draw: draw.into(), drawn: self.drawn.clone() }, arguments)
    }

    fn named_sequence(&mut self, expr: &ast::Expr) -> Result<std::sync::Arc<Sequence>, SqlError> {
        let inner = match expr {
            ast::Expr::Cast { expr, .. } => expr,
            other => other,
        };
        let bound = self.expr(inner)?;
        let Expr::Constant(crate::datum::OwnedDatum::Text(text)) = &bound.expr else {
            return Err(SqlError::unsupported("a sequence that is not named by a constant"));
        };
        self.written_sequence(text)
    }

    /// The table and the column of `OWNED BY`.
    pub(super) fn owner_of(
        &self,
        sequence: &Name,
        owner: &ast::ObjectName,
    ) -> Result<Option<(Name, String)>, SqlError> {
        let parts: Option<Vec<_>> = owner.0.iter().map(|part| part.as_ident().map(folded)).collect();
        let mut parts = parts.unwrap_or_default();
        if parts == ["none"] {
            return Ok(None);
        }
        let column = parts.pop().filter(|_| !parts.is_empty()).ok_or_else(|| {
            let hint = "Specify OWNED BY table.column or OWNED BY NONE.";
            SqlError::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option").with_hint(hint)
        })?;
        let written = Written::of_parts(parts)?;
        self.catalog.check_schema(&written)?;
        let table = self.catalog.named_table(&written)?;
        if !self.catalog.rights()?.owns(&table.access) {
            let message = "sequence must have same owner as table it is linked to";
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
        }
        if table.name.schema() != sequence.schema() {
            let message = "sequence must be in same schema as table it is linked to";
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
        }
        if table.visible().all(|(_, own)| own.name != column) {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        }
        Ok(Some((table.name.clone(), column)))
    }

    /// The sequence that a text names.
    fn written_sequence(&mut self, text: &str) -> Result<std::sync::Arc<Sequence>, SqlError> {
        let written = Written::of_text(text)?;
        let (name, _) = self.catalog.find_within(&written)?.ok_or_else(|| written.missing())?;
        self.catalog.sequence(&name)
    }

    /// The text of a default that is the next number of a sequence, which keeps it whatever the path will be. `None`: it is another one.
    pub(super) fn default_of_sequence(&mut self, text: &str) -> Result<Option<String>, SqlError> {
        let rest = text.strip_prefix("nextval('").and_then(|rest| rest.split_once('\''));
        let Some((name, ")" | "::regclass)" | "::REGCLASS)")) = rest else { return Ok(None) };
        Ok(Some(next_number(&self.written_sequence(name)?.name)))
    }
}

/// The text that asks for the next number of a sequence.
pub(super) fn next_number(name: &Name) -> String {
    let plain = super::system::quoted(name.plain());
    let schema = format!("{}.", super::system::quoted(name.schema()));
    let schema = if name.schema() == PUBLIC { "" } else { &schema };
    format!("nextval('{}')", format!("{schema}{plain}").replace('\'', "''"))
}

/// The name that `SEQUENCE NAME` gives the sequence of a column.
fn said_name(option: &SequenceOptions) -> Option<&str> {
    let SequenceOptions::Cache(ast::Expr::Value(value)) = option else { return None };
    let ast::Value::Number(name, _) = &value.value else { return None };
    name.strip_prefix(crate::parse::SEQUENCE)
}
