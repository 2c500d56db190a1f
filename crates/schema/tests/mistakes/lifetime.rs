use polychron_schema::Row;

#[derive(Row)]
struct Account<'a> {
    #[key]
    id: u64,
    name: &'a str,
}

fn main() {}
