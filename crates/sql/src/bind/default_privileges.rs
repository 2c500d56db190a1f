//! ALTER DEFAULT PRIVILEGES, and what comes of it.

use super::Binder;
use super::grants::invalid_grant;
use super::roles::refused;
use crate::error::SqlError;
use crate::names::{Name, PUBLIC, no_schema};
use crate::roles::defaults::{DefaultChange, DefaultKind, DefaultPrivileges};
use crate::roles::{self, Grant, Kind, PUBLIC_ROLE, Privileges, Role, RoleId, RoleName, acl, privileges_named};
use crate::statement::{Definition, NewObject};

impl DefaultChange {
    /// The privileges that are meant.
    fn privileges(&self) -> Result<Privileges, SqlError> {
        if !self.wanted.all_of_columns.is_empty() || self.wanted.privileges.iter().any(|(_, names)| !names.is_empty()) {
            return Err(invalid_grant("default privileges cannot be set for columns"));
        }
        let all = self.of.kind().all();
        if self.wanted.privileges.is_empty() {
            return Ok(all);
        }
        let meant = self.wanted.privileges.iter().fold(0, |meant, (privilege, _)| meant | privilege);
        if let Some((_, name)) = privileges_named(meant & !all).next() {
            let of = if self.of == DefaultKind::Tables { "relation" } else { self.of.kind().word() };
            return Err(invalid_grant(format!("invalid privilege type {name} for {of}")));
        }
        Ok(meant)
    }
}

impl Binder<'_> {
    pub(super) fn change_defaults(&mut self, change: &DefaultChange) -> Result<Definition, SqlError> {
        let mut definition = Definition::new("ALTER DEFAULT PRIVILEGES");
        let privileges = change.privileges()?;
        if change.of == DefaultKind::Schemas && !change.schemas.is_empty() {
            return Err(invalid_grant("cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS"));
        }
        let roles = self.makers(&change.roles, &mut definition)?;
        let mut schemas = Vec::new();
        for schema in &change.schemas {
            self.catalog.schema(schema)?.ok_or_else(|| no_schema(schema))?;
            if schema != PUBLIC {
                definition.needs.push((Name::of_schema(schema), no_schema(schema)));
            }
            schemas.push(Some(schema.as_str()));
        }
        if schemas.is_empty() {
            schemas.push(None);
        }
        let mut grantees = Vec::new();
        for name in &change.grantees {
            let to = self.grantee(name, &mut definition)?;
            if to == PUBLIC_ROLE && change.has_options && !change.revokes {
                return Err(invalid_grant("grant options can only be granted to roles"));
            }
            grantees.push(to);
        }
        let mut shared = (*self.catalog.known_roles()?.1).clone();
        for role in &roles {
            for schema in &schemas {
                let mut own = DefaultPrivileges::initial(*role, *schema, change.of);
                if let Some(at) = shared.defaults.iter().position(|known| known.is_about(&own)) {
                    own = shared.defaults.remove(at);
                }
                grantees.iter().for_each(|to| change_one(&mut own, change, *to, privileges));
                if !own.is_initial() {
                    shared.defaults.push(own);
                }
            }
        }
        definition.set_object(&roles::shared_key(), Some(NewObject::Shared(shared)));
        Ok(definition)
    }

    /// The roles whose objects are meant.
    fn makers(&self, names: &[RoleName], definition: &mut Definition) -> Result<Vec<RoleId>, SqlError> {
        let current = [RoleName::Current];
        let names = if names.is_empty() { &current[..] } else { names };
        let mut roles = Vec::new();
        for name in names {
            let role: Role = self.role(name)?;
            self.check_member(&role).map_err(|_| refused("permission denied to change default privileges"))?;
            roles.push(self.grantee(&RoleName::Named(role.name), definition)?);
        }
        Ok(roles)
    }

    /// The grants of a new object; `None`: nothing is said of such.
    pub(super) fn grants_of_new(&self, owner: RoleId, kind: Kind, name: &Name) -> Result<Option<Vec<Grant>>, SqlError> {
        let (_, shared) = self.catalog.known_roles()?;
        let name = crate::procedures::unmarked(name);
        let schema = Some(name.schema()).filter(|_| kind != Kind::Schema);
        Ok(roles::defaults::grants_of_new(&shared.defaults, owner, kind, schema))
    }

    /// Has nothing be said of schemas that are dropped: others of their names are others.
    pub(super) fn forget_defaults(&self, schemas: &[String], definition: &mut Definition) -> Result<(), SqlError> {
        let (_, shared) = self.catalog.known_roles()?;
        let goes = |own: &DefaultPrivileges| own.schema.as_ref().is_some_and(|schema| schemas.contains(schema));
        if shared.defaults.iter().any(goes) {
            let mut shared = (**shared).clone();
            shared.defaults.retain(|own| !goes(own));
            definition.set_object(&roles::shared_key(), Some(NewObject::Shared(shared)));
        }
        Ok(())
    }

    /// What is said of default privileges that names a role, as the detail of an error tells it.
    pub(super) fn defaults_naming(&self, role: RoleId) -> Result<Vec<String>, SqlError> {
        let (roles, shared) = self.catalog.known_roles()?;
        let told = |own: &DefaultPrivileges| {
            let maker = roles.name(own.role);
            let what = if own.role == role { "owner of" } else { "privileges for" };
            let schema = own.schema.as_ref().map_or_else(String::new, |schema| format!(" in schema {schema}"));
            format!("{what} default privileges on new {} belonging to role {maker}{schema}", own.of.words())
        };
        Ok(shared.defaults.iter().filter(|own| own.names(role)).map(told).collect())
    }
}

fn change_one(own: &mut DefaultPrivileges, change: &DefaultChange, to: RoleId, privileges: Privileges) {
    let owner = own.role;
    let options = if change.has_options { privileges } else { 0 };
    if !change.revokes {
        acl::add(&mut own.grants, &Grant { to, by: owner, privileges, options });
        return;
    }
    // With a privilege goes the right to hand it on.
    let taken = if change.has_options { 0 } else { privileges };
    let taken = Grant { to, by: owner, privileges: taken, options: privileges };
    // Nobody has something from somebody else there.
    let _ = acl::revoke(&mut own.grants, &taken, (owner, own.of.kind()), true);
}
