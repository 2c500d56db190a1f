//! The memory limit: what rows of one size gave back serves rows of any other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_engine::{Interactive, Isolation, Mode, Operations, Protocol, Row, Table, TableDefinition, Worker};

use crate::Setup;
use crate::client::Client;
use crate::rows::{Image, Item};
use crate::setup::{Tx, create, done, run};

/// Rows in a deletion.
const SLICE: u64 = 8;

/// Bytes in a row: many in a page of the system's, few, such as just miss the size of a class of blocks, and more than a page.
const SIZES: [usize; 5] = [40, 400, 3000, 3997, 16_000];

/// A database with a limit, a table, and rows under the numbers below `rows`.
struct Filling<P: Protocol<Worker: Interactive>> {
    setup: Setup<P>,
    database: Arc<P>,
    table: Table<Image>,
    worker: P::Worker,
    rows: u64,
    /// Whether the worker maintains while it fills the database, as clocks would make it.
    maintains: bool,
}

impl<P: Protocol<Worker: Interactive>> Filling<P> {
    fn open(setup: &Setup<P>, limit: usize) -> Self {
        let mut setup = setup.clone();
        setup.common.memory.limit_bytes = Some(limit);
        let database = setup.open();
        let (table, worker) = (create::<P, Image>(&database), database.worker().unwrap());
        Self { setup, database, table, worker, rows: 0, maintains: false }
    }

    /// Lets everything be freed that can be.
    fn quiesce(&mut self) {
        for _ in 0..3 {
            self.setup.pass(&self.database, 2);
            self.worker.maintain();
        }
    }

    /// Runs a transaction, a second time after a refusal, for what was given back meanwhile may be enough. Whether it committed.
    fn run(&mut self, mut body: impl FnMut(&mut Tx<'_, P>, &Table<Image>) -> Result<(), Error>) -> bool {
        for is_last in [false, true] {
            let table = &self.table;
            match run(&mut self.worker, |t| body(t, table)) {
                Ok(()) => return true,
                Err(Error::OutOfMemory(_)) if is_last => return false,
                Err(Error::OutOfMemory(_)) => self.quiesce(),
                Err(other) => panic!("{other}"),
            }
        }
        unreachable!("the second time is the last")
    }

    /// Inserts rows until one is refused. Answers how many there are.
    fn fill(&mut self, bytes: usize) -> u64 {
        let mut row = Image { id: self.rows, bytes: vec![7; bytes] };
        while self.run(|t, table| t.insert(table, &row)) {
            row.id += 1;
            assert!(row.id < 1 << 20, "the limit does not bind");
            if self.maintains && row.id.is_multiple_of(16) {
                self.worker.maintain();
            }
        }
        self.rows = row.id;
        self.rows
    }

    /// Inserts short rows and makes them grow, until one is refused. Answers how many have grown.
    fn grow(&mut self, bytes: usize) -> u64 {
        let grown = |t: &mut Tx<'_, P>, table: &Table<Image>, id, to: usize| {
            t.update(table, id, |row| row.set_bytes(&vec![7; to]).unwrap()).map(drop)
        };
        loop {
            let id = self.rows;
            if !self.run(|t, table| t.insert(table, &Image { id, bytes: vec![7; 16] })) {
                return id;
            }
            self.rows += 1;
            for part in [4, 2, 1] {
                if !self.run(|t, table| grown(t, table, id, bytes / part)) {
                    return id;
                }
            }
        }
    }

    /// Deletes all rows.
    fn empty(&mut self) {
        self.delete_below(self.rows, |t, table, id| t.delete(table, id).map(drop));
        self.rows = 0;
    }

