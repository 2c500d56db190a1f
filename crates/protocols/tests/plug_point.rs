//! The provided methods of the plug point, on protocols that override none or some of them: futures, aggregates, column
//! batches, and single reads.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::key::{EncodedKey, Key16};
use polychron_base::{Error, IndexId, TableId};
use polychron_engine::aggregate::AggregateError;
use polychron_engine::batch;
use polychron_engine::futures::{self, Bytes, ExpressionArena, FutureColumn, FutureError, Operand, Scope, Span};
use polychron_engine::lazy::{Node, Nodes, Source};
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Aggregate, ColumnBatch, Commit, Common, Direction, Futures, Insertion, Interactive, LazyFutures, Mode, Operations,
    Prefetch, Projection, Protocol, Queries, Restriction, RowMut, RowRef, Savepoints, Scan, Table, TableDefinition,
    Transaction, Worker, drive,
};
use polychron_protocols::{cicada::Cicada, maflingo::Maflingo, serial::Serial};
use polychron_schema::{Decimal, Key, KeyScratch, Row, Value, ValueRef};

#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "item")]
#[index(name = "by_stock", columns(stock))]
struct Item {
    #[key]
    id: u64,
    stock: i64,
    small: i8,
    price: Decimal<2>,
    weight: Option<f64>,
    open: bool,
    name: String,
}

impl Item {
    fn new(id: u64, stock: i64) -> Self {
        let weight = (!id.is_multiple_of(3)).then_some(id as f64 / 2.0);
        let price = Decimal::from_units(100 * id as i64);
        Self { id, stock, small: -1, price, weight, open: true, name: format!("item {id}") }
    }
}

struct Shop<P: Protocol> {
    database: Arc<P>,
    items: Table<Item>,
    worker: P::Worker,
}

impl<P: Protocol<Worker: Interactive>> Shop<P> {
    /// A database with the items `1..=items`, the stock of each ten times its id.
    fn open(items: u64) -> Self {
        let database = P::open(P::Options::default(), Common::default()).unwrap();
        let table = Table::from_id(database.create_table(Item::definition()).unwrap());
        let worker = database.worker().unwrap();
        let mut shop = Self { database, items: table, worker };
        for id in 1..=items {
            shop.transact(|transaction, items| transaction.insert(items, &Item::new(id, 10 * id as i64))).unwrap();
        }
        shop
    }

    fn transact<O>(
        &mut self,
        mut body: impl FnMut(&mut <P::Worker as Interactive>::Transaction<'_>, &Table<Item>) -> Result<O, Error>,
    ) -> Result<O, Error> {
        let items = self.items;
        drive::transact(&mut self.worker, Mode::ReadWrite, &mut |transaction| body(transaction, &items))
    }

    fn stock(&mut self, id: u64) -> i64 {
        self.transact(|transaction, items| Ok(transaction.get(items, id)?.unwrap().stock())).unwrap()
    }

    fn all(&self) -> Scan<'static> {
        Scan {
            table: self.items.id(),
            index: IndexId::PRIMARY,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            direction: Direction::Forward,
            limit: usize::MAX,
            projection: Projection::NONE,
            restrictions: &[],
        }
    }
}

