//! Roles and privileges in the relations of the system, and the functions that ask for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::live::DATABASE_ID;
use super::objects::Objects;
use super::{DATABASE, Names, Row, STANDARD_SCHEMA, SYSTEM_SCHEMA, flag, int, system_relations, table_id, text, texts};
use crate::bind::literals::constant;
use crate::bind::naming::shown_schema;
use crate::bind::needs::denied;
use crate::bind::{Binder, Written, no_role};
use crate::casts::Place;
use crate::catalog::{Object, Table};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions;
use crate::names::{Name, PUBLIC};
use crate::roles::defaults::DefaultPrivileges;
use crate::roles::{
    Access, FIRST, Grant, Kind, PUBLIC_ROLE, Privileges, Rights, Role, RoleId, Roles, SharedAccess, bits, item, named,
    privileges_named,
};
use crate::settings::Kept;
use crate::types::Type;

/// The roles with their object ids, and what the relations of the system show of them.
pub(super) struct KnownRights {
    roles: Roles,
    oids: Vec<i64>,
    shared: Arc<SharedAccess>,
    /// The roles whose privileges the session's role has.
    acting: BTreeSet<RoleId>,
    role: RoleId,
    is_superuser: bool,
}

/// An object as lists of privileges have it.
struct Listed {
    id: i64,
    object: Object,
}

/// What asks for privileges, and how.
struct Question {
    /// What the object is: `table`, `schema` and so on.
    of: &'static str,
    role: RoleId,
    /// Any of them, each with the right to hand it on where that is asked for.
    privileges: Vec<(Privileges, bool)>,
}

