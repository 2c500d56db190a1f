use polychron_schema::Row;

#[derive(Row)]
#[index(columns(balance), distinct)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

fn main() {}
