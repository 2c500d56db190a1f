//! Which privileges a statement needs, and whether its role has them.
//!
//! Binding notes what a statement does with each object and column; when all of it is bound, that is compared with the grants. So a plan is one that its role
//! may run, and it is bound again when the catalog's version or the session's role changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlparser::ast;

use super::naming::SYSTEM;
use super::system::DATABASE;
use super::{Binder, Recorded, Scope, TABLE_AS, Written};
use crate::catalog::{Catalog, Object, Table};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, PUBLIC};
use crate::roles::{Access, FIRST, Kind, Privileges, Rights, RoleId, Roles, SharedAccess, bits};
use crate::statement::{Action, Definition, NewObject};

/// What a statement does with an object.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    object: Object,
    /// Whose privileges count: `None` for the session's.
    as_role: Option<RoleId>,
    /// All of them are needed. Those that columns can have may be had of the columns.
    privileges: Privileges,
    /// One of them is enough.
    any: Privileges,
    /// The columns that are read, inserted and changed.
    read: BTreeSet<usize>,
    inserted: BTreeSet<usize>,
    changed: BTreeSet<usize>,
}

/// Who a column of a scope is read from: the number of the need, and the position there.
pub(crate) type Origin = (usize, usize);

/// That something is not permitted.
pub(super) fn denied(kind: Kind, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {} {name}", kind.word()))
}

/// That something is the owner's alone.
fn not_owner(kind: Kind, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {} {name}", kind.word()))
}

impl Need {
    /// Whether a column of a table is read.
    pub(super) fn reads_of(&self, table: &Table, column: usize) -> bool {
        self.object.table().is_some_and(|own| own.id == table.id) && self.read.contains(&column)
    }

    fn is_met(&self, rights: &Rights) -> bool {
        let Some(access) = self.object.access() else { return true };
        let held = rights.held(access, self.object.kind());
        if self.any != 0 && held & self.any == 0 {
            return false;
        }
        let missing = self.privileges & !held;
        missing & !bits::OF_COLUMNS == 0
            && self.has_columns(rights, missing, bits::SELECT, &self.read)
            && self.has_columns(rights, missing, bits::INSERT, &self.inserted)
            && self.has_columns(rights, missing, bits::UPDATE, &self.changed)
            && missing & bits::REFERENCES == 0
    }

    /// Whether a privilege that is missing of the whole is there of the columns; where no column is named, that of any is enough.
    fn has_columns(&self, rights: &Rights, missing: Privileges, bit: Privileges, columns: &BTreeSet<usize>) -> bool {
        let has = |column: usize| rights.held_of_column(self.object.column_grants(column)) & bit != 0;
        missing & bit == 0
            || match columns.is_empty() {
                true => self.object.columns().into_iter().any(|(at, _)| has(at)),
                false => columns.iter().all(|at| has(*at)),
            }
    }
}

