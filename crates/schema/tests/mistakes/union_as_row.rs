use polychron_schema::Row;

#[derive(Row)]
union Account {
    id: u64,
    bits: f64,
}

fn main() {}
