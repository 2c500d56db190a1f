//! Snapshots: consistent, unchanging, never refused, however long they are open and whatever happens meanwhile.

use std::sync::Arc;

use polychron_base::Error;
use polychron_base::key::Key8;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::{
    Interactive, Isolation, Mode, Operations, Projection, Protocol, Row, Table, Transaction, Worker,
};

use crate::Setup;
use crate::client::Client;
use crate::rows::{Cell, Item, Person, person, set, value};
use crate::setup::{done, items, persons, run, snapshot};

/// Lets changes become visible to snapshots that begin from now on.
fn quiesce<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, database: &Arc<P>) {
    setup.pass(database, 3);
}

/// What a snapshot saw first it sees to its end; a later one sees the changes.
pub fn see_no_later_change<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    quiesce(setup, &database);
    if setup.interleaves && !setup.snapshots_lock {
        let mut client = Client::begin(&mut left, Mode::Snapshot);
        assert!(client.is_running());
        for round in 0..5 {
            let seen = client.step(|t| t.scan(&table, ..).map(|row| (row.id(), row.value())).collect::<Vec<_>>());
            assert_eq!(seen, Some(vec![(1, 10), (2, 20)]), "round {round}");
            done(&mut right, |t| {
                set(t, &table, 1, round)?;
                t.insert(&table, &Item { id: 3 + round as u64, value: 0 })
            });
            quiesce(setup, &database);
            right.maintain();
        }
        assert!(client.commit());
    }
    done(&mut right, |t| t.upsert(&table, &Item { id: 1, value: 99 }));
    quiesce(setup, &database);
    assert_eq!(snapshot(&mut left, |t| Ok(t.get(&table, 1)?.map(|row| row.value()))), Some(99));
}

/// Two rows that always change together are never seen apart.
pub fn are_consistent_under_writers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0), (2, 0)]);
    quiesce(setup, &database);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut worker = database.worker().unwrap();
            for round in 1..2000 {
                done(&mut worker, |t| {
                    t.update(&table, 1, |row| row.set_value(round))?;
                    t.update(&table, 2, |row| row.set_value(-round))
                });
                if round % 16 == 0 {
                    (setup.tick)(&database);
                }
            }
        });
        let mut worker = database.worker().unwrap();
        let (mut latest, mut rounds) = (0, 0);
        while !writer.is_finished() || rounds < 10 {
            let (one, two) = snapshot(&mut worker, |t| {
                let one = t.get(&table, 1)?.map_or(0, |row| row.value());
                Ok((one, t.get(&table, 2)?.map_or(0, |row| row.value())))
            });
            assert_eq!(one, -two, "half of a transaction was seen");
            assert!(one >= latest, "time went back from {latest} to {one}");
            latest = one;
            rounds += 1;
        }
    });
}

/// Rows that are deleted, and deleted keys that are used again, stay as they were for a snapshot that began before.
pub fn keep_deleted_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.snapshots_lock {
        return;
    }
    let rows: Vec<_> = (0..50).map(|id| person(id, (id % 3) as u16, id as u32)).collect();
    let (database, table) = persons(setup, &rows);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    quiesce(setup, &database);
    let mut client = Client::begin(&mut left, Mode::Snapshot);
    let check = |client: &mut Client<_>| {
        let seen = client.step(|t: &mut crate::setup::Tx<'_, P>| {
            assert_eq!(t.scan_by(&table, Person::BY_TEAM, 1).count()?, 17);
            assert_eq!(t.scan_by(&table, Person::BY_CODE, Some(7)).first(|row| row.id())?, Some(7));
            assert_eq!(t.get(&table, 7)?.map(|row| row.text().to_owned()).as_deref(), Some("person 7"));
            assert_eq!(t.scan(&table, ..).rev().count()?, 50);
            t.scan(&table, ..).rows()
        });
        assert!(seen.as_ref() == Some(&rows), "the snapshot changed");
    };
    check(&mut client);
    for round in 0..4 {
        done(&mut right, |t| (0..50).try_for_each(|id| t.delete(&table, id).map(drop)));
        quiesce(setup, &database);
        right.maintain();
        check(&mut client);
        done(&mut right, |t| {
            (0..50).try_for_each(|id| {
                let text = "longer".repeat(round * 20);
                t.insert(&table, &Person { text, ..person(id, 1, 1000 + id as u32) })
            })
        });
        quiesce(setup, &database);
        right.maintain();
        check(&mut client);
    }
    assert!(client.commit());
}

