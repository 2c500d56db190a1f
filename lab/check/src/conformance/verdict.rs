//! What becomes of an anomaly, and the table of all of them.

use std::fmt;

use polychron_engine::{Interactive, Protocol};

use super::{anomalies, phantoms, rollbacks};
use crate::Setup;
use crate::client;

/// What becomes of an interleaving that would be an anomaly if every transaction committed on what it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is committed.
    Shown,
    /// Some transaction is aborted.
    Aborted,
    /// All commit, and a serial order explains what they saw.
    Ordered,
    /// A second transaction does not begin beside the first one.
    Alone,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Shown => "**shown**",
            Self::Aborted => "aborts",
            Self::Ordered => "ordered",
            Self::Alone => "alone",
        })
    }
}

/// Plays a scenario that tells whether an anomaly was committed.
pub(crate) fn judge(scenario: impl FnOnce() -> bool) -> Verdict {
    client::forget();
    let shown = scenario();
    let met = client::met();
    match shown {
        true => Verdict::Shown,
        false if met.alone => Verdict::Alone,
        false if met.conflict => Verdict::Aborted,
        false => Verdict::Ordered,
    }
}

/// All orders of these transactions.
pub(crate) fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, &first) in of.iter().enumerate() {
        let rest: Vec<_> = of.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, &one)| one).collect();
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, first);
            order
        }));
    }
    all
}

macro_rules! matrix {
    ($($module:ident: $($case:ident),* $(,)?;)*) => {
        /// What becomes of every case that `asked` names as one that the protocol can be asked.
        pub fn matrix<P: Protocol<Worker: Interactive>>(
            setup: &Setup<P>,
            asked: impl Fn(&str) -> bool,
        ) -> Vec<(&'static str, Option<Verdict>)> {
            vec![$($({
                let case = concat!(stringify!($module), "::", stringify!($case));
                (case, asked(case).then(|| $module::verdict::$case(setup)))
            }),*),*]
        }
    };
}

matrix! {
    anomalies: g0_dirty_write, g1a_aborted_read, g1b_intermediate_read, g1c_circular_information_flow,
        otv_observed_transaction_vanishes, pmp_predicate_many_preceders, pmp_predicate_many_preceders_by_a_write,
        p4_lost_update, p4_lost_update_in_place, g_single_read_skew, g_single_dependencies, g_single_write_1,
        g_single_write_2, g_single_before_a_write, g_single_of_a_deletion, g2_item, g2_predicate, g2_two_edges,
        read_only_anomaly, read_only_anomaly_with_a_snapshot, write_skew_of_a_sum, write_skew_of_a_count,
        write_skew_by_insertion, write_skew_of_absent_keys, write_skew_by_update, write_skew_of_three, insert_insert,
        insert_insert_the_other_way_round, insert_insert_in_a_hash_table, delete_and_update, update_and_delete,
        delete_and_upsert, delete_and_delete;
    rollbacks: reads, reads_beside_a_write, insertion, insertion_before_a_later_one, insertion_that_comes_late,
        deletion_that_comes_late, range;
    phantoms: absent_key, absent_key_in_a_hash_table, count, empty_range, minimum, maximum, backward_scan, stopped_scan,
        secondary_lookup, secondary_range, unique_secondary, updated_into_a_range, deleted_out_of_a_range, tombstone,
        tombstone_that_grows, tombstone_that_grows_in_a_range, insertion_given_up, insertion_refused;
}
