use polychron_schema::Row;

#[derive(Row)]
enum Account {
    Open,
    Closed,
}

fn main() {}
