//! The options of the workload.

use std::path::PathBuf;
use std::str::FromStr;

use super::queue::{DeliveryMode, open_results};
use crate::round_trip::Talk;

/// Options of the TPC-C workload.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
#[group(skip)]
pub struct TpccOptions {
    /// Warehouses: the size of the database, about 100 MB each
    #[arg(long, default_value_t = 1)]
    pub warehouses: u16,

    /// Index of the tables that need no order
    #[arg(long, value_enum, default_value_t = Indexes::Hash)]
    pub index: Indexes,

    /// Which transactions are run
    #[arg(long, value_enum, default_value_t = Transactions::Full)]
    pub transactions: Transactions,

    /// When Delivery is executed
    #[arg(long, value_enum, default_value_t = DeliveryMode::Deferred)]
    pub delivery: DeliveryMode,

    /// Write a line to this file for each Delivery that is executed
    #[arg(long)]
    pub delivery_results: Option<PathBuf>,

    /// Run OrderStatus and StockLevel as snapshots
    #[arg(long)]
    pub snapshots: bool,

    /// Share of order lines that another warehouse supplies
    #[arg(long, default_value_t = 1)]
    pub remote_item_percent: u8,

    /// Share of payments by customers of another warehouse
    #[arg(long, default_value_t = 15)]
    pub remote_payment_percent: u8,

    /// Share of additional read-only transactions (half OrderStatus, half StockLevel), taken from the mix
    #[arg(long, default_value_t = 0)]
    pub read_only_percent: u8,

    /// Share of the read-heavy top-customer transaction of the HyPer paper, taken from the mix
    #[arg(long, default_value_t = 0)]
    pub top_customer_percent: u8,

    /// How a client talks to the database
    #[command(flatten)]
    #[serde(flatten)]
    pub talk: Talk,

    /// Cardinalities: `standard`, or `tiny` for tests
    #[arg(long, hide = true, default_value = "standard")]
    pub scale: Scale,
}

impl Default for TpccOptions {
    fn default() -> Self {
        Self {
            warehouses: 1,
            index: Indexes::Hash,
            transactions: Transactions::Full,
            delivery: DeliveryMode::Deferred,
            delivery_results: None,
            snapshots: false,
            remote_item_percent: 1,
            remote_payment_percent: 15,
            read_only_percent: 0,
            top_customer_percent: 0,
            talk: Talk::default(),
            scale: Scale::standard(),
        }
    }
}

impl TpccOptions {
    /// One line that says what is wrong.
    pub(super) fn validate(&self, threads: usize) -> Result<(), String> {
        if self.warehouses == 0 {
            return Err("there must be at least one warehouse".to_owned());
        }
        if threads >= usize::from(u16::MAX) {
            return Err(format!("{threads} threads are more than the key of history rows can tell apart"));
        }
        for (name, percent) in [
            ("--remote-item-percent", self.remote_item_percent),
            ("--remote-payment-percent", self.remote_payment_percent),
        ] {
            if percent > 100 {
                return Err(format!("{name} is {percent}, which is more than 100"));
            }
        }
        let taken = u16::from(self.read_only_percent) + u16::from(self.top_customer_percent);
        if taken > 100 {
            return Err(format!("--read-only-percent and --top-customer-percent are {taken} together, more than 100"));
        }
        let only_two = matches!(self.transactions, Transactions::Np | Transactions::NewOrder);
        if self.talk.round_trip_us > 0 && (!only_two || taken > 0) {
            return Err("--round-trip-us is of NewOrder and Payment: take --transactions np or new-order".to_owned());
        }
        if let Some(path) = &self.delivery_results {
            open_results(path)?;
        }
        self.scale.validate()
    }

    /// The number of rows that are loaded into each table.
    pub(super) fn rows(&self) -> TableRows {
        let Scale { items, districts, customers, orders, undelivered } = self.scale;
        let (warehouses, items) = (u64::from(self.warehouses), u64::from(items));
        let districts = warehouses * u64::from(districts);
        let orders = districts * u64::from(orders);
        TableRows {
            warehouse: warehouses,
            district: districts,
            customer: districts * u64::from(customers),
            order: orders,
            undelivered: districts * u64::from(undelivered),
            order_line: orders * 10,
            item: items,
            stock: warehouses * items,
        }
    }
}

