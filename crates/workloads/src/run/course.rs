//! How memory and progress go over a run: what a long run is judged by.

use polychron_sync::CachePadded;
use serde::Serialize;

use super::client::Tally;
use super::machine::rss_bytes;

/// Memory and progress over the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Course {
    /// The four quarters of the interval; without samples where the run ended before.
    pub quarters: [Quarter; 4],
    /// The longest time for which a client completed nothing, in seconds; exact to some tens of milliseconds.
    pub longest_stall_seconds: f64,
}

/// A quarter of the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quarter {
    /// The memory of the process on average, in bytes; 0 where the system does not tell it.
    pub resident_bytes: f64,
    /// Transactions completed since the interval began, on average over the quarter.
    pub completed: f64,
    /// The number of samples of both.
    pub samples: u64,
}

/// Memory of the last quarter over that of the second, at most.
const MOST_GROWTH: f64 = 1.05;

/// A client that completes nothing for longer is stalled.
const LONGEST_STALL_SECONDS: f64 = 1.0;

impl Course {
    /// Takes in that a client has waited so long.
    pub(super) fn waited(&mut self, ns: u64) {
        self.longest_stall_seconds = self.longest_stall_seconds.max(ns as f64 / 1e9);
    }

    /// The growth from the second quarter to the last: of the memory, or, where the workload leaves rows behind, of the memory that each
    /// transaction adds. `None` if there are not enough samples.
    pub fn growth(&self, grows: bool) -> Option<f64> {
        let [first, second, third, last] = &self.quarters;
        if self.quarters.iter().any(|quarter| quarter.samples == 0 || quarter.resident_bytes == 0.0) {
            return None;
        }
        if !grows {
            return Some(last.resident_bytes / second.resident_bytes);
        }
        let added = |from: &Quarter, to: &Quarter| {
            (to.resident_bytes - from.resident_bytes) / (to.completed - from.completed).max(1.0)
        };
        // What a transaction adds is positive, unless something is freed meanwhile.
        Some(added(third, last).max(0.0) / added(first, second).max(1.0))
    }

    /// The fault of a long run, if it has one: memory that grows although the rows do not, or clients that are held up.
    pub fn fault(&self, grows: bool) -> Option<String> {
        let stall = self.longest_stall_seconds;
        if stall > LONGEST_STALL_SECONDS {
            return Some(format!("a client completed nothing for {stall:.2} s"));
        }
        match self.growth(grows) {
            None => Some("the run was too short to compare its quarters".to_owned()),
            Some(growth) if growth > MOST_GROWTH => {
                let of = if grows { "what a transaction adds to the memory" } else { "the memory" };
                Some(format!("{of} of the last quarter is {growth:.3} times that of the second"))
            }
            Some(_) => None,
        }
    }
}

/// Looks at a run from time to time.
pub(super) struct Watch {
    began_ns: u64,
    length_ns: u64,
    /// The number of transactions that were completed when the interval began.
    before: u64,
    /// For each thread, the number of its completed transactions, and the time of the last change of that number.
    threads: Vec<(u64, u64)>,
    longest_ns: u64,
    quarters: [Quarter; 4],
}

impl Watch {
    pub(super) fn new(began_ns: u64, seconds: f64, tallies: &[CachePadded<Tally>]) -> Self {
        let threads: Vec<_> = tallies.iter().map(|tally| (tally.total(), began_ns)).collect();
        let before = threads.iter().map(|(completed, _)| completed).sum();
        let length_ns = ((seconds * 1e9) as u64).max(1);
        Self { began_ns, length_ns, before, threads, longest_ns: 0, quarters: Default::default() }
    }

    pub(super) fn look(&mut self, now_ns: u64, tallies: &[CachePadded<Tally>]) {
        let mut completed = 0;
        for ((known, since_ns), tally) in self.threads.iter_mut().zip(tallies) {
            let total = tally.total();
            completed += total;
            self.longest_ns = self.longest_ns.max(now_ns - *since_ns);
            if total != *known {
                (*known, *since_ns) = (total, now_ns);
            }
        }
        let quarter = ((now_ns - self.began_ns) * 4 / self.length_ns).min(3) as usize;
        let quarter = &mut self.quarters[quarter];
        quarter.samples += 1;
        quarter.resident_bytes += rss_bytes().unwrap_or(0) as f64;
        quarter.completed += (completed - self.before) as f64;
    }

    pub(super) fn course(mut self) -> Course {
        for quarter in &mut self.quarters {
            quarter.resident_bytes /= quarter.samples.max(1) as f64;
            quarter.completed /= quarter.samples.max(1) as f64;
        }
        Course { quarters: self.quarters, longest_stall_seconds: self.longest_ns as f64 / 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(resident: [f64; 4], stall: f64) -> Course {
        let mut course = Course { longest_stall_seconds: stall, ..Course::default() };
        for (number, (quarter, resident_bytes)) in course.quarters.iter_mut().zip(resident).enumerate() {
            *quarter = Quarter { resident_bytes, completed: number as f64 * 1000.0, samples: 5 };
        }
        course
    }

    #[test]
    fn memory_that_grows_is_a_fault() {
        assert_eq!(course([50e6, 100e6, 100e6, 104e6], 0.2).fault(false), None);
        assert!(course([50e6, 100e6, 100e6, 106e6], 0.2).fault(false).unwrap().contains("1.060 times"));
        assert!(course([0.0; 4], 0.2).fault(false).unwrap().contains("too short"));
    }

    #[test]
    fn rows_that_are_added_are_no_fault_and_more_for_each_are() {
        assert_eq!(course([50e6, 60e6, 70e6, 80e6], 0.2).fault(true), None);
        assert!(course([50e6, 60e6, 70e6, 82e6], 0.2).fault(true).unwrap().contains("1.200 times"));
    }

    #[test]
    fn clients_that_are_held_up_are_a_fault() {
        assert!(course([100e6; 4], 1.5).fault(false).unwrap().contains("1.50 s"));
    }

    /// A thread that completes nothing is seen while it does so, not only when it goes on.
    #[test]
    fn stalls_are_seen() {
        let tallies: Vec<CachePadded<Tally>> = (0..2).map(|_| CachePadded::default()).collect();
        let mut watch = Watch::new(0, 8.0, &tallies);
        for second in 0..8 {
            tallies[0].complete_one();
            watch.look(second * 1_000_000_000, &tallies);
        }
        let course = watch.course();
        assert_eq!(course.longest_stall_seconds, 7.0);
        assert!(course.quarters.iter().all(|quarter| quarter.samples == 2));
        assert_eq!(course.quarters[3].completed, 7.5);
    }
}
