//! The knobs of this protocol: none.

use polychron_engine::stores::Knobs;

/// Options of Key-Value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {}

impl Knobs for Options {
    fn set(&mut self, name: &str, _: &str) -> Result<(), String> {
        Err(format!("key-value has no option `{name}`"))
    }
}
