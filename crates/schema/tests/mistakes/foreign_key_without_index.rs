use polychron_schema::Row;

#[derive(Row)]
#[references(table = "branch", columns(branch))]
struct Account {
    #[key]
    id: u64,
    branch: u32,
}

fn main() {}
