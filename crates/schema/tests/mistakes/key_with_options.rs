use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key(hash)]
    id: u64,
}

fn main() {}
