//! Several typed answers in one pass, over ranges and over groups, against the rows themselves; and what changes of them.

use std::collections::BTreeMap;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::aggregate::AggregateError;
use polychron_engine::typed::{Aggregates, Conditions, count};
use polychron_engine::{Error, Interactive, Isolation, Operations, Protocol, Table, Transaction};
use polychron_schema::Decimal;

use crate::Setup;
use crate::rows::Goods;
use crate::setup::{Tx, begin, create, done, run};

/// Goods whose floating-point numbers have exact sums, whatever their order.
fn draw(random: &mut Random, id: u64) -> Goods {
    let floats = [-1.5, -0.0, 0.0, 0.25, 8.0];
    let float = |random: &mut Random| floats[random.below(5) as usize];
    Goods {
        id,
        shelf: random.chance(0.8).then(|| random.below(4) as u16),
        label: ["", "a", "ab", "b\0c"][random.below(4) as usize].to_owned(),
        stock: random.below(200) as i32 - 100,
        sold: random.chance(0.7).then(|| random.below(1 << 40)),
        price: Decimal::from_units(random.below(1000) as i64 - 300),
        weight: float(random) as f32,
        ratio: random.chance(0.6).then(|| float(random)),
        far: i128::from(random.below(9)) << 70,
        mark: 0,
    }
}

/// The answers of the rows, by the simplest means.
#[derive(Debug, PartialEq)]
struct Expected {
    rows: u64,
    sold: (u64, Option<u64>, Option<f64>, Option<u64>),
    stock: (Option<i64>, Option<i32>),
    price: (Option<Decimal<2>>, Option<f64>),
    weight: (Option<f64>, Option<f32>),
    ratio: (Option<f64>, Option<f64>),
    far: Option<i128>,
    label: (Option<String>, Option<String>),
}

/// The least number in the order of all floating-point numbers.
fn least(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    numbers.min_by(f64::total_cmp)
}

/// A sum of numbers that add up exactly; of none there is none.
fn exact(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect();
    // In quarters, and so as whole numbers.
    let quarters: i64 = numbers.iter().map(|number| (number * 4.0) as i64).sum();
    (!numbers.is_empty()).then_some(quarters as f64 / 4.0)
}

fn expected(rows: &[&Goods]) -> Expected {
    let some = |is_any: bool| is_any.then_some(());
    let any = some(!rows.is_empty());
    let sold: Vec<u64> = rows.iter().filter_map(|row| row.sold).collect();
    let sold_sum: u64 = sold.iter().sum();
    let units: i64 = rows.iter().map(|row| row.price.units()).sum();
    let weights = || rows.iter().map(|row| f64::from(row.weight));
    let ratios = || rows.iter().filter_map(|row| row.ratio);
    Expected {
        rows: rows.len() as u64,
        sold: (
            sold.len() as u64,
            sold.first().map(|_| sold_sum),
            sold.first().map(|_| sold_sum as f64 / sold.len() as f64),
            sold.iter().max().copied(),
        ),
        stock: (
            any.map(|()| rows.iter().map(|row| i64::from(row.stock)).sum()),
            rows.iter().map(|row| row.stock).min(),
        ),
        price: (any.map(|()| Decimal::from_units(units)), any.map(|()| units as f64 / rows.len() as f64 / 100.0)),
        weight: (exact(weights()), least(weights()).map(|weight| weight as f32)),
        ratio: (exact(ratios()).map(|sum| sum / ratios().count() as f64), least(ratios())),
        far: any.map(|()| rows.iter().map(|row| row.far).sum()),
        label: (rows.iter().map(|row| row.label.clone()).min(), rows.iter().map(|row| row.label.clone()).max()),
    }
}

/// Asks for everything, in three passes, for a tuple has eight answers at most.
macro_rules! ask {
    ($range:expr, $method:ident($($by:expr)?)) => {{
        let one = $range.$method($($by,)? (
            count(),
            Goods::SOLD.count(),
            Goods::SOLD.sum(),
            Goods::SOLD.average(),
            Goods::SOLD.max(),
            Goods::STOCK.sum(),
            Goods::STOCK.min(),
        ))?;
        let two = $range.$method($($by,)? (
            Goods::PRICE.sum(),
            Goods::PRICE.average(),
            Goods::WEIGHT.sum(),
            Goods::WEIGHT.min(),
            Goods::RATIO.average(),
            Goods::RATIO.min(),
        ))?;
        let three = $range.$method($($by,)? (Goods::FAR.sum(), Goods::LABEL.min(), Goods::LABEL.max()))?;
        (one, two, three)
    }};
}