/// The paper's running example: take from the stock if there is enough, else fill it up first.
fn futures_compute<P: Protocol<Worker: Interactive>>() {
    let mut shop = Shop::<P>::open(3);
    let taken = shop.transact(|transaction, items| {
        let stock = transaction.future(items, 2, Item::STOCK)?;
        if !transaction.is_true(stock.at_least(15))? {
            return Ok(false);
        }
        transaction.set_future(items, 2, Item::STOCK, stock - 15)?;
        // A transaction sees its own writes through futures too.
        let again = transaction.future(items, 2, Item::STOCK)?;
        assert_eq!(transaction.resolve(again)?, 5);
        Ok(true)
    });
    assert!(taken.unwrap());
    assert_eq!(shop.stock(2), 5);

    shop.transact(|transaction, items| {
        let (one, two) = (transaction.future(items, 1, Item::STOCK)?, transaction.future(items, 2, Item::STOCK)?);
        let chosen = one.less_than(two).then(0).otherwise(2 * one.max(two));
        transaction.set_future(items, 3, Item::STOCK, chosen)?;
        let (price, open, small) = transaction.future(items, 1, (Item::PRICE, Item::OPEN, Item::SMALL))?;
        transaction.set_future(items, 1, Item::PRICE, price + Decimal::from_units(5))?;
        assert!(transaction.is_true(open & small.less_than(0))?);
        transaction.set_future(items, 1, Item::OPEN, false)
    })
    .unwrap();
    assert_eq!(shop.stock(3), 20, "the larger stock is 10");
    let item = shop.transact(|transaction, items| Ok(transaction.get(items, 1)?.map(Item::from_ref))).unwrap().unwrap();
    assert_eq!((item.price.units(), item.open), (105, false));
    // The secondary index followed the writes.
    let found = shop.transact(|transaction, items| transaction.scan_by(items, Item::BY_STOCK, 20).count()).unwrap();
    assert_eq!(found, 1);
}

fn futures_that_have_no_value_undo_the_transaction<P: Protocol<Worker: Interactive>>() {
    let mut shop = Shop::<P>::open(1);
    let overflow = shop.transact(|transaction, items| {
        transaction.set_future(items, 1, Item::STOCK, 7)?;
        let small = transaction.future(items, 1, Item::SMALL)?;
        transaction.set_future(items, 1, Item::SMALL, small * i8::MIN)
    });
    assert!(matches!(no_value(overflow), FutureError::Overflow { left: -1, right: -128, .. }));
    assert_eq!(shop.stock(1), 10, "nothing of it remains");
    let absent = shop.transact(|transaction, items| transaction.future(items, 9, Item::STOCK).map(drop));
    assert!(matches!(no_value(absent), FutureError::NoRow(_)));
    let absent = shop.transact(|transaction, items| transaction.set_future(items, 9, Item::STOCK, 1));
    assert!(matches!(no_value(absent), FutureError::NoRow(_)));
}

fn no_value<O: std::fmt::Debug>(outcome: Result<O, Error>) -> FutureError {
    let Err(Error::NoValue(failed)) = outcome else { panic!("{outcome:?}") };
    failed.why
}

fn no_answer<O: std::fmt::Debug>(outcome: Result<O, Error>) -> AggregateError {
    let Err(Error::NoAnswer(failed)) = outcome else { panic!("{outcome:?}") };
    failed.why
}

/// Two workers: what a future stood for is protected like any other read, unless the protocol runs transactions alone.
fn futures_conflict_like_reads<P: Protocol<Worker: Interactive>>() {
    let mut shop = Shop::<P>::open(1);
    let items = shop.items;
    let mut other = shop.database.worker().unwrap();
    let mut slow = shop.worker.begin(Mode::ReadWrite).unwrap();
    let stock = slow.future(&items, 1, Item::STOCK).unwrap();
    drive::transact(&mut other, Mode::ReadWrite, &mut |transaction| transaction.set_future(&items, 1, Item::STOCK, 50))
        .unwrap();
    let outcome = slow.set_future(&items, 1, Item::STOCK, stock + 1).and_then(|()| slow.commit());
    assert!(outcome.is_err_and(|error| error.is_conflict()));
    assert_eq!(shop.stock(1), 50);
}

