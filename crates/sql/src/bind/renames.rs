//! New names for tables, columns and constraints, and where they stand.

use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::alter::{Alteration, quoted};
use super::definitions::{Draft, check_name, constraint_taken};
use super::{Binder, Written, folded, plain_name};
use crate::catalog::{Object, taken};
use crate::error::{SqlError, SqlState};
use crate::names::Name;
use crate::sequences::SequenceDefinition;
use crate::statement::{Action, NewObject};

impl Binder<'_> {
    pub(super) fn rename_column(
        &mut self,
        name: &ast::Ident,
        new: &str,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let old = folded(name);
        let Some(at) = change.draft.column(&old) else {
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{old}\" does not exist")));
        };
        check_name(new)?;
        let table = change.draft.name.clone();
        if change.draft.column(new).is_some() {
            let message = format!("column \"{new}\" of relation \"{table}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let renamed = |names: &mut Vec<String>| {
            names.iter_mut().filter(|own| **own == old).for_each(|own| new.clone_into(own));
        };
        let Draft { description, key, indexes, renames, .. } = &mut change.draft;
        let column = &mut description.columns[at];
        column.engine.get_or_insert_with(|| old.clone());
        new.clone_into(&mut column.name);
        key.iter_mut().for_each(renamed);
        indexes.iter_mut().for_each(|index| index.rename_column(&old, new));
        renames.push((old.clone(), new.to_owned()));
        for key in &mut description.foreign {
            renamed(&mut key.columns);
            if key.parent == table {
                renamed(&mut key.parents);
            }
        }
        for (sequence, _) in self.owned_sequences(&change.table)?.into_iter().filter(|(_, column)| *column == old) {
            let owner = Some((table.clone(), new.to_owned()));
            let of = SequenceDefinition { owner, ..sequence.definition.clone() };
            change.definition.set_object(&sequence.name.clone(), Some(NewObject::Sequence(of, Some(sequence))));
        }
        for check in &mut description.checks {
            check.condition = with_name(&check.condition, &old, new);
        }
        for text in description.columns.iter_mut().filter_map(|column| column.generated.as_mut()) {
            *text = with_name(text, &old, new);
        }
        for child in description.children.clone().into_iter().filter(|child| *child != table) {
            let Some(child) = self.catalog.find(&child)? else { continue };
            let mut description = change.definition.described(&child);
            description.foreign.iter_mut().filter(|key| key.parent == table).for_each(|key| renamed(&mut key.parents));
            change.definition.closes.push(child.id);
            change.definition.set_object(&child.name.clone(), Some(NewObject::Table(child, description)));
        }
        Ok(())
    }

    pub(super) fn rename_table(&mut self, new: Name, change: &mut Alteration) -> Result<(), SqlError> {
        if self.catalog.is_taken(&new)? {
            return Err(taken(&new));
        }
        self.check_free_of_type(&new)?;
        self.move_table(new, change)
    }

    /// Gives a table another name, which is free, wherever its name stands.
    pub(super) fn move_table(&mut self, new: Name, change: &mut Alteration) -> Result<(), SqlError> {
        let old = std::mem::replace(&mut change.draft.name, new.clone());
        let description = &mut change.draft.description;
        description.foreign.iter_mut().filter(|key| key.parent == old).for_each(|key| key.parent.clone_from(&new));
        description.children.iter_mut().filter(|child| **child == old).for_each(|child| child.clone_from(&new));
        let children = description.children.clone();
        let parents = description.foreign.iter().map(|key| key.parent.clone());
        for other in children.into_iter().chain(parents.collect::<Vec<_>>()).filter(|other| *other != new) {
            let Some(other) = self.catalog.find(&other)? else { continue };
            let mut description = change.definition.described(&other);
            description.foreign.iter_mut().filter(|key| key.parent == old).for_each(|key| key.parent.clone_from(&new));
            description.children.iter_mut().filter(|child| **child == old).for_each(|child| child.clone_from(&new));
            change.definition.closes.push(other.id);
            change.definition.set_object(&other.name.clone(), Some(NewObject::Table(other, description)));
        }
        for (sequence, column) in self.owned_sequences(&change.table)? {
            let of = SequenceDefinition { owner: Some((new.clone(), column)), ..sequence.definition.clone() };
            change.definition.set_object(&sequence.name.clone(), Some(NewObject::Sequence(of, Some(sequence))));
        }
        Ok(())
    }
}

impl Binder<'_> {
    /// ALTER INDEX … RENAME TO, of the index of a constraint, too.
    pub(crate) fn rename_index(&mut self, name: &ast::ObjectName, new: &ast::ObjectName) -> Result<Action, SqlError> {
        let written = Written::of(name)?;
        self.catalog.check_schema(&written)?;
        let (own, table) = self.catalog.written_index(&written)?.ok_or_else(|| written.missing())?;
        self.catalog.check_owner_of_index(&Object::Table(table.clone()), &own)?;
        let new = own.beside(&plain_name(new)?);
        if self.catalog.is_taken(&new)? {
            return Err(taken(&new));
        }
        let mut change = Alteration::of(&table, "ALTER INDEX");
        let Draft { description, key, indexes, .. } = &mut change.draft;
        if key.is_some() && description.primary == own.plain() {
            new.plain().clone_into(&mut description.primary);
        } else {
            let names = indexes.iter_mut().map(|index| &mut index.name).chain(&mut description.constraints);
            names.filter(|it| **it == own.plain()).for_each(|it| new.plain().clone_into(it));
            change.is_rewritten = true;
        }
        Ok(Action::Define(self.altered(change)?.into()))
    }
}

