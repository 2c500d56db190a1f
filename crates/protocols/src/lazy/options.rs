//! The knobs of the layer.

use polychron_engine::stores::knobs;

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
        let choices = [("deferred", Resolution::Deferred), ("eager", Resolution::Eager)];
        (name == "resolution").then(|| knobs::choice(name, value, &choices).map(|chosen| self.resolution = chosen))
    }
}
