use polychron_schema::Row;

#[derive(Row)]
#[index(name = "balance", columns(balance))]
#[index(name = "by balance", columns(balance))]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

fn main() {}
