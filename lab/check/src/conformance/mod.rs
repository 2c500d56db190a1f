//! The behaviours, and the macro that makes tests of them.

pub mod anomalies;
pub mod background;
pub mod batches;
pub mod bytes;
mod callbacks;
mod cases;
pub mod caught;
pub mod changes;
pub mod clients;
mod crossed;
pub mod destructors;
pub mod differential;
pub mod dropped;
pub mod evolution;
pub mod failing_changes;
pub mod false_keys;
pub mod foreign_keys;
pub mod future_failures;
pub mod future_rows;
pub mod future_savepoints;
pub mod future_scopes;
pub mod future_texts;
pub mod futures;
pub mod handles;
pub mod held_up;
pub mod histories;
mod insertions;
pub mod iterators;
pub mod kept;
pub mod known;
pub mod lasting;
pub mod limits;
pub mod liveness;
pub mod loading;
pub mod memory;
pub mod messages;
pub mod opponents;
pub mod options;
pub mod orders;
pub mod own_errors;
pub mod phantoms;
pub mod points;
pub mod predicates;
pub mod ranges;
pub mod reclamation;
pub mod refusals;
pub mod refused_writes;
pub mod rollbacks;
pub mod savepoints;
pub mod scans;
pub mod secondaries;
pub mod snapshots;
pub mod starts;
pub mod stress;
pub mod submissions;
pub mod totals;
pub mod verdict;
pub mod write_rules;

