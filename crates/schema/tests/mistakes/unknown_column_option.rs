use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    #[column(length = 10)]
    owner: String,
    #[column]
    note: String,
}

fn main() {}
