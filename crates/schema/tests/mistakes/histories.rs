use polychron_schema::Row;

#[derive(Row)]
struct Account {
    #[key]
    #[column(default = 0)]
    id: u64,
    #[column(was = "owner")]
    owner: u64,
    #[column(was = "name")]
    first_name: String,
    #[column(was = "name")]
    last_name: String,
    #[column(was = "")]
    note: String,
}

fn main() {}
