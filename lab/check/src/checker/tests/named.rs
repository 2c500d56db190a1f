//! Each anomaly is found, called by its name, and told by the shortest cycle.

use super::*;
use polychron_engine::Isolation;

use crate::checker::{Anomaly, Explanation, Verdict, check, check_at};

fn anomaly(history: &History, strict: bool) -> Explanation {
    match check(history, strict) {
        Verdict::Anomalous(mut explanations) => explanations.swap_remove(0),
        other => panic!("no anomaly: {other:?}"),
    }
}

#[track_caller]
fn assert_named(transactions: &[&[Operation]], expected: Anomaly, members: &[u64]) -> Explanation {
    let found = anomaly(&concurrent(transactions), false);
    assert_eq!(found.anomaly, expected, "{found}");
    let mut attempts = found.attempts.clone();
    attempts.sort_unstable();
    assert_eq!(attempts, members, "{found}");
    assert!(!found.real_time);
    found
}

#[track_caller]
fn assert_clean(history: &History, strict: bool) -> Vec<u64> {
    match check(history, strict) {
        Verdict::Serializable(order) => order,
        other => panic!("{other:?}"),
    }
}

/// Two rows that transaction 1 inserted.
fn two_rows() -> Vec<Operation> {
    vec![insert(1, v(1, 1)), insert(2, v(1, 2))]
}

#[test]
fn write_cycle() {
    let two = [write(1, v(2, 1), v(1, 1)), write(2, v(2, 2), v(3, 2))];
    let three = [write(1, v(3, 1), v(2, 1)), write(2, v(3, 2), v(1, 2))];
    let found = assert_named(&[&two_rows(), &two, &three], Anomaly::G0, &[2, 3]);
    assert!(found.to_string().contains("T2 wrote key 1 of table 0 as version T2:1, and T3 replaced that"), "{found}");
}

#[test]
fn aborted_read() {
    let mut history = concurrent(&[&two_rows()]);
    add(&mut history, 2, (0, 9), Outcome::Aborted, &[write(1, v(2, 1), v(1, 1))]);
    add(&mut history, 3, (0, 9), Outcome::Committed, &[read(1, v(2, 1))]);
    let found = anomaly(&history, false);
    assert_eq!(found.anomaly, Anomaly::G1a, "{found}");
    // What was undone to a savepoint was never there either.
    let undone = [Operation::Savepoint, write(1, v(2, 1), v(1, 1)), Operation::RollBackTo(0)];
    assert_named(&[&two_rows(), &undone, &[read(1, v(2, 1))]], Anomaly::G1a, &[2, 3]);
}

#[test]
fn intermediate_read() {
    let twice = [write(1, v(2, 1), v(1, 1)), write(1, v(2, 2), v(2, 1))];
    assert_named(&[&two_rows(), &twice, &[read(1, v(2, 1))]], Anomaly::G1b, &[2, 3]);
}

#[test]
fn circular_information_flow() {
    let two = [write(1, v(2, 1), v(1, 1)), read(2, v(3, 1))];
    let three = [write(2, v(3, 1), v(1, 2)), read(1, v(2, 1))];
    assert_named(&[&two_rows(), &two, &three], Anomaly::G1c, &[2, 3]);
}

#[test]
fn lost_update() {
    let found = assert_named(
        &[&two_rows(), &[write(1, v(2, 1), v(1, 1))], &[write(1, v(3, 1), v(1, 1))], &[read(1, v(3, 1))]],
        Anomaly::LostUpdate,
        &[2, 3],
    );
    assert!(found.to_string().starts_with("lost update\n"), "{found}");
    // Both inserted what neither saw.
    assert_named(&[&[insert(1, v(1, 1))], &[insert(1, v(2, 1))]], Anomaly::LostUpdate, &[1, 2]);
    // Both deleted it.
    assert_named(&[&two_rows(), &[delete(1, v(1, 1))], &[delete(1, v(1, 1))]], Anomaly::LostUpdate, &[2, 3]);
}

