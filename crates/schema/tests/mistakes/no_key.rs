use polychron_schema::Row;

#[derive(Row)]
struct Account {
    id: u64,
    balance: i64,
}

fn main() {}
