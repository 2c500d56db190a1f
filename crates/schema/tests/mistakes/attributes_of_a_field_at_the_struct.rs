use polychron_schema::Row;

#[derive(Row)]
#[key(id)]
#[column(max = 10)]
struct Account {
    #[key]
    id: u64,
}

fn main() {}
