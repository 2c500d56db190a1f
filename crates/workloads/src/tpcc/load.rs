//! The first contents (clause 4.3.3), loaded district by district so that several threads can share a warehouse.
//!
//! Every batch draws from a generator that is seeded by what the batch is, thus it can be repeated after a conflict, and
//! the contents do not depend on how many threads load them.

use std::time::Duration;

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Transaction, Worker};
use polychron_schema::{Decimal, FixedString, Timestamp};

use super::options::Scale;
use super::random::Random;
use super::schema::{
    Customer, District, History, Item, Money, Order, OrderLine, Rate, STOCK_DISTRICTS, Stock, Tables, Undelivered,
    Warehouse,
};
use crate::run::Share;

/// Rows of a batch of items, stock or customers; orders bring about a dozen rows each.
const BATCH: u32 = 250;
const ORDERS_BATCH: u32 = 25;
/// The initial payment of every customer (clause 4.3.3.1).
const FIRST_PAYMENT: Money = Decimal::from_units(1_000);

/// Loads a share of the database.
pub(super) struct Loader<'a> {
    pub(super) tables: &'a Tables,
    pub(super) scale: Scale,
    pub(super) warehouses: u16,
    pub(super) share: &'a Share<'a>,
}

/// The rows that are loaded in one transaction.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Items,
    Warehouse,
    District,
    Stock,
    Customers,
    /// With the permutation that gives each order its customer.
    Orders(&'a [u32]),
}

struct Batch<'a> {
    loader: &'a Loader<'a>,
    kind: Kind<'a>,
    warehouse: u16,
    district: u8,
    /// First and last number.
    numbers: (u32, u32),
}

impl Loader<'_> {
    /// Loads the districts of the share.
    pub(super) fn load<W: Worker>(&self, worker: &mut W) -> Result<(), Error> {
        if self.share.part == 0 {
            self.in_batches(worker, Kind::Items, (0, 0), (1, self.scale.items), BATCH)?;
        }
        self.districts().try_for_each(|(warehouse, district)| self.load_district(worker, warehouse, district))
    }

    /// The districts of the share, each with its warehouse.
    fn districts(&self) -> impl Iterator<Item = (u16, u8)> {
        let districts = u64::from(self.scale.districts);
        let units = self.share.of(u64::from(self.warehouses) * districts);
        units.map(move |unit| ((unit / districts) as u16 + 1, (unit % districts) as u8 + 1))
    }

    /// Waits until a snapshot sees the rows of the part: where snapshots lie in the past, transactions that use them would
    /// otherwise begin before there is anything to see.
    pub(super) fn wait_for_snapshots<W: Worker>(&self, worker: &mut W) -> Result<(), Error> {
        // A database whose snapshots stand still, as some tests want it, must not stop loading for ever.
        const LONGEST_MS: u32 = 5_000;
        let Some((warehouse, district)) = self.districts().last() else { return Ok(()) };
        let key = (warehouse, district, self.scale.orders);
        for _ in 0..LONGEST_MS {
            if worker.snapshot(&mut Probe { tables: self.tables, order: key })? {
                break;
            }
            worker.maintain();
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn load_district<W: Worker>(&self, worker: &mut W, warehouse: u16, district: u8) -> Result<(), Error> {
        let Scale { items, districts, customers, orders, .. } = self.scale;
        let position = (warehouse, district);
        if district == 1 {
            self.in_batches(worker, Kind::Warehouse, position, (1, 1), 1)?;
        }
        self.in_batches(worker, Kind::District, position, (1, 1), 1)?;
        // Each district brings its share of the warehouse's stock.
        let share = |district: u8| (u64::from(items) * u64::from(district) / u64::from(districts)) as u32;
        self.in_batches(worker, Kind::Stock, position, (share(district - 1) + 1, share(district)), BATCH)?;
        self.in_batches(worker, Kind::Customers, position, (1, customers), BATCH)?;
        let seeds = [self.share.seed, u64::MAX, u64::from(warehouse), u64::from(district)];
        let permutation = Random::new(&seeds).permutation(customers);
        self.in_batches(worker, Kind::Orders(&permutation), position, (1, orders), ORDERS_BATCH)
    }

    fn in_batches<W: Worker>(
        &self,
        worker: &mut W,
        kind: Kind<'_>,
        (warehouse, district): (u16, u8),
        (first, last): (u32, u32),
        size: u32,
    ) -> Result<(), Error> {
        let mut from = first;
        while from <= last {
            let to = last.min(from + size - 1);
            let rows = worker.execute(&mut Batch { loader: self, kind, warehouse, district, numbers: (from, to) })?;
            (self.share.progress)(rows);
            from = to + 1;
        }
        Ok(())
    }
}

/// Whether an order is there.
struct Probe<'a> {
    tables: &'a Tables,
    order: (u16, u8, u32),
}

