//! Roles and privileges: `docs/security.md` has the rules.
//!
//! A role is an object of the catalog, whose name has a mark in front. What roles may do with an object stands in that object's definition, so that it is
//! renamed, altered and dropped with it.

pub(crate) mod acl;
mod connection;
pub(crate) mod defaults;
pub(crate) mod parsing;
mod statements;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use acl::{Kind, Privileges, bits, item, named, privileges_named};
pub use connection::LogIn;
use defaults::DefaultPrivileges;
pub(crate) use statements::{
    Attribute, Configured, MembershipChange, PrivilegeChange, RoleCommand, RoleName, RoleStatement, Switch, Targets,
};

use crate::bind::ROLE;
use crate::catalog::Object;
use crate::names::Name;
use crate::settings::Kept;
use crate::statement::NewObject;

/// The number of a role, which no other role has ever had.
pub(crate) type RoleId = i64;

/// The role that every database has, and which may do everything.
pub(crate) const FIRST: RoleId = 10;

/// Stands for every role.
pub(crate) const PUBLIC_ROLE: RoleId = 0;

/// What keys of roles begin with. No identifier has it.
pub(crate) const MARK: char = '\u{4}';

/// What comes behind the mark, as a bound of all keys.
const BEHIND: char = '\u{5}';

/// The name of a role as an object.
pub(crate) fn key(role: &str) -> Name {
    Name::of_key(format!("{MARK}{role}"))
}

/// The name of what all objects share, as an object.
pub(crate) fn shared_key() -> Name {
    Name::of_key(MARK.to_string())
}

/// The keys of all roles lie from the first one up to the second one.
pub(crate) fn bounds() -> [String; 2] {
    [MARK.to_string(), BEHIND.to_string()]
}

/// A role.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "they are the attributes of PostgreSQL's roles")]
pub(crate) struct Role {
    pub(crate) id: RoleId,
    pub(crate) name: String,
    pub(crate) is_superuser: bool,
    pub(crate) inherits: bool,
    pub(crate) may_create_roles: bool,
    pub(crate) may_create_databases: bool,
    pub(crate) may_log_in: bool,
    /// The most sessions at once; −1: any number.
    pub(crate) connection_limit: i32,
    /// What is kept of the password, from which nobody learns it.
    pub(crate) verifier: Option<String>,
    /// Microseconds since 1970 up to which the password is valid.
    pub(crate) valid_until: Option<i64>,
    /// The roles that it is a member of.
    pub(crate) memberships: Vec<Membership>,
    /// Settings with which its sessions begin.
    #[serde(default, skip_serializing_if = "Kept::is_empty")]
    pub(crate) settings: Kept,
    /// The same of those in this database alone, which count more.
    #[serde(default, skip_serializing_if = "Kept::is_empty")]
    pub(crate) settings_here: Kept,
}

/// That a role is a member of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    pub(crate) role: RoleId,
    /// Whether it may make others members.
    pub(crate) is_admin: bool,
    pub(crate) by: RoleId,
}

impl Role {
    /// A role of this name that may do nothing.
    pub(crate) fn new(id: RoleId, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            is_superuser: false,
            inherits: true,
            may_create_roles: false,
            may_create_databases: false,
            may_log_in: false,
            connection_limit: -1,
            verifier: None,
            valid_until: None,
            memberships: Vec::new(),
            settings: Kept::default(),
            settings_here: Kept::default(),
        }
    }

    /// The role of a database in which none was made.
    pub(crate) fn first() -> Self {
        Self {
            is_superuser: true,
            may_create_roles: true,
            may_create_databases: true,
            may_log_in: true,
            ..Self::new(FIRST, ROLE)
        }
    }
}

/// All roles, in the order of their names.
#[derive(Clone, Debug)]
pub(crate) struct Roles(pub(crate) Vec<Arc<Role>>);

