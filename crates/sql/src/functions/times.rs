//! Dates, times and spans.

use super::parts::truncated;
use super::{Function, functions};
use crate::casts::midnight;
use crate::datum::{Datum, Interval};
use crate::error::{SqlError, SqlState};
use crate::text::{DATES, DAY, TIMESTAMPS, civil_from_days, days_from_civil, days_of_month, from_local, to_local};
use crate::types::Type;

#[cold]
fn overflow(of: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{of} out of range"))
}

fn date(datum: Datum<'_>) -> i64 {
    if let Datum::Date(days) = datum { days.into() } else { unreachable!("a date") }
}

fn timestamp(datum: Datum<'_>) -> i64 {
    if let Datum::Timestamp(micros) = datum { micros } else { unreachable!("a timestamp") }
}

fn time(datum: Datum<'_>) -> i64 {
    if let Datum::Time(micros) = datum { micros } else { unreachable!("a time") }
}

fn span(datum: Datum<'_>) -> Interval {
    if let Datum::Interval(span) = datum { span } else { unreachable!("a span") }
}

fn int(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

fn is_infinite(micros: i64) -> bool {
    matches!(micros, i64::MIN | i64::MAX)
}

fn is_infinite_date(days: i64) -> bool {
    days == i64::from(i32::MAX) || days == i64::from(i32::MIN)
}

fn days_between<'a>(later: i64, earlier: i64) -> Result<Datum<'a>, SqlError> {
    if is_infinite_date(later) || is_infinite_date(earlier) {
        return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
    }
    crate::casts::in_range((later - earlier).into(), Type::Int4)
}

/// A timestamp a span later, or one that is infinite.
fn timestamp_later<'a>(local: i64, span: Interval) -> Result<Datum<'a>, SqlError> {
    if is_infinite(local) { Ok(Datum::Timestamp(local)) } else { later(local, span).map(Datum::Timestamp) }
}

/// A date so many days later.
fn days_later<'a>(days: i64, count: i64) -> Result<Datum<'a>, SqlError> {
    if is_infinite_date(days) {
        return Ok(Datum::Date(days as i32));
    }
    let later = days + count;
    if DATES.contains(&later) { Ok(Datum::Date(later as i32)) } else { Err(overflow("date")) }
}

/// A local timestamp a span later: months first, whose last days count where a month is shorter, then days, then the rest.
pub(crate) fn later(local: i64, span: Interval) -> Result<i64, SqlError> {
    let bad = || overflow("timestamp");
    let (mut days, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    if span.months != 0 {
        let (year, month, day) = civil_from_days(days);
        let months = year * 12 + i64::from(month) - 1 + i64::from(span.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        days = days_from_civil(year, month, day.min(days_of_month(year, month)));
    }
    let days = days + i64::from(span.days);
    let micros = days.checked_mul(DAY).and_then(|micros| micros.checked_add(time)).ok_or_else(bad)?;
    micros.checked_add(span.micros).filter(|micros| TIMESTAMPS.contains(micros)).ok_or_else(bad)
}

/// A time of day so much later: behind midnight the clock begins anew, and days and months move no clock.
fn clock_later<'a>(micros: i64, count: i128) -> Datum<'a> {
    Datum::Time((i128::from(micros) + count).rem_euclid(DAY.into()) as i64)
}

fn negated(span: Interval) -> Result<Interval, SqlError> {
    let bad = || overflow("interval");
    Ok(Interval {
        months: span.months.checked_neg().ok_or_else(bad)?,
        days: span.days.checked_neg().ok_or_else(bad)?,
        micros: span.micros.checked_neg().ok_or_else(bad)?,
    })
}

pub(crate) fn sum(a: Interval, b: Interval) -> Result<Interval, SqlError> {
    let bad = || overflow("interval");
    Ok(Interval {
        months: a.months.checked_add(b.months).ok_or_else(bad)?,
        days: a.days.checked_add(b.days).ok_or_else(bad)?,
        micros: a.micros.checked_add(b.micros).ok_or_else(bad)?,
    })
}

/// The span between two timestamps, in days and what is left.
fn between(later: i64, earlier: i64) -> Result<Interval, SqlError> {
    if is_infinite(later) || is_infinite(earlier) {
        return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps"));
    }
    let micros = later.checked_sub(earlier).ok_or_else(|| overflow("interval"))?;
    Ok(Interval { months: 0, days: (micros / DAY) as i32, micros: micros % DAY })
}

/// A span times a number.
fn times(span: Interval, factor: f64) -> Result<Interval, SqlError> {
    scaled(span, |part| part * factor)
}

/// A span of which a number makes one part of so many.
pub(crate) fn divided(span: Interval, divisor: f64) -> Result<Interval, SqlError> {
    scaled(span, |part| part / divisor)
}

/// A span of which each part is scaled: parts of months become days, and parts of days the rest, to the microsecond.
fn scaled(span: Interval, scale: impl Fn(f64) -> f64) -> Result<Interval, SqlError> {
    let fits = |value: f64, most: f64| if value.abs() <= most { Ok(value) } else { Err(overflow("interval")) };
    let to_micros = |value: f64| (value * 1e6).round_ties_even() / 1e6;
    let months = fits(scale(span.months.into()), i32::MAX.into())?;
    let days = fits(scale(span.days.into()), i32::MAX.into())?;
    let of_months = to_micros((months - months.trunc()) * 30.0);
    let seconds_of_day = DAY as f64 / 1e6;
    let seconds = to_micros((days - days.trunc() + (of_months - of_months.trunc())) * seconds_of_day);
    // Parts of both may make a whole day.
    let carried = (seconds / seconds_of_day).trunc();
    let days = fits(days.trunc() + of_months.trunc() + carried, i32::MAX.into())?;
    let micros = scale(span.micros as f64) + (seconds - carried * seconds_of_day) * 1e6;
    let micros = fits(micros.round_ties_even(), 9.2e18)? as i64;
    Ok(Interval { months: months as i32, days: days as i32, micros })
}

/// The year and the week of a day by ISO 8601: the first week has the year's first Thursday.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let (year, ..) = civil_from_days(thursday);
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "+"(Date, Int4) -> Date = |it, _| days_later(date(it[0]), int(it[1]));
    "+"(Int4, Date) -> Date = |it, _| days_later(date(it[1]), int(it[0]));
    "-"(Date, Int4) -> Date = |it, _| days_later(date(it[0]), -int(it[1]));
    "-"(Date, Date) -> Int4 = |it, _| days_between(date(it[0]), date(it[1]));
    "+"(Date, Interval) -> Timestamp = |it, _| timestamp_later(midnight(it[0])?, span(it[1]));
    "+"(Interval, Date) -> Timestamp = |it, _| timestamp_later(midnight(it[1])?, span(it[0]));
    "-"(Date, Interval) -> Timestamp = |it, _| timestamp_later(midnight(it[0])?, negated(span(it[1]))?);
    "+"(Timestamp, Interval) -> Timestamp = |it, _| timestamp_later(timestamp(it[0]), span(it[1]));
    "+"(Interval, Timestamp) -> Timestamp = |it, _| timestamp_later(timestamp(it[1]), span(it[0]));
    "-"(Timestamp, Interval) -> Timestamp = |it, _| timestamp_later(timestamp(it[0]), negated(span(it[1]))?);
    "+"(Timestamptz, Interval) -> Timestamptz = |it, context| zoned(context, timestamp(it[0]), span(it[1]));
    "+"(Interval, Timestamptz) -> Timestamptz = |it, context| zoned(context, timestamp(it[1]), span(it[0]));
    "-"(Timestamptz, Interval) -> Timestamptz = |it, context| zoned(context, timestamp(it[0]), negated(span(it[1]))?);
    "-"(Timestamp, Timestamp) -> Interval = |it, _| between(timestamp(it[0]), timestamp(it[1])).map(Datum::Interval);
    "-"(Timestamptz, Timestamptz) -> Interval = |it, _| between(timestamp(it[0]), timestamp(it[1])).map(Datum::Interval);
    "+"(Interval, Interval) -> Interval = |it, _| sum(span(it[0]), span(it[1])).map(Datum::Interval);
    "-"(Interval, Interval) -> Interval = |it, _| sum(span(it[0]), negated(span(it[1]))?).map(Datum::Interval);
    "+"(Time, Interval) -> Time = |it, _| Ok(clock_later(time(it[0]), span(it[1]).micros.into()));
    "+"(Interval, Time) -> Time = |it, _| Ok(clock_later(time(it[1]), span(it[0]).micros.into()));
    "-"(Time, Interval) -> Time = |it, _| Ok(clock_later(time(it[0]), -i128::from(span(it[1]).micros)));
    "-"(Time, Time) -> Interval = |it, _| {
        Ok(Datum::Interval(Interval { months: 0, days: 0, micros: time(it[0]) - time(it[1]) }))
    };
    "-"(Interval) -> Interval = |it, _| negated(span(it[0])).map(Datum::Interval);
    "*"(Interval, Float8) -> Interval = |it, _| {
        let Datum::Float(factor) = it[1] else { unreachable!("a float") };
        times(span(it[0]), factor).map(Datum::Interval)
    };
    "*"(Float8, Interval) -> Interval = |it, _| {
        let Datum::Float(factor) = it[0] else { unreachable!("a float") };
        times(span(it[1]), factor).map(Datum::Interval)
    };
    "/"(Interval, Float8) -> Interval = |it, _| {
        let Datum::Float(divisor) = it[1] else { unreachable!("a float") };
        if divisor == 0.0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        divided(span(it[0]), divisor).map(Datum::Interval)
    };
    "date_trunc"(Text, Timestamp) -> Timestamp = |it, _| {
        let local = timestamp(it[1]);
        if is_infinite(local) { Ok(it[1]) } else { truncated(text(it[0]), local, Type::Timestamp).map(Datum::Timestamp) }
    };
    "date_trunc"(Text, Timestamptz) -> Timestamptz = |it, context| {
        let micros = timestamp(it[1]);
        if is_infinite(micros) {
            return Ok(it[1]);
        }
        let local = truncated(text(it[0]), to_local(micros, context.zone), Type::Timestamptz)?;
        Ok(Datum::Timestamp(from_local(local, context.zone)))
    };
    "date_trunc"(Text, Timestamptz, Text) -> Timestamptz = |it, _| {
        let (micros, zone) = (timestamp(it[1]), super::calendars::zone(text(it[2]))?);
        if is_infinite(micros) {
            return Ok(it[1]);
        }
        let local = truncated(text(it[0]), to_local(micros, &zone), Type::Timestamptz)?;
        Ok(Datum::Timestamp(from_local(local, &zone)))
    };
    "now"() -> Timestamptz = |_, context| Ok(Datum::Timestamp(context.now.get()));
    "transaction_timestamp"() -> Timestamptz = |_, context| Ok(Datum::Timestamp(context.now.get()));
    "statement_timestamp"() -> Timestamptz = |_, context| Ok(Datum::Timestamp(context.now.get()));
};

/// A timestamp and a span, by the clock of the session's zone as far as the span has months and days.
fn zoned<'a>(context: &crate::context::Context<'a>, micros: i64, span: Interval) -> Result<Datum<'a>, SqlError> {
    if is_infinite(micros) {
        return Ok(Datum::Timestamp(micros));
    }
    let by_clock = if span.months == 0 && span.days == 0 {
        micros
    } else {
        let local = later(to_local(micros, context.zone), Interval { micros: 0, ..span })?;
        from_local(local, context.zone)
    };
    by_clock.checked_add(span.micros).map(Datum::Timestamp).ok_or_else(|| overflow("timestamp"))
}
