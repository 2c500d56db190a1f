//! Statements about roles and privileges, which have a parser of their own.

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Word};

use super::Privileges;
use super::acl::named;
use super::defaults::DefaultChange;
use super::parsing::{expect, identifier, list, take, word};
use crate::configured::SystemChange;
use crate::error::{SqlError, SqlState};
use crate::parse::{error_of, syntax_error};
use crate::settings::SettingChange;

/// A role as a statement says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoleName {
    Named(String),
    Current,
    Session,
    /// Everybody.
    Public,
}

/// An attribute of a role that is made or altered.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Superuser(bool),
    Inherit(bool),
    CreateRole(bool),
    CreateDatabase(bool),
    LogIn(bool),
    ConnectionLimit(i32),
    /// In clear text, or a verifier; `None`: no password.
    Password(Option<String>),
    ValidUntil(String),
    /// Roles that it becomes a member of.
    In(Vec<RoleName>),
    /// Roles that become members of it, and those that do so with the right to make others members.
    Members(Vec<RoleName>, bool),
}

/// What privileges are granted, and of what.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// With the columns that each is limited to. Empty: all of them.
    pub(crate) privileges: Vec<(Privileges, Vec<String>)>,
    /// All privileges of these columns.
    pub(crate) all_of_columns: Vec<String>,
}

/// What privileges are of, or what gets another owner.
#[derive(Clone, Debug)]
pub(crate) enum Targets {
    /// Tables, views and sequences.
    Relations(Vec<ast::ObjectName>),
    Sequences(Vec<ast::ObjectName>),
    Procedures(Vec<ast::ObjectName>),
    Types(Vec<ast::ObjectName>),
    Schemas(Vec<String>),
    Databases(Vec<String>),
    AllTables(Vec<String>),
    AllSequences(Vec<String>),
    AllProcedures(Vec<String>),
}

/// Memberships that are granted or revoked.
#[derive(Clone, Debug)]
pub(crate) struct MembershipChange {
    pub(crate) roles: Vec<RoleName>,
    pub(crate) members: Vec<RoleName>,
    pub(crate) is_admin: bool,
}

/// Privileges that are granted or revoked.
#[derive(Clone, Debug)]
pub(crate) struct PrivilegeChange {
    pub(crate) wanted: Wanted,
    pub(crate) targets: Targets,
    pub(crate) roles: Vec<RoleName>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    pub(crate) has_options: bool,
    pub(crate) cascades: bool,
}

/// A statement about roles or privileges that defines something.
#[derive(Clone, Debug)]
pub(crate) enum RoleStatement {
    Create {
        name: String,
        is_user: bool,
        attributes: Vec<Attribute>,
    },
    Alter {
        role: RoleName,
        attributes: Vec<Attribute>,
    },
    Rename {
        role: String,
        to: String,
    },
    Drop {
        roles: Vec<RoleName>,
        if_exists: bool,
    },
    GrantMembership(MembershipChange),
    RevokeMembership(MembershipChange),
    Grant(PrivilegeChange),
    Revoke(PrivilegeChange),
    Owner {
        targets: Targets,
        if_exists: bool,
        to: RoleName,
        tag: &'static str,
    },
    Reassign {
        from: Vec<RoleName>,
        to: RoleName,
    },
    Defaults(DefaultChange),
    /// Settings with which sessions begin: of a role, or of all, and of those in the database alone.
    Configure {
        of: Configured,
        change: SettingChange,
    },
}

/// Whose settings are changed.
#[derive(Clone, Debug)]
pub(crate) enum Configured {
    /// `None`: all roles. The name is the database's.
    Role {
        role: Option<RoleName>,
        database: Option<String>,
    },
    Database(String),
}

/// A statement that makes another role of a session.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    /// Only in this transaction.
    pub(crate) is_local: bool,
    /// SESSION AUTHORIZATION, and not ROLE.
    pub(crate) is_of_session: bool,
    /// `None`: the one that it was at first.
    pub(crate) to: Option<String>,
    pub(crate) tag: &'static str,
}

