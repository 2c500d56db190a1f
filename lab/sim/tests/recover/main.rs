//! What recovery makes of a log and a checkpoint, compared with a model that applies all changes one after the other.
//!
//! `POLYCHRON_RECOVERIES` says how many histories are tried, and `POLYCHRON_FIRST_SEED` from which seed on.

mod faults;
mod history;
mod steps;
mod tools;

use std::sync::Mutex;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_log::checkpoint::Range;
use polychron_log::frame::Body;
use polychron_log::recover::{Batch, Sink, Source, Tail, Visit};
use polychron_log::{Error, checkpoint};
use polychron_sim::{At, Trials};

use history::{Rows, Transaction, catalog, draw, kept, replay};

/// Rows that are handed out; none twice.
#[derive(Default)]
struct Collected(Mutex<Rows>);

impl Sink for Collected {
    type Error = Error;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut rows = self.0.lock().unwrap();
        assert!(!batch.is_empty());
        for row in batch.rows() {
            let before = rows.insert((batch.table(), row.key.to_vec()), row.words.to_vec());
            assert!(before.is_none(), "a row of {} leaves twice", batch.definition().name);
        }
        Ok(())
    }
}

/// Rows of a checkpoint, in parts.
#[derive(Default)]
struct Parts(Vec<Vec<(u32, Vec<u64>)>>);

impl Parts {
    fn draw(random: &mut Random, rows: &Rows) -> Self {
        let mut parts = vec![Vec::new(); 1 + random.below(5) as usize];
        for ((table, _), row) in rows {
            let part = random.below(parts.len() as u64) as usize;
            parts[part].push((*table, row.clone()));
        }
        Self(parts)
    }
}

impl Source for Parts {
    fn parts(&self) -> usize {
        self.0.len()
    }

    fn read(&self, part: usize, visit: &mut Visit<'_>) -> Result<(), Error> {
        for rows in self.0[part].chunk_by(|one, next| one.0 == next.0) {
            let (table, mut body) = (rows[0].0, Body::new());
            rows.iter().for_each(|(_, words)| body.put(table, words).unwrap());
            let rows = checkpoint::block::Rows::new(table, body.as_bytes(), rows.len() as u32);
            if visit(rows).unwrap().is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Recovers from transactions in this sequence and a checkpoint, with so many threads.
fn recover<'t>(
    transactions: impl IntoIterator<Item = &'t Transaction>,
    checkpoint: &Parts,
    threads: usize,
) -> Result<Rows, Error> {
    let mut tail = Tail::new(&catalog(), threads)?;
    for transaction in transactions {
        transaction.log(&mut |logged| tail.add(logged));
    }
    let collected = Collected::default();
    let count = tail.finish()?.merge(threads, checkpoint, &collected)?;
    let rows = collected.0.into_inner().unwrap();
    assert_eq!(count, rows.len() as u64);
    Ok(rows)
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}

#[test]
fn what_is_recovered_is_what_was_there() {
    let trials = Trials::new("POLYCHRON_RECOVERIES");
    let (mut rows, mut from_checkpoints) = (0, 0);
    for seed in polychron_sim::seeds("POLYCHRON_RECOVERIES", scaled(2000, 10)) {
        let random = &mut Random::from_seed(seed);
        let transactions = draw(random);
        let cut = random.below(transactions.len() as u64 + 1) as usize;
        let checkpoint = Parts::draw(random, &replay(&transactions[..cut]));
        let mut tail: Vec<&Transaction> = transactions[cut..].iter().collect();
        if random.chance(0.5) {
            // Some come twice.
            tail.extend(transactions[cut..].iter().filter(|_| random.chance(0.2)));
        }
        if random.chance(0.8) {
            shuffle(random, &mut tail);
        }
        let threads = [0, 1, 3][random.below(3) as usize];
        let recovered = recover(tail, &checkpoint, threads).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let expected = kept(replay(&transactions));
        let complaint = (recovered != expected).then(|| format!("{recovered:?} in place of {expected:?}"));
        trials.check(At { seed, operations: &[] }, (cut, threads), complaint);
        rows += expected.len();
        from_checkpoints += checkpoint.0.iter().flatten().count();
    }
    assert!(rows > 0 && from_checkpoints > 0);
}

/// Rows that are patched again and again, in two places in turns, take no more memory.
#[test]
fn memory_is_that_of_rows_and_not_of_changes() {
    use history::{Done, NUMBERS, number_key, number_row, patch};
    let mut tail = Tail::of_range(&catalog(), Range::default(), 0, 1 << 20).unwrap();
    let add = |tail: &mut Tail, order: u64| {
        let done = match order % 10_000 {
            0 => vec![Done::Put(NUMBERS, number_row(1, [order; 4]))],
            _ => vec![patch(NUMBERS, number_key(1), 1, &[order]), patch(NUMBERS, number_key(1), 3, &[order, order])],
        };
        Transaction::new(1, order, done).log(&mut |logged| tail.add(logged));
    };
    let first = tail.memory_bytes();
    for order in 0..100_000 {
        add(&mut tail, order);
        assert!(tail.memory_bytes() < first + (100 << 10), "at {order}");
    }
}

/// Rows of zeroes take few bytes until they leave.
#[test]
fn memory_is_in_proportion_to_the_log() {
    let mut tail = Tail::new(&catalog(), 0).unwrap();
    let long = "\0".repeat(1000);
    for number in 0..10_000_u64 {
        let row = history::text_row(&number.to_string(), number, &long);
        let put = Transaction::new(1, number, [history::Done::Put(history::TEXTS, row)]);
        put.log(&mut |logged| tail.add(logged));
    }
    let before = tail.memory_bytes();
    let bytes = tail.finish().unwrap().memory_bytes();
    assert!((before..10_000 * 250).contains(&bytes), "{bytes} bytes");
}

#[test]
fn a_large_history_is_recovered_on_threads() {
    use history::{Done, NUMBERS, number_row, patch};
    let transactions: Vec<Transaction> = (0..60_000_u64)
        .map(|order| {
            let id = order * 7919 % 20_000;
            let done = match order {
                0..20_000 => Done::Put(NUMBERS, number_row(id, [order; 4])),
                _ if id % 5 == 0 => Done::Delete(NUMBERS, history::number_key(id)),
                _ => patch(NUMBERS, history::number_key(id), 2, &[order]),
            };
            Transaction::new(1, order, [done])
        })
        .collect();
    // Of a deleted row nothing is patched, as the ids repeat after as many orders.
    let recovered = recover(transactions.iter().rev(), &Parts::default(), 3).unwrap();
    assert_eq!(recovered, replay(&transactions));
}
