//! Foreign keys over a transaction of which an operation fails: whatever the procedure makes of the error, no half of a write commits.

use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_engine::{
    Commit, Common, Constraints, Error, Insertion, Interactive, LazyFutures, Mode, Operations, Prefetch, Projection,
    Protocol, Queries, Row, RowMut, RowRef, Savepoints, Scan, Table, TableDefinition, TableId, Transaction, drive,
};
use polychron_protocols::serial::Serial;

#[derive(Row, Clone, Debug, PartialEq)]
struct Shelf {
    #[key]
    id: u64,
}

#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_shelf", columns(shelf))]
#[references(row = Shelf, columns(shelf))]
struct Book {
    #[key]
    id: u64,
    shelf: u64,
}

/// Which operations fail from now on, with an error that is no conflict.
#[derive(Clone, Copy, Debug, Default)]
struct Failing {
    reads: bool,
    undo: bool,
}

/// A transaction of which operations fail as memory runs out.
struct Flawed<'t, T> {
    inner: &'t mut T,
    failing: Failing,
}

impl<T> Flawed<'_, T> {
    fn check(&self, fails: bool) -> Result<(), Error> {
        if fails { Err(Error::out_of_memory(1, 0, 0)) } else { Ok(()) }
    }
}

impl<T: Commit> Transaction for Flawed<'_, T> {
    fn read_row<K: EncodedKey>(&mut self, t: TableId, key: K, p: &Projection) -> Result<Option<RowRef<'_>>, Error> {
        self.check(self.failing.reads)?;
        self.inner.read_row(t, key, p)
    }

    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        self.inner.update_unchecked(table, key, projection, change)
    }

    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        self.inner.insert_unchecked(table, key, row)
    }

    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        self.inner.put_unchecked(table, key, row)
    }

    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        self.inner.delete_unchecked(table, key)
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.check(self.failing.reads)?;
        self.inner.scan_unchecked(scan, visitor)
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.inner.mark()
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.check(self.failing.undo)?;
        self.inner.undo_unchecked(position)
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.inner.savepoints()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        self.inner.definition(table)
    }

    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        self.inner.constraints(table)
    }
}

impl<T: Commit> Queries for Flawed<'_, T> {}

impl<T: Commit> LazyFutures for Flawed<'_, T> {}

impl<T: Commit> Prefetch for Flawed<'_, T> {}

struct Library {
    database: Arc<Serial>,
    shelves: Table<Shelf>,
    books: Table<Book>,
}

impl Library {
    fn open() -> Self {
        let database = Serial::open(Default::default(), Common::default()).unwrap();
        let (shelves, books) = (Table::create(&*database).unwrap(), Table::create(&*database).unwrap());
        let library = Self { database, shelves, books };
        library
            .transact(Failing::default(), |t| {
                t.insert(&shelves, &Shelf { id: 1 })?;
                t.insert(&shelves, &Shelf { id: 2 })?;
                t.insert(&books, &Book { id: 1, shelf: 1 })
            })
            .unwrap()
            .unwrap();
        library
    }

    /// Runs a body whose errors are swallowed.
    fn transact<O>(
        &self,
        failing: Failing,
        mut body: impl FnMut(
            &mut Flawed<'_, <<Serial as Protocol>::Worker as Interactive>::Transaction<'_>>,
        ) -> Result<O, Error>,
    ) -> Result<Result<O, Error>, Error> {
        let mut worker = self.database.worker().unwrap();
        drive::transact(&mut worker, Mode::ReadWrite, &mut |inner| Ok(body(&mut Flawed { inner, failing })))
    }

    fn is_as_it_was(&self) {
        let (shelves, books) = (self.shelves, self.books);
        let rows =
            self.transact(Failing::default(), |t| Ok((t.scan(&shelves, ..).rows()?, t.scan(&books, ..).rows()?)));
        let (shelves, books) = rows.unwrap().unwrap();
        assert_eq!((shelves, books), (vec![Shelf { id: 1 }, Shelf { id: 2 }], vec![Book { id: 1, shelf: 1 }]));
    }

    /// Each write that a foreign key looks at, with an error that its caller swallows.
    fn try_all(&self, failing: Failing) -> Vec<Result<(), Error>> {
        let (shelves, books) = (self.shelves, self.books);
        let caught = |outcome: Result<Result<bool, Error>, Error>| {
            outcome.map(|refused| assert!(refused.is_err(), "it is refused"))
        };
        vec![
            caught(self.transact(failing, |t| t.insert(&books, &Book { id: 2, shelf: 9 }).map(|()| true))),
            caught(self.transact(failing, |t| t.upsert(&books, &Book { id: 1, shelf: 9 }).map(|()| true))),
            caught(self.transact(failing, |t| t.update(&books, 1, |row| row.set_shelf(9)))),
            caught(self.transact(failing, |t| t.delete(&shelves, 1))),
        ]
    }
}

#[test]
fn a_check_that_fails_leaves_no_write() {
    let library = Library::open();
    for outcome in library.try_all(Failing { reads: true, undo: false }) {
        outcome.expect("the transaction goes on, without the write");
        library.is_as_it_was();
    }
}

#[test]
fn a_write_that_cannot_be_undone_ends_its_transaction() {
    let library = Library::open();
    for reads in [false, true] {
        for outcome in library.try_all(Failing { reads, undo: true }) {
            assert!(matches!(outcome, Err(Error::OutOfMemory(_))), "{outcome:?}");
            library.is_as_it_was();
        }
    }
}