    /// Deletes rows by their numbers, and lets all be freed.
    fn delete_below(
        &mut self,
        rows: u64,
        mut delete: impl FnMut(&mut Tx<'_, P>, &Table<Image>, u64) -> Result<(), Error>,
    ) {
        for first in (0..rows).step_by(SLICE as usize) {
            let last = rows.min(first + SLICE);
            let deleted = self.run(|t, table| (first..last).try_for_each(|id| delete(t, table, id)));
            assert!(deleted, "a deletion is refused");
            (self.setup.tick)(&self.database);
        }
        self.quiesce();
    }

    /// Fills another table with rows that are all as long, and deletes them.
    fn fill_and_empty_items(&mut self) {
        let items: Table<Item> = create::<P, Item>(&self.database);
        let mut rows = 0;
        while self.run(|t, _| t.insert(&items, &Item { id: rows, value: 0 })) {
            rows += 1;
        }
        self.delete_below(rows, |t, _, id| t.delete(&items, id).map(drop));
    }
}

/// Asserts that about as many rows found room as in an empty database: three quarters, and one less where few do at all, for the last of
/// the pages that places of records and nodes come from may just fit, and is a fifth of what they take; three fifths in very little
/// memory, where what the background is at just now is a share of it.
fn about_as_many(got: u64, fresh: u64, limit: usize, what: &str) {
    let percent = if limit < 1 << 20 { 60 } else { 75 };
    assert!((got + 1) * 100 >= fresh * percent, "{what}: {got} rows found room, and {fresh} do in an empty database");
}

/// Fills a database with rows of one size after the other, and asserts that each time about as many find room as in an empty one.
fn one_after_the_other<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, limit: usize, sequences: &[&[usize]]) {
    if !setup.measures_memory {
        return;
    }
    let mut fresh = BTreeMap::new();
    for sequence in sequences {
        let mut filling = Filling::open(setup, limit);
        for (number, &bytes) in sequence.iter().enumerate() {
            let of_fresh = *fresh.entry(bytes).or_insert_with(|| Filling::open(setup, limit).fill(bytes));
            about_as_many(filling.fill(bytes), of_fresh, limit, &format!("{limit} bytes, {:?}", &sequence[..=number]));
            filling.empty();
        }
    }
}

/// Each size after each other, where the limit is some hundred rows.
pub fn sizes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for first in SIZES {
        let pairs: Vec<[usize; 2]> = SIZES.into_iter().map(|second| [first, second]).collect();
        one_after_the_other(setup, 2 << 20, &pairs.iter().map(|pair| &pair[..]).collect::<Vec<_>>());
    }
}

/// The same in very little memory, if the protocol's own needs leave two thirds of it to rows.
pub fn sizes_in_little_memory<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let sequences: [&[usize]; 4] = [&[400, 400, 40], &[40, 3000, 400], &[3000, 40, 3000], &[3997, 3000, 400]];
    for limit in [64 << 10, 256 << 10] {
        if Filling::open(setup, limit).fill(3000) * 3000 > limit as u64 * 2 / 3 {
            one_after_the_other(setup, limit, &sequences);
        }
    }
}

/// Many sizes, one after the other.
pub fn many_sizes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    one_after_the_other(setup, 4 << 20, &[&[3000, 400, 3997, 40, 16_000, 1000, 70_000, 3000, 300_000, 40]]);
    one_after_the_other(setup, 16 << 20, &[&[3000, 3997, 16_000, 2000, 3000]]);
}

/// A new database is refused memory when more than two thirds of the limit are in use, also where each transaction leaves something behind
/// for a while. An index that doubles its directory may need a third at once.
pub fn new_databases<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const LIMIT: usize = 4 << 20;
    if !setup.measures_memory {
        return;
    }
    // The memory's own clock gets no processor: the workers move it.
    let mut setup = setup.clone();
    setup.common.memory.epoch_interval = Some(Duration::from_secs(3600));
    for bytes in [8, 40, 400] {
        let mut filling = Filling::open(&setup, LIMIT);
        filling.maintains = setup.maintains_by_clock;
        let rows = filling.fill(bytes);
        let used = filling.database.statistics().memory.expect("it is measured").used_bytes;
        assert!(used * 100 >= LIMIT * 65, "{used} bytes of {LIMIT} are in use with {rows} rows of {bytes} bytes");
    }
}