#[test]
fn read_skew() {
    let two = [write(1, v(2, 1), v(1, 1)), write(2, v(2, 2), v(1, 2))];
    let found = assert_named(&[&two_rows(), &two, &[read(1, v(1, 1)), read(2, v(2, 2))]], Anomaly::GSingle, &[2, 3]);
    assert!(found.to_string().contains("T3 read key 1 of table 0 in version T1:1, and T2 wrote"), "{found}");
    // The same row twice, and a row that vanishes.
    assert_named(&[&two_rows(), &two, &[read(1, v(1, 1)), read(1, v(2, 1))]], Anomaly::GSingle, &[2, 3]);
    let gone = [delete(1, v(1, 1)), write(2, v(2, 1), v(1, 2))];
    assert_named(&[&two_rows(), &gone, &[read(1, v(1, 1)), read(2, v(2, 1))]], Anomaly::GSingle, &[2, 3]);
}

#[test]
fn read_skew_over_a_range() {
    let two = [insert(3, v(2, 1)), insert(4, v(2, 2))];
    let three = [scan(3, 3, &[]), read(4, v(2, 2))];
    assert_named(&[&two_rows(), &two, &three], Anomaly::GSingle, &[2, 3]);
}

#[test]
fn long_fork() {
    let readers = [[read(1, v(2, 1)), read(2, v(1, 2))], [read(1, v(1, 1)), read(2, v(3, 1))]];
    let two = [write(1, v(2, 1), v(1, 1))];
    let three = [write(2, v(3, 1), v(1, 2))];
    assert_named(&[&two_rows(), &two, &three, &readers[0], &readers[1]], Anomaly::LongFork, &[2, 3, 4, 5]);
}

#[test]
fn write_skew() {
    let two = [read(1, v(1, 1)), write(2, v(2, 1), v(1, 2))];
    let three = [read(2, v(1, 2)), write(1, v(3, 1), v(1, 1))];
    assert_named(&[&two_rows(), &two, &three], Anomaly::G2Item, &[2, 3]);
    // Over rows that neither finds.
    assert_named(&[&[absent(1), insert(2, v(1, 1))], &[absent(2), insert(1, v(2, 1))]], Anomaly::G2Item, &[1, 2]);
}

/// A client that was told that a row is there stands before its deletion; one that had been deleted before the call was not meant.
#[test]
fn write_skew_over_a_row_that_was_not_shown() {
    let observed = [Operation::Present(Box::new(present(0, 1))), write(2, v(4, 1), v(1, 2))];
    let deletes = [read(2, v(1, 2)), delete(1, v(3, 1))];
    let history = |others_begin| {
        let mut history = History::default();
        add(&mut history, 1, (0, 10), Outcome::Committed, &two_rows());
        add(&mut history, 2, (11, 20), Outcome::Committed, &[delete(1, v(1, 1))]);
        add(&mut history, 3, (21, 30), Outcome::Committed, &[insert(1, v(3, 1))]);
        add(&mut history, 4, (others_begin, 50), Outcome::Committed, &observed);
        add(&mut history, 5, (31, 50), Outcome::Committed, &deletes);
        history
    };
    let found = anomaly(&history(31), true);
    assert_eq!(found.anomaly, Anomaly::G2Item, "{found}");
    assert!(found.story.iter().any(|line| line.contains("was told that key 1 of table 0 is there")), "{found}");
    // Now it may have been told of the first of the two rows, and comes first.
    assert_clean(&history(12), true);
    assert_clean(&history(31), false);
}

#[test]
fn read_only_anomaly() {
    // The withdrawal sees no deposit, the deposit comes before the report, and the report before the withdrawal.
    let withdrawal = [read(1, v(1, 1)), read(2, v(1, 2)), write(2, v(2, 1), v(1, 2))];
    let deposit = [write(1, v(3, 1), v(1, 1))];
    let report = [read(1, v(3, 1)), read(2, v(1, 2))];
    assert_named(&[&two_rows(), &withdrawal, &deposit, &report], Anomaly::G2Item, &[2, 3, 4]);
}

#[test]
fn phantom() {
    let two = [scan(0, 9, &[]), insert(11, v(1, 1))];
    let three = [scan(10, 19, &[]), insert(1, v(2, 1))];
    let found = assert_named(&[&two, &three], Anomaly::G2, &[1, 2]);
    assert!(found.to_string().contains("T1 scanned keys 0 to 9 of table 0: nothing, and T2 inserted key 1"), "{found}");
}

