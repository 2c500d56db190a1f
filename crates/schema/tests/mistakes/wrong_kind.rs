use polychron_schema::Row;

#[derive(Row)]
#[row(primary = "btree")]
struct Account {
    #[key]
    id: u64,
}

fn main() {}
