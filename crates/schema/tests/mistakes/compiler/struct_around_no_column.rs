use polychron_schema::Column;

#[derive(Clone)]
struct Address;

#[derive(Column, Clone)]
struct Home(Address);

#[derive(Column, Clone)]
struct Cents(i64);

fn main() {}
