//! Lazy state determination. One thread drives two transactions, of which neither waits.

use polychron_engine::{Commit, Common, Error, Futures, Interactive, Mode, Operations, Protocol, Table};
use polychron_protocols::lazy::{Lazy, LazyTransaction, Step};
use polychron_protocols::maflingo::Maflingo;
use polychron_schema::Row;
use std::sync::Arc;

#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Item {
    #[key]
    id: u64,
    value: i64,
}

struct Stage {
    database: Arc<Lazy<Maflingo>>,
    items: Table<Item>,
}

type Tx<'w> = LazyTransaction<'w, Maflingo>;

impl Stage {
    /// Items 1 and 2 of value 10.
    fn new() -> Self {
        let memory = polychron_memory::Options { limit_bytes: Some(64 << 20), ..polychron_memory::Options::tiny() };
        let database = Lazy::open(Default::default(), Common { memory, ..Common::default() }).unwrap();
        let items = Table::from_id(database.create_table(Item::definition()).unwrap());
        let stage = Self { database, items };
        assert_eq!(
            stage.once(|t| [1, 2].into_iter().try_for_each(|id| t.insert(&items, &Item { id, value: 10 }))),
            Ok(())
        );
        stage
    }

    /// One attempt at a transaction, by a worker of its own; what became of it.
    fn once(&self, body: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) -> Result<(), String> {
        let mut worker = self.database.worker().unwrap();
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        let outcome = match body(&mut transaction) {
            Ok(()) => transaction.commit(),
            Err(error) => Err(error),
        };
        outcome.map_err(|error| match error {
            Error::Conflict => "a conflict".to_owned(),
            error => error.to_string(),
        })
    }

    fn add(&self, t: &mut Tx<'_>, id: u64, more: i64) -> Result<(), Error> {
        let value = t.future(&self.items, id, Item::VALUE)?;
        t.set_future(&self.items, id, Item::VALUE, value + more)
    }

    fn value(&self, id: u64) -> i64 {
        let mut seen = 0;
        let look = self.once(|t| {
            seen = t.get(&self.items, id)?.map_or(0, |row| row.value());
            Ok(())
        });
        assert_eq!(look, Ok(()));
        seen
    }
}

/// An order is taken because there was enough, and another one before it leaves too little.
fn stock_that_was_promised_twice() -> bool {
    let stage = Stage::new();
    let take = |t: &mut Tx<'_>| {
        let value = t.future(&stage.items, 1, Item::VALUE)?;
        if t.is_true(value.at_least(6))? { stage.add(t, 1, -6) } else { Ok(()) }
    };
    let _ = stage.once(|t| {
        take(t)?;
        assert_eq!(stage.once(take), Ok(()));
        Ok(())
    });
    stage.value(1) < 0
}

fn increment_that_is_lost_beside_another() -> bool {
    let stage = Stage::new();
    let twice = stage.once(|t| {
        stage.add(t, 1, 1)?;
        stage.add(t, 1, 1)
    });
    assert_eq!(twice, Ok(()));
    stage.value(1) != 12
}

fn own_increment_that_is_not_read() -> bool {
    let stage = Stage::new();
    let mut seen = 0;
    let _ = stage.once(|t| {
        stage.add(t, 1, 1)?;
        seen = t.get(&stage.items, 1)?.map_or(0, |row| row.value());
        Ok(())
    });
    seen != 11
}

fn future_of_what_was_overwritten() -> bool {
    let stage = Stage::new();
    let _ = stage.once(|t| {
        let before = t.future(&stage.items, 1, Item::VALUE)?;
        t.update(&stage.items, 1, |row| row.set_value(50))?;
        t.set_future(&stage.items, 2, Item::VALUE, before)
    });
    stage.value(2) == 50
}

fn own_increment_that_is_not_counted() -> bool {
    let stage = Stage::new();
    let mut sum = 0;
    let _ = stage.once(|t| {
        stage.add(t, 1, 1)?;
        sum = t.scan(&stage.items, ..).map(|row| row.value()).sum()?;
        Ok(())
    });
    sum != 21
}

