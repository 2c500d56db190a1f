use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    id: Option<u64>,
}

fn main() {}
