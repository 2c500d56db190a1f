use polychron_schema::Row;

#[derive(Row)]
#[index(columns(a, b, c, d, e, f, g, h, i))]
struct Account {
    #[key]
    a: u8,
    #[key]
    b: u8,
    #[key]
    c: u8,
    #[key]
    d: u8,
    #[key]
    e: u8,
    #[key]
    f: u8,
    #[key]
    g: u8,
    #[key]
    h: u8,
    #[key]
    i: u8,
}

fn main() {}
