//! What `information_schema` shows a role: what it owns, or has a privilege of.

use super::Row;
use super::objects::Objects;
use super::rights::{KnownRights, text_of};
use crate::catalog::Object;
use crate::names::{Name, PUBLIC};
use crate::roles::{Access, Kind, Privileges, Rights, bits};

impl KnownRights {
    /// Whether the role sees the row of an object that is no table and no view.
    fn sees(&self, rights: &Rights, name: &str, row: &mut Row, objects: &Objects) -> bool {
        let holds = |access: &Access, kind: Kind| rights.owns(access) || rights.held(access, kind) != 0;
        match name {
            "schemata" => {
                let schema = text_of(row, "schema_name");
                match objects.access_of_schemas.get(&schema) {
                    Some(access) => holds(access, Kind::Schema),
                    // Those of the system are everybody's.
                    None => schema != PUBLIC || holds(self.access_of_public(), Kind::Public),
                }
            }
            "sequences" => {
                let own = Name::new(&text_of(row, "sequence_schema"), &text_of(row, "sequence_name"));
                let found = objects.sequences.iter().find(|(_, sequence)| sequence.name == own);
                found.is_some_and(|(_, sequence)| holds(&sequence.definition.access, Kind::Sequence))
            }
            "routines" => {
                let own = Name::new(&text_of(row, "specific_schema"), &text_of(row, "routine_name"));
                let found = objects.procedures.iter().find(|(_, procedure)| procedure.name == own);
                // What stands in it is its owner's.
                if found.is_none_or(|(_, procedure)| !rights.owns(&procedure.access)) {
                    row.retain(|(column, _)| *column != "routine_definition");
                }
                found.is_some_and(|(_, procedure)| holds(&procedure.access, Kind::Procedure))
            }
            _ => true,
        }
    }

    /// The rows that the role sees of a relation whose rows are of objects that are no tables and no views.
    pub(super) fn visible(&self, name: &str, mut rows: Vec<Row>, objects: &Objects) -> Vec<Row> {
        if !self.is_superuser() {
            let rights = self.rights();
            rows.retain_mut(|row| self.sees(&rights, name, row, objects));
        }
        rows
    }

    /// Leaves out of the rows of a table or a view what the role does not see.
    pub(super) fn retain_visible(&self, name: &str, object: &Object, rows: &mut Vec<Row>, objects: &Objects) {
        let Some(access) = object.access().filter(|_| !self.is_superuser()) else { return };
        let rights = self.rights();
        if name == "constraint_column_usage" {
            // The columns may be those of another table, whose owner sees them.
            let owns = |row: &Row| {
                let own = Name::new(&text_of(row, "table_schema"), &text_of(row, "table_name"));
                objects.table(&own).is_some_and(|table| rights.owns(&table.access))
            };
            return rows.retain(owns);
        }
        if rights.owns(access) {
            return;
        }
        let whole = rights.held(access, object.kind());
        let of_column = |at: usize| whole | rights.held_of_column(object.column_grants(at));
        let any = |of: Privileges| {
            whole & of != 0 || object.columns().iter().any(|(at, _)| of_column(*at) & of & bits::OF_COLUMNS != 0)
        };
        let sees_all = match name {
            // What stands in it is its owner's.
            "views" => {
                rows.iter_mut().for_each(|row| row.retain(|(column, _)| *column != "view_definition"));
                any(Privileges::MAX)
            }
            "tables" => any(Privileges::MAX),
            "table_constraints" | "referential_constraints" => any(!bits::SELECT),
            "check_constraints" => false,
            "columns" | "key_column_usage" => {
                let columns = object.columns();
                let held = |row: &Row| {
                    let column = text_of(row, "column_name");
                    columns.iter().any(|(at, own)| *own == column && of_column(*at) & bits::OF_COLUMNS != 0)
                };
                return rows.retain(held);
            }
            _ => true,
        };
        if !sees_all {
            rows.clear();
        }
    }
}
