//! Spans of time.

use std::fmt::{self, Write};

use super::{DAY, invalid};
use crate::datum::Interval;
use crate::error::{SqlError, SqlState};
use crate::types::Type;

/// How much one of a unit is: months, days and microseconds. No two units are equal.
type Unit = (f64, f64, f64);

const SECOND: f64 = 1e6;

/// The units of a clock; a second with digits behind its point has the first three.
const CLOCK: [Unit; 5] =
    [(0.0, 0.0, 1.0), (0.0, 0.0, 1e3), (0.0, 0.0, SECOND), (0.0, 0.0, 60.0 * SECOND), (0.0, 0.0, 3600.0 * SECOND)];

const DAYS: Unit = (0.0, 1.0, 0.0);

const MONTHS: Unit = (1.0, 0.0, 0.0);

fn unit(word: &str) -> Option<Unit> {
    let lower = word.to_ascii_lowercase();
    Some(match lower.as_str() {
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => (0.0, 0.0, 1.0),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => (0.0, 0.0, 1e3),
        "s" | "sec" | "secs" | "second" | "seconds" => (0.0, 0.0, SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => (0.0, 0.0, 60.0 * SECOND),
        "h" | "hr" | "hrs" | "hour" | "hours" => (0.0, 0.0, 3600.0 * SECOND),
        "d" | "day" | "days" => (0.0, 1.0, 0.0),
        "w" | "week" | "weeks" => (0.0, 7.0, 0.0),
        "mon" | "mons" | "month" | "months" => (1.0, 0.0, 0.0),
        "y" | "yr" | "yrs" | "year" | "years" => (12.0, 0.0, 0.0),
        "decade" | "decades" => (120.0, 0.0, 0.0),
        "century" | "centuries" | "c" => (1200.0, 0.0, 0.0),
        "millennium" | "millennia" | "mil" => (12_000.0, 0.0, 0.0),
        _ => return None,
    })
}

/// A sum of units, of which parts go down to the next smaller one: half a month is 15 days, half a day is 12 hours.
#[derive(Default)]
struct Sum {
    months: f64,
    days: f64,
    micros: f64,
    /// Of clocks: more digits than a float has.
    clock: i128,
    /// The units that words have had.
    units: Vec<Unit>,
}

impl Sum {
    fn add(&mut self, count: f64, (months, days, micros): Unit) {
        let is_of_years = months > 1.0;
        let months = months * count;
        // Parts of years become whole months.
        let months = if is_of_years { months.round_ties_even() } else { months };
        let days = days * count + (months - months.trunc()) * 30.0;
        // Rounded first, so that a tenth of a month is three days and not a microsecond less.
        let days = (days * 1e9).round() / 1e9;
        self.months += months.trunc();
        self.days += days.trunc();
        self.micros += micros * count + (days - days.trunc()) * DAY as f64;
    }

    /// Notes units, of which a text has each once.
    fn note(&mut self, units: &[Unit]) -> Option<()> {
        let is_new = !units.iter().any(|unit| self.units.contains(unit));
        self.units.extend(units);
        is_new.then_some(())
    }

    fn add_once(&mut self, count: f64, unit: Unit) -> Option<()> {
        let has_parts = unit == CLOCK[2] && count.fract() != 0.0;
        self.note(if has_parts { &CLOCK[..3] } else { std::slice::from_ref(&unit) })?;
        self.add(count, unit);
        Some(())
    }

    fn interval(&self, sign: f64) -> Option<Interval> {
        let fits = |value: f64| {
            let value = value * sign;
            (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value).then_some(value as i32)
        };
        let micros = (self.micros.abs() < 1e19).then_some(self.micros.round() as i128 + self.clock)?;
        let micros = if sign < 0.0 { -micros } else { micros };
        Some(Interval { months: fits(self.months)?, days: fits(self.days)?, micros: i64::try_from(micros).ok()? })
    }
}

pub(super) fn read(text: &str, trimmed: &str) -> Result<Interval, SqlError> {
    let sum = match trimmed.strip_prefix(['P', 'p']) {
        Some(iso) => read_iso(iso).map(|sum| (sum, 1.0)),
        None => read_words(trimmed),
    };
    let (sum, sign) = sum.ok_or_else(|| invalid(Type::Interval, text))?;
    let overflow =
        || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("interval field value out of range: \"{text}\""));
    sum.interval(sign).ok_or_else(overflow)
}

