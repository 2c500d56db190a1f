//! Input that contradicts itself is an error that names table and key.

use polychron_base::sizes::scaled;
use polychron_log::Error;

use crate::history::{Done, NUMBERS, TEXTS, Transaction, number_key, number_row, patch, text_row};
use crate::{Parts, recover};

/// What is said of these changes over a checkpoint, whichever the number of threads.
#[track_caller]
fn told(changes: &[Done], checkpoint: &[(u32, Vec<u64>)]) -> String {
    let transaction = Transaction::new(1, 1, changes);
    let checkpoint = Parts(vec![checkpoint.to_vec()]);
    let [alone, together] = [0, 2].map(|threads| recover([&transaction], &checkpoint, threads));
    assert_eq!(alone, together);
    alone.expect_err("it contradicts itself").to_string()
}

fn put() -> Done {
    Done::Put(NUMBERS, number_row(5, [1; 4]))
}

fn delete() -> Done {
    Done::Delete(NUMBERS, number_key(5))
}

const NOTHING: &str = "the row 5 of table numbers cannot be recovered: it was patched where there was none";

#[test]
fn a_patch_of_nothing_is_refused() {
    let patched = patch(NUMBERS, number_key(5), 1, &[7]);
    let other = (NUMBERS, number_row(6, [1; 4]));
    assert_eq!(told(std::slice::from_ref(&patched), std::slice::from_ref(&other)), NOTHING);
    assert_eq!(told(&[put(), delete(), patched.clone()], &[other]), NOTHING);
    // Neither does the checkpoint's row bring it back.
    assert_eq!(told(&[delete(), patched], &[(NUMBERS, number_row(5, [1; 4]))]), NOTHING);
}

#[test]
fn a_patch_behind_the_end_is_refused() {
    let beyond = "the row 5 of table numbers cannot be recovered: it was patched behind its end";
    for (first, words) in [(4, &[1, 2][..]), (5, &[1]), (1 << 17, &[])] {
        if words.is_empty() {
            continue;
        }
        let patched = patch(NUMBERS, number_key(5), first, words);
        assert_eq!(told(&[put(), patched.clone()], &[]), beyond);
        assert_eq!(told(&[patched], &[(NUMBERS, number_row(5, [1; 4]))]), beyond);
    }
}

#[test]
fn rows_of_another_layout_are_refused() {
    let short = Done::Put(NUMBERS, vec![5, 1]);
    let says = |why| format!("the row 5 of table numbers cannot be recovered: it is no row of this table: {why}");
    assert_eq!(told(&[short], &[]), says("it has 16 bytes where 40 are due"));
    let long = Done::Put(NUMBERS, vec![5; 6]);
    assert_eq!(told(&[long], &[]), says("it has 48 bytes where 40 are due"));
    assert_eq!(told(&[], &[(NUMBERS, vec![5; 6])]), says("it has 48 bytes where 40 are due"));
    let mut row = text_row("a name", 1, "a text");
    let key = crate::history::key(&crate::history::texts(), &row);
    // Its last word is in no text.
    *row.last_mut().unwrap() = u64::MAX;
    let said = told(&[Done::Put(TEXTS, row)], &[]);
    assert!(said.starts_with("the row ") && said.contains(" of table texts cannot be recovered"), "{said}");
    // A patch makes it one.
    let said = told(&[Done::Put(TEXTS, text_row("a name", 1, "a text")), patch(TEXTS, key, 1, &[u64::MAX])], &[]);
    assert!(said.starts_with("the row a name of table texts cannot be recovered"), "{said}");
}

#[test]
fn a_patch_of_a_key_is_refused() {
    let said = told(&[put(), patch(NUMBERS, number_key(5), 0, &[6])], &[]);
    assert_eq!(said, "the row 5 of table numbers cannot be recovered: a patch has changed its key");
}

#[test]
fn keys_that_are_none_are_refused() {
    let said = told(&[Done::Delete(NUMBERS, b"abc".to_vec())], &[]);
    assert_eq!(said, "the row 0x616263 of table numbers cannot be recovered: these bytes are no key of this type");
    let said = told(&[patch(NUMBERS, b"abc".to_vec(), 1, &[1])], &[]);
    assert_eq!(said, "the row 0x616263 of table numbers cannot be recovered: it was patched where there was none");
}

#[test]
fn a_checkpoint_with_a_row_twice_is_refused() {
    let row = (NUMBERS, number_row(5, [1; 4]));
    let said = told(&[patch(NUMBERS, number_key(5), 1, &[7])], &[row.clone(), row]);
    assert_eq!(said, "the row 5 of table numbers cannot be recovered: the checkpoint has it twice");
}

/// A sink's own error ends the recovery, and nothing else is handed out.
#[test]
fn what_the_sink_says_is_answered() {
    use polychron_log::recover::{Batch, Sink, Tail};
    struct Full;
    impl Sink for Full {
        type Error = Error;

        fn rows(&self, _: &Batch<'_>) -> Result<(), Error> {
            Err(Error::Options("full"))
        }
    }
    for threads in [0, 3] {
        let mut tail = Tail::new(&crate::catalog(), threads).unwrap();
        let rows = 0..scaled(10_000, 100) as u64;
        for id in rows.clone() {
            let put = Transaction::new(1, id, [Done::Put(NUMBERS, number_row(id, [1; 4]))]);
            put.log(&mut |logged| tail.add(logged));
        }
        let checkpoint = Parts(vec![rows.map(|id| (NUMBERS, number_row(id + 1_000_000, [1; 4]))).collect()]);
        let said = tail.finish().unwrap().merge(threads, &checkpoint, &Full).unwrap_err();
        assert_eq!(said, Error::Options("full"));
    }
}

/// A tail that is no longer wanted ends its threads.
#[test]
fn a_tail_may_be_dropped() {
    for threads in [0, 2] {
        let mut tail = polychron_log::recover::Tail::new(&crate::catalog(), threads).unwrap();
        Transaction::new(1, 1, [put()]).log(&mut |logged| tail.add(logged));
    }
}
