//! Delivery (clause 2.7): the oldest undelivered order of every district goes out.
//!
//! Orders of a district are numbered in the order in which they commit, and Delivery takes them in that order. So once a
//! committed transaction has delivered an order, neither it nor one below it will ever wait again, and a client that
//! remembers it can begin to search behind it, instead of among the keys of orders that went out a time ago.

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Transaction};
use polychron_schema::Timestamp;

use super::{add, found};
use crate::tpcc::schema::{Customer, Money, Order, OrderLine, Tables, Undelivered};

/// The most districts of a warehouse.
pub const MOST_DISTRICTS: usize = 10;

/// Delivers one order a district, all in one transaction.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the inputs of clause 2.7.1")]
pub struct Delivery {
    pub tables: Tables,
    pub warehouse: u16,
    pub districts: u8,
    pub carrier: u8,
    pub date: Timestamp,
    /// When it was asked for, in nanoseconds.
    pub queued_ns: u64,
    /// For each district, an order below which none waits.
    pub search_from: [u32; MOST_DISTRICTS],
    /// The same after this transaction has committed.
    pub search_next: [u32; MOST_DISTRICTS],
    /// Shown: how many orders went out; fewer than there are districts when some had none.
    pub delivered: u8,
}

/// An order that goes out.
#[derive(Clone, Copy, Debug, Default)]
struct Outgoing {
    order: u32,
    customer: u32,
    line_count: u8,
}

impl Delivery {
    /// For each district the order that went out, if there was one.
    pub fn orders(&self) -> impl Iterator<Item = Option<u32>> {
        let districts = usize::from(self.districts).min(MOST_DISTRICTS);
        let order = |(from, next): (u32, u32)| (from != next).then(|| next.wrapping_sub(1));
        self.search_from.into_iter().zip(self.search_next).map(order).take(districts)
    }

    /// The oldest order of a district that waits.
    #[inline]
    fn oldest<T: Transaction>(&self, transaction: &mut T, district: u8, from: u32) -> Result<Option<u32>, Error> {
        let (first, last) = ((self.warehouse, district, from), (self.warehouse, district, u32::MAX));
        let waiting = transaction.scan(&self.tables.undelivered, first..=last);
        waiting.columns(Undelivered::ORDER).first(|row| row.order())
    }

    /// Takes the order from the waiting ones and gives it a carrier; asks for its lines and its customer.
    #[inline]
    fn send<T: Transaction>(&self, transaction: &mut T, district: u8, order: u32) -> Result<Outgoing, Error> {
        let Self { tables, warehouse, carrier, .. } = *self;
        let key = (warehouse, district, order);
        let is_there = transaction.delete(&tables.undelivered, key)?;
        found::<Undelivered>(is_there, key)?;

        let mut outgoing = Outgoing { order, ..Outgoing::default() };
        let columns = (Order::CUSTOMER, Order::LINE_COUNT, Order::CARRIER);
        let is_there = transaction.update_columns(&tables.order, key, columns, |row| {
            row.set_carrier(Some(carrier));
            (outgoing.customer, outgoing.line_count) = (row.customer(), row.line_count());
        })?;
        found::<Order>(is_there, key)?;
        for number in 1..=outgoing.line_count {
            transaction.prefetch(&tables.order_line, (warehouse, district, order, number));
        }
        transaction.prefetch(&tables.customer, (warehouse, district, outgoing.customer));
        Ok(outgoing)
    }

    /// Dates the lines, and adds their amounts to what the customer owes.
    #[inline]
    fn charge<T: Transaction>(&self, transaction: &mut T, district: u8, outgoing: Outgoing) -> Result<(), Error> {
        let Self { tables, warehouse, date, .. } = *self;
        let Outgoing { order, customer, line_count } = outgoing;
        // The lines of an order are numbered from 1 without gaps, and never change in number.
        let mut sum = Money::ZERO;
        for number in 1..=line_count {
            let key = (warehouse, district, order, number);
            let columns = (OrderLine::AMOUNT, OrderLine::DELIVERED);
            let is_there = transaction.update_columns(&tables.order_line, key, columns, |line| {
                line.set_delivered(Some(date));
                sum = add(sum, line.amount());
            })?;
            found::<OrderLine>(is_there, key)?;
        }

        let key = (warehouse, district, customer);
        let columns = (Customer::BALANCE, Customer::DELIVERY_COUNT);
        let is_there = transaction.update_columns(&tables.customer, key, columns, |row| {
            row.set_balance(add(row.balance(), sum));
            row.set_delivery_count(row.delivery_count().wrapping_add(1));
        })?;
        found::<Customer>(is_there, key)
    }
}

impl Procedure for Delivery {
    type Output = ();
    type Error = Error;

    /// Each step is taken for all districts before the next, so that what a step asks for is on its way while the step is
    /// taken for the other districts.
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        self.delivered = 0;
        self.search_next = self.search_from;
        let districts = 1..=self.districts.min(MOST_DISTRICTS as u8);
        let mut oldest = [None; MOST_DISTRICTS];
        for ((district, oldest), from) in districts.clone().zip(&mut oldest).zip(self.search_from) {
            *oldest = self.oldest(transaction, district, from)?;
            if let Some(order) = *oldest {
                transaction.prefetch(&self.tables.order, (self.warehouse, district, order));
            }
        }
        let mut outgoing = [None; MOST_DISTRICTS];
        for ((district, outgoing), oldest) in districts.clone().zip(&mut outgoing).zip(oldest) {
            let Some(order) = oldest else { continue };
            *outgoing = Some(self.send(transaction, district, order)?);
            self.search_next[usize::from(district) - 1] = order.wrapping_add(1);
            self.delivered += 1;
        }
        for (district, outgoing) in districts.zip(outgoing) {
            if let Some(outgoing) = outgoing {
                self.charge(transaction, district, outgoing)?;
            }
        }
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Self { tables, warehouse, .. } = *self;
        declaration.partition(u64::from(warehouse));
        // Which orders are the oldest shows in the run, and whose they are.
        declaration.rows(&tables.undelivered, warehouse, Access::Write);
        declaration.rows(&tables.order, warehouse, Access::Update);
        declaration.rows(&tables.order_line, warehouse, Access::Update);
        declaration.rows(&tables.customer, warehouse, Access::Update);
    }
}