type One = (u64, u64, Option<u64>, Option<f64>, Option<u64>, Option<i64>, Option<i32>);
type Two = (Option<Decimal<2>>, Option<f64>, Option<f64>, Option<f32>, Option<f64>, Option<f64>);
type Three = (Option<i128>, Option<String>, Option<String>);

fn told(one: One, two: Two, three: Three) -> Expected {
    Expected {
        rows: one.0,
        sold: (one.1, one.2, one.3, one.4),
        stock: (one.5, one.6),
        price: (two.0, two.1),
        weight: (two.2, two.3),
        ratio: (two.4, two.5),
        far: three.0,
        label: (three.1, three.2),
    }
}

/// Equal, with -0.0 and 0.0 apart.
fn compare(told: &Expected, expected: &Expected, what: &str) {
    assert_eq!(told, expected, "{what}");
    let signs = |it: &Expected| {
        let signs = [it.weight.0, it.weight.1.map(f64::from), it.ratio.0, it.ratio.1];
        signs.map(|number| number.map(f64::is_sign_negative))
    };
    assert_eq!(signs(told), signs(expected), "{what}: signs of {told:?} and {expected:?}");
}

fn compare_ranges<T: Transaction>(t: &mut T, table: &Table<Goods>, rows: &BTreeMap<u64, Goods>) -> Result<(), Error> {
    let chosen = |holds: &dyn Fn(&Goods) -> bool| rows.values().filter(|row| holds(row)).collect::<Vec<_>>();
    let (one, two, three) = ask!(t.scan(table, ..), aggregate());
    compare(&told(one, two, three), &expected(&chosen(&|_| true)), "all");
    let (one, two, three) = ask!(t.scan(table, 5..20), aggregate());
    compare(&told(one, two, three), &expected(&chosen(&|row| (5..20).contains(&row.id))), "some");
    let (one, two, three) = ask!(t.scan(table, ..).such_that(Goods::STOCK.at_least(10)), aggregate());
    compare(&told(one, two, three), &expected(&chosen(&|row| row.stock >= 10)), "in stock");
    let (one, two, three) = ask!(t.scan(table, ..).such_that(Goods::STOCK.greater_than(1000)), aggregate());
    compare(&told(one, two, three), &expected(&[]), "none");
    let (one, two, three) = ask!(t.scan(table, ..).rev().limit(3), aggregate());
    let last: Vec<_> = rows.values().rev().take(3).collect();
    compare(&told(one, two, three), &expected(&last), "the last three");
    let (one, two, three) = ask!(t.scan_by(table, Goods::BY_SHELF, Some(2)), aggregate());
    compare(&told(one, two, three), &expected(&chosen(&|row| row.shelf == Some(2))), "on one shelf");
    Ok(())
}

fn compare_groups<T: Transaction>(t: &mut T, table: &Table<Goods>, rows: &BTreeMap<u64, Goods>) -> Result<(), Error> {
    let mut shelves: BTreeMap<Option<u16>, Vec<&Goods>> = BTreeMap::new();
    let mut places: BTreeMap<(String, Option<u16>), Vec<&Goods>> = BTreeMap::new();
    for row in rows.values() {
        shelves.entry(row.shelf).or_default().push(row);
        places.entry((row.label.clone(), row.shelf)).or_default().push(row);
    }
    let (one, two, three) = ask!(t.scan(table, ..), group_by(Goods::SHELF));
    assert_eq!(one.iter().map(|group| group.0).collect::<Vec<_>>(), shelves.keys().copied().collect::<Vec<_>>());
    for (((one, two), three), (shelf, rows)) in one.into_iter().zip(two).zip(three).zip(&shelves) {
        assert!(one.0 == *shelf && two.0 == *shelf && three.0 == *shelf);
        compare(&told(one.1, two.1, three.1), &expected(rows), "a shelf");
    }
    let (one, two, three) = ask!(t.scan(table, ..), group_by((Goods::LABEL, Goods::SHELF)));
    assert_eq!(one.iter().map(|group| group.0.clone()).collect::<Vec<_>>(), places.keys().cloned().collect::<Vec<_>>());
    for (((one, two), three), rows) in one.into_iter().zip(two).zip(three).zip(places.values()) {
        compare(&told(one.1, two.1, three.1), &expected(rows), "a place");
    }
    // Columns that all come in batches.
    let numbers = t.scan(table, ..).group_by((Goods::SHELF, Goods::RATIO), (count(), Goods::STOCK.max()))?;
    let mut expected: BTreeMap<_, (u64, Option<i32>)> = BTreeMap::new();
    for row in rows.values() {
        // In the total order of floating-point numbers.
        let bits =
            row.ratio.map(|ratio| ratio.to_bits() as i64).map(|bits| if bits < 0 { !(bits & i64::MAX) } else { bits });
        let group = expected.entry((row.shelf, bits)).or_default();
        *group = (group.0 + 1, group.1.max(Some(row.stock)));
    }
    assert_eq!(numbers.iter().map(|group| group.1).collect::<Vec<_>>(), expected.into_values().collect::<Vec<_>>());
    Ok(())
}

