//! White-box tests; behaviour is tested in the crate `check`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polychron_base::TableId;
use polychron_base::key::Key8;
use polychron_base::random::Random;
use polychron_base::sizes::{scaled, slowed};
use polychron_engine::redo::{self, Journal, Order, Ticket};
use polychron_engine::{
    Commit, Common, Error, Insertion, Interactive, Metric, MetricValue, Mode, Operations, Protocol, Row, RowRef, Table,
    Transaction, drive,
};

use super::options::Options;
use super::protocol::Cicada;
use super::timestamp::{Shape, Timestamp};
use super::worker::CicadaWorker;

mod aside;
mod caught;
mod collection;
mod contested;
mod crowds;
mod displaced;
mod idle;
mod leaks;

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
        epoch_interval: Some(slowed(Duration::from_millis(10))),
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
    mut body: impl FnMut(&mut <CicadaWorker as Interactive>::Transaction<'_>) -> Result<O, Error>,
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
    // Snapshots see what has become the past.
    while !database.shared.clocks.min_wts().is_after(worker.last_timestamp()) {
        database.tick();
    }
    let total = 10 * ACCOUNTS as i64;
    let sum = |t: &mut <CicadaWorker as Interactive>::Transaction<'_>| {
        let sum: i64 = t.scan(&accounts, ..).map(|row| row.balance()).sum()?;
        let mut by_group = 0;
        for group in 0..4 {
            by_group += t.scan_by(&accounts, Account::BY_GROUP, group).map(|row| row.balance()).sum()?;
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
                check(
                    drive::transact(&mut worker, Mode::Snapshot, &mut |t| sum(t)).map_err(|e: Error| e.to_string())?,
                )?;
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

fn transfer<T: Transaction>(t: &mut T, table: &Table<Account>, from: u64, to: u64, amount: i64) -> Result<(), Error> {
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
#[cfg_attr(miri, ignore = "a clock turns only after many transactions")]
fn a_counter_of_fifteen_bits_wraps_around() {
    let narrow = |options: &mut Options| (options.central_clock, options.clock_bits) = (true, Some(15));
    let rounds = wrap_around(narrow, ROUNDS).unwrap();
    // Each round begins a sixteenth of the numbers after the one before.
    assert!(rounds >= 24, "the clock hardly wrapped around: {rounds} rounds");
}

/// Nodes of multi-version indexes are renewed like rows.
#[test]
#[cfg_attr(miri, ignore = "a clock turns only after many transactions")]
fn nodes_outlive_the_clock() {
    let narrow = |options: &mut Options| {
        (options.central_clock, options.clock_bits) = (true, Some(15));
        options.indexes = super::options::Indexes::MultiVersion;
    };
    let rounds = wrap_around(narrow, ROUNDS).unwrap();
    assert!(rounds >= 24, "the clock hardly wrapped around: {rounds} rounds");
}

#[test]
#[cfg_attr(miri, ignore = "a clock turns only after many transactions")]
fn clocks_of_twenty_eight_bits_wrap_around() {
    let narrow = |options: &mut Options| {
        options.consistency = super::Consistency::Loose;
        options.clock_bits = Some(28);
    };
    wrap_around(narrow, ROUNDS / 4).unwrap();
}

/// The balance of an account that a change makes; nothing else of accounts changes.
fn balance_in(change: redo::Change<'_>) -> i64 {
    match change {
        redo::Change::Put(words) => Account::view(RowRef::from_words(words)).balance(),
        redo::Change::Patch { words: &[balance], .. } => balance as i64,
        _ => panic!("balances are put and changed: {change:?}"),
    }
}

/// The log's records of the accounts' balances, in the order in which they were sealed, and what workers have staged.
#[derive(Clone, Debug, Default)]
struct Log {
    sealed: Arc<Mutex<Vec<(Order, u64, i64)>>>,
    staged: Arc<[Mutex<Staged>; 16]>,
}

/// Ids of accounts and their balances, of one worker.
type Staged = Vec<(u64, i64)>;

impl Log {
    fn changes(&self) -> Vec<(Order, u64, i64)> {
        self.sealed.lock().unwrap().clone()
    }

    fn common(&self) -> Common {
        Common { journal: Journal::new(Arc::new(self.clone())), ..common() }
    }
}

impl redo::Log for Log {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, worker: usize, _: TableId, key: &[u8], change: redo::Change<'_>) -> Result<(), Error> {
        let id = u64::from_be_bytes(key.try_into().unwrap());
        self.staged[worker].lock().unwrap().push((id, balance_in(change)));
        Ok(())
    }

    fn discard(&self, worker: usize) {
        self.staged[worker].lock().unwrap().clear();
    }

    fn seal(&self, worker: usize, order: Order) -> Ticket {
        let staged = std::mem::take(&mut *self.staged[worker].lock().unwrap());
        self.sealed.lock().unwrap().extend(staged.into_iter().map(|(id, balance)| (order, id, balance)));
        Ticket::DONE
    }

    fn ticket(&self, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn define(&self, _: &polychron_engine::definitions::StoredCatalog) -> Result<(), Error> {
        Ok(())
    }

    fn sealed(&self) -> Ticket {
        Ticket::DONE
    }

    fn wait(&self, _: Ticket) -> Result<(), Error> {
        Ok(())
    }

    fn durability(&self) -> redo::Durability {
        redo::Durability::Immediate
    }
}

/// Extended timestamps order each account's changes, which count up, across many turns of the clock; timestamps alone do
/// not.
fn eras_order_the_log(central_clock: bool, clock_bits: u32, rounds: u64) {
    let log = Log::default();
    let options = Options { central_clock, clock_bits: Some(clock_bits), ..Options::default() };
    let database = Cicada::open(options, log.common()).unwrap();
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let database = &database;
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                let mut random = Random::stream(5, thread);
                for _ in 0..rounds {
                    let id = random.below(6);
                    let body = &mut |t: &mut super::CicadaTransaction<'_>| {
                        let before = t.get(&accounts, id)?.map_or(0, |row| row.balance());
                        t.upsert(&accounts, &Account { id, group: 0, balance: before + 1 })
                    };
                    drive::transact(&mut worker, Mode::ReadWrite, body).unwrap();
                }
            });
        }
    });
    let mut changes = log.changes();
    assert_eq!(changes.len() as u64, 2 * rounds);
    let in_order = |changes: &[(Order, u64, i64)]| {
        let mut balances = [0; 6];
        changes.iter().all(|&(_, id, balance)| {
            balances[id as usize] += 1;
            balances[id as usize] == balance
        })
    };
    changes.sort_by_key(|change| change.0);
    assert!(in_order(&changes), "the extended timestamps do not order the changes");
    assert!(changes.windows(2).all(|pair| pair[0].0 < pair[1].0), "two transactions have one timestamp");
    let eras = changes.last().unwrap().0.era - changes[0].0.era;
    assert!(!central_clock || eras >= 2, "the clock hardly wrapped around: {eras} eras");
    changes.sort_by_key(|change| change.0.timestamp);
    assert!(eras == 0 || !in_order(&changes), "timestamps alone would do");
}

