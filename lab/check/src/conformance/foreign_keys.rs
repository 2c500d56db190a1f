//! Foreign keys: a row's parent exists, even if another client deletes it meanwhile. Not part of [`conformance!`](macro@crate::conformance),
//! because the checks stand in the engine once: a test of its own runs these for each protocol.

use polychron_base::key::Key8;
use polychron_base::{Error, IndexId};
use polychron_engine::{
    Becomes, Futures, IndexDefinition, Insertion, Interactive, Operations, Protocol, Row, RowBuffer, Table,
    TableDefinition,
};
use polychron_schema::ForeignKeyDefinition;
use std::sync::Arc;

use crate::Setup;
use crate::setup::{all, begin, create, done, run};

/// A parent.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
struct Shelf {
    #[key]
    id: u64,
    books: i64,
}

/// A child found by a secondary index, and the parent of others.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[index(name = "by_shelf", columns(shelf))]
#[references(row = Shelf, columns(shelf))]
struct Book {
    #[key]
    id: u64,
    shelf: Option<u64>,
    pages: u32,
}

/// A child found by its primary key.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[references(row = Book, columns(book))]
struct Leaf {
    #[key]
    book: u64,
    #[key]
    number: u32,
}

/// A row that refers to its own table.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[row(name = "part")]
#[index(name = "by_whole", columns(whole))]
#[references(table = "part", columns(whole))]
struct Part {
    #[key]
    id: u64,
    whole: Option<u64>,
}

/// A child whose parent can be a future.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[index(name = "by_shelf", columns(shelf))]
#[references(row = Shelf, columns(shelf))]
struct Card {
    #[key]
    id: u64,
    shelf: u64,
}

struct Library {
    shelves: Table<Shelf>,
    books: Table<Book>,
}

fn library<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> (Arc<P>, Library) {
    let database = setup.open();
    let (shelves, books) = (create(&database), create(&database));
    let mut worker = database.worker().expect("a slot is free");
    done(&mut worker, |t| (1..=3).try_for_each(|id| t.insert(&shelves, &Shelf { id, books: 0 })));
    (database, Library { shelves, books })
}

fn book(id: u64, shelf: u64) -> Book {
    Book { id, shelf: Some(shelf), pages: 0 }
}

/// What an operation came to that may be refused: conflicts are passed on.
fn caught<O>(outcome: Result<O, Error>) -> Result<Result<O, Error>, Error> {
    match outcome {
        Ok(output) => Ok(Ok(output)),
        Err(Error::Conflict) => Err(Error::Conflict),
        Err(error) => Ok(Err(error)),
    }
}

/// Rows that break a foreign key are refused whole, others are not, and the transaction goes on.
pub fn hold<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, Library { shelves, books }) = library(setup);
    let leaves = create::<P, Leaf>(&database);
    let mut worker = database.worker().unwrap();
    let no_shelf = |outcome: &Result<(), Error>| {
        let Err(Error::NoParent(missing)) = outcome else { return false };
        let (table, parent, key) = (missing.table, missing.parent, missing.key);
        (table, parent, key.bytes()) == (books.id(), shelves.id(), &9u64.to_be_bytes()[..])
    };
    done(&mut worker, |t| {
        assert!(no_shelf(&caught(t.insert(&books, &book(1, 9)))?));
        assert!(t.get(&books, 1)?.is_none(), "what was refused is undone");
        assert!(no_shelf(&caught(t.upsert(&books, &book(1, 9)))?));
        t.insert(&books, &Book { id: 1, shelf: None, pages: 3 })?;
        assert!(no_shelf(&caught(t.update(&books, 1, |row| row.set_shelf(Some(9))).map(drop))?));
        assert_eq!(t.get(&books, 1)?.map(|row| row.shelf()), Some(None));
        assert!(t.update(&books, 1, |row| row.set_shelf(Some(1)))?);
        assert!(t.update_columns(&books, 1, Book::PAGES, |row| row.set_pages(4))?);
        t.insert(&leaves, &Leaf { book: 1, number: 1 })?;
        t.insert(&shelves, &Shelf { id: 4, books: 0 })?;
        t.insert(&books, &book(4, 4))
    });
    done(&mut worker, |t| {
        let Err(Error::HasChildren(held)) = caught(t.delete(&shelves, 1))? else { panic!("a parent went") };
        assert_eq!((held.table, held.child, held.key.bytes()), (shelves.id(), books.id(), &1u64.to_be_bytes()[..]));
        assert!(t.get(&shelves, 1)?.is_some(), "what was refused is undone");
        assert!(matches!(caught(t.delete(&books, 1))?, Err(Error::HasChildren { .. })));
        assert!(t.delete(&shelves, 2)?, "nothing refers to it");
        assert!(t.delete(&leaves, (1, 1))? && t.delete(&books, 1)? && t.delete(&shelves, 1)?);
        assert!(!t.delete(&shelves, 1)?);
        Ok(())
    });
    assert_eq!(all(&mut worker, &books), [book(4, 4)]);
    assert_eq!(all(&mut worker, &shelves).iter().map(|row| row.id).collect::<Vec<_>>(), [3, 4]);
    let refused = run(&mut worker, |t| t.insert(&books, &book(5, 9)));
    assert!(no_shelf(&refused), "an error that is not caught ends the transaction: {refused:?}");
}

