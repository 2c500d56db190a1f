//! Indexes and tables that are dropped beside transactions that use them. From then on no client keeps such an index up, so who asks it is
//! refused or conflicts, unless its rows are those of the table. A table that was dropped is as it was, for those that still have it.
use polychron_base::random::Random;
use polychron_base::{Error, IndexId};
use polychron_engine::{Insertion, Interactive, Mode, Operations, Protocol, Row, Table, Transaction, Worker, drive};
use polychron_schema::Index;
use polychron_sync::Mutex;
use polychron_sync::atomic::{AtomicBool, Ordering};

use crate::Setup;
use crate::client::Client;
use crate::rows::{Guest, Item, Person, person};
use crate::setup::{begin, create, done, items, persons, run, snapshot};

/// What is asked of a table, and of an index of it: the answers are the same as long as the index is kept up.
#[derive(Clone, Copy, Debug)]
enum Question {
    Rows,
    Count,
    Smallest,
    Largest,
    Point,
}

const QUESTIONS: [Question; 5] =
    [Question::Rows, Question::Count, Question::Smallest, Question::Largest, Question::Point];

/// The key of the row that comes when the index is dropped: before all others, or behind them.
const COMES: [u64; 2] = [0, 500];

fn ids(mut rows: Vec<u64>) -> Vec<u64> {
    rows.sort_unstable();
    rows
}

/// Asks the table.
fn by_table<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    question: Question,
    comes: u64,
) -> Result<Vec<u64>, Error> {
    match question {
        Question::Rows => t.scan(table, ..).map(|row| row.id()).collect().map(ids),
        Question::Count => t.scan(table, ..).count().map(|count| vec![count]),
        Question::Smallest => Ok(t.scan(table, ..).first(|row| row.id())?.into_iter().collect()),
        Question::Largest => Ok(t.scan(table, ..).rev().first(|row| row.id())?.into_iter().collect()),
        Question::Point => Ok(t.get(table, comes)?.map(|row| row.id()).into_iter().collect()),
    }
}

/// Asks one of the indexes of [`Person`] the same: in both, the order is that of the ids.
fn by_index<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    index: IndexId,
    question: Question,
    comes: u64,
) -> Result<Vec<u64>, Error> {
    let range = |t: &mut T| match index.position() {
        1 => t.scan_range_by::<_, _, u16>(table, Person::BY_TEAM, ..).map(|row| row.id()).collect::<Vec<_>>(),
        _ => t.scan_range_by::<_, _, Option<u32>>(table, Person::BY_CODE, ..).map(|row| row.id()).collect(),
    };
    match question {
        Question::Rows => range(t).map(ids),
        Question::Count if index.position() == 1 => {
            t.scan_range_by::<_, _, u16>(table, Person::BY_TEAM, ..).count().map(|count| vec![count])
        }
        Question::Count => {
            t.scan_range_by::<_, _, Option<u32>>(table, Person::BY_CODE, ..).count().map(|count| vec![count])
        }
        Question::Smallest => Ok(range(t)?.first().copied().into_iter().collect()),
        Question::Largest => Ok(range(t)?.last().copied().into_iter().collect()),
        Question::Point if index.position() == 1 => {
            Ok(t.scan_by(table, Person::BY_TEAM, comes as u16).first(|row| row.id())?.into_iter().collect())
        }
        Question::Point => {
            Ok(t.scan_by(table, Person::BY_CODE, Some(comes as u32)).first(|row| row.id())?.into_iter().collect())
        }
    }
}

/// An answer, unless the index is gone.
fn unless_gone<O>(answer: Result<O, Error>) -> Result<Option<O>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::NoSuchIndex(..)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// When a transaction asks the index that is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asks {
    /// Before, and not again.
    Before,
    /// Behind, and then the table.
    IndexFirst,
    /// Behind, and the table before.
    TableFirst,
}

