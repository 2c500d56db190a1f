//! Drawing transactions.

use std::collections::HashSet;

use polychron_base::random::{Random, Zipf};
use polychron_engine::Mode;

use super::options::YcsbOptions;
use super::procedure::{Requests, Shape, Task, YcsbProcedure, request};
use super::{ROWS, WRITES};
use crate::Client;
use crate::run::Part;

/// Draws the transactions of one thread.
#[derive(Debug)]
pub struct YcsbClient {
    options: YcsbOptions,
    shape: Shape,
    part: Part<2>,
    random: Random,
    zipf: Zipf,
    /// The shares of transactions that do not draw keys one by one, added up.
    others: [f64; 4],
    /// The keys of the transaction that is being drawn, as requests.
    drawn: Vec<u64>,
    /// The same keys, where they are too many to look through.
    seen: HashSet<u64>,
}

/// Up to so many keys a transaction, repetitions are found by looking through them.
const LOOKED_THROUGH: usize = 64;

/// Draws after which the next free key is taken instead.
const DRAWS: usize = 32;

/// A prime with which ranks are multiplied, so that popular keys do not lie side by side.
const SPREAD: u64 = 2_654_435_761;

/// The key of a rank, a permutation of `0..records` as long as `records` has no factor in common with the prime.
#[inline]
fn spread(rank: u64, records: u64) -> u64 {
    if records.is_multiple_of(SPREAD) { rank } else { rank * SPREAD % records }
}

/// Each number with those before it.
fn added_up(mut numbers: [f64; 4]) -> [f64; 4] {
    let mut sum = 0.0;
    for number in &mut numbers {
        sum += *number;
        *number = sum;
    }
    numbers
}

impl YcsbClient {
    pub(super) fn new(options: &YcsbOptions, shape: Shape, part: Part<2>, seed: u64, thread: usize) -> Self {
        Self {
            options: options.clone(),
            shape,
            part,
            random: Random::stream(seed, thread as u64),
            zipf: Zipf::new(options.records, options.theta),
            others: added_up(options.shares_of_others()),
            drawn: Vec::with_capacity(options.requests),
            seen: HashSet::new(),
        }
    }

    #[inline]
    fn draw_key(&mut self) -> u64 {
        if self.options.theta == 0.0 {
            return self.random.below(self.options.records);
        }
        spread(self.zipf.draw(&mut self.random), self.options.records)
    }

    /// A key that the transaction does not have yet.
    #[inline]
    fn draw_new_key(&mut self) -> u64 {
        let mut key = self.draw_key();
        let mut draws = 1;
        while !self.is_new(key) {
            key = if draws < DRAWS { self.draw_key() } else { (key + 1) % self.options.records };
            draws += 1;
        }
        key
    }

    #[inline]
    fn is_new(&mut self, key: u64) -> bool {
        if self.options.requests <= LOOKED_THROUGH {
            return self.drawn.iter().all(|&other| other >> 1 != key);
        }
        self.seen.insert(key)
    }

    #[inline]
    fn points(&mut self) -> Task {
        self.drawn.clear();
        self.seen.clear();
        let mut writes = 0;
        for position in 0..self.options.requests {
            let key = self.draw_new_key();
            let write = match self.options.writes {
                Some(writes) => position < writes,
                None => !self.random.chance(self.options.read_share),
            };
            writes += u64::from(write);
            self.drawn.push(request(key, write));
        }
        let blind = self.options.blind_write.then(|| self.random.next_u64());
        Task::Points { requests: Requests::new(&self.drawn), writes, blind }
    }

    #[inline]
    fn task(&mut self) -> Task {
        if self.others == [0.0; 4] {
            return self.points();
        }
        let drawn = self.random.unit_f64();
        let YcsbOptions { read_only_length, long_reads, .. } = self.options;
        match self.others.iter().position(|&below| drawn < below) {
            Some(0) => {
                let length = self.random.range_inclusive(1, self.options.scan_length as u64) as usize;
                Task::Scan { from: self.draw_key(), length }
            }
            Some(1) => Task::InsertDelete { key: self.draw_key() },
            Some(2) => self.many_reads(read_only_length, Mode::Snapshot),
            Some(_) => self.many_reads(long_reads, Mode::ReadWrite),
            None => self.points(),
        }
    }

    fn many_reads(&mut self, length: usize, mode: Mode) -> Task {
        Task::ReadOnly { seed: self.random.next_u64(), length, records: self.options.records, mode }
    }
}

impl Client for YcsbClient {
    type Procedure = YcsbProcedure;

    #[inline]
    fn next(&mut self) -> YcsbProcedure {
        let all_present = self.options.insert_delete_share == 0.0;
        YcsbProcedure { shape: self.shape, task: self.task(), all_present, written: 0, inserted: 0 }
    }

    #[inline]
    fn finished(&mut self, procedure: &YcsbProcedure) {
        self.part.add(WRITES, procedure.written);
        self.part.add(ROWS, procedure.inserted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_permuted() {
        for records in [1, 2, 1000, 1 << 20] {
            let keys: HashSet<u64> = (0..records).map(|rank| spread(rank, records)).collect();
            assert_eq!(keys.len() as u64, records);
            assert!(keys.iter().all(|&key| key < records));
        }
    }
}
