use polychron_schema::Column;

#[derive(Clone)]
struct Address;

#[derive(Column, Clone)]
struct Home(Address);

fn main() {}
