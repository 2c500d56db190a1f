//! Changes of the catalog while transactions run: tables and indexes come and go.

use std::ops::Bound;

use polychron_base::Error;
use polychron_engine::{IndexDefinition, Interactive, Operations, Protocol, Row, Table, TableDefinition};
use polychron_schema::Index;

use crate::Setup;
use crate::rows::{Item, Person, person};
use crate::setup::{begin, create, done, items, persons, run, snapshot};

/// The persons' table without its indexes.
fn plain() -> TableDefinition {
    TableDefinition { indexes: Vec::new(), ..Person::definition() }
}

/// A table of persons whose indexes are still to be made.
fn plain_persons<P: Protocol<Worker: Interactive>>(
    setup: &Setup<P>,
    rows: impl Iterator<Item = Person>,
) -> (std::sync::Arc<P>, Table<Person>) {
    let database = setup.open();
    let table = Table::from_id(database.create_table(plain()).unwrap());
    let rows: Vec<_> = rows.collect();
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| rows.iter().try_for_each(|row| t.insert(&table, row)));
    (database, table)
}

fn index(position: usize) -> IndexDefinition {
    Person::definition().indexes[position].clone()
}

/// Tables are found by name while they are there; a dropped one is an error, and its name is free.
pub fn tables_come_and_go<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let mut worker = database.worker().unwrap();
    for _ in 0..5 {
        assert_eq!(database.find_table("item"), None);
        let table: Table<Item> = create(&database);
        assert_eq!(database.find_table("item"), Some(table.id()));
        assert_eq!(database.table_names(), ["item"]);
        done(&mut worker, |t| t.insert(&table, &Item { id: 1, value: 10 }));
        database.drop_table(table.id()).unwrap();
        let gone = run(&mut worker, |t| Ok(t.get(&table, 1)?.is_some()));
        assert!(matches!(gone, Err(Error::NoSuchTable(_))), "{gone:?}");
        assert_eq!(database.table_names(), [""; 0]);
        assert!(matches!(database.drop_table(table.id()), Err(Error::NoSuchTable(_))));
        assert!(matches!(database.definition(table.id()), Err(Error::NoSuchTable(_))));
    }
}

/// A second table or index of one name is refused, and so is a definition that breaks a rule.
pub fn names_are_taken<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[]);
    assert!(matches!(database.create_table(Person::definition()), Err(Error::NameTaken(_))));
    assert!(matches!(database.create_index(table.id(), index(0)), Err(Error::NameTaken(_))));
    let broken = IndexDefinition::new("broken", [77]);
    assert!(matches!(database.create_index(table.id(), broken), Err(Error::Definition(_))));
    let broken = TableDefinition::new("broken");
    assert!(matches!(database.create_table(broken), Err(Error::Definition(_))));
    assert_eq!(database.definition(table.id()).unwrap().indexes.len(), 2);
}

/// A transaction that runs while its table is dropped ends in one of two ways: as if before, or with a typed error.
pub fn tables_under_transactions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    let (database, table) = items(setup, &[(1, 10)]);
    let mut worker = database.worker().unwrap();
    let mut client = begin(&mut worker);
    client.step(|t| t.insert(&table, &Item { id: 2, value: 20 }));
    client.step(|t| t.update(&table, 1, |row| row.set_value(11)));
    database.drop_table(table.id()).unwrap();
    let again: Table<Item> = create(&database);
    setup.pass(&database, 3);
    client.step(|t| t.delete(&table, 1));
    client.commit();
    setup.pass(&database, 3);
    done(&mut worker, |t| {
        assert_eq!(t.scan(&again, ..).count()?, 0);
        t.insert(&again, &Item { id: 1, value: 1 })
    });
}

