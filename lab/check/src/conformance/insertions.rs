//! An insertion that is left open by a client that does nothing stands in no client's way: who reads its place, or inserts beside it,
//! commits, and who wants its key does so, too, or is told of the key.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use polychron_engine::{Error, Insertion, Interactive, Operations, Protocol, Table, Transaction, Worker};

use crate::Setup;
use crate::rows::{Person, person};
use crate::setup::{Tx, all, begin, done, persons, run, snapshot};
use crate::watch::{Progress, watched};

/// The rows that are there: ten ids, each ten from the next one.
const IDS: std::ops::Range<u64> = 10..20;

fn row(number: u64) -> Person {
    person(number * 10, number as u16 % 2, number as u32)
}

/// Numbers of rows that the idle client inserts: before all others, between them, and behind them.
const NUMBERS: [u64; 3] = [1, 30, 5];

/// The row that the idle client inserts.
fn idle_row(number: u64) -> Person {
    Person { id: if number == 5 { 155 } else { number * 10 }, ..row(number) }
}

/// How the idle client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    RollBack,
    /// It goes back to a savepoint before the insertion, and commits the rest.
    GiveUp,
}

/// What the idle client is to do next, and whether its transaction has committed.
struct Idle {
    go_on: Sender<End>,
    answer: Receiver<bool>,
}

impl Idle {
    /// Lets it end. Whether its insertion has committed.
    fn end(&self, end: End) -> bool {
        self.go_on.send(end).expect("it waits");
        self.answer.recv().expect("it ends") && end == End::Commit
    }
}

/// Runs `work` beside a client, on another thread, that has inserted the row, and does nothing until it is let go on.
fn beside<P: Protocol<Worker: Interactive>>(
    database: &Arc<P>,
    table: &Table<Person>,
    inserts: &Person,
    work: impl FnOnce(&Idle),
) {
    std::thread::scope(|scope| {
        let ((go_on, going), (answers, answer)) = (channel(), channel());
        scope.spawn(move || {
            let mut worker = database.worker().unwrap();
            let mut client = begin(&mut worker);
            let savepoint = client.step(|t| Ok(t.savepoint())).expect("nothing is in its way");
            let inserted = client.step(|t| t.try_insert(table, inserts));
            assert_eq!(inserted, Some(Insertion::Inserted), "nobody has its key");
            answers.send(true).expect("the others wait");
            let committed = match going.recv() {
                Ok(End::Commit) => client.commit(),
                Ok(End::GiveUp) => {
                    client.step(|t| t.roll_back_to(savepoint));
                    client.commit()
                }
                Ok(End::RollBack) => {
                    client.roll_back();
                    false
                }
                // The others have failed.
                Err(_) => return,
            };
            worker.maintain();
            // As above.
            let _ = answers.send(committed);
        });
        let idle = Idle { go_on, answer };
        assert!(idle.answer.recv().expect("it inserts"));
        work(&idle);
    });
}

/// A database in which no client tries for long.
fn open<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> (Arc<P>, Table<Person>) {
    let mut setup = setup.clone();
    setup.common.retry.attempts = 64;
    let rows: Vec<_> = IDS.map(row).collect();
    let opened = persons(&setup, &rows);
    setup.pass(&opened.0, 3);
    opened
}

/// Runs transactions, and asserts that hardly any conflicts.
fn undisturbed<P: Protocol<Worker: Interactive>>(database: &Arc<P>, count: u64, work: impl FnOnce()) {
    let before = database.statistics();
    work();
    let after = database.statistics();
    assert_eq!(after.commits - before.commits, count);
    let conflicts = after.conflicts() - before.conflicts();
    assert!(conflicts <= count / 4, "{conflicts} conflicts of {count} transactions");
}

