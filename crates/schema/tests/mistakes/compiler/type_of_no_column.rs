use polychron_schema::Row;

struct Address {
    street: String,
}

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    address: Address,
}

fn main() {}
