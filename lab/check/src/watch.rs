//! Work that may never end, on a thread of its own.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polychron_base::sizes::slowed;

/// How many seconds work may take that takes times: enough for a machine that does much else.
const LONGEST_SECONDS: u64 = 60;

/// The same, or as many as `POLYCHRON_WATCH_SECONDS` says, for a caller that looks for what does not end.
fn longest() -> Duration {
    let given = std::env::var("POLYCHRON_WATCH_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    slowed(Duration::from_secs(given.unwrap_or(LONGEST_SECONDS)))
}

/// Where work stands, for a caller that has to say at what it hangs.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<String>>);

impl Progress {
    /// Says what comes now.
    pub(crate) fn at(&self, what: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }
}

/// Does work on a thread of its own, and fails where it comes to no end. The thread then goes on until the process ends.
pub(crate) fn watched<O: Send + 'static>(work: impl FnOnce(&Progress) -> O + Send + 'static) -> O {
    let progress = Progress::default();
    let (sender, receiver) = channel();
    let of_thread = progress.clone();
    let thread = std::thread::spawn(move || {
        let output = work(&of_thread);
        // No client receives after the time is over.
        let _ = sender.send(output);
    });
    let longest = longest();
    match receiver.recv_timeout(longest) {
        Ok(output) => output,
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => unreachable!("a thread that ends well has sent its answer"),
            Err(panic) => resume_unwind(panic),
        },
        Err(RecvTimeoutError::Timeout) => {
            let progress = progress.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            panic!("no end after {} s: {progress}", longest.as_secs())
        }
    }
}