fn increment_before_a_savepoint() -> bool {
    let stage = Stage::new();
    let done = stage.once(|t| {
        stage.add(t, 1, 1)?;
        let savepoint = t.savepoint();
        stage.add(t, 1, 100)?;
        t.roll_back_to(savepoint)
    });
    assert_eq!(done, Ok(()));
    stage.value(1) != 11
}

/// What was open at a savepoint is written after it, and undone with what came later.
fn increment_that_was_flushed_behind_a_savepoint() -> bool {
    let stage = Stage::new();
    let done = stage.once(|t| {
        stage.add(t, 1, 1)?;
        let savepoint = t.savepoint();
        assert_eq!(t.get(&stage.items, 1)?.map(|row| row.value()), Some(11));
        t.roll_back_to(savepoint)
    });
    assert_eq!(done, Ok(()));
    stage.value(1) != 11
}

/// Row 1 becomes something that has no value.
fn fail(t: &mut Tx<'_>, stage: &Stage) -> Result<(), Error> {
    let value = t.future(&stage.items, 1, Item::VALUE)?;
    t.set_future(&stage.items, 1, Item::VALUE, value / 0)
}

fn failure_that_is_undone() -> bool {
    let stage = Stage::new();
    let outcome = stage.once(|t| {
        let savepoint = t.savepoint();
        fail(t, &stage)?;
        t.roll_back_to(savepoint)
    });
    outcome.is_ok()
}

fn failure_that_is_overwritten() -> bool {
    let stage = Stage::new();
    let outcome = stage.once(|t| {
        fail(t, &stage)?;
        t.set_future(&stage.items, 1, Item::VALUE, 7)
    });
    outcome.is_ok()
}

/// A transaction fails because two rows, of which it read one before and one after another transaction, do not agree.
fn failure_that_nothing_explains() -> bool {
    let stage = Stage::new();
    let outcome = stage.once(|t| {
        let one = t.get(&stage.items, 1)?.map_or(0, |row| row.value());
        let swap = stage.once(|t| {
            t.update(&stage.items, 1, |row| row.set_value(0))?;
            t.update(&stage.items, 2, |row| row.set_value(0)).map(drop)
        });
        assert_eq!(swap, Ok(()));
        let two = t.future(&stage.items, 2, Item::VALUE)?;
        t.set_future(&stage.items, 1, Item::VALUE, one / two)
    });
    outcome.is_err_and(|why| why.contains('÷'))
}

/// A transaction takes from a row that is not there because it was told of a stock that is gone.
fn failure_after_a_condition_that_changed() -> bool {
    let stage = Stage::new();
    let outcome = stage.once(|t| {
        let stock = t.future(&stage.items, 1, Item::VALUE)?;
        assert!(t.is_true(stock.at_least(10))?);
        assert_eq!(stage.once(|t| stage.add(t, 1, -5)), Ok(()));
        stage.add(t, 3, -1)
    });
    outcome.is_err_and(|why| why.contains("does not exist"))
}

crate::killers! { Step:
    CheckConditions: stock_that_was_promised_twice, "a stock falls below zero although a condition was checked";
    ReadOwnFutures: increment_that_is_lost_beside_another, "one of two increments in one transaction is lost";
    FlushBeforeReads: own_increment_that_is_not_read, "a transaction does not read its own write";
    FlushBeforeWrites: future_of_what_was_overwritten, "a future read before a write gets the value after it";
    FlushBeforeScans: own_increment_that_is_not_counted, "a scan misses the transaction's own write";
    ReopenFlushed: increment_that_was_flushed_behind_a_savepoint, "a rollback to a savepoint undoes what came before it";
    ResolveUndone: failure_that_is_undone, "a transaction commits whose failed operation was undone";
    ForgetUndone: increment_before_a_savepoint, "a rollback to a savepoint keeps a write after it";
    ComputeOverwritten: failure_that_is_overwritten, "a transaction commits that wrote an undefined value and then overwrote it";
    CheckBeforeFailing: failure_after_a_condition_that_changed, "a transaction fails because of an answer that no longer holds";
    ValidateFailures: failure_that_nothing_explains, "a transaction fails on a state that never existed";
}
