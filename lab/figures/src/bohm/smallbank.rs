//! Figure 9: SmallBank, whose transactions spin.

use polychron_workloads::smallbank::SmallBankOptions;

use super::contenders::{BOHM, HEKATON, LOCKING, OCC, SNAPSHOTS};
use super::ycsb::over_threads;
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

pub(super) const HIGH: &str = "“Although locking once again performs best under high contention, the difference between locking and BOHM is not as large as in the \
     contended 10RMW YCSB experiment.” (§4.3)";
pub(super) const LOW: &str = "“We find that locking, OCC, and BOHM have similar performance under this configuration.” (§4.3) Hekaton and SI queue for their counter.";

/// Customers for high and for low contention.
pub(super) const FEW: u64 = 50;
/// As above.
pub(super) const MANY: u64 = 100_000;

/// What each transaction spins, in microseconds.
const SPIN_US: u64 = 50;

/// A batch takes some milliseconds by its spinning alone.
const BATCH: usize = 100;

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
        figure.expect_higher("locking is faster than BOHM", values);
        let values = [of(figure, OCC), of(figure, HEKATON)];
        figure.expect_higher("aborts cost Hekaton more than OCC", values);
        let values = [of(figure, SNAPSHOTS), of(figure, HEKATON)];
        figure.expect_higher("snapshot isolation is faster than Hekaton", values);
    } else {
        for (name, series) in [("locking", LOCKING), ("OCC", OCC)] {
            let values = [of(figure, BOHM), of(figure, series)];
            figure.expect_alike(&format!("BOHM and {name} are alike"), values);
        }
        for (name, series) in [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
            let values = [of(figure, BOHM), of(figure, series)];
            figure.expect_higher(&format!("BOHM is faster than {name}, which queues for a counter"), values);
        }
    }
    measured
}
