//! The table of anomalies in `docs/anomalies.md` is what the cases give.

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::conformance::anomalies::SKEWS;
use polychron_check::conformance::verdict::{Verdict, matrix};
use polychron_compared::hekaton::Hekaton;
use polychron_compared::key_value::KeyValue;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::locking::Locking;
use polychron_protocols::serial::Serial;

use crate::setups::table::table;
use crate::setups::{bohm, by_epochs, cicada, lazy_2pl, lazy_occ, maflingo, multi_version};

const BEGIN: &str = "<!-- The table is compared by a test. -->\n";
const END: &str = "\n<!-- The end of the table. -->";

/// Whether snapshot isolation allows the case.
fn is_skew(case: &str) -> bool {
    case.split_once("::").is_some_and(|(module, case)| module == "phantoms" || SKEWS.contains(&case))
}

/// Writes the table anew when `POLYCHRON_WRITE_DOCS` is set, and else compares it.
#[test]
fn the_page_shows_what_becomes_of_each_case() {
    let everything = |_: &str| true;
    let columns = [
        ("cicada", matrix(&cicada().erased(), everything)),
        ("cicada, multi-version", matrix(&multi_version().erased(), everything)),
        ("maflingo", matrix(&maflingo().erased(), everything)),
        ("global-tid", matrix(&maflingo().named("global-tid").erased(), everything)),
        ("bohm", matrix(&bohm().erased(), everything)),
        ("hekaton", matrix(&by_epochs::<Hekaton>().erased(), everything)),
        ("snapshot-isolation", matrix(&by_epochs::<Hekaton>().named("snapshot-isolation").erased(), everything)),
        ("hyper", matrix(&by_epochs::<Hyper>().erased(), everything)),
        ("hyper-record-level", matrix(&by_epochs::<Hyper>().named("hyper-record-level").erased(), everything)),
        ("hyper-snapshot", matrix(&by_epochs::<Hyper>().named("hyper-snapshot").erased(), everything)),
        ("locking", matrix(&by_epochs::<Locking>().erased(), everything)),
        ("locking-no-wait", matrix(&by_epochs::<Locking>().named("locking-no-wait").erased(), everything)),
        ("locking-wound-wait", matrix(&by_epochs::<Locking>().named("locking-wound-wait").erased(), everything)),
        ("lazy-occ", matrix(&lazy_occ().erased(), everything)),
        ("lazy-2pl", matrix(&lazy_2pl().erased(), everything)),
        ("partitioned-store", matrix(&by_epochs::<PartitionedStore>().erased(), everything)),
        ("serial", matrix(&by_epochs::<Serial>().erased(), everything)),
        // A savepoint behind which something was written cannot be rolled back to.
        ("key-value", matrix(&by_epochs::<KeyValue>().erased(), |case| case != "phantoms::insertion_given_up")),
    ];
    let cell = |column: usize, row: usize| {
        let (name, verdicts) = &columns[column];
        let (case, verdict) = &verdicts[row];
        let allowed = match *name {
            "key-value" => true,
            "snapshot-isolation" | "hyper-snapshot" => is_skew(case),
            _ => false,
        };
        assert!(allowed || *verdict != Some(Verdict::Shown), "{name} commits {case}");
        verdict.map_or_else(|| "–".into(), |verdict| verdict.to_string())
    };
    let cases: Vec<&str> = columns[0].1.iter().map(|(case, _)| &**case).collect();
    let table = table("case", &cases, &columns.each_ref().map(|(name, _)| *name), cell);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/anomalies.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page marks where the table begins");
    let (present, after) = rest.split_once(END).expect("the page marks where the table ends");
    if std::env::var_os("POLYCHRON_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(present, table, "run the test with POLYCHRON_WRITE_DOCS=1 and look at what changed");
    }
}
