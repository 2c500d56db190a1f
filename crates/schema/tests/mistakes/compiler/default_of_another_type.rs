use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    #[column(default = "none")]
    balance: i64,
}

fn main() {}
