//! Who a connection is: `SET ROLE`, `SET SESSION AUTHORIZATION`, and logging in.

use std::sync::Arc;

use polychron_engine::Protocol;

use super::{FIRST, Kind, Role, RoleId, Switch, User, bits};
use crate::bind::no_role;
use crate::catalog::{ForeignKey, Table};
use crate::connection::Connection;
use crate::context::now;
use crate::database::SqlDatabase;
use crate::error::{SqlError, SqlState};
use crate::names::{Name, Path};
use crate::outcome::{Notice, Outcome};
use crate::statement::Source;

/// What a server has to know of a role that wants to connect.
#[derive(Clone, Debug)]
pub struct LogIn {
    role: Role,
    may_connect: bool,
}

impl LogIn {
    /// What is kept of its password, as [`crate::Verifier`] writes it. `None`: it has no password, or one that is not valid any longer.
    pub fn verifier(&self) -> Option<&str> {
        let is_valid = self.role.valid_until.is_none_or(|until| now() < until);
        self.role.verifier.as_deref().filter(|_| is_valid)
    }

    /// Whether a password was set at all.
    pub fn has_password(&self) -> bool {
        self.role.verifier.is_some()
    }

    /// Whether it may connect.
    pub fn may_log_in(&self) -> bool {
        self.role.may_log_in
    }

    /// Whether it has the privilege CONNECT of the database.
    pub fn may_connect(&self) -> bool {
        self.may_connect
    }

    /// Its number, which no other role has ever had, whatever it is called.
    pub fn number(&self) -> i64 {
        self.role.id
    }

    /// The most sessions that it may have at once. Superusers may have any number.
    pub fn connection_limit(&self) -> Option<usize> {
        usize::try_from(self.role.connection_limit).ok().filter(|_| !self.role.is_superuser)
    }
}

impl<P: Protocol> SqlDatabase<P> {
    /// What a server has to know of a role. `None`: there is no such role.
    ///
    /// # Errors
    /// The definitions cannot be read.
    pub fn log_in(&self, role: &str) -> Result<Option<LogIn>, SqlError> {
        let (roles, shared) = self.catalog().roles()?;
        Ok(roles.named(role).map(|role| {
            let held = roles.rights(role.id).held(&shared.database, Kind::Database);
            LogIn { role: (**role).clone(), may_connect: held & bits::CONNECT != 0 }
        }))
    }
}

impl<P: Protocol> Connection<P> {
    /// Makes this connection one of a role, which has its privileges and no others. Without it, a connection is the role `postgres`, which may do everything.
    ///
    /// # Errors
    /// There is no such role, or a transaction is open.
    pub fn act_as(&mut self, role: &str) -> Result<(), SqlError> {
        if self.session.is_open() {
            let message = "the role of a connection cannot be changed within a transaction";
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
        }
        let (roles, shared) = self.catalog().roles()?;
        let role = roles.named(role).ok_or_else(|| no_role(role))?;
        self.set_user(false, &User::of(role.id, &role.name));
        // Those of one role count more than those of all, and those in this database more than others.
        let kept = [&shared.settings, &shared.settings_here, &role.settings, &role.settings_here];
        if kept.iter().any(|kept| !kept.is_empty()) {
            let mut settings = self.settings();
            kept.iter().for_each(|kept| kept.begin(&mut settings));
            self.change_settings(false, |own| *own = settings.clone());
        }
        self.keep_as_initial();
        Ok(())
    }

    /// The name of the role whose privileges count.
    pub fn role(&self) -> &str {
        &self.path.user.current.1
    }

    /// Whether the role whose privileges count may do everything.
    pub(crate) fn is_superuser(&self) -> bool {
        let own = self.path.user.current.0;
        own == FIRST || self.catalog().roles().is_ok_and(|(roles, _)| roles.is_superuser(own))
    }

    /// The error without the values of rows in its detail, where the role may not read the tables that they are from.
    pub(crate) fn shown_to_role(&self, error: SqlError) -> SqlError {
        let tells_values = [
            SqlState::NOT_NULL_VIOLATION,
            SqlState::FOREIGN_KEY_VIOLATION,
            SqlState::UNIQUE_VIOLATION,
            SqlState::CHECK_VIOLATION,
        ];
        let is_shown = self.path.user.current.0 == FIRST
            || error.detail().is_none()
            || !tells_values.contains(&error.state())
            || self.reads_all_of(&error).unwrap_or(false);
        if is_shown { error } else { error.without_detail() }
    }