impl Recorded<'_> {
    /// The roles, and what all objects share.
    pub(crate) fn known_roles(&self) -> Result<&(Roles, Arc<SharedAccess>), SqlError> {
        if self.known_roles.get().is_none() {
            let found = Catalog::roles(self)?;
            let _ = self.known_roles.set(found);
        }
        self.known_roles.get().ok_or_else(|| SqlError::internal("the roles are not known"))
    }

    /// What the session's role acts with.
    pub(crate) fn rights(&self) -> Result<Rights, SqlError> {
        self.rights_of(self.path.user.current.0)
    }

    fn rights_of(&self, role: RoleId) -> Result<Rights, SqlError> {
        if role == FIRST {
            return Ok(Rights { role, is_superuser: true, acting: BTreeSet::from([role]) });
        }
        let roles = &self.known_roles()?.0;
        if roles.get(role).is_none() {
            let message = format!("role {role} was concurrently dropped");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        Ok(roles.rights(role))
    }

    /// Notes that the statement needs privileges of an object. The answer is the need's number.
    pub(crate) fn need(&self, object: Object, privileges: Privileges) -> usize {
        let (any, read, inserted, changed) = Default::default();
        let as_role = self.check_as.get();
        let mut needs = self.needs.borrow_mut();
        needs.push(Need { object, as_role, privileges, any, read, inserted, changed });
        needs.len() - 1
    }

    /// As [`Recorded::need`], where one of the privileges is enough.
    pub(super) fn need_any(&self, object: Object, privileges: Privileges) {
        let at = self.need(object, 0);
        self.needs.borrow_mut()[at].any = privileges;
    }

    /// Adds privileges to a need.
    pub(super) fn need_more(&self, at: usize, privileges: Privileges) {
        self.change_need(at, |need| need.privileges |= privileges);
    }

    fn change_need(&self, at: usize, change: impl FnOnce(&mut Need)) {
        self.needs.borrow_mut().get_mut(at).map(change).unwrap_or_default();
    }

    /// The statement reads a column.
    pub(super) fn reads(&self, origin: Option<Origin>) {
        if let Some((at, column)) = origin {
            self.change_need(at, |need| {
                need.privileges |= bits::SELECT;
                need.read.insert(column);
            });
        }
    }

    /// The statement gives these columns of a new row values.
    pub(super) fn inserts(&self, at: usize, columns: impl IntoIterator<Item = usize>) {
        self.change_need(at, |need| {
            need.privileges |= bits::INSERT;
            need.inserted.extend(columns);
        });
    }

    /// The statement gives these columns other values.
    pub(super) fn updates(&self, at: usize, columns: impl IntoIterator<Item = usize>) {
        self.change_need(at, |need| {
            need.privileges |= bits::UPDATE;
            need.changed.extend(columns);
        });
    }

    /// The statement locks the rows of what was noted from here on.
    pub(super) fn locks(&self, from: usize) {
        self.needs.borrow_mut().iter_mut().skip(from).for_each(|need| {
            if matches!(need.object, Object::Table(_) | Object::View(_)) {
                need.privileges |= bits::UPDATE;
            }
        });
    }

    /// Refuses what was noted and is not permitted.
    pub(crate) fn check_needs(&self) -> Result<(), SqlError> {
        let own = self.path.user.current.0;
        let mut known: Option<Rights> = None;
        for need in self.needs.borrow().iter() {
            let role = need.as_role.unwrap_or(own);
            if role == FIRST {
                continue;
            }
            let rights = match known.take() {
                Some(rights) if rights.role == role => rights,
                _ => self.rights_of(role)?,
            };
            if !rights.is_superuser && !need.is_met(&rights) {
                return Err(denied(need.object.kind(), &need.object.shown()));
            }
            known = Some(rights);
        }
        Ok(())
    }

    /// Refuses a change of the definition of what is another's.
    pub(crate) fn check_owner(&self, object: &Object) -> Result<(), SqlError> {
        if self.path.user.current.0 == FIRST {
            return Ok(());
        }
        let Some(access) = object.access() else { return Ok(()) };
        if self.rights()?.owns(access) { Ok(()) } else { Err(not_owner(object.kind(), &object.shown())) }
    }

    /// As [`Recorded::check_owner`], of what is dropped: the owner of its schema may do that, too.
    pub(super) fn check_dropper(&self, object: &Object, name: &Name) -> Result<(), SqlError> {
        let refused = self.check_owner(object);
        if refused.is_err()
            && let Some((access, _)) = self.access_of_schema(name.schema())?
            && self.rights()?.owns(&access)
        {
            return Ok(());
        }
        refused
    }

    /// As [`Recorded::check_owner`], of an index, which has no owner of its own.
    pub(super) fn check_owner_of_index(&self, table: &Object, index: &Name) -> Result<(), SqlError> {
        self.check_owner(table).map_err(|error| {
            let message = format!("must be owner of index {index}");
            if error.state() == SqlState::INSUFFICIENT_PRIVILEGE {
                SqlError::new(error.state(), message)
            } else {
                error
            }
        })
    }

    /// Refuses a foreign key to columns that the session's role may not name there.
    pub(super) fn check_references(&self, parent: &Arc<Table>, columns: &[String]) -> Result<(), SqlError> {
        if self.path.user.current.0 == FIRST {
            return Ok(());
        }
        let (rights, object) = (self.rights()?, Object::Table(parent.clone()));
        let is_granted = |name: &String| {
            let column = parent.column(name).map(|at| object.column_grants(at));
            column.is_some_and(|grants| rights.held_of_column(grants) & bits::REFERENCES != 0)
        };
        let held = rights.held(&parent.access, Kind::Table);
        let may = held & bits::REFERENCES != 0 || columns.iter().all(is_granted);
        if may { Ok(()) } else { Err(denied(Kind::Table, parent.name.plain())) }
    }

    /// Whose a schema is, and who may do what there. `None`: it is one of the system, or of the session.
    pub(super) fn access_of_schema(&self, schema: &str) -> Result<Option<(Access, Kind)>, SqlError> {
        if schema == PUBLIC {
            return Ok(Some((self.known_roles()?.1.public.clone(), Kind::Public)));
        }
        if SYSTEM.contains(&schema) || schema == self.path.temporary {
            return Ok(None);
        }
        let object = self.catalog.object(&Name::of_schema(schema))?;
        Ok(object.and_then(|object| Some((object.access()?.clone(), Kind::Schema))))
    }

    /// Whether the session's role has a privilege of a schema.
    pub(super) fn may(&self, schema: &str, privilege: Privileges) -> Result<bool, SqlError> {
        if self.path.user.current.0 == FIRST || self.is_kept_text.get() {
            return Ok(true);
        }
        let Some((access, kind)) = self.access_of_schema(schema)? else { return Ok(true) };
        Ok(self.rights()?.held(&access, kind) & privilege != 0)
    }

    /// Refuses a schema of which the session's role does not have a privilege.
    pub(super) fn check_may(&self, schema: &str, privilege: Privileges) -> Result<(), SqlError> {
        if self.may(schema, privilege)? { Ok(()) } else { Err(denied(Kind::Schema, schema)) }
    }

    /// Refuses what the session's role may not do with the database.
    pub(super) fn check_database(&self, privilege: Privileges) -> Result<(), SqlError> {
        if self.path.user.current.0 == FIRST {
            return Ok(());
        }
        let held = self.rights()?.held(&self.known_roles()?.1.database, Kind::Database);
        match (held & privilege != 0, privilege) {
            (true, _) => Ok(()),
            (false, bits::TEMPORARY) => {
                let message = format!("permission denied to create temporary tables in database \"{DATABASE}\"");
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
            }
            (false, _) => Err(denied(Kind::Database, DATABASE)),
        }
    }
}

