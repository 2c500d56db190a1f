//! The knobs of the layer.

/// Options of the layer, and of the base protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<O> {
    /// Those of the base protocol.
    pub base: O,
    /// When futures are resolved.
    pub resolution: Resolution,
}

/// When futures are resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolution {
    /// At the commit.
    #[default]
    Deferred,
    /// At once, as in every other protocol: for comparison.
    Eager,
}

impl<O> Options<O> {
    /// Sets an option of the layer by its name. `None`: it is none of the layer's.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        match (name, value) {
            ("resolution", "deferred") => self.resolution = Resolution::Deferred,
            ("resolution", "eager") => self.resolution = Resolution::Eager,
            ("resolution", _) => {
                return Some(Err(format!("`resolution` is `deferred` or `eager`, and not `{value}`")));
            }
            _ => return None,
        }
        Some(Ok(()))
    }
}
