//! Handles: one of another database, another table or a dropped index is refused with a clear error by every operation, and changes
//! nothing.

use polychron_base::key::Key8;
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::{
    Access, Aggregate, Declare, Futures, IndexDefinition, Interactive, Operations, Procedure, Projection, Protocol,
    Row, RowBuffer, Scan, Table, Transaction, Worker,
};
use polychron_schema::Index;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::Setup;
use crate::rows::{Item, Person, person};
use crate::setup::{all, create, done, items, run, snapshot};

fn failure<O>(outcome: Result<O, Error>) -> Error {
    match outcome {
        Err(Error::Conflict) => panic!("a conflict where a refusal was due"),
        Err(error) => error,
        Ok(_) => panic!("nothing was refused"),
    }
}

/// Every operation on a table, each of which is to fail with an error that `is_right`.
fn refused<T: Transaction>(t: &mut T, table: Table<Item>, is_right: fn(&Error) -> bool) {
    fn check<O>(name: &str, outcome: Result<O, Error>, is_right: fn(&Error) -> bool) {
        let error = failure(outcome);
        assert!(is_right(&error), "{name}: {error:?}");
    }
    let (id, key, row) = (table.id(), Key8::new(1, 8), Item { id: 1, value: 9 });
    let mut buffer = RowBuffer::new();
    row.encode(&mut buffer).unwrap();
    check("get", t.get(&table, 1).map(drop), is_right);
    check("get_columns", t.get_columns(&table, 1, Item::VALUE).map(drop), is_right);
    check("get_unvalidated", t.get_unvalidated(&table, 1).map(drop), is_right);
    check("update", t.update(&table, 1, |row| row.set_value(9)), is_right);
    check("update_columns", t.update_columns(&table, 1, Item::VALUE, |row| row.set_value(9)), is_right);
    check("insert", t.insert(&table, &row), is_right);
    check("upsert", t.upsert(&table, &row), is_right);
    check("delete", t.delete(&table, 1), is_right);
    check("scan", t.scan(&table, ..).count(), is_right);
    check("visit_all", t.visit_all(&table, |_| ()), is_right);
    check("future", t.future(&table, 1, Item::VALUE).map(drop), is_right);
    check("insert_row", t.insert_row(id, key, buffer.as_row()), is_right);
    check("put_row", t.put_row(id, key, buffer.as_row()), is_right);
    check("update_row", t.update_row(id, key, &Projection::ALL, |_| ()), is_right);
    check("delete_row", t.delete_row(id, key), is_right);
    check("aggregate", t.aggregate(&Scan::all(id), Aggregate::Sum(1)), is_right);
    let columns = t.scan_columns(&Scan::all(id), &[1], &mut |_| (), &mut |()| ControlFlow::Continue(()));
    check("scan_columns", columns, is_right);
    check("definition", t.definition(id).map(drop), is_right);
    check("constraints", t.constraints(id).map(drop), is_right);
}

fn is_other_database(error: &Error) -> bool {
    matches!(error, Error::OtherDatabase(_))
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NoSuchTable(_))
}

/// Declares and writes a row of a table that is not there.
struct Misled(TableId);

impl Procedure for Misled {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        transaction.update_row(self.0, Key8::new(1, 8), &Projection::ALL, |_| ()).map(drop)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0, Key8::new(1, 8), Access::Write);
        declaration.prefix(self.0, Key8::new(1, 8), Access::Write);
    }
}

/// What a database has at the place of another one's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A table of the same rows, or of others.
    Same,
    Other,
    /// No table now, or none yet; another place has one, or none has.
    Dropped,
    DroppedAlone,
    Beyond,
    None,
}

impl Place {
    const ALL: [Self; 6] = [Self::Same, Self::Other, Self::Dropped, Self::DroppedAlone, Self::Beyond, Self::None];

    /// Makes it so, and answers the tables that there are.
    fn prepare<P: Protocol<Worker: Interactive>>(
        self,
        database: &Arc<P>,
    ) -> (Option<Table<Item>>, Option<Table<Person>>) {
        match self {
            Self::None => return (None, None),
            Self::Beyond => {}
            Self::Same => {
                let table = create::<P, Item>(database);
                let mut worker = database.worker().unwrap();
                done(&mut worker, |t| t.insert(&table, &Item { id: 1, value: 5 }));
                return (Some(table), None);
            }
            Self::Dropped | Self::DroppedAlone => database.drop_table(create::<P, Item>(database).id()).unwrap(),
            Self::Other => {}
        }
        if self == Self::DroppedAlone {
            return (None, None);
        }
        let table = create::<P, Person>(database);
        done(&mut database.worker().unwrap(), |t| t.insert(&table, &person(1, 2, 3)));
        (None, Some(table))
    }
}

