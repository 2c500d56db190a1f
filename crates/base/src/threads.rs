//! Threads that are started with a name.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread. What it does comes in a box, so that starting one is compiled once.
///
/// # Errors
/// The system gives no thread.
pub fn start(name: &str, act: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(act)
}