impl Binder<'_> {
    pub(super) fn known_rights(&self) -> Result<KnownRights, SqlError> {
        let (roles, shared) = self.catalog.known_roles()?.clone();
        let rights = self.catalog.rights()?;
        let Rights { role, is_superuser, acting } = rights;
        Ok(KnownRights { oids: roles.oids(), roles, shared, acting, role, is_superuser })
    }

    /// Refuses relations that have what is kept of passwords.
    pub(super) fn check_secret(&self, relation: &str) -> Result<(), SqlError> {
        let kind = match relation {
            "pg_authid" => Kind::Table,
            "pg_shadow" => Kind::View,
            _ => return Ok(()),
        };
        if self.catalog.rights()?.is_superuser { Ok(()) } else { Err(denied(kind, relation)) }
    }

    /// `has_table_privilege` and its like, and `pg_has_role`.
    pub(in crate::bind) fn call_of_rights(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let of = match name {
            "has_table_privilege" => "table",
            "has_column_privilege" => "column",
            "has_any_column_privilege" => "any column",
            "has_sequence_privilege" => "sequence",
            "has_schema_privilege" => "schema",
            "has_database_privilege" => "database",
            "has_function_privilege" => "function",
            "pg_has_role" => "role",
            // What is of the other kinds belongs to the system, and everybody may use it.
            _ => return Ok(constant(Datum::Bool(true), Type::Bool)),
        };
        let own = self.catalog.path.user.current.0;
        let count = arguments.len();
        let with_role = if of == "column" { 4 } else { 3 };
        if own == FIRST && count < with_role && of != "role" {
            return Ok(constant(Datum::Bool(true), Type::Bool));
        }
        let types: Vec<_> = arguments.iter().map(Typed::base).collect();
        if count != with_role && count + 1 != with_role {
            return Err(functions::no_function(name, &types, functions::Unresolved::None));
        }
        let mut arguments = arguments.into_iter();
        let role = match arguments.len() == with_role {
            false => own,
            true => self.asked_role(name, arguments.next())?,
        };
        let object = arguments.next();
        let column = if of == "column" { arguments.next() } else { None };
        let privileges = self.asked_privileges(name, arguments.next())?;
        let question = Question { of, role, privileges };
        let object = object.ok_or_else(|| functions::no_function(name, &types, functions::Unresolved::None))?;
        if of == "role" {
            let asked = self.asked_role(name, Some(object))?;
            let roles = &self.catalog.known_roles()?.0;
            let has = roles.is_superuser(role) || roles.closure(role, false).contains(&asked);
            return Ok(constant(Datum::Bool(has), Type::Bool));
        }
        self.answered(name, &question, object, column)
    }

    /// A constant argument as a text, or a number.
    fn constant_of(name: &str, argument: Option<&Typed>) -> Result<OwnedDatum, SqlError> {
        match argument.map(|argument| &argument.expr) {
            Some(Expr::Constant(value)) => Ok(value.clone()),
            _ => Err(SqlError::unsupported(format!("{name} of a role or a privilege that is not constant"))),
        }
    }

    fn asked_role(&self, name: &str, argument: Option<Typed>) -> Result<RoleId, SqlError> {
        let roles = &self.catalog.known_roles()?.0;
        match Self::constant_of(name, argument.as_ref())?.get() {
            Datum::Text("public") => Ok(PUBLIC_ROLE),
            Datum::Text(name) => roles.named(name).map(|role| role.id).ok_or_else(|| no_role(name)),
            Datum::Int(oid) => {
                let found = roles.0.iter().zip(roles.oids()).find(|(_, own)| *own == oid);
                Ok(found.map_or(-1, |(role, _)| role.id))
            }
            _ => Ok(-1),
        }
    }

    fn asked_privileges(&self, name: &str, argument: Option<Typed>) -> Result<Vec<(Privileges, bool)>, SqlError> {
        let value = Self::constant_of(name, argument.as_ref())?;
        let Datum::Text(text) = value.get() else { return Ok(Vec::new()) };
        let parsed = text.split(',').map(|part| {
            let words = part.split_whitespace().collect::<Vec<_>>().join(" ").to_uppercase();
            let wrong = || {
                let message = format!("unrecognized privilege type: \"{}\"", part.trim());
                SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
            };
            if name == "pg_has_role" {
                let is_known = ["USAGE", "MEMBER"].iter().any(|known| words.starts_with(known));
                return if is_known { Ok((0, false)) } else { Err(wrong()) };
            }
            let plain = words.strip_suffix(" WITH GRANT OPTION");
            Ok((named(plain.unwrap_or(&words)).ok_or_else(wrong)?, plain.is_some()))
        });
        parsed.collect()
    }

    /// Looks the answer up by the object's id, or decides it where the object is a constant.
    fn answered(
        &mut self,
        name: &str,
        question: &Question,
        object: Typed,
        column: Option<Typed>,
    ) -> Result<Typed, SqlError> {
        let is_name = matches!(object.base(), Type::Unknown | Type::Text);
        let rights = self.known_rights()?;
        let roles = &rights.roles;
        let yes = |has: bool| Ok(constant(Datum::Bool(has), Type::Bool));
        if question.of == "database" {
            return yes(has(roles, question, &rights.shared.database, Kind::Database));
        }
        let objects = Objects::of(&self.catalog)?;
        if question.of == "schema" {
            let id = if is_name { self.cast(object, Type::Regnamespace.into(), Place::Explicit)? } else { object };
            let mut by_id: HashMap<i64, bool> = HashMap::from([(SYSTEM_SCHEMA, true), (STANDARD_SCHEMA, true)]);
            by_id.extend(
                self.accesses_of_schemas(&objects)?
                    .into_iter()
                    .map(|(id, access, kind)| (id, has(roles, question, &access, kind))),
            );
            return self.looked_up(id, by_id);
        }
        if question.of == "function" && is_name {
            let value = Self::constant_of(name, Some(&object))?;
            let Datum::Text(text) = value.get() else { return yes(false) };
            let written = Written::of_text(text.split('(').next().unwrap_or_default())?;
            let missing = || SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function \"{text}\" does not exist"));
            let procedure = self.catalog.written_procedure(&written)?.ok_or_else(missing)?;
            return yes(has(roles, question, &procedure.access, Kind::Procedure));
        }
        let id = if is_name { self.cast(object, Type::Regclass.into(), Place::Explicit)? } else { object };
        let by_column = match &column {
            None => None,
            Some(column) => Some(Self::constant_of(name, Some(column))?),
        };
        let of_system = system_relations().map(|(id, _)| {
            (id, question.privileges.iter().any(|(privilege, with_option)| *privilege == bits::SELECT && !with_option))
        });
        let mut by_id: HashMap<i64, bool> = of_system.collect();
        for Listed { id, object } in listed(&objects) {
            let Some(access) = object.access() else { continue };
            let mut found = has(roles, question, access, object.kind());
            if matches!(question.of, "column" | "any column") && !found {
                let numbered = (1..).zip(object.columns());
                let mut meant = numbered.filter(|(number, (_, name))| match by_column.as_ref().map(OwnedDatum::get) {
                    Some(Datum::Text(text)) => text == name,
                    Some(Datum::Int(wanted)) => *number == wanted,
                    _ => true,
                });
                found = meant.any(|(_, (at, _))| has_of(roles, question, object.column_grants(at)));
            }
            by_id.insert(id, found);
        }
        if question.of == "function" {
            by_id = objects
                .procedures
                .iter()
                .map(|(id, it)| (*id, has(roles, question, &it.access, Kind::Procedure)))
                .collect();
        }
        self.looked_up(id, by_id)
    }

    fn looked_up(&mut self, id: Typed, by_id: HashMap<i64, bool>) -> Result<Typed, SqlError> {
        let id = self.cast(id, Type::Oid.into(), Place::Explicit)?;
        let in_words = |has: bool| if has { "t" } else { "f" }.to_owned();
        let by_id = by_id.into_iter().map(|(id, has)| (id, in_words(has))).collect();
        let names = Names { what: "privileges", by_id, by_text: HashMap::new(), shows_others: false, deed: None };
        let found = Typed::new(Expr::Lookup { names: Arc::new(names), of: Box::new(id.expr) }, Type::Text);
        self.cast(found, Type::Bool.into(), Place::Explicit)
    }

    fn accesses_of_schemas(&self, objects: &Objects) -> Result<Vec<(i64, Access, Kind)>, SqlError> {
        let own = objects
            .schemas
            .iter()
            .map(|(id, name)| Ok(self.catalog.access_of_schema(name)?.map(|(access, kind)| (*id, access, kind))));
        own.filter_map(Result::transpose).collect()
    }
}

