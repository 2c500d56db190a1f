use polychron_schema::Row;

#[derive(Row)]
#[allow(non_snake_case)]
struct Account {
    #[key]
    id: u64,
    name: String,
    Name: String,
    row_layout: u8,
}

fn main() {}
