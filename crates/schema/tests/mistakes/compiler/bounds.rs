use polychron_schema::{Decimal, FixedString, Row};

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    name: FixedString<0>,
    balance: Decimal<19>,
    #[column(max = 2_000_000)]
    note: String,
    #[column(max = 3)]
    code: FixedString<4>,
}

fn main() {}
