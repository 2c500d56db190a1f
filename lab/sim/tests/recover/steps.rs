//! Each step of recovery is left out, and what is recovered is wrong.

use polychron_log::steps::RecoveryStep;
use polychron_sim::each_step_is_needed;

use crate::history::DROPPED;
use crate::history::{Done, NUMBERS, Rows, TEXTS, Transaction, kept, number_key, number_row, patch, replay, text_row};
use crate::{Parts, recover};

fn put(id: u64, number: u64) -> Done {
    Done::Put(NUMBERS, number_row(id, [number; 4]))
}

fn patched(id: u64, first: usize, words: &[u64]) -> Done {
    patch(NUMBERS, number_key(id), first, words)
}

fn delete(id: u64) -> Done {
    Done::Delete(NUMBERS, number_key(id))
}

/// Whether the transactions behind the first ones, of which there is a checkpoint, are recovered wrongly, in the reverse sequence or in their own.
fn is_wrong(transactions: &[Transaction], in_checkpoint: usize) -> bool {
    let before = replay(&transactions[..in_checkpoint]);
    let rows = |rows: &Rows| rows.iter().map(|((table, _), row)| (*table, row.clone())).collect();
    let checkpoint = Parts(vec![rows(&before)]);
    let expected = Ok(kept(replay(transactions)));
    let tail = &transactions[in_checkpoint..];
    recover(tail, &checkpoint, 0) != expected || recover(tail.iter().rev(), &checkpoint, 0) != expected
}

/// Whether what contradicts itself is believed.
fn is_believed(changes: &[Done], checkpoint: &[(u32, Vec<u64>)]) -> bool {
    recover([&Transaction::new(1, 1, changes)], &Parts(vec![checkpoint.to_vec()]), 0).is_ok()
}

fn two_puts_in_reverse() -> bool {
    is_wrong(&[Transaction::new(1, 1, [put(5, 1)]), Transaction::new(1, 2, [put(5, 2)])], 0)
}

/// It has two pieces.
fn puts_of_a_long_transaction() -> bool {
    is_wrong(&[Transaction::new(1, 1, [put(6, 1), put(5, 1), put(5, 2), put(7, 1)])], 0)
}

fn lower_order_of_a_later_incarnation() -> bool {
    is_wrong(&[Transaction::new(1, 9, [put(5, 1)]), Transaction::new(2, 3, [put(5, 2)])], 0)
}

fn patch_over_a_put() -> bool {
    is_wrong(&[Transaction::new(1, 1, [put(5, 1)]), Transaction::new(1, 2, [patched(5, 2, &[7])])], 0)
}

fn patch_under_a_newer_put() -> bool {
    let transactions = [
        Transaction::new(1, 1, [put(5, 1)]),
        Transaction::new(1, 2, [patched(5, 2, &[7])]),
        Transaction::new(1, 3, [put(5, 2)]),
    ];
    is_wrong(&transactions, 1)
}

fn patches_that_overlap() -> bool {
    let transactions = [
        Transaction::new(1, 1, [put(5, 1)]),
        Transaction::new(1, 2, [patched(5, 1, &[7, 7])]),
        Transaction::new(1, 3, [patched(5, 2, &[8, 8])]),
        Transaction::new(1, 4, [patched(5, 3, &[9, 9])]),
    ];
    is_wrong(&transactions, 1)
}

fn patches_side_by_side() -> bool {
    let transactions = [
        Transaction::new(1, 1, [put(5, 1)]),
        Transaction::new(1, 2, [patched(5, 1, &[7, 7])]),
        Transaction::new(1, 3, [patched(5, 2, &[8])]),
    ];
    is_wrong(&transactions, 1)
}

fn patch_of_what_was_deleted() -> bool {
    is_believed(&[put(5, 1), delete(5), patched(5, 1, &[7])], &[])
}

fn patch_behind_the_end() -> bool {
    // The text's words would be more than its length says; the numbers' layout refuses it on its own.
    let row = text_row("name", 1, &"x".repeat(16));
    let key = crate::history::key(&crate::history::texts(), &row);
    let beyond = patch(TEXTS, key, row.len(), &[0]);
    let said = recover([&Transaction::new(1, 1, [Done::Put(TEXTS, row), beyond])], &Parts::default(), 0);
    !said.unwrap_err().to_string().ends_with("it was patched behind its end")
}

fn patch_of_a_key() -> bool {
    is_believed(&[put(5, 1), patched(5, 0, &[6])], &[])
}

fn row_of_another_length() -> bool {
    is_believed(&[Done::Put(NUMBERS, vec![5; 6])], &[])
}

fn row_deleted_since_the_checkpoint() -> bool {
    is_wrong(&[Transaction::new(1, 1, [put(5, 1), put(6, 1)]), Transaction::new(1, 2, [delete(5)])], 1)
}

fn row_put_since_the_checkpoint() -> bool {
    is_wrong(&[Transaction::new(1, 1, [put(5, 1), put(6, 1)]), Transaction::new(1, 2, [put(5, 2)])], 1)
}

fn patch_of_a_row_that_the_checkpoint_lacks() -> bool {
    is_believed(&[patched(5, 1, &[7])], &[(NUMBERS, number_row(6, [1; 4]))])
}

fn row_twice_in_the_checkpoint() -> bool {
    is_believed(&[delete(6)], &[(NUMBERS, number_row(6, [1; 4])), (NUMBERS, number_row(6, [2; 4]))])
}

fn rows_of_a_dropped_table() -> bool {
    let dropped = |number| Done::Put(DROPPED, number_row(5, [number; 4]));
    is_wrong(&[Transaction::new(1, 1, [dropped(1)]), Transaction::new(1, 2, [dropped(2), put(6, 1)])], 1)
}

/// What each step prevents.
fn killer(step: RecoveryStep) -> fn() -> bool {
    match step {
        RecoveryStep::CompareOrders => two_puts_in_reverse,
        RecoveryStep::NumberThroughPieces => puts_of_a_long_transaction,
        RecoveryStep::CompareIncarnations => lower_order_of_a_later_incarnation,
        RecoveryStep::ApplyPatches => patch_over_a_put,
        RecoveryStep::PassOverOlderPatches => patch_under_a_newer_put,
        RecoveryStep::SortPatches => patches_that_overlap,
        RecoveryStep::CoverPatches => patches_side_by_side,
        RecoveryStep::RefusePatchOfNothing => patch_of_what_was_deleted,
        RecoveryStep::RefusePatchBeyondEnd => patch_behind_the_end,
        RecoveryStep::RefuseOtherKey => patch_of_a_key,
        RecoveryStep::CheckRows => row_of_another_length,
        RecoveryStep::DeleteFromCheckpoint => row_deleted_since_the_checkpoint,
        RecoveryStep::ReplaceInCheckpoint => row_put_since_the_checkpoint,
        RecoveryStep::AwaitPatched => patch_of_a_row_that_the_checkpoint_lacks,
        RecoveryStep::RefuseTwice => row_twice_in_the_checkpoint,
        RecoveryStep::SkipDropped => rows_of_a_dropped_table,
    }
}

each_step_is_needed! {
    RecoveryStep, killer:
    CompareOrders NumberThroughPieces CompareIncarnations ApplyPatches PassOverOlderPatches SortPatches CoverPatches RefusePatchOfNothing RefusePatchBeyondEnd RefuseOtherKey
    CheckRows DeleteFromCheckpoint ReplaceInCheckpoint AwaitPatched RefuseTwice SkipDropped
}
