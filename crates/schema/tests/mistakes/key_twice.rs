use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    #[key]
    id: u64,
}

fn main() {}