#[test]
#[cfg_attr(miri, ignore = "a clock turns only after many transactions")]
fn eras_order_the_log_of_a_counter() {
    eras_order_the_log(true, 13, ROUNDS / 3);
}

#[test]
#[cfg_attr(miri, ignore = "a clock turns only after many transactions")]
fn eras_order_the_log_of_clocks() {
    eras_order_the_log(false, 26, ROUNDS);
}

/// Time leaps while nobody is there, by any part of a turn and by many turns: rows stay, and the log stays in order.
#[test]
#[cfg_attr(miri, ignore = "hundreds of rounds take an interpreter too long")]
fn time_may_leap_while_nobody_is_there() {
    let log = Log::default();
    let options =
        Options { clock_bits: Some(26), background_interval: Duration::from_secs(3600), ..Options::default() };
    let database = Cicada::open(options, log.common()).unwrap();
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let mut transact = |id, change: i64| {
        let body = &mut |t: &mut super::CicadaTransaction<'_>| {
            let before = t.get(&accounts, id)?.map(|row| row.balance());
            if change > 0 {
                t.upsert(&accounts, &Account { id, group: 0, balance: before.unwrap_or(0) + change })?;
            }
            Ok::<_, Error>(before)
        };
        drive::transact(&mut worker, Mode::ReadWrite, body).unwrap()
    };
    transact(1, 1);
    for leap in 1..scaled(100, 20) as i64 {
        // Quarters of a turn, at an odd place.
        database.shared.clocks.pass_time((leap as u64 % 23) << 24 | 0x5555);
        assert_eq!(transact(0, 1), (leap > 1).then_some(leap - 1), "the row that is written");
        assert_eq!(transact(1, 0), Some(1), "the row that is not");
    }
    let changes = log.changes();
    assert!(changes.windows(2).all(|pair| pair[0].0 < pair[1].0), "extended timestamps go back");
    assert!(database.shared.renewal.rounds() > 0);
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
    let promotions = || database.shared.clocks.all_counts().map(|counts| counts.promotions.get()).sum::<u64>();
    assert_eq!(promotions(), 0);
    for _ in 0..10 {
        let text = done(&mut worker, |t| Ok(t.get(&notes, 1)?.map(|row| row.text().to_owned())));
        assert_eq!(text.as_deref(), Some("second"));
    }
    assert_eq!(promotions(), 1, "it moves once");
}