/// A new index holds exactly the rows, and follows them from then on.
pub fn new_index_on_a_full_table<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = plain_persons(setup, (0..300).map(|id| person(id, (id % 7) as u16, id as u32)));
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| (0..50).try_for_each(|id| t.delete(&table, id).map(drop)));
    for position in 0..2 {
        database.create_index(table.id(), index(position)).unwrap();
    }
    assert_eq!(database.definition(table.id()).unwrap().indexes, Person::definition().indexes);
    done(&mut worker, |t| {
        for team in 0..7 {
            let expected: Vec<_> = (50..300).filter(|id| id % 7 == u64::from(team)).collect();
            let found: Vec<_> = t.scan_by(&table, Person::BY_TEAM, team).map(|row| row.id()).collect()?;
            assert_eq!(found, expected);
        }
        assert_eq!(t.scan_by(&table, Person::BY_CODE, Some(77)).count()?, 1);
        t.update(&table, 77, |row| row.set_team(9))?;
        assert_eq!(t.scan_by(&table, Person::BY_TEAM, 9).count()?, 1);
        Ok(())
    });
}

/// A snapshot that can use a new index finds in it all the rows that it can see.
pub fn new_index_is_seen_by_snapshots<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = plain_persons(setup, (0..30).map(|id| person(id, 1, id as u32)));
    setup.pass(&database, 3);
    let mut worker = database.worker().unwrap();
    database.create_index(table.id(), index(0)).unwrap();
    let (rows, entries) =
        snapshot(&mut worker, |t| Ok((t.scan(&table, ..).count()?, t.scan_by(&table, Person::BY_TEAM, 1).count()?)));
    assert_eq!((rows, entries), (30, 30));
}

/// A unique index on rows that are not is refused, and the table is as before.
pub fn new_unique_index_on_duplicates<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = plain_persons(setup, (0..100).map(|id| person(id, 1, (id % 99) as u32)));
    let mut worker = database.worker().unwrap();
    let unique = IndexDefinition { name: "one_code".into(), ..index(1) };
    let refused = database.create_index(table.id(), unique.clone());
    assert!(matches!(refused, Err(Error::Duplicate { .. })), "{refused:?}");
    assert_eq!(database.definition(table.id()).unwrap().indexes, []);
    done(&mut worker, |t| {
        assert_eq!(t.scan(&table, ..).count()?, 100);
        t.insert(&table, &person(100, 1, 5))?;
        t.delete(&table, 100)?;
        t.delete(&table, 99)
    });
    let made = database.create_index(table.id(), unique).unwrap();
    let refused = run(&mut worker, |t| t.insert(&table, &person(200, 1, 5)));
    assert!(matches!(refused, Err(Error::Duplicate(ref of)) if of.index == made), "{refused:?}");
}

/// An index that is made while others write holds in the end exactly what the rows say.
pub fn new_index_under_writers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = plain_persons(setup, (0..200).map(|id| person(id, (id % 5) as u16, id as u32)));
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let database = &database;
            scope.spawn(move || {
                let mut worker = database.worker().unwrap();
                let mut random = polychron_base::random::Random::stream(5, thread);
                for _ in 0..1500 {
                    let (id, team) = (random.below(200), random.below(5) as u16);
                    done(&mut worker, |t| {
                        if team == 0 {
                            t.delete(&table, id).map(drop)
                        } else {
                            t.upsert(&table, &person(id, team, id as u32))
                        }
                    });
                }
            });
        }
        for position in 0..2 {
            database.create_index(table.id(), index(position)).unwrap();
        }
    });
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let rows = t.scan(&table, ..).rows()?;
        let mut by_team: Vec<_> = rows.iter().map(|row| (row.team, row.id)).collect();
        by_team.sort_unstable();
        let found: Vec<_> =
            t.scan_range_by::<_, _, u16>(&table, Person::BY_TEAM, ..).map(|row| (row.team(), row.id())).collect()?;
        assert_eq!(found, by_team);
        let by_code: Vec<_> =
            t.scan_range_by::<_, _, Option<u32>>(&table, Person::BY_CODE, ..).map(|row| row.id()).collect()?;
        assert_eq!(by_code, rows.iter().map(|row| row.id).collect::<Vec<_>>());
        Ok(())
    });
}