/// `1 year 2 mons -04:05:06 ago`.
fn read_words(text: &str) -> Option<(Sum, f64)> {
    let (mut sum, mut sign, mut count, mut is_empty) = (Sum::default(), 1.0, None, true);
    for word in text.split_ascii_whitespace() {
        let word = word.strip_prefix('@').unwrap_or(word);
        if word.eq_ignore_ascii_case("ago") {
            sign = -1.0;
        } else if word.is_empty() {
        } else if word.contains(':') {
            if let Some(days) = count.take() {
                sum.add_once(days, DAYS)?;
            }
            sum.note(&CLOCK)?;
            sum.clock += read_clock(word)?;
            is_empty = false;
        } else if let Some((years, months)) = year_and_month(word) {
            if count.is_some() {
                return None;
            }
            sum.note(&[MONTHS])?;
            sum.months += years * 12.0 + months;
            is_empty = false;
        } else if let Some(count) = count.take() {
            sum.add_once(count, unit(word)?)?;
        } else {
            let end = word.find(|it: char| it.is_ascii_alphabetic()).unwrap_or(word.len());
            let number: f64 = word[..end].parse().ok()?;
            match &word[end..] {
                "" => count = Some(number),
                unit_of => sum.add_once(number, unit(unit_of)?)?,
            }
            is_empty = false;
        }
    }
    if let Some(seconds) = count {
        // A number alone is one of seconds.
        sum.add_once(seconds, CLOCK[2])?;
    }
    (!is_empty).then_some((sum, sign))
}

/// `1-2`: years and months, as the standard has it.
fn year_and_month(word: &str) -> Option<(f64, f64)> {
    let (sign, rest) = word.strip_prefix('-').map_or((1.0, word), |rest| (-1.0, rest));
    let (years, months) = rest.split_once('-')?;
    Some((sign * years.parse::<u32>().ok().map(f64::from)?, sign * months.parse::<u32>().ok().map(f64::from)?))
}

/// Microseconds of `[-]04:05[:06.789]`.
fn read_clock(word: &str) -> Option<i128> {
    let (sign, rest) = match word.as_bytes()[0] {
        b'-' => (-1, &word[1..]),
        b'+' => (1, &word[1..]),
        _ => (1, word),
    };
    let mut parts = rest.split(':');
    let hours: u32 = parts.next()?.parse().ok()?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|minutes| *minutes < 60)?;
    let seconds: f64 = parts.next().map_or(Some(0.0), |it| it.parse().ok()).filter(|it| (0.0..60.0).contains(it))?;
    let whole = i128::from(hours) * 3600 + i128::from(minutes) * 60;
    parts.next().is_none().then_some(sign * (whole * 1_000_000 + (seconds * 1e6).round() as i128))
}

/// What follows the `P` of ISO 8601.
fn read_iso(text: &str) -> Option<Sum> {
    let (mut sum, mut rest, mut is_time) = (Sum::default(), text, false);
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(['T', 't']) {
            (rest, is_time) = (behind, true);
            continue;
        }
        let end = rest.find(|it: char| it.is_ascii_alphabetic())?;
        let count: f64 = rest[..end].parse().ok()?;
        let of = match (rest.as_bytes()[end].to_ascii_uppercase(), is_time) {
            (b'Y', false) => "year",
            (b'M', false) => "month",
            (b'W', false) => "week",
            (b'D', false) => "day",
            (b'H', true) => "hour",
            (b'M', true) => "minute",
            (b'S', true) => "second",
            _ => return None,
        };
        sum.add(count, unit(of)?);
        rest = &rest[end + 1..];
    }
    (!text.is_empty()).then_some(sum)
}

/// Appends a span in the style `postgres`.
pub(super) fn format(interval: Interval, out: &mut String) -> fmt::Result {
    let Interval { months, days, micros } = interval;
    let (mut is_first, mut was_negative) = (true, false);
    let mut part = |out: &mut String, count: i32, name: &str| -> fmt::Result {
        if count == 0 {
            return Ok(());
        }
        let space = if is_first { "" } else { " " };
        let sign = if was_negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        (is_first, was_negative) = (false, count < 0);
        write!(out, "{space}{sign}{count} {name}{plural}")
    };
    part(out, months / 12, "year")?;
    part(out, months % 12, "mon")?;
    part(out, days, "day")?;
    if micros == 0 && !is_first {
        return Ok(());
    }
    let space = if is_first { "" } else { " " };
    let sign = if micros < 0 {
        "-"
    } else if was_negative {
        "+"
    } else {
        ""
    };
    let (all, fraction) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
    write!(out, "{space}{sign}{:02}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60)?;
    if fraction > 0 {
        out.write_str(format!(".{fraction:06}").trim_end_matches('0'))?;
    }
    Ok(())
}
