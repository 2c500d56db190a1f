//! Payment (clause 2.5): a customer pays, and warehouse and district count it.

use polychron_engine::futures::Resolved;
use polychron_engine::{Access, Declare, Error, Future, Operations, Procedure, Transaction};
use polychron_schema::{FixedString, Timestamp};

use super::{CustomerChoice, Named, add, found, named, subtract};
use crate::round_trip::Talk;
use crate::tpcc::schema::{Customer, CustomerMut, District, History, Money, Tables, Warehouse};

/// Pays an amount.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the inputs of clause 2.5.1")]
pub struct Payment {
    pub tables: Tables,
    pub warehouse: u16,
    pub district: u8,
    pub customer_warehouse: u16,
    pub customer_district: u8,
    pub customer: CustomerChoice,
    pub amount: Money,
    pub date: Timestamp,
    /// The rest of the history row's key.
    pub history: (u16, u32),
    pub talk: Talk,
    /// The customer's balance, until it is known.
    pub late_balance: Option<Future<Money>>,
    /// Shown: the customer.
    pub customer_id: u32,
    /// Shown.
    pub customer_balance: Money,
    /// Shown: where the customer lives.
    pub customer_address: Address,
    /// Shown: the warehouse's.
    pub warehouse_address: Address,
    /// Shown: the district's.
    pub district_address: Address,
}

/// An address.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the parts of an address")]
pub struct Address {
    pub street_1: FixedString<20>,
    pub street_2: FixedString<20>,
    pub city: FixedString<20>,
    pub state: FixedString<2>,
    pub zip: FixedString<9>,
}

macro_rules! address_of {
    ($row:expr) => {
        Address {
            street_1: *$row.street_1(),
            street_2: *$row.street_2(),
            city: *$row.city(),
            state: *$row.state(),
            zip: *$row.zip(),
        }
    };
}
pub(super) use address_of;

impl Payment {
    #[inline]
    fn pay<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let Self { tables, customer_warehouse, customer_district, amount, .. } = *self;
        let id = self.customer.find(transaction, &tables, customer_warehouse, customer_district)?;
        let key = (customer_warehouse, customer_district, id);
        let mut bad_credit = false;
        let is_there = transaction.update_columns(&tables.customer, key, CUSTOMER, |customer| {
            let balance = subtract(customer.balance(), amount);
            customer.set_balance(balance);
            customer.set_year_to_date_payment(add(customer.year_to_date_payment(), amount));
            customer.set_payment_count(customer.payment_count().wrapping_add(1));
            bad_credit = *customer.credit() == *"BC";
            self.customer_balance = balance;
            self.customer_address = address_of!(customer);
        })?;
        found::<Customer>(is_there, key)?;
        self.customer_id = id;
        self.talk.round_trip();
        if bad_credit {
            let is_there = transaction
                .update_columns(&tables.customer, key, Customer::DATA, |customer| self.note(id, customer))?;
            found::<Customer>(is_there, key)?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn history_row(&self, data: FixedString<24>) -> History {
        History {
            warehouse: self.warehouse,
            client: self.history.0,
            number: self.history.1,
            amount: self.amount,
            date: self.date,
            customer: self.customer_id,
            customer_warehouse: self.customer_warehouse,
            customer_district: self.customer_district,
            district: self.district,
            data,
        }
    }

    /// Puts the payment at the front of what is known of a customer with bad credit; the end is lost.
    pub(super) fn note(&self, id: u32, customer: &mut CustomerMut<'_>) {
        let mut bytes = [0; 500];
        let mut length = 0;
        let parts = [
            u64::from(id),
            u64::from(self.customer_district),
            u64::from(self.customer_warehouse),
            u64::from(self.district),
            u64::from(self.warehouse),
            self.amount.units().unsigned_abs(),
        ];
        for part in parts {
            length = write_number(&mut bytes, length, part);
        }
        bytes[length - 1] = b'|';
        bytes[length..].copy_from_slice(&customer.data().as_array()[..500 - length]);
        customer.set_data(FixedString::from_array(&bytes));
    }
}

/// The columns of each table that are shown or changed: of a customer, all but the data.
const CUSTOMER: Named = named!(
    Customer: BALANCE, YEAR_TO_DATE_PAYMENT, DISCOUNT, CREDIT_LIMIT, SINCE, PAYMENT_COUNT, CREDIT, LAST, FIRST, MIDDLE,
    STREET_1, STREET_2, CITY, STATE, ZIP, PHONE,
);
const DISTRICT: Named = named!(District: YEAR_TO_DATE, NAME, STREET_1, STREET_2, CITY, STATE, ZIP);
const WAREHOUSE: Named = named!(Warehouse: YEAR_TO_DATE, NAME, STREET_1, STREET_2, CITY, STATE, ZIP);

/// Writes a number and a blank; returns the position behind.
fn write_number(out: &mut [u8], start: usize, number: u64) -> usize {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let end = start + digits.len() - first;
    out[start..end].copy_from_slice(&digits[first..]);
    out[end] = b' ';
    end + 1
}

/// The names of warehouse and district with four blanks between.
#[inline]
pub(super) fn joined(warehouse: &FixedString<10>, district: &FixedString<10>) -> FixedString<24> {
    let length = warehouse.as_array().iter().position(|&byte| byte == 0).unwrap_or(10);
    let mut bytes = [0; 24];
    bytes[..10].copy_from_slice(warehouse.as_array());
    bytes[length..length + 4].copy_from_slice(b"    ");
    bytes[length + 4..length + 14].copy_from_slice(district.as_array());
    *FixedString::from_array(&bytes)
}

impl Procedure for Payment {
    type Output = ();
    type Error = Error;

