//! Ctrl-C: ends a run that is being measured, and the program at any other time.

use polychron_sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C; the run looks at it.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// Whether there is something measured that would be lost.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Listens for Ctrl-C from now on.
pub(crate) fn listen() {
    // Without a handler Ctrl-C ends the program as ever, which is no reason to refuse the run.
    let _ = ctrlc::set_handler(|| {
        // The second Ctrl-C means it.
        if !RUNNING.load(Ordering::Relaxed) || STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    });
}

/// Says that Ctrl-C shall end the run, not the program, or the other way round.
pub(crate) fn set_running(running: bool) {
    RUNNING.store(running, Ordering::Relaxed);
}
