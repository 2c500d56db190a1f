//! Secondary indexes: every change of a row moves its entries, and a violation changes nothing.
use polychron_base::{Error, IndexId};
use polychron_engine::{Insertion, Interactive, Operations, Protocol, Row, Table, Transaction};

use crate::Setup;
use crate::rows::{Guest, Page, Person, person};
use crate::setup::{all, create, done, persons, run};

const BY_CODE: IndexId = IndexId(2);

fn team<T: Transaction>(t: &mut T, table: &Table<Person>, team: u16) -> Result<Vec<u64>, Error> {
    t.scan_by(table, Person::BY_TEAM, team).map(|row| row.id()).collect()
}

fn code<T: Transaction>(t: &mut T, table: &Table<Person>, code: u32) -> Result<Option<u64>, Error> {
    t.scan_by(table, Person::BY_CODE, Some(code)).first(|row| row.id())
}

/// Whether an error is the violation of that index.
fn is_duplicate<O>(outcome: Result<O, Error>, of: IndexId) -> bool {
    let outcome = outcome;
    matches!(outcome, Err(Error::Duplicate(taken)) if taken.index == of)
}

/// Lookups see entries come, move and go, in the transaction that does it and afterwards.
pub fn entries_follow_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 1, 1), person(2, 1, 2), person(3, 2, 3)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        assert_eq!((team(t, &table, 1)?, team(t, &table, 2)?), (vec![1, 2], vec![3]));
        t.update(&table, 2, |row| row.set_team(2))?;
        assert_eq!((team(t, &table, 1)?, team(t, &table, 2)?), (vec![1], vec![2, 3]));
        t.update_columns(&table, 3, (Person::CODE, Person::NUMBER), |row| row.set_code(Some(33)))?;
        assert_eq!((code(t, &table, 3)?, code(t, &table, 33)?), (None, Some(3)));
        t.delete(&table, 1)?;
        t.insert(&table, &person(4, 1, 1))?;
        assert_eq!((team(t, &table, 1)?, code(t, &table, 1)?), (vec![4], Some(4)));
        t.update(&table, 4, |row| row.set_team(2))?;
        t.update(&table, 4, |row| row.set_team(1))?;
        Ok(())
    });
    done(&mut worker, |t| {
        assert_eq!((team(t, &table, 1)?, team(t, &table, 2)?), (vec![4], vec![2, 3]));
        assert_eq!((code(t, &table, 1)?, code(t, &table, 3)?, code(t, &table, 33)?), (Some(4), None, Some(3)));
        let range: Vec<_> = t.scan_range_by(&table, Person::BY_TEAM, 1u16..=2).map(|row| row.id()).collect()?;
        assert_eq!(range, [4, 2, 3]);
        let backward: Vec<_> =
            t.scan_range_by(&table, Person::BY_TEAM, 1u16..=2).rev().limit(2).map(|row| row.id()).collect()?;
        assert_eq!(backward, [3, 2]);
        Ok(())
    });
}

/// An update may change an indexed and a growing column at once.
pub fn entries_of_growing_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 1, 1)]);
    let mut worker = database.worker().unwrap();
    for round in 1..30u16 {
        let text = "g".repeat(usize::from(round) * 60);
        done(&mut worker, |t| {
            t.update(&table, 1, |row| {
                row.set_text(&text).unwrap();
                row.set_team(round);
            })
        });
        done(&mut worker, |t| {
            assert_eq!((team(t, &table, round)?, team(t, &table, round - 1)?), (vec![1], vec![]));
            assert_eq!(t.get(&table, 1)?.map(|row| row.text() == text), Some(true));
            Ok(())
        });
        if round % 5 == 0 {
            (setup.tick)(&database);
        }
    }
}

/// A row that violates a unique index is refused as a whole, and the transaction goes on.
pub fn violations_change_nothing<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let before = [person(1, 1, 1), person(2, 2, 2)];
    let (database, table) = persons(setup, &before);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        assert_eq!(t.try_insert(&table, &person(3, 3, 1))?, Insertion::Duplicate(BY_CODE));
        assert!(is_duplicate(t.upsert(&table, &person(3, 3, 2)), BY_CODE));
        assert!(is_duplicate(t.upsert(&table, &person(1, 3, 2)), BY_CODE));
        assert!(is_duplicate(t.update(&table, 1, |row| row.set_code(Some(2))), BY_CODE));
        let team_too = t.update(&table, 1, |row| {
            row.set_team(9);
            row.set_code(Some(2));
        });
        assert!(is_duplicate(team_too, BY_CODE));
        assert_eq!(t.scan(&table, ..).rows()?, before);
        assert_eq!((team(t, &table, 1)?, team(t, &table, 3)?, team(t, &table, 9)?), (vec![1], vec![], vec![]));
        assert_eq!((code(t, &table, 1)?, code(t, &table, 2)?), (Some(1), Some(2)));
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), before);
    done(&mut worker, |t| {
        assert_eq!((team(t, &table, 1)?, team(t, &table, 3)?, team(t, &table, 9)?), (vec![1], vec![], vec![]));
        assert_eq!((code(t, &table, 1)?, code(t, &table, 2)?), (Some(1), Some(2)));
        Ok(())
    });
    let refused = run(&mut worker, |t| t.insert(&table, &person(3, 3, 1)));
    assert!(matches!(refused, Err(Error::Duplicate(ref of)) if of.index == BY_CODE), "{refused:?}");
}