/// Makes a test of every behaviour for one protocol: `conformance!(name, setup)`, where `setup` is an expression that
/// makes a [`Setup`](crate::Setup).
#[macro_export]
macro_rules! conformance {
    ($name:ident, $setup:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance!(@group $setup, points: reads_and_writes, duplicates, upserts, fixed_updates,
                growing_rows, deleted_keys_come_back, many_changes_of_one_row, nulls, projections,
                roll_back_undoes_everything, panics_are_reported_and_undone, panics_that_panic_again, answers_that_panic, foreign_errors_are_passed_on, conflicts_of_its_own);
            $crate::conformance!(@group $setup, scans: bounds, inverted_bounds, limits_and_stops, empty_keys, own_writes,
                own_insertions_do_not_abort, restrictions, long_keys, whole_tables, whole_hash_tables);
            $crate::conformance!(@group $setup, iterators: rows_from_both_ends, chosen_rows, conditions, whole_ranges);
            $crate::conformance!(@group $setup, totals: of_ranges_and_groups, at_the_ends, phantoms);
            $crate::conformance!(@group $setup, starts: of_keys, at_the_ends, phantoms);
            $crate::conformance!(@group $setup, held_up: new_indexes, evolutions);
            $crate::conformance!(@group $setup, evolution: by_declaration, refused, inside_of_a_transaction, beside_writes, beside_threads,
                beside_an_open_transaction);
            $crate::conformance!(@group $setup, secondaries: entries_follow_rows, entries_of_growing_rows,
                violations_change_nothing, too_long_entries_change_nothing, unique_values_change_hands,
                hash_entries, hash_lookup, definitions);
            $crate::conformance!(@group $setup, ranges: of_entries, refused);
            $crate::conformance!(@group $setup, orders: of_columns, of_new_indexes);
            $crate::conformance!(@group $setup, batches: declared_keys, hashed_keys, odd_declarations);
            $crate::conformance!(@group $setup, savepoints: undo_writes, nest, undone_ones_are_void,
                those_of_earlier_transactions_are_void, those_of_others_are_void, those_of_other_procedures_are_void,
                undo_entries, undo_everything);
            $crate::conformance!(@group $setup, bytes: wrong_keys, wrong_rows, wrong_updates, columns_that_are_not_there);
            $crate::conformance!(@group $setup, caught: panics_in_operations);
            $crate::conformance!(@group $setup, failing_changes: are_skipped, end_the_transaction);
            $crate::conformance!(@group $setup, own_errors: conflicts_stay_inside, come_back_as_they_were);
            $crate::conformance!(@group $setup, kept: end, go_on_behind_refusals, conflict, doomed_by_their_own_thread, given_up, forgotten, beside_panics, beside_closures,
                end_in_any_order, snapshots, with_their_own_workers, leave_futures_open, beside_submissions);
            $crate::conformance!(@group $setup, opponents: of_conflicts);
            $crate::conformance!(@group $setup, messages: of_bytes, of_scans, of_futures, of_tables, of_conflicts, of_lengths, have_one_line);
            $crate::conformance!(@group $setup, handles: of_another_database, of_a_dropped_table, of_indexes);
            $crate::conformance!(@group $setup, false_keys: too_long, fickle, declared);
            $crate::conformance!(@group $setup, limits: keys, raw_keys, hash_keys, rows, columns, wide_updates, broad_updates, values, workers,
                memory, deletions_without_any_memory);
            $crate::conformance!(@group $setup, options: workers, pinned, memory, others);
            $crate::conformance!(@group $setup, background: tombstones_that_were_read, absent_keys_that_were_read,
                insertion_on_a_tombstone, upsert_on_a_tombstone, ranges_that_were_read, own_rows_that_move);
            $crate::conformance!(@group $setup, snapshots: see_no_later_change, are_consistent_under_writers,
                keep_deleted_rows, keep_many_versions, many_at_once, are_counted, follow_their_thread, reads_alone_follow_their_thread, follow_what_was_read, scan_while_memory_is_used_again, whole_tables,
                                by_secondary_index);
            $crate::conformance!(@group $setup, loading: all_rows_are_found, duplicates_are_refused,
                snapshots_keep_loaded_rows, memory_comes_back);
            $crate::conformance!(@group $setup, reclamation: updates, growing_updates, deletions_and_insertions,
                secondary_entries, rolled_back_insertions, dropped_tables, many_dropped_tables, dropped_tables_of_idle_workers, workers_that_leave,
                updates_behind_a_snapshot, deletions_behind_a_snapshot, growth_behind_a_snapshot);
            $crate::conformance!(@group $setup, memory: new_databases, sizes, sizes_in_little_memory, many_sizes, sizes_that_grow, rows_that_were_long, mixed_sizes, emptied_tables, deletions_in_one_transaction, backlogs, blocks_of_another_session);
            $crate::conformance!(@group $setup, refusals: are_not_for_ever, are_not_for_ever_in_any_order, are_not_for_ever_among_short_rows);
            $crate::conformance!(@group $setup, refused_writes: told_by_errors, told_by_futures, told_by_lack_of_memory);
            $crate::conformance!(@group $setup, write_rules: of_others, of_the_layer);
            $crate::conformance!(@group $setup, changes: tables_come_and_go, names_are_taken, tables_under_transactions,
                new_index_on_a_full_table, new_index_is_seen_by_snapshots, new_unique_index_on_duplicates,
                new_index_under_writers, new_index_under_an_older_transaction, dropped_index);
            $crate::conformance!(@group $setup, dropped: index_under_transactions, unique_index_under_transactions,
                read_on_while_memory_is_used_again, indexes_under_load, tables_under_load);
            $crate::conformance!(@clients $setup);
            $crate::conformance!(@group $setup, stress: bank, audited_by_snapshots, audited_by_long_snapshots, counters, secondaries_agree,
                queue_of_one_key);
            $crate::conformance!(@group $setup, differential: one_by_one, interleaved, snapshots_are_past_states);
            $crate::conformance!(@group $setup, predicates: one_by_one, stale_answers, interleaved, batches);
            $crate::conformance!(@group $setup, histories: in_turns, on_threads, submitted);
            $crate::conformance!(@group $setup, submissions: of_many_types, polled_by_tasks, given_up, under_way_at_the_end,
                held_up, in_batches, in_a_queue_that_is_full, from_their_own_threads, with_wild_answers, beyond_memory);
            $crate::conformance!(@group $setup, destructors: of_answers, of_answers_that_are_not_taken, of_submissions, of_clients_that_panic);
            $crate::conformance!(@group $setup, lasting: others_are_answered);
            $crate::conformance!(@group $setup, futures: one_by_one, interleaved, counters, conditions_over_two_rows, errors,
                long_chains, assumptions, beside_ordinary_operations, failures_behind_savepoints);
            $crate::conformance!(@group $setup, future_rows: keys, refusals, deleted_rows, numbers, choices, conversions, foreign);
            $crate::conformance!(@group $setup, future_texts: values, nulls, conversions, refusals, keys, refused_keys, tuples, answers, conditions,
                programs);
            $crate::conformance!(@group $setup, future_savepoints: stay_open, come_back, are_undone, random_returns);
            $crate::conformance!(@group $setup, future_scopes: of_earlier_transactions, of_outer_and_inner_transactions, in_answers,
                at_the_end_of_a_thread);
            $crate::conformance!(@group $setup, future_failures: overwritten, undone, answers_behind_a_row_that_went, undone_and_caught, unique_keys, in_order);
            $crate::conformance!(@group $setup, anomalies: g0_dirty_write, g1a_aborted_read, g1b_intermediate_read,
                g1c_circular_information_flow, otv_observed_transaction_vanishes, pmp_predicate_many_preceders,
                pmp_predicate_many_preceders_by_a_write, p4_lost_update, p4_lost_update_in_place, g_single_read_skew,
                g_single_dependencies, g_single_write_1, g_single_write_2, g_single_before_a_write,
                g_single_of_a_deletion, g2_item, g2_predicate, g2_two_edges, read_only_anomaly,
                read_only_anomaly_with_a_snapshot, write_skew_of_a_sum, write_skew_of_a_count, write_skew_by_insertion,
                write_skew_of_absent_keys, write_skew_by_update, write_skew_of_three, insert_insert,
                insert_insert_the_other_way_round, insert_insert_in_a_hash_table, delete_and_update, update_and_delete,
                delete_and_upsert, delete_and_delete);
            $crate::conformance!(@group $setup, rollbacks: reads, reads_beside_a_write, insertion, insertion_before_a_later_one,
                insertion_that_comes_late, deletion_that_comes_late, range);
            $crate::conformance!(@group $setup, phantoms: absent_key, absent_key_in_a_hash_table, count, empty_range,
                minimum, maximum, backward_scan, stopped_scan, secondary_lookup, secondary_range, unique_secondary,
                updated_into_a_range, deleted_out_of_a_range, tombstone, tombstone_that_grows,
                tombstone_that_grows_in_a_range, whole_table, insertion_given_up, insertion_refused);
        }
    };
    // How the protocol stands clients as they are.
    (@clients $setup:expr) => {
        $crate::conformance!(@group $setup, clients: nested_transactions, nested_procedures, nested_on_two_threads, nested_beside_a_plain_client,
            nested_at_random, nested_meets_a_busy_row, doomed_by_their_own_thread, doomed_by_other_threads,
            new_index_inside_of_a_transaction, leaked_transactions, leaked_transactions_of_workers_that_leave,
            leaked_transactions_before_failures, threads_that_end, work_at_the_end_of_a_thread, conflicts_of_their_own, more_threads_than_slots,
            changes_between_transactions);
        $crate::conformance!(@group $setup, liveness: updates_beside_a_snapshot, queue_beside_a_snapshot,
            hot_row_beside_a_snapshot, updates_beside_a_writer, queue_beside_a_writer, hot_row_beside_a_writer,
            updates_beside_a_session, queue_beside_a_session, hot_row_beside_a_session, crowd_that_reads_and_writes,
            crowd_that_writes_blindly, garbage_of_an_idle_session,
            own_commits_beside_a_snapshot, own_commits_beside_a_writer, fresh_beside_a_snapshot, fresh_beside_a_writer,
            reads_beside_an_insertion, insertions_beside_an_insertion, wanted_beside_an_insertion);
    };
    (@group $setup:expr, $group:ident: $($behaviour:ident),* $(,)?) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $behaviour() {
                    let setup = $setup.erased();
                    if $crate::conformance::known::is_asked(&setup, stringify!($group), stringify!($behaviour)) {
                        $crate::conformance::$group::$behaviour(&setup);
                    }
                }
            )*
        }
    };
}
