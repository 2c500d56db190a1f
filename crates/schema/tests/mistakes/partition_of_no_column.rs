use polychron_schema::Row;

#[derive(Row)]
#[row(partition = branch)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

fn main() {}
