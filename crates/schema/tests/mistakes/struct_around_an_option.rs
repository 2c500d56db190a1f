use polychron_schema::Column;

#[derive(Column, Clone, Copy)]
struct Maybe(Option<u64>);

#[derive(Column, Clone)]
struct Name(&'static str);

fn main() {}
