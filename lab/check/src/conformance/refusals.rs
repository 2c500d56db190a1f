//! The memory limit under rows of all sizes: whatever inserts, deletes or does nothing, deletions go on at the limit, and what fitted once
//! fits again when all was deleted.

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_engine::{Interactive, Operations, Protocol, Table, Worker};

use crate::Setup;
use crate::rows::{Image, Item};
use crate::setup::{Tx, create, items, run};

/// How often what was refused is tried again, each time after background work.
const ATTEMPTS: usize = 3;

/// Clients that insert, that delete while others insert, and that delete and then do nothing.
const SESSIONS: usize = 3;

/// How long rows are.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    /// Of all sizes alike.
    All,
    /// Short ones.
    Short,
    /// Longer than a page of the system's.
    Long,
    /// Two sizes in turns.
    Two(u64, u64),
    /// Short ones, and few very long ones.
    Apart,
}

impl Lengths {
    fn draw(random: &mut Random) -> Self {
        match random.below(5) {
            0 => Self::All,
            1 => Self::Short,
            2 => Self::Long,
            3 => Self::Two(some_length(random, 14), some_length(random, 14)),
            _ => Self::Apart,
        }
    }

    fn next(self, random: &mut Random) -> usize {
        let length = match self {
            Self::All => some_length(random, 15),
            Self::Short => random.range_inclusive(16, 300),
            Self::Long => random.range_inclusive(4000, 30_000),
            Self::Two(one, other) => {
                if random.chance(0.5) {
                    one
                } else {
                    other
                }
            }
            Self::Apart if random.below(40) == 0 => random.range_inclusive(20_000, 100_000),
            Self::Apart => random.range_inclusive(16, 600),
        };
        length as usize
    }
}

/// In which order rows are deleted.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// The oldest one first, as from a queue.
    Ascending,
    Descending,
    /// In steps that visit each leaf of an index before any leaf is visited twice.
    Strided,
    Random,
}

impl Order {
    fn of(self, rows: &[u64], random: &mut Random) -> Vec<u64> {
        let mut rows = rows.to_vec();
        match self {
            Self::Ascending => {}
            Self::Descending => rows.reverse(),
            Self::Strided => rows.sort_by_key(|row| row % 40),
            Self::Random => (1..rows.len()).rev().for_each(|at| rows.swap(at, random.below(at as u64 + 1) as usize)),
        }
        rows
    }
}

/// A length below twice `1 << most`, short ones as often as long ones.
fn some_length(random: &mut Random, most: u64) -> u64 {
    let least = 1 << random.range_inclusive(4, most);
    least + random.below(least)
}

/// A database with a limit, and sessions.
struct Crowd<P: Protocol<Worker: Interactive>> {
    setup: Setup<P>,
    database: Arc<P>,
    table: Table<Image>,
    workers: Vec<P::Worker>,
    /// The rows that there are.
    rows: Vec<u64>,
    next: u64,
    what: String,
}

impl<P: Protocol<Worker: Interactive>> Crowd<P> {
    fn open(setup: &Setup<P>, limit: usize, what: String) -> Self {
        let mut setup = setup.clone();
        setup.common.memory.limit_bytes = Some(limit);
        let database = setup.open();
        let table = create::<P, Image>(&database);
        let workers = (0..SESSIONS).map(|_| database.worker().unwrap()).collect();
        Self { setup, database, table, workers, rows: Vec::new(), next: 0, what }
    }

