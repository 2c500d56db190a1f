//! Times as texts of a format: `to_char`, `to_date` and `to_timestamp`.

use super::calendars::{date_of, field_overflow, on_day, stored, time_of};
use super::times::iso_week;
use super::{Function, functions};
use crate::context::Context;
use crate::datum::{Datum, Interval};
use crate::error::{SqlError, SqlState};
use crate::text::{DAY, Zone, civil_from_days, days_from_civil, from_local, to_local};

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
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// Words whose letters are meant as they are written.
const OF_CASE: [&str; 34] = [
    "MONTH", "Month", "month", "A.D.", "B.C.", "a.d.", "b.c.", "A.M.", "P.M.", "a.m.", "p.m.", "DAY", "Day", "day",
    "MON", "Mon", "mon", "AM", "PM", "am", "pm", "AD", "BC", "ad", "bc", "DY", "Dy", "dy", "RM", "rm", "TZH", "TZM",
    "TZ", "tz",
];

/// Other words.
const OTHERS: [&str; 37] = [
    "Y,YYY", "SSSSS", "SSSS", "HH24", "HH12", "YYYY", "IYYY", "IDDD", "YYY", "IYY", "DDD", "FF1", "FF2", "FF3", "FF4",
    "FF5", "FF6", "HH", "MI", "SS", "MS", "US", "YY", "IY", "MM", "DD", "WW", "IW", "OF", "CC", "ID", "Q", "J", "D",
    "W", "Y", "I",
];

/// How a word is written.
#[derive(Clone, Copy)]
struct Word {
    name: &'static str,
    /// With zeros in front, or blanks behind.
    is_filled: bool,
    ordinal: Option<Ordinal>,
}

#[derive(Clone, Copy)]
enum Ordinal {
    Small,
    Great,
}

/// What a format is made of.
enum Part<'f> {
    Word(Word),
    Letters(&'f str),
}

/// The word that a format begins with: of several that fit the longest.
fn word_of(format: &str) -> Option<&'static str> {
    let front = |word: &str| format.get(..word.len());
    let of_case = OF_CASE.into_iter().filter(|word| front(word) == Some(word));
    let others = OTHERS.into_iter().filter(|word| front(word).is_some_and(|front| front.eq_ignore_ascii_case(word)));
    of_case.chain(others).max_by_key(|word| word.len())
}