impl Roles {
    pub(crate) fn of(mut known: Vec<Arc<Role>>) -> Self {
        if !known.iter().any(|role| role.id == FIRST) {
            known.push(Arc::new(Role::first()));
        }
        known.sort_by(|one, other| one.name.cmp(&other.name));
        Self(known)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Role>> {
        self.0.iter().find(|role| role.name == name)
    }

    pub(crate) fn get(&self, id: RoleId) -> Option<&Arc<Role>> {
        self.0.iter().find(|role| role.id == id)
    }

    /// The name of a role, as lists of privileges have it.
    pub(crate) fn name(&self, id: RoleId) -> String {
        self.get(id).map_or_else(|| id.to_string(), |role| role.name.clone())
    }

    /// The object ids of the roles, in their order.
    pub(crate) fn oids(&self) -> Vec<i64> {
        let mut taken = BTreeSet::new();
        let of = |role: &Arc<Role>| {
            if role.id == FIRST {
                return FIRST;
            }
            // FNV-1a: the same in each process.
            let bytes = role.id.to_le_bytes().into_iter();
            let hash = bytes
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            let mut at = (hash % (1 << 30)) as i64;
            while !taken.insert(at) {
                at += 1;
            }
            16_384 + at
        };
        self.0.iter().map(of).collect()
    }

    /// The role itself, and those that it is a member of, directly or not: through roles that inherit alone where `by_inheritance`.
    pub(crate) fn closure(&self, role: RoleId, by_inheritance: bool) -> BTreeSet<RoleId> {
        let (mut found, mut waiting) = (BTreeSet::from([role]), vec![role]);
        while let Some(next) = waiting.pop().and_then(|id| self.get(id)) {
            if by_inheritance && !next.inherits {
                continue;
            }
            let new = next.memberships.iter().map(|membership| membership.role);
            waiting.extend(new.filter(|role| found.insert(*role)));
        }
        found
    }

    pub(crate) fn is_superuser(&self, role: RoleId) -> bool {
        role == FIRST || self.get(role).is_some_and(|role| role.is_superuser)
    }

    /// What a role acts with.
    pub(crate) fn rights(&self, role: RoleId) -> Rights {
        Rights { role, is_superuser: self.is_superuser(role), acting: self.closure(role, true) }
    }
}

/// What a role acts with.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    pub(crate) role: RoleId,
    pub(crate) is_superuser: bool,
    /// The roles whose privileges it has, itself among them.
    pub(crate) acting: BTreeSet<RoleId>,
}

impl Rights {
    /// Whether it may do with an object what the owner may.
    pub(crate) fn owns(&self, access: &Access) -> bool {
        self.is_superuser || self.acting.contains(&access.owner())
    }

    /// What it may do with an object of this kind. The owner has its privileges by grants, too, and can revoke them.
    pub(crate) fn held(&self, access: &Access, kind: Kind) -> Privileges {
        if self.is_superuser { kind.all() } else { access.of(kind).iter().fold(0, |all, it| all | self.granted(it)) }
    }

    /// What it may do with a column, beside what it may do with the table.
    pub(crate) fn held_of_column(&self, grants: &[Grant]) -> Privileges {
        grants.iter().fold(0, |all, it| all | self.granted(it))
    }

    fn granted(&self, grant: &Grant) -> Privileges {
        let is_own = grant.to == PUBLIC_ROLE || self.acting.contains(&grant.to);
        if is_own { grant.privileges } else { 0 }
    }
}

/// That a role has privileges from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) to: RoleId,
    pub(crate) by: RoleId,
    pub(crate) privileges: Privileges,
    /// Which of them it may hand on.
    #[serde(default)]
    pub(crate) options: Privileges,
}

/// Whose an object is, and who may do what with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<RoleId>,
    /// `None`: nothing was granted or revoked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grants: Option<Vec<Grant>>,
}

impl Access {
    pub(crate) fn owner(&self) -> RoleId {
        self.owner.unwrap_or(FIRST)
    }

    /// Whether it says nothing: the object is the first role's, and nothing was granted.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn owned_by(role: RoleId) -> Self {
        Self { owner: Some(role).filter(|role| *role != FIRST), grants: None }
    }

    /// The grants as they were changed, if they were.
    pub(crate) fn changed(&self) -> Option<&[Grant]> {
        self.grants.as_deref()
    }

    /// The grants of an object of this kind.
    pub(crate) fn of(&self, kind: Kind) -> Vec<Grant> {
        self.grants.clone().unwrap_or_else(|| kind.initial(self.owner()))
    }

    pub(crate) fn set(&mut self, grants: Vec<Grant>) {
        self.grants = Some(grants);
    }

    /// Gives the object to another role, with what the old owner has and has granted.
    pub(crate) fn give(&mut self, to: RoleId) {
        let from = self.owner();
        if let Some(grants) = &mut self.grants {
            acl::replace(grants, from, to);
        }
        self.owner = Some(to).filter(|role| *role != FIRST);
    }

    /// Whether it names a role.
    pub(crate) fn names(&self, role: RoleId) -> bool {
        self.owner() == role || self.grants.iter().flatten().any(|grant| grant.to == role || grant.by == role)
    }
}

/// What all objects share: who may do what with the database, and with the schema `public`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SharedAccess {
    #[serde(default)]
    pub(crate) database: Access,
    #[serde(default)]
    pub(crate) public: Access,
    /// Default privileges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) defaults: Vec<DefaultPrivileges>,
    /// Settings with which the sessions of all roles begin, and those in this database, which count more.
    #[serde(default, skip_serializing_if = "Kept::is_empty")]
    pub(crate) settings: Kept,
    #[serde(default, skip_serializing_if = "Kept::is_empty")]
    pub(crate) settings_here: Kept,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) public_comment: Option<String>,
}