/// Whether a role has a privilege that is asked for.
fn has(roles: &Roles, question: &Question, access: &Access, kind: Kind) -> bool {
    if question.role == PUBLIC_ROLE {
        return has_of(roles, question, &access.of(kind));
    }
    roles.is_superuser(question.role)
        || roles.closure(question.role, true).contains(&access.owner()) && question.privileges.iter().any(|it| it.1)
        || has_of(roles, question, &access.of(kind))
}

fn has_of(roles: &Roles, question: &Question, grants: &[Grant]) -> bool {
    let acting = roles.closure(question.role, true);
    let own = grants.iter().filter(|grant| grant.to == PUBLIC_ROLE || acting.contains(&grant.to));
    let (held, options) = own.fold((0, 0), |(held, options), it| (held | it.privileges, options | it.options));
    question.privileges.iter().any(|(privilege, with_option)| {
        let from = if *with_option { options } else { held };
        from & privilege != 0
    })
}

/// Tables, views and sequences with their ids.
fn listed(objects: &Objects) -> Vec<Listed> {
    let tables = objects.tables.iter().map(|it| Listed { id: table_id(it), object: Object::Table(it.clone()) });
    let views = objects.views.iter().map(|(id, it)| Listed { id: *id, object: Object::View(it.clone()) });
    let sequences = objects.sequences.iter().map(|(id, it)| Listed { id: *id, object: Object::Sequence(it.clone()) });
    tables.chain(views).chain(sequences).collect()
}

fn name_of(object: &Object) -> Name {
    match object {
        Object::Table(table) => table.name.clone(),
        Object::View(view) => view.name.clone(),
        Object::Sequence(sequence) => sequence.name.clone(),
        _ => Name::default(),
    }
}

fn number_of(row: &Row, column: &str) -> i64 {
    let found = row.iter().rev().find(|(name, _)| *name == column);
    match found.map(|(_, value)| value.get()) {
        Some(Datum::Int(number)) => number,
        _ => 0,
    }
}

