use polychron_schema::Column;

#[derive(Column, Clone, Copy)]
struct Place(f64, f64);

#[derive(Column, Clone, Copy)]
struct Nothing;

fn main() {}
