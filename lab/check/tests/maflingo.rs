//! What only Maflingo can show: phantoms when its node set is left out.

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::Setup;
use polychron_check::conformance::{differential, phantoms};
use polychron_engine::mutations::leave_out;
use polychron_engine::{Interactive, Mode, Operations, Protocol, Table, drive};
use polychron_protocols::maflingo::{Maflingo, Options, Step};
use polychron_schema::Row;

use crate::setups::maflingo;

macro_rules! needs_the_node_set {
    ($($test:ident: $scenario:ident;)*) => {$(
        #[test]
        fn $test() {
            let _careless = leave_out(Step::CompareNodes);
            assert!(phantoms::$scenario(&maflingo().erased()), "the scenario is refused for another reason, so it shows nothing");
        }
    )*};
}

needs_the_node_set! {
    absent_key_needs_the_node_set: commits_absent_key;
    absent_key_in_a_hash_table_needs_the_node_set: commits_absent_key_in_a_hash_table;
    count_needs_the_node_set: commits_count;
    empty_range_needs_the_node_set: commits_empty_range;
    minimum_needs_the_node_set: commits_minimum;
    maximum_needs_the_node_set: commits_maximum;
    backward_scan_needs_the_node_set: commits_backward_scan;
    stopped_scan_needs_the_node_set: commits_stopped_scan;
    secondary_lookup_needs_the_node_set: commits_secondary_lookup;
    secondary_range_needs_the_node_set: commits_secondary_range;
    unique_secondary_needs_the_node_set: commits_unique_secondary;
    update_into_a_range_needs_the_node_set: commits_updated_into_a_range;
    insertion_given_up_needs_the_node_set: commits_insertion_given_up;
    insertion_refused_needs_the_node_set: commits_insertion_refused;
}

/// What threads do with the clock of epochs running by itself, under options that are not the defaults.
macro_rules! running {
    ($($name:ident: $change:expr;)*) => {$(
        mod $name {
            use polychron_check::conformance::{anomalies, differential, histories, phantoms, snapshots, stress};

            use super::*;

            #[test]
            fn histories() {
                let setup = running_with($change).erased();
                histories::in_turns(&setup);
                histories::on_threads(&setup);
                differential::interleaved(&setup);
            }

            #[test]
            fn stress() {
                let setup = running_with($change).erased();
                stress::bank(&setup);
                stress::counters(&setup);
                stress::secondaries_agree(&setup);
                stress::queue_of_one_key(&setup);
                snapshots::are_consistent_under_writers(&setup);
            }

            #[test]
            fn anomalies() {
                let setup = running_with($change).erased();
                anomalies::g2_item(&setup);
                anomalies::write_skew_of_three(&setup);
                phantoms::empty_range(&setup);
                phantoms::count(&setup);
            }
        }
    )*};
}

running! {
    as_in_the_thesis: |options| *options = Options::paper();
    without_snapshots: |options| options.snapshots = false;
    as_in_the_thesis_without_snapshots: |options| *options = Options { snapshots: false, ..Options::paper() };
}

/// With its clock running.
fn running_with(change: impl FnOnce(&mut Options)) -> Setup<Maflingo> {
    let mut options = Options::default();
    change(&mut options);
    // Snapshots of the past have not all that their session has committed: only the order itself is checked then.
    let strict = options.own_commits;
    Setup { strict, ..Setup::new(options, |database: &std::sync::Arc<Maflingo>| database.tick()) }
}

#[test]
fn own_writes_are_found_by_a_look_that_can_be_left_out() {
    let setup = running_with(|options| options.read_own_writes = false);
    polychron_check::conformance::options::without_own_writes(&setup.erased());
}

/// The random interleavings find an anomaly by themselves when the check is left out.
#[test]
fn random_interleavings_need_the_node_set() {
    let _careless = leave_out(Step::CompareNodes);
    let found = (0..20).any(|seed| differential::find_anomaly(&maflingo().erased(), seed, 400).is_some());
    assert!(found, "the search is blind");
}

#[derive(Row, Clone, Debug, PartialEq)]
struct Entry {
    #[key]
    id: u64,
    value: u64,
    text: String,
}

/// A hash index that several rows share a value of is looked up by equality, too.
#[test]
fn shared_hash_lookup() {
    polychron_check::conformance::secondaries::shared_hash_lookup(&maflingo().erased());
}

/// A read-write transaction that stays open, has found nothing and does nothing holds back no version of what others update.
#[test]
fn an_open_transaction_does_not_fill_the_memory() {
    let setup = maflingo();
    let database = Maflingo::open(setup.options, setup.common).unwrap();
    let table: Table<Entry> = Table::from_id(database.create_table(Entry::definition()).unwrap());
    let (mut worker, mut holder) = (database.worker().unwrap(), database.worker().unwrap());
    let mut round = |database: &Maflingo, value: u64| {
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t| {
            (0..50).try_for_each(|id| t.upsert(&table, &Entry { id, value, text: "text".into() }))
        })
        .unwrap();
        database.tick();
    };
    let used = |database: &Maflingo| database.statistics().memory.unwrap().used_bytes;
    (0..40).for_each(|value| round(&database, value));
    let before = used(&database);
    let open = holder.begin(Mode::ReadWrite).unwrap();
    for rounds in [100, 1000] {
        (0..rounds).for_each(|value| round(&database, value));
        let beside = used(&database);
        // The lists of what waits to be freed grow and shrink by a page.
        assert!(
            beside <= before + 2048,
            "{before} bytes were in use, and {beside} after {rounds} rounds beside the transaction"
        );
    }
    drop(open);
}
