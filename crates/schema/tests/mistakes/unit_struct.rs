use polychron_schema::Row;

#[derive(Row)]
struct Account;

fn main() {}
