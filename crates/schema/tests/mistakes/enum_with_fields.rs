use polychron_schema::Column;

#[derive(Column, Clone, Copy)]
enum State {
    Open,
    Closed(u32),
}

fn main() {}