fn aggregates_agree_with_rows<P: Protocol<Worker: Interactive>>() {
    let mut shop = Shop::<P>::open(10);
    let all = shop.all();
    let position = |name| Item::definition().column_index(name).unwrap();
    let (stock, weight, name) = (position("stock"), position("weight"), position("name"));
    let below = [Restriction { column: stock, comparison: Comparison::AtMost, value: Value::Integer(40) }];
    let mut ask = |scan: &Scan<'_>, wanted| shop.transact(|transaction, _| transaction.aggregate(scan, wanted));
    assert_eq!(ask(&all, Aggregate::Rows).unwrap(), Value::Unsigned(10));
    assert_eq!(ask(&all, Aggregate::Count(weight)).unwrap(), Value::Unsigned(7));
    assert_eq!(ask(&all, Aggregate::Sum(stock)).unwrap(), Value::Integer(550));
    assert_eq!(ask(&all, Aggregate::Sum(position("price"))).unwrap(), Value::Decimal { units: 5500, scale: 2 });
    assert_eq!(ask(&all, Aggregate::Sum(weight)).unwrap(), Value::Float(18.5));
    assert_eq!(ask(&all, Aggregate::Min(weight)).unwrap(), Value::Float(0.5));
    assert_eq!(ask(&all, Aggregate::Max(name)).unwrap(), Value::String("item 9".into()));
    let small = Scan { restrictions: &below, ..all.clone() };
    assert_eq!(ask(&small, Aggregate::Max(stock)).unwrap(), Value::Integer(40));
    assert_eq!(ask(&small, Aggregate::Rows).unwrap(), Value::Unsigned(4));
    let mut scratch = KeyScratch::new();
    let mut bytes = [0; 8];
    EncodedKey::write_to(&99u64.encode(&mut scratch), &mut bytes);
    let none = Scan { lower: Bound::Included(&bytes), ..all.clone() };
    assert_eq!(ask(&none, Aggregate::Sum(stock)).unwrap(), Value::Null);
    assert_eq!(ask(&none, Aggregate::Min(stock)).unwrap(), Value::Null);
    assert_eq!(ask(&none, Aggregate::Rows).unwrap(), Value::Unsigned(0));
    assert!(matches!(no_answer(ask(&all, Aggregate::Sum(name))), AggregateError::NoSum(..)));
    assert!(matches!(no_answer(ask(&all, Aggregate::Min(99))), AggregateError::NoSuchColumn(_, 99)));
    shop.transact(|transaction, items| transaction.insert(items, &Item::new(11, i64::MAX))).unwrap();
    let sum = shop.transact(|transaction, _| transaction.aggregate(&all, Aggregate::Sum(stock)));
    assert!(matches!(no_answer(sum), AggregateError::Overflow(..)));
}

fn batches_hold_what_the_rows_hold<P: Protocol<Worker: Interactive>>() {
    let rows = batch::ROWS as u64 + 100;
    let mut shop = Shop::<P>::open(rows);
    let all = shop.all();
    let position = |name| Item::definition().column_index(name).unwrap();
    let columns = ["id", "stock", "small", "weight", "open"].map(position);
    let mut seen = std::collections::BTreeSet::new();
    let mut look = |batch: &ColumnBatch<'_>| {
        let [id, stock, small, weight, open] = batch.columns else { panic!("five columns") };
        assert!((1..=batch::ROWS).contains(&batch.rows));
        let ids = batch.positions().map(|position| {
            let item = Item::new(id.bits(position), stock.bits(position) as i64);
            assert_eq!(item.stock, 10 * item.id as i64);
            assert_eq!(weight.value(position), item.weight.map_or(ValueRef::Null, ValueRef::Float));
            assert_eq!((small.value(position), open.value(position)), (ValueRef::Integer(-1), ValueRef::Bool(true)));
            item.id
        });
        ids.collect::<Vec<_>>()
    };
    let mut keep = |ids: Vec<u64>| {
        assert!(ids.into_iter().all(|id| seen.insert(id)), "each row comes once");
        ControlFlow::Continue(())
    };
    shop.transact(|transaction, _| transaction.scan_columns(&all, &columns, &mut look, &mut keep)).unwrap();
    assert_eq!(seen.len() as u64, rows);

    let mut first = 0;
    let mut stop_at_once = |rows| {
        first += rows;
        ControlFlow::Break(())
    };
    let mut count = |batch: &ColumnBatch<'_>| batch.count();
    shop.transact(|transaction, _| transaction.scan_columns(&all, &[0], &mut count, &mut stop_at_once)).unwrap();
    assert!((1..=batch::ROWS).contains(&first));
    let mut never = |_: &ColumnBatch<'_>| panic!("nothing comes");
    let mut on = |()| ControlFlow::Continue(());
    let text = shop.transact(|transaction, _| transaction.scan_columns(&all, &[position("name")], &mut never, &mut on));
    assert!(matches!(text, Err(Error::NotNumeric(_))), "{text:?}");
}

