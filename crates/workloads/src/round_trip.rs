//! Clients that are far away: the time that an answer takes.

use std::time::Duration;

/// How a client talks to the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct Talk {
    /// Read and write futures
    #[arg(long)]
    pub futures: bool,

    /// Microseconds that a client waits for each answer it needs before it goes on, and once for the commit
    #[arg(long, default_value_t = 0)]
    pub round_trip_us: u64,
}

impl Talk {
    /// Waits as long as an answer takes.
    #[inline]
    pub fn round_trip(self) {
        if self.round_trip_us > 0 {
            std::thread::sleep(Duration::from_micros(self.round_trip_us));
        }
    }
}