/// A row that comes and goes leaves open when it was found absent; here neither side fits.
#[test]
fn phantom_of_a_row_that_is_gone_again() {
    let one = [insert(1, v(1, 1)), insert(2, v(1, 2))];
    // It must come after transaction 1, whose row 1 it does not see, and before the deletion, whose writer saw it write.
    let two = [scan(1, 1, &[]), write(2, v(2, 1), v(1, 2))];
    let three = [read(2, v(2, 1)), delete(1, v(1, 1))];
    let found = assert_named(&[&one, &two, &three], Anomaly::GSingle, &[1, 2]);
    assert!(found.to_string().contains("T2 scanned keys 1 to 1 of table 0: nothing"), "{found}");
    // Without having been seen, it comes last.
    assert_eq!(assert_clean(&concurrent(&[&one, &two, &[delete(1, v(1, 1))]]), false), [1, 3, 2]);
}

#[test]
fn internal() {
    let forgets = [write(1, v(2, 1), v(1, 1)), read(1, v(1, 1))];
    assert_named(&[&two_rows(), &forgets], Anomaly::Internal, &[2]);
    let lacks = [insert(5, v(2, 1)), scan(0, 9, &[(1, v(1, 1)), (2, v(1, 2))])];
    assert_named(&[&two_rows(), &lacks], Anomaly::Internal, &[2]);
    let revives = [delete(1, v(1, 1)), read(1, v(1, 1))];
    assert_named(&[&two_rows(), &revives], Anomaly::Internal, &[2]);
    // After a rollback to the savepoint the old version is the right one.
    let undone = [Operation::Savepoint, write(1, v(2, 1), v(1, 1)), Operation::RollBackTo(0), read(1, v(1, 1))];
    assert_clean(&concurrent(&[&two_rows(), &undone]), false);
}

#[test]
fn garbage() {
    assert_named(&[&[read(1, v(7, 1))]], Anomaly::Garbage, &[1, 7]);
    assert_named(&[&[Operation::Torn { item: item(3) }]], Anomaly::Garbage, &[1]);
}

#[test]
fn blind_writes_are_ordered_by_who_read_them() {
    let (one, two, three) = ([insert(1, v(1, 1))], [blind(1, v(2, 1))], [blind(1, v(3, 1))]);
    let first = [read(1, v(2, 1)), insert(7, v(4, 1))];
    let second = [read(1, v(3, 1)), absent(7)];
    // Any client that read the third did so before the one who read the second, and so the third was written first.
    let order = assert_clean(&concurrent(&[&one, &two, &three, &first, &second]), false);
    assert_eq!(order, [1, 3, 5, 2, 4]);
    // A transaction that sees them both ways sees no order.
    let torn = [read(1, v(2, 1)), read(1, v(3, 1)), read(1, v(2, 1))];
    let found = anomaly(&concurrent(&[&one, &two, &three, &torn]), false);
    assert!(found.attempts.contains(&4), "{found}");
}

#[test]
fn lives_of_one_key_follow_each_other() {
    let transactions: Vec<Vec<Operation>> = (1..=6)
        .map(|id| match id % 2 {
            1 => vec![insert(1, v(id, 1))],
            _ => vec![delete(1, v(id - 1, 1))],
        })
        .collect();
    let slices: Vec<&[Operation]> = transactions.iter().map(Vec::as_slice).collect();
    let order = assert_clean(&concurrent(&slices), false);
    assert!(order.chunks(2).all(|pair| pair[1] == pair[0] + 1), "{order:?}");
}

#[test]
fn stale_reads_show_in_real_time_only() {
    let mut history = History::default();
    add(&mut history, 1, (0, 1), Outcome::Committed, &[insert(1, v(1, 1))]);
    add(&mut history, 2, (2, 3), Outcome::Committed, &[write(1, v(2, 1), v(1, 1))]);
    add(&mut history, 3, (4, 5), Outcome::Committed, &[read(1, v(1, 1))]);
    assert_eq!(assert_clean(&history, false), [1, 3, 2]);
    let found = anomaly(&history, true);
    assert!(found.real_time && found.anomaly == Anomaly::GSingle, "{found}");
    assert!(found.to_string().contains("T2 was acknowledged before T3 began"), "{found}");
    // A snapshot may be of the past.
    history.attempts[2].snapshot = true;
    assert_clean(&history, true);
    // Those that overlap have no order in time.
    history.attempts[2] = Attempt { snapshot: false, begin: 2, ..history.attempts[2].clone() };
    assert_clean(&history, true);
}