/// Random rows of every kind of number, changed by the transaction itself and by those before it.
pub fn of_ranges_and_groups<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Goods>(&database);
    let mut worker = database.worker().unwrap();
    let mut random = Random::from_seed(23);
    let mut rows = BTreeMap::new();
    for round in 0..scaled(8, 2) {
        let mut after = rows.clone();
        let seed = random.below(1 << 40);
        done(&mut worker, |t| {
            let mut random = Random::from_seed(seed);
            after.clone_from(&rows);
            for _ in 0..[0, 1, 40, 3][round % 4] {
                let id = random.below(40);
                if random.chance(0.2) {
                    t.delete(&table, id)?;
                    after.remove(&id);
                } else {
                    let row = draw(&mut random, id);
                    t.upsert(&table, &row)?;
                    after.insert(id, row);
                }
            }
            compare_ranges(t, &table, &after)?;
            compare_groups(t, &table, &after)
        });
        rows = after;
        done(&mut worker, |t| {
            compare_ranges(t, &table, &rows)?;
            compare_groups(t, &table, &rows)
        });
        setup.pass(&database, 2);
    }
}

fn goods(id: u64) -> Goods {
    Goods { id, ..draw(&mut Random::from_seed(id), id) }
}

/// Why there is no answer.
fn cause(error: &Error) -> Option<&AggregateError> {
    if let Error::NoAnswer(failed) = error { Some(&failed.why) } else { None }
}

/// Sums at the ends of their types, numbers that are none, and groups of which there are too many or whose names are too long.
pub fn at_the_ends<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = create::<P, Goods>(&database);
    let mut worker = database.worker().unwrap();
    let row = |id| Goods {
        shelf: Some(1),
        sold: Some(u64::MAX),
        far: i128::MAX,
        price: Decimal::from_units(i64::MIN),
        ..goods(id)
    };
    done(&mut worker, |t| (0..2).try_for_each(|id| t.insert(&table, &row(id))));
    let overflow = |outcome: Result<(), Error>, wanted: usize| match outcome {
        Err(error) => {
            assert!(matches!(cause(&error), Some(AggregateError::Overflow(_, column)) if *column == wanted), "{error}")
        }
        Ok(()) => panic!("the sum fits"),
    };
    overflow(run(&mut worker, |t| t.scan(&table, ..).aggregate((count(), Goods::SOLD.sum())).map(drop)), 4);
    overflow(run(&mut worker, |t| t.scan(&table, ..).aggregate((Goods::FAR.sum(),)).map(drop)), 8);
    overflow(run(&mut worker, |t| t.scan(&table, ..).group_by(Goods::SHELF, Goods::PRICE.sum()).map(drop)), 5);
    done(&mut worker, |t| {
        // Averages overflow nothing, and each sum by itself fits.
        let averages = (Goods::SOLD.average(), Goods::FAR.average(), Goods::PRICE.average());
        let (sold, far, price) = t.scan(&table, ..).aggregate(averages)?;
        assert_eq!((sold, far), (Some(u64::MAX as f64), Some(i128::MAX as f64)));
        assert_eq!(price, Some(i64::MIN as f64 / 100.0));
        let each = t.scan(&table, ..).group_by(Goods::ID, Goods::SOLD.sum())?;
        assert_eq!(each, [(0, Some(u64::MAX)), (1, Some(u64::MAX))]);
        t.update(&table, 0, |row| row.set_ratio(Some(f64::NAN)))?;
        t.update(&table, 1, |row| row.set_ratio(Some(-f64::INFINITY)))?;
        let (sum, average, min, max) = t.scan(&table, ..).aggregate((
            Goods::RATIO.sum(),
            Goods::RATIO.average(),
            Goods::RATIO.min(),
            Goods::RATIO.max(),
        ))?;
        assert!(sum.is_some_and(f64::is_nan) && average.is_some_and(f64::is_nan) && max.is_some_and(f64::is_nan));
        assert_eq!(min, Some(f64::NEG_INFINITY));
        let groups = t.scan(&table, ..).group_by(Goods::RATIO, count())?;
        assert!(matches!(groups[..], [(Some(f64::NEG_INFINITY), 1), (Some(nan), 1)] if nan.is_nan()), "{groups:?}");
        Ok(())
    });
    let many = run(&mut worker, |t| t.scan(&table, ..).group_by_at_most(1, Goods::ID, count()).map(drop));
    assert!(
        many.is_err_and(|error| cause(&error) == Some(&AggregateError::TooManyGroups { table: table.id(), most: 1 }))
    );
    done(&mut worker, |t| t.scan(&table, ..).group_by_at_most(2, Goods::ID, count()).map(drop));
    done(&mut worker, |t| t.update(&table, 0, |row| row.set_label(&"l".repeat(1100))).map(drop));
    let long = run(&mut worker, |t| t.scan(&table, ..).group_by(Goods::LABEL, count()).map(drop));
    assert!(matches!(long, Err(Error::KeyTooLong(_))), "{long:?}");
    // Of what is no key the extremes are told all the same.
    let longest = done(&mut worker, |t| t.scan(&table, ..).aggregate(Goods::LABEL.max()));
    assert!(longest.is_some());
}