impl Switch {
    /// Back to the role that has logged in.
    pub(crate) fn back(tag: &'static str) -> Self {
        Self { is_local: false, is_of_session: true, to: None, tag }
    }
}

/// What a text says about roles.
#[derive(Clone, Debug)]
pub(crate) enum RoleCommand {
    Define(RoleStatement),
    Switch(Switch),
    System(SystemChange),
}

fn object_name(parser: &mut Parser<'_>) -> Result<ast::ObjectName, SqlError> {
    parser.parse_object_name(false).map_err(error_of)
}

pub(super) fn role(parser: &mut Parser<'_>) -> Result<RoleName, SqlError> {
    let special = match word(parser, 0).as_str() {
        "current_user" | "current_role" => Some(RoleName::Current),
        "session_user" => Some(RoleName::Session),
        "public" => Some(RoleName::Public),
        _ => None,
    };
    match special {
        Some(special) => {
            parser.next_token();
            Ok(special)
        }
        None => identifier(parser).map(RoleName::Named),
    }
}

/// A list of roles, each of which GROUP may stand in front of.
pub(super) fn grantees(parser: &mut Parser<'_>) -> Result<Vec<RoleName>, SqlError> {
    list(parser, |parser| {
        take(parser, &["group"]);
        role(parser)
    })
}

fn text(parser: &mut Parser<'_>) -> Result<String, SqlError> {
    parser.parse_literal_string().map_err(error_of)
}

impl RoleCommand {
    /// The statement, if the next one is of this kind: the parser then stands behind it.
    ///
    /// # Errors
    /// It is malformed, or of a kind that is not known.
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Option<Self>, SqlError> {
        let second = word(parser, 1);
        let is_role = matches!(second.as_str(), "role" | "user" | "group") && word(parser, 2) != "mapping";
        match word(parser, 0).as_str() {
            "create" if is_role => create(parser).map(Self::Define).map(Some),
            "alter" if is_role => alter(parser).map(Self::Define).map(Some),
            "drop" if is_role => dropped(parser).map(Self::Define).map(Some),
            "alter" if second == "system" => SettingChange::parse_system(parser).map(Self::System).map(Some),
            "alter" if second == "database" && matches!(word(parser, 3).as_str(), "set" | "reset") => {
                configured_database(parser).map(Self::Define).map(Some)
            }
            "alter" if second == "default" => super::defaults::parse(parser).map(Self::Define).map(Some),
            "alter" => owner(parser).map(|found| found.map(Self::Define)),
            "grant" => granted(parser, false).map(Self::Define).map(Some),
            "revoke" => granted(parser, true).map(Self::Define).map(Some),
            "reassign" => reassigned(parser).map(Self::Define).map(Some),
            "drop" if second == "owned" => Err(SqlError::unsupported("the statement DROP OWNED")),
            "set" | "reset" => Ok(switch(parser)?.map(Self::Switch)),
            _ => Ok(None),
        }
    }
}

fn create(parser: &mut Parser<'_>) -> Result<RoleStatement, SqlError> {
    parser.next_token();
    let is_user = word(parser, 0) == "user";
    parser.next_token();
    if matches!(word(parser, 0).as_str(), "public" | "current_user" | "current_role" | "session_user" | "none") {
        let message = format!("role name \"{}\" is reserved", word(parser, 0));
        return Err(SqlError::new(SqlState::RESERVED_NAME, message));
    }
    let name = identifier(parser)?;
    let attributes = attributes(parser, true)?;
    Ok(RoleStatement::Create { name, is_user, attributes })
}