/// An index is dropped while a transaction is open that asks it, before that or behind it; then a row comes, and another one goes.
pub fn index_under_transactions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        for index in [IndexId(1), IndexId(2)] {
            for (position, question) in QUESTIONS.into_iter().enumerate() {
                for asks in [Asks::Before, Asks::IndexFirst, Asks::TableFirst] {
                    let case = Case { mode, index, question, asks, comes: COMES[position % 2] };
                    case.play(setup, false);
                    case.play(setup, true);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    mode: Mode,
    index: IndexId,
    question: Question,
    asks: Asks,
    comes: u64,
}

impl Case {
    /// `rolls_back`: the transaction does not commit, and is told whether what it saw was consistent.
    fn play<P: Protocol<Worker: Interactive>>(self, setup: &Setup<P>, rolls_back: bool) {
        let Self { mode, index, question, asks, comes } = self;
        let rows: Vec<_> = (1..20).map(|id| person(id, id as u16, id as u32)).collect();
        let (database, table) = persons(setup, &rows);
        setup.pass(&database, 3);
        let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
        let mut older = Client::begin(&mut left, mode);
        let mut answers = Vec::new();
        if asks == Asks::Before {
            answers.extend(older.step(|t| by_index(t, &table, index, question, comes)));
        } else {
            // It knows the list of tables, and the present of a snapshot.
            older.step(|t| t.get(&table, 19).map(drop));
        }
        database.drop_index(table.id(), index).unwrap();
        // A client that locks may be in the way of the one and not of the other.
        let _ = run(&mut right, |t| t.insert(&table, &person(comes, comes as u16, comes as u32)));
        let _ = run(&mut right, |t| t.delete(&table, if comes == 0 { 1 } else { 18 }));
        setup.pass(&database, 3);
        if asks == Asks::IndexFirst {
            answers.extend(older.step(|t| unless_gone(by_index(t, &table, index, question, comes))).flatten());
        }
        let expected = older.step(|t| by_table(t, &table, question, comes));
        if asks == Asks::TableFirst {
            answers.extend(older.step(|t| unless_gone(by_index(t, &table, index, question, comes))).flatten());
        }
        let stands = if rolls_back { older.roll_back() } else { older.commit() };
        if let Some(expected) = expected.filter(|_| stands) {
            assert!(answers.iter().all(|answer| *answer == expected), "{self:?}: {answers:?}, by table {expected:?}");
        }
    }
}

/// A unique index that was dropped refuses no row, whose key another one has given up since, and shows none by a hash.
pub fn unique_index_under_transactions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    for (scans_first, rolls_back) in [(false, false), (false, true), (true, false), (true, true)] {
        let database = setup.open();
        let table: Table<Guest> = create(&database);
        let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
        let guest = |id: u64, badge: u32| Guest { id, badge, room: 1 };
        done(&mut right, |t| (1..5).try_for_each(|id| t.insert(&table, &guest(id, id as u32))));
        setup.pass(&database, 3);
        let mut older = begin(&mut left);
        older.step(|t| t.get(&table, 4).map(drop));
        database.drop_index(table.id(), IndexId(1)).unwrap();
        done(&mut right, |t| t.delete(&table, 1).map(drop));
        setup.pass(&database, 3);
        let all = |t: &mut crate::setup::Tx<'_, P>| t.scan(&table, ..).map(|row| row.badge()).collect::<Vec<_>>();
        let mut badges = if scans_first { older.step(all) } else { None };
        let refused = older.step(|t| Ok(t.try_insert(&table, &guest(9, 1))? != Insertion::Inserted));
        let shown =
            older.step(|t| unless_gone(t.scan_by(&table, Guest::BY_BADGE, 1).map(|row| row.id()).collect::<Vec<_>>()));
        badges = badges.or_else(|| older.step(all));
        let stands = if rolls_back { older.roll_back() } else { older.commit() };
        if let (Some(badges), true) = (badges, stands) {
            let taken = badges.contains(&1) && !badges.contains(&9);
            assert!(refused != Some(true) || taken, "badge 1 was refused, and nobody has it: {badges:?}");
            let shown = shown.flatten().unwrap_or_default();
            assert!(!shown.contains(&1) || taken, "badge 1 is found, and nobody has it: {badges:?}");
        }
    }
}

/// A transaction that has a table, or an index, which is dropped reads on what it has read before, while memory that was collected meanwhile
/// is used again.
pub fn read_on_while_memory_is_used_again<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.snapshots_lock {
        return;
    }
    for mode in [Mode::ReadWrite, Mode::Snapshot] {
        for whole_table in [false, true] {
            let rows: Vec<_> = (0..200).map(|id| person(id, 1, id as u32)).collect();
            let (database, table) = persons(setup, &rows);
            let others: Table<Person> = {
                let mut definition = Person::definition();
                definition.name = "others".to_owned();
                Table::from_id(database.create_table(definition).unwrap())
            };
            setup.pass(&database, 3);
            let mut workers = [(); 3].map(|()| database.worker().unwrap());
            let [first, second, third] = &mut workers;
            // What is written now stays for this one, and goes when it has ended.
            let mut oldest = Client::begin(first, Mode::Snapshot);
            oldest.step(|t| t.get(&table, 0).map(drop));
            done(third, |t| {
                (0..100).try_for_each(|id| t.update(&table, id, |row| row.set_team(2)).map(drop))?;
                (100..150).try_for_each(|id| t.delete(&table, id).map(drop))
            });
            setup.pass(&database, 3);
            let mut older = Client::begin(second, mode);
            let by_team = |t: &mut crate::setup::Tx<'_, P>| {
                t.scan_range_by::<_, _, u16>(&table, Person::BY_TEAM, ..).map(|row| (row.team(), row.id())).collect()
            };
            type Seen = (Vec<Person>, Vec<(u16, u64)>);
            let before: Option<Seen> = older.step(|t| Ok((t.scan(&table, ..).rows()?, by_team(t)?)));
            if whole_table {
                database.drop_table(table.id()).unwrap();
            } else {
                database.drop_index(table.id(), IndexId(1)).unwrap();
            }
            oldest.commit();
            for round in 0..20 {
                done(third, |t| {
                    (0..50).try_for_each(|id| t.upsert(&others, &person(id, round as u16, (100 * id + round) as u32)))
                });
                setup.pass(&database, 1);
                third.maintain();
            }
            let after = older.step(|t| Ok((t.scan(&table, ..).rows()?, unless_gone(by_team(t))?)));
            if let (Some(before), Some(after)) = (before, after) {
                assert!(before.0 == after.0, "{mode:?}, rows of the table changed");
                assert!(after.1.is_none_or(|entries| entries == before.1), "{mode:?}, entries of the index changed");
            }
            older.commit();
        }
    }
}

