//! Dates, times and timestamps.

use std::fmt::{self, Write};
use std::sync::Arc;

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, civil};

use super::{DAY, invalid};
use crate::context::Context;
use crate::error::{SqlError, SqlState};
use crate::types::Type;

/// 4714-11-24 BC and 5874897-12-31, the first and the last date of PostgreSQL.
pub(crate) const DATES: std::ops::RangeInclusive<i64> = -2_440_588..=2_145_042_905;

/// The same of timestamps: 4714-11-24 BC to what 64 bits hold, in the year 294247, 29 years before the end of those of PostgreSQL.
pub(crate) const TIMESTAMPS: std::ops::Range<i64> = -210_866_803_200_000_000..i64::MAX;

/// Local time is less than so many seconds ahead of UTC, or behind.
const MOST_AHEAD: i32 = 168 * 3600;
/// The longest rule of POSIX, in bytes.
const LONGEST_RULE: usize = 255;

/// A zone of the IANA table, one of POSIX's rules, or a fixed difference from UTC.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    zone: TimeZone,
    /// What the setting of a session shows; `None`: the name that the zone has.
    name: Option<Arc<str>>,
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl Zone {
    pub(crate) fn utc() -> Self {
        Self::unnamed(TimeZone::UTC)
    }

    fn unnamed(zone: TimeZone) -> Self {
        Self { zone, name: None }
    }

    /// What a session is set to by a text: hours that local time is ahead of UTC, the name of a zone, or a rule of POSIX.
    pub(crate) fn of_setting(text: &str) -> Option<Self> {
        let text = text.trim();
        let hours = text.parse::<f64>().ok().filter(|_| text.starts_with(|it: char| !it.is_ascii_alphabetic()));
        if let Some(hours) = hours {
            return Self::ahead((hours * 3600.0).trunc() as i64);
        }
        if let Some(zone) = Self::of_shown(text) {
            return Some(zone);
        }
        if text.eq_ignore_ascii_case("gmt") {
            return Some(Self { name: Some("GMT".into()), ..Self::utc() });
        }
        if let Ok(zone) = TimeZone::get(text) {
            return Some(Self::unnamed(zone));
        }
        // A rule names what local time is called; what is left of a name that is none has no number.
        let is_rule = text.is_ascii() && text.len() <= LONGEST_RULE && text.bytes().any(|it| it.is_ascii_digit());
        let zone = TimeZone::posix(text).ok().filter(|_| is_rule)?;
        Some(Self { zone, name: Some(text.into()) })
    }

    /// The zone that [`Zone::ahead`] has named so. Rules of POSIX have names without colons.
    fn of_shown(text: &str) -> Option<Self> {
        let (_, turned) = text.strip_prefix('<')?.split_once('>')?;
        Self::ahead(-seconds_of(turned)?).filter(|zone| zone.shown() == text)
    }

    /// The zone that is so many seconds ahead of UTC, named as PostgreSQL names it: with the sign of POSIX behind the name.
    pub(crate) fn ahead(seconds: i64) -> Option<Self> {
        let zone = Self::fixed(i32::try_from(seconds).ok().filter(|it| it.abs() < MOST_AHEAD)?)?;
        let (own, turned) = if seconds < 0 { ('-', '+') } else { ('+', '-') };
        let all = seconds.unsigned_abs();
        let mut shown = format!("{:02}", all / 3600);
        if !all.is_multiple_of(3600) {
            shown += &format!(":{:02}", all / 60 % 60);
        }
        if !all.is_multiple_of(60) {
            shown += &format!(":{:02}", all % 60);
        }
        Some(Self { name: Some(format!("<{own}{shown}>{turned}{shown}").into()), ..zone })
    }

    /// What the setting of a session shows.
    pub(crate) fn shown(&self) -> &str {
        self.name.as_deref().or_else(|| self.zone.iana_name()).unwrap_or("UTC")
    }

    /// The zone of this name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        match abbreviation(name) {
            Some(0) => Some(Self::utc()),
            Some(minutes) => Self::fixed(minutes * 60),
            None => TimeZone::get(name).ok().map(Self::unnamed),
        }
    }

    /// The zone that `AT TIME ZONE` names: a difference has the sign of POSIX there, which is that of what is to be added to local time.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let turned = match name.as_bytes().first()? {
            b'+' => name.replacen('+', "-", 1),
            b'-' => name.replacen('-', "+", 1),
            _ => return Self::by_name(name),
        };
        read_zone(&turned)
    }

    fn fixed(seconds: i32) -> Option<Self> {
        Offset::from_seconds(seconds).ok().map(|offset| Self::unnamed(TimeZone::fixed(offset)))
    }

    /// Seconds that local time is ahead of UTC, at a timestamp.
    fn offset_at(&self, micros: i64) -> i32 {
        known(micros).map_or(0, |timestamp| self.zone.to_offset(timestamp).seconds())
    }

    /// What local time is called at a timestamp.
    pub(crate) fn abbreviation_at(&self, micros: i64) -> String {
        known(micros).map_or_else(String::new, |at| self.zone.to_offset_info(at).abbreviation().to_owned())
    }
}

