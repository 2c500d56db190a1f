//! Dates and points in time to and from the standard library's and other crates' types.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use polychron_base::clock::{Duration, SystemTime, calendar_time};

use crate::{Date, Timestamp};

/// Microseconds of a day.
const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;

/// A date or a point in time that the other type cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the date or time lies beyond what the other type holds")]
pub struct TimeRangeError(pub(crate) ());

impl Timestamp {
    /// 1970-01-01 00:00 UTC.
    pub const EPOCH: Self = Self(0);

    /// Now, by the machine's calendar clock, which may be set back. Each run of a procedure that is run again sees another time: take the
    /// time before, and hand it in.
    ///
    /// ```
    /// use polychron_schema::Timestamp;
    /// assert!(Timestamp::now() > Timestamp::EPOCH);
    /// ```
    pub fn now() -> Self {
        calendar_time().try_into().unwrap_or_default()
    }

    /// The time that much later, or `None` beyond the last one. Parts of a microsecond are dropped.
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let later = i128::from(self.0) + i128::try_from(duration.as_micros()).ok()?;
        i64::try_from(later).ok().map(Self)
    }

    /// The time that much earlier, or `None` before the first one. Parts of a microsecond are dropped.
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        let earlier = i128::from(self.0) - i128::try_from(duration.as_micros()).ok()?;
        i64::try_from(earlier).ok().map(Self)
    }

    /// The time since an earlier point, or `None` if that point is later.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let passed = i128::from(self.0) - i128::from(earlier.0);
        u64::try_from(passed).ok().map(Duration::from_micros)
    }

    /// The day in UTC.
    pub const fn date(self) -> Date {
        // The days of 64 bits of microseconds fit in 32 bits.
        Date(self.0.div_euclid(DAY_US) as i32)
    }
}

impl Date {
    /// Midnight at the beginning of the day, in UTC, or `None` beyond what a point in time holds.
    pub const fn start(self) -> Option<Timestamp> {
        match (self.0 as i64).checked_mul(DAY_US) {
            Some(time) => Some(Timestamp(time)),
            None => None,
        }
    }

    /// The date that many days later, or earlier, or `None` when there is none.
    pub const fn checked_add_days(self, days: i32) -> Option<Self> {
        match self.0.checked_add(days) {
            Some(date) => Some(Self(date)),
            None => None,
        }
    }
}

/// Panics beyond the last point in time.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.checked_add(duration).expect("the time is later than a timestamp can be")
    }
}

/// Panics before the first point in time.
impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        self.checked_sub(duration).expect("the time is earlier than a timestamp can be")
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl SubAssign<Duration> for Timestamp {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = TimeRangeError;

    /// The microsecond in which the time lies.
    fn try_from(time: SystemTime) -> Result<Self, Self::Error> {
        let nanoseconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i128::try_from(after.as_nanos()).ok(),
            Err(before) => i128::try_from(before.duration().as_nanos()).ok().map(|nanoseconds| -nanoseconds),
        };
        let microseconds = nanoseconds.map(|nanoseconds| nanoseconds.div_euclid(1000));
        microseconds.and_then(|time| i64::try_from(time).ok()).map(Self).ok_or(TimeRangeError(()))
    }
}

impl TryFrom<Timestamp> for SystemTime {
    type Error = TimeRangeError;

    fn try_from(time: Timestamp) -> Result<Self, Self::Error> {
        let distance = Duration::from_micros(time.0.unsigned_abs());
        let epoch = SystemTime::UNIX_EPOCH;
        let found = if time.0 < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
        found.ok_or(TimeRangeError(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_through_the_standard_library() {
        for time in [0, 1, -1, 1_700_000_000_000_000, -62_135_596_800_000_000] {
            let system = SystemTime::try_from(Timestamp(time)).unwrap();
            assert_eq!(Timestamp::try_from(system), Ok(Timestamp(time)));
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(Timestamp::try_from(before), Ok(Timestamp(-1)));
    }

    #[test]
    fn arithmetic_ends_at_the_ends() {
        let (first, last) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        let all = last.since(first).unwrap();
        assert_eq!((first.checked_add(all), last.checked_sub(all)), (Some(last), Some(first)));
        assert_eq!((first.since(last), last.checked_add(Duration::from_micros(1))), (None, None));
        assert_eq!(Timestamp(5) + Duration::from_nanos(2999) - Duration::from_secs(1), Timestamp(-999_993));
        assert_eq!((Timestamp(-1).date(), Timestamp(DAY_US).date()), (Date(-1), Date(1)));
        assert_eq!(first.date().start().is_some(), first.date().0 >= (i64::MIN / DAY_US) as i32);
        assert_eq!((Date(1).start(), Date(i32::MAX).start()), (Some(Timestamp(DAY_US)), None));
        assert_eq!(Date(1).checked_add_days(-2), Some(Date(-1)));
    }
}
