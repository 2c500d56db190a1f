//! The transactions by which the checks read the database. Each answers with plain numbers and can be repeated.

use std::ops::Range;

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Row, Transaction};

use crate::tpcc::procedures::missing;
use crate::tpcc::schema::{Customer, CustomerKey, District, History, Order, OrderLine, Tables, Undelivered, Warehouse};

/// A range of numbers, or all from a number on.
type Numbers = (u32, Option<u32>);

/// A warehouse's year-to-date in hundredths.
pub(super) struct ReadWarehouse {
    pub(super) tables: Tables,
    pub(super) warehouse: u16,
}

impl Procedure for ReadWarehouse {
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<i64, Error> {
        let row = transaction.get_columns(&self.tables.warehouse, self.warehouse, Warehouse::YEAR_TO_DATE)?;
        row.map(|year_to_date| year_to_date.units()).ok_or_else(|| missing::<Warehouse>(&self.warehouse))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.row(&self.tables.warehouse, self.warehouse, Access::Read);
    }
}

/// A district's next order number, and its year-to-date in hundredths.
pub(super) struct ReadDistrict {
    pub(super) tables: Tables,
    pub(super) warehouse: u16,
    pub(super) district: u8,
}

impl Procedure for ReadDistrict {
    type Output = (u32, i64);
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(u32, i64), Error> {
        let key = (self.warehouse, self.district);
        let columns = (District::NEXT_ORDER, District::YEAR_TO_DATE);
        let row = transaction.get_columns(&self.tables.district, key, columns)?;
        row.map(|(next, year_to_date)| (next, year_to_date.units())).ok_or_else(|| missing::<District>(&key))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.row(&self.tables.district, (self.warehouse, self.district), Access::Read);
    }
}

/// A payment.
pub(super) struct PaymentSeen {
    pub(super) district: u8,
    pub(super) customer: CustomerKey,
    pub(super) amount: i64,
}

/// Payments with some numbers of a client to a warehouse, those there are.
pub(super) struct ReadHistory {
    pub(super) tables: Tables,
    pub(super) warehouse: u16,
    pub(super) client: u16,
    pub(super) numbers: Range<u32>,
}

impl Procedure for ReadHistory {
    type Output = Vec<PaymentSeen>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<PaymentSeen>, Error> {
        let mut seen = Vec::new();
        let columns = (
            History::AMOUNT,
            History::CUSTOMER,
            History::CUSTOMER_WAREHOUSE,
            History::CUSTOMER_DISTRICT,
            History::DISTRICT,
        );
        for number in self.numbers.clone() {
            let key = (self.warehouse, self.client, number);
            let row = transaction.get_columns(&self.tables.history, key, columns)?;
            seen.extend(row.map(|(amount, customer, warehouse, home, district)| PaymentSeen {
                district,
                customer: (warehouse, home, customer),
                amount: amount.units(),
            }));
        }
        Ok(seen)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        for number in self.numbers.clone() {
            let key = (self.warehouse, self.client, number);
            declaration.row(&self.tables.history, key, Access::Read);
        }
    }
}

/// A customer.
#[derive(Debug)]
pub(super) struct CustomerSeen {
    pub(super) id: u32,
    pub(super) balance: i64,
    pub(super) paid: i64,
    pub(super) deliveries: u32,
}

/// The customers of a district.
pub(super) struct ReadCustomers {
    pub(super) tables: Tables,
    pub(super) warehouse: u16,
    pub(super) district: u8,
}

impl Procedure for ReadCustomers {
    type Output = Vec<CustomerSeen>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<CustomerSeen>, Error> {
        let range =
            transaction.scan_prefix_by(&self.tables.customer, Customer::BY_NAME, (self.warehouse, self.district));
        let columns = (Customer::ID, Customer::BALANCE, Customer::YEAR_TO_DATE_PAYMENT, Customer::DELIVERY_COUNT);
        range
            .columns(columns)
            .map(|row| CustomerSeen {
                id: row.id(),
                balance: row.balance().units(),
                paid: row.year_to_date_payment().units(),
                deliveries: row.delivery_count(),
            })
            .collect()
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// An order.
pub(super) struct OrderRow {
    pub(super) id: u32,
    pub(super) customer: u32,
    pub(super) lines: u8,
    pub(super) carried: bool,
}

/// The orders of some customers of a district.
pub(super) struct ReadOrders {
    pub(super) tables: Tables,
    pub(super) warehouse: u16,
    pub(super) district: u8,
    pub(super) customers: Numbers,
}

impl Procedure for ReadOrders {
    type Output = Vec<OrderRow>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<OrderRow>, Error> {
        let (first, end) = self.customers;
        let key = |customer| (self.warehouse, self.district, customer);
        let range = key(first)..=key(end.map_or(u32::MAX, |end| end - 1));
        let columns = (Order::ID, Order::CUSTOMER, Order::LINE_COUNT, Order::CARRIER);
        let orders = transaction.scan_range_by(&self.tables.order, Order::BY_CUSTOMER, range).columns(columns);
        let row = |order: <Order as Row>::Ref<'_>| OrderRow {
            id: order.id(),
            customer: order.customer(),
            lines: order.line_count(),
            carried: order.carrier().is_some(),
        };
        orders.map(row).collect()
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// The numbers of a district's new orders.
pub(super) struct ReadUndelivered {
    pub(super) tables: Tables,
    pub(super) warehouse: u16,
    pub(super) district: u8,
    pub(super) orders: Numbers,
}

impl Procedure for ReadUndelivered {
    type Output = Vec<u32>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<u32>, Error> {
        let (first, end) = self.orders;
        let key = |order| (self.warehouse, self.district, order);
        let range = key(first)..=key(end.map_or(u32::MAX, |end| end - 1));
        let rows = transaction.scan(&self.tables.undelivered, range).columns(Undelivered::ORDER);
        rows.map(|row| row.order()).collect()
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// An order line.
pub(super) struct LineSeen {
    pub(super) order: u32,
    pub(super) delivered: bool,
    pub(super) amount: i64,
}

/// The lines of some orders of a district.
pub(super) struct ReadLines {
    pub(super) tables: Tables,
    pub(super) warehouse: u16,
    pub(super) district: u8,
    pub(super) orders: Numbers,
}

impl Procedure for ReadLines {
    type Output = Vec<LineSeen>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Vec<LineSeen>, Error> {
        let (first, end) = self.orders;
        let key = |order, number| (self.warehouse, self.district, order, number);
        let range = key(first, 0)..=key(end.map_or(u32::MAX, |end| end - 1), u8::MAX);
        let columns = (OrderLine::ORDER, OrderLine::DELIVERED, OrderLine::AMOUNT);
        let lines = transaction.scan(&self.tables.order_line, range).columns(columns);
        let row = |line: <OrderLine as Row>::Ref<'_>| LineSeen {
            order: line.order(),
            delivered: line.delivered().is_some(),
            amount: line.amount().units(),
        };
        lines.map(row).collect()
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}
