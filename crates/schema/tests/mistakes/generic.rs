use polychron_schema::Row;

#[derive(Row)]
struct Account<T> {
    #[key]
    id: u64,
    value: T,
}

fn main() {}
