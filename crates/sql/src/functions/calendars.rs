//! Ages, zones, and times that are made of their parts.

use super::times::later;
use super::{Function, functions};
use crate::context::now;
use crate::datum::{Datum, Interval};
use crate::error::{SqlError, SqlState};
use crate::tape::volatile;
use crate::text::{
    DATES, DAY, TIMESTAMPS, Zone, civil_from_days, days_from_civil, days_of_month, from_local, to_local,
};

fn timestamp(datum: Datum<'_>) -> i64 {
    if let Datum::Timestamp(micros) = datum { micros } else { unreachable!("a timestamp") }
}

fn span(datum: Datum<'_>) -> Interval {
    if let Datum::Interval(span) = datum { span } else { unreachable!("a span") }
}

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn int(datum: Datum<'_>) -> i64 {
    if let Datum::Int(value) = datum { value } else { unreachable!("an integer") }
}

fn float(datum: Datum<'_>) -> f64 {
    if let Datum::Float(value) = datum { value } else { unreachable!("a float") }
}

const fn is_infinite(micros: i64) -> bool {
    micros == i64::MIN || micros == i64::MAX
}

pub(super) fn zone(name: &str) -> Result<Zone, SqlError> {
    let unknown = || SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"));
    Zone::of(name).ok_or_else(unknown)
}

pub(super) fn field_overflow(what: String) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, what)
}

/// The span between two timestamps in years, months and days, by the calendar of the earlier one.
fn age(later: i64, earlier: i64) -> Result<Interval, SqlError> {
    if is_infinite(later) || is_infinite(earlier) {
        return Err(field_overflow("interval out of range".to_owned()));
    }
    let (first, last, sign) = if later >= earlier { (earlier, later, 1) } else { (later, earlier, -1) };
    let parts = |micros: i64| {
        let (year, month, day) = civil_from_days(micros.div_euclid(DAY));
        (year, i64::from(month), i64::from(day), micros.rem_euclid(DAY))
    };
    let ((year, month, day, time), (to_year, to_month, to_day, to_time)) = (parts(first), parts(last));
    let (mut months, mut days, mut micros) = ((to_year - year) * 12 + to_month - month, to_day - day, to_time - time);
    if micros < 0 {
        (micros, days) = (micros + DAY, days - 1);
    }
    if days < 0 {
        let length = days_of_month(year, month as u32);
        (days, months) = (days + i64::from(length), months - 1);
    }
    Ok(Interval { months: (sign * months) as i32, days: (sign * days) as i32, micros: sign * micros })
}

/// The years of dates; those before Christ are negative.
const YEARS: std::ops::RangeInclusive<i64> = -4714..=5_874_897;

pub(super) fn date_of(year: i64, month: i64, day: i64) -> Result<i64, SqlError> {
    let bad = || field_overflow(format!("date field value out of range: {year}-{month:02}-{day:02}"));
    let own = if year < 0 { year + 1 } else { year };
    let is_right = year != 0
        && YEARS.contains(&year)
        && (1..=12).contains(&month)
        && (1..=i64::from(days_of_month(own, month.clamp(1, 12) as u32))).contains(&day);
    let days = is_right.then(|| days_from_civil(own, month as u32, day as u32));
    days.filter(|days| DATES.contains(days)).ok_or_else(bad)
}

pub(super) fn time_of(hour: i64, minute: i64, second: f64) -> Result<i64, SqlError> {
    let micros = (second * 1e6).round_ties_even() as i64;
    let all = hour * 3_600_000_000 + minute * 60_000_000 + micros;
    let is_right =
        (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second) && all <= DAY;
    let bad = || field_overflow(format!("time field value out of range: {hour}:{minute:02}:{second:02}"));
    if is_right { Ok(all) } else { Err(bad()) }
}

