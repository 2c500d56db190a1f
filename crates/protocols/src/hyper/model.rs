//! Every interleaving of two threads in the words of slots and their positions, under loom: a row that is written beside another writer, a
//! reader and a scan, and beside a thread that narrows an interval.

use std::sync::Arc;

use polychron_memory::{Epochs, Guard, Local, Memory, Options as MemoryOptions};
use polychron_sync::atomic::{AtomicBool, Ordering};
use polychron_sync::model::explore;
use polychron_sync::thread;

use polychron_memory::model::beside;

use super::options::{Backend, Options};
use super::rows::Rows;
use super::slot_ranges::{Looked, SlotRange, Unit};
use super::undo::Undo;

/// Words of a row, which are the same in every state that there is.
const WORDS: usize = 2;

/// Rows with one row of ones, in whose interval its slot is or is not.
fn rows(is_covered: bool, guard: &Guard<'_>, epochs: &Epochs) -> Rows {
    let rows = Rows::new(WORDS, false, &Options { backend: Backend::Columns, ..Options::default() });
    let slot = rows.allocate(epochs, guard).expect("memory is there");
    let mut latched = slot.latch();
    latched.store(0, &[1; WORDS]);
    latched.set_present(true);
    drop(latched);
    if !is_covered {
        correct(&rows);
        assert_eq!(slot_range(&rows, &mut Looked::default()), SlotRange::Plain(0..1));
    }
    rows
}

fn unit(rows: &Rows) -> Unit<'_> {
    rows.unit(0, 1).expect("the page is there")
}

fn slot_range(rows: &Rows, looked: &mut Looked) -> SlotRange {
    let unit = unit(rows);
    unit.look(looked);
    unit.slot_range(looked, 0)
}

fn correct(rows: &Rows) {
    let mut looked = Looked::default();
    let unit = unit(rows);
    unit.look(&mut looked);
    unit.correct(&looked);
}

/// Something that stands for a before-image; no thread looks behind it.
fn before_image<'g>(guard: &'g Guard<'_>) -> Option<Undo<'g>> {
    // SAFETY: no thread looks behind it.
    unsafe { Undo::at(64, guard) }
}

/// Changes the row as a transaction does.
fn write(rows: &Rows, guard: &Guard<'_>) {
    let mut latched = rows.record(0).latch();
    let next = latched.load(0) + 1;
    latched.store(0, &[next; WORDS]);
    latched.set_version(before_image(guard));
}

/// Takes its before-image away, as collection does.
fn cut(rows: &Rows) {
    rows.record(0).latch().set_version(None);
}

/// What a scan finds in the slot range, if it finds one that stands still.
fn scan(rows: &Rows) -> Option<u64> {
    let (mut looked, unit) = (Looked::default(), unit(rows));
    let SlotRange::Plain(range) = slot_range(rows, &mut looked) else { return None };
    let mut words = Vec::new();
    (0..WORDS).for_each(|word| unit.gather(word, range.clone(), &mut words));
    if !unit.stood_still(&looked, &range) {
        return None;
    }
    let words: Vec<u64> = words.into_iter().map(|word| word.into_inner()).collect();
    assert!(words.iter().all(|word| *word == words[0]), "a torn row counts: {words:?}");
    Some(words[0])
}

