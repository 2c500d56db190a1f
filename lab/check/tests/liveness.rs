//! The table of behaviours in `docs/liveness.md` is what is asked of the protocols, and what is known to be missing.

use std::fmt::Write;

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::Setup;
use polychron_check::conformance::known::{BEHAVIOURS, MISSING, makes_sense, missing};
use polychron_compared::hekaton::Hekaton;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_engine::any::AnyProtocol;
use polychron_protocols::hyper::Hyper;
use polychron_protocols::lazy::Lazy;
use polychron_protocols::serial::Serial;

use crate::setups::table::table;
use crate::setups::{
    bohm, by_epochs, lazy_2pl, lazy_cicada, lazy_occ, locking, maflingo, still_cicada, still_multi_version,
};

const BEGIN: &str = "<!-- The table is compared by a test. -->\n";
const END: &str = "\n<!-- The end of the table. -->";

fn columns() -> Vec<Setup<AnyProtocol>> {
    let mut partitioned_store = by_epochs::<PartitionedStore>();
    (partitioned_store.interleaves, partitioned_store.snapshots_interleave) = (false, false);
    vec![
        still_cicada().erased(),
        still_multi_version().erased(),
        maflingo().erased(),
        maflingo().named("global-tid").erased(),
        bohm().erased(),
        by_epochs::<Hekaton>().erased(),
        by_epochs::<Hekaton>().named("snapshot-isolation").erased(),
        by_epochs::<Hyper>().erased(),
        by_epochs::<Hyper>().named("hyper-record-level").erased(),
        by_epochs::<Hyper>().named("hyper-snapshot").erased(),
        locking().erased(),
        locking().named("locking-no-wait").erased(),
        locking().named("locking-wound-wait").erased(),
        lazy_occ().erased(),
        lazy_occ().named("occ").erased(),
        lazy_2pl().erased(),
        lazy_cicada().erased(),
        by_epochs::<Lazy<Hyper>>().erased(),
        partitioned_store.erased(),
        Setup::<Serial>::new(Default::default(), |_| ()).alone().erased(),
    ]
}

/// Writes the table anew when `POLYCHRON_WRITE_DOCS` is set, and else compares it.
#[test]
fn the_page_shows_what_is_asked_and_what_is_missing() {
    let columns = columns();
    let names: Vec<&str> = columns.iter().map(|setup| setup.name).collect();
    let mut table = table("behaviour", BEHAVIOURS, &names, |column, row| {
        let (setup, behaviour) = (&columns[column], BEHAVIOURS[row]);
        let cell = match missing(setup.name, behaviour) {
            _ if !makes_sense(setup, behaviour) => "–",
            Some(_) => "✗",
            None => "✓",
        };
        cell.to_owned()
    });
    table += "\n";
    let mut reasons: Vec<String> =
        MISSING.iter().map(|it| format!("{}: {}", it.protocols.join(", "), it.what)).collect();
    reasons.dedup();
    reasons.iter().for_each(|reason| write!(table, "\n* {reason}.").unwrap());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/liveness.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page marks where the table begins");
    // An empty table leaves no line between the marks.
    let (present, after) = rest.split_once(END.trim_start()).expect("the page marks where the table ends");
    if std::env::var_os("POLYCHRON_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(
            present.trim_end(),
            table.trim_end(),
            "run the test with POLYCHRON_WRITE_DOCS=1 and look at what changed"
        );
    }
}

/// What is missing is missing somewhere: of a behaviour, and of a protocol, that there is.
#[test]
fn what_is_missing_is_asked_for() {
    let columns = columns();
    for it in MISSING {
        assert!(BEHAVIOURS.contains(&it.behaviour), "there is no {}", it.behaviour);
        for protocol in it.protocols {
            let setup = columns.iter().find(|setup| setup.name == *protocol);
            let setup = setup.unwrap_or_else(|| panic!("there is no {protocol}"));
            assert!(makes_sense(setup, it.behaviour), "{} is not asked of {protocol}", it.behaviour);
        }
    }
}
