use polychron_schema::Row;

#[derive(Row)]
struct Account(u64, i64);

fn main() {}