/// What calendars repeat after: 400 years.
const CYCLE: i64 = 146_097 * DAY;

/// The last timestamp that the tables of zones reach, but for a year.
const LAST_KNOWN: i64 = 253_000_000_000_000_000;

/// How much earlier a timestamp has to be that the tables reach, and which has the same day of the year and of the week.
fn beyond_tables(micros: i64) -> i64 {
    let beyond = micros.saturating_sub(LAST_KNOWN).max(0);
    (beyond / CYCLE + i64::from(beyond % CYCLE > 0)) * CYCLE
}

/// The timestamp that stands for another one in the tables: what lies in front of them is as their beginning, and what lies behind as the same time of an earlier cycle.
fn known(micros: i64) -> Option<Timestamp> {
    Timestamp::from_microsecond((micros - beyond_tables(micros)).max(-377_000_000_000_000_000)).ok()
}

/// Abbreviations of zones, with minutes that local time is ahead of UTC: those of PostgreSQL's default set.
const ABBREVIATIONS: &str = include_str!("abbreviations.txt");

/// The minutes for which an abbreviation stands.
fn abbreviation(name: &str) -> Option<i32> {
    let line = ABBREVIATIONS.lines().map(|line| line.split(' '));
    let mut found = line.filter_map(|mut words| words.next()?.eq_ignore_ascii_case(name).then_some(words));
    found.next()?.next()?.parse().ok()
}

/// The seconds of hours, minutes and seconds with colons between them, behind a sign where there is one.
pub(crate) fn seconds_of(text: &str) -> Option<i64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = text.split(':');
    let seconds = [(3600, 167), (60, 59), (1, 59)].into_iter().try_fold(0, |sum, (unit, most)| match parts.next() {
        Some(part) => Some(sum + unit * part.parse::<i64>().ok().filter(|part| (0..=most).contains(part))?),
        None => Some(sum),
    })?;
    parts.next().is_none().then_some(sign * seconds)
}

/// A timestamp as local time.
pub(crate) fn to_local(micros: i64, zone: &Zone) -> i64 {
    if is_infinite(micros) { micros } else { micros.saturating_add(i64::from(zone.offset_at(micros)) * 1_000_000) }
}

/// The timestamp of a local time. One that does not exist, where clocks go forward, is taken as by the clock before; of two the second one counts
/// (`DetermineTimeZoneOffset`).
pub(crate) fn from_local(local: i64, zone: &Zone) -> i64 {
    if is_infinite(local) {
        return local;
    }
    let beyond = beyond_tables(local);
    let (days, micros) = ((local - beyond).div_euclid(DAY), local.rem_euclid(DAY));
    let (year, month, day) = civil_from_days(days);
    let second = micros / 1_000_000;
    let date = i16::try_from(year).ok().and_then(|year| civil::Date::new(year, month as i8, day as i8).ok());
    let time = civil::Time::new((second / 3600) as i8, (second / 60 % 60) as i8, (second % 60) as i8, 0).ok();
    let zoned =
        date.zip(time).and_then(|(date, time)| zone.zone.to_ambiguous_zoned(date.to_datetime(time)).later().ok());
    // A local time that does not exist is not the one of what it is taken as, so that the offset there is another one.
    zoned.map_or_else(
        || local.saturating_sub(i64::from(zone.offset_at(local)) * 1_000_000),
        |zoned| (zoned.timestamp().as_microsecond() + micros % 1_000_000).saturating_add(beyond),
    )
}

fn is_infinite(micros: i64) -> bool {
    micros == i64::MIN || micros == i64::MAX
}

/// Days since 1970-01-01 of a date of the Gregorian calendar; the year before 1 is 0.
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Years begin in March, so that the leap day comes last; eras have 400 of them.
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = i64::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub(crate) fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * month + 2) / 5 + 1) as u32;
    let month = if month < 10 { month + 3 } else { month - 9 } as u32;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Days of a month.
pub(crate) fn days_of_month(year: i64, month: u32) -> u32 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn overflow(of: Type, text: &str) -> SqlError {
    let of = if of == Type::Date { "date" } else { "timestamp" };
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{of} out of range: \"{text}\""))
}

