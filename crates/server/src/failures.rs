//! How long an address waits that has failed to show who it is: longer with each failure.
//!
//! The wait comes before the next try and not before the answer, which nobody would have to await.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use polychron_base::clock::{Clock as _, Duration, SystemClock};

/// How long an address waits after its first failure, and a client without one for its answer.
pub(crate) const FIRST: Duration = Duration::from_millis(500);
/// After how many failures the wait doubles no longer: then it is eight seconds.
const DOUBLINGS: u32 = 4;
/// After this time without a failure an address begins anew.
const FORGOTTEN_NS: u64 = 600_000_000_000;
/// The most addresses that are known: beyond, the one whose last failure is the oldest is forgotten.
const MOST: usize = 4096;

#[derive(Debug)]
struct Failed {
    address: IpAddr,
    count: u32,
    last_ns: u64,
}

/// The failures of addresses, the latest last.
#[derive(Debug)]
pub(crate) struct Failures {
    all: Mutex<VecDeque<Failed>>,
    clock: SystemClock,
}

impl Default for Failures {
    fn default() -> Self {
        Self { all: Mutex::default(), clock: SystemClock::new() }
    }
}

impl Failures {
    /// Notes a failure.
    pub(crate) fn note(&self, address: IpAddr) {
        self.note_at(address, self.clock.now_ns());
    }

    fn note_at(&self, address: IpAddr, now_ns: u64) {
        let address = group(address);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|failed| failed.address == address).and_then(|at| all.remove(at));
        let before = known.filter(|failed| now_ns.saturating_sub(failed.last_ns) < FORGOTTEN_NS);
        let count = before.map_or(0, |failed| failed.count.saturating_add(1));
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back(Failed { address, count, last_ns: now_ns });
    }

    /// How long the address waits before it may try again.
    pub(crate) fn left(&self, address: IpAddr) -> Duration {
        self.left_at(address, self.clock.now_ns())
    }

    fn left_at(&self, address: IpAddr, now_ns: u64) -> Duration {
        let address = group(address);
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().rev().find(|failed| failed.address == address);
        known.map_or(Duration::ZERO, |failed| {
            let wait = FIRST * (1 << failed.count.min(DOUBLINGS));
            wait.saturating_sub(Duration::from_nanos(now_ns.saturating_sub(failed.last_ns)))
        })
    }

    /// The address has shown who it is.
    pub(crate) fn forget(&self, address: IpAddr) {
        let address = group(address);
        self.all.lock().unwrap_or_else(PoisonError::into_inner).retain(|failed| failed.address != address);
    }
}

/// Addresses that one client can choose from count as one: those of a network of 64 bits.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Failures {
        /// Notes a failure. The answer is how long the address waits then, in milliseconds.
        fn failed_at(&self, address: &str, now_ns: u64) -> u128 {
            let address = address.parse().unwrap();
            self.note_at(address, now_ns);
            self.left_at(address, now_ns).as_millis()
        }
    }

    #[test]
    fn each_failure_of_an_address_costs_more() {
        let failures = Failures::default();
        let [one, other] = ["10.0.0.1", "10.0.0.2"];
        let waits: Vec<_> = (0..7).map(|at| failures.failed_at(one, at)).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(failures.left_at(other.parse().unwrap(), 6), Duration::ZERO);
        assert_eq!(failures.failed_at(other, 7), 500);
        assert_eq!(failures.failed_at("::ffff:10.0.0.2", 8), 1000);
        // The wait is over by itself, and the failures still count.
        let left = |now_ns| failures.left_at(one.parse().unwrap(), now_ns).as_millis();
        assert_eq!((left(6 + 3_000_000_000), left(6 + 8_000_000_000), left(u64::MAX)), (5000, 0, 0));
        assert_eq!(failures.failed_at(one, 20_000_000_000), 8000);
        failures.forget(one.parse().unwrap());
        assert_eq!(left(20_000_000_000), 0);
        assert_eq!(failures.failed_at(one, 9), 500);
        assert_eq!(failures.failed_at(one, 9 + FORGOTTEN_NS), 500);
        let networks: Vec<_> =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| failures.failed_at(text, 10)).into();
        assert_eq!(networks, [500, 1000, 500]);
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let failures = Failures::default();
        for at in 0..MOST as u32 + 10 {
            failures.note_at(IpAddr::V4(at.into()), at.into());
        }
        assert_eq!(failures.all.lock().unwrap().len(), MOST);
        let latest = IpAddr::V4((MOST as u32 + 9).into());
        assert_eq!(failures.failed_at(&latest.to_string(), 0), 1000);
    }
}