    /// The customer comes first and the warehouse, at which all payments meet, last.
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let Self { tables, warehouse, district, amount, .. } = *self;
        // The commit's messages stand before it: a client that waits for its answer holds no lock.
        self.talk.round_trip();
        if self.talk.futures {
            return self.run_with_futures(transaction);
        }
        self.pay(transaction)?;

        let key = (warehouse, district);
        let mut district_name = FixedString::default();
        let is_there = transaction.update_columns(&tables.district, key, DISTRICT, |row| {
            row.set_year_to_date(add(row.year_to_date(), amount));
            district_name = *row.name();
            self.district_address = address_of!(row);
        })?;
        found::<District>(is_there, key)?;
        self.talk.round_trip();

        let mut warehouse_name = FixedString::default();
        let is_there = transaction.update_columns(&tables.warehouse, warehouse, WAREHOUSE, |row| {
            row.set_year_to_date(add(row.year_to_date(), amount));
            warehouse_name = *row.name();
            self.warehouse_address = address_of!(row);
        })?;
        found::<Warehouse>(is_there, warehouse)?;
        self.talk.round_trip();
        transaction.insert(&tables.history, &self.history_row(joined(&warehouse_name, &district_name)))
    }

    fn committed(&mut self, _output: &mut (), resolved: &Resolved) {
        if let Some(balance) = self.late_balance {
            self.customer_balance = resolved.get(balance).unwrap_or_default();
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let Self { tables, warehouse, district, customer_warehouse, customer_district, .. } = *self;
        declaration.partition(u64::from(warehouse));
        if customer_warehouse != warehouse {
            declaration.partition(u64::from(customer_warehouse));
        }
        declaration.row(&tables.warehouse, warehouse, Access::Update);
        declaration.row(&tables.district, (warehouse, district), Access::Update);
        declaration.row(&tables.history, (warehouse, self.history.0, self.history.1), Access::Insert);
        match self.customer {
            CustomerChoice::Id(id) => {
                let key = (customer_warehouse, customer_district, id);
                declaration.row(&tables.customer, key, Access::Update);
            }
            // Which of the namesakes it is shows in the run.
            CustomerChoice::Last(_) => {
                declaration.rows(&tables.customer, (customer_warehouse, customer_district), Access::Update);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_digits() {
        let mut out = [0; 30];
        let end = write_number(&mut out, 0, 0);
        let end = write_number(&mut out, end, 45_001);
        assert_eq!(&out[..end], b"0 45001 ");
    }

    #[test]
    fn names_are_joined_by_four_blanks() {
        let name = |text| FixedString::new(text).expect("at most ten characters");
        assert_eq!(joined(&name("abcdefghij"), &name("klmnopqrst")).as_str(), "abcdefghij    klmnopqrst");
        assert_eq!(joined(&name("abcdef"), &name("xyzxyz")).as_str(), "abcdef    xyzxyz");
    }
}
