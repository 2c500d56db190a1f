use polychron_schema::Row;

#[derive(Row)]
#[index(columns(branch))]
#[references(row = Branch, table = "branch", columns(branch))]
#[references(table = "branch", columns(brnch))]
#[references(table = "branch")]
struct Account {
    #[key]
    id: u64,
    branch: u32,
}

fn main() {}
