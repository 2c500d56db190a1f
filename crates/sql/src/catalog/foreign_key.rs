//! Foreign keys, as they are described.

use serde::{Deserialize, Serialize};

use crate::names::Name;

/// A foreign key. Columns are named as in the tables' descriptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForeignKey {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) parent: Name,
    /// A key of the parent.
    pub(crate) parents: Vec<String>,
    pub(crate) on_delete: ForeignAction,
    pub(crate) on_update: ForeignAction,
    pub(crate) deferrable: bool,
    pub(crate) deferred: bool,
}

/// What becomes of children whose parent goes, or gets another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ForeignAction {
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}