/// A transaction that began before an index was added does not know it. What it does to a row whose entry a transaction that
/// knows the index made meanwhile must not leave that entry behind.
pub fn new_index_under_an_older_transaction<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    if !setup.interleaves {
        return;
    }
    for deletes in [false, true] {
        let (database, table) = plain_persons(setup, (0..3).map(|id| person(id, 1, id as u32)));
        let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
        let mut older = begin(&mut left);
        older.step(|t| t.get(&table, 0).map(drop));
        std::thread::scope(|scope| {
            let made = scope.spawn(|| database.create_index(table.id(), index(0)).unwrap());
            // The index is in the catalog before the older transaction is waited for.
            while database.definition(table.id()).unwrap().indexes.is_empty() {
                std::thread::yield_now();
            }
            done(&mut right, |t| t.update(&table, 1, |row| row.set_team(2)));
            older.step(|t| if deletes { t.delete(&table, 1) } else { t.update(&table, 1, |row| row.set_team(3)) });
            older.commit();
            made.join().unwrap();
        });
        done(&mut right, |t| {
            let rows = t.scan(&table, ..).rows()?;
            let found = t.scan_range_by::<_, _, u16>(&table, Person::BY_TEAM, ..).rows()?;
            assert_eq!(found.len(), rows.len());
            assert!(rows.iter().all(|row| found.contains(row)), "{found:?}");
            Ok(())
        });
    }
}

/// A dropped index is gone for new transactions, its place is not given away, and the others work on.
pub fn dropped_index<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 1, 1), person(2, 1, 2)]);
    let mut worker = database.worker().unwrap();
    database.drop_index(table.id(), polychron_base::IndexId(1)).unwrap();
    let again = database.drop_index(table.id(), polychron_base::IndexId(1));
    assert!(matches!(again, Err(Error::NoSuchIndex(..))), "{again:?}");
    let primary = database.drop_index(table.id(), polychron_base::IndexId::PRIMARY);
    assert!(matches!(primary, Err(Error::NoSuchIndex(..))), "{primary:?}");
    let gone = [
        run(&mut worker, |t| t.scan_by(&table, Person::BY_TEAM, 1).count()),
        run(&mut worker, |t| t.scan_by(&table, Person::BY_TEAM, 1).limit(0).count()),
        run(&mut worker, |t| {
            t.scan_range_by::<_, _, u16>(&table, Person::BY_TEAM, (Bound::Excluded(3), Bound::Excluded(3))).count()
        }),
        run(&mut worker, |t| t.scan_range_by::<_, _, u16>(&table, Person::BY_TEAM, ..).limit(0).count()),
        run(&mut worker, |t| t.scan_by(&table, Person::BY_TEAM, 1).first(|row| row.id()).map(|_| 0)),
        run(&mut worker, |t| t.scan_by(&table, Person::BY_TEAM, 1).for_each(|_| ()).map(|()| 0)),
    ];
    assert!(gone.iter().all(|answer| matches!(answer, Err(Error::NoSuchIndex(..)))), "{gone:?}");
    done(&mut worker, |t| {
        t.update(&table, 1, |row| row.set_team(5))?;
        assert_eq!(t.scan_by(&table, Person::BY_CODE, Some(2)).count()?, 1);
        t.insert(&table, &person(3, 1, 3))
    });
    let made = database.create_index(table.id(), index(0)).unwrap();
    assert_ne!(made, polychron_base::IndexId(2), "the other index has that id");
    let by_team: Index<Person, u16> = Index::new("by_team", made.position() - 1, false, false);
    assert_eq!(done(&mut worker, |t| t.scan_by(&table, by_team, 1).count()), 2);
    let names: Vec<_> =
        database.definition(table.id()).unwrap().indexes.iter().map(|index| index.name.clone()).collect();
    assert_eq!(names, ["by_code", "by_team"]);
}
