//! Parts of dates, times and spans (`extract`, `date_part`), their beginnings, and bins of time.

use super::times::iso_week;
use super::{Function, functions};
use crate::datum::{Datum, Interval};
use crate::decimal::Decimal;
use crate::error::{SqlError, SqlState};
use crate::text::{DAY, civil_from_days, days_from_civil, to_local};
use crate::types::Type;

/// The units by the names that they have, the first of which is that of the unit.
const UNITS: [&[&str]; 22] = [
    &["microseconds", "microsecond", "us", "usec", "usecs", "usecond", "useconds"],
    &["milliseconds", "millisecond", "ms", "msec", "msecs", "msecond", "mseconds"],
    &["second", "seconds", "s", "sec", "secs"],
    &["minute", "minutes", "m", "min", "mins"],
    &["hour", "hours", "h", "hr", "hrs"],
    &["day", "days", "d"],
    &["week", "weeks", "w"],
    &["month", "months", "mon", "mons"],
    &["quarter", "qtr"],
    &["year", "years", "y", "yr", "yrs"],
    &["decade", "decades", "dec", "decs"],
    &["century", "centuries", "c", "cent"],
    &["millennium", "millennia", "mil", "mils"],
    &["epoch"],
    &["julian", "jd", "j"],
    &["isoyear"],
    &["dow"],
    &["isodow"],
    &["doy"],
    &["timezone"],
    &["timezone_hour", "timezone_h"],
    &["timezone_minute", "timezone_m"],
];

/// The unit of a name.
fn unit_of(name: &str, of: Type) -> Result<&'static str, SqlError> {
    let lower = name.to_lowercase();
    let known = UNITS.iter().find(|names| names.contains(&lower.as_str()));
    known.map(|names| names[0]).ok_or_else(|| unknown(&lower, of))
}

fn unknown(unit: &str, of: Type) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unit \"{unit}\" not recognized for type {of}"))
}

/// That the type has no such unit.
fn no_unit(unit: &str, of: Type) -> SqlError {
    SqlError::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("unit \"{}\" not supported for type {of}", unit.to_lowercase()),
    )
}

fn out_of_range(what: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"))
}

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn timestamp(datum: Datum<'_>) -> i64 {
    if let Datum::Timestamp(micros) = datum { micros } else { unreachable!("a timestamp") }
}

fn span(datum: Datum<'_>) -> Interval {
    if let Datum::Interval(span) = datum { span } else { unreachable!("a span") }
}

/// A part of a value.
enum Part {
    Number(Decimal),
    /// Endless as the value is.
    Endless {
        is_negative: bool,
    },
    /// What an endless value does not have.
    None,
}

impl Part {
    fn exact<'a>(self) -> Result<Datum<'a>, SqlError> {
        match self {
            Self::Number(number) => Ok(Datum::Numeric(number)),
            Self::Endless { .. } => Err(SqlError::unsupported("a numeric that is no number, or infinite,")),
            Self::None => Ok(Datum::Null),
        }
    }

    fn float<'a>(self) -> Datum<'a> {
        match self {
            Self::Number(number) => Datum::Float(number.to_float()),
            Self::Endless { is_negative } => Datum::Float(if is_negative { f64::NEG_INFINITY } else { f64::INFINITY }),
            Self::None => Datum::Null,
        }
    }
}

fn whole(value: i64) -> Decimal {
    Decimal::new(value.into(), 0)
}

/// What units find in a value that has no end.
fn of_endless(unit: &str, is_negative: bool) -> Part {
    match unit {
        "year" | "decade" | "century" | "millennium" | "epoch" | "julian" | "isoyear" => Part::Endless { is_negative },
        _ => Part::None,
    }
}

/// What a unit finds in the time of a day.
fn of_clock(unit: &str, time: i64) -> Option<Decimal> {
    Some(match unit {
        "hour" => whole(time / 3_600_000_000),
        "minute" => whole(time / 60_000_000 % 60),
        "second" => Decimal::new((time % 60_000_000).into(), 6),
        "milliseconds" => Decimal::new((time % 60_000_000).into(), 3),
        "microseconds" => whole(time % 60_000_000),
        _ => return None,
    })
}