/// Rows that become longer step by step, after rows of other sizes.
pub fn sizes_that_grow<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    let fresh = Filling::open(setup, 4 << 20).grow(3997);
    let mut filling = Filling::open(setup, 4 << 20);
    for bytes in SIZES {
        filling.fill(bytes);
        filling.empty();
        about_as_many(filling.grow(3997), fresh, 4 << 20, &format!("after {bytes} bytes"));
        filling.empty();
    }
}

/// Rows that were long once, one after the other, do not keep that room.
pub fn rows_that_were_long<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const LONG: usize = 30_000;
    if !setup.measures_memory {
        return;
    }
    let mut filling = Filling::open(setup, 4 << 20);
    for id in 0..400 {
        for bytes in [16, LONG, 16] {
            let row = Image { id, bytes: vec![7; bytes] };
            let written = filling.run(|t, table| t.upsert(table, &row).map(drop));
            assert!(written, "row {id} is refused {bytes} bytes, and all others are short");
            (filling.setup.tick)(&filling.database);
        }
    }
}

/// Rows of all sizes come and go at the limit. When all are deleted, and the workers have had nothing to do for a while, as many find room
/// as in a new database.
pub fn mixed_sizes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const LIMIT: usize = 4 << 20;
    if !setup.measures_memory {
        return;
    }
    let size = |random: &mut Random| [0, 30, 300, 3000, 30_000][random.below(5) as usize] + random.below(20) as usize;
    let fill = |filling: &mut Filling<P>| {
        let (mut random, mut bytes) = (Random::from_seed(7), 0);
        loop {
            let row = Image { id: filling.rows, bytes: vec![7; size(&mut random)] };
            if !filling.run(|t, table| t.insert(table, &row)) {
                return bytes;
            }
            filling.rows += 1;
            bytes += row.bytes.len() as u64 + 40;
        }
    };
    let fresh = fill(&mut Filling::open(setup, LIMIT));
    let mut filling = Filling::open(setup, LIMIT);
    let mut random = Random::from_seed(1);
    filling.rows = 4000;
    for round in 0..20_000 {
        let (id, is_kept, bytes) = (random.below(filling.rows), random.chance(0.7), vec![7; size(&mut random)]);
        let row = Image { id, bytes };
        let table = &filling.table;
        // What is refused is left out.
        let _ = run(&mut filling.worker, |t| {
            if is_kept { t.upsert(table, &row).map(drop) } else { t.delete(table, id).map(drop) }
        });
        if round % 16 == 0 {
            (filling.setup.tick)(&filling.database);
        }
    }
    filling.empty();
    (0..6).for_each(|_| filling.quiesce());
    about_as_many(fill(&mut filling), fresh, LIMIT, "after rows of all sizes");
}

/// A table from which all rows were deleted holds nothing back: long rows find about as much room as in a new database, in another table and
/// in the same, and so do short ones after them.
pub fn emptied_tables<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const LIMIT: usize = 4 << 20;
    const LONG: usize = 20_000;
    if !setup.measures_memory {
        return;
    }
    for (short, has_items) in [(8, true), (8, false), (100, false)] {
        let fresh = BTreeMap::from([short, LONG].map(|bytes| (bytes, Filling::open(setup, LIMIT).fill(bytes))));
        let mut filling = Filling::open(setup, LIMIT);
        let definition = TableDefinition { name: "other".into(), ..Image::definition() };
        let other = Table::from_id(filling.database.create_table(definition).unwrap());
        if has_items {
            filling.fill_and_empty_items();
        } else {
            filling.fill(short);
            filling.empty();
            filling.table = other;
        }
        for bytes in [LONG, short, LONG] {
            let what = format!("{bytes} bytes after {short} bytes, of one column or not: {has_items}");
            about_as_many(filling.fill(bytes), fresh[&bytes], LIMIT, &what);
            filling.empty();
        }
    }
}

