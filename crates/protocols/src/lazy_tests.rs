//! What only the layer of futures promises, over a protocol: what is open makes way for favoured transactions, and is found, read and written in a
//! number of steps that grows with the transaction and not with its square.

use std::sync::Arc;

use polychron_engine::{
    Commit, Common, Error, Futures, Interactive, Mode, Operations, Protocol, Row, Savepoint, Table, drive,
};

use crate::contested_tests::{Deed, overtaken_at_each_attempt};
use crate::hyper::Hyper;
use crate::lazy::{Lazy, LazyTransaction};
use crate::maflingo::Maflingo;

#[derive(polychron_schema::Row, Clone, Copy, Debug, PartialEq)]
struct Stock {
    #[key]
    id: u64,
    amount: i64,
}

type Tx<'w> = LazyTransaction<'w, Maflingo>;

const ROWS: u64 = if cfg!(miri) { 40 } else { 2000 };

/// A database with so many rows of amount 5.
fn open(rows: u64) -> (Arc<Lazy<Maflingo>>, Table<Stock>) {
    let memory = polychron_memory::Options::tiny();
    let database = Lazy::open(Default::default(), Common { memory, ..Common::default() }).unwrap();
    let stock = Table::from_id(database.create_table(Stock::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    for id in 0..rows {
        let row = Stock { id, amount: 5 };
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t| t.insert(&stock, &row)).unwrap();
    }
    (database, stock)
}

/// The steps of a transaction that does something with each of so many rows.
fn steps(rows: u64, mut of_row: impl FnMut(&mut Tx<'_>, &Table<Stock>, u64) -> Result<(), Error>) -> usize {
    let (database, stock) = open(rows);
    let mut worker = database.worker().unwrap();
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    for id in 0..rows {
        of_row(&mut transaction, &stock, id).unwrap();
    }
    // It flushes what is going to be written.
    transaction.scan(&stock, ..).count().unwrap();
    transaction.steps()
}

/// Twice as many rows take twice as many steps, and a few.
fn is_linear(of_row: impl FnMut(&mut Tx<'_>, &Table<Stock>, u64) -> Result<(), Error> + Clone) {
    let (half, whole) = (steps(ROWS / 2, of_row.clone()), steps(ROWS, of_row));
    assert!(half > 0 && whole <= 2 * half + half / 4 + 100, "{half} steps for half of what took {whole}");
}

fn add(t: &mut Tx<'_>, stock: &Table<Stock>, id: u64) -> Result<(), Error> {
    let amount = t.future(stock, id, Stock::AMOUNT)?;
    t.set_future(stock, id, Stock::AMOUNT, amount + 1)
}

#[test]
fn many_rows() {
    is_linear(add);
}

#[test]
fn many_values_of_one_row() {
    is_linear(|t, stock, _| add(t, stock, 0));
}

#[test]
fn rows_that_are_read_again() {
    is_linear(|t, stock, id| {
        add(t, stock, id)?;
        assert_eq!(t.get(stock, id)?.unwrap().amount(), 6);
        Ok(())
    });
}

#[test]
fn futures_that_are_resolved() {
    is_linear(|t, stock, id| {
        let (own, other) = (t.future(stock, id, Stock::AMOUNT)?, t.future(stock, 0, Stock::AMOUNT)?);
        assert_eq!(Futures::resolve(t, own + other)?, 10);
        Ok(())
    });
}

#[test]
fn conditions() {
    is_linear(|t, stock, id| {
        let amount = t.future(stock, id, Stock::AMOUNT)?;
        assert!(t.is_true(amount.greater_than(1))?);
        Ok(())
    });
}

#[test]
fn conditions_of_one_row_that_is_written() {
    is_linear(|t, stock, id| {
        add(t, stock, 0)?;
        let amount = t.future(stock, 0, Stock::AMOUNT)?;
        assert_eq!(t.is_true(amount.greater_than(100))?, id + 6 > 100);
        Ok(())
    });
}

#[test]
fn savepoints() {
    is_linear(|t, stock, id| {
        add(t, stock, id)?;
        let savepoint: Savepoint = t.savepoint();
        add(t, stock, id)?;
        t.roll_back_to(savepoint)?;
        let amount = t.future(stock, id, Stock::AMOUNT)?;
        assert_eq!(Futures::resolve(t, amount)?, 6);
        Ok(())
    });
}

#[test]
fn savepoints_behind_which_is_read() {
    is_linear(|t, stock, id| {
        add(t, stock, id)?;
        let savepoint: Savepoint = t.savepoint();
        add(t, stock, id)?;
        assert_eq!(t.get(stock, id)?.unwrap().amount(), 7);
        t.roll_back_to(savepoint)
    });
}

#[test]
fn savepoints_between_writes_of_one_row() {
    is_linear(|t, stock, _| {
        add(t, stock, 0)?;
        let _ = t.savepoint();
        add(t, stock, 0)
    });
}

#[test]
fn scans() {
    is_linear(|t, stock, id| {
        add(t, stock, id)?;
        assert_eq!(t.scan(stock, id..=id).rows()?[0].amount, 6);
        Ok(())
    });
}

#[test]
fn values_that_are_overwritten() {
    is_linear(|t, stock, id| {
        add(t, stock, 0)?;
        t.set_future(stock, 0, Stock::AMOUNT, id as i64)
    });
}

#[test]
fn undone_operations() {
    is_linear(|t, stock, id| {
        let savepoint = t.savepoint();
        add(t, stock, id)?;
        t.roll_back_to(savepoint)
    });
}

/// A transaction that was told that a condition is true does not commit where it has no value, also if that failure is caught.
#[test]
fn condition_that_loses_its_value() {
    let (database, stock) = open(3);
    let [mut requester, mut writer] = [database.worker().unwrap(), database.worker().unwrap()];
    let mut asks = requester.begin(Mode::ReadWrite).unwrap();
    let quotient = asks.future(&stock, 0, Stock::AMOUNT).unwrap() / asks.future(&stock, 1, Stock::AMOUNT).unwrap();
    assert!(asks.is_true(quotient.equal_to(1)).unwrap());
    let change = &mut |t: &mut Tx<'_>| t.set_future(&stock, 1, Stock::AMOUNT, 0);
    drive::transact(&mut writer, Mode::ReadWrite, change).unwrap();
    asks.set_future(&stock, 2, Stock::AMOUNT, 6).unwrap();
    assert!(asks.get(&stock, 2).is_err(), "it flushes what is open");
    assert!(asks.commit().is_err());
}

/// What is open until the commit locks its rows before all else, and leaves those of a favoured transaction alone.
#[test]
fn what_is_open_makes_way() {
    overtaken_at_each_attempt(&Lazy::<Hyper>::open(Default::default(), Common::default()).unwrap(), Deed::Add, &[0, 1]);
    overtaken_at_each_attempt(
        &Lazy::<Maflingo>::open(Default::default(), Common::default()).unwrap(),
        Deed::Add,
        &[0, 1],
    );
}
