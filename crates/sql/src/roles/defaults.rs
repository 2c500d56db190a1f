//! Default privileges: what others may do with objects that a role will make.

use serde::{Deserialize, Serialize};
use sqlparser::parser::Parser;

use super::parsing::{expect, identifier, list, take, word};
use super::statements::{Wanted, endings, grantees, role, wanted};
use super::{Grant, Kind, RoleId, RoleName, RoleStatement, acl};
use crate::error::SqlError;
use crate::parse::syntax_error;

/// The kinds of objects that have default privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DefaultKind {
    /// Views among them.
    Tables,
    Sequences,
    Procedures,
    Schemas,
}

impl DefaultKind {
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Tables => Kind::Table,
            Self::Sequences => Kind::Sequence,
            Self::Procedures => Kind::Procedure,
            Self::Schemas => Kind::Schema,
        }
    }

    /// That of an object of this kind.
    const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Table | Kind::View => Some(Self::Tables),
            Kind::Sequence => Some(Self::Sequences),
            Kind::Procedure => Some(Self::Procedures),
            Kind::Schema => Some(Self::Schemas),
            Kind::Column | Kind::Type | Kind::Public | Kind::Database => None,
        }
    }

    /// As `pg_default_acl` has it.
    pub(crate) const fn letter(self) -> &'static str {
        match self {
            Self::Tables => "r",
            Self::Sequences => "S",
            Self::Procedures => "f",
            Self::Schemas => "n",
        }
    }

    /// As messages call such objects.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Tables => "relations",
            Self::Sequences => "sequences",
            Self::Procedures => "functions",
            Self::Schemas => "schemas",
        }
    }
}

/// What others may do with objects of a kind that a role makes: in a schema besides, or everywhere instead of what they may at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DefaultPrivileges {
    pub(crate) role: RoleId,
    /// `None`: everywhere.
    pub(crate) schema: Option<String>,
    pub(crate) of: DefaultKind,
    pub(crate) grants: Vec<Grant>,
}

impl DefaultPrivileges {
    /// What holds where nothing was said.
    pub(crate) fn initial(role: RoleId, schema: Option<&str>, of: DefaultKind) -> Self {
        let grants = if schema.is_none() { of.kind().initial(role) } else { Vec::new() };
        Self { role, schema: schema.map(str::to_owned), of, grants }
    }

    /// Whether it is about the same objects.
    pub(crate) fn is_about(&self, other: &Self) -> bool {
        (self.role, &self.schema, self.of) == (other.role, &other.schema, other.of)
    }

    /// Whether it says nothing more than what holds anyhow.
    pub(crate) fn is_initial(&self) -> bool {
        let of_owner = |grants: &[Grant]| {
            let mut grants = grants.to_vec();
            grants.sort_by_key(|grant| (grant.to, grant.by));
            grants
        };
        of_owner(&self.grants) == of_owner(&Self::initial(self.role, self.schema.as_deref(), self.of).grants)
    }

    pub(crate) fn names(&self, role: RoleId) -> bool {
        self.role == role || self.grants.iter().any(|grant| grant.to == role || grant.by == role)
    }
}

/// The grants of a new object; `None`: nothing is said of such.
pub(crate) fn grants_of_new(
    all: &[DefaultPrivileges],
    owner: RoleId,
    kind: Kind,
    schema: Option<&str>,
) -> Option<Vec<Grant>> {
    let of = DefaultKind::of(kind)?;
    let find = |schema: Option<&str>| {
        all.iter().find(|own| own.role == owner && own.of == of && own.schema.as_deref() == schema)
    };
    let everywhere = find(None);
    let here = schema.and_then(|schema| find(Some(schema)));
    if everywhere.is_none() && here.is_none() {
        return None;
    }
    let mut grants = everywhere.map_or_else(|| kind.initial(owner), |own| own.grants.clone());
    here.iter().flat_map(|own| &own.grants).for_each(|grant| acl::add(&mut grants, grant));
    Some(grants)
}

/// What ALTER DEFAULT PRIVILEGES says.
#[derive(Clone, Debug)]
pub(crate) struct DefaultChange {
    /// Whose objects: the session's role where none is named.
    pub(crate) roles: Vec<RoleName>,
    pub(crate) schemas: Vec<String>,
    pub(crate) revokes: bool,
    pub(crate) wanted: Wanted,
    pub(crate) of: DefaultKind,
    pub(crate) grantees: Vec<RoleName>,
    pub(crate) has_options: bool,
}

/// ALTER DEFAULT PRIVILEGES.
pub(super) fn parse(parser: &mut Parser<'_>) -> Result<RoleStatement, SqlError> {
    expect(parser, &["alter", "default", "privileges"])?;
    let (mut roles, mut schemas) = (Vec::new(), Vec::new());
    loop {
        if roles.is_empty() && (take(parser, &["for", "role"]) || take(parser, &["for", "user"])) {
            roles = list(parser, role)?;
        } else if schemas.is_empty() && take(parser, &["in", "schema"]) {
            schemas = list(parser, identifier)?;
        } else {
            break;
        }
    }
    let revokes = take(parser, &["revoke"]);
    if !revokes {
        expect(parser, &["grant"])?;
    }
    let takes_option = revokes && take(parser, &["grant", "option", "for"]);
    let wanted = wanted(parser)?.ok_or_else(|| syntax_error(&parser.peek_token_ref().token))?;
    expect(parser, &["on"])?;
    let of = match word(parser, 0).as_str() {
        "tables" => DefaultKind::Tables,
        "sequences" => DefaultKind::Sequences,
        "functions" | "routines" => DefaultKind::Procedures,
        "schemas" => DefaultKind::Schemas,
        "types" => return Err(SqlError::unsupported("default privileges on types")),
        _ => return Err(syntax_error(&parser.peek_token_ref().token)),
    };
    parser.next_token();
    expect(parser, &[if revokes { "from" } else { "to" }])?;
    let grantees = grantees(parser)?;
    let has_options = takes_option || !revokes && take(parser, &["with", "grant", "option"]);
    endings(parser, revokes)?;
    let change = DefaultChange { roles, schemas, revokes, wanted, of, grantees, has_options };
    Ok(RoleStatement::Defaults(change))
}

#[cfg(test)]
mod tests {
    use super::super::bits;
    use super::*;

    #[test]
    fn what_holds_everywhere_is_replaced_and_what_holds_in_a_schema_is_added() {
        let grant = |to, privileges| Grant { to, by: 20, privileges, options: 0 };
        let everywhere = DefaultPrivileges {
            grants: vec![grant(20, bits::EXECUTE)],
            ..DefaultPrivileges::initial(20, None, DefaultKind::Procedures)
        };
        let here = DefaultPrivileges {
            grants: vec![grant(21, bits::EXECUTE)],
            ..DefaultPrivileges::initial(20, Some("s"), DefaultKind::Procedures)
        };
        let all = [everywhere, here];
        let of = |owner, schema| grants_of_new(&all, owner, Kind::Procedure, schema);
        assert_eq!(of(20, Some("t")), Some(vec![grant(20, bits::EXECUTE)]));
        assert_eq!(of(20, Some("s")), Some(vec![grant(20, bits::EXECUTE), grant(21, bits::EXECUTE)]));
        assert_eq!(of(22, Some("s")), None);
        assert_eq!(grants_of_new(&all, 20, Kind::Table, Some("s")), None);
        assert!(DefaultPrivileges::initial(20, None, DefaultKind::Procedures).is_initial() && !all[0].is_initial());
    }
}