/// What a unit finds in a day.
fn of_day(unit: &str, days: i64) -> Option<i64> {
    let (year, month, day) = civil_from_days(days);
    // No year is 0.
    let shown = |year: i64| if year > 0 { year } else { year - 1 };
    let of_length = |length: i64| {
        if year > 0 { (year + length - 1) / length } else { -((length - year) / length) }
    };
    Some(match unit {
        "day" => day.into(),
        "week" => iso_week(days).1,
        "month" => month.into(),
        "quarter" => i64::from((month - 1) / 3 + 1),
        "year" => shown(year),
        "decade" => year.div_euclid(10),
        "century" => of_length(100),
        "millennium" => of_length(1000),
        "isoyear" => shown(iso_week(days).0),
        "dow" => (days + 4).rem_euclid(7),
        "isodow" => (days + 3).rem_euclid(7) + 1,
        "doy" => days - days_from_civil(year, 1, 1) + 1,
        "julian" => days + 2_440_588,
        _ => return None,
    })
}

/// A part of a timestamp: its local time, and how far that is ahead of UTC where the type has a zone.
fn of_timestamp(name: &str, micros: i64, ahead: Option<i64>) -> Result<Part, SqlError> {
    let of = if ahead.is_some() { Type::Timestamptz } else { Type::Timestamp };
    let unit = unit_of(name, of)?;
    if matches!(micros, i64::MIN | i64::MAX) {
        return Ok(of_endless(unit, micros < 0));
    }
    let ahead_by = ahead.unwrap_or_default();
    let local = i128::from(micros) + i128::from(ahead_by);
    let (days, time) = (local.div_euclid(DAY.into()) as i64, local.rem_euclid(DAY.into()) as i64);
    let number = match (unit, ahead) {
        ("epoch", _) => Decimal::new(micros.into(), 6),
        ("julian", _) => whole(days + 2_440_588).add(whole(time).divide(whole(DAY))?)?,
        ("timezone", Some(_)) => whole(ahead_by / 1_000_000),
        ("timezone_hour", Some(_)) => whole(ahead_by / 3_600_000_000),
        ("timezone_minute", Some(_)) => whole(ahead_by / 60_000_000 % 60),
        _ => {
            let found = of_clock(unit, time).or_else(|| of_day(unit, days).map(whole));
            found.ok_or_else(|| no_unit(name, of))?
        }
    };
    Ok(Part::Number(number))
}

fn of_date(name: &str, days: i32) -> Result<Part, SqlError> {
    let unit = unit_of(name, Type::Date)?;
    let day = i64::from(days);
    let number = if unit == "epoch" { Some(day * (DAY / 1_000_000)) } else { of_day(unit, day) };
    let number = number.ok_or_else(|| no_unit(name, Type::Date))?;
    Ok(if matches!(days, i32::MIN | i32::MAX) { of_endless(unit, days < 0) } else { Part::Number(whole(number)) })
}

fn of_time(name: &str, micros: i64) -> Result<Part, SqlError> {
    let unit = unit_of(name, Type::Time)?;
    let found = if unit == "epoch" { Some(Decimal::new(micros.into(), 6)) } else { of_clock(unit, micros) };
    found.map(Part::Number).ok_or_else(|| no_unit(name, Type::Time))
}

fn of_span(name: &str, span: Interval) -> Result<Part, SqlError> {
    let unit = unit_of(name, Type::Interval)?;
    let (year, month) = (i64::from(span.months / 12), i64::from(span.months % 12));
    let number = match unit {
        "day" => span.days.into(),
        "month" => month,
        "quarter" => month / 3 + 1,
        "year" => year,
        "decade" => year / 10,
        "century" => year / 100,
        "millennium" => year / 1000,
        "hour" => span.micros / 3_600_000_000,
        "epoch" => {
            // A year has 365 days and a quarter, and a month that is over has thirty.
            let quarters = i128::from(year) * 1461 + (i128::from(month) * 30 + i128::from(span.days)) * 4;
            return Ok(Part::Number(Decimal::new(quarters * i128::from(DAY / 4) + i128::from(span.micros), 6)));
        }
        _ => {
            let found = of_clock(unit, span.micros).map(Part::Number);
            return found.ok_or_else(|| no_unit(name, Type::Interval));
        }
    };
    Ok(Part::Number(whole(number)))
}

