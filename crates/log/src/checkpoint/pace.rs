//! How fast a checkpoint is made.

use std::sync::Arc;

use polychron_base::clock::{Clock, Duration};
use polychron_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::Error;

/// After so much work there is a pause.
const WORK_NS: u64 = 1_000_000;
/// How long a pause goes on without a look at whether the checkpoint is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// The pace of a checkpoint, which all its threads know.
pub(crate) struct Pace<'p> {
    pub(crate) clock: Arc<dyn Clock>,
    /// The share of the time in which threads work, as it is now; all of it if it is 1.
    pub(crate) share: &'p (dyn Fn() -> f64 + Sync),
    /// Whether the checkpoint is to be given up.
    pub(crate) is_unwanted: Arc<AtomicBool>,
    /// How many threads wait for it, or for one behind it: then there are no pauses.
    pub(crate) awaited: Arc<AtomicUsize>,
}

/// The measured work of one thread.
pub(crate) struct Work<'p> {
    pace: &'p Pace<'p>,
    since_ns: u64,
}

impl Pace<'_> {
    /// Work that begins now.
    pub(crate) fn begin(&self) -> Work<'_> {
        Work { pace: self, since_ns: self.clock.now_ns() }
    }
}

impl Work<'_> {
    /// Pauses as long as the share of the work since the last pause wants. So the bandwidth is that share of what the device and the processors give,
    /// whatever they give.
    ///
    /// # Errors
    /// [`Error::GivenUp`].
    pub(crate) fn pause(&mut self) -> Result<(), Error> {
        let Pace { clock, share, is_unwanted, awaited } = self.pace;
        let worked_ns = clock.now_ns().saturating_sub(self.since_ns);
        let share = if worked_ns >= WORK_NS { share() } else { 1.0 };
        if share < 1.0 {
            let mut left = Duration::from_nanos((worked_ns as f64 * (1.0 / share - 1.0)) as u64);
            let goes_on = || is_unwanted.load(Ordering::Relaxed) || awaited.load(Ordering::Relaxed) > 0;
            while !left.is_zero() && !goes_on() {
                let part = left.min(LOOK);
                std::thread::sleep(part);
                left -= part;
            }
        }
        if worked_ns >= WORK_NS {
            self.since_ns = clock.now_ns();
        }
        if is_unwanted.load(Ordering::Relaxed) { Err(Error::GivenUp) } else { Ok(()) }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron_base::clock::{ManualClock, SystemClock};

    use super::*;

    #[test]
    fn pauses_are_in_proportion_to_work() {
        let (clock, watch) = (Arc::new(ManualClock::new()), SystemClock::new());
        let pause_ns = |share: f64, work_ns: u64| {
            let share = || share;
            let (is_unwanted, awaited) = (Arc::default(), Arc::default());
            let pace = Pace { clock: clock.clone(), share: &share, is_unwanted, awaited };
            let mut work = pace.begin();
            clock.advance_ns(work_ns);
            let begun_ns = watch.now_ns();
            assert_eq!(work.pause(), Ok(()));
            watch.now_ns() - begun_ns
        };
        assert!(pause_ns(0.25, 10_000_000) >= 30_000_000);
        assert!(pause_ns(0.5, 5_000_000) >= 5_000_000);
    }

    /// It would take a day.
    #[test]
    fn what_is_not_wanted_or_is_waited_for_does_not_pause() {
        let clock = Arc::new(ManualClock::new());
        for (unwanted, waiting) in [(true, 0), (false, 1)] {
            let (is_unwanted, awaited) = (Arc::new(AtomicBool::new(unwanted)), Arc::new(AtomicUsize::new(waiting)));
            let pace = Pace { clock: clock.clone(), share: &|| 0.001, is_unwanted, awaited };
            let mut work = pace.begin();
            clock.advance_ns(86_400_000_000);
            assert_eq!(work.pause().is_err(), unwanted);
        }
    }
}
