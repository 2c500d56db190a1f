//! Dates and times of `chrono`, which are those of UTC.

use ::chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};

use crate::times::TimeRangeError;
use crate::{Date, Timestamp};

/// Days from the first day of `chrono`'s count, the first of the year 1, to 1970-01-01.
const EPOCH_FROM_CE: i32 = 719_163;

impl From<DateTime<Utc>> for Timestamp {
    /// The microsecond in which the time lies.
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.timestamp_micros())
    }
}

impl TryFrom<Timestamp> for DateTime<Utc> {
    type Error = TimeRangeError;

    fn try_from(time: Timestamp) -> Result<Self, Self::Error> {
        Self::from_timestamp_micros(time.0).ok_or(TimeRangeError(()))
    }
}

impl From<NaiveDateTime> for Timestamp {
    /// The microsecond in which the time lies, read as one of UTC.
    fn from(time: NaiveDateTime) -> Self {
        time.and_utc().into()
    }
}

impl TryFrom<Timestamp> for NaiveDateTime {
    type Error = TimeRangeError;

    fn try_from(time: Timestamp) -> Result<Self, Self::Error> {
        DateTime::<Utc>::try_from(time).map(|time| time.naive_utc())
    }
}

impl From<NaiveDate> for Date {
    fn from(date: NaiveDate) -> Self {
        use ::chrono::Datelike as _;
        Self(date.num_days_from_ce() - EPOCH_FROM_CE)
    }
}

impl TryFrom<Date> for NaiveDate {
    type Error = TimeRangeError;

    fn try_from(date: Date) -> Result<Self, Self::Error> {
        let days = date.0.checked_add(EPOCH_FROM_CE).ok_or(TimeRangeError(()))?;
        Self::from_num_days_from_ce_opt(days).ok_or(TimeRangeError(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_mean_the_same() {
        let leap_day = NaiveDate::from_ymd_opt(2024, 2, 29).unwrap();
        assert_eq!(Date::from(leap_day), Date(19_782));
        assert_eq!(NaiveDate::try_from(Date(-1)), Ok(NaiveDate::from_ymd_opt(1969, 12, 31).unwrap()));
        for date in [NaiveDate::MIN, NaiveDate::MAX, leap_day] {
            assert_eq!(NaiveDate::try_from(Date::from(date)), Ok(date));
        }
        assert!(NaiveDate::try_from(Date(i32::MAX)).is_err() && NaiveDate::try_from(Date(i32::MIN)).is_err());
        for time in [0, -1, 1_709_164_800_000_001] {
            let found = DateTime::<Utc>::try_from(Timestamp(time)).unwrap();
            assert_eq!(Timestamp::from(found), Timestamp(time));
            assert_eq!(Timestamp::from(NaiveDateTime::try_from(Timestamp(time)).unwrap()), Timestamp(time));
        }
        assert!(DateTime::<Utc>::try_from(Timestamp(i64::MAX)).is_err());
        assert_eq!(Timestamp::from(leap_day.and_hms_opt(0, 0, 1).unwrap()).date(), leap_day.into());
    }
}
