//! How long an address waits that has failed to show that it is a role: longer with each failure.
//!
//! The wait comes before the next try and not before the answer, which nobody would have to await. Others who come from the address as other roles do not
//! wait, up to a number of roles: a client that goes through names shares one wait for all that are beyond.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use polychron_base::clock::{Clock as _, Duration, SystemClock};

/// How long an address waits after its first failure, and a client without one for its answer.
pub(crate) const FIRST: Duration = Duration::from_millis(500);
/// After how many failures the wait doubles no longer.
const DOUBLINGS: u32 = 4;
/// The longest wait. Who has waited for so long in all goes on, so that others who fail as the same role hold nobody up for longer.
pub(crate) const LONGEST: Duration = Duration::from_secs(8);
/// After this time without a failure an address begins anew.
const FORGOTTEN_NS: u64 = 600_000_000_000;
/// The most failures that are known: beyond, the oldest one is forgotten.
const MOST: usize = 4096;
/// The most roles of an address that wait each for themselves.
const ROLES: usize = 32;
/// The longest name of a role, in bytes.
const NAME: usize = 63;

#[derive(Debug)]
struct Failed {
    address: IpAddr,
    /// `None`: all roles that are beyond the first ones.
    role: Option<Box<[u8]>>,
    count: u32,
    last_ns: u64,
}

/// The failures of addresses as roles, the latest last.
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

/// What is kept of the name of a role.
fn kept(role: &str) -> &[u8] {
    &role.as_bytes()[..role.len().min(NAME)]
}

/// Where the failures of an address as a role are noted, or under which name they would be.
fn find<'r>(all: &VecDeque<Failed>, address: IpAddr, role: &'r str) -> Result<usize, Option<&'r [u8]>> {
    let role = kept(role);
    let (mut count, mut shared) = (0, None);
    for (at, failed) in all.iter().enumerate().rev().filter(|(_, failed)| failed.address == address) {
        match &failed.role {
            Some(own) if **own == *role => return Ok(at),
            Some(_) => count += 1,
            None => shared = Some(at),
        }
    }
    if count < ROLES { Err(Some(role)) } else { shared.ok_or(None) }
}

impl Failures {
    fn all(&self) -> MutexGuard<'_, VecDeque<Failed>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a failure.
    pub(crate) fn note(&self, address: IpAddr, role: &str) {
        self.note_at(address, role, self.clock.now_ns());
    }

    fn note_at(&self, address: IpAddr, role: &str, now_ns: u64) {
        let address = group(address);
        let mut all = self.all();
        let failed = match find(&all, address, role) {
            Ok(at) => all.remove(at).map(|failed| {
                let is_recent = now_ns.saturating_sub(failed.last_ns) < FORGOTTEN_NS;
                let count = if is_recent { failed.count.saturating_add(1) } else { 0 };
                Failed { count, last_ns: now_ns, ..failed }
            }),
            Err(role) => Some(Failed { address, role: role.map(Into::into), count: 0, last_ns: now_ns }),
        };
        if all.len() == MOST {
            all.pop_front();
        }
        all.extend(failed);
    }

    /// A client begins to show that it is a role.
    ///
    /// # Errors
    /// It is to wait for so long before. Of those that have waited one begins, and the others wait for its end, or for as long again.
    pub(crate) fn begin(&self, address: IpAddr, role: &str) -> Result<(), Duration> {
        self.begin_at(address, role, self.clock.now_ns())
    }

    fn begin_at(&self, address: IpAddr, role: &str, now_ns: u64) -> Result<(), Duration> {
        let mut all = self.all();
        let known = find(&all, group(address), role).ok().and_then(|at| all.get_mut(at));
        let Some(failed) = known else { return Ok(()) };
        let gone = now_ns.saturating_sub(failed.last_ns);
        if gone >= FORGOTTEN_NS {
            return Ok(());
        }
        let left = (FIRST * (1 << failed.count.min(DOUBLINGS))).saturating_sub(Duration::from_nanos(gone));
        if left.is_zero() {
            failed.last_ns = now_ns;
            return Ok(());
        }
        Err(left)
    }

