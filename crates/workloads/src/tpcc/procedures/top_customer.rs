//! The read-heavy transaction of the HyPer paper's §4.4: the customer of a district with the highest balance and good
//! credit, and a small update.
//!
//! The paper does not say what is updated; here the customer's credit limit rises by one, which no condition looks at.

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Transaction};
use polychron_schema::Decimal;

use super::{add, found};
use crate::tpcc::schema::{Customer, Money, Tables};

/// Rewards a district's best customer.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the district's key")]
pub struct TopCustomer {
    pub tables: Tables,
    pub warehouse: u16,
    pub district: u8,
    /// Shown: the customer's balance and number.
    pub top: Option<(Money, u32)>,
}

impl Procedure for TopCustomer {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        let Self { tables, warehouse, district, .. } = *self;
        let columns = (Customer::ID, Customer::BALANCE, Customer::CREDIT);
        let mut top: Option<(Money, u32)> = None;
        let customers = transaction.scan_prefix_by(&tables.customer, Customer::BY_NAME, (warehouse, district));
        customers.columns(columns).for_each(|customer| {
            let this = (customer.balance(), customer.id());
            if *customer.credit() == *"GC" && top.is_none_or(|top| this.0 > top.0) {
                top = Some(this);
            }
        })?;
        self.top = top;
        let Some((_, id)) = top else { return Ok(()) };
        let key = (warehouse, district, id);
        let is_there = transaction.update_columns(&tables.customer, key, Customer::CREDIT_LIMIT, |customer| {
            customer.set_credit_limit(add(customer.credit_limit(), Decimal::from_units(Money::ONE_IN_UNITS)));
        })?;
        found::<Customer>(is_there, key)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.partition(u64::from(self.warehouse));
        declaration.rows(&self.tables.customer, (self.warehouse, self.district), Access::Update);
    }
}