/// The timestamp of a day and what has passed of it.
pub(super) fn on_day(days: i64, micros: i64) -> Result<i64, SqlError> {
    let on_day = days.checked_mul(DAY).and_then(|midnight| midnight.checked_add(micros));
    on_day.filter(|it| TIMESTAMPS.contains(it)).ok_or_else(|| field_overflow("timestamp out of range".to_owned()))
}

/// A timestamp, if tables may have it.
pub(super) fn stored<'a>(micros: i64) -> Result<Datum<'a>, SqlError> {
    let may_be = is_infinite(micros) || TIMESTAMPS.contains(&micros);
    if may_be { Ok(Datum::Timestamp(micros)) } else { Err(field_overflow("timestamp out of range".to_owned())) }
}

/// Days of thirty for each month, and hours of a day.
fn justified(span: Interval, months: bool, hours: bool) -> Result<Interval, SqlError> {
    let mut it = span;
    let out = || field_overflow("interval out of range".to_owned());
    // Whole months first, so that days of hours find room.
    if months {
        it.months = it.months.checked_add(it.days / 30).ok_or_else(out)?;
        it.days %= 30;
    }
    if hours {
        let days = i32::try_from(it.micros / DAY).map_err(|_| out())?;
        it.days = it.days.checked_add(days).ok_or_else(out)?;
        it.micros %= DAY;
    }
    if months {
        it.months = it.months.checked_add(it.days / 30).ok_or_else(out)?;
        it.days %= 30;
    }
    if months && it.months > 0 && (it.days < 0 || it.days == 0 && it.micros < 0) {
        (it.days, it.months) = (it.days + 30, it.months - 1);
    } else if months && it.months < 0 && (it.days > 0 || it.days == 0 && it.micros > 0) {
        (it.days, it.months) = (it.days - 30, it.months + 1);
    }
    if hours && it.days > 0 && it.micros < 0 {
        (it.micros, it.days) = (it.micros + DAY, it.days - 1);
    } else if hours && it.days < 0 && it.micros > 0 {
        (it.micros, it.days) = (it.micros - DAY, it.days + 1);
    }
    Ok(it)
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "timezone"(Text, Timestamp) -> Timestamptz = |it, _| stored(from_local(timestamp(it[1]), &zone(text(it[0]))?));
    "timezone"(Text, Timestamptz) -> Timestamp = |it, _| stored(to_local(timestamp(it[1]), &zone(text(it[0]))?));
    "timezone"(Interval, Timestamp) -> Timestamptz = |it, _| {
        later(timestamp(it[1]), Interval { micros: -span(it[0]).micros, ..Interval::default() }).map(Datum::Timestamp)
    };
    "timezone"(Interval, Timestamptz) -> Timestamp = |it, _| {
        later(timestamp(it[1]), Interval { micros: span(it[0]).micros, ..Interval::default() }).map(Datum::Timestamp)
    };
    "age"(Timestamp, Timestamp) -> Interval = |it, _| age(timestamp(it[0]), timestamp(it[1])).map(Datum::Interval);
    "age"(Timestamptz, Timestamptz) -> Interval = |it, context| {
        age(to_local(timestamp(it[0]), context.zone), to_local(timestamp(it[1]), context.zone)).map(Datum::Interval)
    };
    "age"(Timestamp) -> Interval = |it, context| {
        let today = to_local(context.now.get(), context.zone).div_euclid(DAY) * DAY;
        age(today, timestamp(it[0])).map(Datum::Interval)
    };
    "make_date"(Int4, Int4, Int4) -> Date = |it, _| Ok(Datum::Date(date_of(int(it[0]), int(it[1]), int(it[2]))? as i32));
    "make_time"(Int4, Int4, Float8) -> Time = |it, _| time_of(int(it[0]), int(it[1]), float(it[2])).map(Datum::Time);
    "make_timestamp"(Int4, Int4, Int4, Int4, Int4, Float8) -> Timestamp = |it, _| {
        let days = date_of(int(it[0]), int(it[1]), int(it[2]))?;
        on_day(days, time_of(int(it[3]), int(it[4]), float(it[5]))?).map(Datum::Timestamp)
    };
    "make_timestamptz"(Int4, Int4, Int4, Int4, Int4, Float8) -> Timestamptz = |it, context| {
        let days = date_of(int(it[0]), int(it[1]), int(it[2]))?;
        let local = on_day(days, time_of(int(it[3]), int(it[4]), float(it[5]))?)?;
        Ok(Datum::Timestamp(from_local(local, context.zone)))
    };
    "justify_days"(Interval) -> Interval = |it, _| {
        let span = span(it[0]);
        let months = span.months.checked_add(span.days / 30);
        let months = months.ok_or_else(|| field_overflow("interval out of range".to_owned()))?;
        Ok(Datum::Interval(Interval { months, days: span.days % 30, ..span }))
    };
    "justify_hours"(Interval) -> Interval = |it, _| justified(span(it[0]), false, true).map(Datum::Interval);
    "justify_interval"(Interval) -> Interval = |it, _| justified(span(it[0]), true, true).map(Datum::Interval);
    "isfinite"(Timestamp) -> Bool = |it, _| Ok(Datum::Bool(!is_infinite(timestamp(it[0]))));
    "isfinite"(Timestamptz) -> Bool = |it, _| Ok(Datum::Bool(!is_infinite(timestamp(it[0]))));
    "isfinite"(Date) -> Bool = |it, _| Ok(Datum::Bool(!matches!(it[0], Datum::Date(i32::MIN | i32::MAX))));
    "isfinite"(Interval) -> Bool = |_, _| Ok(Datum::Bool(true));
    "to_timestamp"(Float8) -> Timestamptz = |it, _| {
        let micros = float(it[0]) * 1e6;
        let bad = || field_overflow(format!("timestamp out of range: \"{}\"", crate::text::format_float(float(it[0]), false)));
        if micros.abs() < 9.2e18 { stored(micros.round_ties_even() as i64).map_err(|_| bad()) } else { Err(bad()) }
    };
    "clock_timestamp"() -> Timestamptz = |_, context| {
        // The transaction has begun before, also where nothing has asked for the time yet.
        context.now.get();
        Ok(Datum::Timestamp(volatile(|| now() as u128) as i64))
    };
};