/// Rows that move, and the number of them that there always is.
const KEYS: u64 = 60;
const MOVED: u64 = KEYS / 2;

fn move_row<T: Transaction>(t: &mut T, table: &Table<Person>, from: u64, to: u64) -> Result<(), Error> {
    let Some(row) = t.get(table, from)?.map(Person::from_ref) else { return Ok(()) };
    if t.get(table, to)?.is_some() {
        return t.update(table, from, |row| row.set_team(row.team() + 1)).map(drop);
    }
    t.delete(table, from)?;
    t.insert(table, &Person { id: to, team: row.team + 1, ..row })
}

/// The rows by the table and by the index, or by the index and by the table.
fn both_ways<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    index: Index<Person, u16>,
    index_first: bool,
) -> Result<(Vec<Person>, Vec<Person>), Error> {
    let entries = |t: &mut T| {
        let mut rows = t.scan_range_by::<_, _, u16>(table, index, ..).rows()?;
        rows.sort_unstable_by_key(|row| row.id);
        Ok::<_, Error>(rows)
    };
    if index_first {
        let entries = entries(t)?;
        return Ok((t.scan(table, ..).rows()?, entries));
    }
    let rows = t.scan(table, ..).rows()?;
    Ok((rows, entries(t)?))
}

/// An index comes and goes beside transactions and snapshots that use it and others that move rows: what is answered by it is what the table
/// answers, as far as anything is.
pub fn indexes_under_load<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let definition = polychron_engine::TableDefinition { indexes: Vec::new(), ..Person::definition() };
    let database = setup.open();
    let table: Table<Person> = Table::from_id(database.create_table(definition).unwrap());
    done(&mut database.worker().unwrap(), |t| {
        (0..MOVED).try_for_each(|id| t.insert(&table, &person(2 * id, 0, id as u32)))
    });
    setup.pass(&database, 3);
    let (over, present) = (AtomicBool::new(false), Mutex::new(None));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (database, over) = (&database, &over);
            scope.spawn(move || {
                let (mut worker, mut random) = (database.worker().unwrap(), Random::stream(8, thread));
                while !over.load(Ordering::Relaxed) {
                    let (from, to) = (random.below(KEYS), random.below(KEYS));
                    done(&mut worker, |t| move_row(t, &table, from, to));
                    (setup.tick)(database);
                }
            });
        }
        for mode in [Mode::ReadWrite, Mode::Snapshot] {
            let (database, over, present) = (&database, &over, &present);
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                for round in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let Some(index) = *present.lock().unwrap() else { continue };
                    let seen = drive::transact(&mut worker, mode, &mut |t| both_ways(t, &table, index, round % 2 == 0));
                    match seen {
                        Ok((rows, entries)) => {
                            let twice: Vec<_> = entries.windows(2).filter(|two| two[0].id == two[1].id).collect();
                            let lost: Vec<_> = rows.iter().filter(|row| !entries.contains(row)).collect();
                            assert!(rows == entries, "by the index, {mode:?}: twice {twice:?}, not at all {lost:?}");
                        }
                        Err(Error::NoSuchIndex(..)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let _over = Over(&over);
        for _ in 0..10 {
            let made = database.create_index(table.id(), Person::definition().indexes[0].clone()).unwrap();
            *present.lock().unwrap() = Some(Index::new("by_team", made.position() - 1, false, false));
            for _ in 0..20 {
                (setup.tick)(&database);
                std::thread::yield_now();
            }
            database.drop_index(table.id(), made).unwrap();
            *present.lock().unwrap() = None;
        }
    });
}

