use polychron_schema::Column;

#[derive(Column, Clone, Copy)]
#[repr(i128)]
enum Far {
    Near = -1,
    Far = 1 << 63,
}

#[derive(Column, Clone, Copy)]
enum Twice {
    One = 1,
    Other = 1,
}

fn main() {}
