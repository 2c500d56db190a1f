//! The hot paths of rows and keys as functions of their own, to look at their instructions and to count them.
//!
//! `perf stat -e instructions target/release/examples/hot_paths read`, or without a name for all of them.
//! `cargo rustc --release -p polychron-schema --example hot_paths -- --emit asm`, then look for `hot_`.

use std::hint::black_box;

use polychron_schema::{
    Columns, Decimal, EncodedKey, FixedString, HashSeed, Key, KeyExtractor, KeyScratch, Row, RowBuffer, RowRef,
};

/// The stock of an item, as in TPC-C.
#[derive(Row)]
#[index(name = "by_item", columns(item))]
struct Stock {
    #[key]
    warehouse: u16,
    #[key]
    item: u32,
    quantity: i16,
    year_to_date: Decimal<2>,
    district: FixedString<24>,
    #[column(max = 50)]
    data: String,
}

/// Reads two columns.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn hot_read_two(row: RowRef<'_>) -> (i16, Decimal<2>) {
    (Stock::QUANTITY, Stock::YEAR_TO_DATE).read(row)
}

/// Encodes a key of eight bytes and takes what an index asks for.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn hot_key_8(key: u64) -> (u64, usize) {
    let mut scratch = KeyScratch::new();
    let key = key.encode(&mut scratch);
    (key.slice(0), key.len())
}

/// Encodes a composite key of six bytes.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn hot_key_6(warehouse: u16, item: u32) -> (u64, usize) {
    let mut scratch = KeyScratch::new();
    let key = (warehouse, item);
    let key = key.encode(&mut scratch);
    (key.slice(0), key.len())
}

/// Encodes a composite key of eleven bytes and hashes it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn hot_hash_11(warehouse: u16, district: u8, customer: i64) -> u64 {
    let mut scratch = KeyScratch::new();
    (warehouse, district, customer).encode(&mut scratch).hash(HashSeed::FIXED)
}

/// Takes `step` many times, so that `perf stat` or callgrind can count.
fn repeat(wanted: Option<&str>, name: &str, mut step: impl FnMut(u64) -> u64) {
    const ROUNDS: u64 = 20_000_000;
    if wanted.is_none_or(|wanted| wanted == name) {
        let sum = (0..ROUNDS).fold(0, |sum, round| sum ^ step(black_box(round)));
        println!("{name}: {ROUNDS} rounds, {}", black_box(sum));
    }
}

fn main() {
    let argument = std::env::args().nth(1);
    let wanted = argument.as_deref();
    let mut buffer = RowBuffer::new();
    let stock = Stock {
        warehouse: 1,
        item: 2,
        quantity: 3,
        year_to_date: Decimal::ZERO,
        district: FixedString::truncated("district"),
        data: "ORIGINAL".into(),
    };
    stock.encode(&mut buffer).expect("the row fits");
    let definition = Stock::definition();
    let primary = KeyExtractor::primary(&definition).expect("the definition is valid");
    let secondary = KeyExtractor::secondary(&definition, 0).expect("the definition is valid");
    let mut scratch = KeyScratch::new();
    repeat(wanted, "read", |_| hot_read_two(black_box(buffer.as_row())).0 as u64);
    repeat(wanted, "key_8", |round| hot_key_8(round).0);
    repeat(wanted, "key_6", |round| hot_key_6(round as u16, 7).0);
    repeat(wanted, "hash_11", |round| hot_hash_11(7, 3, round as i64));
    repeat(wanted, "row", |_| stock.encode(black_box(&mut buffer)).map_or(1, |()| 0));
    repeat(wanted, "extract_primary", |_| {
        primary.extract(black_box(buffer.as_row()), &mut scratch).map_or(0, |key| u64::from(key[0]))
    });
    repeat(wanted, "extract_secondary", |_| {
        secondary.extract(black_box(buffer.as_row()), &mut scratch).map_or(0, |key| u64::from(key[0]))
    });
}
