//! A protocol's own knobs, set by name from text.

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

/// A protocol's own knobs, each of which has a name.
pub trait Knobs: Clone + Debug + Default + Send + Sync + 'static {
    /// Sets a knob by its name, from text. By default there is none.
    ///
    /// # Errors
    /// There is no knob of that name, or it has no such value: one line that says what there is.
    fn set(&mut self, name: &str, _value: &str) -> Result<(), String> {
        Err(format!("there is no option `{name}`"))
    }
}

/// The value of a knob that has one of a few.
///
/// # Errors
/// The line for [`Knobs::set`], as those below.
pub fn choice<T: Clone>(name: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, chosen)) = choices.iter().find(|(text, _)| *text == value) {
        return Ok(chosen.clone());
    }
    let texts: Vec<_> = choices.iter().map(|(text, _)| format!("`{text}`")).collect();
    let known = match &texts[..] {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => texts.concat(),
    };
    Err(format!("`{name}` is {known}, and not `{value}`"))
}

/// The value of a knob that is on or off.
///
/// # Errors
/// See [`choice`].
pub fn yes_or_no(name: &str, value: &str) -> Result<bool, String> {
    choice(name, value, &[("yes", true), ("no", false)])
}

/// The value of a knob that is a number.
///
/// # Errors
/// See [`choice`].
pub fn number<N: FromStr>(name: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("`{name}` is a number, and not `{value}`"))
}

/// The value of a knob that is a time in microseconds.
///
/// # Errors
/// See [`choice`].
pub fn microseconds(name: &str, value: &str) -> Result<Duration, String> {
    number(name, value).map(Duration::from_micros)
}

/// The value of a knob that is the time between two events in microseconds: it is not 0.
///
/// # Errors
/// See [`choice`].
pub fn interval(name: &str, value: &str) -> Result<Duration, String> {
    let time = microseconds(name, value).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("`{name}` is a number of microseconds above 0, and not `{value}`"))
}

/// The line for a knob that a protocol does not have.
pub fn unknown(protocol: &str, name: &str, known: &str) -> String {
    format!("{protocol} has no option `{name}`; it has {known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_value_is_told_with_those_that_are() {
        assert_eq!(choice("a", "y", &[("x", 1), ("y", 2), ("z", 3)]), Ok(2));
        assert_eq!(
            choice("a", "w", &[("x", 1), ("y", 2), ("z", 3)]),
            Err("`a` is `x`, `y` or `z`, and not `w`".into())
        );
        assert_eq!(choice("a", "w", &[("x", 1)]), Err("`a` is `x`, and not `w`".into()));
        assert_eq!(yes_or_no("a", "1"), Err("`a` is `yes` or `no`, and not `1`".into()));
        assert_eq!(number::<u8>("a", "256"), Err("`a` is a number, and not `256`".into()));
        assert_eq!((microseconds("a", "0"), interval("a", "7")), (Ok(Duration::ZERO), Ok(Duration::from_micros(7))));
        assert!(interval("a", "0").is_err_and(|line| line.contains("above 0")));
    }
}
