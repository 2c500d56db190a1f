//! Contention regulation (§3.9): one longest wait after a conflict for all workers, found by climbing the hill of throughput.

use std::sync::PoisonError;

use polychron_base::random::Random;
use polychron_sync::atomic::{AtomicU64, Ordering};
use polychron_sync::{CachePadded, Mutex, try_lock};

use super::options::Options;

/// How often the longest wait is changed.
const PERIOD_NS: u64 = 5_000_000;
/// By how much.
const STEP_NS: u64 = 500;

/// Waits that are kept for the course; beyond that every other one is forgotten.
const KEPT: usize = 512;

/// The longest wait over time, evenly pruned.
#[derive(Debug)]
struct Course {
    began_ns: Option<u64>,
    points: Vec<(f64, f64)>,
    /// One in so many steps is kept, and steps since one was.
    stride: u32,
    since: u32,
}

impl Course {
    fn note(&mut self, now_ns: u64, longest_ns: u64) {
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        self.since += 1;
        if self.since < self.stride {
            return;
        }
        self.since = 0;
        if self.points.len() == KEPT {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
        // A worker that takes the step has looked at the time before; another one may have been later, and faster.
        let seconds = now_ns.saturating_sub(began_ns) as f64 / 1e9;
        let seconds = self.points.last().map_or(seconds, |last| last.0.max(seconds));
        self.points.push((seconds, longest_ns as f64 / 1e3));
    }
}

/// The state of the climb.
#[derive(Debug)]
struct Climb {
    course: Course,
    at_ns: u64,
    commits: u64,
    throughput: f64,
    backoff_ns: u64,
    random: Random,
}

/// The regulation.
#[derive(Debug)]
pub(super) struct Regulation {
    /// The longest wait; read by every worker that conflicts.
    longest_ns: CachePadded<AtomicU64>,
    due_ns: AtomicU64,
    ceiling_ns: u64,
    climb: Option<Mutex<Climb>>,
}

impl Regulation {
    /// A regulation that never goes beyond `ceiling_ns`.
    pub(super) fn new(options: &Options, ceiling_ns: u64) -> Self {
        let course = Course { began_ns: None, points: Vec::with_capacity(KEPT), stride: 1, since: 0 };
        let climb =
            Climb { course, at_ns: 0, commits: 0, throughput: 0.0, backoff_ns: 0, random: Random::stream(0xC1CADA, 0) };
        let fixed = options.fixed_backoff.map(|backoff| backoff.as_nanos() as u64);
        Self {
            longest_ns: CachePadded::new(AtomicU64::new(fixed.unwrap_or(0))),
            due_ns: AtomicU64::new(if fixed.is_some() { u64::MAX } else { 0 }),
            ceiling_ns,
            climb: fixed.is_none().then(|| Mutex::new(climb)),
        }
    }

    /// The longest wait now.
    pub(super) fn longest_ns(&self) -> u64 {
        self.longest_ns.load(Ordering::Relaxed)
    }

    /// Takes a step when it is time. Where `commits` returns `None`, they cannot be counted just now, and the step is left for later: a client never
    /// waits here for a thread that the scheduler has stopped.
    #[inline]
    pub(super) fn regulate(&self, now_ns: u64, commits: impl FnOnce() -> Option<u64>) {
        if now_ns >= self.due_ns.load(Ordering::Relaxed)
            && let Some(commits) = commits()
        {
            self.step(now_ns, commits);
        }
    }

    #[cold]
    fn step(&self, now_ns: u64, commits: u64) {
        let Some(mut climb) = self.climb.as_ref().and_then(try_lock) else { return };
        self.due_ns.store(now_ns + PERIOD_NS, Ordering::Relaxed);
        let elapsed_ns = now_ns.saturating_sub(climb.at_ns).max(1);
        let throughput = commits.saturating_sub(climb.commits) as f64 / elapsed_ns as f64;
        let backoff_ns = self.longest_ns();
        let (more_throughput, more_backoff) =
            (throughput - climb.throughput, backoff_ns as f64 - climb.backoff_ns as f64);
        let gradient = if more_backoff == 0.0 { 0.0 } else { more_throughput / more_backoff };
        let up = if gradient == 0.0 { climb.random.below(2) == 0 } else { gradient > 0.0 };
        (climb.at_ns, climb.commits, climb.throughput, climb.backoff_ns) = (now_ns, commits, throughput, backoff_ns);
        let next = if up { backoff_ns + STEP_NS } else { backoff_ns.saturating_sub(STEP_NS) };
        self.longest_ns.store(next.min(self.ceiling_ns), Ordering::Relaxed);
        climb.course.note(now_ns, next.min(self.ceiling_ns));
    }

    /// The longest wait in microseconds over the seconds since the first step; the one point there is, where it is fixed.
    pub(super) fn course(&self) -> Vec<(f64, f64)> {
        match &self.climb {
            Some(climb) => climb.lock().unwrap_or_else(PoisonError::into_inner).course.points.clone(),
            None => vec![(0.0, self.longest_ns() as f64 / 1e3)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Throughput that is best at a wait of 20 µs.
    fn commits_in_a_period(longest_ns: u64) -> u64 {
        100_000 - longest_ns.abs_diff(20_000)
    }

    #[test]
    #[cfg_attr(miri, ignore = "long arithmetic of one thread shows an interpreter nothing")]
    fn the_climb_finds_the_top_and_stays_there() {
        let regulation = Regulation::new(&Options::default(), 64_000);
        let (mut now_ns, mut commits) = (0, 0);
        for round in 0..2000 {
            now_ns += PERIOD_NS;
            commits += commits_in_a_period(regulation.longest_ns());
            regulation.regulate(now_ns, || Some(commits));
            let longest_ns = regulation.longest_ns();
            assert!(round < 500 || longest_ns.abs_diff(20_000) <= 4 * STEP_NS, "round {round}: {longest_ns} ns");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "long arithmetic of one thread shows an interpreter nothing")]
    fn the_course_is_pruned_evenly() {
        let regulation = Regulation::new(&Options::default(), 64_000);
        for round in 1..=3 * KEPT as u64 {
            regulation.regulate(round * PERIOD_NS, || Some(round));
        }
        let course = regulation.course();
        assert!(course.len() > KEPT / 2 && course.len() <= KEPT, "{}", course.len());
        let gaps: Vec<f64> = course.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(gaps.iter().all(|gap| *gap > 0.0), "{gaps:?}");
        assert!(course.last().unwrap().0 > (3 * KEPT - 8) as f64 * PERIOD_NS as f64 / 1e9);
    }

    #[test]
    fn a_fixed_wait_stays() {
        let options = Options { fixed_backoff: Some(std::time::Duration::from_micros(3)), ..Options::default() };
        let regulation = Regulation::new(&options, 64_000);
        regulation.regulate(u64::MAX - 1, || panic!("nobody counts"));
        assert_eq!(regulation.longest_ns(), 3000);
    }
}