fn one_row_is_read_without_a_transaction<P: Protocol<Worker: Interactive>>() {
    let mut shop = Shop::<P>::open(2);
    let table = shop.items.id();
    let mut read = |id: u64| {
        let mut scratch = KeyScratch::new();
        let key = id.encode(&mut scratch);
        shop.worker.read_one(table, key, &Item::STOCK.projection(), |row| row.map(|row| Item::STOCK.get(row))).unwrap()
    };
    assert_eq!((read(2), read(3)), (Some(20), None));
}

/// A transaction that leaves futures open until it is told to resolve them, around one of any protocol: shows which
/// methods a lazy path needs.
struct Lazy<'t, T> {
    inner: &'t mut T,
    columns: Vec<(TableId, Key16, FutureColumn)>,
    conditions: Vec<(Operand, bool)>,
    writes: Vec<(TableId, Key16, FutureColumn, Operand)>,
    expressions: ExpressionArena,
    /// What lies on the expression arena, while it is looked at.
    nodes: Box<Nodes>,
}

impl<'t, T: Transaction> Lazy<'t, T> {
    fn new(inner: &'t mut T) -> Self {
        let (conditions, writes) = (Vec::new(), Vec::new());
        Self {
            inner,
            columns: Vec::new(),
            conditions,
            writes,
            expressions: ExpressionArena::new(),
            nodes: Box::default(),
        }
    }

    fn push(&mut self, table: TableId, key: Key16, column: FutureColumn) -> Operand {
        self.columns.push((table, key, column));
        self.expressions.exchange(&mut self.nodes);
        let made = self.nodes.column(Source { row: self.columns.len() as u32 - 1, column, before: 0 });
        let made = self.nodes.operand(made);
        self.expressions.exchange(&mut self.nodes);
        made
    }

    /// The values of the nodes as they are now.
    fn values(&mut self) -> Result<Vec<futures::Value<Span>>, Error> {
        let mut values = Vec::new();
        self.expressions.exchange(&mut self.nodes);
        let Nodes { program, .. } = &mut *self.nodes;
        for node in &program.nodes {
            let value = match *node {
                Node::Column(source) => {
                    let (table, key, column) = self.columns[source.row as usize];
                    let mut future = [Operand::Pending(0)];
                    self.inner.read_futures(table, key, &[column], &mut future)?;
                    let [Operand::Known(value)] = future else { panic!("the protocol inside is eager") };
                    program.texts.keep_value(&value)?
                }
                Node::Expression(expression) => {
                    expression.evaluate(&mut program.texts, |position| Ok(values[position as usize]))?
                }
            };
            values.push(value);
        }
        self.expressions.exchange(&mut self.nodes);
        Ok(values)
    }

    /// What others see of a value: the test has numbers alone.
    fn nodes_of(&self, value: futures::Value<Span>) -> futures::Value<Bytes> {
        value.map(|_| unreachable!("it has no text"))
    }

    /// What commit does first: `false` when a condition that was observed as true or false no longer is.
    fn flush(mut self) -> Result<bool, Error> {
        let values = self.values()?;
        let value = |operand: &Operand| match operand {
            Operand::Known(value) => value.clone(),
            Operand::Pending(position) => self.nodes_of(values[*position as usize]),
        };
        if self.conditions.iter().any(|(condition, observed)| value(condition).is_true() != *observed) {
            return Ok(false);
        }
        let writes: Vec<_> =
            self.writes.iter().map(|(table, key, column, new)| (*table, *key, *column, value(new))).collect();
        for (table, key, column, value) in writes {
            self.inner.write_futures(table, key, &[(column, Operand::Known(value))])?;
        }
        Ok(true)
    }
}

