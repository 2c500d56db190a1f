//! Names of objects, the schemas that they are in, and where names without a schema are looked for.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bind::quoted;
use crate::error::{SqlError, SqlState};
use crate::procedures::MARK;
use crate::roles::User;

/// The schema of the engine's tables, and of what is named without a schema where nothing else is set.
pub(crate) const PUBLIC: &str = "public";

/// What the names of schemas of temporary objects begin with; the number of the session follows.
const TEMPORARY: &str = "pg_temp_";

/// Stands between a schema and a name in it. No identifier has it.
const BETWEEN: char = '\u{1f}';

/// The schema and the name of an object.
///
/// As a key, and as a name of the engine's table, an object of `public` has its name alone, and others the schema in front of it. A schema itself is an
/// object, too, whose key begins with the character between the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn new(schema: &str, name: &str) -> Self {
        if schema == PUBLIC { Self(name.to_owned()) } else { Self(format!("{schema}{BETWEEN}{name}")) }
    }

    /// The name of a schema as an object.
    pub(crate) fn of_schema(schema: &str) -> Self {
        Self(format!("{BETWEEN}{schema}"))
    }

    /// The name that has this key.
    pub(crate) fn of_key(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub(crate) fn key(&self) -> &str {
        &self.0
    }

    /// The name without the schema.
    pub(crate) fn plain(&self) -> &str {
        self.0.rsplit_once(BETWEEN).map_or(&self.0, |(_, name)| name)
    }

    pub(crate) fn schema(&self) -> &str {
        self.0.split_once(BETWEEN).map_or(PUBLIC, |(schema, _)| schema)
    }

    /// The schema that it is the name of.
    pub(crate) fn as_schema(&self) -> Option<&str> {
        self.0.strip_prefix(BETWEEN)
    }

    /// Its schema, if that is one that SQL has made.
    pub(crate) fn kept_schema(&self) -> Option<&str> {
        let is_kept = self.as_schema().is_none() && !self.is_temporary() && self.schema() != PUBLIC;
        is_kept.then(|| self.schema())
    }

    /// Another name in the same schema.
    #[must_use]
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self::new(self.schema(), name)
    }

    /// Whether it is in the schema of a session's temporary objects, procedures among them.
    pub(crate) fn is_temporary(&self) -> bool {
        let key = self.0.strip_prefix(MARK).unwrap_or(&self.0);
        key.starts_with(TEMPORARY) && key.contains(BETWEEN)
    }

    /// As a statement has to write it, whatever the path.
    pub(crate) fn written(&self) -> String {
        let always = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        format!("{}.{}", always(self.schema()), always(self.plain()))
    }

    /// The keys of all objects in a schema lie from the first one up to the second one.
    pub(crate) fn bounds(schema: &str) -> [String; 2] {
        let behind = char::from_u32(BETWEEN as u32 + 1).unwrap_or(BETWEEN);
        [format!("{schema}{BETWEEN}"), format!("{schema}{behind}")]
    }
}

/// Messages have the name alone.
impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.plain())
    }
}

/// A message of the engine, which knows tables by their keys, with a point between schemas and names.
pub(crate) fn in_words(message: &str) -> String {
    message.replace(BETWEEN, ".")
}

/// The schema of a session's temporary objects.
pub(crate) fn temporary_schema(session: u64) -> String {
    format!("{TEMPORARY}{session}")
}

/// Whether names of schemas that begin so are the system's.
pub(crate) fn is_reserved(schema: &str) -> bool {
    schema.starts_with("pg_")
}

/// Refuses what cannot be a part of a name.
///
/// # Errors
/// [`SqlState::FEATURE_NOT_SUPPORTED`]
pub(crate) fn check_identifier(name: &str) -> Result<(), SqlError> {
    if name.contains([BETWEEN, '\u{3}', crate::roles::MARK, crate::enums::MARK, crate::write_rules::MARK]) {
        return Err(SqlError::unsupported("the characters U+0003 to U+0006 and U+001F in a name"));
    }
    Ok(())
}

/// The parts of a name in a text, folded as those of a statement are. `None`: it is not written as names are.
pub(crate) fn parts(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut rest) = (Vec::new(), text.trim());
    loop {
        let (part, behind) = if let Some(inside) = rest.strip_prefix('"') {
            let mut end = inside.find('"')?;
            while inside[end + 1..].starts_with('"') {
                end += 2 + inside[end + 2..].find('"')?;
            }
            (inside[..end].replace("\"\"", "\""), &inside[end + 1..])
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            let word = rest[..end].trim();
            let is_name = |at: char| at.is_alphanumeric() || at == '_' || at == '$' || !at.is_ascii();
            if word.starts_with(|at: char| at.is_ascii_digit() || at == '$') || !word.chars().all(is_name) {
                return None;
            }
            (word.to_lowercase(), &rest[end..])
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        let behind = behind.trim_start();
        match behind.strip_prefix('.') {
            Some(next) => rest = next.trim_start(),
            None if behind.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

/// That there is no such schema.
pub(crate) fn no_schema(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

/// Where a session looks for names without a schema, and who it is: what a statement is bound under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// In their order, whether they are there or not.
    pub(crate) schemas: Vec<String>,
    /// The schema of the session's temporary objects, which comes first; empty where it can have none.
    pub(crate) temporary: String,
    pub(crate) user: Arc<User>,
}

/// What stands for the schema of the role's name.
pub(crate) const USER: &str = "$user";

/// A path as SHOW has it.
pub(crate) fn shown_path(schemas: &[String]) -> String {
    schemas.iter().map(|schema| quoted(schema)).collect::<Vec<_>>().join(", ")
}

impl Default for Path {
    fn default() -> Self {
        Self { schemas: Self::initial(), temporary: String::new(), user: Arc::default() }
    }
}

impl Path {
    /// The schemas where nothing is set.
    pub(crate) fn initial() -> Vec<String> {
        vec![USER.to_owned(), PUBLIC.to_owned()]
    }
}
