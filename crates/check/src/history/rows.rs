//! The tables whose transactions are recorded.

use polychron_schema::{IndexKind, Row, TableDefinition};

use super::{Attributes, Version};

/// A row that carries its version.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_team", columns(team))]
#[index(name = "by_code", columns(code), unique)]
pub struct Tracked {
    /// The primary key.
    #[key]
    pub id: u64,
    /// Who wrote this state: a [`Version`].
    pub version: u64,
    /// Shared by several rows.
    pub team: u16,
    /// Unique, but for NULL.
    pub code: Option<u32>,
    /// Made of the version, so that a mixture of two states shows; its length makes records move.
    #[column(max = 4000)]
    pub text: String,
}

impl Tracked {
    /// The definition of a table of such rows whose indexes are all of one kind. Each row is a partition's, by its key.
    pub fn table(name: &str, kind: IndexKind) -> TableDefinition {
        let mut definition = Self::definition().with_name(name).with_primary_kind(kind).with_partition_column(0);
        for index in &mut definition.indexes {
            index.kind = kind;
        }
        definition
    }
}

/// The text of a version: its digits, again and again.
pub(super) fn text(version: Version, length: usize) -> String {
    version.0.to_string().bytes().cycle().take(length).map(char::from).collect()
}

/// Whether the text can belong to the version.
pub(super) fn is_text_of(text: &str, version: u64) -> bool {
    Version(version).is_beside_text() || text.bytes().eq(version.to_string().bytes().cycle().take(text.len()))
}

/// A row's places in its secondary indexes.
pub(super) fn attributes(team: u16, code: Option<u32>) -> Attributes {
    [team.into(), code.map_or(0, |code| code + 1)]
}
