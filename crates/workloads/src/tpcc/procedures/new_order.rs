//! NewOrder (clause 2.4): a customer orders 5 to 15 items.

use polychron_engine::{Access, Declare, Operations, Procedure, Stop, Transaction};
use polychron_schema::{Decimal, FixedString, RowViewMut, Timestamp};

use super::{found, missing};
use crate::declare::{declare_key, declare_prefix};
use crate::tpcc::random::is_original;
use crate::tpcc::schema::{
    Customer, District, Item, Money, Order, OrderLine, Rate, STOCK_DISTRICTS, Stock, Tables, Undelivered, Warehouse,
};

/// The most lines of an order.
pub const MOST_LINES: usize = 15;

/// What is ordered in one line.
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
    /// Shown: the order's number.
    pub order: u32,
    /// Shown: what the order costs after discount and tax.
    pub total: Money,
    /// Shown: a bit for each line whose brand is generic, the first line's lowest.
    pub generic: u16,
}

/// What supplying a line has yielded.
#[derive(Clone, Copy, Default)]
struct Supplied {
    amount: Money,
    district_info: FixedString<24>,
    generic: bool,
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

    /// Takes one line's items from the stock; `None` when there is no such item.
    #[inline]
    fn supply<T: Transaction>(&self, transaction: &mut T, line: NewOrderLine) -> Result<Option<Supplied>, Stop> {
        let columns = (Item::PRICE, Item::NAME, Item::DATA);
        let Some((price, _name, data)) = transaction.get_columns(&self.tables.item, line.item, columns)? else {
            return Ok(None);
        };
        let item_original = is_original(data);
        let amount = price.units().wrapping_mul(i64::from(line.quantity));
        let mut supplied = Supplied { amount: Decimal::from_units(amount), ..Supplied::default() };
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
        Ok(Some(supplied))
    }

    /// Draws the order's number from its district; returns the district's tax.
    #[inline]
    fn take_number<T: Transaction>(&mut self, transaction: &mut T) -> Result<Rate, Stop> {
        let (mut order, mut tax) = (0, Rate::ZERO);
        let key = (self.warehouse, self.district);
        let columns = (District::TAX, District::NEXT_ORDER);
        let is_there = transaction.update_columns(&self.tables.district, key, columns, |district| {
            tax = district.tax();
            order = district.next_order();
            district.set_next_order(order.wrapping_add(1));
        })?;
        found::<District>(is_there, key)?;
        self.order = order;
        Ok(tax)
    }

    #[inline]
    fn enter<T: Transaction>(&self, transaction: &mut T, supplied: &[Supplied; MOST_LINES]) -> Result<(), Stop> {
        let Self { tables, warehouse, district, order, .. } = *self;
        let row = Order {
            warehouse,
            district,
            id: order,
            customer: self.customer,
            entered: self.entered,
            carrier: None,
            line_count: self.line_count,
            all_local: self.all_local,
        };
        transaction.insert(&tables.order, &row)?;
        transaction.insert(&tables.undelivered, &Undelivered { warehouse, district, order })?;
        for (number, (line, supplied)) in (1..).zip(self.lines().iter().zip(supplied)) {
            let row = OrderLine {
                warehouse,
                district,
                order,
                number,
                quantity: line.quantity,
                supplier: line.supplier,
                amount: supplied.amount,
                delivered: None,
                item: line.item,
                district_info: supplied.district_info,
            };
            transaction.insert(&tables.order_line, &row)?;
        }
        Ok(())
    }
}

impl Procedure for NewOrder {
    type Output = ();

    /// Supplies the lines first and draws the number afterwards, so that the district, which every order of it meets
    /// at, is touched as late as may be; the warehouse, which every payment changes, last of all. An item that does not exist rolls everything back (clause 2.4.2.3).
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Stop> {
        if !transaction.has_prefetched() {
            self.prefetch(transaction);
        }
        let key = (self.warehouse, self.district, self.customer);
        let columns = (Customer::DISCOUNT, Customer::CREDIT, Customer::LAST);
        let customer = transaction.get_columns(&self.tables.customer, key, columns)?;
        let Some((discount, _credit, _last)) = customer else { return Err(missing::<Customer>(&key)) };

        let mut supplied = [Supplied::default(); MOST_LINES];
        let mut sum: i64 = 0;
        let (mut generic, mut unused_item) = (0, false);
        for (place, (line, supplied)) in self.lines().iter().zip(&mut supplied).enumerate() {
            match self.supply(transaction, *line)? {
                Some(now) => {
                    sum = sum.wrapping_add(now.amount.units());
                    generic |= u16::from(now.generic) << place;
                    *supplied = now;
                }
                None => unused_item = true,
            }
        }

        let district_tax = self.take_number(transaction)?;
        self.enter(transaction, &supplied)?;
        let warehouse_tax = transaction.get_columns(&self.tables.warehouse, self.warehouse, Warehouse::TAX)?;
        let Some(warehouse_tax) = warehouse_tax else { return Err(missing::<Warehouse>(&self.warehouse)) };
        self.generic = generic;
        self.total = total(sum, discount, warehouse_tax, district_tax);
        if unused_item { Err(Stop::roll_back()) } else { Ok(()) }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Self { tables, warehouse, district, .. } = *self;
        declaration.partition(u64::from(warehouse));
        declare_key(declaration, &tables.warehouse, warehouse, Access::Read);
        declare_key(declaration, &tables.district, (warehouse, district), Access::Update);
        declare_key(declaration, &tables.customer, (warehouse, district, self.customer), Access::Read);
        for line in self.lines() {
            if line.supplier != warehouse {
                declaration.partition(u64::from(line.supplier));
            }
            declare_key(declaration, &tables.item, line.item, Access::Read);
            declare_key(declaration, &tables.stock, (line.supplier, line.item), Access::Update);
        }
        // The order's number, and with it the keys of its rows, comes from the district.
        declare_prefix(declaration, &tables.order, (warehouse, district), Access::Insert);
        declare_prefix(declaration, &tables.undelivered, (warehouse, district), Access::Insert);
        declare_prefix(declaration, &tables.order_line, (warehouse, district), Access::Insert);
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
