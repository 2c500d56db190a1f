//! The consistency conditions 1 to 12 of clause 3.3.2, checked over the whole database.
//!
//! The database is at rest, so it is read in many small transactions: no protocol has to remember a scan of everything.
//! The history is read first, because payments of one warehouse count for customers of another; then district after
//! district. Every condition is judged on its own, so that one that fails does not hide another.

mod read;

use std::sync::Arc;

use polychron_engine::{Error, Protocol, Worker};

use super::client::Home;
use super::load::loaded_history_number;
use super::options::{Scale, TpccOptions};
use super::schema::{History, Tables};
use crate::{CheckError, Checked};
use read::{
    CustomerSeen, ReadCustomers, ReadDistrict, ReadHistory, ReadLines, ReadOrders, ReadUndelivered, ReadWarehouse,
};

/// Rows that one transaction reads, roughly.
const CHUNK: u32 = 4_000;

/// The wording of each condition; `docs/workloads-tpcc.md` derives the wording of 11.
const CONDITIONS: [&str; 12] = [
    "condition 1: a warehouse's year-to-date is the sum of its districts'",
    "condition 2: a district's next order number follows its last order and its last new order",
    "condition 3: the numbers of a district's new orders have no gap",
    "condition 4: a district's order lines are as many as its orders say together",
    "condition 5: an order has no carrier exactly when it is a new order",
    "condition 6: an order's lines are as many as it says",
    "condition 7: an order line has no delivery date exactly when its order has no carrier",
    "condition 8: a warehouse's year-to-date is the sum of the payments to it",
    "condition 9: a district's year-to-date is the sum of the payments to it",
    "condition 10: a customer's balance is what was delivered less what was paid",
    "condition 11: a district's orders that are no new orders are those loaded so and those its customers got delivered",
    "condition 12: a customer's balance and year-to-date payment are together what was delivered",
];

/// Which conditions fail, each with the first rows that show it.
#[derive(Debug, Default)]
pub(super) struct Findings {
    broken: [Option<String>; CONDITIONS.len()],
}

impl Findings {
    /// Notes whether condition `number` holds for some rows.
    fn judge(&mut self, number: usize, holds: bool, rows: impl FnOnce() -> String) {
        let position = &mut self.broken[number - 1];
        if !holds && position.is_none() {
            *position = Some(rows());
        }
    }

    /// Numbers of the conditions that fail.
    #[cfg(test)]
    pub(super) fn failing(&self) -> Vec<usize> {
        (1..=CONDITIONS.len()).filter(|number| self.broken[number - 1].is_some()).collect()
    }

    fn into_result(self) -> Result<Checked, CheckError> {
        for (condition, rows) in CONDITIONS.into_iter().zip(self.broken) {
            if let Some(rows) = rows {
                return Err(CheckError::Broken { condition: condition.to_owned(), rows });
            }
        }
        Ok(Checked { conditions: CONDITIONS.into_iter().map(str::to_owned).collect() })
    }
}

/// Sums over the history, in hundredths.
struct Paid {
    scale: Scale,
    /// Indexed by the district that received the payment.
    districts: Vec<i64>,
    /// Indexed by the customer that paid.
    customers: Vec<i64>,
}

impl Paid {
    fn new(warehouses: u16, scale: Scale) -> Self {
        let districts = usize::from(warehouses) * usize::from(scale.districts);
        Self { scale, districts: vec![0; districts], customers: vec![0; districts * scale.customers as usize] }
    }

    fn district_position(&self, warehouse: u16, district: u8) -> usize {
        let (warehouse, district) = (usize::from(warehouse).wrapping_sub(1), usize::from(district).wrapping_sub(1));
        warehouse.wrapping_mul(usize::from(self.scale.districts)).wrapping_add(district)
    }

    fn customer_position(&self, (warehouse, district, customer): (u16, u8, u32)) -> usize {
        let district = self.district_position(warehouse, district);
        district.wrapping_mul(self.scale.customers as usize).wrapping_add((customer as usize).wrapping_sub(1))
    }
}

/// One order, with what was found about it.
#[derive(Clone, Copy, Debug, Default)]
struct OrderSeen {
    customer: u32,
    /// Lines that the order says it has; `None` when there is no such order.
    stated: Option<u8>,
    carried: bool,
    undelivered: bool,
    lines: u32,
    lines_delivered: u32,
    amount_delivered: i64,
}

/// A district with everything in it.
struct DistrictSeen {
    warehouse: u16,
    district: u8,
    next_order: u32,
    year_to_date: i64,
    /// Indexed by order number; the last entry collects all numbers that are too high.
    orders: Vec<OrderSeen>,
    customers: Vec<CustomerSeen>,
}

/// Checks a database.
pub(super) struct Checker<'a> {
    options: &'a TpccOptions,
    tables: &'a Tables,
    homes: &'a [Arc<Home>],
}