/// At the limit one transaction deletes as many rows as the reserve has room for, with 256 bytes each besides their columns, once what was
/// deleted before has been collected. One that deletes more may be refused. Then nothing of it stays, and smaller ones go on.
pub fn deletions_in_one_transaction<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const LIMIT: usize = 4 << 20;
    if !setup.measures_memory {
        return;
    }
    // The part of the limit that is put aside unless the options say otherwise.
    assert_eq!(setup.common.memory.reserve_bytes, None);
    let reserve = LIMIT / 64;
    for bytes in [8, 400, 20_000] {
        let mut filling = Filling::open(setup, LIMIT);
        let rows = filling.fill(bytes);
        filling.quiesce();
        let many = (reserve / (bytes + 256)) as u64;
        let delete = |filling: &mut Filling<P>, ids: std::ops::Range<u64>| {
            let table = &filling.table;
            run(&mut filling.worker, |t| ids.clone().try_for_each(|id| t.delete(table, id).map(drop)))
        };
        let count = |filling: &mut Filling<P>| done(&mut filling.worker, |t| t.scan(&filling.table, ..).count());
        let mut first = 0;
        // Without isolation what a refused transaction did may stay.
        if setup.isolation != Isolation::Nothing {
            let all = rows.min(4 * many);
            match delete(&mut filling, 0..all) {
                Ok(()) => first = all,
                Err(Error::OutOfMemory(_)) => {}
                Err(other) => panic!("{other}"),
            }
            assert_eq!(count(&mut filling), rows - first, "a refused deletion leaves something behind");
        }
        while first < rows {
            filling.quiesce();
            let ids = first..rows.min(first + many);
            let outcome = delete(&mut filling, ids.clone());
            assert!(outcome.is_ok(), "the deletion of {ids:?} of {rows} rows of {bytes} bytes: {outcome:?}");
            first = ids.end;
        }
        assert_eq!(count(&mut filling), 0);
    }
}

/// What piled up behind a transaction up to the limit is collected when that has ended, though nothing can commit before it is.
pub fn backlogs<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory || !setup.interleaves {
        return;
    }
    let mut filling = Filling::open(setup, 2 << 20);
    let table = Table::<Image>::from_id(filling.table.id());
    let write = |worker: &mut P::Worker, value| {
        run(worker, |t| (0..10).try_for_each(|id| t.upsert(&table, &Image { id, bytes: vec![value; 400] })))
    };
    write(&mut filling.worker, 0).unwrap();
    let mut reader = filling.database.worker().unwrap();
    let mut client = Client::begin(&mut reader, Mode::ReadWrite);
    client.step(|t: &mut Tx<'_, P>| t.get(&table, 99).map(|row| row.is_some())).unwrap();
    let refused = (0..2000).find(|&number| {
        (setup.tick)(&filling.database);
        write(&mut filling.worker, number as u8).is_err()
    });
    client.commit();
    let needed = (0..4).find(|_| {
        setup.pass(&filling.database, 2);
        write(&mut filling.worker, 1).is_ok()
    });
    assert!(needed.is_some(), "refused since round {refused:?}, and for ever");
}

/// Another session that has freed a lot, and works on, does not keep it to itself.
pub fn blocks_of_another_session<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.measures_memory {
        return;
    }
    const LIMIT: usize = 4 << 20;
    let fresh = Filling::open(setup, LIMIT).fill(16_000);
    let mut filling = Filling::open(setup, LIMIT);
    let mut other = filling.database.worker().unwrap();
    std::mem::swap(&mut filling.worker, &mut other);
    for bytes in (40..2000).step_by(40) {
        let first = filling.rows;
        filling.rows += 20;
        for id in first..filling.rows {
            done(&mut filling.worker, |t| t.insert(&filling.table, &Image { id, bytes: vec![7; bytes] }));
        }
    }
    filling.empty();
    std::mem::swap(&mut filling.worker, &mut other);
    let mut got = filling.fill(16_000);
    done(&mut other, |t| t.scan(&filling.table, ..).count());
    filling.setup.pass(&filling.database, 2);
    done(&mut other, |t| t.scan(&filling.table, ..).count());
    got = got.max(filling.fill(16_000));
    about_as_many(got, fresh, LIMIT, "beside another session");
}
