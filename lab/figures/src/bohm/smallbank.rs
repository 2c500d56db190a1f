//! Figure 9: SmallBank, whose transactions spin.

use polychron_workloads::smallbank::SmallBankOptions;

use super::contenders::{BOHM, HEKATON, LOCKING, OCC, SNAPSHOTS};
use super::ycsb::over_threads;
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

pub(super) const HIGH: &str = "Locking is fastest, BOHM closer to it than with 10RMW, since rows have 8 bytes and a fifth of the transactions only \
     reads. Hekaton and snapshot isolation lose throughput to aborts, more of it than OCC; snapshot isolation less than Hekaton.";
pub(super) const LOW: &str = "Locking, OCC and BOHM are alike, BOHM above 3 M transactions a second with 40 threads; Hekaton and snapshot isolation make 1 M, \
     bound by their counter.";

/// Customers for high and for low contention.
pub(super) const FEW: u64 = 50;
/// As above.
pub(super) const MANY: u64 = 100_000;

/// What each transaction spins, in microseconds.
const SPIN_US: u64 = 50;

/// A batch takes some milliseconds by its spinning alone.
const BATCH: usize = 100;

const SPINNING: &str = "50 µs of spinning a transaction outweigh what a protocol costs, on any number of threads; on few, hardly two transactions \
     meet at a customer.";
const ONE_COUNTER: &str = "A counter that two cores share bounds nothing at 20,000 transactions a second and core; the paper's 40 cores make two \
     million, and queue for it.";
const CLIENTS: &str =
    "All threads spin, and the clients need a core, too: where a planner's threads wait for one it idles.";

/// Both plots.
pub(super) fn threads(bench: &Bench<'_>, figure: &mut Figure, customers: u64) -> Result<(), Ended> {
    // Tables for tests are smaller than what low contention asks for.
    let options = SmallBankOptions {
        customers: customers.min(bench.settings.records),
        spin_us: SPIN_US,
        ..SmallBankOptions::default()
    };
    let measured = over_threads(bench, figure, &Work::SmallBank(options), BATCH);
    let last = figure.last();
    let of = |figure: &Figure, series| figure.point_of(series, last);
    if customers == FEW {
        let values = [of(figure, LOCKING), of(figure, BOHM)];
        figure.expect_higher("locking is faster than BOHM", values, SPINNING);
        let values = [of(figure, OCC), of(figure, HEKATON)];
        figure.expect_higher("aborts cost Hekaton more than OCC", values, SPINNING);
        let values = [of(figure, SNAPSHOTS), of(figure, HEKATON)];
        figure.expect_higher("snapshot isolation is faster than Hekaton", values, SPINNING);
    } else {
        for (name, series) in [("locking", LOCKING), ("OCC", OCC)] {
            let values = [of(figure, BOHM), of(figure, series)];
            figure.expect_alike(&format!("BOHM and {name} are alike"), values, CLIENTS);
        }
        for (name, series) in [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
            let values = [of(figure, BOHM), of(figure, series)];
            figure.expect_higher(
                &format!("BOHM is faster than {name}, which queues for a counter"),
                values,
                ONE_COUNTER,
            );
        }
    }
    measured
}
