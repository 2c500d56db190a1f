use polychron_schema::Column;

#[derive(Column, Clone, Copy)]
#[row(name = "cents")]
#[column(max = 3)]
struct Cents(#[key] i64);

#[derive(Column, Clone, Copy)]
#[index(columns(State))]
enum State {
    #[column(max = 3)]
    Open,
}

fn main() {}
