//! The source of a thread's transactions: the mix, and the inputs of each transaction.

use std::sync::Arc;

use polychron_schema::{Decimal, FixedString, Timestamp};
use polychron_sync::CachePadded;
use polychron_sync::atomic::{AtomicU32, Ordering};

use super::options::{TpccOptions, Transactions};
use super::procedures::{
    CustomerChoice, Delivery, MOST_DISTRICTS, MOST_LINES, NewOrder, NewOrderLine, OrderStatus, Payment, ShownLine,
    StockLevel, TopCustomer, TpccProcedure,
};
use super::queue::{DeliveryMode, Request, Terminal};
use super::random::Random;
use super::schema::{Money, Tables};
use crate::Client;

/// The warehouses a client is at home in, and how many payments it has drawn for each: the keys of its history rows.
#[derive(Debug)]
pub(super) struct Home {
    /// The client's number.
    pub(super) client: u16,
    first: u16,
    step: u16,
    /// Written by the client alone.
    payments: Box<[CachePadded<AtomicU32>]>,
}

impl Home {
    /// The home of a thread: its share of the warehouses, or one of them when there are more threads.
    pub(super) fn new(client: u16, warehouses: u16, thread: usize, threads: usize) -> Self {
        let total = usize::from(warehouses);
        let first = thread % total;
        let step = threads.clamp(1, total);
        let count = (total - first).div_ceil(step);
        Self {
            client,
            first: first as u16 + 1,
            step: step as u16,
            payments: (0..count).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
        }
    }

    /// Its warehouses, each with the number of payments drawn.
    pub(super) fn warehouses(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        let number = |position: usize| self.first + position as u16 * self.step;
        self.payments.iter().enumerate().map(move |(position, drawn)| (number(position), drawn.load(Ordering::Relaxed)))
    }
}

/// Draws the transactions of one thread.
#[derive(Debug)]
pub struct TpccClient {
    tables: Tables,
    options: TpccOptions,
    random: Random,
    home: Arc<Home>,
    /// By place of the warehouse and by district: an order below which none waits (see [`Delivery`]).
    waiting: Box<[[u32; MOST_DISTRICTS]]>,
    terminal: Terminal,
    clock: Timestamp,
}

impl TpccClient {
    pub(super) fn new(tables: Tables, options: TpccOptions, seed: u64, home: Arc<Home>, terminal: Terminal) -> Self {
        let random = Random::new(&[seed, u64::from(home.client)]);
        // Behind everything that was loaded.
        let clock = Timestamp(1 << 50);
        let waiting = vec![[0; MOST_DISTRICTS]; home.payments.len()].into();
        Self { tables, options, random, home, waiting, terminal, clock }
    }

    /// A point in time after the one before. The wall clock would cost more than it tells.
    #[inline]
    fn now(&mut self) -> Timestamp {
        self.clock.0 += 1;
        self.clock
    }

    /// One of the client's warehouses, and its place among them.
    #[inline]
    fn warehouse(&mut self) -> (u16, usize) {
        let count = self.home.payments.len();
        let position = if count == 1 { 0 } else { self.random.below(count as u32) as usize };
        (self.home.first + position as u16 * self.home.step, position)
    }

    /// The place of one of the client's warehouses.
    fn position(&self, warehouse: u16) -> usize {
        usize::from((warehouse - self.home.first) / self.home.step)
    }

    /// The key of the next history row at one of the client's warehouses.
    fn next_history(&self, position: usize) -> (u16, u32) {
        let drawn = &self.home.payments[position];
        let number = drawn.load(Ordering::Relaxed);
        drawn.store(number + 1, Ordering::Relaxed);
        (self.home.client, number)
    }

    #[inline]
    fn district(&mut self) -> u8 {
        self.random.range(1, u32::from(self.options.scale.districts)) as u8
    }

    /// Any warehouse but this one.
    #[inline]
    fn other_warehouse(&mut self, warehouse: u16) -> u16 {
        let other = self.random.range(1, u32::from(self.options.warehouses) - 1) as u16;
        if other >= warehouse { other + 1 } else { other }
    }

    #[inline]
    fn is_remote(&mut self, percent: u8) -> bool {
        self.options.warehouses > 1 && self.random.percent(u32::from(percent))
    }

    /// Six customers of ten come by name.
    #[inline]
    fn customer(&mut self) -> CustomerChoice {
        let customers = self.options.scale.customers;
        if self.random.percent(60) {
            CustomerChoice::Last(self.random.last_name(customers))
        } else {
            CustomerChoice::Id(self.random.customer(customers))
        }
    }

    pub(super) fn new_order(&mut self) -> NewOrder {
        let (warehouse, _) = self.warehouse();
        let items = self.options.scale.items;
        let line_count = self.random.range(5, MOST_LINES as u32) as u8;
        let mut lines = [NewOrderLine::default(); MOST_LINES];
        let mut all_local = true;
        for line in &mut lines[..usize::from(line_count)] {
            let remote = self.is_remote(self.options.remote_item_percent);
            all_local &= !remote;
            *line = NewOrderLine {
                item: self.random.item(items),
                supplier: if remote { self.other_warehouse(warehouse) } else { warehouse },
                quantity: self.random.range(1, 10) as u8,
            };
        }
        if self.random.percent(1) {
            // No such item: the order will be rolled back.
            lines[usize::from(line_count) - 1].item = items + 1;
        }
        NewOrder {
            tables: self.tables,
            warehouse,
            district: self.district(),
            line_count,
            all_local,
            customer: self.random.customer(self.options.scale.customers),
            entered: self.now(),
            lines,
            talk: self.options.talk,
            late_order: None,
            order: 0,
            total: Money::ZERO,
            generic: 0,
        }
    }

