//! GRANT and REVOKE of privileges, and other owners.

use super::needs::denied;
use super::roles::{no_role, refused};
use super::{Binder, Written};
use crate::catalog::{Object, Schema};
use crate::error::{SqlError, SqlState};
use crate::names::{Name, PUBLIC, no_schema};
use crate::outcome::Notice;
use crate::roles::{
    self, Access, FIRST, Grant, Kind, PUBLIC_ROLE, PrivilegeChange, Privileges, RoleId, RoleName, SharedAccess,
    Targets, acl, bits, privileges_named,
};
use crate::statement::{Definition, NewObject};

/// What privileges are of.
pub(super) enum Target {
    Object(Name, Object),
    /// The schema `public`, or the database: what all objects share has their access.
    Shared(Kind),
}

/// What depends on a role.
#[derive(Default)]
pub(super) struct Dependents {
    /// As the detail of an error tells them.
    pub(super) details: Vec<String>,
    /// What the role owns.
    owned: Vec<(Name, Object)>,
    /// It owns what all objects share.
    shared: Vec<Kind>,
}

/// The columns that privileges are limited to, with the privileges.
pub(super) type OfColumns = Vec<(usize, Privileges)>;

pub(super) fn invalid_grant(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_GRANT, message)
}

impl Target {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Object(_, object) => object.kind(),
            Self::Shared(kind) => *kind,
        }
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Self::Object(_, object) => object.shown(),
            Self::Shared(Kind::Public) => PUBLIC.to_owned(),
            Self::Shared(_) => super::DATABASE.to_owned(),
        }
    }
}

/// The access of the schema `public`, or of the database.
fn shared_mut(shared: &mut SharedAccess, kind: Kind) -> &mut Access {
    if kind == Kind::Public { &mut shared.public } else { &mut shared.database }
}