/// What is asked of the rows, none of which tells of the one that the idle client has inserted.
fn ask<T: Transaction>(t: &mut T, table: &Table<Person>, question: u64, idle: &Person) -> Result<(), Error> {
    let last = IDS.end - 1;
    match question {
        0 => assert_eq!(t.scan(table, ..).count()?, last - IDS.start + 1),
        1 => assert_eq!(t.scan(table, ..).limit(1).first(|row| row.id())?, Some(IDS.start * 10)),
        2 => assert_eq!(t.scan(table, ..).rev().limit(1).first(|row| row.id())?, Some(last * 10)),
        3 => assert!(t.get(table, idle.id)?.is_none()),
        4 => assert_eq!(t.scan_by(table, Person::BY_TEAM, idle.team).count()?, 5),
        5 => assert_eq!(t.scan_by(table, Person::BY_CODE, idle.code).count()?, 0),
        6 => assert!(!t.update(table, idle.id, |row| row.set_number(1))?),
        7 => assert!(!t.delete(table, idle.id)?),
        _ => {
            // A write besides, so that the reads are validated by the protocols that spare readers.
            let rows = t.scan(table, ..).count()?;
            assert!(t.update(table, IDS.start * 10, |row| row.set_number(rows as i64))?);
        }
    }
    Ok(())
}

const QUESTIONS: u64 = 9;

/// Scans in both directions, counts, and reads by each key, at the place of an insertion that its client has left open.
pub fn reads_beside_an_insertion<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        for number in NUMBERS {
            let (inserts, (database, table)) = (idle_row(number), open(&setup));
            beside(&database, &table, &inserts, |idle| {
                let mut worker = database.worker().unwrap();
                undisturbed(&database, 8 * QUESTIONS, || {
                    for round in 0..8 {
                        for question in 0..QUESTIONS {
                            progress.at(format!("round {round}, question {question} beside row {}", inserts.id));
                            done(&mut worker, |t| ask(t, &table, question, &inserts));
                        }
                    }
                });
                for question in 0..6 {
                    snapshot(&mut worker, |t| ask(t, &table, question, &inserts));
                }
                progress.at("the end");
                let committed = idle.end(End::Commit);
                let found = done(&mut worker, |t| Ok(t.get(&table, inserts.id)?.is_some()));
                assert_eq!(found, committed);
            });
        }
    });
}

/// A queue, whose tail is read and appended to and whose head is deleted, beside an insertion that its client has left open.
pub fn insertions_beside_an_insertion<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const COUNT: u64 = 64;
    let setup = setup.clone();
    watched(move |progress| {
        for number in NUMBERS {
            let (inserts, (database, table)) = (idle_row(number), open(&setup));
            beside(&database, &table, &inserts, |idle| {
                let mut worker = database.worker().unwrap();
                undisturbed(&database, COUNT, || {
                    for step in 0..COUNT {
                        progress.at(format!("step {step} beside row {}", inserts.id));
                        // On both sides of the row that is open, if that is behind all others.
                        done(&mut worker, |t| {
                            let tail = t.scan(&table, ..).rev().limit(1).first(|row| row.id())?;
                            let head = t.scan(&table, ..).limit(1).first(|row| row.id())?;
                            assert!(t.delete(&table, head.expect("there are rows"))?);
                            let id = tail.expect("there are rows") + 7;
                            t.insert(&table, &person(id, inserts.team, 1000 + step as u32))
                        });
                        (setup.tick)(&database);
                    }
                });
                progress.at("the end");
                let committed = idle.end(End::Commit);
                let ids: Vec<_> = all(&mut worker, &table).iter().map(|row| row.id).collect();
                assert_eq!(ids.len() as u64, IDS.end - IDS.start + u64::from(committed));
                assert_eq!(ids.contains(&inserts.id), committed);
            });
        }
    });
}

/// What another client does with the key of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Insert,
    Upsert,
    /// A row under another primary key with the same unique code.
    SameCode,
    InsertAndDelete,
    /// The row is larger than the other one.
    InsertLonger,
}

