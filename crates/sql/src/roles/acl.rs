//! Privileges: what they are called, what they are at first, and how grants change them.

use super::{Grant, PUBLIC_ROLE, RoleId, Roles};
use crate::bind::quoted;

/// A set of privileges: a bit for each, as PostgreSQL numbers them.
pub(crate) type Privileges = u16;

/// The privileges by their names and letters, from the lowest bit on.
const ALL: [(&str, char); 12] = [
    ("INSERT", 'a'),
    ("SELECT", 'r'),
    ("UPDATE", 'w'),
    ("DELETE", 'd'),
    ("TRUNCATE", 'D'),
    ("REFERENCES", 'x'),
    ("TRIGGER", 't'),
    ("EXECUTE", 'X'),
    ("USAGE", 'U'),
    ("CREATE", 'C'),
    ("TEMPORARY", 'T'),
    ("CONNECT", 'c'),
];

/// The bits of single privileges.
pub(crate) mod bits {
    use super::Privileges;

    pub(crate) const INSERT: Privileges = 1;
    pub(crate) const SELECT: Privileges = 1 << 1;
    pub(crate) const UPDATE: Privileges = 1 << 2;
    pub(crate) const DELETE: Privileges = 1 << 3;
    pub(crate) const TRUNCATE: Privileges = 1 << 4;
    pub(crate) const REFERENCES: Privileges = 1 << 5;
    pub(crate) const TRIGGER: Privileges = 1 << 6;
    pub(crate) const EXECUTE: Privileges = 1 << 7;
    pub(crate) const USAGE: Privileges = 1 << 8;
    pub(crate) const CREATE: Privileges = 1 << 9;
    pub(crate) const TEMPORARY: Privileges = 1 << 10;
    pub(crate) const CONNECT: Privileges = 1 << 11;
    /// Those that a column can have.
    pub(crate) const OF_COLUMNS: Privileges = INSERT | SELECT | UPDATE | REFERENCES;
}

/// The privilege of this name.
pub(crate) fn named(name: &str) -> Option<Privileges> {
    if name.eq_ignore_ascii_case("TEMP") {
        return Some(bits::TEMPORARY);
    }
    ALL.iter().position(|(own, _)| own.eq_ignore_ascii_case(name)).map(|at| 1 << at)
}

/// The names of privileges, in the order of their bits.
pub(crate) fn privileges_named(of: Privileges) -> impl Iterator<Item = (Privileges, &'static str)> {
    ALL.iter().enumerate().map(|(at, (name, _))| (1 << at, *name)).filter(move |(bit, _)| of & bit != 0)
}

/// The letters of privileges, with a star behind those that can be handed on.
pub(crate) fn letters(privileges: Privileges, options: Privileges) -> String {
    let mut shown = String::new();
    for (at, (_, letter)) in ALL.iter().enumerate().filter(|(at, _)| privileges & (1 << at) != 0) {
        shown.push(*letter);
        if options & (1 << at) != 0 {
            shown.push('*');
        }
    }
    shown
}

/// A grant as PostgreSQL shows an `aclitem`.
pub(crate) fn item(grant: &Grant, roles: &Roles) -> String {
    let to = if grant.to == PUBLIC_ROLE { String::new() } else { quoted(&roles.name(grant.to)) };
    format!("{to}={}/{}", letters(grant.privileges, grant.options), quoted(&roles.name(grant.by)))
}

/// What privileges are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Table,
    View,
    Column,
    Sequence,
    Procedure,
    Type,
    Schema,
    /// The schema `public`, which everybody may use at first.
    Public,
    Database,
}

impl Kind {
    /// All privileges that there are of an object.
    pub(crate) fn all(self) -> Privileges {
        match self {
            Self::Table | Self::View => bits::OF_COLUMNS | bits::DELETE | bits::TRUNCATE | bits::TRIGGER,
            Self::Column => bits::OF_COLUMNS,
            Self::Sequence => bits::USAGE | bits::SELECT | bits::UPDATE,
            Self::Procedure => bits::EXECUTE,
            Self::Type => bits::USAGE,
            Self::Schema | Self::Public => bits::USAGE | bits::CREATE,
            Self::Database => bits::CREATE | bits::TEMPORARY | bits::CONNECT,
        }
    }

    /// As messages call it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Column => "column",
            Self::Sequence => "sequence",
            Self::Procedure => "procedure",
            Self::Type => "type",
            Self::Schema | Self::Public => "schema",
            Self::Database => "database",
        }
    }

    /// The grants of an object of which nothing was granted or revoked.
    pub(crate) fn initial(self, owner: RoleId) -> Vec<Grant> {
        let of_all = match self {
            Self::Procedure => bits::EXECUTE,
            Self::Type | Self::Public => bits::USAGE,
            Self::Database => bits::TEMPORARY | bits::CONNECT,
            _ => 0,
        };
        let grant = |to, privileges| Grant { to, by: owner, privileges, options: 0 };
        let mut grants = Vec::new();
        if of_all != 0 {
            grants.push(grant(PUBLIC_ROLE, of_all));
        }
        if self != Self::Column {
            grants.push(grant(owner, self.all()));
        }
        grants
    }
}