    /// Runs a transaction of a session. Whether it was not refused, once background work was done up to so many times.
    fn run(
        &mut self,
        session: usize,
        attempts: usize,
        mut body: impl FnMut(&mut Tx<'_, P>, &Table<Image>) -> Result<(), Error>,
    ) -> bool {
        let table = &self.table;
        (0..attempts).any(|_| match run(&mut self.workers[session], |t| body(t, table)) {
            Ok(()) => true,
            Err(Error::OutOfMemory(_)) => {
                self.setup.pass(&self.database, 2);
                self.workers[session].maintain();
                false
            }
            Err(other) => panic!("{}: {other}", self.what),
        })
    }

    fn insert(&mut self, session: usize, attempts: usize, length: usize) -> bool {
        let row = Image { id: self.next, bytes: vec![7; length] };
        let inserted = self.run(session, attempts, |t, table| t.insert(table, &row));
        if inserted {
            self.rows.push(row.id);
            self.next += 1;
        }
        inserted
    }

    /// Inserts rows until several are refused, one after the other. Answers how many bytes they have.
    fn fill(&mut self, lengths: Lengths, mut random: Random) -> usize {
        let (mut bytes, mut refusals) = (0, 0);
        while refusals < 10 {
            let length = lengths.next(&mut random);
            if self.insert(0, 3, length) {
                (bytes, refusals) = (bytes + length + 16, 0);
            } else {
                refusals += 1;
            }
            assert!(self.rows.len() < 1 << 20, "the limit does not bind");
        }
        bytes
    }

    /// Deletes some rows, which nothing may refuse for ever.
    fn delete(&mut self, session: usize, random: &mut Random, many: usize) {
        let many = many.min(self.rows.len());
        let ids: Vec<u64> =
            (0..many).map(|_| self.rows.swap_remove(random.below(self.rows.len() as u64) as usize)).collect();
        let deleted =
            self.run(session, ATTEMPTS, |t, table| ids.iter().try_for_each(|id| t.delete(table, *id).map(drop)));
        assert!(
            deleted,
            "{}: session {session} is refused the deletion of {many} rows, with {} left: {:?}",
            self.what,
            self.rows.len(),
            self.database.statistics().memory
        );
        (self.setup.tick)(&self.database);
    }

    /// Inserts rows until several are refused, and gives back all the while what that leaves behind, so that no garbage is left to free.
    fn fill_tightly(&mut self, lengths: Lengths, mut random: Random) {
        let mut refusals = 0;
        while refusals < 10 {
            let inserted = self.insert(0, 1, lengths.next(&mut random));
            refusals = if inserted { 0 } else { refusals + 1 };
            if self.rows.len().is_multiple_of(16) {
                self.quiesce();
            }
        }
    }

    /// Deletes rows one by one in an order, none of which may be refused for ever.
    fn delete_in_order(&mut self, order: Order, random: &mut Random) {
        self.rows = order.of(&self.rows, random);
        self.rows.reverse();
        while let Some(id) = self.rows.pop() {
            let deleted = self.run(0, ATTEMPTS, |t, table| t.delete(table, id).map(drop));
            assert!(
                deleted,
                "{}: the deletion of row {id} is refused, with {} left: {:?}",
                self.what,
                self.rows.len(),
                self.database.statistics().memory
            );
            (self.setup.tick)(&self.database);
        }
    }

    /// Deletes, inserts and changes rows at the limit.
    fn churn(&mut self, lengths: Lengths, random: &mut Random) {
        for _ in 0..100 {
            let session = random.below(SESSIONS as u64) as usize;
            match random.below(4) {
                0 => self.delete(session, random, 1),
                1 if !self.rows.is_empty() => {
                    let id = self.rows[random.below(self.rows.len() as u64) as usize];
                    let bytes = vec![9; lengths.next(random)];
                    self.run(session, 1, |t, table| {
                        t.update(table, id, |row| row.set_bytes(&bytes).unwrap()).map(drop)
                    });
                }
                _ => drop(self.insert(session, 1, lengths.next(random))),
            }
        }
    }

    /// Lets what two of the sessions have deleted come back; the third does nothing.
    fn quiesce(&mut self) {
        for _ in 0..3 {
            self.setup.pass(&self.database, 2);
            self.workers[..2].iter_mut().for_each(P::Worker::maintain);
        }
    }
}

/// Whatever the lengths of rows, deletions at the limit are not refused for ever, whichever session deletes; and when all was deleted, as
/// much finds room as in the empty database, nearly, beside a session that has freed a lot and does nothing.
pub fn are_not_for_ever<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    for seed in 0..6 {
        let mut random = Random::stream(seed, 1);
        let (limit, lengths) = (1 << random.range_inclusive(20, 22), Lengths::draw(&mut random));
        let what = format!("seed {seed}, {limit} bytes, {lengths:?}");
        let mut crowd = Crowd::open(setup, limit, what);
        let fresh = crowd.fill(lengths, Random::stream(seed, 2));
        crowd.churn(lengths, &mut random);
        let third = crowd.rows.len() / 3;
        // The third session deletes a part and does nothing from then on; the second one deletes the rest.
        for (session, rest) in [(2, 2 * third), (1, 0)] {
            while crowd.rows.len() > rest {
                let many = random.range_inclusive(1, 8) as usize;
                crowd.delete(session, &mut random, many);
            }
        }
        crowd.quiesce();
        let again = crowd.fill(lengths, Random::stream(seed, 2));
        assert!(again * 5 >= fresh * 4, "{}: {again} bytes fit where {fresh} did", crowd.what);
    }
}