impl<'a> Checker<'a> {
    pub(super) fn new(options: &'a TpccOptions, tables: &'a Tables, homes: &'a [Arc<Home>]) -> Self {
        Self { options, tables, homes }
    }

    /// Fails with the first condition that does not hold.
    pub(super) fn check<P: Protocol>(&self, database: &Arc<P>) -> Result<Checked, CheckError> {
        self.findings(database)?.into_result()
    }

    /// Judges all conditions.
    pub(super) fn findings<P: Protocol>(&self, database: &Arc<P>) -> Result<Findings, Error> {
        let mut worker = database.worker()?;
        let mut findings = Findings::default();
        let paid = self.read_history(&mut worker)?;
        for warehouse in 1..=self.options.warehouses {
            let year_to_date = worker.execute(&mut ReadWarehouse { tables: *self.tables, warehouse })?;
            let (mut of_districts, mut of_payments) = (0, 0);
            for district in 1..=self.options.scale.districts {
                let seen = self.read_district(&mut worker, warehouse, district)?;
                of_districts += seen.year_to_date;
                of_payments += paid.districts[paid.district_position(warehouse, district)];
                seen.judge(&paid, &mut findings);
            }
            findings.judge(1, year_to_date == of_districts, || {
                format!("warehouse {warehouse} has {year_to_date}, its districts {of_districts} hundredths")
            });
            findings.judge(8, year_to_date == of_payments, || {
                format!("warehouse {warehouse} has {year_to_date}, the payments are {of_payments} hundredths")
            });
        }
        Ok(findings)
    }

    /// Sums the history up. Its keys are those that were loaded and those that the clients drew; a payment that never
    /// committed leaves a hole.
    fn read_history<W: Worker>(&self, worker: &mut W) -> Result<Paid, Error> {
        let scale = self.options.scale;
        let mut paid = Paid::new(self.options.warehouses, scale);
        let loaded = loaded_history_number(&scale, scale.districts, scale.customers) + 1;
        for warehouse in 1..=self.options.warehouses {
            self.read_history_of(worker, (warehouse, History::LOADED), loaded, &mut paid)?;
        }
        for home in self.homes {
            for (warehouse, drawn) in home.warehouses() {
                self.read_history_of(worker, (warehouse, home.client), drawn, &mut paid)?;
            }
        }
        Ok(paid)
    }

    fn read_history_of<W: Worker>(
        &self,
        worker: &mut W,
        (warehouse, client): (u16, u16),
        count: u32,
        paid: &mut Paid,
    ) -> Result<(), Error> {
        for from in (0..count).step_by(CHUNK as usize) {
            let numbers = from..count.min(from + CHUNK);
            for row in worker.execute(&mut ReadHistory { tables: *self.tables, warehouse, client, numbers })? {
                // A row that names no district or customer is missed where it should have been counted.
                let (district, customer) =
                    (paid.district_position(warehouse, row.district), paid.customer_position(row.customer));
                if let Some(sum) = paid.districts.get_mut(district) {
                    *sum += row.amount;
                }
                if let Some(sum) = paid.customers.get_mut(customer) {
                    *sum += row.amount;
                }
            }
        }
        Ok(())
    }

    fn read_district<W: Worker>(&self, worker: &mut W, warehouse: u16, district: u8) -> Result<DistrictSeen, Error> {
        let tables = *self.tables;
        let (next_order, year_to_date) = worker.execute(&mut ReadDistrict { tables, warehouse, district })?;
        let mut seen = DistrictSeen {
            warehouse,
            district,
            next_order,
            year_to_date,
            orders: vec![OrderSeen::default(); next_order as usize + 1],
            customers: worker.execute(&mut ReadCustomers { tables, warehouse, district })?,
        };
        self.read_orders(worker, &mut seen)?;
        let beyond = next_order as usize;
        in_chunks(next_order, CHUNK, |orders| {
            for order in worker.execute(&mut ReadUndelivered { tables, warehouse, district, orders })? {
                seen.orders[beyond.min(order as usize)].undelivered = true;
            }
            Ok(())
        })?;
        in_chunks(next_order, CHUNK / 10, |orders| {
            for line in worker.execute(&mut ReadLines { tables, warehouse, district, orders })? {
                let order = &mut seen.orders[beyond.min(line.order as usize)];
                order.lines += 1;
                if line.delivered {
                    order.lines_delivered += 1;
                    order.amount_delivered += line.amount;
                }
            }
            Ok(())
        })?;
        Ok(seen)
    }

