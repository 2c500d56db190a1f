use polychron_schema::Row;

#[derive(Row)]
#[row(table = "accounts")]
struct Account {
    #[key]
    id: u64,
}

fn main() {}