fn field_overflow(text: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

/// What a text of date, time and zone says.
#[derive(Default)]
struct Fields {
    date: Option<i64>,
    time: Option<i64>,
    zone: Option<Zone>,
}

/// Reads the parts of a text, in the sequence date, time, zone, era.
fn fields(of: Type, text: &str, trimmed: &str) -> Result<Fields, SqlError> {
    let bad = || invalid(of, text);
    let mut fields = Fields::default();
    let era = trimmed.len().checked_sub(3).and_then(|at| trimmed.split_at_checked(at));
    let before_era = era.filter(|(_, era)| era.eq_ignore_ascii_case(" bc")).map(|(rest, _)| rest);
    let (is_bc, rest) = (before_era.is_some(), before_era.unwrap_or(trimmed));
    let mut date = None;
    for word in rest.split([' ', 'T', 't']).filter(|word| !word.is_empty()) {
        // A name with a `t` in it was cut: it is taken as a whole further down.
        if fields.date.is_none() && date.is_none() && !word.contains(':') {
            date = Some(read_civil(word).ok_or_else(bad)?);
            let (year, month, day) = date.unwrap_or_default();
            let year = if is_bc { 1 - year } else { year };
            if !(1..=12).contains(&month) || day == 0 || day > days_of_month(year, month) || year == 0 && !is_bc {
                return Err(field_overflow(text));
            }
            fields.date = Some(days_from_civil(year, month, day));
        } else if fields.time.is_none() && word.contains(':') {
            let end = word.find(|it: char| !matches!(it, '0'..='9' | ':' | '.')).unwrap_or(word.len());
            fields.time = Some(read_clock(text, &word[..end]).ok_or_else(bad)??);
            if end < word.len() {
                check_displacement(text, &word[end..])?;
                fields.zone = Some(read_zone(&word[end..]).ok_or_else(bad)?);
            }
        } else {
            let start = word.as_ptr() as usize - rest.as_ptr() as usize;
            if fields.zone.is_some() {
                return Err(bad());
            }
            check_displacement(text, &rest[start..])?;
            // A word that is no name of a zone by its looks is no part of a time.
            let is_name = rest[start..].contains('/');
            let unknown = || if is_name { zone_error(&rest[start..]) } else { bad() };
            fields.zone = Some(read_zone(&rest[start..]).ok_or_else(unknown)?);
            break;
        }
    }
    Ok(fields)
}

fn zone_error(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
}

/// `2024-02-29`, `2024/2/29` or `20240229`.
fn read_civil(word: &str) -> Option<(i64, u32, u32)> {
    if word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some((word[..4].parse().ok()?, word[4..6].parse().ok()?, word[6..].parse().ok()?));
    }
    let mut parts = word.split(['-', '/']);
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let is_number = |part: &str| !part.is_empty() && part.len() < 8 && part.bytes().all(|it| it.is_ascii_digit());
    if parts.next().is_some() || ![year, month, day].into_iter().all(is_number) || year.len() < 3 {
        return None;
    }
    Some((year.parse().ok()?, month.parse().ok()?, day.parse().ok()?))
}

/// Microseconds since midnight of `04:05`, `04:05:06` or `04:05:06.789`.
fn read_clock(text: &str, clock: &str) -> Option<Result<i64, SqlError>> {
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let (whole, part) = second.split_once('.').unwrap_or((second, ""));
    if parts.next().is_some() || part.bytes().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    let number = |part: &str| (part.len() <= 2).then(|| part.parse::<i64>().ok()).flatten();
    let (hour, minute, second) = (number(hour)?, number(minute)?, number(whole)?);
    let digits = format!("{part:0<7}");
    let micros = digits[..6].parse::<i64>().ok()? + i64::from(digits.as_bytes()[6] >= b'5');
    let all = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    let is_in_range = minute < 60 && second <= 60 && (0..=DAY).contains(&all);
    Some(if is_in_range { Ok(all) } else { Err(field_overflow(text)) })
}

/// Refuses a difference from UTC that is 16 hours or more.
fn check_displacement(text: &str, zone: &str) -> Result<(), SqlError> {
    let Some(parts) = zone.strip_prefix(['+', '-']).and_then(displacement) else { return Ok(()) };
    if parts[0] < 16 && parts[1..].iter().all(|part| *part < 60) {
        return Ok(());
    }
    Err(SqlError::new(SqlState("22009"), format!("time zone displacement out of range: \"{text}\"")))
}

