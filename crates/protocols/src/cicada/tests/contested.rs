//! Transactions that conflict again and again.

use super::*;
use crate::contested_tests::{Deed, favour_ends_with_the_transaction, overtaken_at_each_attempt};

#[test]
fn a_transaction_that_writers_overtake_commits_soon() {
    overtaken_at_each_attempt(&open(|_| {}), Deed::Update, &[0, 1]);
}

#[test]
fn a_transaction_that_readers_overtake_commits_soon() {
    // On a busy machine the horizon would pass the transaction, which then writes at a later timestamp than the readers have.
    let database = open(|options| options.overtaking_after = Duration::from_secs(3600));
    overtaken_at_each_attempt(&database, Deed::Read, &[0, 1]);
}

/// Blind writes are not read, so only their installation can make way.
#[test]
fn a_transaction_that_blind_writers_overtake_commits_soon() {
    overtaken_at_each_attempt(&open(|_| {}), Deed::WriteBlindly, &[0, 1]);
}

#[test]
fn the_favour_ends_with_the_transaction() {
    favour_ends_with_the_transaction(&open(|_| {}));
}