    /// Orders are found through their customers: the primary index may have no order.
    fn read_orders<W: Worker>(&self, worker: &mut W, seen: &mut DistrictSeen) -> Result<(), Error> {
        let (tables, warehouse, district) = (*self.tables, seen.warehouse, seen.district);
        let customers = self.options.scale.customers;
        let per_customer = (seen.next_order / customers).max(1);
        let beyond = seen.next_order as usize;
        in_chunks(customers + 1, (CHUNK / per_customer).max(1), |customers| {
            for order in worker.execute(&mut ReadOrders { tables, warehouse, district, customers })? {
                let position = &mut seen.orders[beyond.min(order.id as usize)];
                (position.customer, position.stated, position.carried) =
                    (order.customer, Some(order.lines), order.carried);
            }
            Ok(())
        })
    }
}

/// Calls `each` with ranges of `size` numbers that cover everything; the last has no end, so that nothing hides beyond it.
fn in_chunks(end: u32, size: u32, mut each: impl FnMut((u32, Option<u32>)) -> Result<(), Error>) -> Result<(), Error> {
    let mut from = 0;
    while from + size < end {
        each((from, Some(from + size)))?;
        from += size;
    }
    each((from, None))
}

impl DistrictSeen {
    fn name(&self) -> String {
        format!("district {} of warehouse {}", self.district, self.warehouse)
    }

    fn judge(&self, paid: &Paid, findings: &mut Findings) {
        self.judge_numbers(findings);
        self.judge_orders(findings);
        self.judge_customers(paid, findings);
        let payments = paid.districts[paid.district_position(self.warehouse, self.district)];
        findings.judge(9, self.year_to_date == payments, || {
            format!("{} has {}, the payments are {payments} hundredths", self.name(), self.year_to_date)
        });
    }

    /// Conditions 2, 3, 4 and 11.
    fn judge_numbers(&self, findings: &mut Findings) {
        let last = self.orders.iter().rposition(|order| order.stated.is_some()).unwrap_or(0) as u32;
        let first_new = self.orders.iter().position(|order| order.undelivered).map(|id| id as u32);
        let last_new = self.orders.iter().rposition(|order| order.undelivered).map(|id| id as u32);
        let count_new = self.orders.iter().filter(|order| order.undelivered).count() as u32;
        let follows = last + 1 == self.next_order && last_new.is_none_or(|number| number == last);
        findings.judge(2, follows, || {
            let next = self.next_order;
            format!("{}: next order {next}, last order {last}, last new order {last_new:?}", self.name())
        });
        if let (Some(first), Some(last)) = (first_new, last_new) {
            findings.judge(3, last - first + 1 == count_new, || {
                format!("{}: new orders {first} to {last} are {count_new}", self.name())
            });
        }
        let stated: u64 = self.orders.iter().filter_map(|order| order.stated).map(u64::from).sum();
        let lines: u64 = self.orders.iter().map(|order| u64::from(order.lines)).sum();
        findings.judge(4, stated == lines, || format!("{}: orders say {stated} lines, there are {lines}", self.name()));
    }

    /// Conditions 5, 6 and 7.
    fn judge_orders(&self, findings: &mut Findings) {
        for (id, order) in self.orders.iter().enumerate() {
            let name = || format!("order {id} of {}: {order:?}", self.name());
            if let Some(stated) = order.stated {
                findings.judge(5, order.undelivered != order.carried, name);
                findings.judge(6, u32::from(stated) == order.lines, name);
            } else {
                findings.judge(5, !order.undelivered, name);
                findings.judge(6, order.lines == 0, name);
            }
            let delivered = if order.carried { order.lines } else { 0 };
            findings.judge(7, order.lines_delivered == delivered, name);
        }
    }

    /// Conditions 10 to 12.
    fn judge_customers(&self, paid: &Paid, findings: &mut Findings) {
        let mut delivered = vec![0; paid.scale.customers as usize + 1];
        for order in &self.orders {
            if let Some(sum) = delivered.get_mut(order.customer as usize) {
                *sum += order.amount_delivered;
            }
        }
        for customer in &self.customers {
            let key = (self.warehouse, self.district, customer.id);
            let payments = paid.customers.get(paid.customer_position(key)).copied().unwrap_or(0);
            let delivered = delivered.get(customer.id as usize).copied().unwrap_or(0);
            let name = || format!("{customer:?} of {}: delivered {delivered}, paid {payments} hundredths", self.name());
            findings.judge(10, customer.balance == delivered - payments, name);
            findings.judge(12, customer.balance + customer.paid == delivered, name);
        }
        let count = |which: fn(&OrderSeen) -> bool| self.orders.iter().filter(|order| which(order)).count() as u64;
        let (orders, new) = (count(|order| order.stated.is_some()), count(|order| order.undelivered));
        let loaded = u64::from(paid.scale.orders - paid.scale.undelivered);
        let since: u64 = self.customers.iter().map(|customer| u64::from(customer.deliveries)).sum();
        findings.judge(11, orders == new + loaded + since, || {
            let customers = self.customers.len();
            format!("{}: {orders} orders, {new} new, {since} delivered to {customers} customers", self.name())
        });
    }
}