/// Runs both beside each other on such rows.
fn play(
    is_covered: bool,
    other: impl Fn(&Rows, &Guard<'_>) + Copy + Send + Sync + 'static,
    own: impl Fn(&Rows, &Guard<'_>) + Copy + Send + Sync + 'static,
) {
    play_then(is_covered, other, own, |_| ());
}

/// As [`play`], and then `after`.
fn play_then(
    is_covered: bool,
    other: impl Fn(&Rows, &Guard<'_>) + Copy + Send + Sync + 'static,
    own: impl Fn(&Rows, &Guard<'_>) + Copy + Send + Sync + 'static,
    after: impl Fn(&Rows) + Copy + Send + Sync + 'static,
) {
    explore(3, move || {
        let memory = Memory::new(MemoryOptions { max_workers: 3, ..MemoryOptions::tiny() }).expect("sound options");
        let local = memory.register().expect("a slot is free");
        let rows = Arc::new(rows(is_covered, &local.pin(), memory.epochs()));
        let (by_other, by_own) = (Arc::clone(&rows), Arc::clone(&rows));
        beside(|_| (), move |(), guard| other(&by_other, guard), move |(), guard| own(&by_own, guard), |(), _| ());
        after(&rows);
        let (mut looked, unit) = (Looked::default(), unit(&rows));
        unit.look(&mut looked);
        if matches!(unit.slot_range(&looked, 0), SlotRange::Plain(_)) {
            assert!(unit.record(0).is_plain(), "a versioned slot lies outside of its interval");
        }
    });
}

/// A row that is written while it is read does not count.
#[test]
fn what_is_written_does_not_count() {
    play(false, write, |rows, _| assert!(matches!(scan(rows), None | Some(1))));
}

/// An interval that is narrowed while a slot in it is written goes on covering it, and a thread that scans by it reads no change.
#[test]
fn narrowing_and_writing_synchronize() {
    play(true, write, |rows, _| {
        correct(rows);
        assert!(matches!(scan(rows), None | Some(1)));
    });
}

/// A thread that finds a slot without versions again sees all that was written before.
#[test]
fn what_was_written_is_seen_behind_the_interval() {
    play(
        true,
        |rows, guard| {
            write(rows, guard);
            cut(rows);
        },
        |rows, _| {
            correct(rows);
            _ = scan(rows);
        },
    );
}

/// A thread that finds a slot outside of its interval sees what stands there.
#[test]
fn who_finds_an_interval_narrowed_sees_what_was_written() {
    play(
        true,
        |rows, guard| {
            write(rows, guard);
            cut(rows);
            correct(rows);
        },
        |rows, _| assert!(matches!(scan(rows), None | Some(2))),
    );
}

/// An interval that is widened and narrowed again is another one.
#[test]
fn an_interval_that_comes_back_is_another_one() {
    play(
        false,
        |rows, guard| {
            write(rows, guard);
            cut(rows);
            correct(rows);
        },
        |rows, _| _ = scan(rows),
    );
}

/// A row that has a version already, and is written beside a reader, is read whole.
#[test]
fn rows_are_read_whole() {
    play(
        true,
        |rows, guard| {
            write(rows, guard);
            write(rows, guard);
        },
        |rows, guard| {
            let mut words = [0; WORDS];
            for _ in 0..2 {
                rows.record(0).read(0..WORDS, &mut words, guard);
                assert_eq!(words[0], words[1], "a torn row");
            }
        },
    );
}

/// A row that comes into a slot which no thread has used, whose latch is taken without an exchange, is read whole or not at all.
#[test]
fn rows_that_come_are_read_whole() {
    explore(3, || {
        let memory = Memory::new(MemoryOptions { max_workers: 3, ..MemoryOptions::tiny() }).expect("sound options");
        let local = memory.register().expect("a slot is free");
        let rows = Arc::new(rows(true, &local.pin(), memory.epochs()));
        let by_other = Arc::clone(&rows);
        beside(
            |_| (),
            move |(), guard| {
                let slot = by_other.allocate(guard.epochs(), guard).expect("memory is there");
                let mut latched = slot.latch();
                latched.store(0, &[2; WORDS]);
                latched.set_version(before_image(guard));
                latched.set_present(true);
            },
            move |(), guard| {
                let mut words = [0; WORDS];
                for _ in 0..2 {
                    let at = rows.record(1).read(0..WORDS, &mut words, guard);
                    let expected = if at.present { 2 } else { 0 };
                    assert_eq!((words, at.version.is_some()), ([expected; WORDS], at.present));
                }
            },
            |(), _| (),
        );
    });
}

/// A thread that takes a latch sees what its last holder did.
#[test]
fn latches_hand_rows_on() {
    play_then(true, write, write, |rows| {
        assert_eq!(rows.record(0).latch().load(0), 3, "one has not seen what the other one wrote");
    });
}

/// Closes the only slot and gives it back, and gives its page to memory if no thread still finds the slot. Whether it went.
fn leave(rows: &Rows, local: &Local) -> bool {
    let guard = local.pin();
    let epochs = guard.epochs();
    let record = rows.record(0);
    let mut latched = record.latch();
    latched.set_present(false);
    latched.close();
    drop(latched);
    rows.free(record, epochs);
    drop(guard);
    epochs.advance();
    rows.release_pages(epochs, &local.pin())
}

/// A thread that has found a slot in an index goes on finding its page.
#[test]
fn slots_that_were_found_keep_their_page() {
    explore(2, || {
        let memory = Memory::new(MemoryOptions { max_workers: 3, ..MemoryOptions::tiny() }).expect("sound options");
        let [here, there] = [(); 2].map(|()| memory.register().expect("a slot is free"));
        let rows = Arc::new(rows(true, &here.pin(), memory.epochs()));
        let is_in_index = Arc::new(AtomicBool::new(true));
        let (by_other, in_index) = (Arc::clone(&rows), Arc::clone(&is_in_index));
        let other = thread::spawn(move || {
            in_index.store(false, Ordering::Release);
            leave(&by_other, &there);
            there
        });
        let own = thread::spawn(move || {
            let guard = here.pin();
            if is_in_index.load(Ordering::Acquire) {
                let mut words = [0; WORDS];
                rows.record(0).read(0..WORDS, &mut words, &guard);
                assert_eq!(words, [1; WORDS]);
            }
            drop(guard);
            here
        });
        drop((other.join().expect("no thread panics"), own.join().expect("no thread panics")));
    });
}

/// A row that comes into a page whose number has served before meets a collector with a before-image from then.
#[test]
fn numbers_that_serve_again_are_latched() {
    explore(3, || {
        let memory = Memory::new(MemoryOptions { max_workers: 3, ..MemoryOptions::tiny() }).expect("sound options");
        let [here, there] = [(); 2].map(|()| memory.register().expect("a slot is free"));
        let rows = Arc::new(rows(true, &here.pin(), memory.epochs()));
        assert!(leave(&rows, &here), "no thread finds the slot");
        assert!(rows.find(0).is_none());
        let (by_other, by_own) = (Arc::clone(&rows), Arc::clone(&rows));
        let other = thread::spawn(move || {
            let guard = there.pin();
            let slot = by_other.allocate(guard.epochs(), &guard).expect("memory is there");
            let mut latched = slot.latch();
            latched.store(0, &[2; WORDS]);
            latched.set_version(before_image(&guard));
            latched.set_present(true);
            drop(latched);
            drop(guard);
            there
        });
        let own = thread::spawn(move || {
            let guard = here.pin();
            by_own.find(0).into_iter().for_each(|record| drop(record.latch()));
            drop(guard);
            here
        });
        drop((other.join().expect("no thread panics"), own.join().expect("no thread panics")));
        assert!(rows.record(0).is_present() && rows.record(0).is_versioned(), "the row is lost");
    });
}
