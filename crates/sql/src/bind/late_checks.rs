//! What is asked of the rows that are there when a constraint comes late, or is validated.

use super::alter::{Alteration, quoted};
use crate::catalog::{Check, ForeignKey};
use crate::error::{SqlError, SqlState};

impl Alteration {
    /// A CHECK must hold for all rows.
    pub(super) fn check_rows(&mut self, check: &Check) {
        let table = &self.draft.name;
        let query = format!("SELECT 1 FROM {} WHERE NOT ({}) LIMIT 1", table.written(), check.condition);
        let message = format!("check constraint \"{}\" of relation \"{table}\" is violated by some row", check.name);
        self.check(query, SqlState::CHECK_VIOLATION, message);
    }

    /// A foreign key must lead from each row to another one.
    pub(super) fn check_keys(&mut self, key: &ForeignKey) {
        let table = &self.draft.name;
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
            (None, Some(key)) => self.check_keys(&key),
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