fn metric(metrics: &[Metric], name: &str) -> MetricValue {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} in {metrics:?}")).value.clone()
}

/// Conflicts are counted by the step at which they showed, and rows by where they lie.
#[test]
fn metrics_tell_where_conflicts_showed_and_rows_lie() {
    let still = Duration::from_secs(3600);
    let database = open(|options| (options.check_every, options.collection_interval) = (1, still));
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut left, |t| (0..4).try_for_each(|id| t.insert(&accounts, &Account { id, group: 0, balance: 1 })));
    let set = |t: &mut <CicadaWorker as Interactive>::Transaction<'_>, id: u64| {
        t.update(&accounts, id, |row| row.set_balance(2)).map(drop)
    };
    // What one read is written by an earlier transaction before it validates: with a write it shows at the early check,
    // without one at the check, and while the procedure goes on, there.
    for (writes, goes_on) in [(true, false), (false, false), (false, true)] {
        let earlier = right.begin(Mode::ReadWrite).unwrap();
        let mut later = left.begin(Mode::ReadWrite).unwrap();
        later.get(&accounts, 0).unwrap();
        if writes {
            set(&mut later, 1).unwrap();
        }
        let mut earlier = earlier;
        set(&mut earlier, 0).unwrap();
        earlier.commit().unwrap();
        if goes_on {
            assert!(later.get(&accounts, 2).unwrap_err().is_conflict());
        } else {
            assert!(later.commit().unwrap_err().is_conflict());
        }
    }
    // What a later transaction has read is no longer written, which shows at once.
    let mut earlier = right.begin(Mode::ReadWrite).unwrap();
    done(&mut left, |t| Ok(t.get(&accounts, 3)?.is_some()));
    assert!(set(&mut earlier, 3).unwrap_err().is_conflict());
    drop(earlier);
    let metrics = database.statistics().metrics;
    let count = |name| metric(&metrics, name);
    assert_eq!(count("aborts_at_the_early_check"), MetricValue::Count(1), "{metrics:?}");
    assert_eq!(count("aborts_at_the_check"), MetricValue::Count(1), "{metrics:?}");
    assert_eq!(count("aborts_while_running"), MetricValue::Count(2), "{metrics:?}");
    assert_eq!(count("aborts_while_installing"), MetricValue::Count(0), "{metrics:?}");
    assert_eq!(count("clock_boosts"), MetricValue::Count(4));
    // Account 0 was written three times while its first version took the head.
    assert_eq!(metric(&database.inspect(), "inlined_rows_percent"), MetricValue::Level(75.0));
    let MetricValue::Level(overhead) = metric(&database.inspect(), "space_overhead_percent") else { panic!() };
    assert!(overhead > 0.0, "{overhead}");
}

/// A worker whose last five transactions have committed does not check its reads before it installs (§3.5).
#[test]
fn a_worker_that_always_commits_checks_once() {
    let database = open(|options| options.collection_interval = Duration::from_secs(3600));
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut left, |t| (0..3).try_for_each(|id| t.insert(&accounts, &Account { id, group: 0, balance: 1 })));
    for (commits, at_the_early_check, at_the_check) in [(0, 1, 0), (4, 2, 0), (5, 2, 1), (4, 3, 1)] {
        for _ in 0..commits {
            done(&mut left, |t| t.update(&accounts, 2, |row| row.set_balance(3)).map(drop));
        }
        let mut earlier = right.begin(Mode::ReadWrite).unwrap();
        let mut later = left.begin(Mode::ReadWrite).unwrap();
        later.get(&accounts, 0).unwrap();
        later.update(&accounts, 1, |row| row.set_balance(2)).unwrap();
        earlier.update(&accounts, 0, |row| row.set_balance(2)).unwrap();
        earlier.commit().unwrap();
        assert!(later.commit().unwrap_err().is_conflict());
        let metrics = database.statistics().metrics;
        assert_eq!(metric(&metrics, "aborts_at_the_early_check"), MetricValue::Count(at_the_early_check), "{commits}");
        assert_eq!(metric(&metrics, "aborts_at_the_check"), MetricValue::Count(at_the_check), "{commits}");
    }
}

