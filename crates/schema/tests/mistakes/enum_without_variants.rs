use polychron_schema::Column;

#[derive(Column, Clone, Copy)]
enum State {}

fn main() {}