/// Snapshots of many ages are open at once, and each keeps seeing its own version of every row.
pub fn keep_many_versions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.snapshots_lock {
        return;
    }
    let (database, table) = persons(setup, &[person(1, 0, 1)]);
    let mut writer = database.worker().unwrap();
    let mut readers: Vec<_> = (0..12).map(|_| database.worker().unwrap()).collect();
    let mut clients = Vec::new();
    for (round, reader) in (0..).zip(&mut readers) {
        done(&mut writer, |t| {
            t.update(&table, 1, |row| {
                row.set_team(round);
                row.set_text(&"v".repeat(usize::from(round) * 37 % 400)).unwrap();
            })
        });
        quiesce(setup, &database);
        writer.maintain();
        let mut client = Client::begin(reader, Mode::Snapshot);
        let first = client.step(|t| t.scan(&table, ..).rows()).unwrap();
        clients.push((client, first));
        for (client, first) in &mut clients {
            let again = client.step(|t| t.scan(&table, ..).rows()).unwrap();
            assert_eq!(again, *first);
        }
    }
    // The newest ends first, then the oldest, so that what lies in the middle must stay.
    while !clients.is_empty() {
        let (client, _) = if clients.len() % 2 == 0 { clients.remove(0) } else { clients.pop().unwrap() };
        assert!(client.commit());
        quiesce(setup, &database);
        writer.maintain();
        done(&mut writer, |t| t.update(&table, 1, |row| row.set_number(row.number() + 1)));
        for (client, first) in &mut clients {
            let again = client.step(|t| t.scan(&table, ..).rows()).unwrap();
            assert_eq!(again, *first);
        }
    }
}

/// Readers on snapshots and a writer that touches everything get along; no client conflicts.
pub fn many_at_once<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..40).map(|id| (id, 1)).collect();
    let (database, table) = items(setup, &rows);
    quiesce(setup, &database);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = database.worker().unwrap();
            for round in 0..300u64 {
                done(&mut worker, |t| {
                    let from = round % 40;
                    t.delete(&table, from)?;
                    t.insert(&table, &Item { id: from, value: 1 })
                });
                if round % 8 == 0 {
                    (setup.tick)(&database);
                    worker.maintain();
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut worker = database.worker().unwrap();
                for _ in 0..150 {
                    let sum: i64 = snapshot(&mut worker, |t| t.scan(&table, ..).map(|row| row.value()).sum());
                    assert_eq!(sum, 40);
                }
            });
        }
    });
    assert!(setup.snapshots_lock || database.statistics().conflicts() == 0);
}

/// Snapshots and their staleness are counted.
pub fn are_counted<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let before = database.statistics();
    for _ in 0..3 {
        snapshot(&mut worker, |t| t.scan(&table, ..).count());
    }
    let after = database.statistics();
    assert_eq!((after.snapshots - before.snapshots, after.commits), (3, before.commits));
    assert!(after.staleness_max_us <= after.staleness_sum_us);
}

/// A thread's snapshot contains what the thread has committed, through whichever worker: calls that bring no worker borrow one each.
pub fn follow_their_thread<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0)]);
    let mut workers: Vec<_> = (0..3).map(|_| database.worker().unwrap()).collect();
    for round in 1..=60 {
        let writer = round as usize % 3;
        done(&mut workers[writer], |t| t.update(&table, 1, |row| row.set_value(round)).map(drop));
        for reader in 1..3 {
            let seen = snapshot(&mut workers[(writer + reader) % 3], |t| Ok(t.get(&table, 1)?.unwrap().value()));
            assert_eq!(seen, round);
        }
    }
}