fn attributes(parser: &mut Parser<'_>, is_new: bool) -> Result<Vec<Attribute>, SqlError> {
    take(parser, &["with"]);
    let mut all: Vec<Attribute> = Vec::new();
    while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        let new = attribute(parser, is_new)?;
        if all.iter().any(|own| std::mem::discriminant(own) == std::mem::discriminant(&new))
            && !matches!(new, Attribute::Members(..) | Attribute::In(_))
        {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
        }
        all.push(new);
    }
    Ok(all)
}

fn attribute(parser: &mut Parser<'_>, is_new: bool) -> Result<Attribute, SqlError> {
    let first = word(parser, 0);
    let is_not = first.starts_with("no");
    let plain = first.strip_prefix("no").unwrap_or(&first);
    let flag = match plain {
        "superuser" => Some(Attribute::Superuser(!is_not)),
        "inherit" => Some(Attribute::Inherit(!is_not)),
        "createrole" => Some(Attribute::CreateRole(!is_not)),
        "createdb" => Some(Attribute::CreateDatabase(!is_not)),
        "login" => Some(Attribute::LogIn(!is_not)),
        // Nothing replicates by a role, and there are no policies of rows.
        "replication" | "bypassrls" if is_not => {
            parser.next_token();
            return if matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
                Ok(Attribute::In(Vec::new()))
            } else {
                attribute(parser, is_new)
            };
        }
        "replication" | "bypassrls" => {
            return Err(SqlError::unsupported(format!("the attribute {} of a role", first.to_uppercase())));
        }
        _ => None,
    };
    if let Some(flag) = flag {
        parser.next_token();
        return Ok(flag);
    }
    if take(parser, &["connection", "limit"]) {
        let number = parser.parse_number().map_err(error_of)?.to_string().replace(' ', "");
        let limit = number.parse().ok().filter(|limit| *limit >= -1);
        let wrong = || SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid connection limit: {number}"));
        return Ok(Attribute::ConnectionLimit(limit.ok_or_else(wrong)?));
    }
    if take(parser, &["unencrypted", "password"]) {
        return Err(SqlError::unsupported("UNENCRYPTED PASSWORD"));
    }
    if take(parser, &["encrypted", "password"]) || take(parser, &["password"]) {
        return Ok(Attribute::Password(if take(parser, &["null"]) { None } else { Some(text(parser)?) }));
    }
    if take(parser, &["valid", "until"]) {
        return Ok(Attribute::ValidUntil(text(parser)?));
    }
    if is_new {
        if take(parser, &["in", "role"]) || take(parser, &["in", "group"]) {
            return Ok(Attribute::In(list(parser, role)?));
        }
        if take(parser, &["admin"]) {
            return Ok(Attribute::Members(list(parser, role)?, true));
        }
        if take(parser, &["role"]) || take(parser, &["user"]) {
            return Ok(Attribute::Members(list(parser, role)?, false));
        }
        if take(parser, &["sysid"]) {
            return Err(SqlError::unsupported("SYSID of a role"));
        }
    }
    Err(syntax_error(&parser.peek_token_ref().token))
}

fn alter(parser: &mut Parser<'_>) -> Result<RoleStatement, SqlError> {
    parser.next_token();
    let is_group = word(parser, 0) == "group";
    parser.next_token();
    if take(parser, &["all"]) {
        return configured(parser, None);
    }
    let role = role(parser)?;
    if take(parser, &["rename", "to"]) {
        let RoleName::Named(role) = role else { return Err(syntax_error(&parser.peek_token_ref().token)) };
        return Ok(RoleStatement::Rename { role, to: identifier(parser)? });
    }
    let adds = take(parser, &["add", "user"]);
    if is_group && (adds || take(parser, &["drop", "user"])) {
        let members = list(parser, self::role)?;
        let change = MembershipChange { roles: vec![role], members, is_admin: false };
        return Ok(if adds { RoleStatement::GrantMembership(change) } else { RoleStatement::RevokeMembership(change) });
    }
    if matches!(word(parser, 0).as_str(), "set" | "reset" | "in") {
        return configured(parser, Some(role));
    }
    Ok(RoleStatement::Alter { role, attributes: attributes(parser, false)? })
}