/// Asks, and answers numbers.
type Ask<P> = fn(&mut Tx<'_, P>, &Table<Goods>) -> Result<Vec<i64>, Error>;

fn in_stock<P: Protocol<Worker: Interactive>>(t: &mut Tx<'_, P>, table: &Table<Goods>) -> Result<Vec<i64>, Error> {
    let range = t.scan(table, ..).such_that(Goods::STOCK.at_least(5));
    let (rows, sum, least) = range.aggregate((count(), Goods::STOCK.sum(), Goods::PRICE.min()))?;
    Ok(vec![rows as i64, sum.unwrap_or(0), least.map_or(0, Decimal::units)])
}

fn by_shelf<P: Protocol<Worker: Interactive>>(t: &mut Tx<'_, P>, table: &Table<Goods>) -> Result<Vec<i64>, Error> {
    let range = t.scan(table, ..).such_that(Goods::STOCK.at_least(5));
    let groups = range.group_by(Goods::SHELF, (count(), Goods::STOCK.max()))?;
    Ok(groups
        .into_iter()
        .flat_map(|(shelf, (rows, most))| [shelf.map_or(-1, i64::from), rows as i64, most.map_or(0, i64::from)])
        .collect())
}

/// What another transaction does between the question and the commit.
type Change<P> = fn(&mut Tx<'_, P>, &Table<Goods>) -> Result<(), Error>;

fn row_of(id: u64, stock: i32) -> Goods {
    Goods { id, stock, shelf: Some(1), price: Decimal::from_units(100), ..goods(id) }
}

/// Two transactions: one asks and writes elsewhere, the other one reads that and changes what the first one has asked. Both commit only if the
/// change is none of the answer, or the level of isolation allows it.
fn crossed<P: Protocol<Worker: Interactive>>(setup: &Setup<P>, ask: Ask<P>, change: Change<P>) -> bool {
    let database = setup.open();
    let table = create::<P, Goods>(&database);
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut left, |t| (1..4).try_for_each(|id| t.insert(&table, &row_of(id, 10 * id as i32 - 10))));
    let before = done(&mut left, |t| ask(t, &table));
    let (mut one, mut two) = (begin(&mut left), begin(&mut right));
    let asked = one.step(|t| ask(t, &table));
    let seen = two.step(|t| Ok(t.get(&table, 100)?.is_some()));
    one.step(|t| t.insert(&table, &row_of(100, 0)));
    two.step(|t| change(t, &table));
    let both = one.commit() & two.commit();
    let neither_saw_the_other = asked.as_ref() == Some(&before) && seen == Some(false);
    let after = done(&mut left, |t| ask(t, &table));
    both && neither_saw_the_other && after != before
}

/// Phantoms and updates that change an answer.
pub fn phantoms<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let changes: [Change<P>; 6] = [
        |t, table| t.insert(table, &row_of(50, 7)),
        |t, table| t.update(table, 1, |row| row.set_stock(9)).map(drop),
        |t, table| t.update(table, 2, |row| row.set_stock(4)).map(drop),
        |t, table| t.update(table, 3, |row| row.set_stock(21)).map(drop),
        |t, table| t.delete(table, 3).map(drop),
        |t, table| t.upsert(table, &Goods { shelf: None, ..row_of(2, 99) }),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for ask in [in_stock::<P> as Ask<P>, by_shelf::<P>] {
            let committed = crossed(setup, ask, change);
            assert_eq!(committed, setup.isolation == Isolation::Snapshot, "change {number}");
        }
    }
    let shelf: Change<P> = |t, table| t.update(table, 2, |row| row.set_shelf(Some(3))).map(drop);
    assert_eq!(crossed(setup, by_shelf::<P>, shelf), setup.isolation == Isolation::Snapshot);
    let price: Change<P> = |t, table| t.update(table, 2, |row| row.set_price(Decimal::from_units(99))).map(drop);
    assert_eq!(crossed(setup, in_stock::<P>, price), setup.isolation == Isolation::Snapshot);
}
