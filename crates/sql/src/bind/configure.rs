//! ALTER ROLE and ALTER DATABASE with settings.

use super::Binder;
use super::roles::refused;
use super::system::DATABASE;
use crate::error::{SqlError, SqlState};
use crate::roles::{self, Configured, RoleName, SharedAccess};
use crate::settings::{Kept, SettingChange};
use crate::statement::{Definition, NewObject};

fn check_database(name: &str) -> Result<(), SqlError> {
    if name == DATABASE {
        return Ok(());
    }
    Err(SqlError::new(SqlState::UNDEFINED_DATABASE, format!("database \"{name}\" does not exist")))
}

impl Binder<'_> {
    /// Changes the settings with which sessions begin.
    pub(super) fn configure(&mut self, of: &Configured, change: &SettingChange) -> Result<Definition, SqlError> {
        let current = self.session_settings();
        let is_superuser = self.catalog.rights()?.is_superuser;
        let apply = |kept: &mut Kept| change.apply(kept, current.as_ref(), is_superuser);
        match of {
            Configured::Role { role: Some(role), database } => self.configure_role(role, database.as_deref(), &apply),
            Configured::Role { role: None, database } => {
                if !is_superuser {
                    return Err(refused("must be superuser to alter settings globally"));
                }
                database.as_deref().map_or(Ok(()), check_database)?;
                let is_here = database.is_some();
                self.configure_shared("ALTER ROLE", &|it| {
                    apply(if is_here { &mut it.settings_here } else { &mut it.settings })
                })
            }
            Configured::Database(name) => {
                check_database(name)?;
                let (_, shared) = self.catalog.known_roles()?;
                if !self.catalog.rights()?.owns(&shared.database) {
                    return Err(refused(format!("must be owner of database {name}")));
                }
                self.configure_shared("ALTER DATABASE", &|it| apply(&mut it.settings_here))
            }
        }
    }

    fn configure_role(
        &mut self,
        name: &RoleName,
        database: Option<&str>,
        apply: &dyn Fn(&mut Kept) -> Result<(), SqlError>,
    ) -> Result<Definition, SqlError> {
        let mut role = self.role(name)?;
        let rights = self.catalog.rights()?;
        if role.is_superuser && !rights.is_superuser {
            return Err(refused("must be superuser to alter superuser roles or change superuser attribute"));
        }
        if rights.role != role.id && !self.may_create_roles()? {
            return Err(refused("permission denied"));
        }
        database.map_or(Ok(()), check_database)?;
        apply(if database.is_some() { &mut role.settings_here } else { &mut role.settings })?;
        let mut definition = Definition::new("ALTER ROLE");
        definition.set_object(&roles::key(&role.name), Some(NewObject::Role(role)));
        Ok(definition)
    }

    fn configure_shared(
        &mut self,
        tag: &'static str,
        apply: &dyn Fn(&mut SharedAccess) -> Result<(), SqlError>,
    ) -> Result<Definition, SqlError> {
        let (_, shared) = self.catalog.known_roles()?;
        let mut shared = SharedAccess::clone(shared);
        apply(&mut shared)?;
        let mut definition = Definition::new(tag);
        definition.set_object(&roles::shared_key(), Some(NewObject::Shared(shared)));
        Ok(definition)
    }
}
