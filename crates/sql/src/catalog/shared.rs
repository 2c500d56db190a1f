//! Schemas and roles: objects of which a catalog has all, or none.

use std::sync::{Arc, Weak};

use super::{Catalog, Object};
use crate::error::SqlError;
use crate::names::Name;
use crate::roles::{Roles, SharedAccess};

impl Catalog {
    /// Whether it has these schemas, which are all.
    pub(crate) fn has_all_schemas(&self, all: &[Name]) -> bool {
        self.knows_schemas && all.iter().all(|name| self.objects.contains_key(name))
    }

    /// The same with all schemas that there are.
    #[must_use]
    pub(crate) fn with_schemas(&self, all: impl Iterator<Item = (Name, Object)>) -> Self {
        let mut next = Self { knows_schemas: true, ..self.next() };
        next.objects.extend(all);
        next
    }

    /// The same with all roles that there are.
    #[must_use]
    pub(crate) fn with_roles(&self, all: &[(Name, Object)]) -> Self {
        let mut next = Self { knows_roles: true, ..self.next() };
        next.objects.extend(all.iter().cloned());
        next
    }

    /// Whether it has all roles.
    pub(crate) const fn knows_roles(&self) -> bool {
        self.knows_roles
    }

    /// The roles, and what all objects share.
    pub(crate) fn roles(&self) -> Result<(Roles, Arc<SharedAccess>), SqlError> {
        let source = self.source.as_ref().and_then(Weak::upgrade).filter(|_| !self.knows_roles);
        let stored = source.map_or_else(|| Ok(Vec::new()), |source| source.roles())?;
        let stored = stored.iter().filter(|(name, _)| !self.objects.contains_key(name) && !self.gone.contains(name));
        let (mut roles, mut shared) = (Vec::new(), Arc::default());
        for object in stored.map(|(_, object)| object).chain(self.objects.values()) {
            match object {
                Object::Role(role) => roles.push(role.clone()),
                Object::Shared(access) => shared = access.clone(),
                _ => {}
            }
        }
        Ok((Roles::of(roles), shared))
    }

    /// Whether there is a schema of this name that SQL has made. One that another object has made for the same database may not be known yet.
    pub(crate) fn knows_schema(&self, name: &str) -> Result<bool, SqlError> {
        let is_known = self.objects.contains_key(&Name::of_schema(name));
        if self.knows_schemas { Ok(is_known) } else { self.has_schema(name) }
    }

    /// The same, where the database is asked for one that is not known.
    pub(crate) fn has_schema(&self, name: &str) -> Result<bool, SqlError> {
        let name = Name::of_schema(name);
        if self.objects.contains_key(&name) || self.gone.contains(&name) {
            return Ok(self.objects.contains_key(&name));
        }
        let source = self.source.as_ref().and_then(Weak::upgrade);
        source.map_or(Ok(false), |source| Ok(source.schemas()?.contains(&name)))
    }
}