impl Procedure for Probe<'_> {
    type Output = bool;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<bool, Error> {
        Ok(transaction.get_columns(&self.tables.order, self.order, Order::ID)?.is_some())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.row(&self.tables.order, self.order, Access::Read);
    }
}

impl Procedure for Batch<'_> {
    type Output = u64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<u64, Error> {
        let (first, last) = self.numbers;
        let kind = match self.kind {
            Kind::Items => 0,
            Kind::Warehouse => 1,
            Kind::District => 2,
            Kind::Stock => 3,
            Kind::Customers => 4,
            Kind::Orders(_) => 5,
        };
        let position = (u64::from(self.warehouse) << 8) | u64::from(self.district);
        let mut random = Random::new(&[self.loader.share.seed, kind, position, u64::from(first)]);
        let mut rows = 0;
        for number in first..=last {
            rows += match self.kind {
                Kind::Items => self.item(transaction, &mut random, number)?,
                Kind::Warehouse => self.warehouse(transaction, &mut random)?,
                Kind::District => self.district(transaction, &mut random)?,
                Kind::Stock => self.stock(transaction, &mut random, number)?,
                Kind::Customers => self.customer(transaction, &mut random, number)?,
                Kind::Orders(customers) => self.order(transaction, &mut random, number, customers)?,
            };
        }
        Ok(rows)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Self { loader: Loader { tables, scale, .. }, warehouse, district, .. } = *self;
        let insert = Access::Insert;
        for number in self.numbers.0..=self.numbers.1 {
            match self.kind {
                Kind::Items => declaration.row(&tables.item, number, insert),
                Kind::Warehouse => declaration.row(&tables.warehouse, warehouse, insert),
                Kind::District => declaration.row(&tables.district, (warehouse, district), insert),
                Kind::Stock => declaration.row(&tables.stock, (warehouse, number), insert),
                Kind::Customers => {
                    declaration.row(&tables.customer, (warehouse, district, number), insert);
                    let history = loaded_history_number(scale, district, number);
                    declaration.row(&tables.history, (warehouse, History::LOADED, history), insert);
                }
                Kind::Orders(_) => {
                    let key = (warehouse, district, number);
                    declaration.row(&tables.order, key, insert);
                    // How many lines it has is drawn in the run.
                    declaration.rows(&tables.order_line, key, Access::Insert);
                    if !is_delivered(scale, number) {
                        declaration.row(&tables.undelivered, key, insert);
                    }
                }
            }
        }
    }
}