const DEEDS: [Deed; 5] = [Deed::Insert, Deed::Upsert, Deed::SameCode, Deed::InsertAndDelete, Deed::InsertLonger];

impl Deed {
    /// The row that it inserts.
    fn row(self, idle: &Person) -> Person {
        let other = Person { number: -1, ..idle.clone() };
        match self {
            Self::SameCode => Person { id: idle.id + 1, ..other },
            Self::InsertLonger => Person { text: "long".repeat(200), ..other },
            _ => other,
        }
    }

    /// Whether it put a row there; a key or code that is taken is no error.
    fn act<P: Protocol<Worker: Interactive>>(
        self,
        worker: &mut P::Worker,
        table: &Table<Person>,
        idle: &Person,
    ) -> Result<bool, Error>
    where
        P::Worker: 'static,
    {
        let row = self.row(idle);
        run(worker, |t: &mut Tx<'_, P>| match self {
            Self::Upsert => t.upsert(table, &row).map(|()| true),
            Self::InsertAndDelete => {
                if t.try_insert(table, &row)? == Insertion::Inserted {
                    assert!(t.delete(table, row.id)?);
                }
                Ok(false)
            }
            _ => Ok(t.try_insert(table, &row)? == Insertion::Inserted),
        })
    }
}

/// Others want the key, or the unique code, of an insertion that its client has left open: they commit, or are told of the key. Of those
/// that commit one has it, and who is left finds things as they are then.
pub fn wanted_beside_an_insertion<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        for deed in DEEDS {
            for end in [End::Commit, End::RollBack, End::GiveUp] {
                wanted(&setup, deed, end, progress);
            }
        }
    });
}

fn wanted<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, deed: Deed, end: End, progress: &Progress) {
    let (inserts, (database, table)) = (idle_row(30), open(setup));
    let mut worker = database.worker().unwrap();
    beside(&database, &table, &inserts, |idle| {
        progress.at(format!("{deed:?}, {end:?}"));
        let outcome = deed.act::<P>(&mut worker, &table, &inserts);
        let is_there = match &outcome {
            Ok(is_there) => *is_there,
            Err(Error::Conflicts(conflicts)) => {
                let abort = conflicts.abort;
                assert_eq!(abort.table, table.id(), "{deed:?}: {abort}");
                assert!(abort.key.is_some(), "{deed:?}: {abort}");
                false
            }
            Err(error) => panic!("{deed:?}: {error}"),
        };
        setup.pass(&database, 3);
        worker.maintain();
        progress.at(format!("{deed:?}, the {end:?}"));
        let committed = idle.end(end);
        assert!(!committed || !is_there, "{deed:?}: both have the key");
        progress.at(format!("{deed:?} behind the {end:?}"));
        let again = deed.act::<P>(&mut worker, &table, &inserts);
        let now_there = match again {
            Ok(inserted) => inserted || is_there,
            Err(Error::Duplicate { .. }) => is_there,
            Err(error) => panic!("{deed:?} behind the {end:?}: {error}"),
        };
        let expected = match (committed, now_there, deed) {
            (_, true, _) => Some(deed.row(&inserts)),
            (true, false, Deed::InsertAndDelete | Deed::Insert | Deed::InsertLonger | Deed::SameCode) => {
                Some(inserts.clone())
            }
            _ => None,
        };
        let of_code = done(&mut worker, |t| t.scan_by(&table, Person::BY_CODE, inserts.code).rows());
        assert_eq!(of_code.first(), expected.as_ref(), "{deed:?} behind the {end:?}: {of_code:?}");
    });
    // What was given up leaves nothing in the way of others.
    for _ in 0..3 {
        setup.pass(&database, 3);
        worker.maintain();
    }
    for id in [inserts.id, inserts.id + 1] {
        done(&mut worker, |t| t.delete(&table, id));
    }
    done(&mut worker, |t| t.insert(&table, &inserts));
    assert_eq!(all(&mut worker, &table).len() as u64, IDS.end - IDS.start + 1);
}
