use polychron_schema::Row;

#[derive(Row)]
#[row(name = "accounts", name = "account")]
struct Account {
    #[key]
    id: u64,
}

fn main() {}