/// They hold for rows that come as bytes.
pub fn of_bytes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, Library { shelves, books }) = library(setup);
    let mut worker = database.worker().unwrap();
    let key = |id| Key8::new(id, 8);
    let encoded = |id, shelf| {
        let mut buffer = RowBuffer::new();
        book(id, shelf).encode(&mut buffer).unwrap();
        buffer
    };
    done(&mut worker, |t| {
        let (orphan, child) = (encoded(1, 9), encoded(1, 1));
        assert!(matches!(caught(t.insert_row(books.id(), key(1), orphan.as_row()))?, Err(Error::NoParent { .. })));
        assert!(matches!(caught(t.put_row(books.id(), key(1), orphan.as_row()))?, Err(Error::NoParent { .. })));
        assert!(t.get(&books, 1)?.is_none(), "what was refused is undone");
        assert_eq!(t.insert_row(books.id(), key(1), child.as_row())?, Insertion::Inserted);
        let moved = t.update_row(books.id(), key(1), &Book::SHELF.projection(), |row| Book::SHELF.set(row, Some(9)));
        assert!(matches!(caught(moved)?, Err(Error::NoParent { .. })));
        assert!(matches!(caught(t.delete_row(shelves.id(), key(1)))?, Err(Error::HasChildren { .. })));
        assert!(t.delete_row(shelves.id(), key(2))?);
        Ok(())
    });
    assert_eq!(all(&mut worker, &books), [book(1, 1)]);
    assert_eq!(all(&mut worker, &shelves).iter().map(|row| row.id).collect::<Vec<_>>(), [1, 3]);
}

/// A row may refer to itself, and goes with its own reference.
pub fn to_their_own_table<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let parts = create::<P, Part>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        t.insert(&parts, &Part { id: 1, whole: Some(1) })?;
        assert_eq!(t.try_insert(&parts, &Part { id: 1, whole: Some(7) })?, Insertion::Duplicate(IndexId::PRIMARY));
        t.insert(&parts, &Part { id: 2, whole: Some(1) })?;
        assert!(matches!(caught(t.delete(&parts, 1))?, Err(Error::HasChildren { .. })));
        assert!(t.delete(&parts, 2)? && t.delete(&parts, 1)?);
        Ok(())
    });
    assert_eq!(all(&mut worker, &parts), []);
}

