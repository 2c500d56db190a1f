//! The knobs of this protocol.

use polychron_engine::stores::Knobs;

use super::level::Level;

/// Options of Hekaton.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What transactions are promised of each other.
    pub level: Level,
}

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match (name, value) {
            ("level", "serializable") => self.level = Level::Serializable,
            ("level", "snapshot") => self.level = Level::Snapshot,
            ("level", _) => return Err(format!("`level` is `serializable` or `snapshot`, and not `{value}`")),
            _ => return Err(format!("hekaton has no option `{name}`; it has `level`")),
        }
        Ok(())
    }
}
