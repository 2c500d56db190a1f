//! NewOrder (clause 2.4): a customer orders 5 to 15 items.

use polychron_engine::futures::Resolved;
use polychron_engine::{Access, Declare, Error, Future, Operations, Procedure, Transaction};
use polychron_schema::{Decimal, FixedString, RowViewMut, Timestamp};

use super::{found, missing};
use crate::round_trip::Talk;
use crate::tpcc::random::is_original;
use crate::tpcc::schema::{
    Customer, District, Item, Money, Order, OrderLine, Rate, STOCK_DISTRICTS, Stock, Tables, Undelivered, Warehouse,
};

/// The most lines of an order.
pub const MOST_LINES: usize = 15;

/// One line of an order.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the inputs of clause 2.4.1")]
pub struct NewOrderLine {
    pub item: u32,
    pub supplier: u16,
    pub quantity: u8,
}

/// Enters an order.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the inputs of clause 2.4.1")]
pub struct NewOrder {
    pub tables: Tables,
    pub warehouse: u16,
    pub district: u8,
    pub line_count: u8,
    pub all_local: bool,
    pub customer: u32,
    pub entered: Timestamp,
    /// The first `line_count` are filled in.
    pub lines: [NewOrderLine; MOST_LINES],
    pub talk: Talk,
    /// The order's number, until it is known.
    pub late_order: Option<Future<u32>>,
    /// Shown: the order's number.
    pub order: u32,
    /// Shown: what the order costs after discount and tax.
    pub total: Money,
    /// Shown: a bit for each line whose brand is generic, the first line's lowest.
    pub generic: u16,
}

/// The result of supplying a line.
#[derive(Clone, Copy, Default)]
pub(super) struct Supplied {
    pub(super) amount: Money,
    pub(super) district_info: FixedString<24>,
    pub(super) generic: bool,
}

impl NewOrder {
    #[inline]
    fn lines(&self) -> &[NewOrderLine] {
        &self.lines[..usize::from(self.line_count).min(MOST_LINES)]
    }

    #[inline]
    fn prefetch<T: Transaction>(&self, transaction: &mut T) {
        transaction.prefetch(&self.tables.customer, (self.warehouse, self.district, self.customer));
        for line in self.lines() {
            transaction.prefetch(&self.tables.item, line.item);
            transaction.prefetch(&self.tables.stock, (line.supplier, line.item));
        }
    }

    /// The price of an item, and whether its brand is an original; `None` if there is no such item.
    #[inline]
    pub(super) fn price<T: Transaction>(
        &self,
        transaction: &mut T,
        line: NewOrderLine,
    ) -> Result<Option<(Money, bool)>, Error> {
        let columns = (Item::PRICE, Item::NAME, Item::DATA);
        let found = transaction.get_columns(&self.tables.item, line.item, columns)?;
        let priced = found.map(|(price, _name, data)| {
            (Decimal::from_units(price.units().wrapping_mul(i64::from(line.quantity))), is_original(data))
        });
        self.talk.round_trip();
        Ok(priced)
    }

    /// Takes one line's items from the stock; `None` when there is no such item.
    #[inline]
    fn supply<T: Transaction>(&self, transaction: &mut T, line: NewOrderLine) -> Result<Option<Supplied>, Error> {
        let Some((amount, item_original)) = self.price(transaction, line)? else { return Ok(None) };
        let mut supplied = Supplied { amount, ..Supplied::default() };
        let remote = line.supplier != self.warehouse;
        let info = STOCK_DISTRICTS[usize::from(self.district - 1)];
        let columns = (Stock::QUANTITY, Stock::YEAR_TO_DATE, Stock::ORDER_COUNT, Stock::REMOTE_COUNT, info);
        let key = (line.supplier, line.item);
        let change = |stock: &mut <Stock as polychron_schema::Row>::Mut<'_>| {
            let ordered = i16::from(line.quantity);
            let left = stock.quantity().wrapping_sub(ordered);
            stock.set_quantity(if left >= 10 { left } else { left.wrapping_add(91) });
            stock.set_year_to_date(stock.year_to_date().wrapping_add(u32::from(line.quantity)));
            stock.set_order_count(stock.order_count().wrapping_add(1));
            if remote {
                stock.set_remote_count(stock.remote_count().wrapping_add(1));
            }
            supplied.district_info = *info.get(stock.as_row());
            supplied.generic = item_original && is_original(stock.data());
        };
        // The brand is generic only when both say so, thus the stock's data are asked for one item in ten.
        let is_there = if item_original {
            let columns =
                (Stock::QUANTITY, Stock::YEAR_TO_DATE, Stock::ORDER_COUNT, Stock::REMOTE_COUNT, info, Stock::DATA);
            transaction.update_columns(&self.tables.stock, key, columns, change)?
        } else {
            transaction.update_columns(&self.tables.stock, key, columns, change)?
        };
        found::<Stock>(is_there, key)?;
        self.talk.round_trip();
        Ok(Some(supplied))
    }

    /// Draws the order's number from its district; returns the district's tax.
    #[inline]
    fn take_number<T: Transaction>(&mut self, transaction: &mut T) -> Result<Rate, Error> {
        let (mut order, mut tax) = (0, Rate::ZERO);
        let key = (self.warehouse, self.district);
        let columns = (District::TAX, District::NEXT_ORDER);
        let is_there = transaction.update_columns(&self.tables.district, key, columns, |district| {
            tax = district.tax();
            order = district.next_order();
            district.set_next_order(order.wrapping_add(1));
        })?;
        found::<District>(is_there, key)?;
        self.talk.round_trip();
        self.order = order;
        Ok(tax)
    }

    /// The order's rows, with the number as far as it is known.
    #[inline]
    pub(super) fn order_row(&self) -> Order {
        let Self { warehouse, district, customer, entered, line_count, all_local, order: id, .. } = *self;
        Order { warehouse, district, id, customer, entered, carrier: None, line_count, all_local }
    }

    #[inline]
    pub(super) fn undelivered_row(&self) -> Undelivered {
        Undelivered { warehouse: self.warehouse, district: self.district, order: self.order }
    }

    #[inline]
    pub(super) fn line_rows(&self, supplied: &[Supplied; MOST_LINES]) -> impl Iterator<Item = OrderLine> {
        (1..).zip(self.lines().iter().zip(supplied)).map(|(number, (line, supplied))| OrderLine {
            warehouse: self.warehouse,
            district: self.district,
            order: self.order,
            number,
            quantity: line.quantity,
            supplier: line.supplier,
            amount: supplied.amount,
            delivered: None,
            item: line.item,
            district_info: supplied.district_info,
        })
    }

    #[inline]
    fn enter<T: Transaction>(&self, transaction: &mut T, supplied: &[Supplied; MOST_LINES]) -> Result<(), Error> {
        let Self { tables, .. } = *self;
        transaction.insert(&tables.order, &self.order_row())?;
        transaction.insert(&tables.undelivered, &self.undelivered_row())?;
        self.line_rows(supplied).try_for_each(|row| transaction.insert(&tables.order_line, &row))
    }
}

