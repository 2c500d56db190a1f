//! Durabilities as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use polychron_base::Error;

use super::Durability;

/// Units of time in text, in nanoseconds.
const UNITS: [(&str, u64); 5] = [("ns", 1), ("µs", 1_000), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl fmt::Display for Durability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immediate => out.write_str("immediate"),
            Self::Group(time) => write!(out, "group={time:?}"),
            Self::Eventual(time) => write!(out, "eventual={time:?}"),
            Self::OnCheckpoint => out.write_str("on-checkpoint"),
        }
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = match text.split_once('=') {
            None if text == "immediate" => Some(Self::Immediate),
            None if text == "on-checkpoint" => Some(Self::OnCheckpoint),
            Some(("group", time)) => duration(time).map(Self::Group),
            Some(("eventual", time)) => duration(time).map(Self::Eventual),
            _ => None,
        };
        known.ok_or_else(|| {
            Error::options(format!(
                "durability is immediate, group=TIME, eventual=TIME or on-checkpoint, with times such as 10ms, and not `{text}`"
            ))
        })
    }
}

/// A number and its unit, up to a day.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(digits);
    let nanoseconds = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, nanoseconds)| *nanoseconds)?;
    let number: f64 = number.parse().ok()?;
    let seconds = number * nanoseconds as f64 / 1e9;
    (seconds <= 86_400.0).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_it_is_written() {
        let times = [0, 1, 1_500, 20_000_000, 3_000_000_000, 86_400_000_000_000].map(Duration::from_nanos);
        let levels = times.iter().flat_map(|&time| [Durability::Group(time), Durability::Eventual(time)]);
        for level in levels.chain([Durability::Immediate, Durability::OnCheckpoint]) {
            assert_eq!(level.to_string().parse::<Durability>().ok(), Some(level), "{level}");
        }
        for wrong in [
            "",
            "at once",
            "group",
            "group=",
            "group=5",
            "group=ms",
            "group=-1ms",
            "eventual=1 h",
            "eventual=90000s",
            "group=1.2.3ms",
        ] {
            assert!(wrong.parse::<Durability>().is_err(), "{wrong}");
        }
    }
}