/// Tables come and go beside transactions and snapshots that use them and others that move rows.
pub fn tables_under_load<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, steady) = items(setup, &[(1, 0)]);
    let make = || {
        let table: Table<Person> = create(&database);
        done(&mut database.worker().unwrap(), |t| {
            (0..MOVED).try_for_each(|id| t.insert(&table, &person(2 * id, 0, id as u32)))
        });
        setup.pass(&database, 3);
        table
    };
    let (over, present) = (AtomicBool::new(false), Mutex::new(make()));
    let gone = |answer: Result<(), Error>| match answer {
        Ok(()) | Err(Error::NoSuchTable(_)) => {}
        Err(error) => panic!("{error}"),
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (database, over, present) = (&database, &over, &present);
            scope.spawn(move || {
                let (mut worker, mut random) = (database.worker().unwrap(), Random::stream(9, thread));
                while !over.load(Ordering::Relaxed) {
                    let table = *present.lock().unwrap();
                    let (from, to) = (random.below(KEYS), random.below(KEYS));
                    if thread < 2 {
                        done(&mut worker, |t| t.update(&steady, 1, |row| row.set_value(row.value() + 1)));
                        gone(run(&mut worker, |t| move_row(t, &table, from, to)));
                        (setup.tick)(database);
                        continue;
                    }
                    let mode = if thread == 2 { Mode::Snapshot } else { Mode::ReadWrite };
                    gone(
                        drive::transact(&mut worker, mode, &mut |t| both_ways(t, &table, Person::BY_TEAM, from < to))
                            .map(|(rows, entries)| {
                                assert_eq!(rows, entries, "by the table, and by the index, {mode:?}");
                                assert!(rows.is_empty() || rows.len() as u64 == MOVED, "{} rows, {mode:?}", rows.len());
                            }),
                    );
                }
            });
        }
        let _over = Over(&over);
        for _ in 0..10 {
            for _ in 0..20 {
                (setup.tick)(&database);
                std::thread::yield_now();
            }
            let table = *present.lock().unwrap();
            database.drop_table(table.id()).unwrap();
            *present.lock().unwrap() = make();
        }
    });
    assert!(snapshot(&mut database.worker().unwrap(), |t| t.get(&steady, 1).map(|row| row.is_some())));
    let _: Table<Item> = steady;
}

/// Ends the load, whatever happens.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
