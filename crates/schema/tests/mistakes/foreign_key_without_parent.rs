use polychron_schema::Row;

#[derive(Row)]
#[index(columns(branch))]
#[references(columns(branch))]
struct Account {
    #[key]
    id: u64,
    branch: u32,
}

fn main() {}
