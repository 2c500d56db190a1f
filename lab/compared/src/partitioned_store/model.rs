//! Every interleaving of two threads that take the locks of partitions, under loom: each partition has one holder, which sees
//! what the last one did, and no thread waits in a cycle.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use polychron_sync::model::explore;
use polychron_sync::thread;

use super::locks::{Locks, Partitions};

/// Locks partitions, in whatever order they are named, and adds one to each.
fn add(locks: &Locks, rows: &[UnsafeCell<u32>], named: &[usize]) {
    let mut wanted = Partitions::new(rows.len());
    named.iter().for_each(|&partition| wanted.name(partition));
    wanted.complete();
    wanted.lock(locks).expect("this thread holds none");
    for &partition in named {
        // SAFETY: loom checks it.
        rows[partition].with_mut(|row| unsafe { *row += 1 });
    }
    wanted.unlock(locks);
}

#[test]
fn partitions_have_one_holder_each() {
    for (mine, theirs) in [(vec![0, 1], vec![1, 0]), (vec![0, 1], vec![1]), (vec![1], vec![1, 2])] {
        explore(3, move || {
            let shared = Arc::new((Locks::new(3), [0, 0, 0].map(UnsafeCell::new)));
            let (other, theirs) = (Arc::clone(&shared), theirs.clone());
            let thread = thread::spawn(move || add(&other.0, &other.1, &theirs));
            add(&shared.0, &shared.1, &mine);
            thread.join().expect("the other one does not panic");
        });
    }
}
