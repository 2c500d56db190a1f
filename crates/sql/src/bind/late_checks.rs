//! What is asked of the rows that are there when a constraint comes late, or is validated.

use super::Binder;
use super::alter::{Alteration, quoted};
use super::definitions::Draft;
use super::foreign_keys::check_types;
use super::renames::mentions;
use crate::catalog::{Check, ForeignKey};
use crate::error::{SqlError, SqlState};
use crate::names::Name;

impl Alteration {
    /// A CHECK must hold for all rows.
    pub(super) fn check_rows(&mut self, check: &Check) {
        let table = &self.draft.name;
        let query = format!("SELECT 1 FROM {} WHERE NOT ({}) LIMIT 1", table.written(), check.condition);
        let message = format!("check constraint \"{}\" of relation \"{table}\" is violated by some row", check.name);
        self.check(query, SqlState::CHECK_VIOLATION, message);
    }

    /// A foreign key of a table must lead from each row to another one.
    pub(super) fn check_keys(&mut self, table: &Name, key: &ForeignKey) {
        let pairs = || key.columns.iter().map(|name| quoted(name)).zip(key.parents.iter().map(|name| quoted(name)));
        let present: Vec<_> = pairs().map(|(own, _)| format!("c.{own} IS NOT NULL")).collect();
        let same: Vec<_> = pairs().map(|(own, other)| format!("p.{other} = c.{own}")).collect();
        let query = format!(
            "SELECT 1 FROM {} c WHERE {} AND NOT EXISTS (SELECT 1 FROM {} p WHERE {}) LIMIT 1",
            table.written(),
            present.join(" AND "),
            key.parent.written(),
            same.join(" AND ")
        );
        let message = format!("insert or update on table \"{table}\" violates foreign key constraint \"{}\"", key.name);
        self.check(query, SqlState::FOREIGN_KEY_VIOLATION, message);
    }

    /// `VALIDATE CONSTRAINT`: what was added as NOT VALID holds for new rows, and is asked of the others now.
    pub(super) fn validate(&mut self, name: &str) -> Result<(), SqlError> {
        let of = &self.draft.description;
        let check = of.checks.iter().find(|check| check.name == name).cloned();
        let key = of.foreign.iter().find(|key| key.name == name).cloned();
        match (check, key) {
            (Some(check), _) => self.check_rows(&check),
            (None, Some(key)) => self.check_keys(&self.draft.name.clone(), &key),
            (None, None) => {
                let table = &self.draft.name;
                let is_key = self.draft.has_name(name);
                let (state, what) = match is_key {
                    true => (SqlState::WRONG_OBJECT_TYPE, "is not a foreign key or check constraint"),
                    false => (SqlState::UNDEFINED_OBJECT, "does not exist"),
                };
                let message = format!("constraint \"{name}\" of relation \"{table}\" {what}");
                return Err(SqlError::new(state, message));
            }
        }
        Ok(())
    }
}

impl Binder<'_> {
    /// What constrains columns that have got another type must hold for their new values.
    pub(super) fn check_retyped(&mut self, change: &mut Alteration) -> Result<(), SqlError> {
        let retyped = std::mem::take(&mut change.retyped);
        if retyped.is_empty() {
            return Ok(());
        }
        let has = |names: &[String]| names.iter().any(|name| retyped.contains(name));
        let (own, of) = (change.draft.name.clone(), change.draft.description.clone());
        let mut keys = Vec::new();
        for key in of.foreign.into_iter().filter(|key| has(&key.columns) || key.parent == own && has(&key.parents)) {
            let child = change.draft.types_of(&key.columns);
            let parent = match key.parent == own {
                true => change.draft.types_of(&key.parents),
                false => Draft::of(&*self.catalog.table(&key.parent)?).types_of(&key.parents),
            };
            check_types(&key, &child, &parent)?;
            keys.push((own.clone(), key));
        }
        for name in of.children.iter().filter(|name| **name != own) {
            let child = self.catalog.table(name)?;
            let foreign = change.definition.described(&child).foreign;
            for key in foreign.into_iter().filter(|key| key.parent == own && has(&key.parents)) {
                let types = Draft::of(&child).types_of(&key.columns);
                check_types(&key, &types, &change.draft.types_of(&key.parents))?;
                keys.push((name.clone(), key));
            }
        }
        let checks = of.checks.iter().filter(|check| retyped.iter().any(|name| mentions(&check.condition, name)));
        checks.for_each(|check| change.check_rows(check));
        keys.iter().for_each(|(child, key)| change.check_keys(child, key));
        Ok(())
    }
}