/// What ALTER ROLE says of settings.
fn configured(parser: &mut Parser<'_>, role: Option<RoleName>) -> Result<RoleStatement, SqlError> {
    let database = if take(parser, &["in", "database"]) { Some(identifier(parser)?) } else { None };
    let change = SettingChange::parse(parser)?.ok_or_else(|| syntax_error(&parser.peek_token_ref().token))?;
    Ok(RoleStatement::Configure { of: Configured::Role { role, database }, change })
}

fn configured_database(parser: &mut Parser<'_>) -> Result<RoleStatement, SqlError> {
    expect(parser, &["alter", "database"])?;
    let of = Configured::Database(identifier(parser)?);
    if take(parser, &["set", "tablespace"]) {
        return Err(SqlError::unsupported("ALTER DATABASE SET TABLESPACE"));
    }
    let change = SettingChange::parse(parser)?.ok_or_else(|| syntax_error(&parser.peek_token_ref().token))?;
    Ok(RoleStatement::Configure { of, change })
}

fn dropped(parser: &mut Parser<'_>) -> Result<RoleStatement, SqlError> {
    parser.next_token();
    parser.next_token();
    let if_exists = take(parser, &["if", "exists"]);
    Ok(RoleStatement::Drop { roles: list(parser, role)?, if_exists })
}

fn reassigned(parser: &mut Parser<'_>) -> Result<RoleStatement, SqlError> {
    expect(parser, &["reassign", "owned", "by"])?;
    let from = list(parser, role)?;
    expect(parser, &["to"])?;
    Ok(RoleStatement::Reassign { from, to: role(parser)? })
}

/// Names of procedures. There is one of a name, so that the types of its parameters tell nothing more; they are read and left out.
fn procedure_name(parser: &mut Parser<'_>) -> Result<ast::ObjectName, SqlError> {
    let name = object_name(parser)?;
    if parser.consume_token(&Token::LParen) {
        let mut depth = 1;
        while depth > 0 {
            match parser.next_token().token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::EOF | Token::SemiColon => return Err(syntax_error(&Token::EOF)),
                _ => {}
            }
        }
    }
    Ok(name)
}

/// `ALTER … OWNER TO …`, if the next statement is one.
fn owner(parser: &mut Parser<'_>) -> Result<Option<RoleStatement>, SqlError> {
    let is_owner = (1..64)
        .take_while(|&at| !matches!(parser.peek_nth_token_ref(at).token, Token::EOF | Token::SemiColon | Token::Comma))
        .any(|at| word(parser, at) == "owner" && word(parser, at + 1) == "to");
    if !is_owner {
        return Ok(None);
    }
    let kind = word(parser, 1);
    let (tag, is_procedure) = match kind.as_str() {
        "table" => ("ALTER TABLE", false),
        "view" => ("ALTER VIEW", false),
        "sequence" => ("ALTER SEQUENCE", false),
        "type" => ("ALTER TYPE", false),
        "schema" => ("ALTER SCHEMA", false),
        "database" => ("ALTER DATABASE", false),
        "procedure" => ("ALTER PROCEDURE", true),
        "routine" => ("ALTER ROUTINE", true),
        "function" => ("ALTER FUNCTION", true),
        _ => return Ok(None),
    };
    parser.next_token();
    parser.next_token();
    let if_exists = take(parser, &["if", "exists"]);
    take(parser, &["only"]);
    let targets = match kind.as_str() {
        "schema" => Targets::Schemas(vec![identifier(parser)?]),
        "database" => Targets::Databases(vec![identifier(parser)?]),
        _ if is_procedure => Targets::Procedures(vec![procedure_name(parser)?]),
        "sequence" => Targets::Sequences(vec![object_name(parser)?]),
        "type" => Targets::Types(vec![object_name(parser)?]),
        _ => Targets::Relations(vec![object_name(parser)?]),
    };
    expect(parser, &["owner", "to"])?;
    let to = role(parser)?;
    if !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        return Err(SqlError::unsupported("OWNER TO among other changes"));
    }
    Ok(Some(RoleStatement::Owner { targets, if_exists, to, tag }))
}

