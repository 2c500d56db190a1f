//! Transactions that conflict again and again.

use std::sync::Arc;

use super::*;
use crate::contested_tests::{Deed, favour_ends_with_the_transaction, overtaken_at_each_attempt};

fn database() -> Arc<Maflingo> {
    Maflingo::open(crate::maflingo::Options::default(), Common::default()).unwrap()
}

#[test]
fn a_transaction_that_writers_overtake_commits_soon() {
    overtaken_at_each_attempt(&database(), Deed::Update, &[0, 1]);
}

#[test]
fn the_favour_ends_with_the_transaction() {
    favour_ends_with_the_transaction(&database());
}