/// What a future makes of a foreign key is known at once, and refused at once.
pub fn of_futures<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, Library { shelves, .. }) = library(setup);
    let cards = create::<P, Card>(&database);
    let mut worker = database.worker().unwrap();
    let has_no_parent =
        |outcome: Result<(), Error>| Ok::<_, Error>(matches!(caught(outcome)?, Err(Error::NoParent { .. })));
    done(&mut worker, |t| {
        let two = t.future(&shelves, 2, Shelf::ID)?;
        t.insert_future(&cards, &Card { id: 1, shelf: 0 }, [Card::SHELF.becomes(two + 1)])?;
        let nowhere = Card { id: 2, shelf: 0 };
        assert!(has_no_parent(t.insert_future(&cards, &nowhere, [Card::SHELF.becomes(two + 7)]))?);
        assert!(has_no_parent(t.insert_future(&cards, &nowhere, [Card::ID.becomes(two)]))?, "the parent is known");
        assert!(has_no_parent(t.set_futures(&cards, 1, [Card::SHELF.becomes(two + 7)]))?);
        assert!(has_no_parent(t.set_futures_at(&cards, two - 1, [Card::SHELF.becomes(two + 7)]))?);
        assert_eq!(t.get(&cards, 1)?.map(|card| card.shelf()), Some(3), "what was refused is undone");
        t.set_futures_at(&cards, two - 1, [Card::SHELF.becomes(two)])
    });
    assert_eq!(all(&mut worker, &cards), [Card { id: 1, shelf: 2 }]);
}

/// Foreign keys that lead nowhere are refused; parents stay as long as their children's tables do.
pub fn definitions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, Library { shelves, books }) = library(setup);
    let refused = |definition: TableDefinition| matches!(database.create_table(definition), Err(Error::Definition(_)));
    let named = |columns: Vec<usize>, parent: &str| {
        let plain = TableDefinition { name: "other".into(), foreign_keys: Vec::new(), ..Book::definition() };
        plain.with_foreign_key(ForeignKeyDefinition::new(columns, parent))
    };
    assert!(refused(named(vec![1], "nothing")));
    assert!(refused(named(vec![2], "shelf")), "no index");
    assert!(refused(named(vec![2], "shelf").with_index(IndexDefinition::new("by_pages", [2]))), "other types");
    assert!(matches!(database.drop_index(books.id(), IndexId(1)), Err(Error::Definition(_))));
    assert!(matches!(database.drop_table(shelves.id()), Err(Error::Definition(_))));
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.insert(&books, &book(1, 1)));
    database.drop_table(books.id()).unwrap();
    assert!(done(&mut worker, |t| t.delete(&shelves, 1)), "its children are gone");
    database.drop_table(shelves.id()).unwrap();
}

/// A parent that is deleted, and a child that is inserted: in each order of the steps and of the commits at most one of the two
/// transactions commits.
pub fn deletion_beside_insertion<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for case in 0..4 {
        let (deletes_first, commits_first) = (case & 1 != 0, case & 2 != 0);
        let (database, Library { shelves, books }) = library(setup);
        let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
        let (mut deleting, mut inserting) = (begin(&mut one), begin(&mut two));
        let (mut deleted, mut inserted) = (None, None);
        for turn in [deletes_first, !deletes_first] {
            if turn {
                deleted = deleting.step(|t| caught(t.delete(&shelves, 1)));
            } else {
                inserted = inserting.step(|t| caught(t.insert(&books, &book(1, 1))));
            }
        }
        let mut committed = [false; 2];
        let (mut deleting, mut inserting) = (Some(deleting), Some(inserting));
        for turn in [commits_first, !commits_first] {
            if turn {
                committed[0] = deleting.take().is_some_and(|client| client.commit()) && matches!(deleted, Some(Ok(_)));
            } else {
                committed[1] =
                    inserting.take().is_some_and(|client| client.commit()) && matches!(inserted, Some(Ok(_)));
            }
        }
        assert_ne!(committed, [true, true], "case {case}");
        let mut watcher = database.worker().unwrap();
        let (shelves, books) = (all(&mut watcher, &shelves), all(&mut watcher, &books));
        let is_whole = books.iter().all(|book| shelves.iter().any(|shelf| Some(shelf.id) == book.shelf));
        assert!(is_whole, "case {case}: {books:?} and {shelves:?}");
    }
}

