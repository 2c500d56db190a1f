//! The transactions. Each is a struct of its inputs, a `run`, and a `declare` of what is known beforehand.
//!
//! The output for a terminal is kept in the struct itself: every attempt overwrites it, and it is valid after a commit.

mod delivery;
mod later;
mod new_order;
mod order_status;
mod payment;
mod stock_level;
mod top_customer;

use std::fmt;

use polychron_engine::futures::Resolved;
use polychron_engine::{Declare, Error, Mode, Operations, Procedure, Transaction};
use polychron_schema::{Columns, Decimal, FixedString, Projection, Row, RowRef};

pub use delivery::{Delivery, MOST_DISTRICTS};
pub use new_order::{MOST_LINES, NewOrder, NewOrderLine};
pub use order_status::{OrderStatus, ShownLine};
pub use payment::Payment;
pub use stock_level::StockLevel;
pub use top_customer::TopCustomer;

use super::schema::{Customer, Tables};
use crate::Transact;

/// A transaction of the mix.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the transactions by name")]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, and a box would be an allocation a transaction")]
pub enum TpccProcedure {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
    TopCustomer(TopCustomer),
}

/// Names of the kinds, in the order of [`TpccProcedure`].
pub(super) const KINDS: &[&str] = &["new-order", "payment", "order-status", "delivery", "stock-level", "top-customer"];

impl Procedure for TpccProcedure {
    type Output = ();
    type Error = Error;

    #[inline]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        match self {
            Self::NewOrder(procedure) => procedure.run(transaction),
            Self::Payment(procedure) => procedure.run(transaction),
            Self::OrderStatus(procedure) => procedure.run(transaction),
            Self::Delivery(procedure) => procedure.run(transaction),
            Self::StockLevel(procedure) => procedure.run(transaction),
            Self::TopCustomer(procedure) => procedure.run(transaction),
        }
    }

    #[inline]
    fn committed(&mut self, output: &mut (), resolved: &Resolved) {
        match self {
            Self::NewOrder(procedure) => procedure.committed(output, resolved),
            Self::Payment(procedure) => procedure.committed(output, resolved),
            Self::OrderStatus(_) | Self::Delivery(_) | Self::StockLevel(_) | Self::TopCustomer(_) => {}
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        match self {
            Self::NewOrder(procedure) => procedure.declare(declaration),
            Self::Payment(procedure) => procedure.declare(declaration),
            Self::OrderStatus(procedure) => procedure.declare(declaration),
            Self::Delivery(procedure) => procedure.declare(declaration),
            Self::StockLevel(procedure) => procedure.declare(declaration),
            Self::TopCustomer(procedure) => procedure.declare(declaration),
        }
    }
}

impl Transact for TpccProcedure {
    fn kind(&self) -> usize {
        match self {
            Self::NewOrder(_) => 0,
            Self::Payment(_) => 1,
            Self::OrderStatus(_) => 2,
            Self::Delivery(_) => 3,
            Self::StockLevel(_) => 4,
            Self::TopCustomer(_) => 5,
        }
    }

    fn mode(&self) -> Mode {
        let snapshot = match self {
            Self::OrderStatus(procedure) => procedure.snapshot,
            Self::StockLevel(procedure) => procedure.snapshot,
            _ => false,
        };
        if snapshot { Mode::Snapshot } else { Mode::ReadWrite }
    }
}

/// How a customer is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomerChoice {
    /// By number.
    Id(u32),
    /// By last name: the one in the middle of all who have it, by first name.
    Last(FixedString<16>),
}

impl CustomerChoice {
    #[inline]
    fn find<T: Transaction>(
        self,
        transaction: &mut T,
        tables: &Tables,
        warehouse: u16,
        district: u8,
    ) -> Result<u32, Error> {
        match self {
            Self::Id(id) => Ok(id),
            Self::Last(last) => customer_by_last_name(transaction, tables, (warehouse, district, last)),
        }
    }
}

/// Namesakes whose numbers are kept; with more of them the index is read twice.
const NAMESAKES: usize = 32;

/// The customer at position ⌈n/2⌉ among the n of this last name, in the order of first names (clause 2.5.2.2).
fn customer_by_last_name<T: Transaction>(
    transaction: &mut T,
    tables: &Tables,
    name: (u16, u8, FixedString<16>),
) -> Result<u32, Error> {
    let mut ids = [0; NAMESAKES];
    let mut count = 0;
    transaction.scan_prefix_by(&tables.customer, Customer::BY_NAME, name).columns(Customer::ID).for_each(
        |customer| {
            if let Some(id) = ids.get_mut(count) {
                *id = customer.id();
            }
            count += 1;
        },
    )?;
    let position = count.div_ceil(2);
    if position == 0 {
        return Err(missing::<Customer>(&name));
    }
    if let Some(&id) = ids.get(position - 1) {
        return Ok(id);
    }
    let mut middle = 0;
    let range = transaction.scan_prefix_by(&tables.customer, Customer::BY_NAME, name).limit(position);
    range.columns(Customer::ID).for_each(|customer| middle = customer.id())?;
    Ok(middle)
}

/// Columns for an update that names more of them than a tuple holds.
#[derive(Clone, Copy)]
struct Named(Projection);

impl<R> Columns<R> for Named {
    type Values<'a> = ();

    #[inline(always)]
    fn projection(self) -> Projection {
        self.0
    }

    #[inline(always)]
    fn read<'a>(self, _: RowRef<'a>) {}
}

/// The named columns of a row type.
macro_rules! named {
    ($row:ident: $($column:ident),+ $(,)?) => {
        $crate::tpcc::procedures::Named(polychron_schema::Projection::of(&[$($row::$column.span()),+]))
    };
}
use named;

/// A row that must be there is not.
#[derive(Debug, thiserror::Error)]
#[error("{table} has no row {key}")]
struct Missing {
    table: &'static str,
    key: String,
}

impl From<Missing> for Error {
    fn from(error: Missing) -> Self {
        Self::other(error)
    }
}

#[cold]
pub(super) fn missing<R: Row>(key: &dyn fmt::Debug) -> Error {
    Missing { table: R::NAME, key: format!("{key:?}") }.into()
}

/// Passes on that a row was found, or stops.
#[inline]
fn found<R: Row>(found: bool, key: impl fmt::Debug) -> Result<(), Error> {
    if found { Ok(()) } else { Err(missing::<R>(&key)) }
}

/// The sum. Rows that were read half old and half new must not make a panic of it.
#[inline]
fn add<const SCALE: u32>(left: Decimal<SCALE>, right: Decimal<SCALE>) -> Decimal<SCALE> {
    Decimal::from_units(left.units().wrapping_add(right.units()))
}

/// The difference, as [`add`] the sum.
#[inline]
fn subtract<const SCALE: u32>(left: Decimal<SCALE>, right: Decimal<SCALE>) -> Decimal<SCALE> {
    Decimal::from_units(left.units().wrapping_sub(right.units()))
}