/// Deletions one by one are not refused for ever at the limit, in whichever order they come.
pub fn are_not_for_ever_in_any_order<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    for (seed, order) in [Order::Ascending, Order::Descending, Order::Strided, Order::Random].into_iter().enumerate() {
        let mut random = Random::stream(seed as u64, 3);
        for (limit, lengths) in
            [(1 << 20, Lengths::Short), (2 << 20, Lengths::Two(16, 16)), (2 << 20, Lengths::Two(200, 200))]
        {
            let mut crowd = Crowd::open(setup, limit, format!("{order:?}, {limit} bytes, {lengths:?}"));
            crowd.fill_tightly(lengths, Random::stream(seed as u64, 4));
            // What is read again and again may be moved by that.
            for _ in 0..2 {
                for id in crowd.rows.clone() {
                    crowd.run(1, 1, |t, table| t.get(table, id).map(drop));
                }
                crowd.setup.pass(&crowd.database, 2);
                crowd.quiesce();
            }
            crowd.delete_in_order(order, &mut random);
        }
    }
}

/// The same of rows so short that those which were deleted leave no room for anything else: each visit of a leaf takes what was put aside,
/// so that has to come back.
pub fn are_not_for_ever_among_short_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let mut setup = setup.clone();
    setup.common.memory.limit_bytes = Some(2 << 20);
    let (database, table) = items(&setup, &[]);
    let mut worker = database.worker().unwrap();
    let quiesce = |worker: &mut P::Worker| {
        (0..2).for_each(|_| setup.pass(&database, 2));
        worker.maintain();
    };
    let mut rows = 0;
    // What is read again and again may be moved by that, and makes room for more rows.
    for _ in 0..3 {
        (0..rows).for_each(|id| drop(run(&mut worker, |t| t.get(&table, id).map(drop))));
        quiesce(&mut worker);
        let mut refusals = 0;
        while refusals < 3 {
            match run(&mut worker, |t| t.insert(&table, &Item { id: rows, value: 0 })) {
                Ok(()) => (rows, refusals) = (rows + 1, 0),
                Err(_) => refusals += 1,
            }
            if refusals > 0 || rows % 64 == 0 {
                quiesce(&mut worker);
            }
            assert!(rows < 1 << 20, "the limit does not bind");
        }
    }
    for id in Order::Strided.of(&(0..rows).collect::<Vec<_>>(), &mut Random::stream(0, 0)) {
        let is_deleted = (0..ATTEMPTS).any(|_| {
            let outcome = run(&mut worker, |t| t.delete(&table, id));
            if outcome.is_err() || id % 16 == 0 {
                quiesce(&mut worker);
            }
            outcome.is_ok()
        });
        assert!(is_deleted, "the deletion of row {id} of {rows} is refused");
    }
}
