//! Futures in keys and in rows that are inserted, choices between them, and what they have come to after the commit.

use polychron_base::Error;
use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::futures::FutureError;
use polychron_engine::{Becomes, Future, Futures, Interactive, Operations, Protocol, Table, Transaction, drive};
use polychron_schema::{Decimal, Row};
use polychron_sync::thread;

use crate::Setup;
use crate::rows::{Item, value};
use crate::setup::{all, begin, create, done, items, run};

/// A row under a number that another row gives.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_weight", columns(weight))]
struct ClientBatch {
    #[key]
    shop: u16,
    #[key]
    number: i64,
    weight: u64,
    label: String,
}

fn client_batch(shop: u16, number: i64, weight: u64) -> ClientBatch {
    ClientBatch { shop, number, weight, label: format!("client batch of {shop}") }
}

fn cause<O: std::fmt::Debug>(outcome: Result<O, Error>) -> FutureError {
    let Err(Error::NoValue(failed)) = outcome else { panic!("{outcome:?}") };
    failed.why
}

/// Takes a number from a counter, for a client batch.
fn number<T: Transaction>(t: &mut T, counters: &Table<Item>) -> Result<Future<i64>, Error> {
    let number = t.future(counters, 1, Item::VALUE)?;
    t.set_future(counters, 1, Item::VALUE, number + 1)?;
    Ok(number)
}

/// Rows are inserted and written under keys that are futures, and found by ordinary operations afterwards, in the same
/// transaction too.
pub fn keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, counters) = items(setup, &[(1, -2)]);
    let client_batches = create::<P, ClientBatch>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        for weight in 1..=4 {
            let number = number(t, &counters)?;
            let late = [ClientBatch::NUMBER.becomes(number), ClientBatch::WEIGHT.becomes(weight)];
            t.insert_future(&client_batches, &client_batch(7, 0, 0), late)?;
        }
        let next = t.future(&counters, 1, Item::VALUE)?;
        t.set_futures_at(&client_batches, (7_u16, next - 1), [ClientBatch::WEIGHT.becomes(40)])?;
        let weight = t.future_at(&client_batches, (7_u16, next - 4), ClientBatch::WEIGHT)?;
        t.set_futures_at(&client_batches, (7_u16, next - 2), [ClientBatch::WEIGHT.becomes(weight + 29)])
    });
    let expected: Vec<_> =
        [(-2, 1), (-1, 2), (0, 30), (1, 40)].map(|(number, weight)| client_batch(7, number, weight)).into();
    assert_eq!(all(&mut worker, &client_batches), expected);
    done(&mut worker, |t| {
        let number = number(t, &counters)?;
        t.insert_future(&client_batches, &client_batch(7, 0, 50), [ClientBatch::NUMBER.becomes(number)])?;
        assert_eq!(t.scan_by(&client_batches, ClientBatch::BY_WEIGHT, 50).count()?, 1);
        t.set_futures_at(&client_batches, (7_u16, number), [ClientBatch::WEIGHT.becomes(51)])?;
        assert_eq!(t.get(&client_batches, (7, 2))?.map(|row| row.weight()), Some(51));
        t.set_futures_at(&client_batches, (7_u16, number), [ClientBatch::WEIGHT.becomes(52)])?;
        t.update(&client_batches, (7, 2), |row| row.set_weight(row.weight() + 1))?;
        t.set_futures_at(&client_batches, (7_u16, number), [ClientBatch::WEIGHT.becomes(54)])?;
        let weight = t.future(&client_batches, (7, 2), ClientBatch::WEIGHT)?;
        t.set_future(&client_batches, (7, 2), ClientBatch::WEIGHT, weight + 1)?;
        let savepoint = t.savepoint();
        t.set_futures_at(&client_batches, (7_u16, number), [ClientBatch::WEIGHT.becomes(99)])?;
        t.roll_back_to(savepoint)
    });
    let weights = done(&mut worker, |t| t.scan(&client_batches, ..).map(|row| row.weight()).collect::<Vec<_>>());
    assert_eq!(weights, [1, 2, 30, 40, 55]);
}

