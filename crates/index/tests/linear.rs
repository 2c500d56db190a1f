//! Both indexes under threads, one key at a time: what operations on a key answered must be explained by some order in
//! which they took effect, each between its call and its answer. Keys of one thread alone answer as a map does.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use polychron_base::key::HashSeed;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_index::hash::HashIndex;
use polychron_index::ordered::OrderedIndex;
use polychron_index::{AnyIndex, Handle, Inserted};
use polychron_memory::{Guard, Memory, Options};
use polychron_sync::atomic::{AtomicU64, Ordering};

const THREADS: u64 = 3;
/// Keys that all threads use.
const SHARED: u64 = 8;
/// Keys that each thread has for itself.
const OWN: u64 = 40;
/// How many handles there are for a key; few, so that expectations are met now and then.
const HANDLES: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Get,
    Insert(u64),
    Remove(u64),
    Replace(u64, u64),
}

/// A call on a key, its answer, and when both were.
#[derive(Clone, Copy, Debug)]
struct Event {
    thread: u64,
    call: Call,
    answer: Answer,
    called: u64,
    answered: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Found(Option<u64>),
    Done(bool),
}

impl Call {
    fn draw(random: &mut Random) -> Self {
        let mut handle = || 1 + random.below(HANDLES);
        let (first, second) = (handle(), handle());
        match random.below(8) {
            0..=2 => Self::Get,
            3 | 4 => Self::Insert(first),
            5 | 6 => Self::Remove(first),
            _ => Self::Replace(first, second),
        }
    }

    /// What a map that holds `state` for the key answers, and holds then.
    fn apply(self, state: Option<u64>) -> (Answer, Option<u64>) {
        match self {
            Self::Get => (Answer::Found(state), state),
            Self::Insert(handle) => (Answer::Found(state), state.or(Some(handle))),
            Self::Remove(handle) if state == Some(handle) => (Answer::Done(true), None),
            Self::Replace(handle, new) if state == Some(handle) => (Answer::Done(true), Some(new)),
            Self::Remove(_) | Self::Replace(..) => (Answer::Done(false), state),
        }
    }

    fn run(self, index: &AnyIndex, key: &[u8], guard: &Guard<'_>) -> Answer {
        let handle = |number| Handle::new(number).expect("numbers begin at one");
        match self {
            Self::Get => Answer::Found(index.get(key, guard).handle.map(Handle::get)),
            Self::Insert(number) => match index.insert(key, handle(number), &mut (), guard).expect("memory is there") {
                Inserted::New => Answer::Found(None),
                Inserted::Existing(found) => Answer::Found(found.handle.map(Handle::get)),
            },
            Self::Remove(number) => Answer::Done(index.remove(key, handle(number), guard)),
            Self::Replace(number, new) => Answer::Done(index.replace(key, handle(number), handle(new), guard)),
        }
    }
}

/// Whether some order of the events of one key explains their answers (after Wing and Gong): the next in the order is any
/// event that was called before all that are left were answered. States that failed once are not tried again.
fn is_linear(events: &[Event]) -> bool {
    let threads: Vec<Vec<Event>> =
        (0..THREADS).map(|thread| events.iter().filter(|event| event.thread == thread).copied().collect()).collect();
    let mut failed = HashSet::new();
    let mut stack = vec![(vec![0; threads.len()], None)];
    while let Some((done, state)) = stack.pop() {
        let left = || done.iter().zip(&threads).filter_map(|(&position, events)| events.get(position));
        let Some(first_answer) = left().map(|event| event.answered).min() else { return true };
        if !failed.insert((done.clone(), state)) {
            continue;
        }
        for (thread, events) in threads.iter().enumerate() {
            let Some(event) = events.get(done[thread]).filter(|event| event.called <= first_answer) else { continue };
            let (answer, after) = event.call.apply(state);
            if answer == event.answer {
                let mut more = done.clone();
                more[thread] += 1;
                stack.push((more, after));
            }
        }
    }
    false
}

