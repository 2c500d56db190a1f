//! OrderStatus (clause 2.6): a customer's latest order.

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Transaction};
use polychron_schema::{FixedString, Timestamp};

use super::new_order::MOST_LINES;
use super::{CustomerChoice, missing};
use crate::tpcc::schema::{Customer, Money, Order, OrderLine, Tables};

/// A line of the order.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the outputs of clause 2.6.3")]
pub struct ShownLine {
    pub item: u32,
    pub supplier: u16,
    pub quantity: u8,
    pub amount: Money,
    pub delivered: Option<Timestamp>,
}

/// Looks up what a customer ordered last.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the inputs of clause 2.6.1")]
pub struct OrderStatus {
    pub tables: Tables,
    pub warehouse: u16,
    pub district: u8,
    pub customer: CustomerChoice,
    pub snapshot: bool,
    /// Shown: the customer.
    pub customer_id: u32,
    /// Shown.
    pub balance: Money,
    /// Shown: first, middle and last name.
    pub name: (FixedString<16>, FixedString<2>, FixedString<16>),
    /// Shown: the order, when it was entered, and its carrier.
    pub order: Option<(u32, Timestamp, Option<u8>)>,
    /// Shown: as many of the lines as follow.
    pub line_count: usize,
    /// Shown.
    pub lines: [ShownLine; MOST_LINES],
}

impl Procedure for OrderStatus {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let Self { tables, warehouse, district, .. } = *self;
        let id = self.customer.find(transaction, &tables, warehouse, district)?;
        let key = (warehouse, district, id);
        let columns = (Customer::BALANCE, Customer::FIRST, Customer::MIDDLE, Customer::LAST);
        let customer = transaction.get_columns(&tables.customer, key, columns)?;
        let Some((balance, first, middle, last)) = customer else { return Err(missing::<Customer>(&key)) };
        (self.customer_id, self.balance, self.name) = (id, balance, (*first, *middle, *last));

        let columns = (Order::ID, Order::ENTERED, Order::CARRIER);
        let latest = transaction.scan_prefix_by(&tables.order, Order::BY_CUSTOMER, key).columns(columns).rev();
        self.order = latest.first(|order| (order.id(), order.entered(), order.carrier()))?;
        self.line_count = 0;
        let Some((order, ..)) = self.order else { return Ok(()) };

        let range = transaction.scan_prefix(&tables.order_line, (warehouse, district, order));
        let columns =
            (OrderLine::ITEM, OrderLine::SUPPLIER, OrderLine::QUANTITY, OrderLine::AMOUNT, OrderLine::DELIVERED);
        range.columns(columns).for_each(|row| {
            if let Some(line) = self.lines.get_mut(self.line_count) {
                *line = ShownLine {
                    item: row.item(),
                    supplier: row.supplier(),
                    quantity: row.quantity(),
                    amount: row.amount(),
                    delivered: row.delivered(),
                };
                self.line_count += 1;
            }
        })
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.partition(u64::from(self.warehouse));
        if let CustomerChoice::Id(id) = self.customer {
            declaration.row(&self.tables.customer, (self.warehouse, self.district, id), Access::Read);
        }
    }
}