/// The privileges in front of ON, or `None` where roles stand there.
pub(super) fn wanted(parser: &mut Parser<'_>) -> Result<Option<Wanted>, SqlError> {
    let mut wanted = Wanted { privileges: Vec::new(), all_of_columns: Vec::new() };
    let columns = |parser: &mut Parser<'_>| {
        if !parser.consume_token(&Token::LParen) {
            return Ok(Vec::new());
        }
        let names = list(parser, identifier)?;
        parser.expect_token(&Token::RParen).map_err(error_of)?;
        Ok::<_, SqlError>(names)
    };
    if word(parser, 0) == "all" && matches!(word(parser, 1).as_str(), "on" | "privileges" | "") {
        parser.next_token();
        take(parser, &["privileges"]);
        wanted.all_of_columns = columns(parser)?;
        return Ok(Some(wanted));
    }
    let end = (0..10_000).find(|&at| {
        matches!(word(parser, at).as_str(), "on" | "to" | "from")
            || matches!(parser.peek_nth_token_ref(at).token, Token::EOF | Token::SemiColon)
    });
    if end.is_none_or(|at| word(parser, at) != "on") {
        return Ok(None);
    }
    wanted.privileges = list(parser, |parser| {
        let name = word(parser, 0);
        let Some(privilege) = named(&name) else {
            return Err(if matches!(parser.peek_token_ref().token, Token::Word(_)) {
                SqlError::new(SqlState::SYNTAX_ERROR, format!("unrecognized privilege type \"{name}\""))
            } else {
                syntax_error(&parser.peek_token_ref().token)
            });
        };
        parser.next_token();
        Ok((privilege, columns(parser)?))
    })?;
    Ok(Some(wanted))
}

fn targets(parser: &mut Parser<'_>) -> Result<Targets, SqlError> {
    let many: Option<fn(Vec<String>) -> Targets> = match (word(parser, 0).as_str(), word(parser, 1).as_str()) {
        ("all", "tables") => Some(Targets::AllTables),
        ("all", "sequences") => Some(Targets::AllSequences),
        ("all", "procedures" | "functions" | "routines") => Some(Targets::AllProcedures),
        _ => None,
    };
    if let Some(all_of) = many {
        parser.next_token();
        parser.next_token();
        expect(parser, &["in", "schema"])?;
        return Ok(all_of(list(parser, identifier)?));
    }
    // A table may be called as one of these kinds; then what follows is no name.
    let is_kind = matches!(parser.peek_nth_token_ref(1).token, Token::Word(_))
        && !matches!(word(parser, 1).as_str(), "to" | "from");
    let kind = if is_kind { word(parser, 0) } else { String::new() };
    match kind.as_str() {
        "table" => {
            parser.next_token();
            Ok(Targets::Relations(list(parser, object_name)?))
        }
        "sequence" => {
            parser.next_token();
            Ok(Targets::Sequences(list(parser, object_name)?))
        }
        "type" => {
            parser.next_token();
            Ok(Targets::Types(list(parser, object_name)?))
        }
        "schema" => {
            parser.next_token();
            Ok(Targets::Schemas(list(parser, identifier)?))
        }
        "database" => {
            parser.next_token();
            Ok(Targets::Databases(list(parser, identifier)?))
        }
        "procedure" | "function" | "routine" => {
            parser.next_token();
            Ok(Targets::Procedures(list(parser, procedure_name)?))
        }
        "" => Ok(Targets::Relations(list(parser, object_name)?)),
        other => Err(SqlError::unsupported(format!("privileges on {}", other.to_uppercase()))),
    }
}