/// What was found absent may not have been there yet, or be gone: where neither can be, both are told.
#[test]
fn absent_between_two_snapshots_is_observed_from_both_sides() {
    let mut history = History::default();
    add(&mut history, 1, (0, 1), Outcome::Committed, &[insert(1, v(1, 1))]);
    for (id, seen) in [(2, read(1, v(1, 1))), (3, absent(1)), (4, read(1, v(1, 1)))] {
        add(&mut history, id, (2 * id, 2 * id + 1), Outcome::Committed, &[seen]);
        let snapshot = history.attempts.last_mut().unwrap();
        (snapshot.snapshot, snapshot.thread) = (true, 9);
    }
    add(&mut history, 5, (10, 11), Outcome::Committed, &[delete(1, v(1, 1))]);
    assert_clean(&history, false);
    let found = anomaly(&history, true).to_string();
    assert!(found.contains("T3 found key 1 of table 0 absent, and T1 inserted"), "{found}");
    assert!(found.contains("T5 deleted key 1 of table 0, and T3 saw that the row was not there"), "{found}");
}

/// What a procedure that rolled back was told is checked, too.
#[test]
fn rollbacks_are_readers() {
    let mut history = concurrent(&[&two_rows(), &[write(1, v(2, 1), v(1, 1)), write(2, v(2, 2), v(1, 2))]]);
    let skewed = [read(1, v(1, 1)), read(2, v(2, 2))];
    add(&mut history, 3, (0, 9), Outcome::Aborted, &skewed);
    assert_clean(&history, false);
    add(&mut history, 4, (0, 9), Outcome::RolledBack, &skewed);
    assert_eq!(anomaly(&history, false).anomaly, Anomaly::GSingle);
}

/// Snapshot isolation allows cycles with two anti-dependencies in a row, and no others.
#[test]
fn snapshot_isolation_allows_write_skew_alone() {
    let named = |transactions: &[&[Operation]]| match check_at(&concurrent(transactions), false, Isolation::Snapshot) {
        Verdict::Skewed(explanation) => (true, explanation.anomaly),
        Verdict::Anomalous(explanations) => (false, explanations[0].anomaly),
        other => panic!("no anomaly: {other:?}"),
    };
    let rows = two_rows();
    let left = [read(1, v(1, 1)), write(2, v(2, 1), v(1, 2))];
    let right = [read(2, v(1, 2)), write(1, v(3, 1), v(1, 1))];
    assert_eq!(named(&[&rows, &left, &right]), (true, Anomaly::G2Item));
    let report = [read(1, v(3, 1)), read(2, v(1, 2))];
    let deposit = [write(1, v(3, 1), v(1, 1))];
    let withdrawal = [read(1, v(1, 1)), read(2, v(1, 2)), write(2, v(2, 1), v(1, 2))];
    assert_eq!(named(&[&rows, &withdrawal, &deposit, &report]), (true, Anomaly::G2Item));
    let phantoms = [[scan(0, 9, &[]), insert(11, v(1, 1))], [scan(10, 19, &[]), insert(1, v(2, 1))]];
    assert_eq!(named(&[&phantoms[0], &phantoms[1]]), (true, Anomaly::G2));
    let over = |writer| [write(1, v(writer, 1), v(1, 1))];
    assert_eq!(named(&[&rows, &over(2), &over(3), &[read(1, v(3, 1))]]), (false, Anomaly::LostUpdate));
    let two = [write(1, v(2, 1), v(1, 1)), write(2, v(2, 2), v(1, 2))];
    assert_eq!(named(&[&rows, &two, &[read(1, v(1, 1)), read(2, v(2, 2))]]), (false, Anomaly::GSingle));
    let readers = [[read(1, v(2, 1)), read(2, v(1, 2))], [read(1, v(1, 1)), read(2, v(3, 1))]];
    let other = [write(2, v(3, 1), v(1, 2))];
    assert_eq!(named(&[&rows, &over(2), &other, &readers[0], &readers[1]]), (false, Anomaly::LongFork));
    // Write skew does not hide what is worse.
    let lost = [&rows[..], &left, &right, &[write(2, v(4, 1), v(1, 2))]];
    assert!(!named(&lost).0);
}
