use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    id: u64,
    #[index(unique)]
    number: u64,
    #[references(Branch)]
    branch: u32,
    #[row(name = "amount")]
    balance: i64,
}

fn main() {}