fn short<K: EncodedKey>(key: K) -> Key16 {
    Key16::from_key(key).expect("the test's keys are short")
}

impl<T: Transaction> Transaction for Lazy<'_, T> {
    fn read_row<K: EncodedKey>(&mut self, t: TableId, key: K, p: &Projection) -> Result<Option<RowRef<'_>>, Error> {
        self.inner.read_row(t, key, p)
    }

    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        self.inner.read_row_unvalidated(table, key, projection)
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
        self.inner.scan_unchecked(scan, visitor)
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.inner.mark()
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.inner.undo_unchecked(position)
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.inner.savepoints()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        self.inner.definition(table)
    }
}

impl<T: Transaction> Queries for Lazy<'_, T> {}

impl<T: Transaction> LazyFutures for Lazy<'_, T> {
    fn future_scope(&mut self) -> Scope {
        self.expressions.scope()
    }

    fn read_futures<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        columns: &[FutureColumn],
        futures: &mut [Operand],
    ) -> Result<(), Error> {
        for (column, future) in columns.iter().zip(futures) {
            *future = self.push(table, short(key), *column);
        }
        Ok(())
    }

    fn test_future(&mut self, condition: Operand) -> Result<bool, Error> {
        let observed = self.resolve_future(condition.clone())?.is_true();
        self.conditions.push((condition, observed));
        Ok(observed)
    }

    fn write_futures<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        columns: &[(FutureColumn, Operand)],
    ) -> Result<(), Error> {
        self.writes.extend(columns.iter().map(|(column, value)| (table, short(key), *column, value.clone())));
        Ok(())
    }

    fn resolve_future(&mut self, future: Operand) -> Result<futures::Value<Bytes>, Error> {
        match future {
            Operand::Known(value) => Ok(value),
            Operand::Pending(position) => {
                let value = self.values()?[position as usize];
                Ok(self.nodes_of(value))
            }
        }
    }
}

impl<T: Transaction> Prefetch for Lazy<'_, T> {}

/// The stock may change between the reading of a future and the commit, as long as what was told about it stays true.
fn a_lazy_path_needs_few_methods<P: Protocol<Worker: Interactive>>() {
    for (meanwhile, stays_true, left) in [(30, true, 15), (12, false, 12)] {
        let mut shop = Shop::<P>::open(2);
        let resolved = shop.transact(|transaction, items| {
            let mut lazy = Lazy::new(transaction);
            let stock = lazy.future(items, 2, Item::STOCK)?;
            assert!(lazy.is_true(stock.at_least(15))?);
            lazy.set_future(items, 2, Item::STOCK, stock - 15)?;
            // What another transaction might do, seen from here.
            lazy.inner.set_future(items, 2, Item::STOCK, meanwhile)?;
            lazy.flush()
        });
        assert_eq!((resolved.unwrap(), shop.stock(2)), (stays_true, left));
    }
}

macro_rules! for_protocols {
    ($($test:ident),*; $($module:ident: $protocol:ty),*) => {
        for_protocols!(@each [$($test)*] $($module: $protocol),*);
    };
    (@each $tests:tt $($module:ident: $protocol:ty),*) => {$(
        mod $module {
            use super::*;
            for_protocols!(@tests $protocol, $tests);
        }
    )*};
    (@tests $protocol:ty, [$($test:ident)*]) => {$(
        #[test]
        fn $test() {
            super::$test::<$protocol>();
        }
    )*};
}

for_protocols!(
    futures_compute,
    futures_that_have_no_value_undo_the_transaction,
    aggregates_agree_with_rows,
    batches_hold_what_the_rows_hold,
    a_lazy_path_needs_few_methods,
    one_row_is_read_without_a_transaction;
    serial: Serial,
    maflingo: Maflingo,
    cicada: Cicada
);

#[test]
fn cicada_protects_what_futures_stood_for() {
    futures_conflict_like_reads::<Cicada>();
}

#[test]
fn maflingo_protects_what_futures_stood_for() {
    futures_conflict_like_reads::<Maflingo>();
}
