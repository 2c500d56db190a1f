//! Roles: how they are made, altered and dropped, and who is a member of whom.

use sqlparser::ast;

use super::grants::Dependents;
use super::{Binder, folded};
use crate::casts::Place;
use crate::context::Context;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::names::check_identifier;
use crate::outcome::Notice;
use crate::roles::{
    self, Attribute, FIRST, Membership, MembershipChange, Role, RoleId, RoleName, RoleStatement, Roles,
};
use crate::statement::{Action, Definition, NewObject};
use crate::types::Type;
use crate::verifier::Verifier;

/// That the session's role may not do something.
pub(super) fn refused(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

pub(crate) fn no_role(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

/// Refuses a name that the system keeps for itself.
fn check_name(name: &str) -> Result<(), SqlError> {
    check_identifier(name)?;
    let reserved = |message: String| SqlError::new(SqlState::RESERVED_NAME, message);
    if matches!(name, "public" | "none") {
        return Err(reserved(format!("role name \"{name}\" is reserved")));
    }
    if name.starts_with("pg_") {
        let detail = "Role names starting with \"pg_\" are reserved.";
        return Err(reserved(format!("role name \"{name}\" is reserved")).with_detail(detail));
    }
    if name.is_empty() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "zero-length delimited identifier"));
    }
    Ok(())
}

