//! Ctrl-C, or a request of the system to end: the first ends the run, which then reports what it has; the second ends the program.

use polychron_sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C; the run looks at it.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// The exit code of a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: i32 = 130;

/// Listens for Ctrl-C from now on.
pub fn listen() {
    listen_with(|| true);
}

/// As [`listen`]; the first Ctrl-C also does this, and ends the program where that answers that nothing runs.
pub fn listen_with(stop: impl Fn() -> bool + Send + 'static) {
    // Without a handler Ctrl-C ends the program as ever, which is no reason to refuse the run.
    let _ = ctrlc::set_handler(move || {
        if STOP.swap(true, Ordering::Relaxed) || !stop() {
            std::process::exit(INTERRUPTED);
        }
    });
}