/// Whether two periods have a time in common. An end that is NULL leaves it open, where the other ones do not decide.
fn overlap<'a>(ends: &[Datum<'a>]) -> Datum<'a> {
    // The start, and the end where it is known.
    let period = |one: Datum<'a>, other: Datum<'a>| match (one.is_null(), other.is_null()) {
        (true, true) => None,
        (true, false) => Some((other, None)),
        (false, true) => Some((one, None)),
        (false, false) if one.compare(other).is_gt() => Some((other, Some(one))),
        (false, false) => Some((one, Some(other))),
    };
    let (Some(mut first), Some(mut second)) = (period(ends[0], ends[1]), period(ends[2], ends[3])) else {
        return Datum::Null;
    };
    let order = first.0.compare(second.0);
    if order.is_eq() {
        return if first.1.is_some() && second.1.is_some() { Datum::Bool(true) } else { Datum::Null };
    }
    if order.is_gt() {
        std::mem::swap(&mut first, &mut second);
    }
    match first.1 {
        None => Datum::Null,
        Some(end) if second.0.compare(end).is_lt() => Datum::Bool(true),
        Some(_) if second.1.is_none() => Datum::Null,
        Some(_) => Datum::Bool(false),
    }
}

pub(super) const LENIENT: &[Function] = functions! {
    "overlaps"(Time, Time, Time, Time) -> Bool = |it, _| Ok(overlap(it));
    "overlaps"(Timestamp, Timestamp, Timestamp, Timestamp) -> Bool = |it, _| Ok(overlap(it));
    "overlaps"(Timestamptz, Timestamptz, Timestamptz, Timestamptz) -> Bool = |it, _| Ok(overlap(it));
};