impl Binder<'_> {
    fn schema_target(&self, name: &str) -> Result<Target, SqlError> {
        if name == PUBLIC {
            return Ok(Target::Shared(Kind::Public));
        }
        let found = self.catalog.schema(name)?.ok_or_else(|| no_schema(name))?;
        let key = Name::of_schema(&found);
        match self.catalog.catalog.object(&key)? {
            Some(object) => Ok(Target::Object(key, object)),
            None => Err(SqlError::unsupported(format!("privileges on schema {name}"))),
        }
    }

    fn type_target(&self, name: &sqlparser::ast::ObjectName) -> Result<Target, SqlError> {
        let of = self.catalog.enum_within(name)?;
        Ok(Target::Object(crate::enums::key(&of.name), Object::Enum(of)))
    }

    /// The objects in schemas of which this holds.
    fn objects_in(&self, schemas: &[String], is_meant: fn(&Object) -> bool) -> Result<Vec<Target>, SqlError> {
        for schema in schemas {
            self.catalog.schema(schema)?.ok_or_else(|| no_schema(schema))?;
        }
        let mut found = Vec::new();
        for object in self.catalog.objects()?.into_iter().filter(is_meant) {
            let Some(name) = name_of(&object) else { continue };
            if schemas.iter().any(|schema| schema == crate::procedures::unmarked(&name).schema()) {
                found.push(Target::Object(name, object));
            }
        }
        Ok(found)
    }

    fn relation_target(&self, name: &sqlparser::ast::ObjectName, is_sequence: bool) -> Result<Target, SqlError> {
        let written = Written::of(name)?;
        let (name, object) = self.catalog.find_within(&written)?.ok_or_else(|| written.missing())?;
        if is_sequence && !matches!(object, Object::Sequence(_)) {
            let message = format!("\"{name}\" is not a sequence");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        Ok(Target::Object(name, object))
    }

    fn targets(&self, targets: &Targets) -> Result<Vec<Target>, SqlError> {
        match targets {
            Targets::Relations(names) => names.iter().map(|name| self.relation_target(name, false)).collect(),
            Targets::Sequences(names) => names.iter().map(|name| self.relation_target(name, true)).collect(),
            Targets::Procedures(names) => {
                let named = names.iter().map(|name| {
                    let written = Written::of(name)?;
                    let missing = || {
                        let message = format!("procedure \"{written}\" does not exist");
                        SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
                    };
                    let procedure = self.catalog.written_procedure(&written)?.ok_or_else(missing)?;
                    Ok(Target::Object(crate::procedures::key(&procedure.name), Object::Procedure(procedure)))
                });
                named.collect()
            }
            Targets::Types(names) => names.iter().map(|name| self.type_target(name)).collect(),
            Targets::Schemas(names) => names.iter().map(|name| self.schema_target(name)).collect(),
            Targets::Databases(names) => {
                let named = names.iter().map(|name| match name == super::DATABASE {
                    true => Ok(Target::Shared(Kind::Database)),
                    false => {
                        let message = format!("database \"{name}\" does not exist");
                        Err(SqlError::new(SqlState::UNDEFINED_DATABASE, message))
                    }
                });
                named.collect()
            }
            Targets::AllTables(schemas) => {
                self.objects_in(schemas, |object| matches!(object, Object::Table(_) | Object::View(_)))
            }
            Targets::AllSequences(schemas) => self.objects_in(schemas, |object| matches!(object, Object::Sequence(_))),
            Targets::AllProcedures(schemas) => {
                self.objects_in(schemas, |object| matches!(object, Object::Procedure(_)))
            }
        }
    }

    /// Who may do what with a target, as far as the definition has come.
    fn access_of(&self, target: &Target, definition: &Definition) -> Result<Access, SqlError> {
        Ok(match target {
            Target::Object(name, object) => {
                Self::new_of(name, object, definition).access_mut().cloned().unwrap_or_default()
            }
            Target::Shared(kind) => shared_mut(&mut self.shared_of(definition)?, *kind).clone(),
        })
    }

    fn new_of(name: &Name, object: &Object, definition: &Definition) -> NewObject {
        let changed = definition.objects.iter().rev().find(|(own, _)| own == name);
        changed.and_then(|(_, changed)| changed.clone()).unwrap_or_else(|| object.as_new())
    }

    fn shared_of(&self, definition: &Definition) -> Result<SharedAccess, SqlError> {
        let key = roles::shared_key();
        match definition.objects.iter().rev().find(|(own, _)| *own == key) {
            Some((_, Some(NewObject::Shared(shared)))) => Ok(shared.clone()),
            _ => Ok((*self.catalog.known_roles()?.1).clone()),
        }
    }

    fn change_access(
        &self,
        target: &Target,
        definition: &mut Definition,
        change: impl FnOnce(&mut Access),
    ) -> Result<(), SqlError> {
        match target {
            Target::Object(name, object) => {
                let mut new = Self::new_of(name, object, definition);
                new.access_mut().into_iter().for_each(change_once(change));
                definition.set_object(name, Some(new));
            }
            Target::Shared(kind) => {
                let mut shared = self.shared_of(definition)?;
                change(shared_mut(&mut shared, *kind));
                definition.set_object(&roles::shared_key(), Some(NewObject::Shared(shared)));
            }
        }
        Ok(())
    }

    /// Which privileges are meant of a target: of the whole, and of columns.
    fn wanted(&self, target: &Target, change: &PrivilegeChange) -> Result<(Privileges, OfColumns), SqlError> {
        let kind = target.kind();
        let wanted = &change.wanted;
        let columns = if let Target::Object(_, object) = target { object.columns() } else { Vec::new() };
        let position = |name: &String| {
            let missing = || {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", target.shown());
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            };
            columns.iter().find(|(_, own)| own == name).map(|(at, _)| *at).ok_or_else(missing)
        };
        if !matches!(kind, Kind::Table | Kind::View)
            && (!wanted.all_of_columns.is_empty() || wanted.privileges.iter().any(|(_, columns)| !columns.is_empty()))
        {
            return Err(invalid_grant("column privileges are only valid for relations"));
        }
        if wanted.privileges.is_empty() {
            let of_columns = wanted.all_of_columns.iter().map(|name| Ok((position(name)?, bits::OF_COLUMNS)));
            let of_columns = of_columns.collect::<Result<Vec<_>, SqlError>>()?;
            return Ok((if of_columns.is_empty() { kind.all() } else { 0 }, of_columns));
        }
        let (mut whole, mut of_columns) = (0, Vec::new());
        for (privilege, names) in &wanted.privileges {
            let allowed = if names.is_empty() { kind.all() } else { bits::OF_COLUMNS };
            if privilege & !allowed != 0 {
                let name = privileges_named(*privilege).map(|(_, name)| name).next().unwrap_or_default();
                let of = match (kind, names.is_empty()) {
                    (_, false) => "column",
                    (Kind::Table | Kind::View, _) => "relation",
                    (kind, _) => kind.word(),
                };
                return Err(invalid_grant(format!("invalid privilege type {name} for {of}")));
            }
            if names.is_empty() {
                whole |= privilege;
            }
            for name in names {
                of_columns.push((position(name)?, *privilege));
            }
        }
        Ok((whole, of_columns))
    }

    /// The number of a role that gets or loses privileges.
    pub(super) fn grantee(&self, name: &RoleName, definition: &mut Definition) -> Result<RoleId, SqlError> {
        if *name == RoleName::Public {
            return Ok(PUBLIC_ROLE);
        }
        let role = self.role(name)?;
        if role.id != FIRST {
            definition.needs.push((roles::key(&role.name), no_role(&role.name)));
        }
        Ok(role.id)
    }

    pub(super) fn grant_privileges(&mut self, change: &PrivilegeChange) -> Result<Definition, SqlError> {
        self.check_grantor(change.grantor.as_ref())?;
        let mut definition = Definition::new("GRANT");
        let is_all = change.wanted.privileges.is_empty();
        for target in self.targets(&change.targets)? {
            let kind = target.kind();
            let (whole, of_columns) = self.wanted(&target, change)?;
            let access = self.access_of(&target, &definition)?;
            let (by, may) = match whole {
                0 => Default::default(),
                whole => {
                    self.may_hand_on((&target, None), (&access, kind), (whole, is_all), (&mut definition, false))?
                }
            };
            let by_column =
                self.may_hand_on_columns(&target, &access, (of_columns, is_all), (&mut definition, false))?;
            for role in &change.roles {
                let to = self.grantee(role, &mut definition)?;
                if change.has_options && to == PUBLIC_ROLE {
                    return Err(invalid_grant("grant options can only be granted to roles"));
                }
                let new = |privileges: Privileges, (by, may): (RoleId, Privileges)| {
                    let privileges = privileges & may;
                    Grant { to, by, privileges, options: if change.has_options { privileges } else { 0 } }
                };
                let access = self.access_of(&target, &definition)?;
                check_cycle(&access, kind, &new(whole, (by, may)))?;
                if whole & may != 0 {
                    self.change_access(&target, &mut definition, |access| {
                        let mut grants = access.of(kind);
                        acl::add(&mut grants, &new(whole, (by, may)));
                        access.set(grants);
                    })?;
                }
                for (column, privileges, own) in by_column.iter().filter(|(_, privileges, own)| privileges & own.1 != 0)
                {
                    let new = new(*privileges, *own);
                    change_column(&target, *column, &mut definition, |grants| acl::add(grants, &new));
                }
            }
        }
        Ok(definition)
    }

    pub(super) fn revoke_privileges(&mut self, change: &PrivilegeChange) -> Result<Definition, SqlError> {
        self.check_grantor(change.grantor.as_ref())?;
        let mut definition = Definition::new("REVOKE");
        let is_all = change.wanted.privileges.is_empty();
        for target in self.targets(&change.targets)? {
            let kind = target.kind();
            let (whole, of_columns) = self.wanted(&target, change)?;
            let access = self.access_of(&target, &definition)?;
            let of_whole = match whole {
                0 => Default::default(),
                whole => {
                    self.may_hand_on((&target, None), (&access, kind), (whole, is_all), (&mut definition, true))?
                }
            };
            let mut by_column =
                self.may_hand_on_columns(&target, &access, (of_columns, is_all), (&mut definition, true))?;
            // What is revoked of the whole is so of each column.
            if let Target::Object(_, object) = &target
                && whole & bits::OF_COLUMNS != 0
            {
                let all = object.columns().into_iter();
                by_column.extend(all.map(|(at, _)| (at, whole & bits::OF_COLUMNS, of_whole)));
            }
            for role in &change.roles {
                let to = self.grantee(role, &mut definition)?;
                let taken = |privileges: Privileges, (by, may): (RoleId, Privileges)| {
                    let options = privileges & may;
                    Grant { to, by, privileges: if change.has_options { 0 } else { options }, options }
                };
                let owner = access.owner();
                let dependent = |_: acl::Dependent| {
                    let error = SqlError::new(SqlState::DEPENDENT_OBJECTS, "dependent privileges exist");
                    error.with_hint("Use CASCADE to revoke them too.")
                };
                let mut grants = self.access_of(&target, &definition)?.of(kind);
                let before = grants.clone();
                acl::revoke(&mut grants, &taken(whole, of_whole), (owner, kind), change.cascades).map_err(dependent)?;
                if grants != before {
                    self.change_access(&target, &mut definition, |access| access.set(grants))?;
                }
                for (column, privileges, own) in &by_column {
                    let mut revoked = Ok(());
                    change_column(&target, *column, &mut definition, |grants| {
                        revoked =
                            acl::revoke(grants, &taken(*privileges, *own), (owner, Kind::Column), change.cascades);
                    });
                    revoked.map_err(dependent)?;
                }
            }
        }
        Ok(definition)
    }

    /// Gives objects to another role.
    pub(super) fn change_owner(
        &mut self,
        (targets, if_exists): (&Targets, bool),
        to: &RoleName,
        tag: &'static str,
    ) -> Result<Definition, SqlError> {
        let mut definition = Definition::new(tag);
        let found = match self.targets(targets) {
            Err(error) if if_exists && error.state() == SqlState::UNDEFINED_TABLE => {
                let message = format!("{}, skipping", error.message());
                definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
                return Ok(definition);
            }
            found => found?,
        };
        let to = self.role(to)?;
        for target in found {
            let access = self.access_of(&target, &definition)?;
            check_tag(&target, tag)?;
            if access.owner() == to.id {
                continue;
            }
            self.check_giver(&target, &access)?;
            self.check_member(&to)?;
            self.check_receiver(&target, to.id)?;
            self.give(&target, to.id, &mut definition)?;
        }
        if to.id != FIRST {
            definition.needs.push((roles::key(&to.name), no_role(&to.name)));
        }
        Ok(definition)
    }

    fn check_giver(&self, target: &Target, access: &Access) -> Result<(), SqlError> {
        if self.catalog.rights()?.owns(access) {
            return Ok(());
        }
        Err(refused(format!("must be owner of {} {}", target.kind().word(), target.shown())))
    }

    /// Refuses a new owner that could not have made the object.
    fn check_receiver(&self, target: &Target, to: RoleId) -> Result<(), SqlError> {
        let Target::Object(name, object) = target else { return Ok(()) };
        let rights = self.catalog.rights()?;
        if rights.is_superuser || matches!(object, Object::Schema(_)) {
            return Ok(());
        }
        if let Object::Sequence(sequence) = object
            && let Some((table, _)) = &sequence.definition.owner
        {
            let error = SqlError::unsupported(format!("another owner of a sequence of table \"{table}\""));
            return Err(error);
        }
        let schema = crate::procedures::unmarked(name);
        let Some((access, kind)) = self.catalog.access_of_schema(schema.schema())? else { return Ok(()) };
        let held = self.roles()?.rights(to).held(&access, kind);
        if held & bits::CREATE != 0 { Ok(()) } else { Err(denied(Kind::Schema, schema.schema())) }
    }

    /// Gives an object away, with the sequences of its columns.
    fn give(&self, target: &Target, to: RoleId, definition: &mut Definition) -> Result<(), SqlError> {
        let from = self.access_of(target, definition)?.owner();
        self.change_access(target, definition, |access| access.give(to))?;
        for (column, _) in if let Target::Object(_, object) = target { object.columns() } else { Vec::new() } {
            change_column(target, column, definition, |grants| acl::replace(grants, from, to));
        }
        if let Target::Object(_, Object::Table(table)) = target {
            for (sequence, _) in self.owned_sequences(table)? {
                let target = Target::Object(sequence.name.clone(), Object::Sequence(sequence));
                self.change_access(&target, definition, |access| access.give(to))?;
            }
        }
        Ok(())
    }

    /// What depends on a role.
    pub(super) fn dependents(&self, role: RoleId) -> Result<Dependents, SqlError> {
        let mut found = Dependents::default();
        let mut note = |access: &Access, (word, name): (&str, &str), has_columns: bool| {
            let is_owner = access.owner() == role;
            if is_owner {
                found.details.push(format!("owner of {word} {name}"));
            } else if access.names(role) || has_columns {
                found.details.push(format!("privileges for {word} {name}"));
            }
            is_owner
        };
        let (shared, mut owned) = (self.catalog.known_roles()?.1.clone(), Vec::new());
        let mut of_shared = Vec::new();
        for (kind, name) in [(Kind::Public, PUBLIC), (Kind::Database, super::DATABASE)] {
            let access = if kind == Kind::Public { &shared.public } else { &shared.database };
            if note(access, (kind.word(), name), false) {
                of_shared.push(kind);
            }
        }
        for object in self.catalog.objects()? {
            let (Some(access), Some(name)) = (object.access(), name_of(&object)) else { continue };
            let is_named = |(at, _): (usize, String)| {
                object.column_grants(at).iter().any(|grant| grant.to == role || grant.by == role)
            };
            let has_columns = object.columns().into_iter().any(is_named);
            if note(access, (object.kind().word(), &object.shown()), has_columns) {
                owned.push((name, object));
            }
        }
        (found.owned, found.shared) = (owned, of_shared);
        Ok(found)
    }

    pub(super) fn reassign(&mut self, from: &[RoleName], to: &RoleName) -> Result<Definition, SqlError> {
        let mut definition = Definition::new("REASSIGN OWNED");
        let to = self.role(to)?;
        self.check_member(&to)?;
        for role in from {
            let role = self.role(role)?;
            self.check_member(&role)?;
            if role.id == FIRST {
                let message = format!(
                    "cannot reassign ownership of objects owned by role {} because they are required by the database system",
                    role.name
                );
                return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
            }
            let Dependents { owned, shared, .. } = self.dependents(role.id)?;
            let owned = owned.into_iter().map(|(name, object)| Target::Object(name, object));
            for target in owned.chain(shared.into_iter().map(Target::Shared)) {
                if self.access_of(&target, &definition)?.owner() == role.id {
                    self.give(&target, to.id, &mut definition)?;
                }
            }
        }
        if to.id != FIRST {
            definition.needs.push((roles::key(&to.name), no_role(&to.name)));
        }
        Ok(definition)
    }
}