/// Rows to load by table; there are as many payments as customers, and order lines are counted at their mean.
pub(super) struct TableRows {
    pub(super) warehouse: u64,
    pub(super) district: u64,
    pub(super) customer: u64,
    pub(super) order: u64,
    pub(super) undelivered: u64,
    pub(super) order_line: u64,
    pub(super) item: u64,
    pub(super) stock: u64,
}

impl TableRows {
    /// Rows of all tables.
    pub(super) fn total(&self) -> u64 {
        self.warehouse
            + self.district
            + 2 * self.customer
            + self.order
            + self.undelivered
            + self.order_line
            + self.item
            + self.stock
    }
}

/// The kind of the primary indexes that may be of any kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Indexes {
    /// Hash indexes; only new orders and order lines, which are read by range, are ordered.
    #[default]
    Hash,
    /// Every table ordered.
    Ordered,
}

/// Mixes of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transactions {
    /// All five: 45 % NewOrder, 43 % Payment, 4 % each of OrderStatus, Delivery and StockLevel
    #[default]
    Full,
    /// NewOrder and Payment, half and half
    Np,
    /// NewOrder only
    NewOrder,
    /// NewOrder and StockLevel, half and half
    NewOrderStockLevel,
}

/// The numbers of rows that belong to one another. All but [`Scale::standard`] are for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Scale {
    /// Items, and rows of stock a warehouse.
    pub items: u32,
    /// Districts a warehouse, at most 10.
    pub districts: u8,
    /// Customers a district.
    pub customers: u32,
    /// Loaded orders a district: one a customer.
    pub orders: u32,
    /// The number of the last of them that are not delivered.
    pub undelivered: u32,
}

impl Scale {
    /// As the specification has it.
    pub const fn standard() -> Self {
        Self { items: 100_000, districts: 10, customers: 3000, orders: 3000, undelivered: 900 }
    }

    /// Loads in milliseconds and makes rare states frequent: few items collide, new orders run out.
    pub const fn tiny() -> Self {
        Self { items: 60, districts: 3, customers: 30, orders: 30, undelivered: 9 }
    }

    fn validate(&self) -> Result<(), String> {
        let Self { items, districts, customers, orders, undelivered } = *self;
        if items == 0 || customers == 0 || districts == 0 || districts > 10 {
            return Err("a scale needs items, customers, and one to ten districts".to_owned());
        }
        if orders != customers || undelivered > orders {
            return Err("a scale needs one order a customer, and no more undelivered ones".to_owned());
        }
        Ok(())
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "standard" => Ok(Self::standard()),
            "tiny" => Ok(Self::tiny()),
            _ => Err(format!("`{text}` is neither `standard` nor `tiny`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn parse(line: &str) -> Result<TpccOptions, clap::Error> {
        let command = TpccOptions::augment_args(clap::Command::new("tpcc"));
        command.clone().debug_assert();
        let matches = command.try_get_matches_from(std::iter::once("tpcc").chain(line.split_whitespace()))?;
        TpccOptions::from_arg_matches(&matches)
    }

    #[test]
    fn defaults_of_the_command_line_are_the_defaults() {
        let parsed = parse("").expect("no options are good options");
        assert_eq!(format!("{parsed:?}"), format!("{:?}", TpccOptions::default()));
    }

    #[test]
    fn options_are_read() {
        let line = "--warehouses 4 --index ordered --transactions new-order-stock-level --snapshots --scale tiny";
        let parsed = parse(line).expect("good options");
        assert_eq!((parsed.warehouses, parsed.index, parsed.snapshots), (4, Indexes::Ordered, true));
        assert_eq!((parsed.transactions, parsed.scale), (Transactions::NewOrderStockLevel, Scale::tiny()));
        assert!(parse("--scale huge").is_err());
        assert!(serde_json::to_string(&parsed).expect("plain data").contains("\"new-order-stock-level\""));
    }
}