fn granted(parser: &mut Parser<'_>, revokes: bool) -> Result<RoleStatement, SqlError> {
    parser.next_token();
    let takes_grant = revokes && take(parser, &["grant", "option", "for"]);
    let takes_admin = revokes && !takes_grant && take(parser, &["admin", "option", "for"]);
    let wanted = if takes_admin { None } else { wanted(parser)? };
    let direction = if revokes { "from" } else { "to" };
    let Some(wanted) = wanted else {
        let roles = list(parser, role)?;
        expect(parser, &[direction])?;
        let members = grantees(parser)?;
        let with_admin =
            !revokes && (take(parser, &["with", "admin", "option"]) || take(parser, &["with", "admin", "true"]));
        let is_admin = takes_admin || with_admin;
        let change = MembershipChange { roles, members, is_admin };
        endings(parser, revokes)?;
        return Ok(if revokes {
            RoleStatement::RevokeMembership(change)
        } else {
            RoleStatement::GrantMembership(change)
        });
    };
    expect(parser, &["on"])?;
    let targets = targets(parser)?;
    expect(parser, &[direction])?;
    let roles = grantees(parser)?;
    let has_options = takes_grant || !revokes && take(parser, &["with", "grant", "option"]);
    let cascades = endings(parser, revokes)?;
    let change = PrivilegeChange { wanted, targets, roles, has_options, cascades };
    Ok(if revokes { RoleStatement::Revoke(change) } else { RoleStatement::Grant(change) })
}

/// What may stand at the end; whether what depends goes, too.
pub(super) fn endings(parser: &mut Parser<'_>, revokes: bool) -> Result<bool, SqlError> {
    if take(parser, &["granted", "by"]) {
        return Err(SqlError::unsupported("GRANTED BY"));
    }
    if take(parser, &["with"]) {
        return Err(SqlError::unsupported("this option of GRANT"));
    }
    let cascades = revokes && take(parser, &["cascade"]);
    if revokes && !cascades {
        take(parser, &["restrict"]);
    }
    Ok(cascades)
}

/// `SET ROLE`, `SET SESSION AUTHORIZATION`, and RESET of both.
fn switch(parser: &mut Parser<'_>) -> Result<Option<Switch>, SqlError> {
    let is_reset = word(parser, 0) == "reset";
    let modifier = word(parser, 1);
    let behind = match modifier.as_str() {
        "local" if !is_reset => 2,
        "session" if !is_reset && matches!(word(parser, 2).as_str(), "role" | "session") => 2,
        _ => 1,
    };
    let is_local = behind == 2 && modifier == "local";
    let is_of_session = word(parser, behind) == "session" && word(parser, behind + 1) == "authorization";
    let is_role = word(parser, behind) == "role"
        && !matches!(parser.peek_nth_token_ref(behind + 1).token, Token::Eq)
        && word(parser, behind + 1) != "to";
    if !is_of_session && !is_role {
        return Ok(None);
    }
    let count = behind + if is_of_session { 2 } else { 1 };
    (0..count).for_each(|_| drop(parser.next_token()));
    let tag = if is_reset { "RESET" } else { "SET" };
    if is_reset {
        return Ok(Some(Switch { is_local, is_of_session, to: None, tag }));
    }
    let to = match &parser.peek_token_ref().token {
        Token::SingleQuotedString(_) => Some(text(parser)?),
        Token::Word(Word { quote_style: None, keyword: Keyword::NONE, .. }) if !is_of_session => {
            parser.next_token();
            None
        }
        Token::Word(Word { quote_style: None, keyword: Keyword::DEFAULT, .. }) if is_of_session => {
            parser.next_token();
            None
        }
        _ => Some(identifier(parser)?),
    };
    // A text may say the same.
    let to = to.filter(|to| is_of_session || to != "none");
    Ok(Some(Switch { is_local, is_of_session, to, tag }))
}