    pub(super) fn payment(&mut self) -> Payment {
        let (warehouse, position) = self.warehouse();
        let district = self.district();
        let remote = self.is_remote(self.options.remote_payment_percent);
        let (customer_warehouse, customer_district) =
            if remote { (self.other_warehouse(warehouse), self.district()) } else { (warehouse, district) };
        Payment {
            tables: self.tables,
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: self.customer(),
            amount: Decimal::from_units(i64::from(self.random.range(100, 500_000))),
            date: self.now(),
            history: self.next_history(position),
            talk: self.options.talk,
            late_balance: None,
            customer_id: 0,
            customer_balance: Money::ZERO,
            customer_address: Default::default(),
            warehouse_address: Default::default(),
            district_address: Default::default(),
        }
    }

    pub(super) fn order_status(&mut self) -> OrderStatus {
        OrderStatus {
            tables: self.tables,
            warehouse: self.warehouse().0,
            district: self.district(),
            customer: self.customer(),
            snapshot: self.options.snapshots,
            customer_id: 0,
            balance: Money::ZERO,
            name: (FixedString::default(), FixedString::default(), FixedString::default()),
            order: None,
            line_count: 0,
            lines: [ShownLine::default(); MOST_LINES],
        }
    }

    /// Asks for a delivery.
    fn request(&mut self) -> Request {
        Request {
            warehouse: self.warehouse().0,
            carrier: self.random.range(1, 10) as u8,
            date: self.now(),
            queued_ns: self.terminal.queues.now_ns(),
        }
    }

    pub(super) fn delivery(&mut self) -> Delivery {
        let request = self.request();
        self.deliver(request)
    }

    /// The transaction for a request of one of the client's own warehouses.
    fn deliver(&self, Request { warehouse, carrier, date, queued_ns }: Request) -> Delivery {
        let waiting = self.waiting[self.position(warehouse)];
        let districts = self.options.scale.districts;
        let (search_from, search_next) = (waiting, waiting);
        Delivery {
            tables: self.tables,
            warehouse,
            districts,
            carrier,
            date,
            queued_ns,
            search_from,
            search_next,
            delivered: 0,
        }
    }

    pub(super) fn stock_level(&mut self) -> StockLevel {
        StockLevel {
            tables: self.tables,
            warehouse: self.warehouse().0,
            district: self.district(),
            threshold: self.random.range(10, 20) as i16,
            snapshot: self.options.snapshots,
            low: 0,
        }
    }

    pub(super) fn top_customer(&mut self) -> TopCustomer {
        TopCustomer { tables: self.tables, warehouse: self.warehouse().0, district: self.district(), top: None }
    }

    fn read_only(&mut self) -> TpccProcedure {
        if self.random.percent(50) {
            TpccProcedure::OrderStatus(self.order_status())
        } else {
            TpccProcedure::StockLevel(self.stock_level())
        }
    }
}

impl Client for TpccClient {
    type Procedure = TpccProcedure;

    #[inline]
    fn next(&mut self) -> TpccProcedure {
        if let Some(request) = self.terminal.due() {
            return TpccProcedure::Delivery(self.deliver(request));
        }
        loop {
            match self.draw() {
                TpccProcedure::Delivery(delivery) if self.terminal.mode == DeliveryMode::Deferred => {
                    let Delivery { warehouse, carrier, date, queued_ns, .. } = delivery;
                    self.terminal.queues.push(self.terminal.owner, Request { warehouse, carrier, date, queued_ns });
                }
                procedure => return procedure,
            }
        }
    }

    fn again(&mut self, procedure: &mut TpccProcedure) {
        if let TpccProcedure::Payment(payment) = procedure {
            payment.history = self.next_history(self.position(payment.warehouse));
        }
    }

    fn finished(&mut self, procedure: &TpccProcedure) {
        if let TpccProcedure::Delivery(delivery) = procedure {
            let position = self.position(delivery.warehouse);
            // Of a batch, the transaction told of last need not be the one that ran last.
            for (known, next) in self.waiting[position].iter_mut().zip(delivery.search_next) {
                *known = next.max(*known);
            }
            self.terminal.queues.executed(delivery);
        }
    }
}

impl TpccClient {
    /// A transaction of the mix.
    #[inline]
    fn draw(&mut self) -> TpccProcedure {
        let (read_only, top) =
            (u32::from(self.options.read_only_percent), u32::from(self.options.top_customer_percent));
        if read_only + top > 0 {
            let draw = self.random.below(100);
            if draw < read_only {
                return self.read_only();
            }
            if draw < read_only + top {
                return TpccProcedure::TopCustomer(self.top_customer());
            }
        }
        let draw = self.random.below(100);
        match self.options.transactions {
            Transactions::Full if draw < 45 => TpccProcedure::NewOrder(self.new_order()),
            Transactions::Full if draw < 88 => TpccProcedure::Payment(self.payment()),
            Transactions::Full if draw < 92 => TpccProcedure::OrderStatus(self.order_status()),
            Transactions::Full if draw < 96 => TpccProcedure::Delivery(self.delivery()),
            Transactions::Full => TpccProcedure::StockLevel(self.stock_level()),
            Transactions::Np if draw < 50 => TpccProcedure::Payment(self.payment()),
            Transactions::NewOrderStockLevel if draw < 50 => TpccProcedure::StockLevel(self.stock_level()),
            Transactions::Np | Transactions::NewOrder | Transactions::NewOrderStockLevel => {
                TpccProcedure::NewOrder(self.new_order())
            }
        }
    }
}
