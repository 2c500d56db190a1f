use polychron_schema::Row;

#[derive(Row)]
#[row(name = "")]
struct Account {
    #[key]
    id: u64,
}

fn main() {}
