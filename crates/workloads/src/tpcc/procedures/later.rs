//! NewOrder and Payment with futures (*Lazy state determination*, §4.1): stock, order numbers, balances and sums are never learnt
//! before the commit. What else is wanted of their rows (names, addresses, taxes) is read without protection, because nothing ever
//! changes it: to protect it would be to protect the whole row.

use polychron_engine::{Becomes, Error, Futures, Operations, Table, Transaction};
use polychron_schema::{Columns, Key, KeyRef, KeyScratch, Row, RowRef};

use super::new_order::Supplied;
use super::payment::{Address, address_of, joined};
use super::{MOST_LINES, NewOrder, NewOrderLine, Payment, found, missing, named};
use crate::tpcc::random::is_original;
use crate::tpcc::schema::{Customer, District, Order, OrderLine, Rate, STOCK_DISTRICTS, Stock, Undelivered, Warehouse};

/// Lends columns of a row that never change.
#[inline]
fn constant<T: Transaction, R: Row, C: Columns<R>, O>(
    transaction: &mut T,
    table: &Table<R>,
    key: KeyRef<'_, R>,
    columns: C,
    read: impl FnOnce(RowRef<'_>) -> O,
) -> Result<O, Error>
where
    for<'k> KeyRef<'k, R>: std::fmt::Debug,
{
    let mut scratch = KeyScratch::new();
    let row = transaction.read_row_unvalidated(table.id(), key.encode(&mut scratch), &columns.projection())?;
    row.map(read).ok_or_else(|| missing::<R>(&key))
}

impl NewOrder {
    /// As [`NewOrder::supply`].
    #[inline]
    pub(super) fn supply_later<T: Transaction>(
        &self,
        transaction: &mut T,
        line: NewOrderLine,
    ) -> Result<Option<Supplied>, Error> {
        let Some((amount, item_original)) = self.price(transaction, line)? else { return Ok(None) };
        let stock = &self.tables.stock;
        let key = (line.supplier, line.item);
        let info = STOCK_DISTRICTS[usize::from(self.district - 1)];
        let district_info = constant(transaction, stock, key, info, |row| *info.get(row))?;
        let generic =
            item_original && constant(transaction, stock, key, Stock::DATA, |row| is_original(Stock::DATA.get(row)))?;
        self.talk.round_trip();

        let columns = (Stock::QUANTITY, Stock::YEAR_TO_DATE, Stock::ORDER_COUNT);
        let (quantity, year_to_date, orders) = transaction.future(stock, key, columns)?;
        let left = quantity - i16::from(line.quantity);
        transaction.set_futures(
            stock,
            key,
            [
                Stock::QUANTITY.becomes(left.at_least(10).then(left).otherwise(left + 91)),
                Stock::YEAR_TO_DATE.becomes(year_to_date + u32::from(line.quantity)),
                Stock::ORDER_COUNT.becomes(orders + 1),
            ],
        )?;
        if line.supplier != self.warehouse {
            let remote = transaction.future(stock, key, Stock::REMOTE_COUNT)?;
            transaction.set_future(stock, key, Stock::REMOTE_COUNT, remote + 1)?;
        }
        Ok(Some(Supplied { amount, district_info, generic }))
    }

    /// Enters the order under a number that the commit gives; returns the taxes of district and warehouse.
    #[inline]
    pub(super) fn enter_later<T: Transaction>(
        &mut self,
        transaction: &mut T,
        supplied: &[Supplied; MOST_LINES],
    ) -> Result<(Rate, Rate), Error> {
        let tables = self.tables;
        let key = (self.warehouse, self.district);
        let district_tax = constant(transaction, &tables.district, key, District::TAX, |row| District::TAX.get(row))?;
        self.talk.round_trip();
        let order = transaction.future(&tables.district, key, District::NEXT_ORDER)?;
        transaction.set_future(&tables.district, key, District::NEXT_ORDER, order + 1)?;

        transaction.insert_future(&tables.order, &self.order_row(), [Order::ID.becomes(order)])?;
        let undelivered = self.undelivered_row();
        transaction.insert_future(&tables.undelivered, &undelivered, [Undelivered::ORDER.becomes(order)])?;
        for row in self.line_rows(supplied) {
            transaction.insert_future(&tables.order_line, &row, [OrderLine::ORDER.becomes(order)])?;
        }
        self.late_order = Some(order);

        let warehouse_tax =
            constant(transaction, &tables.warehouse, self.warehouse, Warehouse::TAX, |row| Warehouse::TAX.get(row))?;
        self.talk.round_trip();
        Ok((district_tax, warehouse_tax))
    }
}

impl Payment {
    /// As [`Payment::run`].
    pub(super) fn run_with_futures<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let Self { tables, warehouse, district, amount, .. } = *self;
        self.pay_later(transaction)?;

        let key = (warehouse, district);
        let (district_name, address) = constant(transaction, &tables.district, key, DISTRICT, |row| {
            let row = District::view(row);
            (*row.name(), address_of!(row))
        })?;
        self.district_address = address;
        self.talk.round_trip();
        let year_to_date = transaction.future(&tables.district, key, District::YEAR_TO_DATE)?;
        transaction.set_future(&tables.district, key, District::YEAR_TO_DATE, year_to_date + amount)?;

        let (warehouse_name, address) = constant(transaction, &tables.warehouse, warehouse, WAREHOUSE, |row| {
            let row = Warehouse::view(row);
            (*row.name(), address_of!(row))
        })?;
        self.warehouse_address = address;
        self.talk.round_trip();
        let year_to_date = transaction.future(&tables.warehouse, warehouse, Warehouse::YEAR_TO_DATE)?;
        transaction.set_future(&tables.warehouse, warehouse, Warehouse::YEAR_TO_DATE, year_to_date + amount)?;
        transaction.insert(&tables.history, &self.history_row(joined(&warehouse_name, &district_name)))
    }

    fn pay_later<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let Self { tables, customer_warehouse, customer_district, amount, .. } = *self;
        let id = self.customer.find(transaction, &tables, customer_warehouse, customer_district)?;
        let key = (customer_warehouse, customer_district, id);
        let (bad_credit, address) = constant(transaction, &tables.customer, key, CUSTOMER, |row| {
            let row = Customer::view(row);
            (*row.credit() == *"BC", address_of!(row))
        })?;
        self.customer_id = id;
        self.customer_address = address;
        self.talk.round_trip();
        if bad_credit {
            let is_there = transaction
                .update_columns(&tables.customer, key, Customer::DATA, |customer| self.note(id, customer))?;
            found::<Customer>(is_there, key)?;
        }
        let columns = (Customer::BALANCE, Customer::YEAR_TO_DATE_PAYMENT, Customer::PAYMENT_COUNT);
        let (balance, year_to_date, payments) = transaction.future(&tables.customer, key, columns)?;
        self.late_balance = Some(balance - amount);
        transaction.set_futures(
            &tables.customer,
            key,
            [
                Customer::BALANCE.becomes(balance - amount),
                Customer::YEAR_TO_DATE_PAYMENT.becomes(year_to_date + amount),
                Customer::PAYMENT_COUNT.becomes(payments + 1),
            ],
        )
    }
}

/// The columns of each table that are shown, and never change.
const CUSTOMER: super::Named = named!(
    Customer: DISCOUNT, CREDIT_LIMIT, SINCE, CREDIT, LAST, FIRST, MIDDLE, STREET_1, STREET_2, CITY, STATE, ZIP, PHONE,
);
const DISTRICT: super::Named = named!(District: NAME, STREET_1, STREET_2, CITY, STATE, ZIP);
const WAREHOUSE: super::Named = named!(Warehouse: NAME, STREET_1, STREET_2, CITY, STATE, ZIP);