/// A savepoint that could not be set, because what was left open before it met another transaction, is void. A write that is refused
/// afterwards is undone alone, and tells why it was refused.
pub fn refusals_behind_a_void_savepoint<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, Library { shelves, books }) = library(setup);
    let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut one, |t| t.insert(&books, &book(1, 1)));
    let (mut reading, mut writing) = (begin(&mut one), begin(&mut two));
    reading.step(|t| t.get(&shelves, 2).map(drop));
    writing.step(|t| {
        let held = t.future(&shelves, 2, Shelf::BOOKS)?;
        t.set_future(&shelves, 2, Shelf::BOOKS, held + 1)?;
        let _ = t.savepoint();
        Ok(())
    });
    reading.commit();
    let deleted = writing.step(|t| caught(t.delete(&shelves, 1)));
    assert!(matches!(deleted, None | Some(Err(Error::HasChildren { .. }))), "{deleted:?}");
    let inserted = writing.step(|t| caught(t.insert(&books, &book(2, 9))));
    assert!(matches!(inserted, None | Some(Err(Error::NoParent { .. }))), "{inserted:?}");
    writing.commit();
    let mut watcher = database.worker().unwrap();
    assert!(all(&mut watcher, &shelves).iter().any(|shelf| shelf.id == 1));
    assert_eq!(all(&mut watcher, &books), [book(1, 1)]);
}

/// The same while a condition is open whose row another transaction has locked since: the refused write is undone without it.
pub fn refusals_beside_an_open_condition<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, Library { shelves, books }) = library(setup);
    let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut one, |t| t.insert(&books, &book(1, 1)));
    let (mut adding, mut asking) = (begin(&mut one), begin(&mut two));
    adding.step(|t| {
        let held = t.future(&shelves, 2, Shelf::BOOKS)?;
        t.set_future(&shelves, 2, Shelf::BOOKS, held + 1)
    });
    let many = asking.step(|t| {
        let held = t.future(&shelves, 2, Shelf::BOOKS)?;
        t.is_true(held.at_least(100))
    });
    assert!(matches!(many, None | Some(false)));
    adding.step(|t| t.get(&shelves, 2).map(drop));
    let deleted = asking.step(|t| caught(t.delete(&shelves, 1)));
    assert!(matches!(deleted, None | Some(Err(Error::HasChildren { .. }))), "{deleted:?}");
    adding.commit();
    let inserted = asking.step(|t| caught(t.insert(&books, &book(2, 9))));
    assert!(matches!(inserted, None | Some(Err(Error::NoParent { .. }))), "{inserted:?}");
    asking.commit();
    let mut watcher = database.worker().unwrap();
    assert!(all(&mut watcher, &shelves).iter().any(|shelf| shelf.id == 1));
    assert_eq!(all(&mut watcher, &books), [book(1, 1)]);
}

/// Parents that are deleted and children that are inserted on two threads, again and again.
pub fn on_threads<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const ROUNDS: u64 = polychron_base::sizes::scaled(400, 40) as u64;
    let (database, Library { shelves, books }) = library(setup);
    std::thread::scope(|scope| {
        let (mut one, mut two) = (database.worker().unwrap(), database.worker().unwrap());
        scope.spawn(move || {
            for round in 0..ROUNDS {
                let id = 1 + round % 3;
                let outcome = run(&mut one, |t| {
                    if t.delete(&shelves, id)? { Ok(()) } else { t.insert(&shelves, &Shelf { id, books: 0 }) }
                });
                assert!(matches!(outcome, Ok(()) | Err(Error::HasChildren { .. })), "{outcome:?}");
            }
        });
        scope.spawn(move || {
            for round in 0..ROUNDS {
                let (id, shelf) = (round % 2, 1 + round % 3);
                let outcome =
                    run(&mut two, |t| if t.delete(&books, id)? { Ok(()) } else { t.insert(&books, &book(id, shelf)) });
                assert!(matches!(outcome, Ok(()) | Err(Error::NoParent { .. })), "{outcome:?}");
            }
        });
    });
    let mut watcher = database.worker().unwrap();
    let (shelves, books) = (all(&mut watcher, &shelves), all(&mut watcher, &books));
    assert!(
        books.iter().all(|book| shelves.iter().any(|shelf| Some(shelf.id) == book.shelf)),
        "{books:?}, {shelves:?}"
    );
}