impl Binder<'_> {
    /// Notes of each column of a scope where it is read from.
    pub(super) fn originate(scope: &mut Scope, need: usize) {
        scope.columns.iter_mut().enumerate().for_each(|(at, column)| column.need = Some((need, at)));
    }

    /// Refuses a comment on what is another's.
    pub(crate) fn check_commenter(&self, of: ast::CommentObject, name: &ast::ObjectName) -> Result<(), SqlError> {
        if self.catalog.rights()?.is_superuser {
            return Ok(());
        }
        let mut parts = name.0.clone();
        if of == ast::CommentObject::Column {
            parts.pop();
        }
        let found = match of {
            ast::CommentObject::Table
            | ast::CommentObject::Column
            | ast::CommentObject::View
            | ast::CommentObject::Sequence => self.catalog.find_written(&Written::of(&ast::ObjectName(parts))?)?,
            _ => None,
        };
        match found {
            Some((_, object)) => self.catalog.check_owner(&object),
            None => Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {name}"))),
        }
    }

    /// Whether what was noted of an action counts. A definition needs nothing of what its texts name: those are asked for when they are evaluated.
    pub(crate) fn is_checked(&self, action: &Action) -> bool {
        match action {
            Action::Run(_) => true,
            Action::Define(definition) => ["TRUNCATE TABLE", TABLE_AS].contains(&definition.tag),
            Action::Skip { .. } => false,
        }
    }

    /// Gives what a statement makes to its role. What was there stays its owner's.
    pub(crate) fn finish_owners(&self, action: &mut Action) -> Result<(), SqlError> {
        let role = self.catalog.path.user.current.0;
        let Action::Define(definition) = action else { return Ok(()) };
        self.note_enums(definition)?;
        if !matches!(
            definition.tag,
            "CREATE TABLE"
                | TABLE_AS
                | "CREATE SEQUENCE"
                | "CREATE VIEW"
                | "CREATE SCHEMA"
                | "CREATE PROCEDURE"
                | "CREATE TYPE"
        ) {
            return self.give_sequences(definition);
        }
        if role == FIRST && self.catalog.known_roles()?.1.defaults.is_empty() {
            return Ok(());
        }
        // What is made would be nobody's.
        self.catalog.rights()?;
        for table in &mut definition.tables {
            table.description.access = self.access_of_new(role, Kind::Table, &table.name)?;
        }
        for (name, object) in &mut definition.objects {
            let kind = object.as_ref().map_or(Kind::Table, NewObject::kind);
            if self.catalog.catalog.object(name)?.is_none()
                && let Some(access) = object.as_mut().and_then(NewObject::access_mut)
            {
                // AUTHORIZATION may have said another owner.
                let owner = if access.is_default() { role } else { access.owner() };
                *access = self.access_of_new(owner, kind, name)?;
            }
        }
        Ok(())
    }

    /// Who may do what with an object that a role makes.
    fn access_of_new(&self, owner: RoleId, kind: Kind, name: &Name) -> Result<Access, SqlError> {
        let mut access = Access::owned_by(owner);
        self.grants_of_new(owner, kind, name)?.into_iter().for_each(|grants| access.set(grants));
        Ok(access)
    }

    /// New sequences of columns belong to the owners of their tables.
    fn give_sequences(&self, definition: &mut Definition) -> Result<(), SqlError> {
        for (name, object) in &mut definition.objects {
            let Some(NewObject::Sequence(of, None)) = object else { continue };
            let Some((table, _)) = of.owner.as_ref().filter(|_| of.access.is_default()) else { continue };
            if self.catalog.catalog.object(name)?.is_none()
                && let Some(access) = self.catalog.catalog.object(table)?.as_ref().and_then(Object::access)
            {
                of.access = self.access_of_new(access.owner(), Kind::Sequence, name)?;
            }
        }
        Ok(())
    }
}
