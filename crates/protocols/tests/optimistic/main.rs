//! What clients do to Maflingo and to the layers over it besides well-behaved transactions: they leak one, open one inside of another,
//! catch errors and go on, hold one open and do nothing, and touch one row tens of thousands of times.

use std::sync::Arc;

use polychron_engine::{Common, Error, Interactive, Mode, Operations, Protocol, Table, TableDefinition, drive};
use polychron_protocols::lazy::Lazy;
use polychron_protocols::maflingo::Maflingo;
use polychron_schema::Row;

mod caught;
mod idle;
mod large;
mod leaked;
mod nested;

/// A row with entries in an index that is unique and in one that is not.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "person")]
#[index(name = "by_city", columns(city))]
#[index(name = "by_number", columns(number), unique)]
struct Person {
    #[key]
    id: u64,
    city: u64,
    number: u64,
    text: String,
}

impl Person {
    fn new(id: u64, city: u64) -> Self {
        Self { id, city, number: 1000 + id, text: format!("person {id}") }
    }
}

/// A row without secondary indexes.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "counter")]
struct Counter {
    #[key]
    id: u64,
    left: u64,
    right: u64,
}

/// A database with both tables, empty.
struct Fixture<P: Protocol> {
    database: Arc<P>,
    people: Table<Person>,
    counters: Table<Counter>,
}

impl<P: Protocol<Worker: Interactive>> Fixture<P> {
    fn open() -> Self {
        Self::with(Common::default())
    }

    fn with(common: Common) -> Self {
        let database = P::open(P::Options::default(), common).unwrap();
        let create = |definition: TableDefinition| database.create_table(definition).unwrap();
        let (people, counters) =
            (Table::from_id(create(Person::definition())), Table::from_id(create(Counter::definition())));
        Self { database, people, counters }
    }

    fn worker(&self) -> P::Worker {
        self.database.worker().unwrap()
    }

    /// Inserts counters that stand at zero.
    fn fill(&self, ids: std::ops::Range<u64>) {
        let mut worker = self.worker();
        transact(&mut worker, |transaction| {
            ids.clone().try_for_each(|id| transaction.insert(&self.counters, &Counter { id, left: 0, right: 0 }))
        });
    }

    fn counter(&self, worker: &mut P::Worker, id: u64) -> Option<Counter> {
        transact(worker, |transaction| Ok(transaction.get(&self.counters, id)?.map(Counter::from_view)))
    }
}

impl Counter {
    fn from_view(row: <Self as Row>::Ref<'_>) -> Self {
        Self { id: row.id(), left: row.left(), right: row.right() }
    }
}

fn transact<W: Interactive + 'static, O>(
    worker: &mut W,
    mut body: impl FnMut(&mut W::Transaction<'_>) -> Result<O, Error>,
) -> O {
    drive::transact(worker, Mode::ReadWrite, &mut body).unwrap()
}

/// Runs a scenario on each of the protocols.
#[macro_export]
macro_rules! on_each {
    ($($test:ident;)*) => {$(
        mod $test {
            #[test]
            fn maflingo() {
                super::$test::<$crate::Maflingo>();
            }
            #[test]
            fn lazy_occ() {
                super::$test::<$crate::Lazy<$crate::Maflingo>>();
            }
        }
    )*};
}
