//! Scans: the sum of a column.

use polychron_workloads::scan::ScanOptions;

use crate::measure::Bench;
use crate::runner::Work;
use crate::{Ended, Figure};

pub(super) const CLEAN: &str = "A scan that finds no versions is as fast as in the single-version system.";

/// What the vertical axes show.
const RATE: &str = "records a second";

/// Scans of a table that nobody changes.
pub(super) fn clean(bench: &Bench<'_>, figure: &mut Figure) -> Result<(), Ended> {
    let work = Work::Scan(ScanOptions { records: bench.settings.records, ..ScanOptions::default() });
    let places = ["rows", "columns"].map(|backend| (backend.to_owned(), format!("backend={backend}")));
    bench.sweep(figure, [RATE], &places, &[("hyper", "hyper")], |protocol, backend| {
        let report = bench.run_listed(protocol, std::slice::from_ref(backend), &work, 1, (1, 0))?;
        Ok([report.committed_tps * bench.settings.records as f64])
    })
}
