use polychron_schema::Row;

struct Address;

type Maybe = Option<u64>;

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    address: Option<Address>,
    nested: Option<Maybe>,
}

fn main() {}
