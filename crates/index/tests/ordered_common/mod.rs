//! What the tests of the ordered index share.
#![allow(dead_code, reason = "each test program uses a part")]

use polychron_index::ordered::Visitor;
use polychron_index::{Change, Changes, Handle, Stamp};
use polychron_memory::{Local, Memory, Options};
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) fn memory() -> (Arc<Memory>, Local) {
    let memory = Memory::new(Options { limit_bytes: Some(1 << 30), ..Options::tiny() }).expect("the options are sound");
    let local = memory.register().expect("a worker slot is free");
    (memory, local)
}

pub(crate) fn handle(value: u64) -> Handle {
    Handle::new(value).expect("test handles are not zero")
}

/// A small generator, seeded, so that failures repeat.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 32) as usize) % bound
    }

    /// A key that likes to collide: few distinct bytes, lengths around slice boundaries, long common prefixes.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        let alphabet: &[u8] = match self.below(3) {
            0 => &[0],
            1 => &[0, 1],
            _ => &[0, b'a', 255],
        };
        let len = match self.below(12) {
            0..=5 => self.below(10),
            6..=8 => [7, 8, 9, 15, 16, 17, 23, 24, 25][self.below(9)],
            9 | 10 => self.below(40),
            _ => [100, 1016, 1017, 1023, 1024][self.below(5)],
        };
        let mut key = vec![alphabet[0]; len];
        for _ in 0..self.below(4) {
            if len > 0 {
                let at = if self.below(2) == 0 { self.below(len) } else { len - 1 - self.below(len.min(9)) };
                key[at] = alphabet[self.below(alphabet.len())];
            }
        }
        key
    }
}

/// Collects what a scan hands out, up to a limit of entries.
#[derive(Default)]
pub(crate) struct Collect {
    pub(crate) stamps: Vec<Stamp>,
    pub(crate) entries: Vec<(Vec<u8>, u64)>,
    pub(crate) limit: Option<usize>,
}

impl Visitor for Collect {
    fn node(&mut self, stamp: Stamp) {
        self.stamps.push(stamp);
    }

    fn entry(&mut self, key: &[u8], handle: Handle) -> ControlFlow<()> {
        self.entries.push((key.to_vec(), handle.get()));
        if Some(self.entries.len()) == self.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A node set as a protocol keeps it.
#[derive(Default)]
pub(crate) struct NodeSet(pub(crate) Vec<Stamp>);

impl Changes for NodeSet {
    fn change(&mut self, change: Change) {
        // The stamps are taken and asked under one guard in all tests.
        // SAFETY: see above.
        let same = |stamp: &Stamp, other: &Stamp| stamp == other || unsafe { stamp.resolved() } == *other;
        match change {
            Change::Moved { before, after } => {
                for stamp in &mut self.0 {
                    if same(stamp, &before) {
                        *stamp = after;
                    }
                }
            }
            Change::Added { of, new } => {
                if self.0.iter().any(|stamp| same(stamp, &of)) {
                    self.0.push(new);
                }
            }
        }
    }
}

impl NodeSet {
    /// # Safety
    /// The guard under which the stamps were taken is alive.
    pub(crate) unsafe fn holds(&self) -> bool {
        // SAFETY: as promised by the caller.
        self.0.iter().all(|stamp| unsafe { stamp.holds() })
    }
}
