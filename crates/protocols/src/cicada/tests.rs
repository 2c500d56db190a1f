//! White-box tests; behaviour is tested in the crate `check`.

use std::sync::Arc;
use std::time::Duration;

use polychron_base::key::Key8;
use polychron_base::random::Random;
use polychron_engine::{
    Commit, Common, Insertion, Interactive, Mode, Operations, Protocol, Row, Stop, Table, Transaction, drive,
};

use super::options::{Options, Validation};
use super::protocol::Cicada;
use super::timestamp::{Shape, Timestamp};
use super::worker::CicadaWorker;

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "account")]
#[index(name = "by_group", columns(group))]
struct Account {
    #[key]
    id: u64,
    group: u16,
    balance: i64,
}

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "note", primary = "hash")]
struct Note {
    #[key]
    id: u64,
    text: String,
}

fn common() -> Common {
    let memory = polychron_memory::Options {
        huge_pages: false,
        region_bytes: 16 << 20,
        limit_bytes: Some(256 << 20),
        max_workers: 16,
        ..polychron_memory::Options::default()
    };
    Common { memory, ..Common::default() }
}

/// A database whose background does nothing by itself.
fn open(change: impl FnOnce(&mut Options)) -> Arc<Cicada> {
    let mut options = Options { background_interval: Duration::from_secs(3600), ..Options::default() };
    change(&mut options);
    Cicada::open(options, common()).unwrap()
}

