use polychron_schema::Row;

#[derive(Row)]
#[index(columns(balanec))]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

fn main() {}
