//! How long those wait who have failed to show who they are: longer with each failure from the same address.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use polychron_base::clock::{Clock as _, Duration, SystemClock};

/// How long a client waits after the first failure of its address, or without an address.
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
    /// Notes a failure. The answer is how long the client is to wait before it is told.
    pub(crate) fn note(&self, address: IpAddr) -> Duration {
        self.note_at(address, self.clock.now_ns())
    }

    fn note_at(&self, address: IpAddr, now_ns: u64) -> Duration {
        let address = group(address);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|failed| failed.address == address).and_then(|at| all.remove(at));
        let before = known.filter(|failed| now_ns.saturating_sub(failed.last_ns) < FORGOTTEN_NS);
        let count = before.map_or(0, |failed| failed.count.saturating_add(1));
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back(Failed { address, count, last_ns: now_ns });
        FIRST * (1 << count.min(DOUBLINGS))
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

    #[test]
    fn each_failure_of_an_address_costs_more() {
        let failures = Failures::default();
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let waits: Vec<_> = (0..7).map(|at| failures.note_at(one, at).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(failures.note_at(other, 7).as_millis(), 500);
        assert_eq!(failures.note_at("::ffff:10.0.0.2".parse().unwrap(), 8).as_millis(), 1000);
        failures.forget(one);
        assert_eq!(failures.note_at(one, 9).as_millis(), 500);
        assert_eq!(failures.note_at(one, 9 + FORGOTTEN_NS).as_millis(), 500);
        let networks: Vec<_> = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|text| failures.note_at(text.parse().unwrap(), 10).as_millis())
            .into();
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
        assert_eq!(failures.note_at(latest, 0).as_millis(), 1000);
    }
}
