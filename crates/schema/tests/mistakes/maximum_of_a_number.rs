use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    #[column(max = 10)]
    balance: i64,
}

fn main() {}