fn change_once<T>(change: impl FnOnce(&mut T)) -> impl FnMut(&mut T) {
    let mut change = Some(change);
    move |it| change.take().into_iter().for_each(|change| change(it))
}

fn change_column(target: &Target, column: usize, definition: &mut Definition, change: impl FnOnce(&mut Vec<Grant>)) {
    let Target::Object(name, object) = target else { return };
    let mut new = Binder::new_of(name, object, definition);
    let Some(grants) = new.column_grants_mut(column) else { return };
    let before = grants.clone();
    change(grants);
    if *grants != before {
        definition.set_object(name, Some(new));
    }
}

/// Refuses a right to hand on that would come back to the one who gives it.
fn check_cycle(access: &Access, kind: Kind, new: &Grant) -> Result<(), SqlError> {
    let owner = access.owner();
    if new.options == 0 || new.by == owner {
        return Ok(());
    }
    let mut grants = access.of(kind);
    let given: Vec<_> = grants.iter().filter(|grant| grant.to == new.to && grant.by != new.by).cloned().collect();
    for grant in given {
        let taken = Grant { privileges: 0, options: new.options, ..grant };
        let _ = acl::revoke(&mut grants, &taken, (owner, kind), true);
    }
    let still = acl::options_of(&grants, new.by, owner, kind);
    if new.to == owner || new.options & !still != 0 {
        return Err(invalid_grant("grant options cannot be granted back to your own grantor"));
    }
    Ok(())
}

/// Refuses an object that is none of the kind that a statement names.
fn check_tag(target: &Target, tag: &str) -> Result<(), SqlError> {
    let is_meant = match target.kind() {
        Kind::View => tag == "ALTER VIEW" || tag == "ALTER TABLE",
        Kind::Sequence => tag == "ALTER SEQUENCE" || tag == "ALTER TABLE",
        Kind::Table => tag == "ALTER TABLE",
        _ => true,
    };
    if is_meant {
        return Ok(());
    }
    let word = tag.rsplit(' ').next().unwrap_or_default().to_lowercase();
    Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a {word}", target.shown())))
}

/// The name under which the catalog has an object.
fn name_of(object: &Object) -> Option<Name> {
    Some(match object {
        Object::Table(table) => table.name.clone(),
        Object::View(view) => view.name.clone(),
        Object::Sequence(sequence) => sequence.name.clone(),
        Object::Procedure(procedure) => crate::procedures::key(&procedure.name),
        Object::Enum(of) => crate::enums::key(&of.name),
        Object::Schema(schema) => Name::of_schema(&Schema::clone(schema).name),
        Object::Role(_) | Object::Shared(_) => return None,
    })
}