/// Hours, and minutes and seconds if they are there.
fn displacement(text: &str) -> Option<Vec<i32>> {
    let mut parts: Vec<&str> = text.split(':').collect();
    if let [all] = parts[..]
        && all.len() == 4
        && all.is_ascii()
    {
        parts = vec![&all[..2], &all[2..]];
    }
    let is_number = |part: &&str| (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.iter().map(|part| part.parse().ok().filter(|_| is_number(part))).collect()
}

/// `Z`, `+02`, `-03:30`, `+0530` or a name.
fn read_zone(text: &str) -> Option<Zone> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return Zone::by_name(text),
    };
    match displacement(&text[1..])?[..] {
        [hours] => Zone::fixed(sign * hours * 3600),
        [hours, minutes] => Zone::fixed(sign * (hours * 3600 + minutes * 60)),
        [hours, minutes, seconds] => Zone::fixed(sign * (hours * 3600 + minutes * 60 + seconds)),
        _ => None,
    }
}

/// The words that stand for a timestamp, in microseconds.
fn special(trimmed: &str, context: &Context<'_>) -> Option<i64> {
    let midnight = |days: i64| {
        let today = to_local(context.now.get(), context.zone).div_euclid(DAY);
        from_local((today + days) * DAY, context.zone)
    };
    Some(match trimmed.to_ascii_lowercase().as_str() {
        "infinity" | "+infinity" => i64::MAX,
        "-infinity" => i64::MIN,
        "epoch" => 0,
        "now" => context.now.get(),
        "today" => midnight(0),
        "tomorrow" => midnight(1),
        "yesterday" => midnight(-1),
        _ => return None,
    })
}

pub(super) fn read_date(text: &str, trimmed: &str, context: &Context<'_>) -> Result<i32, SqlError> {
    match special(trimmed, context) {
        Some(i64::MAX) => return Ok(i32::MAX),
        Some(i64::MIN) => return Ok(i32::MIN),
        Some(0) => return Ok(0),
        Some(timestamp) => return Ok(to_local(timestamp, context.zone).div_euclid(DAY) as i32),
        None => {}
    }
    let days = fields(Type::Date, text, trimmed)?.date.ok_or_else(|| invalid(Type::Date, text))?;
    if DATES.contains(&days) { Ok(days as i32) } else { Err(overflow(Type::Date, text)) }
}

pub(super) fn read_time(text: &str, trimmed: &str) -> Result<i64, SqlError> {
    fields(Type::Time, text, trimmed)?.time.ok_or_else(|| invalid(Type::Time, text))
}

pub(super) fn read_timestamp(of: Type, text: &str, trimmed: &str, context: &Context<'_>) -> Result<i64, SqlError> {
    let has_zone = of == Type::Timestamptz;
    if let Some(timestamp) = special(trimmed, context) {
        let is_of_clock = !is_infinite(timestamp) && timestamp != 0;
        return Ok(if is_of_clock && !has_zone { to_local(timestamp, context.zone) } else { timestamp });
    }
    let fields = fields(of, text, trimmed)?;
    let days = fields.date.ok_or_else(|| invalid(of, text))?;
    let local = days.checked_mul(DAY).and_then(|micros| micros.checked_add(fields.time.unwrap_or(0)));
    let local = local.filter(|local| TIMESTAMPS.contains(local)).ok_or_else(|| overflow(of, text))?;
    Ok(if has_zone { from_local(local, fields.zone.as_ref().unwrap_or(context.zone)) } else { local })
}

/// Appends a date.
pub(crate) fn format_date(days: i32, out: &mut String) -> fmt::Result {
    match days {
        i32::MAX => out.write_str("infinity"),
        i32::MIN => out.write_str("-infinity"),
        _ => {
            let (year, month, day) = civil_from_days(days.into());
            let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
            write!(out, "{shown:04}-{month:02}-{day:02}{era}")
        }
    }
}

/// Appends a time of day.
pub(super) fn format_time(micros: i64, out: &mut String) -> fmt::Result {
    let (seconds, part) = (micros / 1_000_000, micros % 1_000_000);
    write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    if part > 0 {
        out.write_str(format!(".{part:06}").trim_end_matches('0'))?;
    }
    Ok(())
}

/// Appends a timestamp, in a zone where its type has one.
pub(crate) fn format_timestamp(micros: i64, zone: Option<&Zone>, out: &mut String) -> fmt::Result {
    if is_infinite(micros) {
        return out.write_str(if micros > 0 { "infinity" } else { "-infinity" });
    }
    let local = zone.map_or(micros, |zone| to_local(micros, zone));
    let (days, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let (year, month, day) = civil_from_days(days);
    let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    write!(out, "{shown:04}-{month:02}-{day:02} ")?;
    format_time(time, out)?;
    if let Some(zone) = zone {
        let offset = zone.offset_at(micros);
        let (sign, seconds) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
        write!(out, "{sign}{:02}", seconds / 3600)?;
        if !seconds.is_multiple_of(3600) {
            write!(out, ":{:02}", seconds / 60 % 60)?;
        }
        if !seconds.is_multiple_of(60) {
            write!(out, ":{:02}", seconds % 60)?;
        }
    }
    out.write_str(era)
}
