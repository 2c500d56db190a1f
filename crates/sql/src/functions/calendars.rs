//! Parts of dates and times, zones, and times as texts of a format.

use super::times::later;
use super::{Function, functions};
use crate::context::{Context, now};
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

fn field_overflow(what: String) -> SqlError {
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

fn date_of(year: i64, month: i64, day: i64) -> Result<i64, SqlError> {
    let bad = || field_overflow(format!("date field value out of range: {year}-{month:02}-{day:02}"));
    let own = if year < 0 { year + 1 } else { year };
    let is_right = year != 0
        && YEARS.contains(&year)
        && (1..=12).contains(&month)
        && (1..=i64::from(days_of_month(own, month.clamp(1, 12) as u32))).contains(&day);
    let days = is_right.then(|| days_from_civil(own, month as u32, day as u32));
    days.filter(|days| DATES.contains(days)).ok_or_else(bad)
}

fn time_of(hour: i64, minute: i64, second: f64) -> Result<i64, SqlError> {
    let micros = (second * 1e6).round_ties_even() as i64;
    let all = hour * 3_600_000_000 + minute * 60_000_000 + micros;
    let is_right =
        (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second) && all <= DAY;
    let bad = || field_overflow(format!("time field value out of range: {hour}:{minute:02}:{second:02}"));
    if is_right { Ok(all) } else { Err(bad()) }
}

/// The timestamp of a day and what has passed of it.
fn on_day(days: i64, micros: i64) -> Result<i64, SqlError> {
    let on_day = days.checked_mul(DAY).and_then(|midnight| midnight.checked_add(micros));
    on_day.filter(|it| TIMESTAMPS.contains(it)).ok_or_else(|| field_overflow("timestamp out of range".to_owned()))
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

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Words of formats; of several that fit the longest comes first.
const WORDS: [&str; 45] = [
    "HH24", "HH12", "Y,YYY", "YYYY", "IYYY", "MONTH", "Month", "month", "A.D.", "B.C.", "A.M.", "P.M.", "a.m.", "p.m.",
    "SSSS", "YYY", "DAY", "Day", "day", "DDD", "MON", "Mon", "mon", "TZH", "TZM", "HH", "MI", "SS", "MS", "US", "AM",
    "PM", "am", "pm", "YY", "MM", "DD", "DY", "Dy", "dy", "WW", "IW", "TZ", "Q", "J",
];

/// What a format is made of.
enum Part<'f> {
    Word { name: &'static str, is_filled: bool, is_ordinal: bool },
    Letters(&'f str),
}

fn parts(format: &str) -> Vec<Part<'_>> {
    let (mut rest, mut parts) = (format, Vec::new());
    while let Some(letter) = rest.chars().next() {
        if letter == '"' {
            let inner = &rest[1..];
            let end = inner.find('"').unwrap_or(inner.len());
            parts.push(Part::Letters(&inner[..end]));
            rest = inner.get(end + 1..).unwrap_or_default();
            continue;
        }
        let (is_filled, behind) = match rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            Some(behind) => (false, behind),
            None => (true, rest),
        };
        let found = WORDS.iter().copied().chain(["CC", "ID", "D", "W", "Y"]).find(|word| {
            let is_of_case = word.chars().any(char::is_lowercase)
                || matches!(*word, "MONTH" | "DAY" | "MON" | "DY" | "AM" | "PM" | "A.M." | "P.M.");
            let front = behind.get(..word.len()).unwrap_or_default();
            if is_of_case { front == *word } else { front.eq_ignore_ascii_case(word) }
        });
        match found {
            Some(name) => {
                rest = &behind[name.len()..];
                let is_ordinal = rest.starts_with("th") || rest.starts_with("TH");
                if is_ordinal {
                    rest = &rest[2..];
                }
                parts.push(Part::Word { name, is_filled, is_ordinal });
            }
            None => {
                let (one, behind) = rest.split_at(letter.len_utf8());
                parts.push(Part::Letters(one));
                rest = behind;
            }
        }
    }
    parts
}

/// A time in a zone that is so many seconds ahead, as a format shows it.
fn shown(local: i64, offset: i64, format: &str) -> String {
    let mut out = String::new();
    for part in parts(format) {
        match part {
            Part::Letters(letters) => out.push_str(letters),
            Part::Word { name, is_filled, is_ordinal } => {
                let text =
                    of_clock(local, offset, (name, is_filled)).unwrap_or_else(|| of_calendar(local, (name, is_filled)));
                out.push_str(&text);
                if is_ordinal {
                    out.push_str(ordinal(&text));
                }
            }
        }
    }
    out
}

fn number(value: i64, width: usize, is_filled: bool) -> String {
    if is_filled { format!("{value:0width$}") } else { value.to_string() }
}

/// What a word shows of the time of a day.
fn of_clock(local: i64, offset: i64, (word, is_filled): (&str, bool)) -> Option<String> {
    let time = local.rem_euclid(DAY);
    let (hour, minute, second) = (time / 3_600_000_000, time / 60_000_000 % 60, time / 1_000_000 % 60);
    let number = |value: i64, width: usize| number(value, width, is_filled);
    let of_day = |is_small: bool, has_points: bool| {
        let half = if hour < 12 { "AM" } else { "PM" };
        let half = if has_points { format!("{}.M.", &half[..1]) } else { half.to_owned() };
        if is_small { half.to_lowercase() } else { half }
    };
    Some(match word {
        "HH24" => number(hour, 2),
        "HH12" | "HH" => number(if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
        "MI" => number(minute, 2),
        "SS" => number(second, 2),
        "MS" => number(time / 1_000 % 1_000, 3),
        "US" => number(time % 1_000_000, 6),
        "SSSS" => number(time / 1_000_000, 1),
        "AM" | "PM" => of_day(false, false),
        "am" | "pm" => of_day(true, false),
        "A.M." | "P.M." => of_day(false, true),
        "a.m." | "p.m." => of_day(true, true),
        "TZH" => format!("{}{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 3600),
        "TZM" => format!("{:02}", offset.abs() / 60 % 60),
        _ => return None,
    })
}

/// What a word shows of a day.
fn of_calendar(local: i64, (word, is_filled): (&str, bool)) -> String {
    let days = local.div_euclid(DAY);
    let (year, month, day) = civil_from_days(days);
    let shown_year = if year > 0 { year } else { 1 - year };
    let weekday = (days + 4).rem_euclid(7) as usize;
    let of_year = days - days_from_civil(year, 1, 1) + 1;
    let (iso_year, iso_week) = super::times::iso_week(days);
    let (name, day_name) = (MONTHS[month as usize - 1], WEEKDAYS[weekday]);
    let number = |value: i64, width: usize| number(value, width, is_filled);
    let named = |name: &str| if is_filled { format!("{name:9}") } else { name.to_owned() };
    match word {
        "YYYY" => number(shown_year, 4),
        "Y,YYY" => format!("{},{:03}", shown_year / 1000, shown_year % 1000),
        "YYY" => number(shown_year % 1000, 3),
        "YY" => number(shown_year % 100, 2),
        "Y" => number(shown_year % 10, 1),
        "IYYY" => number(iso_year, 4),
        "CC" => number((shown_year + 99) / 100, 2),
        "MONTH" => named(&name.to_uppercase()),
        "Month" => named(name),
        "month" => named(&name.to_lowercase()),
        "MON" => name[..3].to_uppercase(),
        "Mon" => name[..3].to_owned(),
        "mon" => name[..3].to_lowercase(),
        "MM" => number(month.into(), 2),
        "DAY" => named(&day_name.to_uppercase()),
        "Day" => named(day_name),
        "day" => named(&day_name.to_lowercase()),
        "DY" => day_name[..3].to_uppercase(),
        "Dy" => day_name[..3].to_owned(),
        "dy" => day_name[..3].to_lowercase(),
        "DDD" => number(of_year, 3),
        "DD" => number(day.into(), 2),
        "D" => (weekday + 1).to_string(),
        "ID" => (if weekday == 0 { 7 } else { weekday }).to_string(),
        "W" => ((day - 1) / 7 + 1).to_string(),
        "WW" => number((of_year - 1) / 7 + 1, 2),
        "IW" => number(iso_week, 2),
        "Q" => ((month - 1) / 3 + 1).to_string(),
        "J" => (days + 2_440_588).to_string(),
        "A.D." | "B.C." => (if year > 0 { "A.D." } else { "B.C." }).to_owned(),
        _ => String::new(),
    }
}

fn ordinal(number: &str) -> &'static str {
    let value: i64 = number.trim().parse().unwrap_or(0);
    match (value % 100, value % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// What was read of a time so far.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    of_year: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    is_second_half: Option<bool>,
}

fn bad_value(word: &str, rest: &str) -> SqlError {
    let shown: String = rest.chars().take(word.len()).collect();
    SqlError::new(SqlState::INVALID_DATETIME_FORMAT, format!("invalid value \"{shown}\" for \"{word}\""))
}

/// Takes up to so many digits from the front, and tells how many there were.
fn digits(rest: &mut &str, word: &str, width: usize) -> Result<(i64, u32), SqlError> {
    let sign = usize::from(rest.starts_with('-'));
    let count = rest[sign..].bytes().take(width).take_while(u8::is_ascii_digit).count();
    let value = rest[..sign + count].parse::<i64>().map_err(|_| bad_value(word, rest))?;
    *rest = &rest[sign + count..];
    Ok((value, count as u32))
}

/// Takes letters of a format from the front: signs and blanks stand for whatever sign is there.
fn skip(rest: &mut &str, letters: &str) {
    for letter in letters.chars() {
        let Some(own) = rest.chars().next() else { return };
        if own == letter || letter.is_alphanumeric() || !own.is_alphanumeric() {
            *rest = &rest[own.len_utf8()..];
        }
    }
}

impl Fields {
    fn take(&mut self, rest: &mut &str, word: &str, year_width: usize) -> Result<(), SqlError> {
        match word {
            "YYYY" | "IYYY" => self.year = digits(rest, word, year_width)?.0,
            "YY" => {
                let value = digits(rest, word, 2)?.0;
                self.year = if value < 70 { 2000 + value } else { 1900 + value };
            }
            "MM" => self.month = digits(rest, word, 2)?.0,
            "DD" => self.day = digits(rest, word, 2)?.0,
            "DDD" => self.of_year = Some(digits(rest, word, 3)?.0),
            "HH24" | "HH12" | "HH" => self.hour = digits(rest, word, 2)?.0,
            "MI" => self.minute = digits(rest, word, 2)?.0,
            "SS" => self.second = digits(rest, word, 2)?.0,
            "MS" | "US" => {
                let (value, count) = digits(rest, word, if word == "MS" { 3 } else { 6 })?;
                self.micros = value * 10_i64.pow(6 - count);
            }
            "AM" | "PM" | "am" | "pm" => {
                self.is_second_half = Some(rest.get(..1).is_some_and(|it| it.eq_ignore_ascii_case("p")));
                *rest = rest.get(2..).unwrap_or_default();
            }
            "MONTH" | "Month" | "month" | "MON" | "Mon" | "mon" => {
                let length = |name: &str| if word.len() > 3 { name.len() } else { 3 };
                let is_there = |name: &&str| {
                    rest.get(..length(name)).is_some_and(|it| it.eq_ignore_ascii_case(&name[..length(name)]))
                };
                let at = MONTHS.iter().position(is_there).ok_or_else(|| bad_value(word, rest))?;
                self.month = at as i64 + 1;
                *rest = &rest[length(MONTHS[at])..];
            }
            "DAY" | "Day" | "day" | "DY" | "Dy" | "dy" => *rest = rest.trim_start_matches(char::is_alphabetic),
            _ => return Err(SqlError::unsupported(format!("the format {word} of a text that is read"))),
        }
        Ok(())
    }

    fn micros(mut self, of: &str) -> Result<i64, SqlError> {
        let out = |_| field_overflow(format!("date/time field value out of range: \"{of}\""));
        if let Some(is_second) = self.is_second_half {
            if !(1..=12).contains(&self.hour) {
                let message = format!("hour \"{}\" is invalid for the 12-hour clock", self.hour);
                return Err(SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message));
            }
            self.hour = self.hour % 12 + if is_second { 12 } else { 0 };
        }
        let days = match self.of_year {
            Some(number) => date_of(self.year, 1, 1).map_err(out)? + number - 1,
            None => date_of(self.year, self.month, self.day).map_err(out)?,
        };
        on_day(days, time_of(self.hour, self.minute, self.second as f64).map_err(out)? + self.micros).map_err(out)
    }
}

/// The local time that a text of a format stands for.
fn read(of: &str, format: &str) -> Result<i64, SqlError> {
    let mut fields = Fields {
        year: 1,
        month: 1,
        day: 1,
        of_year: None,
        hour: 0,
        minute: 0,
        second: 0,
        micros: 0,
        is_second_half: None,
    };
    let year_width = if format.contains("YYYYMM") { 4 } else { 9 };
    let mut rest = of;
    for part in parts(format) {
        match part {
            Part::Letters(letters) => skip(&mut rest, letters),
            Part::Word { name, .. } => {
                rest = rest.trim_start();
                fields.take(&mut rest, name, year_width)?;
            }
        }
    }
    fields.micros(of)
}

fn made<'a>(context: &Context<'a>, text: &str) -> Datum<'a> {
    Datum::Text(context.arena.alloc_str(text))
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "timezone"(Text, Timestamp) -> Timestamptz = |it, _| Ok(Datum::Timestamp(from_local(timestamp(it[1]), &zone(text(it[0]))?)));
    "timezone"(Text, Timestamptz) -> Timestamp = |it, _| Ok(Datum::Timestamp(to_local(timestamp(it[1]), &zone(text(it[0]))?)));
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
    "make_interval"() -> Interval = |_, _| Ok(Datum::Interval(Interval::default()));
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
        if micros.abs() < 9.2e18 { Ok(Datum::Timestamp(micros.round_ties_even() as i64)) } else { Err(bad()) }
    };
    "to_timestamp"(Text, Text) -> Timestamptz = |it, context| {
        Ok(Datum::Timestamp(from_local(read(text(it[0]), text(it[1]))?, context.zone)))
    };
    "to_date"(Text, Text) -> Date = |it, _| Ok(Datum::Date(read(text(it[0]), text(it[1]))?.div_euclid(DAY) as i32));
    "to_char"(Timestamp, Text) -> Text = |it, context| {
        let local = timestamp(it[0]);
        if is_infinite(local) { Ok(Datum::Null) } else { Ok(made(context, &shown(local, 0, text(it[1])))) }
    };
    "to_char"(Timestamptz, Text) -> Text = |it, context| {
        let micros = timestamp(it[0]);
        let local = to_local(micros, context.zone);
        if is_infinite(micros) { return Ok(Datum::Null) }
        Ok(made(context, &shown(local, (local - micros) / 1_000_000, text(it[1]))))
    };
    "clock_timestamp"() -> Timestamptz = |_, context| {
        // The transaction has begun before, also where nothing has asked for the time yet.
        context.now.get();
        Ok(Datum::Timestamp(volatile(|| now() as u128) as i64))
    };
};