pub(super) fn rename_constraint(old: &str, new: &str, change: &mut Alteration) -> Result<(), SqlError> {
    if change.draft.has_name(new) {
        return Err(constraint_taken("constraint", new));
    }
    let Draft { name, description, key, indexes, .. } = &mut change.draft;
    let is_primary = key.is_some() && description.primary == old;
    let of_checks = description.checks.iter_mut().map(|check| &mut check.name);
    let of_keys = description.foreign.iter_mut().map(|key| &mut key.name);
    let primary = is_primary.then_some(&mut description.primary);
    if let Some(own) = of_checks.chain(of_keys).chain(primary).find(|own| **own == *old) {
        new.clone_into(own);
    } else if description.constraints.iter().any(|own| own == old) {
        let own = indexes.iter_mut().map(|index| &mut index.name).chain(&mut description.constraints);
        own.filter(|own| **own == *old).for_each(|own| new.clone_into(own));
        change.is_rewritten = true;
    } else {
        let message = format!("constraint \"{old}\" for table \"{name}\" does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    }
    Ok(())
}

/// The words of an expression that are names.
fn tokens(text: &str) -> Vec<Token> {
    Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().unwrap_or_default()
}

fn is_name(token: &Token, name: &str) -> bool {
    match token {
        Token::Word(word) if word.quote_style.is_some() => word.value == name,
        Token::Word(word) => word.value.to_lowercase() == name,
        _ => false,
    }
}

/// Whether the token at this position is the name of this column: it calls no function, and stands for no type.
fn is_column(tokens: &[Token], at: usize, name: &str) -> bool {
    let is_space = |token: &&Token| !matches!(token, Token::Whitespace(_));
    let behind = tokens[at + 1..].iter().find(is_space);
    let before = tokens[..at].iter().rev().find(is_space);
    let is_cast = match before {
        Some(Token::DoubleColon) => true,
        Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("as"),
        _ => false,
    };
    is_name(&tokens[at], name) && behind != Some(&Token::LParen) && !is_cast
}

pub(super) fn mentions(condition: &str, name: &str) -> bool {
    let tokens = tokens(condition);
    (0..tokens.len()).any(|at| is_column(&tokens, at, name))
}

pub(super) fn with_name(condition: &str, old: &str, new: &str) -> String {
    let tokens = tokens(condition);
    let word = |at: usize| if is_column(&tokens, at, old) { quoted(new) } else { tokens[at].to_string() };
    (0..tokens.len()).map(word).collect()
}

/// Whether a text has this name anywhere.
pub(super) fn has_name(text: &str, name: &str) -> bool {
    tokens(text).iter().any(|token| is_name(token, name))
}

/// Where tokens name a type: behind a cast, or in front of a literal. With the schema that is written, if one is.
fn places_of_type<'t>(all: &'t [Token], name: &str) -> impl Iterator<Item = (usize, Option<&'t Token>)> {
    let seen: Vec<_> = (0..all.len()).filter(|at| !matches!(all[*at], Token::Whitespace(_))).collect();
    (0..seen.len()).filter_map(move |at| {
        let token = |at: usize| &all[seen[at]];
        let is_qualified = at > 1 && *token(at - 1) == Token::Period;
        let before = if is_qualified { at.checked_sub(3) } else { at.checked_sub(1) };
        let is_cast = match before.map(token) {
            Some(Token::DoubleColon) => true,
            Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("as"),
            _ => false,
        };
        let is_literal = seen.get(at + 1).is_some_and(|next| matches!(all[*next], Token::SingleQuotedString(_)));
        let is_type = is_name(token(at), name) && (is_cast || is_literal);
        is_type.then(|| (seen[at], is_qualified.then(|| token(at - 2))))
    })
}

/// Whether a text names a type.
pub(super) fn names_type(text: &str, name: &str) -> bool {
    places_of_type(&tokens(text), name).next().is_some()
}

/// A text with another name for a type of the schema in which names without one are looked for.
pub(super) fn with_type(text: &str, (schema, old): (&str, &str), new: &str) -> String {
    let mut all = tokens(text);
    let is_own = |written: Option<&Token>| written.is_none_or(|written| is_name(written, schema));
    let places: Vec<_> = places_of_type(&all, old).filter(|(_, written)| is_own(*written)).map(|(at, _)| at).collect();
    for at in places {
        all[at] = Token::make_word(new, (crate::bind::quoted(new) != new).then_some('"'));
    }
    all.iter().map(Token::to_string).collect()
}

/// Whether a text has this literal, alone or in that of an array.
pub(super) fn says(text: &str, literal: &str) -> bool {
    let is_said = |own: &str| own == literal || own.starts_with('{') && own.contains(literal);
    tokens(text).iter().any(|token| matches!(token, Token::SingleQuotedString(own) if is_said(own)))
}
