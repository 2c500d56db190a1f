//! Ctrl-C, or a request of the system to end: the first ends the run, which then reports what it has; the second ends the program.

use polychron_sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C; the run looks at it.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// The exit code of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Listens for Ctrl-C from now on.
pub fn listen() {
    // Without a handler Ctrl-C ends the program as ever, which is no reason to refuse the run.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    });
}
