use polychron_schema::{Column, Decimal};

#[derive(Column, Clone)]
struct Cents(i64);

#[derive(Column, Clone)]
struct Amount(Decimal<2>);

fn main() {}
