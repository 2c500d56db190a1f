//! Functions that let time go by.

use polychron_base::clock::{Clock, Duration, SystemClock};
use polychron_engine::limits;

use super::{Function, functions};
use crate::datum::Datum;
use crate::error::SqlError;
use crate::tape::volatile;

/// How long a call sleeps before it looks whether the statement was cancelled, or has taken its time.
const NAP: u64 = 10_000_000;

/// The most seconds that one call sleeps: a year.
const LONGEST: f64 = 366.0 * 86_400.0;

/// Sleeps within the limits of the statement. A transaction that is run again has slept already.
fn sleep<'a>(seconds: f64) -> Result<Datum<'a>, SqlError> {
    let mut is_first = false;
    volatile(|| {
        is_first = true;
        0
    });
    if is_first && seconds > 0.0 {
        let clock = SystemClock::new();
        let end = clock.now_ns().saturating_add((seconds.min(LONGEST) * 1e9) as u64);
        loop {
            limits::check().map_err(SqlError::of_engine)?;
            let left = end.saturating_sub(clock.now_ns());
            if left == 0 {
                break;
            }
            std::thread::sleep(Duration::from_nanos(left.min(NAP)));
        }
    }
    Ok(Datum::Text(""))
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "pg_sleep"(Float8) -> Void = |it, _| match it[0] {
        Datum::Float(seconds) => sleep(seconds),
        _ => Ok(Datum::Text("")),
    };
    "pg_sleep_for"(Interval) -> Void = |it, _| match it[0] {
        Datum::Interval(span) => sleep(span.span() as f64 / 1e6),
        _ => Ok(Datum::Text("")),
    };
    "pg_sleep_until"(Timestamptz) -> Void = |it, _| match it[0] {
        Datum::Timestamp(end) => sleep((i128::from(end) - i128::from(crate::context::now())) as f64 / 1e6),
        _ => Ok(Datum::Text("")),
    };
};
