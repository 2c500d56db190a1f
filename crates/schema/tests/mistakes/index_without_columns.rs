use polychron_schema::Row;

#[derive(Row)]
#[index(name = "by_balance")]
#[index]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

fn main() {}
