use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    image: [u8; 1_048_576],
}

fn main() {}
