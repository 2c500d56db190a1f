use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    limit: i64,
    set_limit: bool,
}

fn main() {}
