//! Running models: the two ways in which interleavings of threads are explored, with the number of what was explored.
//!
//! Under `--cfg loom`, [`explore`] runs every interleaving, weak memory included, up to a number of preemptions. Under
//! `--cfg shuttle`, [`explore_random`] and [`explore_prioritized`] run schedules drawn from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the executions of a model.
fn counted(model: impl Fn() + Send + Sync + 'static) -> (Arc<AtomicUsize>, impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let counting = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    };
    (executions, counting)
}

/// Tells how much was explored, and answers it.
fn report(executions: &AtomicUsize, bounds: &str) -> usize {
    let executions = executions.load(Ordering::Relaxed);
    let thread = std::thread::current();
    eprintln!("explored {}: {executions} executions, {bounds}", thread.name().unwrap_or("a model"));
    executions
}

/// Runs every interleaving of the model's threads with up to so many preemptions (switches away from a thread that could
/// go on), or as many of them as a minute allows; `LOOM_MAX_PREEMPTIONS` and `LOOM_MAX_DURATION`, in seconds, replace the
/// bounds. Answers how many there were.
///
/// Loom takes sequentially consistent loads and stores for acquiring and releasing ones. What rests on their one order is
/// not shown here.
///
/// # Panics
/// When an execution does, or when there was nothing to interleave, which shows nothing.
#[cfg(loom)]
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> usize {
    let mut builder = loom::model::Builder::new();
    let preemptions = *builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = builder.max_branches.max(20_000);
    builder.max_duration.get_or_insert(std::time::Duration::from_secs(60));
    // Loom looks at the time so often; it ends just before it would count one more.
    builder.checkpoint_interval = 500;
    let (executions, model) = counted(model);
    builder.check(model);
    let ended_by_time = (executions.load(Ordering::Relaxed) + 1).is_multiple_of(builder.checkpoint_interval);
    let all = if ended_by_time { "some" } else { "all" };
    let executions = report(&executions, &format!("{all} with up to {preemptions} preemptions"));
    assert!(executions > 5, "{executions} interleavings are not all");
    executions
}

/// Runs the model under `schedules` schedules that choose among the threads at random. Answers how many there were.
///
/// # Panics
/// When an execution does; the schedule that repeats it is printed.
#[cfg(all(shuttle, not(loom)))]
pub fn explore_random(seed: u64, schedules: usize, model: impl Fn() + Send + Sync + 'static) -> usize {
    let (executions, model) = counted(model);
    run(shuttle::scheduler::RandomScheduler::new_from_seed(seed, schedules), model);
    report(&executions, &format!("random schedules, seed {seed}"))
}

/// As [`explore_random`], with priorities of threads that change at `changes` random points: good at orders that need few
/// but far switches (probabilistic concurrency testing).
///
/// # Panics
/// As [`explore_random`].
#[cfg(all(shuttle, not(loom)))]
pub fn explore_prioritized(
    seed: u64,
    changes: usize,
    schedules: usize,
    model: impl Fn() + Send + Sync + 'static,
) -> usize {
    let (executions, model) = counted(model);
    run(shuttle::scheduler::PctScheduler::new_from_seed(seed, changes, schedules), model);
    report(&executions, &format!("prioritized schedules, {changes} changes, seed {seed}"))
}

#[cfg(all(shuttle, not(loom)))]
fn run(scheduler: impl shuttle::scheduler::Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // Transactions keep their buffers on the stack.
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
    shuttle::Runner::new(scheduler, config).run(model);
}

/// What one thread writes at a time, and others read after that. Loom does not see plain memory, in which rows lie: a witness
/// stands beside each word that hands such memory on, and is touched where the memory is.
#[cfg(loom)]
#[derive(Debug, Default)]
pub struct Witness(loom::cell::UnsafeCell<u32>);

// SAFETY: loom checks it.
#[cfg(loom)]
unsafe impl Sync for Witness {}
// SAFETY: as above.
#[cfg(loom)]
unsafe impl Send for Witness {}

#[cfg(loom)]
impl Witness {
    /// Writes it.
    pub fn write(&self) {
        // SAFETY: loom checks it.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    /// How often it was written.
    pub fn read(&self) -> u32 {
        // SAFETY: loom checks it.
        self.0.with(|count| unsafe { *count })
    }
}