/// A span without what is less than a unit.
fn truncated_span(name: &str, span: Interval) -> Result<Interval, SqlError> {
    let unit = unit_of(name, Type::Interval)?;
    let of_months = |months: i32| Interval { months: span.months / months * months, days: 0, micros: 0 };
    let of_micros = |micros: i64| Interval { micros: span.micros / micros * micros, ..span };
    Ok(match unit {
        "millennium" => of_months(12_000),
        "century" => of_months(1_200),
        "decade" => of_months(120),
        "year" => of_months(12),
        "quarter" => of_months(3),
        "month" => of_months(1),
        "day" => Interval { micros: 0, ..span },
        "hour" => of_micros(3_600_000_000),
        "minute" => of_micros(60_000_000),
        "second" => of_micros(1_000_000),
        "milliseconds" => of_micros(1_000),
        "microseconds" => span,
        "week" => {
            let error = no_unit(name, Type::Interval);
            return Err(error.with_detail("Months usually have fractional weeks."));
        }
        _ => return Err(unknown(&name.to_lowercase(), Type::Interval)),
    })
}

/// The beginning of the unit that a local timestamp lies in.
pub(super) fn truncated(name: &str, local: i64, of: Type) -> Result<i64, SqlError> {
    let unit = unit_of(name, of)?;
    let (days, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let (year, month, _) = civil_from_days(days);
    let first = |year: i64, month: u32| days_from_civil(year, month, 1);
    // The first year of a century is the one behind those that it divides.
    let of_length = |length: i64| first((year + length - 1).div_euclid(length) * length - length + 1, 1);
    let clock = |micros: i64| (days, time / micros * micros);
    let (day, time) = match unit {
        "microseconds" => (days, time),
        "milliseconds" => clock(1_000),
        "second" => clock(1_000_000),
        "minute" => clock(60_000_000),
        "hour" => clock(3_600_000_000),
        "day" => (days, 0),
        "week" => (days - (days + 3).rem_euclid(7), 0),
        "month" => (first(year, month), 0),
        "quarter" => (first(year, (month - 1) / 3 * 3 + 1), 0),
        "year" => (first(year, 1), 0),
        "decade" => (first(year.div_euclid(10) * 10, 1), 0),
        "century" => (of_length(100), 0),
        "millennium" => (of_length(1000), 0),
        _ => return Err(unknown(&name.to_lowercase(), of)),
    };
    let micros = day.checked_mul(DAY).and_then(|midnight| midnight.checked_add(time));
    micros.filter(|micros| crate::text::TIMESTAMPS.contains(micros)).ok_or_else(|| out_of_range("timestamp"))
}

/// The beginning of the bin that a timestamp lies in, of those that are one stride long and of which one begins at the origin.
fn bin(stride: Interval, micros: i64, origin: i64) -> Result<i64, SqlError> {
    if matches!(micros, i64::MIN | i64::MAX) {
        return Ok(micros);
    }
    if matches!(origin, i64::MIN | i64::MAX) {
        return Err(out_of_range("origin"));
    }
    if stride.months != 0 {
        let message = "timestamps cannot be binned into intervals containing months or years";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let length = i64::from(stride.days).checked_mul(DAY).and_then(|days| days.checked_add(stride.micros));
    let length = length.ok_or_else(|| out_of_range("interval"))?;
    if length <= 0 {
        return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "stride must be greater than zero"));
    }
    let since = micros.checked_sub(origin).ok_or_else(|| out_of_range("interval"))?;
    let start = origin.checked_add(since.div_euclid(length) * length);
    start.filter(|start| crate::text::TIMESTAMPS.contains(start)).ok_or_else(|| out_of_range("timestamp"))
}

