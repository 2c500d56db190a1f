//! Signals of a server: those that end it, and the one that has it read its files again.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::interrupt::INTERRUPTED;

/// From now on the first SIGINT or SIGTERM does `stop`, the second one ends the program, and SIGHUP does `reload`.
///
/// # Errors
/// The system gives no thread, or takes no handler.
pub(super) fn listen(stop: impl Fn() + Send + 'static, reload: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let work = move || {
        let mut is_stopped = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => reload(),
                _ if std::mem::replace(&mut is_stopped, true) => std::process::exit(INTERRUPTED),
                _ => stop(),
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(work).map(drop)
}
