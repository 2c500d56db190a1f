//! Workers that stand aside and show what they have found: that stays, and everything else is freed.
#![cfg(not(loom))]

use std::sync::{Arc, Mutex};

use polychron_base::sizes::scaled;
use polychron_memory::{Finds, Guard, Local, Memory, Options};
use polychron_sync::atomic::{AtomicUsize, Ordering};

/// What a worker has found, and how often and how many addresses it was asked for.
#[derive(Default)]
struct Shown {
    addresses: Mutex<Vec<usize>>,
    asked: AtomicUsize,
    noted: AtomicUsize,
}

// SAFETY: no test looks into a block.
unsafe impl Finds for Shown {
    unsafe fn each(&self, note: &mut dyn FnMut(usize)) {
        let addresses = self.addresses.lock().unwrap();
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.noted.fetch_add(addresses.len(), Ordering::Relaxed);
        addresses.iter().copied().for_each(note);
    }
}

fn memory() -> Arc<Memory> {
    Memory::new(Options { epoch_interval: None, limit_bytes: Some(64 << 20), ..Options::tiny() }).unwrap()
}

fn showing(memory: &Arc<Memory>) -> (Local, Arc<Shown>) {
    let (mut local, shown) = (memory.register().unwrap(), Arc::new(Shown::default()));
    local.show_finds(shown.clone());
    (local, shown)
}

const BYTES: usize = 256;

/// Retires a new block; its address.
fn retire(guard: &Guard<'_>) -> usize {
    let block = guard.allocate(BYTES).unwrap();
    // SAFETY: no thread has found the block.
    unsafe { guard.retire(block, BYTES) };
    block.addr().get()
}

/// Epochs go by, and what can be freed is freed.
fn pass(memory: &Arc<Memory>, worker: &Local) {
    for _ in 0..24 {
        memory.epochs().advance();
        worker.collect();
    }
}

fn retired(memory: &Arc<Memory>) -> usize {
    memory.statistics().retired_bytes
}

#[test]
fn what_is_shown_stays_until_the_pin_ends() {
    let memory = memory();
    let (idle, shown) = showing(&memory);
    let worker = memory.register().unwrap();
    let mut guard = idle.pin();
    // Somewhere inside of the block.
    let first = retire(&worker.pin());
    shown.addresses.lock().unwrap().push(first + BYTES - 1);
    let begun = guard.epoch();
    guard.stand_aside();
    (0..100).for_each(|_| _ = retire(&worker.pin()));
    pass(&memory, &worker);
    assert_eq!(retired(&memory), BYTES, "what is shown stays, and nothing else");
    assert!(memory.epochs().readonly() < begun, "the worker is still counted where it began");
    assert!(!guard.come_back(), "it was told to leave");
    // Back in an epoch it holds what it finds there, and what it has shown as well.
    let second = retire(&worker.pin());
    pass(&memory, &worker);
    assert_eq!(retired(&memory), 2 * BYTES);
    shown.addresses.lock().unwrap().push(second);
    guard.stand_aside();
    pass(&memory, &worker);
    assert_eq!(retired(&memory), 2 * BYTES);
    // It does not use what it no longer shows.
    assert!(!guard.come_back());
    shown.addresses.lock().unwrap().clear();
    guard.stand_aside();
    pass(&memory, &worker);
    assert_eq!(retired(&memory), 0);
    assert!(memory.epochs().readonly() < begun);
    drop(guard);
    pass(&memory, &worker);
    assert!(memory.epochs().readonly() > begun);
}

#[test]
fn all_is_freed_when_the_pin_ends() {
    for leaks in [false, true] {
        let memory = memory();
        let (mut idle, shown) = showing(&memory);
        let worker = memory.register().unwrap();
        let mut guard = idle.pin();
        shown.addresses.lock().unwrap().push(retire(&worker.pin()));
        guard.stand_aside();
        pass(&memory, &worker);
        assert_eq!(retired(&memory), BYTES);
        if leaks {
            std::mem::forget(guard);
            idle.end_leaked();
        } else {
            drop(guard);
        }
        pass(&memory, &worker);
        assert_eq!(retired(&memory), 0, "leaked: {leaks}");
    }
}

/// What a long idle worker shows does not keep what others show, and have ended, from being freed.
#[test]
fn each_keeps_its_own() {
    let memory = memory();
    let (first, second) = (showing(&memory), showing(&memory));
    let worker = memory.register().unwrap();
    let mut long = first.0.pin();
    first.1.addresses.lock().unwrap().push(retire(&worker.pin()));
    long.stand_aside();
    for _ in 0..4 {
        let mut guard = second.0.pin();
        *second.1.addresses.lock().unwrap() = vec![retire(&worker.pin())];
        guard.stand_aside();
        pass(&memory, &worker);
        assert_eq!(retired(&memory), 2 * BYTES);
        drop(guard);
        pass(&memory, &worker);
        assert_eq!(retired(&memory), BYTES);
    }
}

#[test]
fn who_stands_aside_for_long_is_asked_once() {
    let memory = memory();
    let (idle, shown) = showing(&memory);
    let mut guard = idle.pin();
    for _ in 0..3 {
        memory.epochs().advance();
        guard.stand_aside();
        assert!(guard.come_back(), "a short transaction is not told");
    }
    assert_eq!(shown.asked.load(Ordering::Relaxed), 0);
    guard.stand_aside();
    (0..200).for_each(|_| _ = memory.epochs().advance());
    assert_eq!(shown.asked.load(Ordering::Relaxed), 1);
}

/// Of workers that have found very much, few addresses are looked at for each epoch, however often they come and go.
#[test]
fn large_sets_are_asked_for_seldom() {
    let memory = memory();
    let (idle, shown) = showing(&memory);
    let most = scaled(200_000, 20_000);
    *shown.addresses.lock().unwrap() = (0..most).collect();
    let epochs = 400;
    let mut guard = idle.pin();
    for _ in 0..epochs {
        memory.epochs().advance();
        guard.stand_aside();
        (0..9).for_each(|_| _ = memory.epochs().advance());
        guard.come_back();
    }
    let (asked, noted) = (shown.asked.load(Ordering::Relaxed), shown.noted.load(Ordering::Relaxed));
    assert!(asked > 1 && noted <= 2 * (most + 4096 * 10 * epochs), "{noted} addresses at {asked} times");
}
