use polychron_schema::Row;

use std::collections::HashMap;

#[derive(Row)]
struct Account {
    #[key]
    id: usize,
    name: &'static str,
    tags: Vec<String>,
    limits: [i64; 3],
    note: Option<Option<String>>,
    owner: Box<str>,
    place: (f64, f64),
    rates: HashMap<u32, f64>,
    nothing: (),
}

fn main() {}