/// A span of years, months, weeks, days, hours, minutes and seconds, as far as they are given.
fn made<'a>(it: &[Datum<'_>]) -> Result<Datum<'a>, SqlError> {
    let part = |at: usize| it.get(at).map_or(0, |value| if let Datum::Int(value) = value { *value } else { 0 });
    let seconds = if let Some(Datum::Float(seconds)) = it.get(6) { *seconds } else { 0.0 };
    let out = || out_of_range("interval");
    let micros = (seconds * 1e6).round_ties_even();
    if !seconds.is_finite() || micros.abs() > 9.2e18 {
        return Err(out());
    }
    let clock = part(4) * 3_600_000_000 + part(5) * 60_000_000;
    let months = i32::try_from(part(0) * 12 + part(1)).map_err(|_| out())?;
    let days = i32::try_from(part(2) * 7 + part(3)).map_err(|_| out())?;
    let micros = clock.checked_add(micros as i64).ok_or_else(out)?;
    Ok(Datum::Interval(Interval { months, days, micros }))
}

/// The names of the parts of `make_interval`, in their order.
pub(crate) const PARTS_OF_SPAN: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

pub(super) const FUNCTIONS: &[Function] = functions! {
    "extract"(Text, Timestamp) -> Numeric = |it, _| of_timestamp(text(it[0]), timestamp(it[1]), None)?.exact();
    "extract"(Text, Timestamptz) -> Numeric = |it, context| {
        let micros = timestamp(it[1]);
        of_timestamp(text(it[0]), micros, Some(to_local(micros, context.zone).wrapping_sub(micros)))?.exact()
    };
    "extract"(Text, Date) -> Numeric = |it, _| {
        let Datum::Date(days) = it[1] else { unreachable!("a date") };
        of_date(text(it[0]), days)?.exact()
    };
    "extract"(Text, Time) -> Numeric = |it, _| {
        let Datum::Time(micros) = it[1] else { unreachable!("a time") };
        of_time(text(it[0]), micros)?.exact()
    };
    "extract"(Text, Interval) -> Numeric = |it, _| of_span(text(it[0]), span(it[1]))?.exact();
    "date_part"(Text, Timestamp) -> Float8 = |it, _| Ok(of_timestamp(text(it[0]), timestamp(it[1]), None)?.float());
    "date_part"(Text, Timestamptz) -> Float8 = |it, context| {
        let micros = timestamp(it[1]);
        Ok(of_timestamp(text(it[0]), micros, Some(to_local(micros, context.zone).wrapping_sub(micros)))?.float())
    };
    "date_part"(Text, Date) -> Float8 = |it, _| {
        let local = crate::casts::midnight(it[1])?;
        Ok(of_timestamp(text(it[0]), local, None)?.float())
    };
    "date_part"(Text, Time) -> Float8 = |it, _| {
        let Datum::Time(micros) = it[1] else { unreachable!("a time") };
        Ok(of_time(text(it[0]), micros)?.float())
    };
    "date_part"(Text, Interval) -> Float8 = |it, _| Ok(of_span(text(it[0]), span(it[1]))?.float());
    "date_trunc"(Text, Interval) -> Interval = |it, _| truncated_span(text(it[0]), span(it[1])).map(Datum::Interval);
    "date_bin"(Interval, Timestamp, Timestamp) -> Timestamp = |it, _| {
        bin(span(it[0]), timestamp(it[1]), timestamp(it[2])).map(Datum::Timestamp)
    };
    "date_bin"(Interval, Timestamptz, Timestamptz) -> Timestamptz = |it, _| {
        bin(span(it[0]), timestamp(it[1]), timestamp(it[2])).map(Datum::Timestamp)
    };
    "make_interval"() -> Interval = |it, _| made(it);
    "make_interval"(Int4) -> Interval = |it, _| made(it);
    "make_interval"(Int4, Int4) -> Interval = |it, _| made(it);
    "make_interval"(Int4, Int4, Int4) -> Interval = |it, _| made(it);
    "make_interval"(Int4, Int4, Int4, Int4) -> Interval = |it, _| made(it);
    "make_interval"(Int4, Int4, Int4, Int4, Int4) -> Interval = |it, _| made(it);
    "make_interval"(Int4, Int4, Int4, Int4, Int4, Int4) -> Interval = |it, _| made(it);
    "make_interval"(Int4, Int4, Int4, Int4, Int4, Int4, Float8) -> Interval = |it, _| made(it);
};
