//! Every protocol, one line each.

mod setups;

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::{Setup, conformance};
use polychron_compared::hekaton::Hekaton;
use polychron_compared::partitioned_store::PartitionedStore;
use polychron_protocols::hyper::{self, Hyper};
use polychron_protocols::maflingo::Maflingo;
use polychron_protocols::serial::Serial;

use setups::{bohm, by_epochs, lazy_2pl, lazy_occ, locking, maflingo, still_cicada};

conformance!(cicada, still_cicada());
conformance!(maflingo, maflingo());
conformance!(global_tid, maflingo().named("global-tid"));

/// Maflingo that looks every few operations whether its reads still are mutually consistent: a time that is quadratic in the operations of a
/// transaction. What fills the memory has thousands of them in one, and its tests are those of Maflingo above.
fn watchful() -> Setup<Maflingo> {
    let mut setup = maflingo();
    setup.options.check_every = 7;
    setup.measures_memory = false;
    setup
}

conformance!(watchful_maflingo, watchful());

/// Whole-partition locks; no table here is divided, so one transaction runs at a time.
fn partitioned_store() -> Setup<PartitionedStore> {
    let mut setup = by_epochs::<PartitionedStore>();
    (setup.interleaves, setup.snapshots_interleave) = (false, false);
    setup
}

conformance!(partitioned_store, partitioned_store());

/// Hekaton, and snapshot isolation, with epochs that the tests move.
fn hekaton() -> Setup<Hekaton> {
    by_epochs::<Hekaton>()
}

conformance!(hekaton_mvo, hekaton());
conformance!(snapshot_isolation, hekaton().named("snapshot-isolation"));

/// HyPer's MVCC at each of its levels, and over columns.
fn hyper(backend: hyper::Backend) -> Setup<Hyper> {
    let mut setup = by_epochs::<Hyper>();
    setup.options.backend = backend;
    setup
}

conformance!(hyper_by_column, hyper(hyper::Backend::Rows));
conformance!(hyper_by_record, hyper(hyper::Backend::Columns).named("hyper-record-level"));
conformance!(hyper_snapshot, hyper(hyper::Backend::Rows).named("hyper-snapshot"));

/// The oracle; it has no clock, and its rows lie on the common heap.
fn serial() -> Setup<Serial> {
    Setup::new(polychron_protocols::serial::Options::default(), |_| ()).alone()
}

conformance!(serial, serial());

conformance!(locking, locking());
conformance!(locking_no_wait, locking().named("locking-no-wait"));
conformance!(locking_wound_wait, locking().named("locking-wound-wait"));

conformance!(lazy_occ, lazy_occ());
conformance!(occ, lazy_occ().named("occ"));
conformance!(lazy_2pl, lazy_2pl());

/// What the layer of futures asks of other host protocols; the rest is theirs, and the layer's over the protocols above.
macro_rules! layer {
    ($($name:ident: $setup:expr;)*) => {$(
        mod $name {
            use polychron_check::conformance;

            conformance!(@group $setup, futures: one_by_one, interleaved, counters, conditions_over_two_rows, errors,
                long_chains, assumptions, beside_ordinary_operations, failures_behind_savepoints);
            conformance!(@group $setup, future_rows: keys, refusals, deleted_rows, numbers, choices, conversions, foreign);
            conformance!(@group $setup, future_scopes: of_earlier_transactions, of_outer_and_inner_transactions, in_answers,
                at_the_end_of_a_thread);
            conformance!(@group $setup, future_failures: overwritten, undone, undone_and_caught, unique_keys, in_order);
            conformance!(@group $setup, caught: panics_in_operations);
            conformance!(@group $setup, failing_changes: are_skipped, end_the_transaction);
            conformance!(@group $setup, refused_writes: told_by_errors);
            conformance!(@group $setup, differential: one_by_one, interleaved);
            conformance!(@group $setup, predicates: one_by_one, stale_answers);
            conformance!(@group $setup, histories: in_turns, on_threads);
            conformance!(@group $setup, changes: new_index_on_a_full_table, new_index_under_writers,
                new_index_under_an_older_transaction);
            conformance!(@group $setup, dropped: index_under_transactions, unique_index_under_transactions,
                read_on_while_memory_is_used_again, indexes_under_load, tables_under_load);
            conformance!(@group $setup, memory: emptied_tables);
            conformance!(@group $setup, stress: bank, counters);
            conformance!(@clients $setup);
        }
    )*};
}

layer! {
    lazy_cicada: crate::setups::lazy_cicada();
    lazy_hyper: crate::setups::by_epochs::<polychron_protocols::lazy::Lazy<polychron_protocols::hyper::Hyper>>();
}

conformance!(bohm, bohm());
