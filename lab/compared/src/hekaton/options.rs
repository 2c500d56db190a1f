//! The knobs of this protocol.

use polychron_engine::stores::knobs::{self, Knobs};

use super::level::Level;

/// Options of Hekaton.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What transactions are promised of each other.
    pub level: Level,
}

impl Knobs for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name != "level" {
            return Err(knobs::unknown("hekaton", name, "`level`"));
        }
        let levels = [("serializable", Level::Serializable), ("snapshot", Level::Snapshot)];
        self.level = knobs::choice(name, value, &levels)?;
        Ok(())
    }
}