/// A handle of one database is refused by another one, whatever table has the same place there, and if none has.
pub fn of_another_database<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (other, first) = items(setup, &[(1, 10)]);
    let named = |name: &str| polychron_engine::TableDefinition { name: name.to_owned(), ..Item::definition() };
    let later = ["b", "c", "d"].map(|name| Table::<Item>::create_as(&*other, named(name)).unwrap());
    for place in Place::ALL {
        let foreign = if place == Place::Beyond { later[2] } else { first };
        let database = setup.open();
        let mut worker = database.worker().unwrap();
        let (same, different) = place.prepare(&database);
        done(&mut worker, |t| {
            refused(t, foreign, is_other_database);
            Ok(())
        });
        snapshot(&mut worker, |t| {
            assert!(is_other_database(&failure(t.get(&foreign, 1).map(drop))));
            assert!(is_other_database(&failure(t.visit_all(&foreign, |_| ()))));
            Ok(())
        });
        let (id, key) = (foreign.id(), Key8::new(1, 8));
        let lone = worker.read_one(id, key, &Projection::ALL, |row| row.is_some());
        assert!(matches!(lone, Err(Error::OtherDatabase(_))), "{lone:?}");
        let declared = worker.execute(&mut Misled(id));
        assert!(matches!(declared, Err(Error::OtherDatabase(_))), "{declared:?}");
        let mut batch = [Misled(id), Misled(id)];
        worker.execute_batch(&mut batch, &mut |_, outcome| assert!(outcome.is_err()));
        assert!(database.definition(id).is_err_and(|error| is_other_database(&error)));
        assert!(database.drop_table(id).is_err_and(|error| is_other_database(&error)));
        assert!(database.drop_index(id, IndexId(1)).is_err_and(|error| is_other_database(&error)));
        let index = database.create_index(id, IndexDefinition::new("by_value", [1]));
        assert!(index.is_err_and(|error| is_other_database(&error)));
        assert!(Table::<Item>::with_id(&*database, id).is_err_and(|error| is_other_database(&error)));
        if let Some(own) = same {
            assert_eq!(own.id().position(), foreign.id().position());
            let table = Table::<Item>::with_id(&*database, own.id()).unwrap();
            assert_eq!(all(&mut worker, &table), [Item { id: 1, value: 5 }]);
        }
        if let Some(own) = different {
            assert!(matches!(Table::<Item>::with_id(&*database, own.id()), Err(Error::Other(_))));
            let table = Table::<Person>::with_id(&*database, own.id()).unwrap();
            assert_eq!(all(&mut worker, &table), [person(1, 2, 3)]);
        }
    }
}

/// The handle of a table that was dropped is refused, also when another table has come since.
pub fn of_a_dropped_table<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    database.drop_table(table.id()).unwrap();
    let again = create::<P, Item>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        refused(t, table, is_missing);
        Ok(())
    });
    assert_eq!(all(&mut worker, &again), []);
    let other = create::<P, Person>(&setup.open());
    assert!(run(&mut worker, |t| t.scan(&other, ..).count()).is_err_and(|error| is_other_database(&error)));
}

fn by_number<P: Protocol>(database: &Arc<P>, table: TableId) -> Index<Person, i64> {
    let id = database.create_index(table, IndexDefinition::new("by_number", [3])).unwrap();
    Index::of_table(table, id, &[0], false, false)
}

/// The handle of an index that was made at run time is refused with another table, in another database, and when the index was
/// dropped, whatever index came after it.
pub fn of_indexes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, other_database) = (setup.open(), setup.open());
    let table = create::<P, Person>(&database);
    let named = |name: &str| polychron_engine::TableDefinition { name: name.to_owned(), ..Person::definition() };
    let beside = Table::<Person>::create_as(&*database, named("beside")).unwrap();
    let elsewhere = create::<P, Person>(&other_database);
    let (index, _) = (by_number(&database, table.id()), by_number(&database, beside.id()));
    by_number(&other_database, elsewhere.id());
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.insert(&table, &person(1, 2, 3)));
    assert_eq!(done(&mut worker, |t| t.scan_by(&table, index, 10).count()), 1);
    let mixed = run(&mut worker, |t| t.scan_by(&beside, index, 10).count());
    assert!(matches!(&mixed, Err(Error::OtherTable(it)) if (it.own, it.table) == (index_of(&index), beside.id())));
    let mixed = run(&mut worker, |t| t.scan_range_by(&beside, index, 1_i64..).count());
    assert!(matches!(mixed, Err(Error::OtherTable { .. })), "{mixed:?}");
    let mut there = other_database.worker().unwrap();
    let mixed = run(&mut there, |t| t.scan_by(&elsewhere, index, 10).count());
    assert!(matches!(mixed, Err(Error::OtherDatabase(_))), "{mixed:?}");
    database.drop_index(table.id(), index.id_in(table.id()).unwrap()).unwrap();
    let again = by_number(&database, table.id());
    assert_eq!(done(&mut worker, |t| t.scan_by(&table, again, 10).count()), 1);
    let gone = run(&mut worker, |t| t.scan_by(&table, index, 10).count());
    assert!(matches!(gone, Err(Error::NoSuchIndex(..))), "{gone:?}");
}

fn index_of(index: &Index<Person, i64>) -> TableId {
    match index.id_in(TableId::default()) {
        Err(Error::OtherDatabase(other)) => other.table,
        other => panic!("the handle knows its table: {other:?}"),
    }
}
