//! Figure 9: SmallBank, whose transactions spin.

use polychron_workloads::smallbank::SmallBankOptions;

use super::contenders::{BOHM, HEKATON, LOCKING, OCC, SNAPSHOTS};
use super::ycsb::{ahead, aside, expect, over_threads, ten_updates};
use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

/// High contention.
const DIFFERENCE: &str = "“Although locking once again performs best under high contention, the difference between locking and BOHM is not as large as in the \
     contended 10RMW YCSB experiment (Section 4.2.1).” (§4.3)";
const FEWER_ABORTS: &str = "“At 40 threads, SI outperforms Hekaton […] because it suffers from fewer aborts while validating transactions.” (§4.3)";
const ABORTS: &str = "“Note that the abort-related drop in performance of Hekaton and SI is greater than OCC.” (§4.3)";
/// Low contention.
const SIMILAR: &str = "“We find that locking, OCC, and BOHM have similar performance under this configuration.” (§4.3)";
const COUNTER: &str = "In the lower Figure 9 Hekaton and SI, which queue for their counter, fall behind.";

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
    if customers == FEW {
        high(bench, figure)?
    } else {
        low(figure)
    }
    measured
}

fn high(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let last = figure.last();
    for (name, series) in [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
        expect(figure, ABORTS, &format!("OCC is faster than {name}"), [OCC, series], last);
    }
    expect(figure, FEWER_ABORTS, "snapshot isolation is faster than Hekaton", [SNAPSHOTS, HEKATON], last);
    for (name, series) in [("BOHM", BOHM), ("OCC", OCC), ("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
        expect(figure, DIFFERENCE, &format!("locking is faster than {name}"), [LOCKING, series], last);
    }
    let updates = aside(bench, figure, &Work::Ycsb(ten_updates(bench, super::HIGH)))?;
    let gains = [ahead(&updates, 0), ahead(figure, last)];
    figure.expect_higher(DIFFERENCE, "locking is further ahead of BOHM in 10RMW", gains);
    Ok(())
}

fn low(figure: &mut Figure) {
    let last = figure.last();
    for (name, series) in [("locking", LOCKING), ("OCC", OCC)] {
        let values = [BOHM, series].map(|series| figure.point_of(series, last));
        figure.expect_alike(SIMILAR, &format!("BOHM and {name} are alike"), values);
    }
    for (name, series) in [("Hekaton", HEKATON), ("snapshot isolation", SNAPSHOTS)] {
        expect(figure, COUNTER, &format!("BOHM is faster than {name}"), [BOHM, series], last);
    }
}