fn done<O>(
    worker: &mut CicadaWorker,
    mut body: impl FnMut(&mut <CicadaWorker as Interactive>::Transaction<'_>) -> Result<O, Stop>,
) -> O {
    drive::transact(worker, Mode::ReadWrite, &mut body).unwrap()
}

#[test]
fn timestamps_are_ordered_around_the_end_of_their_numbers() {
    for shape in [Shape::new(None, 8).unwrap(), Shape::new(Some(16), 8).unwrap(), Shape::new(None, 12).unwrap()] {
        let numbers = shape.clock_numbers();
        let at = |clock: u64, worker| shape.timestamp(shape.proper(clock), worker);
        for clock in [1, numbers / 2 - 1, numbers - 2, numbers - 1, numbers] {
            assert!(at(clock, 3).is_before(at(clock + 2, 0)), "{clock}");
            assert!(at(clock, 1).is_before(at(clock, 2)));
            assert!(at(clock + numbers / 4, 0).is_after(at(clock, 7)));
            assert_ne!(at(clock, 0), Timestamp(0), "zero stands for none");
        }
        assert_eq!(shape.clock_between(at(numbers - 4, 0), at(numbers + 4, 0)), 8);
    }
    assert!(Shape::new(Some(60), 8).is_none() && Shape::new(Some(4), 8).is_none());
}

/// Threads move money between accounts, close and open some, and look at snapshots, while the clock wraps around again
/// and again. Some rows are never written.
fn wrap_around(options: impl FnOnce(&mut Options), rounds: u64) -> Result<u64, String> {
    const ACCOUNTS: u64 = 24;
    let database = open(options);
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        for id in 0..ACCOUNTS {
            t.insert(&accounts, &Account { id, group: id as u16 % 4, balance: 10 })?;
            t.insert(&notes, &Note { id, text: "never written again".repeat(id as usize) })?;
        }
        Ok(())
    });
    let total = 10 * ACCOUNTS as i64;
    let sum = |t: &mut <CicadaWorker as Interactive>::Transaction<'_>| {
        let sum: i64 = t.scan(&accounts, ..).map(|row| row.balance()).sum()?;
        let mut by_group = 0;
        for group in 0..4 {
            by_group += t.scan_by(&accounts, Account::BY_GROUP, group).map(|row| row.balance()).sum::<i64>()?;
        }
        let mut notes_found = 0;
        for id in 0..ACCOUNTS {
            notes_found += u64::from(t.get(&notes, id)?.is_some());
        }
        Ok((sum, by_group, notes_found))
    };
    let check = |seen: (i64, i64, u64)| {
        if seen == (total, total, ACCOUNTS) { Ok(()) } else { Err(format!("{seen:?}")) }
    };
    let threads = |thread: u64| -> Result<(), String> {
        let mut worker = database.worker().unwrap();
        let mut random = Random::stream(7, thread);
        for round in 0..rounds {
            let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            if from != to {
                done(&mut worker, |t| transfer(t, &accounts, from, to, random.below(9) as i64));
            }
            if round % 512 == 0 {
                check(drive::transact(&mut worker, Mode::Snapshot, &mut |t| sum(t)).map_err(|e| e.to_string())?)?;
                check(done(&mut worker, |t| sum(t)))?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|thread| scope.spawn(move || threads(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread ends well"))
    })?;
    check(done(&mut worker, |t| sum(t)))?;
    Ok(database.shared.renewal.rounds())
}

fn transfer<T: Transaction>(t: &mut T, table: &Table<Account>, from: u64, to: u64, amount: i64) -> Result<(), Stop> {
    let Some(balance) = t.get(table, from)?.map(|row| row.balance()) else { return Ok(()) };
    let moved = balance.min(amount);
    if moved == balance {
        t.delete(table, from)?;
    } else {
        t.update(table, from, |row| row.set_balance(balance - moved))?;
    }
    let group = (to % 3) as u16;
    let row = |balance| Account { id: to, group, balance };
    match t.get(table, to)?.map(|row| row.balance()) {
        Some(before) => t.upsert(table, &row(before + moved)),
        None => t.insert(table, &row(moved)),
    }
}

/// Transactions of each thread: enough for the narrow clocks to wrap around several times.
const ROUNDS: u64 = if cfg!(debug_assertions) { 30_000 } else { 1_500_000 };

#[test]
fn a_counter_of_fifteen_bits_wraps_around() {
    let narrow = |options: &mut Options| (options.central_clock, options.clock_bits) = (true, Some(15));
    let rounds = wrap_around(narrow, ROUNDS).unwrap();
    // Each round begins a sixteenth of the numbers after the one before.
    assert!(rounds >= 24, "the clock hardly wrapped around: {rounds} rounds");
}

/// Nodes of multi-version indexes are renewed like rows.
#[test]
fn nodes_outlive_the_clock() {
    let narrow = |options: &mut Options| {
        (options.central_clock, options.clock_bits) = (true, Some(15));
        options.indexes = super::options::Indexes::MultiVersion;
    };
    let rounds = wrap_around(narrow, ROUNDS).unwrap();
    assert!(rounds >= 24, "the clock hardly wrapped around: {rounds} rounds");
}

#[test]
fn clocks_of_twenty_eight_bits_wrap_around() {
    let narrow = |options: &mut Options| {
        options.consistency = super::Consistency::Loose;
        options.clock_bits = Some(28);
    };
    wrap_around(narrow, ROUNDS / 4).unwrap();
}

#[test]
fn without_renewal_rows_that_are_not_written_get_lost() {
    let careless = |options: &mut Options| {
        (options.central_clock, options.clock_bits) = (true, Some(12));
        options.validation = Validation { renewal: false, ..Validation::default() };
    };
    assert!(wrap_around(careless, 5_000).is_err(), "the clock has wrapped around, and nothing is missing");
}

/// A row that has grown old outside of its head moves there when it is read.
#[test]
fn rows_that_are_read_move_into_their_heads() {
    let database = open(|options| options.collection_interval = Duration::ZERO);
    let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.insert(&notes, &Note { id: 1, text: "first".into() }));
    // The head is taken by the first version while the second one is written.
    done(&mut worker, |t| t.update(&notes, 1, |row| row.set_text("second").unwrap()));
    let promotions = || database.shared.clocks.counts().1;
    assert_eq!(promotions(), 0);
    for _ in 0..10 {
        let text = done(&mut worker, |t| Ok(t.get(&notes, 1)?.map(|row| row.text().to_owned())));
        assert_eq!(text.as_deref(), Some("second"));
    }
    assert_eq!(promotions(), 1, "it moves once");
}

/// A long reader keeps what it sees; what came and went behind it does not pile up.
#[test]
fn a_long_reader_holds_back_what_it_can_see() {
    let database = open(|options| {
        (options.collection_interval, options.thinning_after) = (Duration::ZERO, Duration::ZERO);
        // The reader renews its guard with every operation.
        options.check_every = 1;
    });
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut reader, mut writer) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut writer, |t| (0..10).try_for_each(|id| t.insert(&accounts, &Account { id, group: 0, balance: 1 })));
    database.tick();
    let mut old = reader.begin(Mode::Snapshot).unwrap();
    let mut used = Vec::new();
    for round in 0..3000 {
        done(&mut writer, |t| {
            (0..10).try_for_each(|id| t.update(&accounts, id, |row| row.set_balance(round)).map(drop))
        });
        if round % 500 == 499 {
            for _ in 0..4 {
                database.tick();
                drop(writer.begin(Mode::ReadWrite));
                writer.local.collect();
            }
            used.push(database.memory().statistics().used_bytes);
            assert_eq!(old.scan(&accounts, ..).map(|row| row.balance()).sum::<i64>().unwrap(), 10);
        }
    }
    // A version has 64 bytes, and there are 5000 in each of the six stretches.
    assert!(used[5] <= used[1] + 64 * 1024, "{used:?}");
    assert!(old.commit().is_ok());
}