impl Batch<'_> {
    /// Loading takes no time: the rows of one order after the other are a second apart.
    fn date(&self, number: u32) -> Timestamp {
        Timestamp(i64::from(number) * 1_000_000)
    }

    fn item<T: Transaction>(&self, transaction: &mut T, random: &mut Random, id: u32) -> Result<u64, Error> {
        let item = Item {
            id,
            price: Decimal::from_units(i64::from(random.range(100, 10_000))),
            image: random.range(1, 10_000),
            name: random.text(14, 24),
            data: random.item_data(),
        };
        transaction.insert(&self.loader.tables.item, &item)?;
        Ok(1)
    }

    fn warehouse<T: Transaction>(&self, transaction: &mut T, random: &mut Random) -> Result<u64, Error> {
        let customers = i64::from(self.loader.scale.customers) * i64::from(self.loader.scale.districts);
        let warehouse = Warehouse {
            id: self.warehouse,
            tax: tax(random),
            year_to_date: Decimal::from_units(FIRST_PAYMENT.units() * customers),
            name: random.text(6, 10),
            street_1: random.text(10, 20),
            street_2: random.text(10, 20),
            city: random.text(10, 20),
            state: random.text(2, 2),
            zip: random.zip(),
        };
        transaction.insert(&self.loader.tables.warehouse, &warehouse)?;
        Ok(1)
    }

    fn district<T: Transaction>(&self, transaction: &mut T, random: &mut Random) -> Result<u64, Error> {
        let Scale { customers, orders, .. } = self.loader.scale;
        let district = District {
            warehouse: self.warehouse,
            id: self.district,
            tax: tax(random),
            year_to_date: Decimal::from_units(FIRST_PAYMENT.units() * i64::from(customers)),
            next_order: orders + 1,
            name: random.text(6, 10),
            street_1: random.text(10, 20),
            street_2: random.text(10, 20),
            city: random.text(10, 20),
            state: random.text(2, 2),
            zip: random.zip(),
        };
        transaction.insert(&self.loader.tables.district, &district)?;
        Ok(1)
    }

    fn stock<T: Transaction>(&self, transaction: &mut T, random: &mut Random, item: u32) -> Result<u64, Error> {
        let quantity = random.range(10, 100) as i16;
        let info: [FixedString<24>; STOCK_DISTRICTS.len()] = std::array::from_fn(|_| random.text(24, 24));
        let [district_01, district_02, district_03, district_04, district_05, ..] = info;
        let [.., district_06, district_07, district_08, district_09, district_10] = info;
        let stock = Stock {
            warehouse: self.warehouse,
            item,
            quantity,
            year_to_date: 0,
            order_count: 0,
            remote_count: 0,
            district_01,
            district_02,
            district_03,
            district_04,
            district_05,
            district_06,
            district_07,
            district_08,
            district_09,
            district_10,
            data: random.item_data(),
        };
        transaction.insert(&self.loader.tables.stock, &stock)?;
        Ok(1)
    }

    fn customer<T: Transaction>(&self, transaction: &mut T, random: &mut Random, id: u32) -> Result<u64, Error> {
        let customer = Customer {
            warehouse: self.warehouse,
            district: self.district,
            id,
            balance: Decimal::from_units(-FIRST_PAYMENT.units()),
            year_to_date_payment: FIRST_PAYMENT,
            discount: Decimal::from_units(i64::from(random.range(0, 5_000))),
            credit_limit: Decimal::from_units(5_000_000),
            since: self.date(id),
            payment_count: 1,
            delivery_count: 0,
            credit: FixedString::truncated(if random.percent(10) { "BC" } else { "GC" }),
            last: random.loaded_last_name(id),
            first: random.text(8, 16),
            middle: FixedString::truncated("OE"),
            street_1: random.text(10, 20),
            street_2: random.text(10, 20),
            city: random.text(10, 20),
            state: random.text(2, 2),
            zip: random.zip(),
            phone: random.digits(),
            data: random.text(300, 500),
        };
        transaction.insert(&self.loader.tables.customer, &customer)?;
        let history = History {
            warehouse: self.warehouse,
            client: History::LOADED,
            number: loaded_history_number(&self.loader.scale, self.district, id),
            amount: FIRST_PAYMENT,
            date: self.date(id),
            customer: id,
            customer_warehouse: self.warehouse,
            customer_district: self.district,
            district: self.district,
            data: random.text(12, 24),
        };
        transaction.insert(&self.loader.tables.history, &history)?;
        Ok(2)
    }

    fn order<T: Transaction>(
        &self,
        transaction: &mut T,
        random: &mut Random,
        id: u32,
        customers: &[u32],
    ) -> Result<u64, Error> {
        let (tables, scale) = (self.loader.tables, &self.loader.scale);
        let (warehouse, district) = (self.warehouse, self.district);
        let delivered = is_delivered(scale, id);
        let line_count = random.range(5, 15) as u8;
        let order = Order {
            warehouse,
            district,
            id,
            customer: customers[id as usize - 1],
            entered: self.date(id),
            carrier: delivered.then(|| random.range(1, 10) as u8),
            line_count,
            all_local: true,
        };
        transaction.insert(&tables.order, &order)?;
        for number in 1..=line_count {
            let amount = if delivered { 0 } else { random.range(1, 999_999) };
            let line = OrderLine {
                warehouse,
                district,
                order: id,
                number,
                quantity: 5,
                supplier: warehouse,
                amount: Decimal::from_units(i64::from(amount)),
                delivered: delivered.then(|| self.date(id)),
                item: random.range(1, scale.items),
                district_info: random.text(24, 24),
            };
            transaction.insert(&tables.order_line, &line)?;
        }
        if !delivered {
            transaction.insert(&tables.undelivered, &Undelivered { warehouse, district, order: id })?;
        }
        Ok(1 + u64::from(line_count) + u64::from(!delivered))
    }
}

/// Whether an order is delivered at first.
fn is_delivered(scale: &Scale, order: u32) -> bool {
    order <= scale.orders - scale.undelivered
}

/// 0 to 20 %.
fn tax(random: &mut Random) -> Rate {
    Decimal::from_units(i64::from(random.range(0, 2_000)))
}

/// The number in the key of a loaded payment.
pub(super) fn loaded_history_number(scale: &Scale, district: u8, customer: u32) -> u32 {
    u32::from(district - 1) * scale.customers + customer - 1
}
