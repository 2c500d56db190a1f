//! LIKE among the columns of a new table.

use sqlparser::ast::{self, SequenceOptions};
use sqlparser::keywords::Keyword;

use super::definitions::{Constraint, Draft, check_name, constraint_taken, free_name};
use super::indexes::{DraftIndex, Part};
use super::query::name_of;
use super::{Binder, Written};
use crate::catalog::{Column, Object, Table};
use crate::error::{SqlError, SqlState};
use crate::roles::bits;
use crate::sequences::SequenceDefinition;

/// What a new table takes of another one beside the columns.
#[derive(Clone, Copy, Default)]
struct Taken {
    comments: bool,
    constraints: bool,
    defaults: bool,
    generated: bool,
    identity: bool,
    indexes: bool,
}

impl Taken {
    /// What the options say, one after the other.
    fn set(&mut self, option: &str, is_taken: bool) -> Result<(), SqlError> {
        let one = match &*option.to_lowercase() {
            "comments" => &mut self.comments,
            "constraints" => &mut self.constraints,
            "defaults" => &mut self.defaults,
            "generated" => &mut self.generated,
            "identity" => &mut self.identity,
            "indexes" => &mut self.indexes,
            // Nothing of the kind is kept of a table.
            "compression" | "statistics" | "storage" => return Ok(()),
            "all" => {
                let all = is_taken;
                *self = Self {
                    comments: all,
                    constraints: all,
                    defaults: all,
                    generated: all,
                    identity: all,
                    indexes: all,
                };
                return Ok(());
            }
            _ => {
                let message = format!("syntax error at or near \"{option}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        };
        *one = is_taken;
        Ok(())
    }
}

/// The table that a text names, and what is taken of it.
fn parsed(text: &str) -> Result<(ast::ObjectName, Taken), SqlError> {
    let mut taken = Taken::default();
    let mut parser = crate::parse::parser(text)?;
    let name = parser.parse_object_name(false).map_err(crate::parse::error_of)?;
    loop {
        let is_taken = match parser.parse_one_of_keywords(&[Keyword::INCLUDING, Keyword::EXCLUDING]) {
            Some(word) => word == Keyword::INCLUDING,
            None if parser.peek_token_ref().token == sqlparser::tokenizer::Token::EOF => return Ok((name, taken)),
            None => return Err(crate::parse::syntax_error(&parser.peek_token_ref().token)),
        };
        let option = parser.parse_identifier().map_err(crate::parse::error_of)?;
        taken.set(&option.value, is_taken)?;
    }
}

/// The options that make a sequence as another one was made.
fn options_of(of: &SequenceDefinition) -> Vec<SequenceOptions> {
    let number = |value: i64| ast::Expr::value(ast::Value::Number(value.to_string(), false));
    vec![
        SequenceOptions::IncrementBy(number(of.increment), true),
        SequenceOptions::MinValue(Some(number(of.least))),
        SequenceOptions::MaxValue(Some(number(of.greatest))),
        SequenceOptions::StartWith(number(of.start), true),
        SequenceOptions::Cycle(!of.cycles),
    ]
}

impl Binder<'_> {
    /// Adds the columns of another table, or of a view, and what else the options say.
    pub(super) fn like(
        &mut self,
        text: &str,
        draft: &mut Draft,
        constraints: &mut Vec<Constraint>,
    ) -> Result<(), SqlError> {
        let (name, taken) = parsed(text)?;
        let written = Written::of(&name)?;
        self.catalog.check_schema(&written)?;
        let found = self.catalog.find_written(&written)?.map(|(_, object)| object);
        let object = found.ok_or_else(|| written.missing())?;
        self.check_may_read(object.clone())?;
        match &object {
            Object::Table(table) => self.like_table(table, taken, draft, constraints),
            Object::View(view) => view.columns.iter().zip(&view.types).try_for_each(|(name, of)| {
                self.catalog.check_usable(*of)?;
                add(draft, Column::new(name.clone(), *of))
            }),
            _ => {
                let message = format!("relation \"{}\" is invalid in LIKE clause", written.name);
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
            }
        }
    }

    /// Refuses an object that the role may not read.
    fn check_may_read(&self, object: Object) -> Result<(), SqlError> {
        let around = self.catalog.needs.take();
        self.catalog.need(object, bits::SELECT);
        let checked = self.catalog.check_needs();
        self.catalog.needs.replace(around);
        checked
    }

    fn like_table(
        &mut self,
        table: &Table,
        taken: Taken,
        draft: &mut Draft,
        constraints: &mut Vec<Constraint>,
    ) -> Result<(), SqlError> {
        for (_, old) in table.visible() {
            self.catalog.check_usable(old.of)?;
            let mut new = Column { nullable: old.nullable, ..Column::new(old.name.clone(), old.of) };
            match (&old.default, old.identity) {
                (Some(text), Some(identity)) if taken.identity => {
                    let sequence = super::drops::sequence_of(text).map(|name| self.catalog.sequence(&name));
                    let options = sequence.transpose()?.map(|it| options_of(&it.definition)).unwrap_or_default();
                    new.default = Some(self.own_sequence(draft, &new, &options, true)?);
                    new.identity = Some(identity);
                }
                (Some(text), None) if taken.defaults => new.default = Some(text.clone()),
                _ => {}
            }
            new.generated = old.generated.clone().filter(|_| taken.generated);
            new.comment = old.comment.clone().filter(|_| taken.comments);
            add(draft, new)?;
        }
        if taken.constraints {
            for check in &table.checks {
                if draft.has_name(&check.name) {
                    return Err(constraint_taken("check constraint", &check.name));
                }
                draft.description.checks.push(check.clone());
            }
        }
        if taken.indexes { self.like_indexes(table, draft, constraints) } else { Ok(()) }
    }

    fn like_indexes(
        &mut self,
        table: &Table,
        draft: &mut Draft,
        constraints: &mut Vec<Constraint>,
    ) -> Result<(), SqlError> {
        if table.has_primary_key() {
            let key = table.sources(table.primary()).into_iter().map(|at| table.columns[at].name.clone()).collect();
            constraints.push(Constraint::Primary(None, key));
        }
        for index in DraftIndex::all_of(table) {
            if let Some(columns) = index.columns().filter(|_| table.constraints.contains(&index.name)) {
                constraints.push(Constraint::Unique(None, columns));
                continue;
            }
            let named = |part: &Part| match part {
                Part::Column(name) => Ok(name.clone()),
                Part::Expression(text) => {
                    let name = name_of(&crate::parse::expression(text)?);
                    Ok(if name == "?column?" { "expr".to_owned() } else { name })
                }
            };
            let mut names = index.parts.iter().map(named).collect::<Result<Vec<_>, SqlError>>()?;
            names.extend(index.include.iter().cloned());
            let first = format!("{}_{}_idx", draft.name, names.join("_"));
            let is_taken = |name: &str| Ok(draft.has_name(name) || self.catalog.is_taken(&draft.name.beside(name))?);
            let name = free_name(&is_taken, &first)?;
            draft.indexes.push(DraftIndex { name, ..index });
        }
        Ok(())
    }
}

fn add(draft: &mut Draft, column: Column) -> Result<(), SqlError> {
    check_name(&column.name)?;
    if draft.column(&column.name).is_some() {
        let message = format!("column \"{}\" specified more than once", column.name);
        return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
    }
    draft.description.columns.push(column);
    Ok(())
}
