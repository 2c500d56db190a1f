//! An inventory: composite keys, secondary indexes, ranges, savepoints, and a table that is changed while it is in use.
//!
//! `cargo run --release -p polychron --example inventory`

use polychron::schema::{FixedString, IndexDefinition};
use polychron::{Database, Error, IndexId, Insertion, Operations, Row, Table};

#[derive(Row, Debug, Clone)]
#[index(name = "by_name", columns(name), unique)]
struct Product {
    #[key]
    id: u32,
    name: FixedString<24>,
    price_cents: i64,
}

#[derive(Row, Debug)]
struct Stock {
    #[key]
    warehouse: u16,
    #[key]
    product: u32,
    quantity: i32,
    note: Option<String>,
}

fn product(id: u32, name: &str, price_cents: i64) -> Product {
    Product { id, name: FixedString::new(name).expect("names are short"), price_cents }
}

fn main() -> Result<(), Error> {
    let database = Database::in_memory()?;
    let products = database.create_table::<Product>()?;
    let stock = database.create_table::<Stock>()?;

    database.transact(|transaction| {
        for (id, name, price) in [(1, "bolt", 20), (2, "nut", 15), (3, "washer", 5), (4, "gear", 1250)] {
            transaction.insert(&products, &product(id, name, price))?;
            for warehouse in 1..=2 {
                let quantity = 100 * i32::from(warehouse);
                transaction.insert(&stock, &Stock { warehouse, product: id, quantity, note: None })?;
            }
        }
        Ok::<_, Error>(())
    })?;

    // A unique index refuses a second product of the same name; nothing is changed, and the transaction goes on.
    let taken = database.transact(|transaction| transaction.try_insert(&products, &product(5, "bolt", 21)))?;
    assert_eq!(taken, Insertion::Duplicate(IndexId(1)));

    // Everything that warehouse 2 holds: a range over the first column of the key.
    let held = database.transact(|transaction| {
        let rows = transaction.scan_prefix(&stock, 2_u16);
        rows.map(|row| (row.product(), row.quantity())).collect::<Vec<_>>()
    })?;
    assert_eq!(held.len(), 4);

    let served = serve(&database, products, stock, &[("bolt", 150), ("gear", 5000), ("nut", 10)])?;
    assert_eq!(served, [1, 2]);

    // A new index is filled while the table stays in use.
    let by_price = IndexDefinition::new("by_price", [Product::PRICE_CENTS.index.into()]);
    let by_price = database.create_index::<Product, i64>(&products, by_price)?;
    let cheapest = database.transact(|transaction| {
        transaction
            .scan_range_by(&products, by_price, ..100_i64)
            .map(|row| row.name().as_str().to_owned())
            .collect::<Vec<_>>()
    })?;
    assert_eq!(cheapest, ["washer", "nut", "bolt"]);

    database.transact(|transaction| {
        transaction.update(&stock, (1, 1), |row| row.set_note(Some("order more")).expect("the note is short"))
    })?;
    let notes = database.snapshot(|transaction| {
        transaction.scan(&stock, ..).map(|row| row.note().map(str::to_owned)).collect::<Vec<_>>()
    })?;
    println!("served the products {served:?}; below a euro: {cheapest:?}; {} notes", notes.iter().flatten().count());
    Ok(())
}

/// Serves an order as far as the stock goes: a line that cannot be served is undone by itself.
fn serve(
    database: &Database,
    products: Table<Product>,
    stock: Table<Stock>,
    order: &[(&str, i32)],
) -> Result<Vec<u32>, Error> {
    database.transact(|transaction| {
        let mut served = Vec::new();
        for &(name, wanted) in order {
            let savepoint = transaction.savepoint();
            let name = FixedString::new(name).expect("names are short");
            let found = transaction.scan_by(&products, Product::BY_NAME, name).first(|row| row.id())?;
            let Some(product) = found else { continue };
            let mut missing = wanted;
            for warehouse in 1..=2 {
                transaction.update(&stock, (warehouse, product), |row| {
                    let taken = missing.min(row.quantity());
                    row.set_quantity(row.quantity() - taken);
                    missing -= taken;
                })?;
            }
            if missing > 0 {
                transaction.roll_back_to(savepoint)?;
            } else {
                served.push(product);
            }
        }
        Ok(served)
    })
}