/// A key that is taken, and one under which there is no row, undo the transaction with the errors of ordinary operations.
pub fn refusals<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, counters) = items(setup, &[(1, 5)]);
    let client_batches = create::<P, ClientBatch>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.insert(&client_batches, &client_batch(1, 5, 10)));
    let taken = run(&mut worker, |t| {
        let number = number(t, &counters)?;
        t.insert_future(&client_batches, &client_batch(1, 0, 50), [ClientBatch::NUMBER.becomes(number)])
    });
    assert!(matches!(taken, Err(Error::Duplicate(ref of)) if of.table == client_batches.id()), "{taken:?}");
    let absent = run(&mut worker, |t| {
        let number = number(t, &counters)?;
        t.set_futures_at(&client_batches, (1_u16, number + 1), [ClientBatch::WEIGHT.becomes(1)])
    });
    assert_eq!(cause(absent), FutureError::NoRow(client_batches.id()));
    assert_eq!(done(&mut worker, |t| value(t, &counters, 1)), Some(5), "nothing of them remains");
    assert_eq!(all(&mut worker, &client_batches), [client_batch(1, 5, 10)]);
}

/// What is going to be written to a row that was deleted fails, and leaves it deleted.
pub fn deleted_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, items) = items(setup, &[(1, 10), (2, 20)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.delete(&items, 1));
    let no_row = FutureError::NoRow(items.id());
    assert_eq!(cause(run(&mut worker, |t| t.set_future(&items, 1, Item::VALUE, 11))), no_row);
    let increment = |t: &mut <P::Worker as Interactive>::Transaction<'_>| {
        let value = t.future(&items, 1, Item::VALUE)?;
        t.set_future(&items, 1, Item::VALUE, value + 1)
    };
    assert_eq!(cause(run(&mut worker, increment)), no_row);
    assert_eq!(all(&mut worker, &items), [Item { id: 2, value: 20 }]);
}

/// Threads number their rows by one counter: each number is given once, and none is left out.
pub fn numbers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    const THREADS: u64 = 4;
    let rounds = scaled(200, 15) as u64;
    let (database, counters) = items(setup, &[(1, 0)]);
    let client_batches = create::<P, ClientBatch>(&database);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let mut worker = database.worker().unwrap();
            thread::spawn(move || {
                let mut random = Random::stream(43, thread);
                let mut sum = 0;
                for _ in 0..rounds {
                    let weight = random.below(10);
                    let given = drive::transact_resolved(&mut worker, &mut |t| {
                        let number = number(t, &counters)?;
                        t.insert_future(
                            &client_batches,
                            &client_batch(1, 0, weight),
                            [ClientBatch::NUMBER.becomes(number)],
                        )?;
                        Ok::<_, Error>((number, -number))
                    });
                    let (number, negative) = given.unwrap();
                    assert_eq!(number, -negative);
                    sum += number;
                }
                sum
            })
        })
        .collect();
    let sum: i64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let count = (THREADS * rounds) as i64;
    assert_eq!(sum, (0..count).sum::<i64>(), "what was told is what was given");
    let mut worker = database.worker().unwrap();
    let numbers = all(&mut worker, &client_batches).into_iter().map(|row| row.number);
    assert!(numbers.eq(0..count));
}

/// What has no value is an error where it is used, and on the side of a choice that is taken.
pub fn choices<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 12), (2, 0), (3, 5)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let (twelve, zero) = (t.future(&table, 1, Item::VALUE)?, t.future(&table, 2, Item::VALUE)?);
        let unused = twelve / zero;
        let careful = zero.equal_to(0).then(-1).otherwise(unused);
        assert!(t.is_true(careful.equal_to(-1) & !careful.equal_to(0) & zero.at_most(0))?);
        let capped =
            (twelve.less_than(i64::MAX) | careful.not_equal_to(-1)).then(twelve + 1).otherwise(twelve * i64::MAX);
        t.set_future(&table, 3, Item::VALUE, capped - 1 + 2 * (3 - careful).max(zero).min(100))?;
        let constant = Future::from(1) / 0;
        t.set_future(&table, 2, Item::VALUE, zero.greater_than(0).then(constant).otherwise(7))
    });
    assert_eq!(done(&mut worker, |t| Ok((value(t, &table, 2)?, value(t, &table, 3)?))), (Some(7), Some(20)));
    let taken = run(&mut worker, |t| {
        let (twelve, seven) = (t.future(&table, 1, Item::VALUE)?, t.future(&table, 2, Item::VALUE)?);
        let remainder = twelve - seven * (twelve / seven);
        t.set_future(&table, 3, Item::VALUE, remainder.equal_to(5).then(twelve / (seven - 7)).otherwise(0) + 1)
    });
    assert_eq!(cause(taken), FutureError::DivisionByZero { left: 12 });
}