/// Who a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Who has logged in.
    pub(crate) authenticated: RoleId,
    /// What `SET SESSION AUTHORIZATION` has made of it.
    pub(crate) session: (RoleId, String),
    /// What `SET ROLE` has made of that, whose privileges are used.
    pub(crate) current: (RoleId, String),
}

impl Default for User {
    fn default() -> Self {
        Self::of(FIRST, ROLE)
    }
}

impl User {
    pub(crate) fn of(id: RoleId, name: &str) -> Self {
        Self { authenticated: id, session: (id, name.to_owned()), current: (id, name.to_owned()) }
    }
}

impl Object {
    /// Who may do what with it. `None`: it is a role, or what all share.
    pub(crate) fn access(&self) -> Option<&Access> {
        Some(match self {
            Self::Table(table) => &table.description.access,
            Self::Sequence(sequence) => &sequence.definition.access,
            Self::View(view) => &view.access,
            Self::Procedure(procedure) => &procedure.access,
            Self::Enum(of) => &of.access,
            Self::Schema(schema) => &schema.access,
            Self::Role(_) | Self::Shared(_) => return None,
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Table(_) | Self::Role(_) | Self::Shared(_) => Kind::Table,
            Self::View(_) => Kind::View,
            Self::Sequence(_) => Kind::Sequence,
            Self::Procedure(_) => Kind::Procedure,
            Self::Enum(_) => Kind::Type,
            Self::Schema(_) => Kind::Schema,
        }
    }

    /// The name that messages have.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Table(table) => table.name.plain().to_owned(),
            Self::View(view) => view.name.plain().to_owned(),
            Self::Sequence(sequence) => sequence.name.plain().to_owned(),
            Self::Procedure(procedure) => procedure.name.plain().to_owned(),
            Self::Enum(of) => of.name.plain().to_owned(),
            Self::Schema(schema) => schema.name.clone(),
            Self::Role(role) => role.name.clone(),
            Self::Shared(_) => crate::bind::DATABASE.to_owned(),
        }
    }

    /// The names of the columns that can be granted, with their positions.
    pub(crate) fn columns(&self) -> Vec<(usize, String)> {
        match self {
            Self::Table(table) => table.visible().map(|(at, column)| (at, column.name.clone())).collect(),
            Self::View(view) => view.columns.iter().cloned().enumerate().collect(),
            _ => Vec::new(),
        }
    }

    /// What was granted of a column.
    pub(crate) fn column_grants(&self, column: usize) -> &[Grant] {
        match self {
            Self::Table(table) => table.columns.get(column).map_or(&[], |column| &column.grants),
            Self::View(view) => {
                let of = view.columns.get(column).and_then(|name| view.column_grants.get(name));
                of.map_or(&[], |grants| grants)
            }
            _ => &[],
        }
    }

    /// The same object, to be changed.
    pub(crate) fn as_new(&self) -> NewObject {
        match self {
            Self::Table(table) => NewObject::Table(table.clone(), table.description.clone()),
            Self::Sequence(sequence) => NewObject::Sequence(sequence.definition.clone(), Some(sequence.clone())),
            Self::View(view) => NewObject::View((**view).clone()),
            Self::Procedure(procedure) => NewObject::Procedure((**procedure).clone()),
            Self::Enum(of) => NewObject::Enum((**of).clone()),
            Self::Schema(schema) => NewObject::Schema((**schema).clone()),
            Self::Role(role) => NewObject::Role((**role).clone()),
            Self::Shared(shared) => NewObject::Shared((**shared).clone()),
        }
    }
}

impl NewObject {
    pub(crate) fn access_mut(&mut self) -> Option<&mut Access> {
        Some(match self {
            Self::Table(_, description) => &mut description.access,
            Self::Sequence(definition, _) => &mut definition.access,
            Self::View(view) => &mut view.access,
            Self::Procedure(procedure) => &mut procedure.access,
            Self::Enum(of) => &mut of.access,
            Self::Schema(schema) => &mut schema.access,
            Self::Role(_) | Self::Shared(_) => return None,
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Table(..) | Self::Role(_) | Self::Shared(_) => Kind::Table,
            Self::View(_) => Kind::View,
            Self::Sequence(..) => Kind::Sequence,
            Self::Procedure(_) => Kind::Procedure,
            Self::Enum(_) => Kind::Type,
            Self::Schema(_) => Kind::Schema,
        }
    }

    /// What was granted of a column.
    pub(crate) fn column_grants_mut(&mut self, column: usize) -> Option<&mut Vec<Grant>> {
        match self {
            Self::Table(_, description) => description.columns.get_mut(column).map(|column| &mut column.grants),
            Self::View(view) => {
                let name = view.columns.get(column)?.clone();
                Some(view.column_grants.entry(name).or_default())
            }
            _ => None,
        }
    }
}
