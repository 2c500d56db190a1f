//! Dates and times of `jiff`.

use ::jiff::civil;

use crate::times::TimeRangeError;
use crate::{Date, Timestamp};

impl From<::jiff::Timestamp> for Timestamp {
    /// The microsecond in which the time lies.
    fn from(time: ::jiff::Timestamp) -> Self {
        Self(time.as_nanosecond().div_euclid(1000) as i64)
    }
}

impl TryFrom<Timestamp> for ::jiff::Timestamp {
    type Error = TimeRangeError;

    fn try_from(time: Timestamp) -> Result<Self, Self::Error> {
        Self::from_microsecond(time.0).map_err(|_| TimeRangeError(()))
    }
}

impl From<civil::Date> for Date {
    fn from(date: civil::Date) -> Self {
        // By the calendar's own rule, from the first of March of the year 0 on, so that a leap day is the last of its year.
        let (month, day) = (i32::from(date.month()), i32::from(date.day()));
        let year = i32::from(date.year()) - i32::from(month <= 2);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        Self(365 * year + leap_days + day_of_year - 719_468)
    }
}

impl TryFrom<Date> for civil::Date {
    type Error = TimeRangeError;

    fn try_from(date: Date) -> Result<Self, Self::Error> {
        let time = date.start().ok_or(TimeRangeError(()))?;
        let time = ::jiff::Timestamp::try_from(time)?;
        Ok(time.to_zoned(::jiff::tz::TimeZone::UTC).date())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_mean_the_same() {
        assert_eq!(Date::from(civil::date(2024, 2, 29)), Date(19_782));
        for days in (-4_000_000..3_000_000).step_by(997).chain([-1, 0, 1, 58, 59, 60]) {
            if let Ok(date) = civil::Date::try_from(Date(days)) {
                assert_eq!(Date::from(date), Date(days));
            }
        }
        assert_eq!(civil::Date::try_from(Date(-1)), Ok(civil::date(1969, 12, 31)));
        assert!(civil::Date::try_from(Date(i32::MAX)).is_err());
        for time in [0, -1, 1_709_164_800_000_001] {
            let found = ::jiff::Timestamp::try_from(Timestamp(time)).unwrap();
            assert_eq!(Timestamp::from(found), Timestamp(time));
        }
        assert_eq!(Timestamp::from(::jiff::Timestamp::from_nanosecond(-1).unwrap()), Timestamp(-1));
        assert!(::jiff::Timestamp::try_from(Timestamp(i64::MAX)).is_err());
    }
}
