//! A shop behind HTTP: axum and tokio in front, one database behind.
//!
//! Transactions on a few rows take microseconds, so handlers run them where they are; nothing is awaited. What may take long, such as a report over
//! all orders, runs on a thread for blocking work.
//!
//! `cargo run -p polychron-examples --bin shop [ADDRESS]`, then for example
//! `curl -X POST -H 'content-type: application/json' -d '{"customer":1,"item":2,"quantity":3}' http://ADDRESS/orders`

use std::env::args;
use std::io::{self, Write};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use polychron::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Row, Serialize)]
struct Item {
    #[key]
    id: u32,
    name: String,
    price_cents: u64,
    stock: u32,
}

#[derive(Row, Serialize)]
struct Order {
    #[key]
    customer: u32,
    #[key]
    number: u32,
    item: u32,
    quantity: u32,
    paid_cents: u64,
}

#[derive(Clone)]
struct Shop {
    database: Database,
    items: Table<Item>,
    orders: Table<Order>,
}

#[derive(Debug, thiserror::Error)]
enum ShopError {
    #[error("there is no item {0}")]
    NoSuchItem(u32),
    #[error("{left} of item {item} are left")]
    SoldOut { item: u32, left: u32 },
    #[error(transparent)]
    Database(#[from] Error),
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoSuchItem(_) => StatusCode::NOT_FOUND,
            Self::SoldOut { .. } => StatusCode::CONFLICT,
            // Others use what this order needs for longer than the database retries: the client may come again.
            Self::Database(Error::Conflicts(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.to_string()).into_response()
    }
}

#[derive(Deserialize)]
struct Purchase {
    customer: u32,
    item: u32,
    quantity: u32,
}

impl Shop {
    fn open() -> Result<Self, Error> {
        let database = Database::in_memory()?;
        let (items, orders) = (database.create_table::<Item>()?, database.create_table()?);
        database.transact(|transaction| {
            for (id, name, price_cents, stock) in [(1, "bolt", 20, 500), (2, "gear", 1250, 5), (3, "motor", 8990, 2)] {
                transaction.insert(&items, &Item { id, name: name.to_owned(), price_cents, stock })?;
            }
            polychron::Ok(())
        })?;
        Ok(Self { database, items, orders })
    }

    /// Takes the items from the stock and writes the order, or does neither.
    fn buy(&self, purchase: &Purchase) -> Result<Order, ShopError> {
        let &Purchase { customer, item, quantity } = purchase;
        self.database.transact(|transaction| {
            let found = transaction.get_owned(&self.items, item)?.ok_or(ShopError::NoSuchItem(item))?;
            let left = found.stock.checked_sub(quantity).ok_or(ShopError::SoldOut { item, left: found.stock })?;
            transaction.update(&self.items, item, |row| row.set_stock(left))?;
            let last = transaction.scan_prefix(&self.orders, customer).last(|order| order.number())?;
            let number = last.map_or(1, |last| last + 1);
            let order = Order { customer, number, item, quantity, paid_cents: found.price_cents * u64::from(quantity) };
            transaction.insert(&self.orders, &order)?;
            Ok(order)
        })
    }

    /// What all orders brought in. A snapshot conflicts with nobody, however long it takes.
    fn revenue_cents(&self) -> Result<u64, Error> {
        self.database.snapshot(|transaction| transaction.scan(&self.orders, ..).map(|order| order.paid_cents()).sum())
    }
}

async fn items(State(shop): State<Shop>) -> Result<Json<Vec<Item>>, ShopError> {
    Ok(Json(shop.database.snapshot(|transaction| transaction.scan(&shop.items, ..).rows())?))
}

async fn buy(State(shop): State<Shop>, Json(purchase): Json<Purchase>) -> Result<Json<Order>, ShopError> {
    shop.buy(&purchase).map(Json)
}

async fn orders(State(shop): State<Shop>, Path(customer): Path<u32>) -> Result<Json<Vec<Order>>, ShopError> {
    Ok(Json(shop.database.transact(|transaction| transaction.scan_prefix(&shop.orders, customer).rows())?))
}

async fn revenue(State(shop): State<Shop>) -> Result<String, ShopError> {
    let report = tokio::task::spawn_blocking(move || shop.revenue_cents()).await;
    let cents = report.map_err(|panic| Error::other(panic.to_string()))??;
    Ok(format!("{}.{:02}", cents / 100, cents % 100))
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let shop = Shop::open().map_err(io::Error::other)?;
    let routes = Router::new()
        .route("/items", get(items))
        .route("/orders", post(buy))
        .route("/orders/{customer}", get(orders))
        .route("/revenue", get(revenue))
        .with_state(shop);
    let address = args().nth(1).unwrap_or("127.0.0.1:0".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;
    axum::serve(listener, routes).await
}