fn parts(format: &str) -> Vec<Part<'_>> {
    // What has to fit exactly is read as other texts are.
    let format = format.strip_prefix("FX").or_else(|| format.strip_prefix("fx")).unwrap_or(format);
    let (mut rest, mut parts) = (format, Vec::new());
    while let Some(letter) = rest.chars().next() {
        if letter == '"' {
            let inner = &rest[1..];
            let end = inner.find('"').unwrap_or(inner.len());
            parts.push(Part::Letters(&inner[..end]));
            rest = inner.get(end + 1..).unwrap_or_default();
            continue;
        }
        let (mut is_filled, mut behind) = (true, rest);
        // Names are those of the locale `C`, and are not filled where the format says that they are translated.
        while let Some(prefix) = behind.get(..2).filter(|it| ["FM", "fm", "TM", "tm"].contains(it)) {
            (is_filled, behind) = (false, &behind[prefix.len()..]);
        }
        match word_of(behind) {
            Some(name) => {
                rest = &behind[name.len()..];
                let ordinal = match rest.get(..2) {
                    Some("th") => Some(Ordinal::Small),
                    Some("TH") => Some(Ordinal::Great),
                    _ => None,
                };
                rest = if ordinal.is_some() { &rest[2..] } else { rest };
                parts.push(Part::Word(Word { name, is_filled, ordinal }));
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

/// The clock of a time that is shown.
struct Clock {
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
}

impl Clock {
    /// Parts of what has passed of a day, or of a span; all have the sign of the whole.
    fn of(micros: i64) -> Self {
        let second = micros / 1_000_000;
        Self { hour: second / 3600, minute: second / 60 % 60, second: second % 60, micros: micros % 1_000_000 }
    }
}

/// The zone in which a time is shown: seconds ahead of UTC, and what it is called.
struct Shown {
    ahead: i64,
    name: String,
}

fn number(value: i64, width: usize, is_filled: bool) -> String {
    let width = width + usize::from(value < 0);
    if is_filled { format!("{value:0width$}") } else { value.to_string() }
}

/// What a word shows of a clock.
fn of_clock(clock: &Clock, zone: &Shown, word: Word) -> Option<String> {
    let Clock { hour, minute, second, micros } = *clock;
    let number = |value: i64, width: usize| number(value, width, word.is_filled);
    let half = |before: &str, behind: &str| if hour.rem_euclid(24) < 12 { before } else { behind }.to_owned();
    Some(match word.name {
        "HH24" => number(hour, 2),
        "HH12" | "HH" => number(if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
        "MI" => number(minute, 2),
        "SS" => number(second, 2),
        "MS" => number(micros / 1_000, 3),
        "US" => number(micros, 6),
        "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
            let digits = u32::from(word.name.as_bytes()[2] - b'0');
            number(micros / 10_i64.pow(6 - digits), digits as usize)
        }
        "SSSS" | "SSSSS" => ((hour * 60 + minute) * 60 + second).to_string(),
        "AM" | "PM" => half("AM", "PM"),
        "am" | "pm" => half("am", "pm"),
        "A.M." | "P.M." => half("A.M.", "P.M."),
        "a.m." | "p.m." => half("a.m.", "p.m."),
        "TZH" => format!("{}{:02}", if zone.ahead < 0 { '-' } else { '+' }, zone.ahead.abs() / 3600),
        "TZM" => format!("{:02}", zone.ahead.abs() / 60 % 60),
        "TZ" => zone.name.to_uppercase(),
        "tz" => zone.name.to_lowercase(),
        "OF" => {
            let (sign, all) = (if zone.ahead < 0 { '-' } else { '+' }, zone.ahead.abs());
            let hours = self::number(all / 3600, 2, word.is_filled);
            let minutes = all / 60 % 60;
            if minutes == 0 { format!("{sign}{hours}") } else { format!("{sign}{hours}:{minutes:02}") }
        }
        _ => return None,
    })
}

/// What a word shows of a year.
fn of_year(year: i64, word: Word) -> Option<String> {
    let number = |value: i64, width: usize| number(value, width, word.is_filled);
    Some(match word.name {
        "YYYY" => number(year, 4),
        "Y,YYY" => format!("{},{:03}", year / 1000, year % 1000),
        "YYY" => number(year % 1000, 3),
        "YY" => number(year % 100, 2),
        "Y" => number(year % 10, 1),
        _ => return None,
    })
}

/// What a word shows of a day.
fn of_calendar(days: i64, word: Word) -> String {
    let (year, month, day) = civil_from_days(days);
    let shown_year = if year > 0 { year } else { 1 - year };
    let weekday = (days + 4).rem_euclid(7) as usize;
    let of_year_day = days - days_from_civil(year, 1, 1) + 1;
    let (iso_year, iso_week) = iso_week(days);
    let (name, day_name) = (MONTHS[month as usize - 1], WEEKDAYS[weekday]);
    let number = |value: i64, width: usize| number(value, width, word.is_filled);
    let named = |name: &str| if word.is_filled { format!("{name:9}") } else { name.to_owned() };
    let roman = ROMAN[month as usize - 1];
    let roman = if word.is_filled { format!("{roman:4}") } else { roman.to_owned() };
    let era = |after: &str, before: &str| if year > 0 { after } else { before }.to_owned();
    match word.name {
        "IYYY" => number(iso_year, 4),
        "IYY" => number(iso_year % 1000, 3),
        "IY" => number(iso_year % 100, 2),
        "I" => number(iso_year % 10, 1),
        "CC" if year > 0 => number((year + 99) / 100, 2),
        "CC" => number(-((100 - year) / 100), 2),
        "MONTH" => named(&name.to_uppercase()),
        "Month" => named(name),
        "month" => named(&name.to_lowercase()),
        "MON" => name[..3].to_uppercase(),
        "Mon" => name[..3].to_owned(),
        "mon" => name[..3].to_lowercase(),
        "MM" => number(month.into(), 2),
        "RM" => roman,
        "rm" => roman.to_lowercase(),
        "DAY" => named(&day_name.to_uppercase()),
        "Day" => named(day_name),
        "day" => named(&day_name.to_lowercase()),
        "DY" => day_name[..3].to_uppercase(),
        "Dy" => day_name[..3].to_owned(),
        "dy" => day_name[..3].to_lowercase(),
        "DDD" => number(of_year_day, 3),
        "IDDD" => number((iso_week - 1) * 7 + (days + 3).rem_euclid(7) + 1, 3),
        "DD" => number(day.into(), 2),
        "D" => (weekday + 1).to_string(),
        "ID" => (if weekday == 0 { 7 } else { weekday }).to_string(),
        "W" => ((day - 1) / 7 + 1).to_string(),
        "WW" => number((of_year_day - 1) / 7 + 1, 2),
        "IW" => number(iso_week, 2),
        "Q" => ((month - 1) / 3 + 1).to_string(),
        "J" => (days + 2_440_588).to_string(),
        "AD" | "BC" => era("AD", "BC"),
        "ad" | "bc" => era("ad", "bc"),
        "A.D." | "B.C." => era("A.D.", "B.C."),
        "a.d." | "b.c." => era("a.d.", "b.c."),
        _ => of_year(shown_year, word).unwrap_or_default(),
    }
}

/// What a word shows of a span.
fn of_span(span: Interval, word: Word) -> Result<String, SqlError> {
    let number = |value: i64, width: usize| number(value, width, word.is_filled);
    // The sign of days takes the place of a zero.
    let signed = |value: i64, width: usize| number(value, width - usize::from(value < 0));
    let (months, days) = (i64::from(span.months), i64::from(span.days));
    match word.name {
        "MM" => Ok(number(months % 12, 2)),
        "DD" => Ok(signed(days, 2)),
        "DDD" => Ok(signed(months * 30 + days, 3)),
        _ => of_year(months / 12, word).ok_or_else(|| {
            let message = "invalid format specification for an interval value";
            let error = SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message);
            error.with_hint("Intervals are not tied to specific calendar dates.")
        }),
    }
}

/// A text of a format whose words show this.
fn shown(format: &str, show: impl Fn(Word) -> Result<String, SqlError>) -> Result<String, SqlError> {
    let mut out = String::new();
    for part in parts(format) {
        match part {
            Part::Letters(letters) => out.push_str(letters),
            Part::Word(word) => {
                let text = show(word)?;
                out.push_str(&text);
                match word.ordinal {
                    Some(Ordinal::Small) => out.push_str(ordinal(&text)),
                    Some(Ordinal::Great) => out.push_str(&ordinal(&text).to_uppercase()),
                    None => {}
                }
            }
        }
    }
    Ok(out)
}

fn shown_time(local: i64, zone: &Shown, format: &str) -> Result<String, SqlError> {
    let clock = Clock::of(local.rem_euclid(DAY));
    shown(format, |word| Ok(of_clock(&clock, zone, word).unwrap_or_else(|| of_calendar(local.div_euclid(DAY), word))))
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
#[derive(Default)]
struct Fields {
    year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    of_year: Option<i64>,
    of_iso_year: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    of_day: Option<i64>,
    is_second_half: Option<bool>,
    /// Its hours are those of half a day.
    is_short_clock: bool,
    is_before_era: bool,
    /// Hours and minutes that local time is ahead of UTC, and the sign of both.
    ahead: Option<(i64, i64, i64)>,
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

/// Takes the first of the texts with which the rest begins, whatever its case, and tells which.
fn one_of(rest: &mut &str, word: &str, texts: &[&str]) -> Result<usize, SqlError> {
    let begins = |text: &&str| rest.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text));
    let fitting = (0..texts.len()).filter(|at| begins(&texts[*at])).max_by_key(|at| texts[*at].len());
    let at = fitting.ok_or_else(|| bad_value(word, rest))?;
    *rest = &rest[texts[at].len()..];
    Ok(at)
}

impl Fields {
    fn take(&mut self, rest: &mut &str, word: &str, year_width: usize) -> Result<(), SqlError> {
        let of_century = |value: i64| if value < 70 { 2000 + value } else { 1900 + value };
        match word {
            "YYYY" => self.year = Some(digits(rest, word, year_width)?.0),
            "YYY" => {
                let value = digits(rest, word, 3)?.0;
                self.year = Some(if value < 520 { 2000 + value } else { 1000 + value });
            }
            "YY" => self.year = Some(of_century(digits(rest, word, 2)?.0)),
            "IYYY" => self.iso_year = Some(digits(rest, word, year_width)?.0),
            "IY" => self.iso_year = Some(of_century(digits(rest, word, 2)?.0)),
            "IW" => self.iso_week = Some(digits(rest, word, 2)?.0),
            "ID" => self.iso_day = Some(digits(rest, word, 1)?.0),
            "IDDD" => self.of_iso_year = Some(digits(rest, word, 3)?.0),
            "MM" => self.month = Some(digits(rest, word, 2)?.0),
            "RM" | "rm" => self.month = Some(one_of(rest, word, &ROMAN)? as i64 + 1),
            "DD" => self.day = Some(digits(rest, word, 2)?.0),
            "DDD" => self.of_year = Some(digits(rest, word, 3)?.0),
            "J" => self.julian = Some(digits(rest, word, 9)?.0),
            "HH24" => self.hour = digits(rest, word, 2)?.0,
            "HH12" | "HH" => (self.hour, self.is_short_clock) = (digits(rest, word, 2)?.0, true),
            "MI" => self.minute = digits(rest, word, 2)?.0,
            "SS" => self.second = digits(rest, word, 2)?.0,
            "SSSS" | "SSSSS" => self.of_day = Some(digits(rest, word, 5)?.0),
            "MS" => self.fraction(rest, word, 3)?,
            "US" => self.fraction(rest, word, 6)?,
            "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                self.fraction(rest, word, usize::from(word.as_bytes()[2] - b'0'))?;
            }
            "AM" | "PM" | "am" | "pm" => self.is_second_half = Some(one_of(rest, word, &["AM", "PM"])? == 1),
            "A.M." | "P.M." | "a.m." | "p.m." => {
                self.is_second_half = Some(one_of(rest, word, &["A.M.", "P.M."])? == 1);
            }
            "AD" | "BC" | "ad" | "bc" => self.is_before_era = one_of(rest, word, &["AD", "BC"])? == 1,
            "A.D." | "B.C." | "a.d." | "b.c." => self.is_before_era = one_of(rest, word, &["A.D.", "B.C."])? == 1,
            "MONTH" | "Month" | "month" => self.month = Some(one_of(rest, word, &MONTHS)? as i64 + 1),
            "MON" | "Mon" | "mon" => {
                self.month = Some(one_of(rest, word, &MONTHS.map(|name| &name[..3]))? as i64 + 1);
            }
            "DAY" | "Day" | "day" | "DY" | "Dy" | "dy" => *rest = rest.trim_start_matches(char::is_alphabetic),
            // A quarter says nothing that a date needs.
            "Q" => drop(digits(rest, word, 1)?),
            "TZH" => {
                let sign = if rest.starts_with('-') { -1 } else { 1 };
                *rest = rest.strip_prefix(['+', '-', ' ']).unwrap_or(rest);
                self.ahead = Some((sign, digits(rest, word, 2)?.0, 0));
            }
            "TZM" => {
                let (sign, hours, _) = self.ahead.unwrap_or((1, 0, 0));
                self.ahead = Some((sign, hours, digits(rest, word, 2)?.0));
            }
            "TZ" | "tz" | "OF" => {
                let message = format!("formatting field \"{}\" is only supported in to_char", word.to_uppercase());
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            _ => return Err(SqlError::unsupported(format!("the format {word} of a text that is read"))),
        }
        Ok(())
    }

    /// Takes digits behind the point of a second.
    fn fraction(&mut self, rest: &mut &str, word: &str, width: usize) -> Result<(), SqlError> {
        let (value, count) = digits(rest, word, width)?;
        self.micros = value * 10_i64.pow(6 - count);
        Ok(())
    }

    fn days(&self, of: &str) -> Result<i64, SqlError> {
        let out = || field_overflow(format!("date/time field value out of range: \"{of}\""));
        if let Some(julian) = self.julian {
            return Ok(julian - 2_440_588);
        }
        let is_iso = self.iso_year.is_some() || self.iso_week.is_some() || self.of_iso_year.is_some();
        let is_civil = self.year.is_some() || self.month.is_some() || self.day.is_some() || self.of_year.is_some();
        if is_iso && is_civil {
            let message = "invalid combination of date conventions";
            let error = SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message);
            let hint = "Do not mix Gregorian and ISO week date conventions in a formatting template.";
            return Err(error.with_hint(hint));
        }
        if is_iso {
            let year = self.iso_year.filter(|year| *year > 0).ok_or_else(out)?;
            // The fourth of January lies in the first week.
            let fourth = days_from_civil(year, 1, 4);
            let monday = fourth - (fourth + 3).rem_euclid(7);
            let day = match self.of_iso_year {
                Some(day) => day - 1,
                None => {
                    let (week, day) = (self.iso_week.unwrap_or(1), self.iso_day.unwrap_or(1));
                    if !(1..=53).contains(&week) || !(1..=7).contains(&day) {
                        return Err(out());
                    }
                    (week - 1) * 7 + day - 1
                }
            };
            return Ok(monday + day);
        }
        let year = match self.year {
            Some(year) if self.is_before_era => -year.abs(),
            Some(year) => year,
            // A date without a year lies in the first one before Christ.
            None => -1,
        };
        let year = if year == 0 { -1 } else { year };
        match self.of_year {
            Some(number) => {
                let first = date_of(year, 1, 1).map_err(|_| out())?;
                let next = date_of(if year == -1 { 1 } else { year + 1 }, 1, 1).map_err(|_| out())?;
                if number < 1 || first + number > next { Err(out()) } else { Ok(first + number - 1) }
            }
            None => date_of(year, self.month.unwrap_or(1), self.day.unwrap_or(1)).map_err(|_| out()),
        }
    }

    /// The local time, and how far it is said to be ahead of UTC.
    fn local(mut self, of: &str) -> Result<(i64, Option<i64>), SqlError> {
        let out = |_| field_overflow(format!("date/time field value out of range: \"{of}\""));
        if let Some(seconds) = self.of_day {
            (self.hour, self.minute, self.second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        }
        if self.is_short_clock || self.is_second_half.is_some() {
            if !(1..=12).contains(&self.hour) {
                let message = format!("hour \"{}\" is invalid for the 12-hour clock", self.hour);
                let error = SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message);
                return Err(error.with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            self.hour = self.hour % 12 + if self.is_second_half == Some(true) { 12 } else { 0 };
        }
        let days = self.days(of)?;
        let time = time_of(self.hour, self.minute, self.second as f64).map_err(out)?;
        let local = on_day(days, time + self.micros).map_err(out)?;
        let ahead = self.ahead.map(|(sign, hours, minutes)| sign * (hours * 3600 + minutes * 60));
        Ok((local, ahead))
    }
}

/// The local time that a text of a format stands for, and how far it says to be ahead of UTC.
fn read(of: &str, format: &str) -> Result<(i64, Option<i64>), SqlError> {
    let (mut fields, mut rest) = (Fields::default(), of);
    let parts = parts(format);
    for (at, part) in parts.iter().enumerate() {
        // Digits of a year end where those of the next word begin.
        let is_before_digits = matches!(parts.get(at + 1), Some(Part::Word(next)) if OTHERS.contains(&next.name));
        let year_width = if is_before_digits { 4 } else { 9 };
        match part {
            Part::Letters(letters) => skip(&mut rest, letters),
            Part::Word(word) => {
                rest = rest.trim_start();
                // What a text does not have is as if its format had not said it.
                if rest.is_empty() {
                    break;
                }
                fields.take(&mut rest, word.name, year_width)?;
            }
        }
    }
    fields.local(of)
}

fn timestamp(datum: Datum<'_>) -> i64 {
    if let Datum::Timestamp(micros) = datum { micros } else { unreachable!("a timestamp") }
}

fn text<'a>(datum: Datum<'a>) -> &'a str {
    if let Datum::Text(text) = datum { text } else { unreachable!("a text") }
}

fn made<'a>(context: &Context<'a>, text: &str) -> Datum<'a> {
    Datum::Text(context.arena.alloc_str(text))
}

