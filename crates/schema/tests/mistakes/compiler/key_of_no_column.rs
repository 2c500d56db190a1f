use polychron_schema::Row;

struct Number(u64);

#[derive(Row)]
#[index(columns(number, id))]
struct Account {
    #[key]
    id: u64,
    number: Number,
}

fn main() {}