/// A quantity, and what it costs.
#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Bill {
    #[key]
    id: u64,
    quantity: u8,
    price: Decimal<2>,
    discount: Decimal<4>,
}

/// Numbers of one type become numbers of another, and products and quotients of decimals are rounded. What does not fit is an error where it is used.
pub fn conversions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 3), (2, 256)]);
    let bills = create::<P, Bill>(&database);
    let mut worker = database.worker().unwrap();
    let bill = Bill { id: 1, quantity: 1, price: Decimal::from_units(1999), discount: Decimal::from_units(1250) };
    done(&mut worker, |t| t.insert(&bills, &bill));
    done(&mut worker, |t| {
        let (price, discount) = t.future(&bills, 1, (Bill::PRICE, Bill::DISCOUNT))?;
        let quantity = t.future(&table, 1, Item::VALUE)?;
        // 3 × 19.99 × 0.88, the last one of 0.875.
        let total = price * quantity.convert() * (Decimal::from_units(10_000) - discount).convert();
        let unused: Future<u8> = t.future(&table, 2, Item::VALUE)?.convert();
        let small = quantity.at_least(256).then(unused).otherwise(quantity.convert::<u8>());
        t.set_futures(
            &bills,
            1,
            [
                Bill::PRICE.becomes(total),
                Bill::QUANTITY.becomes(small),
                Bill::DISCOUNT.becomes(discount / Decimal::from_units(30_000)),
            ],
        )
    });
    let (price, discount) = (Decimal::from_units(5277), Decimal::from_units(417));
    assert_eq!(all(&mut worker, &bills), [Bill { quantity: 3, price, discount, ..bill }]);
    let refused = run(&mut worker, |t| {
        let quantity: Future<u8> = t.future(&table, 2, Item::VALUE)?.convert();
        t.set_future(&bills, 1, Bill::QUANTITY, quantity)
    });
    let (from, to) = ("i64".to_owned(), "u8".to_owned());
    assert_eq!(cause(refused), FutureError::Conversion { value: 256, from, to });
    let known = run(&mut worker, |t| t.set_future(&bills, 1, Bill::QUANTITY, Future::from(-1_i32).convert()));
    let (from, to) = ("i32".to_owned(), "u8".to_owned());
    assert_eq!(cause(known), FutureError::Conversion { value: -1, from, to });
}

/// A future is its transaction's: of no later one, and of none beside it.
pub fn foreign<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 1), (2, 2)]);
    let mut worker = database.worker().unwrap();
    let mut kept = None;
    done(&mut worker, |t| {
        kept = Some(t.future(&table, 1, Item::VALUE)?);
        Ok(())
    });
    let kept: Future<i64> = kept.expect("it has run");
    assert_eq!(cause(run(&mut worker, |t| t.set_future(&table, 2, Item::VALUE, kept))), FutureError::Foreign);
    assert_eq!(cause(run(&mut worker, |t| t.is_true(kept.at_least(0)))), FutureError::Foreign);
    let mixed = run(&mut worker, |t| {
        let own = t.future(&table, 2, Item::VALUE)?;
        t.resolve(own + kept)
    });
    assert_eq!(cause(mixed), FutureError::Foreign);
    // Plain values are all's.
    done(&mut worker, |t| t.set_future(&table, 2, Item::VALUE, Future::from(3) * 4));
    if setup.interleaves {
        let mut other = database.worker().unwrap();
        let (mut one, mut two) = (begin(&mut worker), begin(&mut other));
        let of_one = one.step(|t| t.future(&table, 1, Item::VALUE)).expect("nobody is in its way");
        let of_two = two.step(|t| t.future(&table, 2, Item::VALUE)).expect("nobody is in its way");
        assert_eq!(one.step(|t| t.is_true(of_one.at_least(1))), Some(true));
        let observed = two.step(|t| Ok(t.resolve(of_two + of_one).is_err() && t.resolve(of_one).is_err()));
        assert_eq!(observed, Some(true));
    }
}