fn is_infinite(micros: i64) -> bool {
    matches!(micros, i64::MIN | i64::MAX)
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "to_timestamp"(Text, Text) -> Timestamptz = |it, context| {
        let (local, ahead) = read(text(it[0]), text(it[1]))?;
        stored(match ahead {
            Some(seconds) => local - seconds * 1_000_000,
            None => from_local(local, context.zone),
        })
    };
    "to_date"(Text, Text) -> Date = |it, _| Ok(Datum::Date(read(text(it[0]), text(it[1]))?.0.div_euclid(DAY) as i32));
    "to_char"(Timestamp, Text) -> Text = |it, context| {
        let local = timestamp(it[0]);
        let zone = Shown { ahead: 0, name: String::new() };
        if is_infinite(local) { Ok(Datum::Null) } else { Ok(made(context, &shown_time(local, &zone, text(it[1]))?)) }
    };
    "to_char"(Timestamptz, Text) -> Text = |it, context| {
        let micros = timestamp(it[0]);
        if is_infinite(micros) { return Ok(Datum::Null) }
        let (local, name) = (to_local(micros, context.zone), Zone::abbreviation_at(context.zone, micros));
        Ok(made(context, &shown_time(local, &Shown { ahead: (local - micros) / 1_000_000, name }, text(it[1]))?))
    };
    "to_char"(Interval, Text) -> Text = |it, context| {
        let Datum::Interval(span) = it[0] else { unreachable!("a span") };
        let (clock, zone) = (Clock::of(span.micros), Shown { ahead: 0, name: String::new() });
        let show = |word: Word| {
            let is_of_zone = matches!(word.name, "TZ" | "tz" | "TZH" | "TZM" | "OF");
            let found = if is_of_zone { None } else { of_clock(&clock, &zone, word) };
            found.map_or_else(|| of_span(span, word), Ok)
        };
        Ok(made(context, &shown(text(it[1]), show)?))
    };
};
