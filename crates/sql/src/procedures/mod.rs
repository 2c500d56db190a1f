//! Procedures: statements between which a program decides, and which CALL runs as one statement.
//!
//! A definition keeps the text of the body. `parse` makes a tree of it, the binder (`bind::bodies`) decides what its names stand for and gives the steps of
//! `tree`, and `exec::procedures` runs them. `docs/sql.md`, "Procedures", has the rules.

mod lexemes;
pub(crate) mod parse;
pub(crate) mod raise;
mod rewrite;
pub(crate) mod statements;
pub(crate) mod tree;

use serde::{Deserialize, Serialize};

pub(crate) use rewrite::{ATOMIC, MARK, with_procedures};
pub(crate) use tree::{Call, Unit};

use crate::names::Name;
use crate::roles::Access;
use crate::types::Type;

/// Under which name the definitions have a procedure: tables have other names.
pub(crate) fn key(name: &Name) -> Name {
    Name::of_key(format!("{MARK}{}", name.key()))
}

/// The name of an object that may be a procedure or a type, in its schema.
pub(crate) fn unmarked(name: &Name) -> Name {
    Name::of_key(name.key().strip_prefix([MARK, crate::enums::MARK]).unwrap_or(name.key()))
}

/// A procedure as it was defined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Procedure {
    pub(crate) name: Name,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) language: Language,
    /// The text of the body.
    pub(crate) body: String,
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub(crate) access: Access,
}

/// What a body is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Language {
    /// Statements, in a text.
    Sql,
    /// Statements, between BEGIN ATOMIC and END.
    Atomic,
    PlPgSql,
}

impl Language {
    /// The name of the language.
    pub(crate) const fn name(self) -> &'static str {
        if matches!(self, Self::PlPgSql) { "plpgsql" } else { "sql" }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Parameter {
    pub(crate) name: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) of: Type,
    /// The text of its default.
    pub(crate) default: Option<String>,
}

/// Which way a value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    In,
    Out,
    InOut,
}

impl Parameter {
    pub(crate) fn is_input(&self) -> bool {
        self.mode != Mode::Out
    }

    pub(crate) fn is_output(&self) -> bool {
        self.mode != Mode::In
    }
}

impl Procedure {
    /// The parameters that a call gives values.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| parameter.is_input())
    }

    /// The parameters that a call answers with.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| parameter.is_output())
    }

    /// Its name with the types of its inputs, as messages have it.
    pub(crate) fn signature(&self) -> String {
        let types: Vec<_> = self.inputs().map(|parameter| parameter.of.name()).collect();
        format!("{}({})", self.name, types.join(","))
    }

    /// The name of an output in the row of a call.
    pub(crate) fn output_name(&self, at: usize) -> String {
        let name = self.outputs().nth(at).and_then(|parameter| parameter.name.clone());
        name.unwrap_or_else(|| format!("column{}", at + 1))
    }
}