/// One read alone comes behind what its thread has committed, through whichever worker: an earlier transaction, which has not seen that, no
/// longer changes what was read.
pub fn reads_alone_follow_their_thread<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.isolation == Isolation::Snapshot {
        return;
    }
    let (database, table) = items(setup, &[(1, 0), (2, 0)]);
    let [mut other, mut writer, mut reader] = [(); 3].map(|()| database.worker().unwrap());
    let mut earlier = Client::begin(&mut other, Mode::ReadWrite);
    earlier.step(|t| value(t, &table, 2));
    let wrote = run(&mut writer, |t| set(t, &table, 2, 1)).is_ok();
    let seen =
        reader.read_one(table.id(), Key8::new(1, 8), &Projection::ALL, |row| row.map(|row| Item::VALUE.get(row)));
    earlier.step(|t| set(t, &table, 1, 1));
    let cycle = earlier.commit() && wrote && seen.is_ok_and(|seen| seen == Some(0));
    assert!(!cycle, "the read came before a transaction that came before what the thread has committed");
}

/// A snapshot contains what its session has read, of rows that come and go: alone, by key, and as a number of rows, whatever became of the
/// transaction.
pub fn follow_what_was_read<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0)]);
    let (mut writer, mut reader) = (database.worker().unwrap(), database.worker().unwrap());
    for round in 1..=84 {
        let is_there = round % 2 == 0;
        // On another thread, because snapshots follow what their own thread has committed.
        std::thread::scope(|scope| {
            scope.spawn(|| match is_there {
                true => done(&mut writer, |t| t.insert(&table, &Item { id: 1, value: round })),
                false => done(&mut writer, |t| t.delete(&table, 1).map(drop)),
            });
        });
        let mut read = false;
        let get = |t: &mut <P::Worker as Interactive>::Transaction<'_>| Ok(t.get(&table, 1)?.is_some());
        match round % 7 {
            0 => read = reader.read_one(table.id(), Key8::new(1, 8), &Projection::ALL, |row| row.is_some()).unwrap(),
            1 => read = done(&mut reader, get),
            2 => read = done(&mut reader, |t| Ok(t.scan(&table, ..).count()? == 1)),
            3 => read = done(&mut reader, |t| Ok(t.get_unvalidated(&table, 1)?.is_some())),
            // No transaction that the ones before could conflict with is under way.
            4 => read = get(&mut reader.begin(Mode::ReadWrite).unwrap()).unwrap(),
            rolls_back => {
                let outcome = run(&mut reader, |t| {
                    read = get(t)?;
                    Err::<(), _>(if rolls_back == 5 { polychron_base::Error::RolledBack } else { Error::ReadOnly })
                });
                assert!(outcome.is_err());
            }
        }
        let seen = snapshot(&mut reader, |t| Ok(t.get(&table, 1)?.is_some()));
        assert!(seen == is_there || read != is_there, "round {round}: a snapshot is older than what was read");
    }
}

/// While a snapshot visits a range, tombstones in it leave and their memory is used again. The visit must not notice.
pub fn scan_while_memory_is_used_again<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.snapshots_lock {
        return;
    }
    let rows: Vec<_> = (0..60).map(|id| (id, id as i64)).collect();
    let (database, table): (_, Table<Item>) = items(setup, &rows);
    let (mut reader, mut writer) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut writer, |t| (0..60).filter(|id| id % 2 == 1).try_for_each(|id| t.delete(&table, id).map(drop)));
    quiesce(setup, &database);
    let seen = snapshot(&mut reader, |t| {
        let mut seen = Vec::new();
        t.scan(&table, ..).for_each(|row| {
            seen.push((row.id(), row.value()));
            setup.pass(&database, 2);
            writer.maintain();
            setup.pass(&database, 2);
            writer.maintain();
            // Each update leaves a version behind that is old enough for the snapshot.
            done(&mut writer, |t| (0..60).step_by(2).try_for_each(|id| set(t, &table, id, -1)));
        })?;
        Ok(seen)
    });
    assert_eq!(seen, (0..60).step_by(2).map(|id| (id, id as i64)).collect::<Vec<_>>());
}

