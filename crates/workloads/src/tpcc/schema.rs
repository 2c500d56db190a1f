//! The nine tables of clause 1.3, with the column types and sizes given there.
//!
//! Every primary key fits 8 bytes. Columns that are read or changed together are declared together, so that they share
//! words and cache lines. Counts that the specification bounds by 9,999 are wider here, because a main-memory engine
//! would overflow them within minutes.

use polychron_engine::Table;
use polychron_schema::{Column, Decimal, FixedString, Row, Timestamp};

/// An amount of money.
pub type Money = Decimal<2>;
/// A tax or discount: a fraction of one.
pub type Rate = Decimal<4>;

/// A warehouse.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "warehouse", partition = id)]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct Warehouse {
    #[key]
    pub id: u16,
    pub tax: Rate,
    pub year_to_date: Money,
    pub name: FixedString<10>,
    pub street_1: FixedString<20>,
    pub street_2: FixedString<20>,
    pub city: FixedString<20>,
    pub state: FixedString<2>,
    pub zip: FixedString<9>,
}

/// One of the ten sales districts of a warehouse.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "district", partition = warehouse)]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct District {
    #[key]
    pub warehouse: u16,
    #[key]
    pub id: u8,
    pub tax: Rate,
    pub year_to_date: Money,
    pub next_order: u32,
    pub name: FixedString<10>,
    pub street_1: FixedString<20>,
    pub street_2: FixedString<20>,
    pub city: FixedString<20>,
    pub state: FixedString<2>,
    pub zip: FixedString<9>,
}

/// A customer of a district.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "customer", partition = warehouse)]
#[index(name = "by_name", columns(warehouse, district, last, first))]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct Customer {
    #[key]
    pub warehouse: u16,
    #[key]
    pub district: u8,
    #[key]
    pub id: u32,
    pub balance: Money,
    pub year_to_date_payment: Money,
    pub discount: Rate,
    pub credit_limit: Money,
    pub since: Timestamp,
    pub payment_count: u32,
    pub delivery_count: u32,
    /// `GC` (good) or `BC` (bad).
    pub credit: FixedString<2>,
    pub last: FixedString<16>,
    pub first: FixedString<16>,
    pub middle: FixedString<2>,
    pub street_1: FixedString<20>,
    pub street_2: FixedString<20>,
    pub city: FixedString<20>,
    pub state: FixedString<2>,
    pub zip: FixedString<9>,
    pub phone: FixedString<16>,
    pub data: FixedString<500>,
}

/// A payment. The specification gives it no key; this one is drawn by each client for itself, so that it neither collides
/// nor makes clients meet: the warehouse paid to, the client's number, and that client's count of such payments.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "history", partition = warehouse)]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct History {
    #[key]
    pub warehouse: u16,
    /// Number of the client that drew the payment; [`History::LOADED`] for the first contents.
    #[key]
    pub client: u16,
    #[key]
    pub number: u32,
    pub amount: Money,
    pub date: Timestamp,
    pub customer: u32,
    pub customer_warehouse: u16,
    pub customer_district: u8,
    pub district: u8,
    pub data: FixedString<24>,
}

impl History {
    /// The client number of rows that were loaded.
    pub const LOADED: u16 = u16::MAX;
}

/// An order that is not delivered yet.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "new_order", partition = warehouse)]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct Undelivered {
    #[key]
    pub warehouse: u16,
    #[key]
    pub district: u8,
    #[key]
    pub order: u32,
}

/// An order.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "orders", partition = warehouse)]
#[index(name = "by_customer", columns(warehouse, district, customer, id), unique)]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct Order {
    #[key]
    pub warehouse: u16,
    #[key]
    pub district: u8,
    #[key]
    pub id: u32,
    pub customer: u32,
    pub entered: Timestamp,
    /// NULL until the order is delivered.
    pub carrier: Option<u8>,
    pub line_count: u8,
    pub all_local: bool,
}

/// A line of an order.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "order_line", partition = warehouse)]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct OrderLine {
    #[key]
    pub warehouse: u16,
    #[key]
    pub district: u8,
    #[key]
    pub order: u32,
    #[key]
    pub number: u8,
    pub quantity: u8,
    pub supplier: u16,
    pub amount: Money,
    /// NULL until the order is delivered.
    pub delivered: Option<Timestamp>,
    pub item: u32,
    pub district_info: FixedString<24>,
}

/// Something that is sold; never changed after loading.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "item")]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct Item {
    #[key]
    pub id: u32,
    pub price: Money,
    pub image: u32,
    pub name: FixedString<24>,
    pub data: FixedString<50>,
}

/// The stock of an item in a warehouse.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(name = "stock", partition = warehouse)]
#[allow(missing_docs, reason = "the columns of clause 1.3.1")]
pub struct Stock {
    #[key]
    pub warehouse: u16,
    #[key]
    pub item: u32,
    pub quantity: i16,
    pub year_to_date: u32,
    pub order_count: u32,
    pub remote_count: u32,
    pub district_01: FixedString<24>,
    pub district_02: FixedString<24>,
    pub district_03: FixedString<24>,
    pub district_04: FixedString<24>,
    pub district_05: FixedString<24>,
    pub district_06: FixedString<24>,
    pub district_07: FixedString<24>,
    pub district_08: FixedString<24>,
    pub district_09: FixedString<24>,
    pub district_10: FixedString<24>,
    pub data: FixedString<50>,
}

/// The columns of [`Stock`] by district, from district 1 on.
pub(super) const STOCK_DISTRICTS: [Column<Stock, FixedString<24>>; 10] = [
    Stock::DISTRICT_01,
    Stock::DISTRICT_02,
    Stock::DISTRICT_03,
    Stock::DISTRICT_04,
    Stock::DISTRICT_05,
    Stock::DISTRICT_06,
    Stock::DISTRICT_07,
    Stock::DISTRICT_08,
    Stock::DISTRICT_09,
    Stock::DISTRICT_10,
];

const _: () = assert!(Stock::SHAPE.fixed_bytes == 312 && OrderLine::SHAPE.fixed_bytes == 56);
const _: () = assert!(Order::SHAPE.fixed_bytes == 24 && Undelivered::SHAPE.fixed_bytes == 8);

/// Key of a customer: warehouse, district, customer.
pub(super) type CustomerKey = (u16, u8, u32);

/// Handles of the tables and their secondary indexes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the tables by name")]
pub struct Tables {
    pub warehouse: Table<Warehouse>,
    pub district: Table<District>,
    pub customer: Table<Customer>,
    pub history: Table<History>,
    pub undelivered: Table<Undelivered>,
    pub order: Table<Order>,
    pub order_line: Table<OrderLine>,
    pub item: Table<Item>,
    pub stock: Table<Stock>,
}
