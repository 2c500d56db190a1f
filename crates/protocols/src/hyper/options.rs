//! The knobs of this protocol.

/// Options of HyPer's MVCC.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// In which order the words of a page's rows lie.
    pub backend: Backend,
}

/// The two ways in which rows lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// A row's words one behind the other: best for point accesses, and so the default.
    #[default]
    Rows,
    /// The same word of all rows of a page one behind the other, so that a column of eight bytes is a plain slice.
    Columns,
}

impl Options {
    /// Sets an option by its name.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match (name, value) {
            ("backend", "rows") => self.backend = Backend::Rows,
            ("backend", "columns") => self.backend = Backend::Columns,
            ("backend", _) => return Err(format!("`backend` is `rows` or `columns`, and not `{value}`")),
            _ => return Err(format!("hyper has no option `{name}`; it has `backend`")),
        }
        Ok(())
    }
}
