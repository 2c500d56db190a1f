//! Puts of rows that others insert meanwhile: each is a conflict, or writes over what has come, and never tells of a duplicate of its own key.

use std::cell::Cell;
use std::rc::Rc;

use polychron::{AnyProtocol, Database, Error, Operations, ProtocolList, Protocols, Row, Table};
use polychron_engine::mutations::{interrupt, leave_out};
use polychron_engine::rows::{Point, Step};

#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_owner", columns(owner))]
struct Item {
    #[key]
    id: u64,
    owner: u64,
}

/// Puts a row that another transaction inserts between the look for it and the put. `None` where that one could not.
fn put_overtaken(protocol: &str) -> Option<Result<(), Error>> {
    let database: Database<AnyProtocol> = Database::builder().small().protocol(protocol).in_memory().unwrap();
    let items: Table<Item> = database.create_table().unwrap();
    // The other one is first in the serial order of those that have their places when they begin.
    let mut other = database.begin().ok()?;
    let mut transaction = database.begin().ok()?;
    let came = Rc::new(Cell::new(false));
    let told = Rc::clone(&came);
    interrupt(Point::PutFoundNothing, move || {
        let inserted = other.insert(&items, &Item { id: 1, owner: 7 });
        told.set(inserted.and_then(|()| other.commit()).is_ok());
    });
    let put = transaction.upsert(&items, &Item { id: 1, owner: 8 });
    let put = put.and_then(|()| transaction.commit());
    came.get().then_some(put)
}

fn is_wrong(put: &Result<(), Error>) -> bool {
    !matches!(put, Ok(()) | Err(Error::Conflict | Error::Conflicts(_) | Error::WaitsForItself(_)))
}

#[test]
fn no_put_tells_of_a_duplicate_of_its_own_key() {
    let (mut overtaken, mut wrong) = (0, 0);
    for protocol in Protocols::all().iter().map(|info| info.name) {
        if let Some(put) = put_overtaken(protocol) {
            assert!(!is_wrong(&put), "{protocol}: {put:?}");
            overtaken += 1;
        }
        let _careless = leave_out(Step::LookAgain);
        wrong += usize::from(put_overtaken(protocol).is_some_and(|put| is_wrong(&put)));
    }
    assert!(overtaken > 2 && wrong > 0, "{overtaken} were overtaken, and {wrong} of them were wrong without the step");
}
