use polychron_schema::Column;

#[derive(Column)]
enum State {
    Open,
}

fn main() {}