impl Binder<'_> {
    /// What a statement about roles or privileges defines.
    pub(crate) fn role_statement(&mut self, statement: &RoleStatement) -> Result<Action, SqlError> {
        let definition = match statement {
            RoleStatement::Create { name, is_user, attributes } => self.create_role(name, *is_user, attributes)?,
            RoleStatement::Alter { role, attributes } => self.alter_role(role, attributes)?,
            RoleStatement::Rename { role, to } => self.rename_role(role, to)?,
            RoleStatement::Drop { roles, if_exists } => self.drop_roles(roles, *if_exists)?,
            RoleStatement::GrantMembership(change) => self.grant_membership(change)?,
            RoleStatement::RevokeMembership(change) => self.revoke_membership(change)?,
            RoleStatement::Grant(change) => self.grant_privileges(change)?,
            RoleStatement::Revoke(change) => self.revoke_privileges(change)?,
            RoleStatement::Owner { targets, if_exists, to, tag } => {
                self.change_owner((targets, *if_exists), to, tag)?
            }
            RoleStatement::Reassign { from, to } => self.reassign(from, to)?,
            RoleStatement::Defaults(change) => self.change_defaults(change)?,
            RoleStatement::Configure { of, change } => self.configure(of, change)?,
        };
        Ok(Action::Define(definition.into()))
    }

    pub(super) fn roles(&self) -> Result<Roles, SqlError> {
        Ok(self.catalog.known_roles()?.0.clone())
    }

    /// The role that a statement names.
    pub(super) fn role(&self, name: &RoleName) -> Result<Role, SqlError> {
        let roles = self.roles()?;
        let user = &self.catalog.path.user;
        let by_id =
            |(id, name): &(RoleId, String)| roles.get(*id).ok_or_else(|| no_role(name)).map(|it| (**it).clone());
        match name {
            RoleName::Named(name) => roles.named(name).ok_or_else(|| no_role(name)).map(|it| (**it).clone()),
            RoleName::Current => by_id(&user.current),
            RoleName::Session => by_id(&user.session),
            RoleName::Public => Err(no_role("public")),
        }
    }

    /// The role to which a new object is given.
    pub(super) fn owner_named(&self, role: &ast::Ident) -> Result<(RoleId, String), SqlError> {
        let name = folded(role);
        let name = match name.as_str() {
            "current_user" | "current_role" if role.quote_style.is_none() => RoleName::Current,
            "session_user" if role.quote_style.is_none() => RoleName::Session,
            _ => RoleName::Named(name),
        };
        let role = self.role(&name)?;
        self.check_member(&role)?;
        Ok((role.id, role.name))
    }

    /// Refuses a role that the session's role is no member of.
    pub(super) fn check_member(&self, role: &Role) -> Result<(), SqlError> {
        let rights = self.catalog.rights()?;
        let is_member = rights.is_superuser || self.roles()?.closure(rights.role, false).contains(&role.id);
        if is_member { Ok(()) } else { Err(refused(format!("must be member of role \"{}\"", role.name))) }
    }

    /// Whether the session's role may make and alter others, but for superusers.
    pub(super) fn may_create_roles(&self) -> Result<bool, SqlError> {
        let rights = self.catalog.rights()?;
        Ok(rights.is_superuser || self.roles()?.get(rights.role).is_some_and(|role| role.may_create_roles))
    }

    fn create_role(&mut self, name: &str, is_user: bool, attributes: &[Attribute]) -> Result<Definition, SqlError> {
        check_name(name)?;
        let is_superuser = attributes.iter().any(|it| matches!(it, Attribute::Superuser(true)));
        if is_superuser && !self.catalog.rights()?.is_superuser {
            return Err(refused("must be superuser to create superusers"));
        }
        if !self.may_create_roles()? {
            return Err(refused("permission denied to create role"));
        }
        if self.roles()?.named(name).is_some() {
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists")));
        }
        let mut role = Role { may_log_in: is_user, ..Role::new(self.catalog.new_number(), name) };
        let mut definition = Definition::new("CREATE ROLE");
        self.set_attributes(&mut role, attributes, &mut definition)?;
        for attribute in attributes {
            match attribute {
                Attribute::In(roles) => {
                    for of in roles {
                        let of = self.role(of)?;
                        self.check_admin(&of)?;
                        self.join_role(&mut role, &of, false, &mut definition)?;
                    }
                }
                Attribute::Members(members, is_admin) => {
                    for member in members {
                        let mut member = self.role(member)?;
                        self.join_role(&mut member, &role, *is_admin, &mut definition)?;
                        self.set_role(member, &mut definition);
                    }
                }
                _ => {}
            }
        }
        self.set_role(role, &mut definition);
        Ok(definition)
    }

    fn set_role(&self, role: Role, definition: &mut Definition) {
        definition.set_object(&roles::key(&role.name), Some(NewObject::Role(role)));
    }

    /// A role as far as the definition has come.
    fn changed_role(role: &Role, definition: &Definition) -> Role {
        let key = roles::key(&role.name);
        match definition.objects.iter().rev().find(|(name, _)| *name == key) {
            Some((_, Some(NewObject::Role(changed)))) => changed.clone(),
            _ => role.clone(),
        }
    }

    fn set_attributes(
        &mut self,
        role: &mut Role,
        attributes: &[Attribute],
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        for attribute in attributes {
            match attribute {
                Attribute::Superuser(is) => role.is_superuser = *is,
                Attribute::Inherit(is) => role.inherits = *is,
                Attribute::CreateRole(is) => role.may_create_roles = *is,
                Attribute::CreateDatabase(is) => role.may_create_databases = *is,
                Attribute::LogIn(is) => role.may_log_in = *is,
                Attribute::ConnectionLimit(limit) => role.connection_limit = *limit,
                Attribute::Password(None) => role.verifier = None,
                Attribute::Password(Some(password)) if password.is_empty() => {
                    role.verifier = None;
                    let message = "empty string is not a valid password, clearing password";
                    definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
                }
                Attribute::Password(Some(password)) => role.verifier = Some(verifier_of(password)?),
                Attribute::ValidUntil(text) => role.valid_until = self.valid_until(text)?,
                Attribute::In(_) | Attribute::Members(..) => {}
            }
        }
        Ok(())
    }

    /// The time that a text says; `infinity` is none.
    fn valid_until(&mut self, text: &str) -> Result<Option<i64>, SqlError> {
        if text.trim().eq_ignore_ascii_case("infinity") {
            return Ok(None);
        }
        let typed = Typed::new(Expr::Constant(crate::datum::OwnedDatum::Text(text.into())), Type::Unknown);
        let cast = self.cast(typed, Type::Timestamptz.into(), Place::Explicit)?;
        let arena = bumpalo::Bump::new();
        let zone = crate::text::Zone::utc();
        match cast.expr.eval(&[], &Context::of(&arena, &zone))? {
            Datum::Timestamp(micros) => Ok(Some(micros)),
            _ => Ok(None),
        }
    }

    fn alter_role(&mut self, name: &RoleName, attributes: &[Attribute]) -> Result<Definition, SqlError> {
        let mut role = self.role(name)?;
        let rights = self.catalog.rights()?;
        let about_superusers = role.is_superuser || attributes.iter().any(|it| matches!(it, Attribute::Superuser(_)));
        let is_own_password =
            rights.role == role.id && attributes.iter().all(|it| matches!(it, Attribute::Password(_)));
        if about_superusers && !rights.is_superuser && !is_own_password {
            return Err(refused("must be superuser to alter superuser roles or change superuser attribute"));
        }
        if !is_own_password && !self.may_create_roles()? {
            return Err(refused("permission denied"));
        }
        if role.id == FIRST && attributes.iter().any(|it| matches!(it, Attribute::Superuser(false))) {
            return Err(refused("The bootstrap superuser must have the SUPERUSER attribute."));
        }
        let mut definition = Definition::new("ALTER ROLE");
        self.set_attributes(&mut role, attributes, &mut definition)?;
        self.set_role(role, &mut definition);
        Ok(definition)
    }

    fn rename_role(&mut self, name: &str, to: &str) -> Result<Definition, SqlError> {
        let role = self.role(&RoleName::Named(name.to_owned()))?;
        let user = &self.catalog.path.user;
        let unsupported = |message: &str| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        if role.id == user.session.0 {
            return unsupported("session user cannot be renamed");
        }
        if role.id == user.current.0 {
            return unsupported("current user cannot be renamed");
        }
        if role.id == FIRST {
            return Err(SqlError::unsupported(format!("another name of the role \"{name}\"")));
        }
        check_name(to)?;
        if self.roles()?.named(to).is_some() {
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, format!("role \"{to}\" already exists")));
        }
        if role.is_superuser && !self.catalog.rights()?.is_superuser {
            return Err(refused("must be superuser to rename superusers"));
        }
        if !self.may_create_roles()? {
            return Err(refused("permission denied to rename role"));
        }
        let mut definition = Definition::new("ALTER ROLE");
        definition.set_object(&roles::key(name), None);
        self.set_role(Role { name: to.to_owned(), ..role }, &mut definition);
        Ok(definition)
    }

    fn drop_roles(&mut self, names: &[RoleName], may_be_missing: bool) -> Result<Definition, SqlError> {
        if !self.may_create_roles()? {
            return Err(refused("permission denied to drop role"));
        }
        let mut definition = Definition::new("DROP ROLE");
        let mut dropped: Vec<Role> = Vec::new();
        for name in names {
            let RoleName::Named(text) = name else {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    "cannot use special role specifier in DROP ROLE",
                ));
            };
            match self.role(name) {
                Err(error) if may_be_missing && error.state() == SqlState::UNDEFINED_OBJECT => {
                    let message = format!("role \"{text}\" does not exist, skipping");
                    definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
                }
                found => dropped.push(found?),
            }
        }
        for role in &dropped {
            self.check_dropped(role)?;
            definition.set_object(&roles::key(&role.name), None);
        }
        for role in &self.roles()?.0 {
            let is_of_dropped = |of: &Membership| dropped.iter().any(|dropped| dropped.id == of.role);
            let goes = dropped.iter().any(|dropped| dropped.id == role.id);
            if !goes && role.memberships.iter().any(is_of_dropped) {
                let mut role = (**role).clone();
                role.memberships.retain(|of| !is_of_dropped(of));
                self.set_role(role, &mut definition);
            }
        }
        Ok(definition)
    }

    fn check_dropped(&self, role: &Role) -> Result<(), SqlError> {
        let user = &self.catalog.path.user;
        let name = &role.name;
        if role.id == user.current.0 {
            return Err(SqlError::new(SqlState::OBJECT_IN_USE, "current user cannot be dropped"));
        }
        if role.id == user.session.0 {
            return Err(SqlError::new(SqlState::OBJECT_IN_USE, "session user cannot be dropped"));
        }
        if role.id == FIRST {
            let message = format!("cannot drop role {name} because it is required by the database system");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
        }
        if role.is_superuser && !self.catalog.rights()?.is_superuser {
            return Err(refused("must be superuser to drop superusers"));
        }
        let Dependents { mut details, .. } = self.dependents(role.id)?;
        details.extend(self.defaults_naming(role.id)?);
        if details.is_empty() {
            return Ok(());
        }
        let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
        Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_detail(details.join("\n")))
    }

    /// Refuses a role that the session's role may not make others members of.
    fn check_admin(&self, role: &Role) -> Result<(), SqlError> {
        let rights = self.catalog.rights()?;
        if rights.is_superuser {
            return Ok(());
        }
        if role.is_superuser {
            return Err(refused("must be superuser to alter superusers"));
        }
        let roles = self.roles()?;
        let is_admin = |id: &RoleId| {
            let memberships = roles.get(*id).map(|own| &own.memberships);
            memberships.into_iter().flatten().any(|of| of.role == role.id && of.is_admin)
        };
        if self.may_create_roles()? || rights.acting.iter().any(is_admin) {
            return Ok(());
        }
        Err(refused(format!("must have admin option on role \"{}\"", role.name)))
    }

    /// Makes a role a member of another one.
    fn join_role(
        &self,
        member: &mut Role,
        of: &Role,
        is_admin: bool,
        definition: &mut Definition,
    ) -> Result<(), SqlError> {
        let is_in_cycle = member.id == of.id || self.roles()?.closure(of.id, false).contains(&member.id);
        if is_in_cycle {
            let message = format!("role \"{}\" is a member of role \"{}\"", of.name, member.name);
            return Err(SqlError::new(SqlState::INVALID_GRANT, message));
        }
        let by = self.catalog.path.user.current.0;
        match member.memberships.iter_mut().find(|own| own.role == of.id) {
            Some(own) if own.is_admin || !is_admin => {
                let message = format!("role \"{}\" is already a member of role \"{}\"", member.name, of.name);
                definition.notices.push(Notice::remark(SqlState::SUCCESS, message));
            }
            Some(own) => own.is_admin = true,
            None => member.memberships.push(Membership { role: of.id, is_admin, by }),
        }
        if of.id != FIRST {
            definition.needs.push((roles::key(&of.name), no_role(&of.name)));
        }
        Ok(())
    }

    /// Refuses GRANTED BY another role: who hands a privilege on is who runs the statement, or the owner for which it acts.
    pub(super) fn check_grantor(&self, grantor: Option<&RoleName>) -> Result<(), SqlError> {
        match grantor {
            Some(grantor) if self.role(grantor)?.id != self.catalog.path.user.current.0 => {
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "grantor must be current user"))
            }
            _ => Ok(()),
        }
    }

    fn grant_membership(&mut self, change: &MembershipChange) -> Result<Definition, SqlError> {
        self.check_grantor(change.grantor.as_ref())?;
        let mut definition = Definition::new("GRANT ROLE");
        for of in &change.roles {
            let of = self.role(of)?;
            self.check_admin(&of)?;
            for member in &change.members {
                let mut member = Self::changed_role(&self.role(member)?, &definition);
                self.join_role(&mut member, &of, change.is_admin, &mut definition)?;
                self.set_role(member, &mut definition);
            }
        }
        Ok(definition)
    }

    fn revoke_membership(&mut self, change: &MembershipChange) -> Result<Definition, SqlError> {
        self.check_grantor(change.grantor.as_ref())?;
        let mut definition = Definition::new("REVOKE ROLE");
        for of in &change.roles {
            let of = self.role(of)?;
            self.check_admin(&of)?;
            for member in &change.members {
                let mut member = Self::changed_role(&self.role(member)?, &definition);
                let found = member.memberships.iter().position(|own| own.role == of.id);
                match found {
                    None => {
                        let message = format!("role \"{}\" is not a member of role \"{}\"", member.name, of.name);
                        definition.notices.push(Notice::warning(SqlState::WARNING, message));
                        continue;
                    }
                    Some(at) if change.is_admin => member.memberships[at].is_admin = false,
                    Some(at) => drop(member.memberships.remove(at)),
                }
                self.set_role(member, &mut definition);
            }
        }
        Ok(definition)
    }
}

/// What is kept of a password, which may be that already.
fn verifier_of(password: &str) -> Result<String, SqlError> {
    if Verifier::parse(password).is_some() {
        return Ok(password.to_owned());
    }
    if password.len() == 35 && password.starts_with("md5") {
        return Err(SqlError::unsupported("a password that is hashed with MD5"));
    }
    let made = Verifier::new(password).map_err(|error| SqlError::internal(format!("no random bytes: {error}")))?;
    Ok(made.text())
}