/// Keys of all lengths, many of which share slices: short ones, and ones behind several layers or pointers.
fn key(number: u64) -> Vec<u8> {
    let mut key = (number / 5).to_be_bytes().to_vec();
    key.truncate(3 + (number % 5) as usize);
    if number.is_multiple_of(2) {
        key.extend([number as u8; 12]);
    }
    key.push(number as u8);
    key
}

fn run_thread(
    thread: u64,
    seed: u64,
    rounds: usize,
    index: &AnyIndex,
    memory: &Arc<Memory>,
    clock: &AtomicU64,
) -> Vec<(u64, Event)> {
    let local = memory.register().expect("a slot is free");
    let mut random = Random::stream(seed, thread);
    let mut own: BTreeMap<u64, u64> = BTreeMap::new();
    let mut events = Vec::new();
    for _ in 0..rounds {
        let (call, guard) = (Call::draw(&mut random), local.pin());
        if random.below(2) == 0 {
            let number = SHARED + thread * OWN + random.below(OWN);
            let (expected, after) = call.apply(own.get(&number).copied());
            assert_eq!(call.run(index, &key(number), &guard), expected, "seed {seed}: {call:?} of a thread's own key");
            match after {
                Some(handle) => drop(own.insert(number, handle)),
                None => drop(own.remove(&number)),
            }
        } else {
            let number = random.below(SHARED);
            // SeqCst: one order of all calls and answers, which is what the history says.
            let called = clock.fetch_add(1, Ordering::SeqCst);
            let answer = call.run(index, &key(number), &guard);
            // SeqCst: as above.
            let answered = clock.fetch_add(1, Ordering::SeqCst);
            events.push((number, Event { thread, call, answer, called, answered }));
        }
    }
    events
}

fn histories_are_linear(make: fn(&Guard<'_>) -> AnyIndex) {
    let first = std::env::var("POLYCHRON_FIRST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + scaled(60, 2) as u64 {
        let options = Options { epoch_interval: Some(Duration::from_micros(100)), ..Options::tiny() };
        let memory = Memory::new(options).expect("the options are sound");
        let index = make(&memory.register().expect("a slot is free").pin());
        let clock = AtomicU64::new(0);
        let rounds = scaled(2000, 20);
        let events: Vec<(u64, Event)> = std::thread::scope(|scope| {
            let run = |thread| {
                let (index, memory, clock) = (&index, &memory, &clock);
                scope.spawn(move || run_thread(thread, seed, rounds, index, memory, clock))
            };
            let threads: Vec<_> = (0..THREADS).map(run).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
        });
        for number in 0..SHARED {
            let history: Vec<Event> = events.iter().filter(|event| event.0 == number).map(|event| event.1).collect();
            assert!(is_linear(&history), "seed {seed}, key {number}: no order explains {history:#?}");
        }
    }
}

#[test]
fn the_ordered_index_is_linear() {
    histories_are_linear(|guard| AnyIndex::Ordered(OrderedIndex::new(guard).expect("memory is there")));
}

#[test]
fn the_hash_index_is_linear() {
    histories_are_linear(|guard| AnyIndex::Hash(HashIndex::new(0, HashSeed::FIXED, guard).expect("memory is there")));
}

/// The search refuses what no order explains, and takes what one does.
#[test]
fn the_search_distinguishes() {
    let event = |thread, call, answer, called, answered| Event { thread, call, answer, called, answered };
    let insert = event(0, Call::Insert(1), Answer::Found(None), 0, 3);
    // Called while the insertion runs, it may miss the key; called afterwards it may not.
    assert!(is_linear(&[insert, event(1, Call::Get, Answer::Found(None), 1, 2)]));
    assert!(is_linear(&[insert, event(1, Call::Get, Answer::Found(Some(1)), 1, 2)]));
    assert!(!is_linear(&[insert, event(1, Call::Get, Answer::Found(None), 4, 5)]));
    // Two cannot both win.
    assert!(!is_linear(&[insert, event(1, Call::Insert(2), Answer::Found(None), 1, 2)]));
    // Seen, then no longer seen, without a removal.
    let seen = event(1, Call::Get, Answer::Found(Some(1)), 1, 2);
    assert!(!is_linear(&[insert, seen, event(2, Call::Get, Answer::Found(None), 4, 5)]));
}