    /// The client has shown that it is the role.
    pub(crate) fn forget(&self, address: IpAddr, role: &str) {
        let (address, role) = (group(address), kept(role));
        self.all().retain(|failed| failed.address != address || failed.role.as_deref() != Some(role));
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
        /// How long the address waits, in milliseconds.
        fn left_at(&self, address: &str, role: &str, now_ns: u64) -> u128 {
            self.begin_at(address.parse().unwrap(), role, now_ns).err().map_or(0, |left| left.as_millis())
        }

        /// Notes a failure. The answer is how long the address waits then, in milliseconds.
        fn failed_at(&self, address: &str, role: &str, now_ns: u64) -> u128 {
            self.note_at(address.parse().unwrap(), role, now_ns);
            self.left_at(address, role, now_ns)
        }
    }

    #[test]
    fn each_failure_of_an_address_as_a_role_costs_more() {
        let failures = Failures::default();
        let [one, other] = ["10.0.0.1", "10.0.0.2"];
        let waits: Vec<_> = (0..7).map(|at| failures.failed_at(one, "ann", at)).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(failures.left_at(other, "ann", 6), 0);
        assert_eq!(failures.failed_at(other, "ann", 7), 500);
        assert_eq!(failures.failed_at("::ffff:10.0.0.2", "ann", 8), 1000);
        // Another role of the same address does not wait for it.
        assert_eq!(failures.left_at(one, "bob", 6), 0);
        assert_eq!(failures.failed_at(one, "bob", 7), 500);
        // The wait is over by itself, and the failures still count.
        assert_eq!(failures.left_at(one, "ann", 6 + 3_000_000_000), 5000);
        assert_eq!(failures.failed_at(one, "ann", 20_000_000_000), 8000);
        failures.forget(one.parse().unwrap(), "ann");
        assert_eq!(failures.left_at(one, "ann", 20_000_000_000), 0);
        assert_eq!(failures.left_at(one, "bob", 7), 500);
        assert_eq!(failures.failed_at(one, "ann", 9), 500);
        assert_eq!(failures.failed_at(one, "ann", 9 + FORGOTTEN_NS), 500);
        let networks: Vec<_> =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| failures.failed_at(text, "ann", 10)).into();
        assert_eq!(networks, [500, 1000, 500]);
    }

    #[test]
    fn of_those_that_have_waited_one_begins() {
        let failures = Failures::default();
        assert_eq!(failures.failed_at("10.0.0.1", "ann", 0), 500);
        let later = 600_000_000;
        assert_eq!([0; 3].map(|_| failures.left_at("10.0.0.1", "ann", later)), [0, 500, 500]);
    }

    #[test]
    fn who_goes_through_names_waits_as_one() {
        let failures = Failures::default();
        for at in 0..ROLES {
            assert_eq!(failures.failed_at("10.0.0.1", &format!("r{at}"), 0), 500);
        }
        let waits = ["x", "y", "z"].map(|role| failures.failed_at("10.0.0.1", role, 0));
        assert_eq!(waits, [500, 1000, 2000]);
        assert_eq!(failures.left_at("10.0.0.1", "new", 0), 2000);
        assert_eq!(failures.left_at("10.0.0.2", "new", 0), 0);
        // The first ones still wait for themselves.
        assert_eq!(failures.failed_at("10.0.0.1", "r0", 0), 1000);
        assert_eq!(failures.all().len(), ROLES + 1);
        let long = "x".repeat(5000);
        assert_eq!(failures.failed_at("10.0.0.9", &long, 0), 500);
        assert_eq!(failures.left_at("10.0.0.9", &format!("{long}y"), 0), 500);
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let failures = Failures::default();
        for at in 0..MOST as u32 + 10 {
            failures.note_at(IpAddr::V4(at.into()), "ann", at.into());
        }
        assert_eq!(failures.all().len(), MOST);
        let latest = IpAddr::V4((MOST as u32 + 9).into());
        assert_eq!(failures.failed_at(&latest.to_string(), "ann", 0), 1000);
    }
}