/// Settings as catalogs have them.
fn config(kept: &Kept) -> OwnedDatum {
    let items = kept.items();
    if items.is_empty() { OwnedDatum::NULL } else { texts(items.iter().map(String::as_str)) }
}

pub(super) fn text_of(row: &Row, column: &str) -> String {
    let found = row.iter().rev().find(|(name, _)| *name == column);
    match found.map(|(_, value)| value.get()) {
        Some(Datum::Text(text)) => text.to_owned(),
        _ => String::new(),
    }
}

impl KnownRights {
    /// The names of the roles by their object ids.
    pub(super) fn names(&self) -> impl Iterator<Item = (i64, String)> {
        self.oids.iter().copied().zip(self.roles.0.iter().map(|role| role.name.clone()))
    }

    fn oid(&self, role: RoleId) -> OwnedDatum {
        int(self.roles.0.iter().zip(&self.oids).find(|(own, _)| own.id == role).map_or(0, |(_, oid)| *oid))
    }

    fn items(&self, grants: Option<&[Grant]>) -> OwnedDatum {
        let Some(grants) = grants else { return OwnedDatum::NULL };
        let items: Vec<_> = grants.iter().map(|grant| item(grant, &self.roles)).collect();
        texts(items.iter().map(String::as_str))
    }

    pub(super) const fn is_superuser(&self) -> bool {
        self.is_superuser
    }

    pub(super) fn access_of_public(&self) -> &Access {
        &self.shared.public
    }

    /// What the session's role acts with.
    pub(super) fn rights(&self) -> Rights {
        Rights { role: self.role, is_superuser: self.is_superuser, acting: self.acting.clone() }
    }

    /// The rows of relations that are about roles and privileges alone.
    pub(super) fn rows(&self, name: &str, objects: &Objects) -> Option<Vec<Row>> {
        let roles = self.roles.0.iter().zip(&self.oids);
        let until =
            |role: &Role| role.valid_until.map_or(OwnedDatum::NULL, |it| OwnedDatum::Plain(Datum::Timestamp(it)));
        Some(match name {
            "pg_roles" | "pg_authid" => {
                let row = |(role, oid): (&Arc<Role>, &i64)| {
                    let password = match (name, &role.verifier) {
                        ("pg_roles", _) => text("********"),
                        (_, Some(verifier)) => text(verifier.as_str()),
                        _ => OwnedDatum::NULL,
                    };
                    vec![
                        ("oid", int(*oid)),
                        ("rolname", text(role.name.as_str())),
                        ("rolsuper", flag(role.is_superuser)),
                        ("rolinherit", flag(role.inherits)),
                        ("rolcreaterole", flag(role.may_create_roles)),
                        ("rolcreatedb", flag(role.may_create_databases)),
                        ("rolcanlogin", flag(role.may_log_in)),
                        ("rolreplication", flag(role.id == FIRST)),
                        ("rolbypassrls", flag(role.id == FIRST)),
                        ("rolconnlimit", int(role.connection_limit.into())),
                        ("rolpassword", password),
                        ("rolvaliduntil", until(role)),
                        ("rolconfig", config(&role.settings)),
                    ]
                };
                roles.map(row).collect()
            }
            "pg_user" | "pg_shadow" => {
                let row = |(role, oid): (&Arc<Role>, &i64)| {
                    let password = match (name, &role.verifier) {
                        ("pg_user", _) => text("********"),
                        (_, Some(verifier)) => text(verifier.as_str()),
                        _ => OwnedDatum::NULL,
                    };
                    vec![
                        ("usename", text(role.name.as_str())),
                        ("usesysid", int(*oid)),
                        ("usecreatedb", flag(role.may_create_databases)),
                        ("usesuper", flag(role.is_superuser)),
                        ("passwd", password),
                        ("valuntil", until(role)),
                        ("useconfig", config(&role.settings)),
                    ]
                };
                roles.filter(|(role, _)| role.may_log_in).map(row).collect()
            }
            "pg_auth_members" => {
                let rows = roles.flat_map(|(member, oid)| {
                    member.memberships.iter().map(|of| {
                        vec![
                            ("roleid", self.oid(of.role)),
                            ("member", int(*oid)),
                            ("grantor", self.oid(of.by)),
                            ("admin_option", flag(of.is_admin)),
                        ]
                    })
                });
                rows.collect()
            }
            "pg_default_acl" => self.rows_of_defaults(objects),
            "pg_db_role_setting" => self.rows_of_settings(),
            "table_privileges" | "role_table_grants" => self.table_privileges(name, objects),
            "column_privileges" => self.column_privileges(objects),
            _ => return None,
        })
    }