/// Garbage, clocks and waits are measured where workers meet.
#[test]
fn lags_are_measured() {
    let database = open(|options| {
        (options.collection_interval, options.synchronization_interval) = (Duration::ZERO, Duration::ZERO);
        (options.consistency, options.fixed_backoff) = (super::Consistency::Loose, Some(Duration::from_nanos(900)));
    });
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut left, |t| t.insert(&accounts, &Account { id: 1, group: 0, balance: 0 }));
    // The left clock runs ahead, and the right one notices.
    database.shared.clocks.push(&mut left.state.clock, 5_000_000);
    for round in 0..20 {
        done(&mut left, |t| t.update(&accounts, 1, |row| row.set_balance(round)));
        done(&mut right, |t| t.update(&accounts, 1, |row| row.set_balance(round)));
    }
    // A worker that was stopped in between may have waited after a conflict.
    let MetricValue::Count(waits) = metric(&database.statistics().metrics, "backoff_waits") else { panic!() };
    left.back_off(1);
    let metrics = database.statistics().metrics;
    let MetricValue::Level(skew) = metric(&metrics, "clock_skew_max_ns") else { panic!() };
    assert!(skew >= 1_000_000.0, "{metrics:?}");
    // Several updates may go with one item, and the last one may still wait.
    let MetricValue::Mean(lag, collected) = metric(&metrics, "collection_lag_mean_ns") else { panic!() };
    assert!(lag > 0 && (10..=40).contains(&collected), "{metrics:?}");
    assert_eq!(metric(&metrics, "collected_records"), MetricValue::Count(collected));
    assert_eq!(metric(&metrics, "backoff_waits"), MetricValue::Count(waits + 1));
    let MetricValue::Mean(waited, _) = metric(&metrics, "backoff_mean_ns") else { panic!("{metrics:?}") };
    assert!(waited <= 900);
    let course = metric(&database.inspect(), "longest_backoff_us_over_time");
    assert_eq!(course, MetricValue::Course(vec![(0.0, 0.9)]));
}

/// A long reader keeps what it sees; what came and went behind it does not pile up.
#[test]
fn a_long_reader_holds_back_what_it_can_see() {
    let database = open(|options| {
        (options.collection_interval, options.pruning_after) = (Duration::ZERO, Duration::ZERO);
        // The reader renews its guard with every operation.
        options.check_every = 1;
    });
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let (mut reader, mut writer) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut writer, |t| (0..10).try_for_each(|id| t.insert(&accounts, &Account { id, group: 0, balance: 1 })));
    database.tick();
    let mut old = reader.begin(Mode::Snapshot).unwrap();
    let mut used = Vec::new();
    let run = scaled(500, 2) as i64;
    for round in 0..6 * run {
        done(&mut writer, |t| {
            (0..10).try_for_each(|id| t.update(&accounts, id, |row| row.set_balance(round)).map(drop))
        });
        if round % run == run - 1 {
            for _ in 0..4 {
                database.tick();
                drop(writer.begin(Mode::ReadWrite));
                writer.local.collect();
            }
            used.push(database.memory().statistics().used_bytes);
            assert_eq!(old.scan(&accounts, ..).map(|row| row.balance()).sum().unwrap(), 10);
        }
    }
    // A version has 64 bytes, and there are 5000 in each of the six runs, if the tools are quick.
    assert!(used[5] <= used[1] + 64 * 1024, "{used:?}");
    assert!(old.commit().is_ok());
}

/// What is committed under a boosted clock is seen by every transaction that begins after it was acknowledged.
#[test]
fn acknowledged_commits_are_followed() {
    let database = open(|options| options.clock_boost = Duration::from_micros(300));
    let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    for id in 0..scaled(50, 2) as u64 {
        let clocks = &database.shared.clocks;
        clocks.boost(&mut left.state.clock, left.state.base.slot);
        done(&mut left, |t| t.insert(&notes, &Note { id, text: String::new() }));
        assert!(done(&mut right, |t| Ok(t.get(&notes, id)?.is_some())), "note {id} was acknowledged");
    }
}

/// External consistency: when a commit is acknowledged, nobody begins before it.
#[test]
fn external_consistency_waits_for_the_horizon() {
    let database = open(|options| options.consistency = super::Consistency::External);
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let database = &database;
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                for round in 0..scaled(300, 5) as i64 {
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
    database.shared.clocks.boost(&mut left.state.clock, left.state.base.slot);
    done(&mut left, |t| t.insert(&notes, &Note { id: 1, text: String::new() }));
    assert!(!done(&mut right, |t| Ok(t.get(&notes, 1)?.is_some())), "the clocks are an hour apart");
    right.follow(left.clock_reading());
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
    transaction.come_back();
    let table = transaction.state.base.tables.table(notes.id()).unwrap();
    let found = table.primary.index().get(Key8::new(5, 8), &transaction.guard).handle;
    assert!(found.is_none(), "the index was touched before validation");
}