/// What is committed under a boosted clock is seen by whoever begins after it was acknowledged.
#[test]
fn acknowledged_commits_are_followed() {
    let database = open(|options| options.clock_boost = Duration::from_micros(300));
    let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    for id in 0..50 {
        let clocks = &database.shared.clocks;
        clocks.boost(&mut left.state.clock, left.state.worker);
        done(&mut left, |t| t.insert(&notes, &Note { id, text: String::new() }));
        assert!(done(&mut right, |t| Ok(t.get(&notes, id)?.is_some())), "note {id} was acknowledged");
    }
}

/// External consistency: when a commit is acknowledged, nobody begins before it any more.
#[test]
fn external_consistency_waits_for_the_horizon() {
    let database = open(|options| options.consistency = super::Consistency::External);
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let database = &database;
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                for round in 0..300 {
                    let account = Account { id: thread, group: 1, balance: round };
                    done(&mut worker, |t| t.upsert(&accounts, &account));
                    assert!(database.shared.clocks.min_wts().is_after(worker.last_timestamp()));
                }
            });
        }
    });
}

/// Causal consistency: a worker that follows another one comes after it, whatever their clocks say.
#[test]
fn a_worker_that_follows_comes_after() {
    let database = open(|options| {
        options.consistency = super::Consistency::Loose;
        options.clock_boost = Duration::from_secs(3600);
    });
    let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    database.shared.clocks.boost(&mut left.state.clock, left.state.worker);
    done(&mut left, |t| t.insert(&notes, &Note { id: 1, text: String::new() }));
    assert!(!done(&mut right, |t| Ok(t.get(&notes, 1)?.is_some())), "the clocks are an hour apart");
    right.follow(left.moment());
    assert!(done(&mut right, |t| Ok(t.get(&notes, 1)?.is_some())));
}

/// An own insertion is found by key although no index knows it.
#[test]
fn insertions_stay_out_of_the_index_until_validation() {
    let database = open(|_| ());
    let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    assert_eq!(transaction.try_insert(&notes, &Note { id: 5, text: "x".into() }).unwrap(), Insertion::Inserted);
    assert_eq!(transaction.get(&notes, 5).unwrap().map(|row| row.text().to_owned()).as_deref(), Some("x"));
    let table = transaction.table(notes.id()).unwrap();
    let found = table.primary.index().get(Key8::new(5, 8), &transaction.guard).handle;
    assert!(found.is_none(), "the index was touched before validation");
}