    /// Whether the session's role is shown a grant.
    fn is_shown(&self, grant: &Grant, is_of_roles: bool) -> bool {
        let is_public = grant.to == PUBLIC_ROLE;
        let is_own = self.acting.contains(&grant.to) || self.acting.contains(&grant.by);
        is_own || if is_public { !is_of_roles } else { self.is_superuser }
    }

    fn row_of(&self, name: &Name, grant: &Grant, (bit, privilege): (Privileges, &'static str)) -> Row {
        let to = if grant.to == PUBLIC_ROLE { "PUBLIC".to_owned() } else { self.roles.name(grant.to) };
        // The owner may hand on what it has.
        let is_grantable = grant.options & bit != 0 || grant.to == grant.by;
        vec![
            ("grantor", text(self.roles.name(grant.by))),
            ("grantee", text(to)),
            ("table_catalog", text(DATABASE)),
            ("table_schema", text(shown_schema(name))),
            ("table_name", text(name.plain())),
            ("privilege_type", text(privilege)),
            ("is_grantable", text(if is_grantable { "YES" } else { "NO" })),
        ]
    }

    fn table_privileges(&self, relation: &str, objects: &Objects) -> Vec<Row> {
        let mut rows = Vec::new();
        for Listed { object, .. } in listed(objects) {
            let (Some(access), false) = (object.access(), matches!(object, Object::Sequence(_))) else { continue };
            let grants = access.of(object.kind());
            for grant in grants.iter().filter(|grant| self.is_shown(grant, relation == "role_table_grants")) {
                rows.extend(privileges_named(grant.privileges).map(|privilege| {
                    let mut row = self.row_of(&name_of(&object), grant, privilege);
                    row.push(("with_hierarchy", text(if privilege.0 == bits::SELECT { "YES" } else { "NO" })));
                    row
                }));
            }
        }
        rows
    }

    /// The rows of `pg_default_acl`.
    fn rows_of_defaults(&self, objects: &Objects) -> Vec<Row> {
        let row = |(own, id): (&DefaultPrivileges, i64)| {
            let schema = own.schema.as_ref().map_or(0, |schema| objects.schema_of(&Name::new(schema, "")));
            vec![
                ("oid", int(id)),
                ("defaclrole", self.oid(own.role)),
                ("defaclnamespace", int(schema)),
                ("defaclobjtype", text(own.of.letter())),
                ("defaclacl", self.items(Some(&own.grants))),
            ]
        };
        self.shared.defaults.iter().zip(1..).map(row).collect()
    }

    /// The rows of `pg_db_role_setting`.
    fn rows_of_settings(&self) -> Vec<Row> {
        let roles = self.roles.0.iter().zip(&self.oids);
        let row = |here: bool, role: i64, kept: &Kept| {
            let database = if here { DATABASE_ID } else { 0 };
            vec![("setdatabase", int(database)), ("setrole", int(role)), ("setconfig", config(kept))]
        };
        let of_all = [(false, 0, &self.shared.settings), (true, 0, &self.shared.settings_here)];
        let of_roles = roles.flat_map(|(role, oid)| [(false, *oid, &role.settings), (true, *oid, &role.settings_here)]);
        let all = of_all.into_iter().chain(of_roles).filter(|(.., kept)| !kept.is_empty());
        all.map(|(here, role, kept)| row(here, role, kept)).collect()
    }

    fn column_privileges(&self, objects: &Objects) -> Vec<Row> {
        let mut rows = Vec::new();
        for Listed { object, .. } in listed(objects) {
            let Some(access) = object.access() else { continue };
            let of_table = access.of(object.kind());
            for (at, column) in object.columns() {
                let grants = of_table.iter().chain(object.column_grants(at));
                for grant in grants.filter(|grant| self.is_shown(grant, false)) {
                    rows.extend(privileges_named(grant.privileges & bits::OF_COLUMNS).map(|privilege| {
                        let mut row = self.row_of(&name_of(&object), grant, privilege);
                        row.push(("column_name", text(column.as_str())));
                        row
                    }));
                }
            }
        }
        rows
    }

    /// Rows with their owners, and lists of privileges where something was granted or revoked.
    pub(super) fn completed(&self, name: &str, mut rows: Vec<Row>, objects: &Objects) -> Vec<Row> {
        let columns = match name {
            "pg_class" => ("oid", "relowner", "relacl"),
            "pg_proc" => ("oid", "proowner", "proacl"),
            "pg_type" => ("oid", "typowner", "typacl"),
            "pg_namespace" => ("nspname", "nspowner", "nspacl"),
            "pg_tables" => ("tablename", "tableowner", ""),
            "pg_views" => ("viewname", "viewowner", ""),
            "pg_sequences" => ("sequencename", "sequenceowner", ""),
            "schemata" => ("schema_name", "schema_owner", ""),
            "pg_attribute" => ("attrelid", "", "attacl"),
            "pg_database" => ("datname", "datdba", "datacl"),
            _ => return rows,
        };
        let (key, owner, list) = columns;
        let by_id: HashMap<i64, Object> = match name {
            "pg_proc" => objects.procedures.iter().map(|(id, it)| (*id, Object::Procedure(it.clone()))).collect(),
            "pg_type" => objects.enums.iter().map(|(of, it)| (of.oid().into(), Object::Enum(it.clone()))).collect(),
            _ => listed(objects).into_iter().map(|Listed { id, object }| (id, object)).collect(),
        };
        let by_name: HashMap<(String, String), &Object> = by_id
            .values()
            .map(|object| (name_of(object), object))
            .map(|(name, object)| ((name.schema().to_owned(), name.plain().to_owned()), object))
            .collect();
        for row in &mut rows {
            let (access, grants) = match name {
                "pg_database" => (Some(self.shared.database.clone()), None),
                "pg_namespace" | "schemata" => (self.access_of_schema(&text_of(row, key), objects), None),
                "pg_tables" | "pg_views" | "pg_sequences" => {
                    let found = by_name.get(&(text_of(row, "schemaname"), text_of(row, key)));
                    (found.and_then(|object| object.access().cloned()), None)
                }
                "pg_attribute" => {
                    let number = number_of(row, "attnum");
                    let object = by_id.get(&number_of(row, key));
                    let column = object.and_then(|it| (1..).zip(it.columns()).find(|(own, _)| *own == number));
                    let grants = object.zip(column).map(|(object, (_, (at, _)))| object.column_grants(at));
                    (None, grants.filter(|grants| !grants.is_empty()))
                }
                _ => {
                    // An index belongs to the owner of its table.
                    let id = number_of(row, key);
                    let own = by_id.get(&id);
                    let ids = |table: &Table| table_id(table)..table_id(table) + super::IDS_OF_TABLE;
                    let of_index = || objects.tables.iter().find(|table| ids(table).contains(&id));
                    match own {
                        Some(object) => (object.access().cloned(), None),
                        None => (of_index().map(|table| Access::owned_by(table.access.owner())), None),
                    }
                }
            };
            if let Some(grants) = grants {
                row.push((list, self.items(Some(grants))));
            }
            let Some(access) = access else { continue };
            let shown = match name {
                "pg_tables" | "pg_views" | "pg_sequences" | "schemata" => text(self.roles.name(access.owner())),
                _ => self.oid(access.owner()),
            };
            row.push((owner, shown));
            if !list.is_empty() {
                // Of `public` the list is always there, as it has more than the owner may.
                let is_public = name == "pg_namespace" && text_of(row, key) == PUBLIC;
                let all = access.of(Kind::Public);
                row.push((list, self.items(if is_public { Some(&all) } else { access.changed() })));
            }
        }
        rows
    }

    fn access_of_schema(&self, name: &str, objects: &Objects) -> Option<Access> {
        if name == PUBLIC { Some(self.shared.public.clone()) } else { objects.access_of_schemas.get(name).cloned() }
    }
}