/// What a role may hand on. Its owner may hand on everything.
pub(crate) fn options_of(grants: &[Grant], of: RoleId, owner: RoleId, kind: Kind) -> Privileges {
    if of == owner {
        return kind.all();
    }
    grants.iter().filter(|grant| grant.to == of).fold(0, |all, grant| all | grant.options)
}

/// Adds a grant.
pub(crate) fn add(grants: &mut Vec<Grant>, new: &Grant) {
    match grants.iter_mut().find(|grant| grant.to == new.to && grant.by == new.by) {
        Some(grant) => {
            grant.privileges |= new.privileges;
            grant.options |= new.options;
        }
        None => grants.push(new.clone()),
    }
}

/// That others have from a role what it is to lose.
#[derive(Debug)]
pub(crate) struct Dependent;

/// Takes privileges away, or the right to hand them on alone, with those that others have from the role in consequence.
///
/// # Errors
/// There are such, and they are not to go.
pub(crate) fn revoke(
    grants: &mut Vec<Grant>,
    taken: &Grant,
    (owner, kind): (RoleId, Kind),
    cascades: bool,
) -> Result<(), Dependent> {
    let Some(grant) = grants.iter_mut().find(|grant| grant.to == taken.to && grant.by == taken.by) else {
        return Ok(());
    };
    grant.privileges &= !taken.privileges;
    grant.options &= !taken.options;
    grants.retain(|grant| grant.privileges != 0);
    // What the role can hand on no longer, others do not have from it.
    let lost = taken.options & !options_of(grants, taken.to, owner, kind);
    let given: Vec<_> =
        grants.iter().filter(|grant| grant.by == taken.to && grant.privileges & lost != 0).cloned().collect();
    if !given.is_empty() && !cascades {
        return Err(Dependent);
    }
    for grant in given {
        let next = Grant { privileges: grant.privileges & lost, options: lost, ..grant };
        revoke(grants, &next, (owner, kind), true)?;
    }
    Ok(())
}

/// Puts a role in the place of another one.
pub(crate) fn replace(grants: &mut Vec<Grant>, from: RoleId, to: RoleId) {
    let mut all = Vec::new();
    for mut grant in std::mem::take(grants) {
        for role in [&mut grant.to, &mut grant.by] {
            if *role == from {
                *role = to;
            }
        }
        add(&mut all, &grant);
    }
    *grants = all;
}

#[cfg(test)]
mod tests {
    use super::super::FIRST;
    use super::*;

    const fn grant(to: RoleId, by: RoleId, privileges: Privileges, options: Privileges) -> Grant {
        Grant { to, by, privileges, options }
    }

    #[test]
    fn what_was_handed_on_goes_with_the_right_to_do_so() {
        let of = (1, Kind::Table);
        let chain = vec![grant(1, 1, 3, 0), grant(2, 1, 3, 3), grant(3, 2, 3, 3), grant(4, 3, 1, 0)];
        let mut grants = chain.clone();
        assert!(revoke(&mut grants, &grant(2, 1, 1, 1), of, false).is_err());
        let mut grants = chain.clone();
        revoke(&mut grants, &grant(2, 1, 1, 1), of, true).unwrap();
        assert_eq!(grants, [grant(1, 1, 3, 0), grant(2, 1, 2, 2), grant(3, 2, 2, 2)]);
        // The right stays where it comes from another role, too.
        let mut grants = chain;
        grants.push(grant(2, 5, 3, 3));
        revoke(&mut grants, &grant(2, 1, 3, 3), of, false).unwrap();
        assert_eq!(grants.len(), 4);
    }

    #[test]
    fn grants_in_a_cycle_end() {
        let mut grants = vec![grant(2, 1, 1, 1), grant(3, 2, 1, 1), grant(2, 3, 1, 1)];
        // 2 still has the right from 3, which has it from 2: PostgreSQL refuses such grants.
        revoke(&mut grants, &grant(2, 1, 1, 1), (1, Kind::Table), true).unwrap();
        assert!(grants.len() <= 2);
    }

    #[test]
    fn items_are_shown() {
        let roles = Roles::of(Vec::new());
        assert_eq!(
            item(&grant(PUBLIC_ROLE, FIRST, bits::SELECT | bits::INSERT, bits::SELECT), &roles),
            "=ar*/postgres"
        );
    }
}