impl Procedure for NewOrder {
    type Output = ();
    type Error = Error;

    /// Supplies the lines first and draws the number afterwards, so that the district, which every order of it meets at, is touched as late
    /// as may be; the warehouse, which every payment changes, last of all. An item that does not exist rolls everything back (clause
    /// 2.4.2.3).
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        // The commit's messages stand before it: a client that waits for its answer holds no lock.
        self.talk.round_trip();
        if !transaction.has_prefetched() {
            self.prefetch(transaction);
        }
        let key = (self.warehouse, self.district, self.customer);
        let columns = (Customer::DISCOUNT, Customer::CREDIT, Customer::LAST);
        let customer = transaction.get_columns(&self.tables.customer, key, columns)?;
        let Some((discount, _credit, _last)) = customer else { return Err(missing::<Customer>(&key)) };
        self.talk.round_trip();

        let mut supplied = [Supplied::default(); MOST_LINES];
        let mut sum: i64 = 0;
        let (mut generic, mut unused_item) = (0, false);
        for (position, (line, supplied)) in self.lines().iter().zip(&mut supplied).enumerate() {
            let line_supplied = match self.talk.futures {
                false => self.supply(transaction, *line)?,
                true => self.supply_later(transaction, *line)?,
            };
            match line_supplied {
                Some(now) => {
                    sum = sum.wrapping_add(now.amount.units());
                    generic |= u16::from(now.generic) << position;
                    *supplied = now;
                }
                None => unused_item = true,
            }
        }

        let (district_tax, warehouse_tax) = if self.talk.futures {
            self.enter_later(transaction, &supplied)?
        } else {
            let district_tax = self.take_number(transaction)?;
            self.enter(transaction, &supplied)?;
            let warehouse_tax = transaction.get_columns(&self.tables.warehouse, self.warehouse, Warehouse::TAX)?;
            let Some(warehouse_tax) = warehouse_tax else { return Err(missing::<Warehouse>(&self.warehouse)) };
            self.talk.round_trip();
            (district_tax, warehouse_tax)
        };
        self.generic = generic;
        self.total = total(sum, discount, warehouse_tax, district_tax);
        if unused_item { Err(Error::RolledBack) } else { Ok(()) }
    }

    fn committed(&mut self, _output: &mut (), resolved: &Resolved) {
        if let Some(order) = self.late_order {
            self.order = resolved.get(order).unwrap_or_default();
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Self { tables, warehouse, district, .. } = *self;
        declaration.partition(u64::from(warehouse));
        declaration.row(&tables.warehouse, warehouse, Access::Read);
        declaration.row(&tables.district, (warehouse, district), Access::Update);
        declaration.row(&tables.customer, (warehouse, district, self.customer), Access::Read);
        for line in self.lines() {
            if line.supplier != warehouse {
                declaration.partition(u64::from(line.supplier));
            }
            declaration.row(&tables.item, line.item, Access::Read);
            declaration.row(&tables.stock, (line.supplier, line.item), Access::Update);
        }
        // The order's number, and with it the keys of its rows, comes from the district.
        declaration.rows(&tables.order, (warehouse, district), Access::Insert);
        declaration.rows(&tables.undelivered, (warehouse, district), Access::Insert);
        declaration.rows(&tables.order_line, (warehouse, district), Access::Insert);
    }
}

/// `sum · (1 − discount) · (1 + taxes)`, rounded to cents.
#[inline]
fn total(sum: i64, discount: Rate, warehouse_tax: Rate, district_tax: Rate) -> Money {
    const ONE: i64 = Rate::ONE_IN_UNITS;
    let share = ONE.wrapping_sub(discount.units());
    let taxed = ONE.wrapping_add(warehouse_tax.units()).wrapping_add(district_tax.units());
    let units = sum.wrapping_mul(share).wrapping_mul(taxed).wrapping_add(ONE * ONE / 2);
    Decimal::from_units(units / (ONE * ONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_take_discount_and_taxes_into_account() {
        let rate = Rate::from_units;
        assert_eq!(total(10_000, rate(5000), rate(1000), rate(2000)), Decimal::from_units(6_500));
        assert_eq!(total(1, rate(0), rate(0), rate(0)), Decimal::from_units(1));
        assert_eq!(total(15 * 10 * 10_000, rate(0), rate(2000), rate(2000)), Decimal::from_units(2_100_000));
    }
}
