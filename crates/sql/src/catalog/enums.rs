//! Enums: a catalog has all of them, or none, and its tables have their types as they are now.

use std::sync::{Arc, Weak};

use super::{Catalog, Object};
use crate::enums::{self, Enums};
use crate::error::SqlError;
use crate::names::Name;

impl Catalog {
    /// The types of all enums.
    pub(crate) fn enums(&self) -> Result<Arc<Enums>, SqlError> {
        let source = self.source.as_ref().and_then(Weak::upgrade).filter(|_| !self.knows_enums);
        let Some(source) = source else { return Ok(self.enums.clone()) };
        let stored = source.enums()?;
        // What is known here may have changed.
        let is_other = |name: &Name| !self.objects.contains_key(name) && !self.gone.contains(name);
        let mut all = enums::among(stored.iter().filter(|(name, _)| is_other(name)).map(|(_, object)| object));
        all.extend(self.enums.iter().map(|(number, of)| (*number, *of)));
        Ok(all.into())
    }

    /// Whether it has all enums.
    pub(crate) const fn knows_enums(&self) -> bool {
        self.knows_enums
    }

    /// The same with all enums that there are.
    #[must_use]
    pub(crate) fn with_enums(&self, all: &[(Name, Object)]) -> Self {
        let mut next = Self { knows_enums: true, ..self.next() };
        next.objects.extend(all.iter().cloned());
        next.settle(all.iter().map(|(name, _)| name));
        next
    }

    /// Gives objects of these names the types of their enums as they are now, and all objects where an enum among the names is another one now.
    pub(super) fn settle<'n>(&mut self, names: impl Iterator<Item = &'n Name> + Clone) {
        if names.clone().any(|name| name.key().starts_with(enums::MARK)) {
            let now = enums::among(self.objects.values());
            let differs = now.iter().any(|(number, of)| self.enums.get(number) != Some(of));
            self.enums = Arc::new(now);
            if differs {
                let is_old =
                    |(name, object): (&Name, &Object)| Some((name.clone(), enums::resolve(object, &self.enums)?));
                let resolved: Vec<_> = self.objects.iter().filter_map(is_old).collect();
                self.objects.extend(resolved);
                return;
            }
        }
        if self.enums.is_empty() {
            return;
        }
        for name in names {
            if let Some(resolved) = self.objects.get(name).and_then(|object| enums::resolve(object, &self.enums)) {
                self.objects.insert(name.clone(), resolved);
            }
        }
    }
}