/// A row whose secondary key is too long is refused as a whole.
pub fn too_long_entries_change_nothing<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Page>(&database);
    let mut worker = database.worker().unwrap();
    let page = |path: &str, title: usize| Page { path: path.into(), title: "t".repeat(title), visits: 0 };
    let too_long = |outcome: Result<bool, Error>| matches!(outcome, Err(Error::KeyTooLong(_)));
    done(&mut worker, |t| {
        t.insert(&table, &page("a", 10))?;
        assert!(too_long(t.insert(&table, &page("b", 2000)).map(|()| true)));
        assert!(too_long(t.upsert(&table, &page("a", 2000)).map(|()| true)));
        assert!(too_long(t.update(&table, "a", |row| row.set_title(&"t".repeat(2000)).unwrap())));
        assert_eq!(t.scan(&table, ..).rows()?, [page("a", 10)]);
        Ok(())
    });
    assert_eq!(all(&mut worker, &table), [page("a", 10)]);
    let entries = done(&mut worker, |t| t.scan_range_by::<Page, _, &str>(&table, Page::BY_TITLE, ..).count());
    assert_eq!(entries, 1);
}

/// Values of unique columns can be given away and taken within one transaction.
pub fn unique_values_change_hands<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 1, 1), person(2, 1, 2)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        t.update(&table, 1, |row| row.set_code(Some(100)))?;
        t.update(&table, 2, |row| row.set_code(Some(1)))?;
        t.update(&table, 1, |row| row.set_code(Some(2)))?;
        assert_eq!((code(t, &table, 1)?, code(t, &table, 2)?, code(t, &table, 100)?), (Some(2), Some(1), None));
        Ok(())
    });
    done(&mut worker, |t| {
        assert_eq!((code(t, &table, 1)?, code(t, &table, 2)?, code(t, &table, 100)?), (Some(2), Some(1), None));
        t.delete(&table, 2)?;
        t.insert(&table, &person(3, 1, 1))
    });
    assert_eq!(done(&mut worker, |t| code(t, &table, 1)), Some(3));
}

/// A unique column of text finds the value and not those that begin with it.
pub fn unique_text<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, crate::rows::Town>(&database);
    let mut worker = database.worker().unwrap();
    let names = ["Ham", "Hamburg", "", "Hamm"];
    done(&mut worker, |t| {
        (1..).zip(names).try_for_each(|(id, name)| t.insert(&table, &crate::rows::Town { id, name: name.into() }))
    });
    done(&mut worker, |t| {
        for (id, name) in (1..).zip(names) {
            let found: Vec<u64> = t.scan_by(&table, crate::rows::Town::BY_NAME, name).map(|row| row.id()).collect()?;
            assert_eq!(found, [id], "{name}");
        }
        Ok(())
    });
}

/// A unique hash index refuses duplicates and follows changes.
pub fn hash_entries<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Guest>(&database);
    let mut worker = database.worker().unwrap();
    let guest = |id, badge| Guest { id, badge, room: 1 };
    done(&mut worker, |t| {
        t.insert(&table, &guest(1, 1))?;
        assert_eq!(t.try_insert(&table, &guest(2, 1))?, Insertion::Duplicate(IndexId(1)));
        t.insert(&table, &guest(2, 2))?;
        t.update(&table, 1, |row| row.set_badge(3))?;
        t.update(&table, 2, |row| row.set_room(3))?;
        assert_eq!(t.try_insert(&table, &guest(3, 1))?, Insertion::Inserted);
        Ok(())
    });
    let expected = [guest(1, 3), Guest { room: 3, ..guest(2, 2) }, guest(3, 1)];
    assert_eq!(all(&mut worker, &table), expected);
}

/// A unique hash index is looked up by equality.
pub fn hash_lookup<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Guest>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| (1..50).try_for_each(|id| t.insert(&table, &Guest { id, badge: id as u32 * 3, room: 1 })));
    done(&mut worker, |t| {
        assert_eq!(t.scan_by(&table, Guest::BY_BADGE, 9).first(|row| row.id())?, Some(3));
        assert_eq!(t.scan_by(&table, Guest::BY_BADGE, 10).first(|row| row.id())?, None);
        Ok(())
    });
}

/// A non-unique hash index is looked up by equality.
pub fn shared_hash_lookup<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Guest>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        (1..9).try_for_each(|id| t.insert(&table, &Guest { id, badge: id as u32, room: id as u32 % 2 }))
    });
    let odd: Vec<u64> = done(&mut worker, |t| t.scan_by(&table, Guest::BY_ROOM, 1).map(|row| row.id()).collect());
    assert_eq!(odd, [1, 3, 5, 7]);
}

/// The definition lists the indexes under the ids that violations name.
pub fn definitions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[]);
    let definition = database.definition(table.id()).unwrap();
    assert_eq!(definition.indexes, Person::definition().indexes);
    assert_eq!(database.find_table("person"), Some(table.id()));
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        assert_eq!(t.definition(table.id())?.columns, Person::definition().columns);
        Ok(())
    });
}