    /// Whether the role may read the table that an error is about, and what its foreign key refers to.
    fn reads_all_of(&self, error: &SqlError) -> Result<bool, SqlError> {
        let catalog = self.catalog();
        let rights = catalog.roles()?.0.rights(self.path.user.current.0);
        let about = error.object();
        let (Some(schema), Some(table)) = (&about.schema, &about.table) else { return Ok(rights.is_superuser) };
        let may_read = |table: &Table| rights.held(&table.access, Kind::Table) & bits::SELECT != 0;
        let Some(table) = catalog.find(&Name::new(schema, table))? else { return Ok(rights.is_superuser) };
        let of_constraint = |key: &&ForeignKey| about.constraint.as_ref().is_none_or(|name| *name == key.name);
        let mut parents = table.foreign.iter().filter(of_constraint).map(|key| catalog.find(&key.parent));
        Ok(may_read(&table) && parents.all(|parent| parent.is_ok_and(|it| it.is_none_or(|it| may_read(&it)))))
    }

    fn set_user(&mut self, is_local: bool, user: &User) {
        let path = Arc::new(Path { user: Arc::new(user.clone()), ..Path::clone(&self.path) });
        self.change_settings(is_local, |settings| settings.path = path.clone());
    }

    /// `SET ROLE`, `SET SESSION AUTHORIZATION`, and RESET of both.
    pub(crate) fn switch(&mut self, switch: &Switch) -> Result<Outcome, SqlError> {
        let mut outcome = Outcome::tagged(switch.tag);
        if switch.is_local && !self.is_in_block() {
            let message = "SET LOCAL can only be used in transaction blocks";
            outcome.notices.push(Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message));
            return Ok(outcome);
        }
        let user = self.switched(switch).map_err(|error| self.fail(error))?;
        self.set_user(switch.is_local, &user);
        Ok(outcome)
    }

    fn switched(&self, switch: &Switch) -> Result<User, SqlError> {
        let (roles, _) = self.catalog().roles()?;
        let user = &*self.path.user;
        let id_of = |id: RoleId| roles.get(id).map(|role| (role.id, role.name.clone()));
        let gone = || SqlError::new(SqlState::UNDEFINED_OBJECT, "the role of the session was dropped");
        let refused = |message: String| SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
        if switch.is_of_session {
            let to = match &switch.to {
                None => id_of(user.authenticated).ok_or_else(gone)?,
                Some(name) => {
                    let role = roles.named(name).ok_or_else(|| no_role(name))?;
                    if role.id != user.authenticated && !roles.is_superuser(user.authenticated) {
                        return Err(refused("permission denied to set session authorization".to_owned()));
                    }
                    (role.id, role.name.clone())
                }
            };
            return Ok(User { session: to.clone(), current: to, ..user.clone() });
        }
        let Some(name) = &switch.to else {
            return Ok(User { current: id_of(user.session.0).ok_or_else(gone)?, ..user.clone() });
        };
        let role = roles.named(name).ok_or_else(|| no_role(name))?;
        let own = user.session.0;
        if !roles.is_superuser(own) && !roles.closure(own, false).contains(&role.id) {
            return Err(refused(format!("permission denied to set role \"{name}\"")));
        }
        Ok(User { current: (role.id, role.name.clone()), ..user.clone() })
    }

    /// A statement about roles or privileges.
    pub(crate) fn run_role_command(&mut self, command: &super::RoleCommand) -> Result<Outcome, SqlError> {
        match command {
            super::RoleCommand::Switch(switch) => self.switch(switch),
            super::RoleCommand::System(change) => {
                let altered = self.alter_system(change);
                altered.map(|()| Outcome::tagged("ALTER SYSTEM")).map_err(|error| self.fail(error))
            }
            super::RoleCommand::Define(statement) => self.define_own(Source::Roles(statement)),
        }
    }
}