/// The rows of a whole table, in the order of their keys; `None` where it has no order and would need it.
fn visit_all<T, R>(
    transaction: &mut T,
    table: &Table<R>,
    pair: impl Fn(R::Ref<'_>) -> (u64, i64),
) -> Option<Vec<(u64, i64)>>
where
    T: Transaction,
    R: Row,
{
    let mut seen = Vec::new();
    if let Err(error) = transaction.visit_all(table, |row| seen.push(pair(row))) {
        let no_order = matches!(error, Error::NoOrder(..));
        assert!(no_order, "a snapshot is not refused for any other reason");
        return None;
    }
    seen.sort_unstable();
    Some(seen)
}

/// Whole tables, ordered and hashed, beside a thread that updates, deletes and brings back rows: two equal tables are
/// seen equal, each row once, as the index shows them.
pub fn whole_tables<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const ROWS: u64 = 200;
    let (database, items) = items(setup, &[]);
    let cells = crate::setup::create::<P, Cell>(&database);
    let mut writer = database.worker().unwrap();
    done(&mut writer, |t| {
        (0..ROWS).try_for_each(|id| {
            t.insert(&items, &Item { id, value: 0 })?;
            t.insert(&cells, &Cell { id, value: 0 })
        })
    });
    quiesce(setup, &database);
    let rounds = scaled(10_000, 300);
    std::thread::scope(|scope| {
        let (database, items, cells) = (&database, &items, &cells);
        let writing = scope.spawn(move || {
            let mut random = Random::stream(3, 0);
            for round in 1..=rounds as i64 {
                let (id, other) = (random.below(ROWS), ROWS + random.below(40));
                done(&mut writer, |t| {
                    match random.below(3) {
                        0 => drop((t.delete(items, id)?, t.delete(cells, id)?)),
                        1 => drop((t.delete(items, other)?, t.delete(cells, other)?)),
                        _ => {
                            for id in [id, other] {
                                t.upsert(items, &Item { id, value: round })?;
                                t.upsert(cells, &Cell { id, value: round })?;
                            }
                        }
                    }
                    Ok(())
                });
                if round % 16 == 0 {
                    (setup.tick)(database);
                    writer.maintain();
                }
            }
        });
        let mut worker = database.worker().unwrap();
        let mut looks = 0;
        while !writing.is_finished() || looks < 10 {
            snapshot(&mut worker, |t| {
                let by_index = t.scan(items, ..).map(|row| (row.id(), row.value())).collect::<Vec<_>>()?;
                for _ in 0..2 {
                    let of_items = visit_all(t, items, |row| (row.id(), row.value()));
                    assert_eq!(of_items.as_ref(), Some(&by_index), "the table is not what its index shows");
                    let of_cells = visit_all(t, cells, |row| (row.id(), row.value()));
                    assert!(of_cells.is_none_or(|seen| seen == by_index), "two tables that change together differ");
                }
                Ok(())
            });
            looks += 1;
        }
    });
}

/// A snapshot finds rows by the secondary values they had.
pub fn by_secondary_index<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves || setup.snapshots_lock {
        return;
    }
    let rows: Vec<_> = (0..20).map(|id| person(id, (id % 4) as u16, id as u32)).collect();
    let (database, table) = persons(setup, &rows);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    quiesce(setup, &database);
    let mut client = Client::begin(&mut left, Mode::Snapshot);
    for round in 0..6u16 {
        let teams = client.step(|t| {
            let mut teams = Vec::new();
            for team in 0..6 {
                teams.push(t.scan_by(&table, Person::BY_TEAM, team).map(|row| row.id()).collect::<Vec<_>>()?);
            }
            Ok(teams)
        });
        let expected: Vec<Vec<u64>> = (0..6).map(|team| (0..20).filter(|id| id % 4 == team).collect()).collect();
        assert_eq!(teams, Some(expected), "round {round}");
        done(&mut right, |t| {
            for id in 0..20 {
                t.update(&table, id, |row| row.set_team((row.team() + 1 + round) % 6))?;
            }
            Ok(())
        });
        quiesce(setup, &database);
        right.maintain();
    }
    assert!(client.commit());
}
